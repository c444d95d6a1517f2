//! What a failure of the actor costs, and what it keeps; removal.

use super::rig::*;
use crate::call::State;
use crate::config::{CallerConfig, Global, Limits};
use crate::dispatcher::{CancelAnswer, Dispatcher, Wanted};
use crate::outcome::{CancelledBy, Executed, Outcome, Phase, Reason};
use crate::protocol::envelope::{self, Message};
use crate::protocol::splice::ReplyForm;
use crate::upstream::actor::control::PanicForTest;
use crate::upstream::scripted::{OnStop, Seen};
use crate::upstream::{Upstream, UpstreamShared, UpstreamState, connection::StopReason};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Rig {
    /// Makes the actor panic and waits for its next life.
    pub(super) async fn fail(&self) {
        let shared = self.upstream.shared();
        let before = shared.figures.restarts.load(Relaxed);
        let actor = shared.actor.borrow().clone().expect("the actor lives");
        let _ = actor.tell(PanicForTest).send().await;
        for _ in 0..1000 {
            tokio::task::yield_now().await;
            if self.upstream.actor_restarts() > before || shared.failed.load(Relaxed) {
                break;
            }
        }
        self.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn r02_a_panic_with_five_running_and_twenty_queued_loses_them_and_nothing_more() {
    let rig = Rig::up(limits(5, 100)).await;
    let ann = caller(1);
    let calls = rig.calls(&ann, 25);
    rig.settle().await;
    assert_eq!((in_state(&calls, State::Running), in_state(&calls, State::Queued)), (5, 20));
    rig.fail().await;
    assert_eq!(in_state(&calls, State::Finished), 25, "every call is answered at once");
    for (at, call) in calls.iter().enumerate() {
        assert_eq!(outcome(call), Some(Outcome::Lost { sent: at < 5 }));
        let executed = if at < 5 { Executed::Unknown } else { Executed::Never };
        assert_eq!(refusal(call).outcome.executed(), executed);
    }
    assert!(rig.server.seen().contains(&Seen::Reset));
    // The next life serves as before, and the server never saw more than five.
    let more = rig.calls(&ann, 25);
    rig.settle().await;
    assert_eq!(in_state(&more, State::Running), 5);
    while rig.server.answer_next().is_some() {
        rig.settle().await;
    }
    assert!(more.iter().all(|call| outcome(call) == Some(Outcome::Completed { is_error: false })));
    assert_eq!(rig.server.peak(), 5);
    rig.check(&calls);
    rig.check(&more);
    assert_eq!(rig.upstream.shared().ledger.read().finished(), 50);
}

#[tokio::test(start_paused = true)]
async fn r02_the_connection_is_reset_before_the_first_dispatch_of_the_next_life() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    let _running = rig.calls(&ann, 1);
    rig.settle().await;
    let actor = rig.upstream.shared().actor.borrow().clone().unwrap();
    let told = actor.tell(PanicForTest).send();
    // In the submit ring when the actor fails: it survives.
    let survivor = rig.call(&ann, Like::default());
    told.await.unwrap();
    for _ in 0..10 {
        rig.settle().await;
    }
    let seen = rig.server.seen();
    let reset = seen.iter().position(|seen| *seen == Seen::Reset).expect("the connection was reset");
    let begun = seen.iter().position(|seen| *seen == Seen::Begin(survivor.id));
    assert!(survivor.ticket.state() == State::Running || outcome(&survivor) == Some(Outcome::Lost { sent: false }));
    assert!(begun.is_none_or(|begun| begun > reset), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn r02_calls_in_the_submit_ring_survive_a_restart() {
    let rig = Rig::up(limits(2, 20)).await;
    let ann = caller(1);
    let actor = rig.upstream.shared().actor.borrow().clone().unwrap();
    actor.kill();
    // The actor is dead now but nobody has noticed: what is submitted waits for the next life.
    let calls = rig.calls(&ann, 5);
    for _ in 0..10 {
        rig.settle().await;
    }
    assert_eq!(rig.upstream.actor_restarts(), 1);
    assert_eq!((in_state(&calls, State::Running), in_state(&calls, State::Queued)), (2, 3));
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r02_a_killed_actor_answers_its_calls_too() {
    let rig = Rig::up(limits(2, 20)).await;
    let calls = rig.calls(&caller(1), 5);
    rig.settle().await;
    rig.upstream.shared().actor.borrow().clone().unwrap().kill();
    for _ in 0..10 {
        rig.settle().await;
    }
    assert_eq!(in_state(&calls, State::Finished), 5);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r02_switches_limits_and_permits_outlive_an_actor() {
    let supervisor = supervisor(&Global::default());
    let rig = Rig::start(config("up", limits(3, 20)), supervisor, |_| {});
    settle().await;
    let ann = caller_with(1, CallerConfig { max_concurrent: Some(2), ..CallerConfig::default() });
    let first = rig.calls(&ann, 4);
    settle().await;
    assert_eq!(in_state(&first, State::Running), 2);
    rig.upstream.set_limits(limits(7, 30)).await.unwrap();
    rig.upstream.pause().await.unwrap();
    rig.fail().await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Paused);
    assert_eq!(rig.upstream.status().max_concurrent, 7);
    let second = rig.calls(&ann, 4);
    settle().await;
    assert_eq!(in_state(&second, State::Queued), 4);
    rig.upstream.resume().await.unwrap();
    settle().await;
    assert_eq!(in_state(&second, State::Running), 2, "the lost calls gave their permits back");
    rig.check(&first);
    rig.check(&second);
}

#[tokio::test(start_paused = true)]
async fn r02_a_completion_of_a_former_life_frees_nothing() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    let first = rig.calls(&ann, 1);
    rig.settle().await;
    let stale = crate::upstream::RunId { incarnation: 1, entry: first[0].entry.load(Relaxed) };
    rig.fail().await;
    let second = rig.calls(&ann, 2);
    rig.settle().await;
    let how = crate::upstream::connection::How::Answered;
    rig.upstream.shared().complete(crate::upstream::connection::Completion { id: stale, how, slot_time: ms(1) });
    rig.settle().await;
    assert_eq!((in_state(&second, State::Running), in_state(&second, State::Queued)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn r03_past_its_restart_limit_calls_are_refused_until_the_supervisors_timer() {
    let supervisor = supervisor(&Global::default());
    let rig = Rig::start(config("bad", limits(1, 10)), supervisor.clone(), |_| {});
    let other = Rig::start(config("good", limits(1, 10)), supervisor, |_| {});
    settle().await;
    for _ in 0..6 {
        rig.fail().await;
    }
    let status = rig.upstream.status();
    assert_eq!(status.state, UpstreamState::Down);
    let ann = caller(1);
    let refused = rig.call(&ann, Like::default());
    assert_eq!(outcome(&refused), Some(Outcome::Refused(Reason::UpstreamDown)));
    assert!((1000..=1300).contains(&refusal(&refused).retry_after_ms.unwrap()));
    // The supervisor and its other children go on.
    let fine = other.call(&ann, Like::default());
    settle().await;
    assert_eq!(fine.ticket.state(), State::Running);
    // 1 s, and up to 30 % more at random.
    rig.pass(ms(1400)).await;
    let call = rig.call(&ann, Like::default());
    settle().await;
    assert_eq!(call.ticket.state(), State::Running);
    // Control reaches the new life.
    rig.upstream.pause().await.unwrap();
    rig.check(&[refused, call]);
}

#[tokio::test(start_paused = true)]
async fn r03_a_failed_actor_leaves_no_call_behind_in_its_submit_ring() {
    let rig = Rig::start(config("bad", limits(1, 10)), supervisor(&Global::default()), |_| {});
    settle().await;
    let ann = caller(1);
    for _ in 0..5 {
        rig.fail().await;
    }
    let held = rig.calls(&ann, 5);
    rig.settle().await;
    assert_eq!((rig.upstream.status().running, rig.upstream.status().queued), (1, 4));
    // The sixth failure in a minute is one too many. These meet the actor just before it.
    let actor = rig.upstream.shared().actor.borrow().clone().unwrap();
    actor.kill();
    let submitted = rig.calls(&ann, 5);
    for _ in 0..10 {
        rig.settle().await;
    }
    assert_eq!(rig.upstream.status().state, UpstreamState::Down);
    for call in &submitted {
        assert_eq!(outcome(call), Some(Outcome::Refused(Reason::UpstreamDown)), "not left for the next life");
        assert!(refusal(call).retry_after_ms.is_some());
        assert_eq!(rig.server.began(call.id), 0);
    }
    assert_eq!(in_state(&held, State::Finished), 5);
    let status = rig.upstream.status();
    assert_eq!((status.running, status.lingering, status.queued, status.oldest_wait), (0, 0, 0, ms(0)));
    rig.check(&held);
    rig.check(&submitted);
}

/// From several threads, in real time: whenever a call meets the failing actor, somebody ends it.
#[test]
fn r03_a_call_that_races_the_failure_of_the_actor_is_answered() {
    for _ in 0..200 {
        let shared = UpstreamShared::new(Arc::new(config("bad", limits(1, 100))));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let calls = runtime.block_on(async {
            let rig = Rig::start(config("rig", limits(1, 10)), supervisor(&Global::default()), |_| {});
            (0..50).map(|_| rig.accept(&caller(1), Like::default())).collect::<Vec<_>>()
        });
        std::thread::scope(|scope| {
            scope.spawn(|| calls.iter().for_each(|call| shared.submit(call.clone())));
            scope.spawn(|| {
                shared.fail(tokio::time::Instant::now() + secs(1));
                while shared.refuse_submits(10) {}
            });
        });
        assert_eq!(in_state(&calls, State::Finished), 50);
    }
}

#[tokio::test(start_paused = true)]
async fn control_asked_of_a_failing_actor_is_answered_by_the_next_one() {
    let rig = Rig::up(limits(1, 10)).await;
    let actor = rig.upstream.shared().actor.borrow().clone().unwrap();
    actor.tell(PanicForTest).send().await.unwrap();
    rig.upstream.pause().await.unwrap();
    assert_eq!(rig.upstream.status().state, UpstreamState::Paused);
}

#[tokio::test(start_paused = true)]
async fn r03_removal_runs_dry_and_then_closes() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    let calls = rig.calls(&ann, 3);
    rig.settle().await;
    let upstream = rig.upstream.clone();
    let removal = tokio::spawn(async move { upstream.remove(secs(30)).await });
    rig.settle().await;
    let late = rig.call(&ann, Like::default());
    assert_eq!(outcome(&late), Some(Outcome::Refused(Reason::Draining)));
    for _ in 0..3 {
        rig.server.answer_next();
        rig.settle().await;
    }
    removal.await.unwrap();
    assert!(calls.iter().all(|call| outcome(call) == Some(Outcome::Completed { is_error: false })));
    assert_eq!(rig.server.seen().last(), Some(&Seen::Close));
    assert!(rig.upstream.pause().await.is_err(), "nobody is there any more");
    assert_eq!(rig.upstream.actor_restarts(), 0, "a removed actor does not come back");
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r03_removal_answers_the_rest_when_its_time_is_over() {
    let rig = Rig::up(Limits { queue_timeout: None, ..limits(2, 2000) }).await;
    let calls = rig.calls(&caller(1), 1500);
    rig.settle().await;
    let upstream = rig.upstream.clone();
    let removal = tokio::spawn(async move { upstream.remove(secs(2)).await });
    rig.pass(secs(3)).await;
    removal.await.unwrap();
    for (at, call) in calls.iter().enumerate() {
        let phase = if at < 2 { Phase::Running } else { Phase::Queued };
        assert_eq!(outcome(call), Some(Outcome::Cancelled { by: CancelledBy::Shutdown, phase }), "{at}");
        assert_eq!(rig.server.began(call.id), usize::from(at < 2));
    }
    assert!(rig.server.seen().contains(&Seen::Stop(calls[0].id, StopReason::Shutdown)));
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r03_no_call_is_forgotten_by_a_removal_at_any_moment() {
    for turn in 0..40 {
        let rig = Rig::up(limits(2, 20)).await;
        rig.server.on_stop(OnStop::Honour);
        let ann = caller(1);
        let mut calls = rig.calls(&ann, 10);
        let upstream = rig.upstream.clone();
        let removal = tokio::spawn(async move { upstream.remove(ms(0)).await });
        for _ in 0..turn {
            tokio::task::yield_now().await;
            calls.extend(rig.calls(&ann, 1));
        }
        removal.await.unwrap();
        calls.extend(rig.calls(&ann, 1));
        assert_eq!(in_state(&calls, State::Finished), calls.len());
        rig.check(&calls);
    }
}

#[tokio::test(start_paused = true)]
async fn an_operators_restart_loses_what_runs_and_keeps_what_waits() {
    let rig = Rig::up(limits(2, 10)).await;
    let calls = rig.calls(&caller(1), 5);
    rig.settle().await;
    rig.upstream.restart().await.unwrap();
    rig.settle().await;
    assert!(calls[..2].iter().all(|call| outcome(call) == Some(Outcome::Lost { sent: true })));
    assert_eq!(in_state(&calls, State::Running), 2);
    assert_eq!(in_state(&calls, State::Queued), 1);
    assert_eq!(rig.server.peak(), 2);
    rig.check(&calls);
}

/// A call as the ingress makes it.
fn wanted(upstream: &Arc<Upstream>) -> Wanted {
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}"#;
    let Ok(Message::Request(request)) = envelope::read(bytes::Bytes::from_static(body)) else { panic!("a request") };
    Wanted {
        caller: caller(1),
        upstream: upstream.clone(),
        request,
        target: "t".into(),
        renamed: false,
        tool: Some("t".into()),
        lane: None,
        arrived: tokio::time::Instant::now(),
        timeout: None,
        home: 0,
        form: ReplyForm::Result,
        notices: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_withdrawn_from_the_upstream_that_has_it_not_from_the_next_of_that_name() {
    let dispatcher = Dispatcher::new(Arc::new(plain_config()), 1);
    let supervisor = supervisor(&Global::default());
    let old = Rig::start(config("db", limits(1, 10)), supervisor.clone(), |server| server.on_stop(OnStop::Honour));
    dispatcher.add_upstream(old.upstream.clone());
    settle().await;
    let (first, waits) = (dispatcher.submit(wanted(&old.upstream)), dispatcher.submit(wanted(&old.upstream)));
    settle().await;
    // Taken out of the table to be drained, and a new one put in under the same name.
    assert!(dispatcher.remove_route("db").is_some());
    let new = Rig::start(config("db", limits(1, 10)), supervisor, |server| server.on_stop(OnStop::Honour));
    dispatcher.add_upstream(new.upstream.clone());
    settle().await;
    let (theirs, behind) = (dispatcher.submit(wanted(&new.upstream)), dispatcher.submit(wanted(&new.upstream)));
    settle().await;
    assert_eq!(dispatcher.cancel_call(&waits, CancelledBy::Operator), CancelAnswer::CancelledQueued);
    assert_eq!(dispatcher.cancel_call(&first, CancelledBy::Operator), CancelAnswer::CancelledRunning);
    settle().await;
    assert!(old.server.seen().contains(&Seen::Stop(first.id, StopReason::Cancelled)), "the server was asked to stop");
    assert_eq!((old.upstream.status().running, old.upstream.status().queued), (0, 0), "and its queue is free");
    assert_eq!((theirs.ticket.state(), behind.ticket.state()), (State::Running, State::Queued));
    assert!(!new.server.seen().iter().any(|seen| matches!(seen, Seen::Stop(..))));
}

#[tokio::test(start_paused = true)]
async fn r02_a_number_of_a_former_life_names_no_call_of_the_next() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    let old = rig.calls(&ann, 2);
    rig.settle().await;
    let entry = old[1].entry.load(Relaxed);
    rig.fail().await;
    let new = rig.calls(&ann, 2);
    rig.settle().await;
    assert_eq!(new[1].entry.load(Relaxed), entry, "the next life numbers its entries as the last one did");
    old[1].entry.store(entry, Relaxed);
    rig.upstream.shared().withdraw(old[1].clone());
    rig.settle().await;
    assert_eq!((new[1].ticket.state(), rig.upstream.status().queued), (State::Queued, 1));
}
