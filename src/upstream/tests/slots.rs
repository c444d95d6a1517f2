//! Slots and the permits that travel with them: lingering, what a grace ends in, gates, fair shares.

use super::rig::*;
use crate::call::State;
use crate::caller::Lane;
use crate::config::{AfterCancel, CallerConfig, Global, Limits, ToolConfig};
use crate::outcome::{CancelledBy, Outcome, Phase};
use crate::upstream::connection::StopReason;
use crate::upstream::scripted::{OnStop, Seen};

const OPERATOR: CancelledBy = CancelledBy::Operator;

#[tokio::test(start_paused = true)]
async fn r07_a_cancelled_running_call_keeps_its_slot_until_the_server_answers() {
    let rig = Rig::up(limits(1, 10)).await;
    let calls = rig.calls(&caller(1), 2);
    rig.settle().await;
    rig.cancel(&calls[0], OPERATOR);
    rig.settle().await;
    assert_eq!(outcome(&calls[0]), Some(Outcome::Cancelled { by: OPERATOR, phase: Phase::Running }));
    assert!(rig.server.seen().contains(&Seen::Stop(calls[0].id, StopReason::Cancelled)));
    let status = rig.upstream.status();
    assert_eq!((status.running, status.lingering, status.queued), (0, 1, 1));
    rig.server.answer(calls[0].id);
    rig.settle().await;
    assert_eq!(rig.upstream.status().lingering, 0);
    assert_eq!(calls[1].ticket.state(), State::Running);
    assert_eq!(outcome(&calls[0]), Some(Outcome::Cancelled { by: OPERATOR, phase: Phase::Running }));
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r07_release_gives_the_slot_up_after_the_grace_and_counts_it() {
    let rig = Rig::up(limits(1, 10)).await;
    let calls = rig.calls(&caller(1), 2);
    rig.settle().await;
    rig.cancel(&calls[0], OPERATOR);
    rig.pass(ms(4980)).await;
    assert_eq!(calls[1].ticket.state(), State::Queued);
    rig.pass(ms(40)).await;
    assert_eq!(calls[1].ticket.state(), State::Running);
    assert_eq!(rig.upstream.released(), 1);
    // The late answer frees nothing that is not its own.
    rig.server.answer(calls[0].id);
    rig.settle().await;
    assert_eq!(rig.upstream.status().running, 1);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r07_hold_keeps_the_slot_until_the_calls_own_time_limit() {
    let limits =
        Limits { after_cancel: AfterCancel::Hold, call_timeout: Some(secs(20)), queue_timeout: None, ..limits(1, 10) };
    let rig = Rig::up(limits).await;
    let calls = rig.calls(&caller(1), 2);
    rig.pass(secs(2)).await;
    rig.cancel(&calls[0], OPERATOR);
    rig.pass(ms(17_900)).await;
    assert_eq!(calls[1].ticket.state(), State::Queued);
    rig.pass(ms(200)).await;
    assert_eq!(calls[1].ticket.state(), State::Running);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r07_hold_without_a_time_limit_waits_for_the_answer_so_the_cap_is_exact() {
    let limits = Limits { after_cancel: AfterCancel::Hold, call_timeout: None, queue_timeout: None, ..limits(2, 10) };
    let rig = Rig::up(limits).await;
    let calls = rig.calls(&caller(1), 6);
    rig.settle().await;
    rig.cancel(&calls[0], OPERATOR);
    rig.cancel(&calls[1], OPERATOR);
    rig.pass(secs(60)).await;
    assert_eq!(in_state(&calls, State::Queued), 4);
    while rig.server.answer_next().is_some() {
        rig.settle().await;
    }
    assert_eq!(rig.server.peak(), 2);
    assert_eq!(rig.upstream.released(), 0);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r07_recycle_takes_the_call_from_the_server() {
    let rig = Rig::up(Limits { after_cancel: AfterCancel::Recycle, ..limits(1, 10) }).await;
    let calls = rig.calls(&caller(1), 2);
    rig.settle().await;
    rig.cancel(&calls[0], OPERATOR);
    rig.pass(ms(5050)).await;
    assert!(rig.server.seen().contains(&Seen::Recycle(calls[0].id)));
    assert_eq!(calls[1].ticket.state(), State::Running);
    assert_eq!(rig.server.peak(), 1);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_honours_a_cancel_frees_the_slot_at_once() {
    let rig = Rig::up(limits(1, 10)).await;
    rig.server.on_stop(OnStop::Honour);
    let calls = rig.calls(&caller(1), 2);
    rig.settle().await;
    rig.cancel(&calls[0], OPERATOR);
    rig.settle().await;
    assert_eq!(calls[1].ticket.state(), State::Running);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_ends_its_call_lost_and_frees_the_slot() {
    let rig = Rig::up(limits(1, 10)).await;
    let calls = rig.calls(&caller(1), 2);
    rig.settle().await;
    rig.server.drop_run(calls[0].id);
    rig.settle().await;
    assert_eq!(outcome(&calls[0]), Some(Outcome::Lost { sent: true }));
    assert_eq!(calls[1].ticket.state(), State::Running);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn a_tool_cap_holds_back_its_own_calls_alone() {
    let one = ToolConfig { max_concurrent: Some(1), ..ToolConfig::default() };
    let rig = Rig::of(with_tool(config("up", limits(4, 20)), "export", one)).await;
    let ann = caller(1);
    let export = Like { tool: Some("export"), ..Like::default() };
    let exports: Vec<_> = (0..3).map(|_| rig.call(&ann, export.clone())).collect();
    let others = rig.calls(&ann, 2);
    rig.settle().await;
    assert_eq!(in_state(&exports, State::Running), 1);
    assert_eq!(in_state(&others, State::Running), 2);
    rig.cancel(&exports[0], OPERATOR);
    rig.settle().await;
    // Lingering keeps the tool's permit too.
    assert_eq!(in_state(&exports, State::Running), 0);
    rig.server.answer(exports[0].id);
    rig.settle().await;
    assert_eq!(in_state(&exports, State::Running), 1);
    rig.check(&exports);
}

#[tokio::test(start_paused = true)]
async fn r14_a_heavy_call_takes_as_many_slots_as_it_weighs() {
    let rig = Rig::up(limits(3, 20)).await;
    let ann = caller(1);
    let heavy = rig.call(&ann, Like { weight: 2, ..Like::default() });
    let light = rig.calls(&ann, 2);
    rig.settle().await;
    assert_eq!(heavy.ticket.state(), State::Running);
    assert_eq!(in_state(&light, State::Running), 1);
    rig.server.answer(heavy.id);
    rig.settle().await;
    assert_eq!(in_state(&light, State::Running), 2);
}

fn capped(id: u32, most: u32) -> std::sync::Arc<crate::caller::Caller> {
    caller_with(id, CallerConfig { max_concurrent: Some(most), ..CallerConfig::default() })
}

#[tokio::test(start_paused = true)]
async fn r11_a_callers_cap_holds_over_all_upstreams_and_lingering_counts() {
    let supervisor = supervisor(&Global::default());
    let one = Rig::start(config("one", limits(4, 20)), supervisor.clone(), |_| {});
    let two = Rig::start(config("two", limits(4, 20)), supervisor, |_| {});
    settle().await;
    let (ann, bob) = (capped(1, 2), caller(2));
    let first = one.calls(&ann, 3);
    settle().await;
    let second = two.calls(&ann, 2);
    let others = two.calls(&bob, 2);
    settle().await;
    assert_eq!(in_state(&first, State::Running), 2);
    assert_eq!(in_state(&second, State::Running), 0);
    assert_eq!(in_state(&others, State::Running), 2, "nobody else waits for ann's cap");
    one.cancel(&first[0], OPERATOR);
    settle().await;
    assert_eq!(in_state(&first, State::Running) + in_state(&second, State::Running), 1);
    one.server.answer(first[0].id);
    settle().await;
    assert_eq!(in_state(&first, State::Running) + in_state(&second, State::Running), 2);
    for rig in [&one, &two] {
        while rig.server.answer_next().is_some() {
            settle().await;
        }
    }
    while one.server.answer_next().is_some() || two.server.answer_next().is_some() {
        settle().await;
    }
    assert_eq!(in_state(&first, State::Finished) + in_state(&second, State::Finished), 5);
    one.check(&first);
    two.check(&second);
}

#[tokio::test(start_paused = true)]
async fn r11_a_parked_upstream_gets_its_share_beside_a_busy_one() {
    let global = Global { max_concurrent: Some(2), max_share: 1.0, ..Global::default() };
    let supervisor = supervisor(&global);
    // Shares of one each would settle it without turns: with two of three permits, turns decide.
    supervisor.gates().configure(&Global { max_concurrent: Some(3), max_share: 0.67, ..global });
    let busy = Rig::start(config("busy", limits(3, 5000)), supervisor.clone(), |_| {});
    let quiet = Rig::start(config("quiet", limits(3, 5000)), supervisor.clone(), |_| {});
    settle().await;
    let (ann, bob) = (caller(1), caller(2));
    let first = busy.calls(&ann, 2000);
    settle().await;
    let second = quiet.calls(&bob, 1000);
    settle().await;
    for _ in 0..600 {
        busy.server.answer_next();
        tokio::task::yield_now().await;
        quiet.server.answer_next();
        tokio::task::yield_now().await;
        assert!(supervisor.gates().in_flight() <= 3);
    }
    let (served_busy, served_quiet) = (in_state(&first, State::Finished), in_state(&second, State::Finished));
    assert!(served_quiet * 2 >= served_busy && served_busy > 300, "busy {served_busy}, quiet {served_quiet}");
}

#[tokio::test(start_paused = true)]
async fn r12_a_hung_upstream_leaves_the_others_their_part_of_the_global_cap() {
    let supervisor = supervisor(&Global { max_concurrent: Some(4), ..Global::default() });
    let hung = Rig::start(config("hung", limits(10, 50)), supervisor.clone(), |_| {});
    let well = Rig::start(config("well", limits(10, 50)), supervisor.clone(), |_| {});
    settle().await;
    let ann = caller(1);
    let stuck = hung.calls(&ann, 20);
    settle().await;
    assert_eq!(in_state(&stuck, State::Running), 3);
    let calls = well.calls(&ann, 20);
    settle().await;
    while well.server.answer_next().is_some() {
        settle().await;
    }
    assert_eq!(in_state(&calls, State::Finished), 20);
    assert_eq!(well.server.peak(), 1);
    assert_eq!(supervisor.gates().in_flight(), 3);
}

#[tokio::test(start_paused = true)]
async fn r13_a_parked_flow_that_is_cancelled_passes_its_grant_on() {
    let supervisor = supervisor(&Global::default());
    let rig = Rig::start(config("one", limits(4, 20)), supervisor, |_| {});
    settle().await;
    let ann = capped(1, 1);
    let first = rig.calls(&ann, 1);
    settle().await;
    let parked: Vec<_> = [Lane::High, Lane::Normal, Lane::Low]
        .map(|lane| rig.call(&ann, Like { lane: Some(lane), ..Like::default() }))
        .into();
    settle().await;
    rig.cancel(&parked[0], OPERATOR);
    rig.cancel(&parked[1], OPERATOR);
    rig.server.answer(first[0].id);
    settle().await;
    assert_eq!(parked[2].ticket.state(), State::Running);
    rig.check(&parked);
}

#[tokio::test(start_paused = true)]
async fn c08_a_low_call_runs_within_its_bound_though_high_ones_always_wait() {
    let rig = Rig::up(limits(1, 500)).await;
    let (ann, bob) = (caller(1), caller(2));
    let high = || Like { lane: Some(Lane::High), ..Like::default() };
    let mut calls: Vec<_> = (0..3).map(|_| rig.call(&ann, high())).collect();
    let low = rig.call(&bob, Like { lane: Some(Lane::Low), deadline: Some(secs(5)), ..Like::default() });
    let mut dispatches = 0;
    while low.ticket.state() != State::Running {
        rig.pass(ms(20)).await;
        rig.server.answer_next();
        calls.push(rig.call(&ann, high()));
        rig.settle().await;
        dispatches += 1;
        assert!(dispatches <= 41, "the low lane waits longer than its bound");
    }
}

#[tokio::test(start_paused = true)]
async fn c08_equal_calls_are_served_in_the_order_they_came_also_across_a_reload() {
    let rig = Rig::up(limits(1, 100)).await;
    let calls = rig.calls(&caller(1), 50);
    rig.settle().await;
    let mut order = Vec::new();
    while let Some(id) = rig.server.answer_next() {
        order.push(id);
        rig.settle().await;
        if order.len() == 20 {
            rig.upstream.set_limits(Limits { queue_size: 30, ..limits(1, 100) }).await.unwrap();
        }
    }
    assert_eq!(order, calls.iter().map(|call| call.id).collect::<Vec<_>>());
}
