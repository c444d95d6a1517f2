//! Calls while the link comes and goes.

use super::rig::*;
use crate::call::State;
use crate::config::{Global, Limits, Start};
use crate::outcome::{ExpiredBy, Outcome, Reason};
use crate::upstream::UpstreamState;
use crate::upstream::connection::{AskError, LinkEvent};
use crate::upstream::scripted::Seen;

fn down(retry_in: std::time::Duration) -> LinkEvent {
    LinkEvent::Down { fault: "exit code 1".into(), retry_in }
}

#[tokio::test(start_paused = true)]
async fn r10_queued_calls_wait_for_the_link_until_their_own_deadline() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    rig.server.die(secs(4));
    rig.settle().await;
    let patient = rig.call(&ann, Like::default());
    let hasty = rig.call(&ann, Like { deadline: Some(secs(5)), ..Like::default() });
    rig.settle().await;
    let status = rig.upstream.status();
    assert_eq!((status.state, status.fault.as_deref()), (UpstreamState::Down, Some("exit code 1")));
    assert!(status.retry_in.unwrap() <= secs(4));
    assert_eq!(in_state(&[patient.clone(), hasty.clone()], State::Queued), 2);
    rig.pass(ms(5050)).await;
    assert_eq!(outcome(&hasty), Some(Outcome::Expired(ExpiredBy::Deadline)));
    rig.server.tell(LinkEvent::Up { processes: 1 });
    rig.settle().await;
    assert_eq!(patient.ticket.state(), State::Running);
    assert_eq!(rig.server.began(hasty.id), 0);
    rig.check(&[patient, hasty]);
}

#[tokio::test(start_paused = true)]
async fn r10_a_newcomer_is_refused_when_the_next_try_is_beyond_its_deadline() {
    let rig = Rig::up(limits(1, 10)).await;
    rig.server.tell(down(secs(8)));
    rig.settle().await;
    let call = rig.call(&caller(1), Like { deadline: Some(secs(5)), ..Like::default() });
    rig.settle().await;
    let refused = refusal(&call);
    assert_eq!(refused.outcome, Outcome::Refused(Reason::UpstreamDown));
    assert_eq!(refused.note.as_deref(), Some("exit code 1"));
    assert!((8000..=10_400).contains(&refused.retry_after_ms.unwrap()), "{refused:?}");
    rig.check(&[call]);
}

#[tokio::test(start_paused = true)]
async fn r10_a_final_fault_ends_the_whole_queue() {
    let rig = Rig::up(limits(1, 2000)).await;
    let ann = caller(1);
    let calls = rig.calls(&ann, 1000);
    rig.settle().await;
    rig.server.tell(LinkEvent::Final { fault: "401 Unauthorized".into() });
    rig.settle().await;
    assert_eq!(in_state(&calls, State::Running), 1, "what runs is the connection's to end");
    for call in &calls[1..] {
        let refused = refusal(call);
        assert_eq!(refused.outcome, Outcome::Refused(Reason::UpstreamDown));
        assert_eq!((refused.note.as_deref(), refused.retry_after_ms), (Some("401 Unauthorized"), None));
    }
    let late = rig.call(&ann, Like::default());
    rig.settle().await;
    assert_eq!(outcome(&late), Some(Outcome::Refused(Reason::UpstreamDown)));
    // A restart by hand tries again.
    rig.upstream.restart().await.unwrap();
    let again = rig.call(&ann, Like::default());
    rig.settle().await;
    assert_eq!(again.ticket.state(), State::Running);
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn calls_wait_while_the_link_is_being_made() {
    let rig = Rig::start(config("up", limits(1, 10)), supervisor(&Global::default()), |server| {
        server.up_on_open(None);
    });
    let call = rig.call(&caller(1), Like::default());
    settle().await;
    assert_eq!(call.ticket.state(), State::Queued);
    assert_eq!(rig.upstream.status().state, UpstreamState::Starting);
    rig.server.tell(LinkEvent::Up { processes: 1 });
    settle().await;
    assert_eq!(call.ticket.state(), State::Running);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_on_demand_sleeps_until_the_first_call() {
    let mut config = config("lazy", limits(1, 10));
    config.start = Start::OnDemand;
    let rig = Rig::of(config).await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Asleep);
    assert_eq!(rig.server.seen(), []);
    let call = rig.call(&caller(1), Like::default());
    rig.settle().await;
    assert_eq!(rig.server.seen(), [Seen::Open, Seen::Begin(call.id)]);
}

#[tokio::test(start_paused = true)]
async fn asking_for_the_server_wakes_an_upstream_on_demand_and_tells_why_it_cannot() {
    let mut config = config("lazy", limits(1, 10));
    config.start = Start::OnDemand;
    let rig = Rig::of(config).await;
    assert_eq!(rig.upstream.server(secs(5)).await.unwrap().version, "2025-11-25");
    rig.server.tell(down(secs(60)));
    rig.settle().await;
    assert_eq!(rig.upstream.server(secs(5)).await.unwrap_err(), AskError::Down("exit code 1".into()));
    rig.server.tell(LinkEvent::Final { fault: "no such command".into() });
    rig.settle().await;
    assert_eq!(rig.upstream.server(secs(5)).await.unwrap_err(), AskError::Down("no such command".into()));
}

#[tokio::test(start_paused = true)]
async fn a_rest_that_the_server_asks_for_is_kept_and_ends_by_itself() {
    let rig = Rig::up(limits(1, 10)).await;
    let ann = caller(1);
    rig.server.tell(LinkEvent::Busy { retry_in: secs(2) });
    rig.settle().await;
    let call = rig.call(&ann, Like::default());
    rig.pass(ms(1900)).await;
    assert_eq!(call.ticket.state(), State::Queued);
    rig.pass(ms(150)).await;
    assert_eq!(rig.upstream.status().state, UpstreamState::Up);
    assert_eq!(call.ticket.state(), State::Running);
}

#[tokio::test(start_paused = true)]
async fn r22_the_limit_follows_the_processes_that_are_up() {
    let rig = Rig::start(with_processes(config("pool", limits(5, 20)), 2), supervisor(&Global::default()), |server| {
        server.up_on_open(Some(1));
    });
    settle().await;
    let calls = rig.calls(&caller(1), 10);
    settle().await;
    assert_eq!(in_state(&calls, State::Running), 3);
    let status = rig.upstream.status();
    assert_eq!((status.state, status.max_concurrent), (UpstreamState::Degraded, 3));
    rig.server.tell(LinkEvent::Up { processes: 2 });
    settle().await;
    assert_eq!(in_state(&calls, State::Running), 5);
    assert_eq!(rig.upstream.status().state, UpstreamState::Up);
}

#[tokio::test(start_paused = true)]
async fn c13_a_child_that_dies_loses_what_runs_and_what_waits_is_served_once_by_the_next() {
    let rig = Rig::up(limits(3, 10)).await;
    let calls = rig.calls(&caller(1), 5);
    rig.settle().await;
    rig.server.die(ms(500));
    rig.settle().await;
    assert!(calls[..3].iter().all(|call| outcome(call) == Some(Outcome::Lost { sent: true })));
    assert_eq!(in_state(&calls, State::Queued), 2);
    assert_eq!(rig.upstream.status().running, 0);
    rig.pass(ms(500)).await;
    rig.server.tell(LinkEvent::Up { processes: 1 });
    rig.settle().await;
    while rig.server.answer_next().is_some() {
        rig.settle().await;
    }
    assert!(calls.iter().all(|call| rig.server.began(call.id) == 1));
    rig.check(&calls);
}

#[tokio::test(start_paused = true)]
async fn without_a_queue_a_call_to_a_link_that_is_not_up_is_told_so() {
    let rig = Rig::up(Limits { queue_timeout: None, ..limits(1, 0) }).await;
    rig.server.tell(down(secs(3)));
    rig.settle().await;
    let call = rig.call(&caller(1), Like::default());
    rig.settle().await;
    let refused = refusal(&call);
    assert_eq!(refused.outcome, Outcome::Refused(Reason::UpstreamDown));
    assert!(refused.retry_after_ms.unwrap() >= 3000);
}

/// R20: a connection that tells more than it should takes a slice of each turn, not the turn.
#[tokio::test(start_paused = true)]
async fn r20_a_flood_of_link_events_is_taken_in_slices() {
    let rig = Rig::up(limits(1, 10)).await;
    let before = rig.upstream.shared().turns();
    for _ in 0..5_000 {
        rig.server.tell(LinkEvent::ListsChanged);
    }
    let call = rig.call(&caller(1), Like::default());
    tokio::task::yield_now().await;
    assert_eq!(call.ticket.state(), State::Running, "a newcomer does not wait behind the flood");
    assert!(!rig.upstream.shared().link_events.is_empty());
    rig.settle().await;
    assert!(rig.upstream.shared().link_events.is_empty(), "and all of it is taken in the end");
    assert!(rig.upstream.shared().turns() - before >= 5_000 / 256);
}
