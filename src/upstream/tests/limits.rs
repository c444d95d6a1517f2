//! Limits and switches that change while calls wait and run.

use super::rig::*;
use crate::call::State;
use crate::config::{CallerConfig, Concurrency, Global, Limits};
use crate::outcome::{CancelledBy, Outcome, Reason, Scope, TimedOutBy};
use crate::upstream::{UpstreamShared, UpstreamState};

#[tokio::test(start_paused = true)]
async fn c01_a_lowered_cap_holds_from_the_moment_it_is_acknowledged() {
    let rig = Rig::up(limits(5, 100)).await;
    let ann = caller(1);
    let first = rig.calls(&ann, 5);
    rig.settle().await;
    rig.upstream.set_limits(limits(1, 100)).await.unwrap();
    assert_eq!(rig.upstream.status().max_concurrent, 1);
    let second = rig.calls(&ann, 5);
    rig.settle().await;
    for left in (1..5).rev() {
        rig.server.answer_next();
        rig.settle().await;
        assert_eq!(rig.server.at_server().len(), left);
    }
    rig.server.answer_next();
    rig.settle().await;
    assert_eq!(in_state(&first, State::Finished), 5);
    assert_eq!(in_state(&second, State::Running), 1);
    rig.check(&second);
}

#[tokio::test(start_paused = true)]
async fn c01_a_raised_cap_wakes_those_who_wait_at_once() {
    let rig = Rig::up(limits(1, 100)).await;
    let calls = rig.calls(&caller(1), 6);
    rig.settle().await;
    rig.upstream.set_limits(limits(5, 100)).await.unwrap();
    assert_eq!(in_state(&calls, State::Running), 5);
    assert_eq!(rig.upstream.status().max_concurrent, 5);
}

#[tokio::test(start_paused = true)]
async fn r24_a_lower_queue_size_keeps_what_waits_and_a_larger_one_holds_at_once() {
    let rig = Rig::up(limits(1, 50)).await;
    let ann = caller(1);
    let calls = rig.calls(&ann, 41);
    rig.settle().await;
    rig.upstream.set_limits(limits(1, 10)).await.unwrap();
    let late = rig.call(&ann, Like::default());
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Queued), 40);
    assert_eq!(outcome(&late), Some(Outcome::Refused(Reason::QueueFull)));
    rig.upstream.set_limits(limits(1, 5000)).await.unwrap();
    let burst = rig.calls(&ann, 4960);
    rig.settle().await;
    assert_eq!(in_state(&burst, State::Queued), 4960);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r21_calls_in_a_replaced_submit_ring_are_taken_first() {
    let rig = Rig::up(limits(1, 100)).await;
    let ann = caller(1);
    let before = rig.calls(&ann, 50);
    rig.upstream.shared().reconfigure(|config| config.limits.queue_size = 1000);
    let after = rig.calls(&ann, 50);
    rig.settle().await;
    let order: Vec<_> = rig.upstream.page(0, 256).await.unwrap().rows.iter().map(|row| row.call.id).collect();
    assert_eq!(order, before.iter().chain(&after).map(|call| call.id).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn r21_the_submit_ring_is_made_with_the_first_call() {
    let rig = Rig::up(limits(10, 500)).await;
    let shared = rig.upstream.shared();
    rig.upstream.set_limits(limits(10, 600)).await.unwrap();
    assert_eq!(shared.submit_places(), 0);
    let calls = rig.calls(&caller(1), 610);
    assert_eq!(shared.submit_places(), 610, "of the size that the limits ask for by then");
    rig.settle().await;
    assert_eq!((in_state(&calls, State::Running), in_state(&calls, State::Queued)), (10, 600));
}

/// From several threads at once, in real time, with a change of the size in between.
#[test]
fn r21_no_call_is_lost_while_the_submit_ring_is_made_and_replaced() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..200 {
        let shared = UpstreamShared::new(std::sync::Arc::new(config("up", limits(1, 100))));
        let calls = runtime.block_on(async {
            let rig = Rig::start(config("rig", limits(1, 10)), supervisor(&Global::default()), |_| {});
            (0..60).map(|_| rig.accept(&caller(1), Like::default())).collect::<Vec<_>>()
        });
        std::thread::scope(|scope| {
            for part in calls.chunks(20) {
                let shared = &shared;
                scope.spawn(move || part.iter().for_each(|call| shared.submit(call.clone())));
            }
            scope.spawn(|| shared.reconfigure(|config| config.limits.queue_size = 1000));
        });
        let mut taken: Vec<_> = std::iter::from_fn(|| shared.next_submit().map(|call| call.id)).collect();
        taken.sort_unstable();
        assert_eq!(taken, calls.iter().map(|call| call.id).collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn c40_without_a_queue_a_free_slot_is_used_and_none_waits() {
    let rig = Rig::up(limits(1, 0)).await;
    let calls = rig.calls(&caller(1), 2);
    rig.settle().await;
    assert_eq!(calls[0].ticket.state(), State::Running);
    let refused = refusal(&calls[1]);
    assert_eq!(refused.outcome, Outcome::Refused(Reason::ConcurrencyLimit));
    assert_eq!(refused.scope, Scope::Upstream);
    assert_eq!((refused.active, refused.max_concurrent), (Some(1), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn c40_unlimited_means_the_hard_ceiling_and_is_shown_as_no_limit() {
    let rig = Rig::up(Limits { max_concurrent: Concurrency::Unlimited, ..limits(1, 10) }).await;
    let calls = rig.calls(&caller(1), 1000);
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Running), 1000);
    assert_eq!(rig.upstream.status().max_concurrent, 0);
}

#[tokio::test(start_paused = true)]
async fn a_pause_lets_arrivals_queue_and_a_resume_runs_them() {
    let rig = Rig::up(limits(2, 10)).await;
    let ann = caller(1);
    let first = rig.calls(&ann, 1);
    rig.settle().await;
    rig.upstream.pause().await.unwrap();
    let second = rig.calls(&ann, 2);
    rig.settle().await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Paused);
    assert_eq!(in_state(&second, State::Queued), 2);
    rig.server.answer(first[0].id);
    rig.settle().await;
    assert_eq!(in_state(&second, State::Queued), 2);
    rig.upstream.resume().await.unwrap();
    assert_eq!(in_state(&second, State::Running), 2);
    assert_eq!(rig.server.peak(), 2);
}

#[tokio::test(start_paused = true)]
async fn c03_the_cap_holds_through_pause_reload_and_reconnect() {
    let rig = Rig::up(limits(2, 100)).await;
    let calls = rig.calls(&caller(1), 60);
    rig.settle().await;
    for round in 0..40 {
        match round % 8 {
            1 => rig.upstream.pause().await.unwrap(),
            2 => rig.upstream.resume().await.unwrap(),
            4 => rig.upstream.set_limits(limits(2, 50 + round)).await.unwrap(),
            5 => rig.server.die(ms(100)),
            6 => rig.server.tell(crate::upstream::connection::LinkEvent::Up { processes: 1 }),
            7 => rig.upstream.restart().await.unwrap(),
            _ => drop(rig.server.answer_next()),
        }
        rig.settle().await;
        assert!(rig.server.at_server().len() <= 2);
    }
    while rig.server.answer_next().is_some() {
        rig.settle().await;
    }
    assert_eq!(in_state(&calls, State::Finished), 60);
    assert_eq!(rig.server.peak(), 2);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn r24_a_drain_ends_a_pause_runs_what_waits_and_refuses_until_resume() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    rig.upstream.pause().await.unwrap();
    let calls = rig.calls(&ann, 2);
    rig.settle().await;
    rig.upstream.drain().await.unwrap();
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Running), 1);
    let late = rig.call(&ann, Like::default());
    assert_eq!(outcome(&late), Some(Outcome::Refused(Reason::Draining)), "refused at the door, at once");
    assert_eq!(rig.upstream.status().state, UpstreamState::Draining);
    while rig.server.answer_next().is_some() {
        rig.settle().await;
    }
    assert_eq!(rig.upstream.status().state, UpstreamState::Drained);
    let later = rig.call(&ann, Like::default());
    assert_eq!(outcome(&later), Some(Outcome::Refused(Reason::Draining)));
    rig.upstream.resume().await.unwrap();
    let again = rig.call(&ann, Like::default());
    rig.settle().await;
    assert_eq!(again.ticket.state(), State::Running);
    rig.check(&[late, later, again]);
}

#[tokio::test(start_paused = true)]
async fn r24_a_drain_of_an_idle_upstream_is_dry_at_once() {
    let rig = Rig::up(limits(1, 10)).await;
    rig.upstream.drain().await.unwrap();
    assert_eq!(rig.upstream.status().state, UpstreamState::Drained);
}

#[tokio::test(start_paused = true)]
async fn a_queue_over_four_fifths_for_half_a_minute_is_shown_as_saturated() {
    let rig = Rig::up(Limits { queue_timeout: None, call_timeout: None, ..limits(1, 10) }).await;
    let _calls = rig.calls(&caller(1), 9);
    rig.pass(secs(29)).await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Up);
    rig.pass(secs(2)).await;
    let status = rig.upstream.status();
    assert_eq!(status.state, UpstreamState::Saturated);
    assert_eq!(status.oldest_wait.as_secs(), 31);
    rig.server.answer_next();
    rig.settle().await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Up);
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_waits_and_slot_times_without_asking_the_actor() {
    let rig = Rig::up(limits(1, 10)).await;
    let calls = rig.calls(&caller(1), 3);
    rig.pass(ms(500)).await;
    rig.server.answer(calls[0].id);
    rig.pass(ms(300)).await;
    let status = rig.upstream.status();
    assert_eq!((status.running, status.queued), (1, 1));
    assert!(status.p50.unwrap() >= ms(500) && status.p95.unwrap() < ms(650), "{status:?}");
    assert!(status.oldest_wait >= ms(800) && status.oldest_wait < ms(850), "{status:?}");
    rig.server.answer(calls[1].id);
    rig.pass(ms(150)).await;
    assert_eq!(rig.upstream.status().oldest_wait, ms(0));
}

#[tokio::test(start_paused = true)]
async fn r11_newcomers_refused_for_want_of_a_permit_do_not_pile_up_at_the_gates() {
    let rig = Rig::up(limits(10, 0)).await;
    let ann = caller_with(1, CallerConfig { max_concurrent: Some(1), ..CallerConfig::default() });
    let first = rig.calls(&ann, 1);
    rig.settle().await;
    for _ in 0..200 {
        // Fewer at a time than the submit ring has places.
        for call in rig.calls(&ann, 50) {
            rig.settle().await;
            assert_eq!(outcome(&call), Some(Outcome::Refused(Reason::ConcurrencyLimit)));
        }
    }
    assert_eq!(rig.upstream.shared().ledger.read().finished(), 10_000);
    assert_eq!(rig.supervisor.gates().waiting(), 0);
    // And the permit is not lost to those who went.
    rig.server.answer(first[0].id);
    rig.settle().await;
    let next = rig.calls(&ann, 1);
    rig.settle().await;
    assert_eq!(in_state(&next, State::Running), 1);
}

#[tokio::test(start_paused = true)]
async fn r11_calls_that_park_and_are_cancelled_leave_nobody_at_the_gates() {
    let rig = Rig::up(limits(10, 100)).await;
    let ann = caller_with(1, CallerConfig { max_concurrent: Some(1), ..CallerConfig::default() });
    let first = rig.calls(&ann, 1);
    rig.settle().await;
    for _ in 0..1000 {
        let parked = rig.call(&ann, Like::default());
        settle().await;
        assert_eq!(rig.supervisor.gates().waiting(), 1);
        assert!(rig.cancel(&parked, CancelledBy::Caller));
        settle().await;
        assert_eq!(rig.supervisor.gates().waiting(), 0);
    }
    rig.server.answer(first[0].id);
    rig.settle().await;
    assert_eq!(rig.supervisor.gates().in_flight(), 0);
    rig.check(&first);
}

/// From two threads, each changing a limit of its own.
#[test]
fn r24_concurrent_changes_of_limits_lose_nothing_of_each_other() {
    let shared = UpstreamShared::new(std::sync::Arc::new(config("up", limits(1, 100))));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..2000).for_each(|_| shared.reconfigure(|config| config.limits.queue_size += 1)));
        scope.spawn(|| (0..2000).for_each(|_| shared.reconfigure(|config| config.limits.cancel_grace += ms(1))));
    });
    let limits = &shared.config.load().limits;
    assert_eq!(limits.queue_size, 2100);
    assert_eq!(limits.cancel_grace, Limits::built_in(true).cancel_grace + secs(2));
}

#[tokio::test(start_paused = true)]
async fn slot_times_are_those_of_calls_that_completed() {
    let rig = Rig::up(Limits { call_timeout: Some(secs(2)), ..limits(4, 10) }).await;
    let calls = rig.calls(&caller(1), 4);
    rig.settle().await;
    // Cancelled and honoured at once; broken off; timed out, and answered late.
    rig.cancel(&calls[0], CancelledBy::Caller);
    rig.server.answer(calls[0].id);
    rig.server.lose(calls[1].id, true);
    rig.pass(ms(500)).await;
    assert_eq!(rig.upstream.status().p50, None);
    rig.server.answer(calls[2].id);
    rig.pass(ms(1600)).await;
    assert_eq!(outcome(&calls[3]), Some(Outcome::TimedOut(TimedOutBy::CallTimeout)));
    rig.server.answer(calls[3].id);
    rig.settle().await;
    let status = rig.upstream.status();
    assert!(status.p50.unwrap() >= ms(500) && status.p95.unwrap() < ms(650), "{status:?}");
}
