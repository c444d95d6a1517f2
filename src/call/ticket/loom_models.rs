//! Every order in which a cancel, a worker and a caller's face can meet at a ticket (rule R1).
//!
//! `RUSTFLAGS="--cfg forebay_loom" cargo test --lib loom_models`

use super::*;
use crate::outcome::{CancelledBy, Executed, Phase};
use loom::thread;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

fn ending(outcome: Outcome) -> Ending {
    Ending { outcome, answer: Answer::Upstream(Bytes::new()), at: Instant::now() }
}

/// As `Call::cancel` does it.
fn cancel(ticket: &Ticket) -> bool {
    let by = CancelledBy::Operator;
    ticket
        .finish(|stage, _| {
            let phase = if stage == Stage::Running { Phase::Running } else { Phase::Queued };
            ending(Outcome::Cancelled { by, phase })
        })
        .is_ok()
}

/// As the actor and its worker do it. Whether the server saw the call, and whether its answer counted.
fn work(ticket: &Ticket) -> (bool, bool) {
    if ticket.state() == State::Finished || !ticket.queue(Instant::now()) {
        return (false, false);
    }
    if !ticket.start(Instant::now()) {
        return (false, false);
    }
    (true, ticket.finish(|_, _| ending(Outcome::Completed { is_error: false })).is_ok())
}

#[test]
fn r01_a_cancel_a_worker_and_a_claim_end_a_ticket_once() {
    model(|| {
        let ledger = Arc::new(Ledger::default());
        let ticket = Arc::new(Ticket::new(ledger.clone(), Arc::default()));
        let canceller = thread::spawn({
            let ticket = ticket.clone();
            move || cancel(&ticket)
        });
        let worker = thread::spawn({
            let ticket = ticket.clone();
            move || work(&ticket)
        });
        // The caller's face gives up waiting and claims the ticket itself.
        let claimed = ticket.finish(|stage, _| ending(Outcome::Lost { sent: stage == Stage::Running })).is_ok();
        let cancelled = canceller.join().unwrap();
        let (ran, answered) = worker.join().unwrap();
        assert_eq!(u32::from(claimed) + u32::from(cancelled) + u32::from(answered), 1);
        let end = ticket.ending().unwrap();
        assert!(!(ran && end.outcome.executed() == Executed::Never), "{:?} but it ran", end.outcome);
        drop(ticket);
        let counts = ledger.read();
        assert_eq!((counts.unaccounted(), counts.finished()), (0, 1));
    });
}

#[test]
fn r01_the_face_is_woken_whoever_ends_the_call() {
    model(|| {
        let ticket = Arc::new(Ticket::new(Arc::default(), Arc::default()));
        let canceller = thread::spawn({
            let ticket = ticket.clone();
            move || cancel(&ticket)
        });
        let worker = thread::spawn({
            let ticket = ticket.clone();
            move || work(&ticket)
        });
        let end = loom::future::block_on(ticket.ended());
        assert_eq!(ticket.ending().unwrap().outcome, end.outcome);
        canceller.join().unwrap();
        worker.join().unwrap();
    });
}

#[test]
fn r01_a_worker_that_waits_is_told_of_a_cancel() {
    model(|| {
        let ticket = Arc::new(Ticket::new(Arc::default(), Arc::default()));
        assert!(ticket.start(Instant::now()));
        let canceller = thread::spawn({
            let ticket = ticket.clone();
            move || cancel(&ticket)
        });
        loom::future::block_on(ticket.stopped());
        assert!(canceller.join().unwrap());
    });
}

#[test]
fn r05_a_hand_back_and_a_cancel_leave_nothing_running() {
    model(|| {
        let ledger = Arc::new(Ledger::default());
        let ticket = Arc::new(Ticket::new(ledger.clone(), Arc::default()));
        assert!(ticket.start(Instant::now()));
        let canceller = thread::spawn({
            let ticket = ticket.clone();
            move || cancel(&ticket)
        });
        let back = ticket.hand_back();
        let again = back && ticket.start(Instant::now());
        canceller.join().unwrap();
        let phase = match ticket.ending().unwrap().outcome {
            Outcome::Cancelled { phase, .. } => phase,
            other => panic!("{other:?}"),
        };
        assert_eq!(phase == Phase::Running, !back || again);
        assert_eq!(ledger.read().unaccounted(), 0);
    });
}

#[test]
fn r01_a_ticket_dropped_by_all_still_counts_once() {
    model(|| {
        let ledger = Arc::new(Ledger::default());
        let drops = Arc::new(AtomicU32::new(0));
        let ticket = Arc::new(Ticket::new(ledger.clone(), Arc::default()));
        let worker = thread::spawn({
            let (ticket, drops) = (ticket.clone(), drops.clone());
            move || {
                let ran = ticket.start(Instant::now());
                drops.fetch_add(u32::from(ran), Relaxed);
            }
        });
        drop(ticket);
        worker.join().unwrap();
        let counts = ledger.read();
        assert_eq!((counts.unaccounted(), counts.finished(), counts.running), (0, 1, 0));
    });
}

/// As the search for a call's upstream does it: found, the call is passed on and begins its way there.
fn pass_on(ticket: &Ticket, to: &Arc<Ledger>) -> (bool, bool, bool) {
    let moved = ticket.move_to(to, || ());
    let (ran, answered) = if moved { work(ticket) } else { (false, false) };
    (moved, ran, answered)
}

#[test]
fn r06_a_call_that_moves_while_it_is_cancelled_is_counted_once_and_in_one_ledger() {
    model(|| {
        let (front, upstream) = (Arc::new(Ledger::default()), Arc::new(Ledger::default()));
        let ticket = Arc::new(Ticket::new(front.clone(), Arc::default()));
        let canceller = thread::spawn({
            let ticket = ticket.clone();
            move || cancel(&ticket)
        });
        let (moved, ran, answered) = pass_on(&ticket, &upstream);
        let cancelled = canceller.join().unwrap();
        assert!(cancelled != answered, "ended by one of the two");
        assert!(moved || !ran);
        let (before, after) = (front.read(), upstream.read());
        assert_eq!((before.unaccounted(), after.unaccounted()), (0, 0));
        assert_eq!((before.finished(), after.finished()), (u64::from(!moved), u64::from(moved)));
        assert_eq!((before.submitted, after.submitted + after.queued + after.running), (0, 0));
    });
}

#[test]
fn r06_a_worker_that_meets_a_moving_call_moves_it_in_the_ledger_where_it_counts() {
    model(|| {
        let (front, upstream) = (Arc::new(Ledger::default()), Arc::new(Ledger::default()));
        let ticket = Arc::new(Ticket::new(front.clone(), Arc::default()));
        let worker = thread::spawn({
            let ticket = ticket.clone();
            move || work(&ticket)
        });
        // Only a submitted call can move; once it is queued or runs, it stays where it is counted.
        let moved = ticket.move_to(&upstream, || ());
        let (ran, answered) = worker.join().unwrap();
        assert!(ran && answered);
        let (before, after) = (front.read(), upstream.read());
        assert_eq!((before.unaccounted(), after.unaccounted()), (0, 0));
        assert_eq!((before.finished(), after.finished()), (u64::from(!moved), u64::from(moved)));
    });
}

#[test]
fn r06_a_request_that_is_dropped_while_its_call_moves_leaves_both_ledgers_even() {
    model(|| {
        let (front, upstream) = (Arc::new(Ledger::default()), Arc::new(Ledger::default()));
        let ticket = Arc::new(Ticket::new(front.clone(), Arc::default()));
        let search = thread::spawn({
            let (ticket, upstream) = (ticket.clone(), upstream.clone());
            move || ticket.move_to(&upstream, || ())
        });
        // The client is gone and with it the request; nobody else holds the call.
        drop(ticket);
        let moved = search.join().unwrap();
        let (before, after) = (front.read(), upstream.read());
        assert_eq!((before.unaccounted(), after.unaccounted()), (0, 0));
        assert!(moved, "nobody had ended it");
        assert_eq!((before.finished(), after.finished()), (0, 1));
    });
}
