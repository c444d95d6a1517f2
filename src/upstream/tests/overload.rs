//! What an actor does when its server has too much to do or keeps failing (rules R5, R8, R10, R17, R19, R22).

use super::rig::*;
use crate::call::{Call, State};
use crate::config::{Concurrency, Limits, ToolConfig};
use crate::outcome::{CancelledBy, ExpiredBy, Outcome, Reason, TimedOutBy};
use crate::upstream::connection::LinkEvent;
use crate::upstream::{ListKind, UpstreamState};
use std::sync::Arc;

#[tokio::test(start_paused = true)]
async fn r22_a_call_for_which_no_process_has_room_waits_and_uses_no_attempt() {
    let rig = Rig::up(limits(1, 10)).await;
    let call = rig.call(&caller(1), Like::default());
    rig.settle().await;
    for round in 1..=20 {
        assert_eq!(rig.server.began(call.id), round);
        rig.server.no_room(call.id);
        rig.settle().await;
        assert_eq!((call.ticket.state(), rig.server.began(call.id)), (State::Queued, round), "it does not spin");
        if round % 2 == 0 {
            rig.pass(ms(60)).await;
        } else {
            // As when a child comes up.
            rig.server.tell(LinkEvent::Up { processes: 1 });
            rig.settle().await;
        }
    }
    assert_eq!((call.ticket.state(), call.attempt()), (State::Running, 1));
    rig.server.answer(call.id);
    rig.settle().await;
    assert_eq!(outcome(&call), Some(Outcome::Completed { is_error: false }));
    rig.check(&[call]);
}

/// So many calls, each lost on a link of its own.
async fn lose(rig: &Rig, count: usize) -> Vec<Arc<Call>> {
    let calls = rig.calls(&caller(9), count);
    for call in &calls {
        rig.settle().await;
        rig.server.lose(call.id, true);
    }
    rig.settle().await;
    calls
}

#[tokio::test(start_paused = true)]
async fn r10_exchanges_that_keep_failing_stop_the_dispatch_until_a_probe_is_answered() {
    let rig = Rig::up(limits(2, 10)).await;
    rig.server.answers_pings(false);
    let lost = lose(&rig, 5).await;
    assert!(lost.iter().all(|call| outcome(call) == Some(Outcome::Lost { sent: true })));
    let status = rig.upstream.status();
    assert_eq!(status.state, UpstreamState::Down);
    assert!(status.fault.is_some() && status.retry_in.is_some_and(|wait| wait <= secs(1)), "{status:?}");

    let patient = rig.call(&caller(1), Like::default());
    let hasty = rig.call(&caller(1), Like { deadline: Some(ms(100)), ..Like::default() });
    rig.settle().await;
    assert_eq!(patient.ticket.state(), State::Queued);
    let refused = refusal(&hasty);
    assert_eq!(refused.outcome, Outcome::Refused(Reason::UpstreamDown));
    assert!(refused.retry_after_ms.is_some());

    // The first probe is not answered within the grace, so it stays open, for longer.
    rig.pass(ms(1100)).await;
    assert_eq!(rig.server.pings(), 1);
    rig.pass(secs(5)).await;
    assert_eq!(patient.ticket.state(), State::Queued);
    rig.server.answers_pings(true);
    rig.pass(ms(2100)).await;
    assert_eq!((rig.server.pings(), patient.ticket.state()), (2, State::Running));
    assert_eq!(rig.upstream.status().state, UpstreamState::Up);

    // On trial: the next failure opens it at once.
    rig.server.lose(patient.id, true);
    rig.settle().await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Down);
    rig.check(&lost);
}

#[tokio::test(start_paused = true)]
async fn r10_a_handshake_is_as_good_as_a_probe_and_a_restart_forgets() {
    let rig = Rig::up(limits(2, 10)).await;
    lose(&rig, 5).await;
    rig.server.tell(LinkEvent::Down { fault: "refused".into(), retry_in: secs(1) });
    rig.server.tell(LinkEvent::Up { processes: 1 });
    rig.settle().await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Up);
    lose(&rig, 1).await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Down);
    rig.upstream.restart().await.unwrap();
    rig.settle().await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Up);
    assert_eq!(rig.server.pings(), 0);
}

#[tokio::test(start_paused = true)]
async fn r08_timeouts_and_cancels_never_open_the_breaker_but_have_the_server_probed() {
    let rig = Rig::up(Limits { call_timeout: Some(ms(100)), cancel_grace: ms(10), ..limits(1, 100) }).await;
    let ann = caller(1);
    for round in 0..60 {
        let call = rig.call(&ann, Like::default());
        rig.settle().await;
        if round % 2 == 0 {
            rig.cancel(&call, CancelledBy::Caller);
        }
        rig.pass(ms(200)).await;
        assert!(matches!(outcome(&call), Some(Outcome::TimedOut(TimedOutBy::CallTimeout) | Outcome::Cancelled { .. })));
        assert_eq!(rig.upstream.status().state, UpstreamState::Up);
    }
    // Twelve seconds, at most one in five.
    assert!((2..=4).contains(&rig.server.pings()), "{} probes", rig.server.pings());
}

#[tokio::test(start_paused = true)]
async fn r08_probes_without_an_answer_are_failures() {
    let rig = Rig::up(Limits { cancel_grace: ms(10), ..limits(1, 100) }).await;
    rig.server.answers_pings(false);
    let ann = caller(1);
    for _ in 0..5 {
        assert_eq!(rig.upstream.status().state, UpstreamState::Up);
        let call = rig.call(&ann, Like::default());
        rig.settle().await;
        rig.cancel(&call, CancelledBy::Caller);
        rig.pass(secs(6)).await;
    }
    assert_eq!(rig.upstream.status().state, UpstreamState::Down);
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_the_server_asks_for_is_shown_and_refuses_only_those_who_cannot_wait() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    rig.server.tell(LinkEvent::Busy { retry_in: secs(10) });
    rig.settle().await;
    let status = rig.upstream.status();
    assert_eq!((status.state, status.retry_in), (UpstreamState::Degraded, Some(secs(10))));
    assert!(status.fault.is_some_and(|fault| fault.contains("busy")));
    let hasty = rig.call(&ann, Like { deadline: Some(secs(5)), ..Like::default() });
    let patient = rig.call(&ann, Like::default());
    rig.settle().await;
    assert_eq!(outcome(&hasty), Some(Outcome::Refused(Reason::UpstreamDown)));
    assert_eq!(patient.ticket.state(), State::Queued);
    rig.pass(ms(10_050)).await;
    assert_eq!(patient.ticket.state(), State::Running);
    assert_eq!(rig.upstream.status().state, UpstreamState::Up);
    rig.check(&[hasty, patient]);
}

/// Ten rounds a second: all that runs is answered, and as many come anew.
async fn rounds(rig: &Rig, rounds: usize, callers: usize) {
    let ann = caller(1);
    for _ in 0..rounds {
        let status = rig.upstream.status();
        let there = (status.running + status.queued) as usize;
        rig.calls(&ann, callers.saturating_sub(there));
        rig.pass(ms(100)).await;
        while rig.server.answer_next().is_some() {}
        rig.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn r17_the_limit_moves_with_the_load_is_shown_and_a_number_fixes_it() {
    let range = |min, max| Limits { max_concurrent: Concurrency::Adaptive { min, max }, ..limits(1, 100) };
    let rig = Rig::up(range(2, 12)).await;
    assert_eq!(rig.upstream.status().max_concurrent, 2, "it begins at min");
    rounds(&rig, 300, 30).await;
    assert_eq!(rig.upstream.status().max_concurrent, 12);
    assert_eq!(rig.server.peak(), 12);

    // A change of the range holds at once, and so does a number.
    rig.upstream.set_limits(range(2, 7)).await.unwrap();
    assert_eq!(rig.upstream.status().max_concurrent, 7);
    rig.upstream.change_limits(|limits| limits.max_concurrent = Concurrency::Fixed(3)).await.unwrap();
    assert_eq!(rig.upstream.status().max_concurrent, 3);
    rounds(&rig, 100, 30).await;
    assert_eq!(rig.upstream.status().max_concurrent, 3);
}

#[tokio::test(start_paused = true)]
async fn r17_calls_that_run_into_their_timeout_lower_the_limit_once() {
    let rig = Rig::up(Limits {
        max_concurrent: Concurrency::Adaptive { min: 1, max: 12 },
        call_timeout: Some(secs(3)),
        cancel_grace: ms(50),
        ..limits(1, 100)
    })
    .await;
    rounds(&rig, 300, 30).await;
    assert_eq!(rig.upstream.status().max_concurrent, 12);
    rig.calls(&caller(1), 12);
    rig.pass(ms(3200)).await;
    assert_eq!(rig.upstream.status().max_concurrent, 10, "10.8, floored");
    // What the limit was outlives the actor.
    let actor = rig.upstream.shared().actor.borrow().clone().unwrap();
    let _ = actor.ask(crate::upstream::actor::control::PanicForTest).send().await;
    rig.settle().await;
    assert_eq!(rig.upstream.status().max_concurrent, 10);
}

#[tokio::test(start_paused = true)]
async fn r19_what_waited_long_in_a_queue_that_stands_is_expired_for_it() {
    let limits = Limits { queue_timeout: Some(secs(8)), sojourn: true, ..limits(1, 100) };
    let rig = Rig::up(limits).await;
    let ann = caller(1);
    let mut calls = rig.calls(&ann, 11);
    for _ in 0..60 {
        rig.pass(ms(500)).await;
        rig.server.answer_next();
        rig.settle().await;
        let queued = rig.upstream.status().queued as usize;
        calls.extend(rig.calls(&ann, 10usize.saturating_sub(queued)));
        rig.settle().await;
    }
    let shed: Vec<_> =
        calls.iter().filter(|call| outcome(call) == Some(Outcome::Expired(ExpiredBy::Sojourn))).collect();
    assert!(!shed.is_empty());
    assert!(shed.iter().all(|call| rig.server.began(call.id) == 0));
    let ending = shed[0].ticket.ending().unwrap();
    assert!(ending.at.saturating_duration_since(shed[0].arrived) > secs(4), "twice a quarter of queue_timeout");
    rig.check(&calls);
}

/// An upstream whose tools `t` (safe and declared), `unsafe` (declared only) and `quiet` (safe only) are known.
async fn repeating() -> Rig {
    let retry = || ToolConfig { retry: true, ..ToolConfig::default() };
    let config = with_tool(with_tool(config("up", limits(1, 10)), "t", retry()), "unsafe", retry());
    let rig = Rig::of(config).await;
    rig.server.page(Ok(
        r#"{"tools":[{"name":"t","annotations":{"readOnlyHint":true}},{"name":"unsafe"},{"name":"quiet","annotations":{"idempotentHint":true}}]}"#,
    ));
    rig.upstream.list(ListKind::Tools).await.unwrap();
    rig
}

fn of(tool: &'static str) -> Like {
    Like { tool: Some(tool), ..Like::default() }
}

#[tokio::test(start_paused = true)]
async fn r05_a_call_declared_safe_is_sent_once_more_in_the_same_slot_and_no_other_is() {
    let rig = repeating().await;
    let ann = caller(1);
    for tool in ["unsafe", "quiet"] {
        let call = rig.call(&ann, of(tool));
        rig.settle().await;
        rig.server.lose(call.id, true);
        rig.settle().await;
        assert_eq!((outcome(&call), rig.server.began(call.id)), (Some(Outcome::Lost { sent: true }), 1));
    }
    let (call, next) = (rig.call(&ann, of("t")), rig.call(&ann, of("t")));
    rig.settle().await;
    rig.server.lose(call.id, true);
    rig.settle().await;
    assert_eq!((call.ticket.state(), call.attempt(), rig.server.began(call.id)), (State::Running, 2, 2));
    assert_eq!((next.ticket.state(), rig.server.peak()), (State::Queued, 1), "the slot stays its own");
    rig.server.lose(call.id, true);
    rig.settle().await;
    assert_eq!(outcome(&call), Some(Outcome::Lost { sent: true }), "once");
    // The budget is a tenth of the calls, and this one's first sending did not earn that much.
    rig.server.lose(next.id, true);
    rig.settle().await;
    assert_eq!((outcome(&next), rig.server.began(next.id)), (Some(Outcome::Lost { sent: true }), 1));
    rig.check(&[call, next]);
}

#[tokio::test(start_paused = true)]
async fn r05_a_call_that_waits_to_be_sent_again_keeps_its_deadline_and_frees_its_slot_when_cancelled() {
    for ends in ["up", "cancel", "timeout", "final"] {
        let rig = repeating().await;
        let call = rig.call(&caller(1), of("t"));
        rig.settle().await;
        rig.server.die(secs(60));
        rig.settle().await;
        assert_eq!((call.ticket.state(), rig.upstream.status().running), (State::Running, 1), "{ends}");
        match ends {
            "up" => {
                rig.server.tell(LinkEvent::Up { processes: 1 });
                rig.settle().await;
                assert!(rig.server.answer(call.id));
            }
            "cancel" => assert!(rig.cancel(&call, CancelledBy::Caller)),
            "timeout" => rig.pass(secs(121)).await,
            _ => rig.server.tell(LinkEvent::Final { fault: "401".into() }),
        }
        rig.settle().await;
        let status = rig.upstream.status();
        assert_eq!((status.running, status.lingering), (0, 0), "{ends}");
        let wanted = match ends {
            "up" => matches!(outcome(&call), Some(Outcome::Completed { .. })),
            "cancel" => matches!(outcome(&call), Some(Outcome::Cancelled { .. })),
            "timeout" => outcome(&call) == Some(Outcome::TimedOut(TimedOutBy::CallTimeout)),
            _ => outcome(&call) == Some(Outcome::Lost { sent: true }),
        };
        assert!(wanted, "{ends}: {:?}", outcome(&call));
        rig.check(&[call]);
    }
}
