//! How a call goes in and ends: submitted, queued, running, finished, once.

use super::rig::*;
use crate::call::State;
use crate::caller::Lane;
use crate::config::{Concurrency, Limits, OnFull};
use crate::outcome::{CancelledBy, ExpiredBy, Outcome, Phase, Reason, TimedOutBy};
use crate::upstream::connection::StopReason;
use crate::upstream::scripted::Seen;
use crate::upstream::{Edited, RowState};

const OPERATOR: CancelledBy = CancelledBy::Operator;

#[tokio::test(start_paused = true)]
async fn a_call_runs_and_is_answered() {
    let rig = Rig::up(limits(1, 10)).await;
    let call = rig.call(&caller(1), Like::default());
    rig.settle().await;
    assert_eq!(call.ticket.state(), State::Running);
    assert_eq!(rig.upstream.status().running, 1);
    assert!(rig.server.answer(call.id));
    rig.settle().await;
    assert_eq!(outcome(&call), Some(Outcome::Completed { is_error: false }));
    assert_eq!(rig.upstream.status().running, 0);
    rig.check(&[call]);
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_slots_queue_and_beyond_the_queue_are_refused_with_figures() {
    let rig = Rig::up(limits(2, 3)).await;
    let ann = caller(1);
    let calls = rig.calls(&ann, 6);
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Running), 2);
    assert_eq!(in_state(&calls, State::Queued), 3);
    let refused = refusal(&calls[5]);
    assert_eq!(refused.outcome, Outcome::Refused(Reason::QueueFull));
    assert_eq!((refused.active, refused.max_concurrent), (Some(2), Some(2)));
    assert_eq!((refused.queued, refused.queue_size), (Some(3), Some(3)));
    assert_eq!(refused.queue_timeout_ms, Some(30_000));
    assert_eq!(rig.server.began(calls[5].id), 0);
    while rig.server.answer_next().is_some() {
        rig.settle().await;
    }
    assert_eq!(rig.server.peak(), 2);
    assert_eq!(in_state(&calls, State::Finished), 6);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r18_retry_after_follows_the_calls_that_were_timed() {
    let rig = Rig::up(limits(1, 4)).await;
    let ann = caller(1);
    let first = rig.calls(&ann, 6);
    rig.settle().await;
    // Before any call has ended a second a call is assumed.
    let wait = refusal(&first[5]).retry_after_ms.unwrap();
    assert!((950..=1350).contains(&wait), "{wait}");
    for _ in 0..5 {
        rig.pass(secs(2)).await;
        rig.server.answer_next();
        rig.settle().await;
    }
    let second = rig.calls(&ann, 6);
    rig.settle().await;
    // A quarter of four places at 2 s a call, and up to 30 % more at random.
    let wait = refusal(&second[5]).retry_after_ms.unwrap();
    assert!((1900..=2700).contains(&wait), "{wait}");
}

#[tokio::test(start_paused = true)]
async fn r01_a_cancelled_queued_call_never_reaches_the_server() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    let calls = rig.calls(&ann, 3);
    rig.settle().await;
    assert!(rig.cancel(&calls[1], OPERATOR));
    assert!(!rig.cancel(&calls[1], OPERATOR));
    rig.settle().await;
    assert_eq!(outcome(&calls[1]), Some(Outcome::Cancelled { by: OPERATOR, phase: Phase::Queued }));
    assert_eq!(rig.upstream.status().queued, 1);
    while rig.server.answer_next().is_some() {
        rig.settle().await;
    }
    assert_eq!(rig.server.began(calls[1].id), 0);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r01_a_cancel_right_behind_its_call_ten_thousand_times() {
    let rig = Rig::up(limits(4, 100)).await;
    rig.server.answer_instantly(true);
    let mut rng = fastrand::Rng::with_seed(1);
    let callers: Vec<_> = (0..4).map(caller).collect();
    let (mut ran, mut cancelled) = (0, std::collections::HashSet::new());
    for _ in 0..10_000 {
        let call = rig.call(&callers[rng.usize(0..4)], Like::default());
        for _ in 0..rng.u32(0..3) {
            tokio::task::yield_now().await;
        }
        let won = rig.cancel(&call, OPERATOR);
        let ending = call.ticket.ended().await;
        match ending.outcome {
            Outcome::Cancelled { phase: Phase::Queued, .. } => {
                assert!(won);
                cancelled.insert(call.id);
            }
            Outcome::Completed { .. } => {
                assert!(!won);
                ran += 1;
            }
            other => panic!("{other:?}"),
        }
        rig.check(&[call]);
    }
    rig.settle().await;
    for seen in rig.server.seen() {
        assert!(!matches!(seen, Seen::Begin(id) if cancelled.contains(&id)), "cancelled and run");
    }
    assert!(ran > 1000 && cancelled.len() > 1000, "{ran} ran, {} were cancelled", cancelled.len());
    let counts = rig.upstream.shared().ledger.read();
    assert_eq!((counts.offered, counts.finished()), (10_000, 10_000));
}

#[tokio::test(start_paused = true)]
async fn r01_cancel_worker_deadline_and_disconnect_at_once_end_a_call_once() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    for order in 0..24u32 {
        let call = rig.call(&ann, Like { deadline: Some(secs(1)), ..Like::default() });
        rig.settle().await;
        tokio::time::advance(secs(1)).await;
        for step in 0..4 {
            match (order + step) % 4 {
                0 => drop(rig.cancel(&call, OPERATOR)),
                1 => drop(rig.server.answer(call.id)),
                2 => drop(rig.cancel(&call, CancelledBy::Disconnect)),
                _ if order < 12 => rig.settle().await,
                _ => tokio::task::yield_now().await,
            }
        }
        rig.settle().await;
        rig.server.answer(call.id);
        rig.settle().await;
        assert_eq!(call.ticket.state(), State::Finished);
        assert_eq!(rig.upstream.status().running + rig.upstream.status().lingering, 0);
        rig.check(&[call]);
    }
}

#[tokio::test(start_paused = true)]
async fn r05_an_unsent_call_goes_back_to_the_head_three_times_and_is_lost_then() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    let calls = rig.calls(&ann, 3);
    rig.settle().await;
    let first = &calls[0];
    for attempt in 1..=3 {
        assert_eq!((first.attempt(), rig.server.began(first.id)), (attempt, attempt as usize));
        rig.server.hand_back(first.id);
        rig.settle().await;
        assert_eq!(first.ticket.state(), State::Running, "nobody overtakes it");
    }
    assert_eq!(first.attempt(), 4);
    rig.server.hand_back(first.id);
    rig.settle().await;
    assert_eq!(outcome(first), Some(Outcome::Lost { sent: false }));
    assert_eq!(calls[1].ticket.state(), State::Running);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r05_an_unsent_call_waits_in_a_full_queue_and_can_be_cancelled_there() {
    let rig = Rig::up(limits(1, 1)).await;
    let ann = caller(1);
    let calls = rig.calls(&ann, 2);
    rig.settle().await;
    rig.upstream.pause().await.unwrap();
    rig.server.hand_back(calls[0].id);
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Queued), 2);
    rig.cancel(&calls[0], OPERATOR);
    rig.settle().await;
    assert_eq!(outcome(&calls[0]), Some(Outcome::Cancelled { by: OPERATOR, phase: Phase::Queued }));
    assert_eq!(rig.upstream.status().queued, 1);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn c02_waiting_counts_against_the_callers_deadline() {
    let rig = Rig::up(limits(1, 10)).await;
    let slow = rig.call(&caller(1), Like::default());
    let late = rig.call(&caller(2), Like { deadline: Some(secs(1)), ..Like::default() });
    let arrived = late.arrived;
    rig.pass(ms(900)).await;
    assert_eq!(late.ticket.state(), State::Queued);
    rig.pass(ms(200)).await;
    let ending = late.ticket.ending().unwrap();
    assert_eq!(ending.outcome, Outcome::Expired(ExpiredBy::Deadline));
    assert!(ending.at - arrived <= ms(1040), "{:?}", ending.at - arrived);
    assert!(refusal(&late).text().contains("expired in the queue"));
    rig.server.answer(slow.id);
    rig.pass(secs(2)).await;
    assert_eq!(rig.server.began(late.id), 0);
    rig.check(&[slow, late]);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_deadline_expires_by_the_queues_own_limit() {
    let rig = Rig::up(Limits { queue_timeout: Some(secs(5)), ..limits(1, 10) }).await;
    let calls = rig.calls(&caller(1), 2);
    rig.pass(ms(4990)).await;
    assert_eq!(calls[1].ticket.state(), State::Queued);
    rig.pass(ms(50)).await;
    assert_eq!(outcome(&calls[1]), Some(Outcome::Expired(ExpiredBy::QueueTimeout)));
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn call_timeout_starts_at_dispatch_and_a_tools_own_goes_before_the_upstreams() {
    let own = crate::config::ToolConfig { call_timeout: Some(secs(2)), ..Default::default() };
    let limits = Limits { call_timeout: Some(secs(10)), ..limits(1, 10) };
    let rig = Rig::of(with_tool(config("up", limits), "quick", own)).await;
    let ann = caller(1);
    let first = rig.call(&ann, Like { tool: Some("other"), ..Like::default() });
    let second = rig.call(&ann, Like { tool: Some("quick"), ..Like::default() });
    rig.pass(secs(9)).await;
    assert_eq!(first.ticket.state(), State::Running);
    rig.server.answer(first.id);
    rig.pass(ms(1900)).await;
    assert_eq!(second.ticket.state(), State::Running);
    rig.pass(ms(200)).await;
    assert_eq!(outcome(&second), Some(Outcome::TimedOut(TimedOutBy::CallTimeout)));
    assert!(rig.server.seen().contains(&Seen::Stop(second.id, StopReason::TimedOut)));
    rig.check(&[first, second]);
}

#[tokio::test(start_paused = true)]
async fn r08_c06_a_timeout_is_the_calls_alone_and_the_upstream_stays_up() {
    let rig = Rig::up(Limits { call_timeout: Some(secs(1)), ..limits(2, 10) }).await;
    let slow = rig.call(&caller(1), Like::default());
    rig.pass(ms(500)).await;
    let other = rig.call(&caller(2), Like::default());
    rig.pass(ms(540)).await;
    assert_eq!(outcome(&slow), Some(Outcome::TimedOut(TimedOutBy::CallTimeout)));
    assert_eq!(other.ticket.state(), State::Running);
    assert_eq!(rig.server.seen().iter().filter(|seen| matches!(seen, Seen::Stop(..))).count(), 1);
    rig.pass(ms(360)).await;
    rig.server.answer(other.id);
    rig.settle().await;
    assert_eq!(outcome(&other), Some(Outcome::Completed { is_error: false }));
    assert_eq!(rig.upstream.status().state, crate::upstream::UpstreamState::Up);
    assert!(!rig.server.seen().contains(&Seen::Reset));
    rig.check(&[slow, other]);
}

#[tokio::test(start_paused = true)]
async fn r08_the_callers_own_deadline_ends_a_running_call_in_its_name() {
    let rig = Rig::up(limits(1, 10)).await;
    let call = rig.call(&caller(1), Like { deadline: Some(secs(1)), ..Like::default() });
    rig.pass(ms(1050)).await;
    assert_eq!(outcome(&call), Some(Outcome::TimedOut(TimedOutBy::Caller)));
    assert_eq!(rig.upstream.status().lingering, 1);
    rig.check(&[call]);
}

#[tokio::test(start_paused = true)]
async fn r21_a_burst_that_the_queue_can_hold_is_never_refused() {
    let rig = Rig::up(Limits { max_concurrent: Concurrency::Fixed(64), ..limits(64, 1000) }).await;
    // All in one go, before the actor has had a turn.
    let calls = rig.calls(&caller(1), 1064);
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Running), 64);
    assert_eq!(in_state(&calls, State::Queued), 1000);
    while rig.server.answer_next().is_some() {
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    assert_eq!(in_state(&calls, State::Finished), 1064);
    assert_eq!(rig.server.peak(), 64);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r21_a_full_submit_ring_refuses_with_figures_and_notifies_nobody() {
    let rig = Rig::up(limits(1, 4)).await;
    // The ring has at least 64 places: more than queue and slot together.
    let calls = rig.calls(&caller(1), 200);
    let at_once = calls.iter().filter(|call| call.ticket.state() == State::Finished).count();
    assert!(at_once >= 100, "{at_once}");
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Running) + in_state(&calls, State::Queued), 5);
    assert!(calls.iter().filter_map(|call| outcome(call)).all(|end| end == Outcome::Refused(Reason::QueueFull)));
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r20_a_completion_that_waits_is_seen_before_a_submit_is_refused() {
    let rig = Rig::up(limits(1, 0)).await;
    let ann = caller(1);
    let first = rig.call(&ann, Like::default());
    rig.settle().await;
    rig.server.answer(first.id);
    let second = rig.call(&ann, Like::default());
    rig.settle().await;
    assert_eq!(second.ticket.state(), State::Running);
    rig.check(&[first, second]);
}

#[tokio::test(start_paused = true)]
async fn r20_neither_a_flood_of_calls_nor_of_control_starves_the_other() {
    let rig = Rig::up(limits(1, 20_000)).await;
    let calls = rig.calls(&caller(1), 20_000);
    // The rings are full of work; control is answered after a slice or two, not after all of it.
    rig.upstream.page(0, 10).await.unwrap();
    assert!(in_state(&calls, State::Submitted) > 10_000);
    for _ in 0..200 {
        rig.upstream.page(0, 1).await.unwrap();
    }
    assert_eq!(in_state(&calls, State::Submitted), 0);
}

#[tokio::test(start_paused = true)]
async fn r20_an_idle_upstream_costs_no_wake_up() {
    let rig = Rig::up(limits(2, 10)).await;
    let call = rig.call(&caller(1), Like::default());
    rig.settle().await;
    rig.server.answer(call.id);
    rig.settle().await;
    let turns = rig.upstream.shared().turns();
    tokio::time::advance(secs(3600)).await;
    rig.settle().await;
    assert_eq!(rig.upstream.shared().turns(), turns);
}

#[tokio::test(start_paused = true)]
async fn r15_a_newcomer_displaces_the_newest_of_the_longest_flow() {
    let rig = Rig::up(limits(1, 4)).await;
    let (greedy, modest) = (caller(1), caller(2));
    let calls = rig.calls(&greedy, 5);
    rig.settle().await;
    let newcomer = rig.call(&modest, Like::default());
    rig.settle().await;
    assert_eq!(newcomer.ticket.state(), State::Queued);
    let displaced = refusal(&calls[4]);
    assert_eq!(displaced.outcome, Outcome::Displaced);
    assert_eq!(displaced.queue_size, Some(4));
    assert_eq!(rig.server.began(calls[4].id), 0);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r15_with_reject_one_caller_gets_half_while_another_is_present() {
    let rig = Rig::up(Limits { on_full: OnFull::Reject, ..limits(1, 8) }).await;
    let (ann, bob) = (caller(1), caller(2));
    let first = rig.calls(&bob, 1);
    let calls = rig.calls(&ann, 6);
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Queued), 4);
    assert_eq!(outcome(&calls[5]), Some(Outcome::Refused(Reason::CallerShare)));
    rig.check(&calls);
    rig.check(&first);
}

#[tokio::test(start_paused = true)]
async fn r25_an_edit_moves_lane_and_expiry_of_a_queued_call_only() {
    let rig = Rig::up(Limits { queue_timeout: Some(secs(5)), ..limits(1, 10) }).await;
    let ann = caller(1);
    let calls = rig.calls(&ann, 3);
    let bounded = rig.call(&ann, Like { deadline: Some(secs(6)), ..Like::default() });
    rig.settle().await;
    let up = &rig.upstream;
    assert_eq!(up.edit(&calls[0], Some(Lane::High), None).await, Ok(Edited::AlreadyRunning));
    assert_eq!(up.edit(&calls[2], Some(Lane::High), Some(secs(30))).await, Ok(Edited::Changed));
    assert_eq!(up.edit(&bounded, None, Some(secs(30))).await, Ok(Edited::Changed));
    assert_eq!(calls[2].lane(), Lane::High);
    rig.pass(ms(5500)).await;
    assert_eq!(outcome(&calls[1]), Some(Outcome::Expired(ExpiredBy::QueueTimeout)));
    assert_eq!(bounded.ticket.state(), State::Queued);
    rig.pass(ms(600)).await;
    assert_eq!(outcome(&bounded), Some(Outcome::Expired(ExpiredBy::Deadline)));
    assert_eq!(calls[2].ticket.state(), State::Queued);
    assert_eq!(up.edit(&calls[1], None, Some(secs(1))).await, Ok(Edited::Unknown));
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn a_listing_shows_running_lingering_and_queued_with_their_time_left() {
    let rig = Rig::up(limits(2, 10)).await;
    let calls = rig.calls(&caller(1), 4);
    rig.settle().await;
    rig.cancel(&calls[0], OPERATOR);
    rig.pass(secs(1)).await;
    let page = rig.upstream.page(0, 256).await.unwrap();
    let states: Vec<_> = page.rows.iter().map(|row| (row.call.id, row.state)).collect();
    let wanted = [RowState::Lingering, RowState::Running, RowState::Queued, RowState::Queued];
    assert_eq!(states, calls.iter().map(|call| call.id).zip(wanted).collect::<Vec<_>>());
    assert_eq!(page.rows[2].position, Some(1));
    assert_eq!(page.rows[3].position, Some(2));
    let left: Vec<_> = page.rows.iter().map(|row| row.left.unwrap().as_secs()).collect();
    assert_eq!(left, [4, 119, 29, 29]);
    assert_eq!(page.next, None);
}

#[tokio::test(start_paused = true)]
async fn r20_a_queue_that_expired_is_not_swept_in_one_turn() {
    let rig = Rig::up(Limits { queue_timeout: Some(secs(5)), ..limits(1, 5000) }).await;
    let first = rig.calls(&caller(1), 1);
    rig.settle().await;
    let calls = rig.calls(&caller(2), 5000);
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Queued), 5000);
    // The slot falls free in the very turn in which everything that waits has expired.
    rig.server.answer(first[0].id);
    tokio::time::advance(secs(6)).await;
    let mut ended = in_state(&calls, State::Finished);
    let mut most = ended;
    for _ in 0..200 {
        tokio::task::yield_now().await;
        let now = in_state(&calls, State::Finished);
        most = most.max(now - ended);
        ended = now;
    }
    assert_eq!(ended, 5000);
    assert!(most <= 1024, "{most} ended without a chance for others");
    assert!(calls.iter().all(|call| outcome(call) == Some(Outcome::Expired(ExpiredBy::QueueTimeout))));
    rig.check(&calls);
}
