//! Edges and rules, one claim a test. The properties are in `properties`.

use super::*;
use crate::caller::{CallerId, Lane};
use crate::config::{Fairness, OnFull};
use crate::outcome::{Reason, Scope};
use crate::upstream::Edited;

use std::time::Duration;

const T0: Moment = Moment(1_000_000);

fn settings(max_concurrent: u32, queue_size: u32) -> Settings {
    Settings {
        max_concurrent,
        queue_size,
        queue_bytes: 1 << 30,
        on_full: OnFull::Displace,
        fairness: Fairness::Callers,
        max_queued: None,
        sojourn: None,
        tool_caps: Vec::new(),
    }
}

fn core(max_concurrent: u32, queue_size: u32) -> Core<u32> {
    Core::new(settings(max_concurrent, queue_size), T0)
}

fn call(job: u32, caller: u32) -> Offer<u32> {
    Offer {
        job,
        lane: Lane::Normal,
        caller: CallerId(caller),
        caller_weight: 1,
        caller_limit: None,
        tool: None,
        weight: 1,
        bytes: 1,
        expires: None,
        deadline: None,
        max_queued: None,
        others_seen: false,
    }
}

/// Offers a call that must run at once.
fn run(core: &mut Core<u32>, offer: Offer<u32>) -> EntryId {
    match core.offer(offer, T0, &mut Open) {
        Admitted::Run(id, _) => id,
        other => panic!("should run: {other:?}"),
    }
}

/// Offers a call that must queue and displaces nobody.
fn queue(core: &mut Core<u32>, offer: Offer<u32>) -> EntryId {
    match core.offer(offer, T0, &mut Open) {
        Admitted::Queued { id, displaced: None } => id,
        other => panic!("should queue: {other:?}"),
    }
}

fn refusal(core: &mut Core<u32>, offer: Offer<u32>) -> (Reason, Scope) {
    match core.offer(offer, T0, &mut Open) {
        Admitted::Refused { why, scope, .. } => (why, scope),
        other => panic!("should be refused: {other:?}"),
    }
}

/// The job that is served next, which must run.
fn next(core: &mut Core<u32>) -> Option<(EntryId, u32)> {
    match core.next(T0, &mut Open) {
        Some(Next::Run(id, job)) => Some((id, job)),
        None => None,
        other => panic!("should run: {other:?}"),
    }
}

/// Ends `running` and serves one after the other until the queue is dry; the jobs in order.
fn drain(core: &mut Core<u32>, mut running: EntryId) -> Vec<u32> {
    let mut order = Vec::new();
    loop {
        core.complete(running, Duration::from_millis(1));
        match next(core) {
            Some((id, job)) => {
                order.push(job);
                running = id;
            }
            None => return order,
        }
    }
}

#[test]
fn at_capacity_a_call_queues_and_beyond_it_is_refused() {
    let mut core = core(1, 2);
    let first = run(&mut core, call(0, 1));
    queue(&mut core, call(1, 1));
    queue(&mut core, call(2, 1));
    assert_eq!(refusal(&mut core, call(3, 1)), (Reason::QueueFull, Scope::Entries));
    assert_eq!(core.figures().queued, 2);
    assert_eq!(drain(&mut core, first), [1, 2]);
    assert_eq!(core.figures(), Figures { limit: 1, queue_size: 2, ..core.figures() });
    assert_eq!((core.figures().running, core.figures().queued, core.figures().bytes), (0, 0, 0));
}

#[test]
fn c40_a_queue_of_size_0_uses_a_free_slot_and_never_queues() {
    let mut core = core(1, 0);
    let first = run(&mut core, call(0, 1));
    assert_eq!(refusal(&mut core, call(1, 1)), (Reason::ConcurrencyLimit, Scope::Upstream));
    assert_eq!(next(&mut core), None);
    core.complete(first, Duration::ZERO);
    run(&mut core, call(2, 1));
}

#[test]
fn c40_a_limit_of_0_is_unlimited_up_to_the_ceiling() {
    let mut core = core(0, 10);
    assert_eq!(core.figures().limit, 4096);
    for job in 0..4096 {
        run(&mut core, call(job, job % 50));
    }
    queue(&mut core, call(5000, 1));
    assert_eq!(core.figures().slots, 4096);
    let mut beyond: Core<u32> = Core::new(settings(1_000_000, 0), T0);
    assert_eq!(beyond.figures().limit, 4096);
    run(&mut beyond, call(0, 1));
}

#[test]
fn c40_a_tool_cap_of_0_is_none() {
    let mut core: Core<u32> = Core::new(Settings { tool_caps: vec![Some(0)], ..settings(3, 0) }, T0);
    for job in 0..3 {
        run(&mut core, Offer { tool: Some(ToolKey(0)), ..call(job, 1) });
    }
}

#[test]
fn a_call_over_the_byte_bound_is_refused_as_such() {
    let mut core: Core<u32> = Core::new(Settings { queue_bytes: 10, ..settings(1, 5) }, T0);
    run(&mut core, Offer { bytes: 1000, ..call(0, 1) });
    queue(&mut core, Offer { bytes: 10, ..call(1, 1) });
    assert_eq!(refusal(&mut core, call(2, 1)), (Reason::QueueFull, Scope::Bytes));
    queue(&mut core, Offer { bytes: 0, ..call(3, 1) });
}

#[test]
fn c01_a_lowered_limit_holds_from_now_on_and_a_raised_one_wakes_at_once() {
    let mut core = core(5, 20);
    let running: Vec<_> = (0..5).map(|job| run(&mut core, call(job, 1))).collect();
    for job in 5..10 {
        queue(&mut core, call(job, 1));
    }
    core.reconfigure(settings(1, 20), T0);
    for id in &running[..4] {
        core.complete(*id, Duration::ZERO);
        assert_eq!(next(&mut core), None, "nothing starts until running is below the limit");
    }
    assert_eq!(core.figures().running, 1);
    core.complete(running[4], Duration::ZERO);
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(5));
    assert_eq!(next(&mut core), None);
    core.reconfigure(settings(5, 20), T0);
    let woken: Vec<_> = std::iter::from_fn(|| next(&mut core)).map(|(_, job)| job).collect();
    assert_eq!(woken, [6, 7, 8, 9]);
}

#[test]
fn c02_a_call_whose_deadline_passes_in_the_queue_never_runs() {
    let mut core = core(1, 5);
    let first = run(&mut core, call(0, 1));
    let deadline = T0.after(Duration::from_secs(1));
    let expires = Some(T0.after(Duration::from_secs(30)));
    queue(&mut core, Offer { deadline: Some(deadline), expires, ..call(1, 2) });
    // By the wheel, at most a tick after the deadline.
    let armed = core.next_due().unwrap();
    assert!(armed >= deadline && armed <= deadline.after(Duration::from_millis(16)));
    let mut out = Vec::new();
    assert!(!core.due(Moment(deadline.0 - 1), &mut out, 10) && out.is_empty(), "never early");
    // Again at dispatch, where the deadline itself counts as passed.
    core.complete(first, Duration::from_secs(3));
    assert!(matches!(core.next(deadline, &mut Open), Some(Next::Expired(_, 1))));
    assert_eq!((core.figures().slots, core.figures().queued), (0, 0));
    assert!(!core.due(armed, &mut out, 10) && out.is_empty(), "told once");
}

#[test]
fn a_deadline_of_exactly_now_has_passed() {
    let mut core = core(1, 5);
    assert_eq!(refusal(&mut core, Offer { deadline: Some(T0), ..call(0, 1) }).0, Reason::WouldExpire);
    assert_eq!(refusal(&mut core, Offer { expires: Some(T0), ..call(0, 1) }).0, Reason::WouldExpire);
    run(&mut core, Offer { deadline: Some(Moment(T0.0 + 1)), ..call(0, 1) });
    assert_eq!(core.figures().running, 1);
}

#[test]
fn c03_a_pause_a_reload_and_its_end_never_exceed_the_limit() {
    let mut core = core(2, 20);
    core.pause(true);
    for job in 0..20 {
        queue(&mut core, call(job, job % 3));
    }
    assert_eq!(next(&mut core), None);
    core.reconfigure(settings(2, 20), T0);
    core.pause(false);
    let mut running = std::collections::VecDeque::new();
    let mut served = 0;
    while core.figures().queued > 0 || !running.is_empty() {
        while let Some((id, _)) = next(&mut core) {
            running.push_back(id);
            served += 1;
        }
        assert!(core.figures().slots <= 2 && running.len() <= 2);
        core.complete(running.pop_front().unwrap(), Duration::ZERO);
    }
    assert_eq!(served, 20);
}

/// The ageing bound of `docs/design/queue.md`, from wherever the credits stand, and the shares that lead to it.
#[test]
fn c08_a_low_call_is_served_within_the_documented_bound_behind_both_other_lanes() {
    let mut longest = 0;
    for before in 0..42 {
        let mut core = core(1, 1000);
        let mut running = run(&mut core, call(0, 1));
        let feed = |core: &mut Core<u32>| {
            for (lane, job) in [(Lane::High, 1), (Lane::Normal, 2)] {
                while core.figures().lanes[lane as usize] < 3 {
                    let _ = core.offer(Offer { lane, ..call(job, job) }, T0, &mut Open);
                }
            }
        };
        let mut serve = |core: &mut Core<u32>| {
            feed(core);
            core.complete(running, Duration::ZERO);
            let (id, job) = next(core).unwrap();
            running = id;
            job
        };
        for _ in 0..before {
            serve(&mut core);
        }
        for job in 0..4 {
            queue(&mut core, Offer { lane: Lane::Low, ..call(100 + job, 3) });
        }
        let (mut others, mut rounds) = (0, Vec::new());
        while rounds.len() < 4 {
            if serve(&mut core) >= 100 {
                rounds.push(std::mem::take(&mut others));
            } else {
                others += 1;
            }
        }
        longest = longest.max(*rounds.iter().max().unwrap());
        assert_eq!(rounds[1..], [20, 20, 20], "16 + 4 of the others for each of a low lane that stays");
    }
    assert!((20..=40).contains(&longest), "{longest}");
}

#[test]
fn r19_the_lowest_lane_is_shortened_first_and_dropping_costs_it_nothing() {
    let mut core: Core<u32> = Core::new(Settings { sojourn: Some(Duration::from_secs(1)), ..settings(1, 1000) }, T0);
    let at = |secs: u64| T0.after(Duration::from_secs(secs));
    let mut running = run(&mut core, call(0, 1));
    for job in 0..40 {
        queue(&mut core, Offer { lane: Lane::Low, ..call(100 + job, 3) });
        queue(&mut core, Offer { lane: Lane::High, ..call(job, 2) });
    }
    let (mut shed, mut served) = (Vec::new(), Vec::new());
    for second in 2..60 {
        core.complete(running, Duration::from_secs(1));
        let ran = loop {
            match core.next(at(second), &mut Open) {
                Some(Next::Run(id, job)) => break Some((id, job)),
                Some(Next::Shed(_, job)) => shed.push((second, job)),
                Some(other) => panic!("{other:?}"),
                None => break None,
            }
        };
        let Some((id, job)) = ran else { break };
        running = id;
        served.push(job);
    }
    assert_eq!(core.figures().queued, 0);
    let first_high = shed.iter().position(|(_, job)| *job < 100);
    let lows = shed.iter().take_while(|(_, job)| *job >= 100).count();
    assert!(lows > 0, "{shed:?}");
    assert!(first_high.is_none_or(|at| at == lows), "no high call goes while a low one waits: {shed:?}");
    assert_eq!(served.len() + shed.len(), 80);
}

#[test]
fn r19_a_pause_and_another_limit_start_it_anew() {
    for disturb in [
        |core: &mut Core<u32>| {
            core.reconfigure(Settings { sojourn: Some(Duration::from_secs(1)), ..settings(2, 99) }, T0)
        },
        |core: &mut Core<u32>| {
            core.pause(true);
            core.pause(false);
        },
    ] {
        let mut core: Core<u32> = Core::new(Settings { sojourn: Some(Duration::from_secs(1)), ..settings(1, 99) }, T0);
        let mut running = run(&mut core, call(0, 1));
        for job in 1..40 {
            queue(&mut core, call(job, 1));
        }
        for second in 2..13 {
            core.complete(running, Duration::ZERO);
            let Some(Next::Run(id, _)) = core.next(T0.after(Duration::from_secs(second)), &mut Open) else { panic!() };
            running = id;
        }
        disturb(&mut core);
        core.complete(running, Duration::ZERO);
        let next = core.next(T0.after(Duration::from_secs(13)), &mut Open);
        assert!(matches!(next, Some(Next::Run(..))), "{next:?}");
    }
}

#[test]
fn c08_a_low_call_under_constant_high_load_runs_within_the_bound() {
    let mut core = core(1, 100);
    let mut running = run(&mut core, call(0, 1));
    queue(&mut core, Offer { lane: Lane::Low, ..call(1, 2) });
    let mut before = 0;
    loop {
        for _ in 0..2 {
            let _ = core.offer(Offer { lane: Lane::High, ..call(2, 3) }, T0, &mut Open);
        }
        core.complete(running, Duration::ZERO);
        let (id, job) = next(&mut core).unwrap();
        if job == 1 {
            break;
        }
        before += 1;
        running = id;
        assert!(before <= 40, "the low lane starves");
    }
}

#[test]
fn c08_calls_of_one_caller_and_lane_run_in_order_across_a_reload() {
    for fairness in [Fairness::Callers, Fairness::None] {
        let mut core = core(1, 100);
        let first = run(&mut core, call(0, 1));
        for job in 1..=25 {
            queue(&mut core, call(job, 1));
        }
        core.reconfigure(Settings { fairness, ..settings(1, 100) }, T0);
        for job in 26..=50 {
            queue(&mut core, call(job, 1));
        }
        core.reconfigure(settings(1, 100), T0);
        assert_eq!(drain(&mut core, first), (1..=50).collect::<Vec<_>>());
    }
}

#[test]
fn without_fairness_a_lane_is_plain_fifo_over_all_callers() {
    let mut core: Core<u32> = Core::new(Settings { fairness: Fairness::None, ..settings(1, 100) }, T0);
    let first = run(&mut core, call(0, 1));
    for job in 1..20 {
        queue(&mut core, call(job, job * 7 % 5));
    }
    assert_eq!(drain(&mut core, first), (1..20).collect::<Vec<_>>());
}

#[test]
fn a_caller_of_weight_two_has_two_turns_to_one() {
    let mut core = core(1, 100);
    let first = run(&mut core, call(0, 9));
    for job in 0..6 {
        queue(&mut core, Offer { caller_weight: 2, ..call(100 + job, 1) });
        queue(&mut core, call(200 + job, 2));
    }
    assert_eq!(drain(&mut core, first), [100, 101, 200, 102, 103, 201, 104, 105, 202, 203, 204, 205]);
}

#[test]
fn r05_a_call_handed_back_runs_before_those_behind_it_with_its_id_and_deadline() {
    let mut core = core(3, 2);
    let expires = Some(T0.after(Duration::from_millis(100)));
    let ids: Vec<_> = (0..3).map(|job| run(&mut core, Offer { expires, ..call(job, 1) })).collect();
    queue(&mut core, call(3, 1));
    queue(&mut core, call(4, 1));
    core.run_until(ids[0], T0.after(Duration::from_secs(60)));
    // Handed back out of order and into a full queue, they still stand in order.
    assert!(core.hand_back(ids[2]) && core.hand_back(ids[0]) && core.hand_back(ids[1]));
    assert!(!core.hand_back(ids[0]), "it is queued already");
    assert_eq!((core.figures().queued, core.figures().slots), (5, 0));
    assert_eq!(core.row(ids[0]).unwrap().due, expires, "the queue expiry counts again");
    assert_eq!(refusal(&mut core, call(5, 1)).0, Reason::QueueFull);
    let order: Vec<_> = std::iter::from_fn(|| next(&mut core)).collect();
    assert_eq!(order, [(ids[0], 0), (ids[1], 1), (ids[2], 2)]);
}

#[test]
fn r05_a_call_handed_back_after_its_deadline_expires() {
    let mut core = core(1, 2);
    let expires = T0.after(Duration::from_millis(100));
    let id = run(&mut core, Offer { expires: Some(expires), ..call(0, 1) });
    core.hand_back(id);
    assert_eq!(core.next(expires, &mut Open), Some(Next::Expired(id, 0)));
}

#[test]
fn r07_a_lingering_slot_counts_until_it_is_given_back() {
    let mut core = core(1, 5);
    let first = run(&mut core, Offer { tool: Some(ToolKey(0)), ..call(0, 1) });
    queue(&mut core, call(1, 1));
    let grace = T0.after(Duration::from_secs(5));
    assert!(core.linger(first, Some(grace)));
    assert_eq!((core.figures().running, core.figures().lingering, core.figures().slots), (0, 1, 1));
    assert_eq!(next(&mut core), None);
    assert_eq!(core.withdraw(first), Withdrawn::Lingering);
    let mut out = Vec::new();
    core.due(grace.after(Duration::from_millis(16)), &mut out, 10);
    assert_eq!(out, [Due::GraceOver(first, 0)]);
    assert_eq!(next(&mut core), None, "the end of the grace frees nothing by itself");
    assert_eq!(core.complete(first, Duration::ZERO), Some(0));
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(1));
}

#[test]
fn r07_a_lingering_call_holds_its_tools_slot_too() {
    let mut core: Core<u32> = Core::new(Settings { tool_caps: vec![Some(1)], ..settings(5, 5) }, T0);
    let tool = Some(ToolKey(0));
    let first = run(&mut core, Offer { tool, ..call(0, 1) });
    core.linger(first, None);
    queue(&mut core, Offer { tool, ..call(1, 2) });
    assert_eq!(next(&mut core), None);
    core.complete(first, Duration::ZERO);
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(1));
}

#[test]
fn a_run_is_told_its_end_and_keeps_its_slot() {
    let mut core = core(1, 5);
    let first = run(&mut core, call(0, 1));
    let until = T0.after(Duration::from_secs(120));
    core.run_until(first, until);
    let (mut out, mut now) = (Vec::new(), T0);
    // Far beyond one rotation of the wheel: the timer may fire early, but never tells early.
    while let Some(due) = core.next_due() {
        now = now.max(due);
        core.due(now, &mut out, 10);
    }
    assert!(now >= until && now <= until.after(Duration::from_millis(16)));
    assert_eq!(out, [Due::RunTimedOut(first, 0)]);
    assert_eq!(core.figures().running, 1);
}

#[test]
fn a_time_is_told_after_a_gap_of_many_rotations() {
    let mut core = core(1, 5);
    run(&mut core, call(0, 1));
    for (job, seconds) in [(1, 1), (2, 20), (3, 3600)] {
        queue(&mut core, Offer { expires: Some(T0.after(Duration::from_secs(seconds))), ..call(job, 1) });
    }
    let mut out = Vec::new();
    core.due(T0.after(Duration::from_secs(3000)), &mut out, 10);
    assert_eq!(out.len(), 2);
    core.due(T0.after(Duration::from_secs(4000)), &mut out, 10);
    assert_eq!(out.len(), 3);
    assert_eq!(core.next_due(), None, "an idle queue arms no timer");
}

/// A gate with permits by caller.
fn permits(free: &'static [u32]) -> impl Gate<u32> {
    |_: &u32, flow: FlowKey| if free.contains(&flow.caller.0) { Pass::Go } else { Pass::Park }
}

#[test]
fn r12_r13_a_parked_flow_leaves_the_slots_to_others_and_comes_back_at_the_tail() {
    let mut core = core(1, 20);
    let mut running = run(&mut core, call(0, 9));
    for job in 1..4 {
        queue(&mut core, call(100 + job, 1));
        queue(&mut core, call(200 + job, 2));
    }
    core.complete(running, Duration::ZERO);
    let Some(Next::Run(id, 201)) = core.next(T0, &mut permits(&[2])) else { panic!("caller 2 goes first") };
    running = id;
    assert_eq!((core.figures().parked, core.figures().queued), (3, 5));
    assert_eq!(core.position(running), None);
    core.unpark(FlowKey { lane: Lane::Normal, caller: CallerId(1), tool: None });
    assert_eq!(core.figures().parked, 0);
    assert_eq!(drain(&mut core, running), [202, 101, 203, 102, 103]);
}

#[test]
fn r13_a_capped_tool_does_not_hold_up_its_callers_other_calls() {
    let mut core: Core<u32> = Core::new(Settings { tool_caps: vec![Some(1)], ..settings(2, 20) }, T0);
    let tool = Some(ToolKey(0));
    let export = run(&mut core, Offer { tool, ..call(0, 1) });
    let other = run(&mut core, call(1, 1));
    queue(&mut core, Offer { tool, ..call(2, 1) });
    queue(&mut core, Offer { tool, ..call(3, 1) });
    queue(&mut core, call(4, 1));
    core.complete(other, Duration::ZERO);
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(4), "the oldest that is not parked");
    core.complete(export, Duration::ZERO);
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(2));
    assert_eq!(next(&mut core), None);
}

#[test]
fn r13_callers_take_turns_at_a_capped_tool() {
    let mut core: Core<u32> = Core::new(Settings { tool_caps: vec![Some(1)], ..settings(4, 50) }, T0);
    let tool = Some(ToolKey(0));
    let first = run(&mut core, Offer { tool, ..call(0, 9) });
    for job in 0..3 {
        queue(&mut core, Offer { tool, ..call(100 + job, 1) });
    }
    for job in 0..3 {
        queue(&mut core, Offer { tool, ..call(200 + job, 2) });
        queue(&mut core, Offer { tool, ..call(300 + job, 3) });
    }
    assert_eq!(drain(&mut core, first), [100, 200, 300, 101, 201, 301, 102, 202, 302]);
}

#[test]
fn r13_a_lane_of_parked_flows_counts_as_empty_for_credits() {
    let mut core = core(1, 100);
    let mut running = run(&mut core, call(0, 9));
    queue(&mut core, Offer { lane: Lane::High, ..call(1, 1) });
    for job in 0..30 {
        queue(&mut core, Offer { lane: Lane::Low, ..call(100 + job, 2) });
    }
    let mut served = Vec::new();
    for _ in 0..30 {
        core.complete(running, Duration::ZERO);
        let Some(Next::Run(id, job)) = core.next(T0, &mut permits(&[2])) else { panic!("the low lane is served") };
        running = id;
        served.push(job);
    }
    assert_eq!(served, (100..130).collect::<Vec<_>>());
}

#[test]
fn r14_a_pick_that_does_not_fit_holds_dispatch_until_it_fits() {
    let mut core = core(3, 20);
    let running: Vec<_> = (0..3).map(|job| run(&mut core, call(job, 1))).collect();
    queue(&mut core, Offer { weight: 3, ..call(10, 1) });
    core.complete(running[0], Duration::ZERO);
    assert_eq!(next(&mut core), None, "two slots are missing");
    // Neither a newcomer nor a higher lane slips past.
    queue(&mut core, Offer { lane: Lane::High, ..call(11, 2) });
    assert_eq!(next(&mut core), None);
    core.complete(running[1], Duration::ZERO);
    core.complete(running[2], Duration::ZERO);
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(10));
    assert_eq!(core.figures().slots, 3);
}

#[test]
fn r14_a_held_pick_that_goes_away_frees_dispatch() {
    let mut core = core(2, 20);
    let first = run(&mut core, call(0, 1));
    run(&mut core, call(1, 1));
    let heavy = queue(&mut core, Offer { weight: 2, ..call(10, 1) });
    queue(&mut core, call(11, 2));
    core.complete(first, Duration::ZERO);
    assert_eq!(next(&mut core), None);
    assert_eq!(core.withdraw(heavy), Withdrawn::Queued(10));
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(11));
}

#[test]
fn r14_a_weight_above_the_limit_counts_as_the_limit() {
    let mut core = core(2, 20);
    let heavy = run(&mut core, Offer { weight: 50, ..call(0, 1) });
    assert_eq!(core.figures().slots, 2);
    queue(&mut core, Offer { weight: 50, ..call(1, 1) });
    // The slots that were taken are given back, whatever the limit is by then.
    core.reconfigure(settings(8, 20), T0);
    assert_eq!(next(&mut core), None, "8 of 8 are wanted, 6 are free");
    core.complete(heavy, Duration::ZERO);
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(1));
    assert_eq!(core.figures().slots, 8);
}

#[test]
fn r14_heavy_calls_are_charged_to_their_caller() {
    let mut core = core(2, 100);
    let running = run(&mut core, Offer { weight: 2, ..call(0, 9) });
    for job in 0..4 {
        queue(&mut core, Offer { weight: 2, ..call(100 + job, 1) });
    }
    for job in 0..8 {
        queue(&mut core, call(200 + job, 2));
    }
    core.complete(running, Duration::ZERO);
    let mut slots = [0, 0];
    for _ in 0..9 {
        let (id, job) = next(&mut core).unwrap();
        slots[usize::from(job >= 200)] += if job >= 200 { 1 } else { 2 };
        core.complete(id, Duration::ZERO);
    }
    assert_eq!(slots, [6, 6], "equal slots, not equal calls");
}

#[test]
fn r15_a_newcomer_takes_the_place_of_the_longest_turns_newest_call_in_the_lowest_lane() {
    let mut core = core(1, 6);
    run(&mut core, call(0, 9));
    let low = |job, caller| Offer { lane: Lane::Low, ..call(job, caller) };
    for offer in [low(1, 1), low(2, 2), low(3, 2), call(4, 3), call(5, 3), call(6, 3)] {
        queue(&mut core, offer);
    }
    let victim = |core: &mut Core<u32>, offer| match core.offer(offer, T0, &mut Open) {
        Admitted::Queued { displaced, .. } => displaced.map(|(_, job)| job),
        other => panic!("{other:?}"),
    };
    assert_eq!(victim(&mut core, Offer { lane: Lane::High, ..call(7, 4) }), Some(3), "lowest lane, longest turn");
    assert_eq!(refusal(&mut core, low(8, 1)), (Reason::QueueFull, Scope::Entries), "nobody is longer by two");
    assert!([1, 2].contains(&victim(&mut core, call(9, 5)).unwrap()));
    assert!([1, 2].contains(&victim(&mut core, call(10, 5)).unwrap()));
    // No lower lane is left; caller 3 has three, the newcomer's caller one.
    assert_eq!(victim(&mut core, call(11, 6)), Some(6));
    assert_eq!(refusal(&mut core, call(12, 6)), (Reason::QueueFull, Scope::Entries));
}

#[test]
fn r15_nobody_is_displaced_unless_the_newcomer_then_fits_by_bytes() {
    let mut core: Core<u32> = Core::new(Settings { queue_bytes: 10, ..settings(1, 10) }, T0);
    run(&mut core, call(0, 9));
    queue(&mut core, Offer { lane: Lane::Low, bytes: 4, ..call(1, 1) });
    queue(&mut core, Offer { bytes: 6, ..call(2, 1) });
    let high = |bytes| Offer { lane: Lane::High, bytes, ..call(3, 2) };
    assert_eq!(refusal(&mut core, high(5)), (Reason::QueueFull, Scope::Bytes));
    assert_eq!(core.figures().queued, 2);
    assert!(matches!(core.offer(high(4), T0, &mut Open), Admitted::Queued { displaced: Some((_, 1)), .. }));
}

#[test]
fn r15_under_reject_a_caller_has_half_the_queue_while_another_is_present() {
    let reject = Settings { on_full: OnFull::Reject, ..settings(1, 4) };
    let mut core: Core<u32> = Core::new(reject.clone(), T0);
    run(&mut core, call(0, 1));
    for job in 1..4 {
        queue(&mut core, call(job, 1));
    }
    // Alone it may fill the queue; with another caller seen, it has more than its share already.
    assert_eq!(refusal(&mut core, Offer { others_seen: true, ..call(4, 1) }), (Reason::CallerShare, Scope::Caller));
    queue(&mut core, call(4, 2));
    assert_eq!(refusal(&mut core, call(5, 1)).0, Reason::CallerShare);
    assert_eq!(refusal(&mut core, call(6, 2)).0, Reason::QueueFull);

    let mut core: Core<u32> = Core::new(Settings { queue_size: 1, ..reject }, T0);
    run(&mut core, call(0, 1));
    queue(&mut core, Offer { others_seen: true, ..call(1, 2) });
}

#[test]
fn r15_a_set_share_holds_always_and_the_narrower_one_counts() {
    let mut core: Core<u32> = Core::new(Settings { max_queued: Some(2), ..settings(1, 10) }, T0);
    run(&mut core, call(0, 1));
    queue(&mut core, call(1, 1));
    assert_eq!(refusal(&mut core, Offer { max_queued: Some(1), ..call(2, 1) }).0, Reason::CallerShare);
    queue(&mut core, Offer { lane: Lane::High, max_queued: Some(9), ..call(3, 1) });
    assert_eq!(refusal(&mut core, call(4, 1)).0, Reason::CallerShare, "over all lanes together");
    queue(&mut core, call(5, 2));
}

/// Lets 20 calls of 100 ms end, so that waits are predicted.
fn warm(core: &mut Core<u32>) {
    for job in 0..20 {
        let id = run(core, call(job, 999));
        core.complete(id, Duration::from_millis(100));
    }
}

#[test]
fn r18_a_call_that_would_wait_beyond_its_deadline_is_refused() {
    let mut core = core(1, 100);
    let wait = |core: &Core<u32>| core.predicted_wait(Lane::Normal, CallerId(1), 1, None);
    for job in 0..19 {
        let id = run(&mut core, call(job, 1));
        core.complete(id, Duration::from_millis(100));
    }
    assert_eq!(wait(&core), None, "19 samples are not enough");
    let id = run(&mut core, call(20, 1));
    core.complete(id, Duration::from_millis(100));
    run(&mut core, call(0, 1));
    for job in 0..9 {
        queue(&mut core, call(job, 1));
    }
    assert_eq!(wait(&core), Some(Duration::from_secs(1)), "nine ahead, 100 ms each, and the one that runs");
    let by = |ms| Offer { deadline: Some(T0.after(Duration::from_millis(ms))), ..call(50, 1) };
    match core.offer(by(900), T0, &mut Open) {
        Admitted::Refused { why: Reason::WouldExpire, retry, .. } => {
            assert_eq!(core.retry_after(retry, 0.0), Some(Duration::from_millis(100)));
        }
        other => panic!("{other:?}"),
    }
    queue(&mut core, by(1000));
    // Another caller has its turn next, whatever the first has queued.
    queue(&mut core, Offer { deadline: Some(T0.after(Duration::from_millis(250))), ..call(51, 2) });
    core.pause(true);
    assert_eq!(wait(&core), None, "nothing is foretold while paused");
}

#[test]
fn r18_a_callers_own_cap_and_parked_flows_enter_the_prediction() {
    let mut core = core(10, 1000);
    warm(&mut core);
    for job in 0..10 {
        run(&mut core, call(job, 1));
    }
    for job in 0..9 {
        queue(&mut core, call(job, 1));
    }
    let wait = |core: &Core<u32>, limit| core.predicted_wait(Lane::Normal, CallerId(1), 1, limit);
    assert_eq!(wait(&core, None), Some(Duration::from_millis(100)));
    assert_eq!(wait(&core, Some(1)), Some(Duration::from_secs(1)));
    let other = |core: &Core<u32>| core.predicted_wait(Lane::Low, CallerId(2), 1, None);
    assert_eq!(other(&core), Some(Duration::from_millis(50)), "4 of another lane in each round, and itself");
}

#[test]
fn r18_position_counts_those_served_before() {
    let mut core = core(1, 100);
    run(&mut core, call(0, 9));
    let ids: Vec<_> = (0..3).map(|job| queue(&mut core, call(job, 1))).collect();
    let other = queue(&mut core, call(10, 2));
    let high = queue(&mut core, Offer { lane: Lane::High, ..call(11, 3) });
    assert_eq!(core.position(high), Some(2), "a lower lane has its share meanwhile");
    assert_eq!(core.position(ids[0]), Some(3), "an estimate: before it the other caller may be served");
    assert_eq!(core.position(ids[2]), Some(5));
    assert_eq!(core.position(other), Some(3));
    assert_eq!(core.withdraw(ids[1]), Withdrawn::Queued(1));
    assert_eq!(core.position(ids[2]), Some(4));
    assert_eq!(core.position(ids[1]), None);
}

#[test]
fn r19_what_expired_or_is_gone_costs_its_lane_and_caller_nothing() {
    let mut core = core(1, 100);
    let first = run(&mut core, call(0, 9));
    let soon = Some(T0.after(Duration::from_millis(5)));
    for job in 0..40 {
        queue(&mut core, Offer { lane: Lane::Low, expires: soon, ..call(100 + job, 1) });
    }
    queue(&mut core, Offer { lane: Lane::Low, ..call(1, 1) });
    for job in 0..4 {
        queue(&mut core, call(200 + job, 2));
    }
    core.complete(first, Duration::ZERO);
    let later = T0.after(Duration::from_millis(6));
    let (mut served, mut expired) = (Vec::new(), 0);
    while let Some(met) = core.next(later, &mut |job: &u32, _| if *job == 200 { Pass::Gone } else { Pass::Go }) {
        match met {
            Next::Run(id, job) => {
                core.complete(id, Duration::ZERO);
                served.push(job);
            }
            Next::Expired(..) => expired += 1,
            Next::Shed(..) => unreachable!("waits are left alone"),
            Next::Gone(_, job) => assert_eq!(job, 200),
        }
    }
    assert_eq!(expired, 40);
    assert_eq!(served, [201, 202, 203, 1], "the lane's one credit is still there for the live one");
}

#[test]
fn r20_mass_expiry_is_worked_off_in_slices() {
    let mut core = core(1, 5_000);
    run(&mut core, call(0, 1));
    let soon = T0.after(Duration::from_millis(100));
    for job in 0..3_000 {
        queue(&mut core, Offer { expires: Some(soon), ..call(job, job % 7) });
        // Of the same bucket, but rotations later: they are passed over, and only once.
        if job % 2 == 0 {
            let late = soon.after(Duration::from_micros(4 * 1024 * 16_000));
            queue(&mut core, Offer { expires: Some(late), ..call(job, 8) });
        }
    }
    let later = soon.after(Duration::from_millis(20));
    let (mut out, mut slices) = (Vec::new(), 0);
    loop {
        let before = out.len();
        let more = core.due(later, &mut out, 1024);
        assert!(out.len() - before <= 1024);
        slices += 1;
        if !more {
            break;
        }
        // Between slices life goes on: a call is taken out from under the scan, another comes.
        if let Some(row) = core.page(0, 256).rows.iter().find(|row| row.due == Some(soon)) {
            assert_eq!(core.withdraw(row.id), Withdrawn::Queued(row.job));
            out.push(Due::QueueExpired(row.id, row.job));
        }
    }
    assert!((3..12).contains(&slices), "{slices}");
    assert_eq!(out.len(), 3_000);
    assert_eq!(core.figures().queued, 1_500);
}

#[test]
fn r24_a_lower_queue_size_keeps_what_waits_and_refuses_newcomers() {
    let mut core = core(1, 10);
    let first = run(&mut core, call(0, 1));
    for job in 1..=8 {
        queue(&mut core, call(job, 1));
    }
    core.reconfigure(settings(1, 3), T0);
    assert_eq!(core.figures().queued, 8);
    assert_eq!(refusal(&mut core, Offer { lane: Lane::High, ..call(9, 2) }), (Reason::QueueFull, Scope::Entries));
    assert_eq!(drain(&mut core, first), (1..=8).collect::<Vec<_>>());
}

#[test]
fn r24_a_tool_that_gets_a_cap_is_held_to_it_at_once() {
    let mut core = core(2, 10);
    let running = [run(&mut core, call(10, 1)), run(&mut core, call(11, 1))];
    for job in 12..16 {
        queue(&mut core, call(job, 1));
    }
    queue(&mut core, call(1, 1));
    core.reconfigure(Settings { tool_caps: vec![Some(1)], ..settings(2, 10) }, T0);
    core.rekey(|job| ((*job >= 10).then_some(ToolKey(0)), 1));
    core.complete(running[0], Duration::ZERO);
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(1), "one of the tool still runs");
    core.complete(running[1], Duration::ZERO);
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(12));
}

#[test]
fn r25_only_a_queued_call_can_be_edited_and_at_most_to_its_own_deadline() {
    let mut core = core(1, 10);
    let first = run(&mut core, call(0, 1));
    let at = |ms| T0.after(Duration::from_millis(ms));
    let id = queue(&mut core, Offer { expires: Some(at(100)), deadline: Some(at(500)), ..call(1, 1) });
    assert_eq!(core.set_expiry(id, at(9_000)), Edited::Changed);
    assert_eq!(core.row(id).unwrap().due, Some(at(500)));
    let mut out = Vec::new();
    core.due(at(400), &mut out, 10);
    assert!(out.is_empty(), "the wheel was told too");
    assert_eq!(core.set_expiry(id, at(450)), Edited::Changed);
    core.due(at(480), &mut out, 10);
    assert_eq!(out, [Due::QueueExpired(id, 1)]);
    assert_eq!(core.set_expiry(id, at(450)), Edited::Unknown);
    assert_eq!(core.set_expiry(first, at(450)), Edited::AlreadyRunning);
    assert_eq!(core.set_lane(first, Lane::Low), Edited::AlreadyRunning);
}

#[test]
fn r25_a_call_moved_to_another_lane_is_served_there() {
    let mut core = core(1, 10);
    let first = run(&mut core, call(0, 1));
    for job in 1..4 {
        queue(&mut core, call(job, 1));
    }
    let last = queue(&mut core, Offer { expires: Some(T0.after(Duration::from_secs(9))), ..call(4, 1) });
    assert_eq!(core.set_lane(last, Lane::High), Edited::Changed);
    assert_eq!(core.figures().lanes, [1, 3, 0]);
    assert_eq!(core.row(last).unwrap().due, Some(T0.after(Duration::from_secs(9))));
    assert_eq!(drain(&mut core, first), [4, 1, 2, 3]);
}

#[test]
fn an_id_of_a_reused_place_names_nothing() {
    let mut core = core(1, 10);
    run(&mut core, call(0, 1));
    let old = queue(&mut core, call(1, 1));
    assert_eq!(core.withdraw(old), Withdrawn::Queued(1));
    let new = queue(&mut core, call(2, 1));
    assert_eq!(old.0 as u32, new.0 as u32, "the place is used again");
    assert_eq!(core.withdraw(old), Withdrawn::Unknown);
    assert_eq!(core.complete(old, Duration::ZERO), None);
    assert!(!core.linger(old, None) && !core.hand_back(old) && !core.run_until(old, T0));
    assert_eq!(core.position(new), Some(1));
}

#[test]
fn a_call_that_had_finished_leaves_nothing_behind_at_the_door() {
    let mut core = core(1, 10);
    let gone = core.offer(call(0, 1), T0, &mut |_: &u32, _: FlowKey| Pass::Gone);
    assert_eq!(gone, Admitted::Gone(0));
    assert_eq!(core.figures().slots, 0);
    run(&mut core, call(1, 1));
}

#[test]
fn a_newcomer_without_a_permit_queues_parked() {
    let mut core = core(4, 1);
    let parked = core.offer(call(0, 1), T0, &mut permits(&[]));
    assert!(matches!(parked, Admitted::Queued { displaced: None, .. }));
    assert_eq!(core.figures().parked, 1);
    run(&mut core, call(1, 2));
    assert_eq!(next(&mut core), None);
    core.unpark(FlowKey { lane: Lane::Normal, caller: CallerId(1), tool: None });
    assert_eq!(next(&mut core).map(|(_, job)| job), Some(0));
    core.unpark(FlowKey { lane: Lane::Low, caller: CallerId(77), tool: None });
}

#[test]
fn a_listing_misses_nothing_that_stays_while_the_ring_turns() {
    let mut core = core(1, 10_000);
    let mut running = run(&mut core, call(0, 1));
    let mut stays = std::collections::BTreeSet::new();
    for job in 1..=2_000 {
        let id = queue(&mut core, call(job, job % 40));
        stays.insert(id);
    }
    let (mut cursor, mut seen, mut pages) = (0, std::collections::BTreeSet::new(), 0);
    loop {
        let page = core.page(cursor, 50);
        for row in page.rows {
            assert!(seen.insert(row.id), "seen twice");
        }
        pages += 1;
        assert!(pages < 100, "the listing ends");
        // Turns go round and newcomers come, more of them than a page shows.
        for _ in 0..30 {
            core.complete(running, Duration::ZERO);
            let (id, _) = next(&mut core).unwrap();
            stays.remove(&id);
            running = id;
        }
        for job in 0..60 {
            queue(&mut core, call(50_000 + job, job % 45));
        }
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    assert!(stays.len() > 500, "{} of 2,000 stay", stays.len());
    let missed: Vec<_> = stays.difference(&seen).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_cursor_can_be_asked_twice_and_an_old_one_is_stale() {
    let mut core = core(1, 1_000);
    run(&mut core, call(0, 1));
    for job in 1..=300 {
        queue(&mut core, call(job, job % 3));
    }
    let first = core.page(0, 100);
    let cursor = first.next.unwrap();
    let second = core.page(cursor, 100);
    assert_eq!(core.page(cursor, 100).rows, second.rows);
    for _ in 0..64 {
        assert!(core.page(0, 1).next.is_some());
    }
    assert!(core.page(cursor, 100).stale);
    assert!(core.page(u64::MAX, 100).stale);
    assert_eq!(core.page(0, 100_000).rows.len(), 256, "never more than a page");
}

#[test]
fn the_oldest_wait_is_that_of_any_flow_parked_or_not() {
    let mut core = core(1, 10);
    assert_eq!(core.oldest(), None);
    run(&mut core, call(0, 1));
    for (job, at) in [(1, 10), (2, 5), (3, 20)] {
        let _ = core.offer(call(job, job), Moment(T0.0 + at), &mut Open);
    }
    assert_eq!(core.oldest(), Some(Moment(T0.0 + 5)));
}
