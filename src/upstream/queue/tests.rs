//! Edges and rules, one claim a test. The properties are in `properties`.

use super::*;
use crate::caller::{CallerId, Lane};
use crate::config::{Fairness, OnFull};
use crate::outcome::{Reason, Scope};

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
