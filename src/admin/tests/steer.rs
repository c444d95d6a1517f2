//! Cancel by id, pause, resume, drain.

use super::*;

#[tokio::test]
async fn a_cancel_says_what_it_met() {
    let house = House::of(&["db"]).await;
    let calls = house.backlog("db", 4).await;
    let cancel = async |id: &str| house.client.cancel(id).await.unwrap();
    let queued = &calls[3];
    let answer = cancel(&queued.id.to_string()).await;
    assert_eq!(answer.answer, wire::Cancelled::CancelledQueued);
    assert_eq!(house.servers["db"].began(queued.id), 0, "the upstream never saw it");

    // The number alone means this run.
    let running = &calls[0];
    let text = running.id.to_string();
    let (_, number) = text.split_once('-').unwrap();
    assert_eq!(cancel(number).await.answer, wire::Cancelled::CancelledRunning);
    let again = cancel(&text).await;
    assert_eq!(again.answer, wire::Cancelled::AlreadyFinished);
    assert_eq!((again.outcome.as_deref(), again.reason.as_deref()), (Some("cancelled"), Some("operator")));
    house.close().await;
}

#[tokio::test]
async fn pause_holds_resume_lets_go_and_drain_refuses() {
    let house = House::of(&["db"]).await;
    let steer = async |action: &str| -> wire::Upstream {
        read(&house.client.post(&format!("/v1/upstreams/db/{action}")).await.unwrap()).unwrap()
    };
    assert_eq!(steer("pause").await.state, wire::UpstreamState::Paused);
    let held = house.call("db", "ann", "query");
    until(|| held.ticket.state() == State::Queued).await;
    assert_eq!(house.servers["db"].began(held.id), 0);
    assert_eq!(steer("resume").await.state, wire::UpstreamState::Up);
    until(|| held.ticket.state() == State::Running).await;
    assert_eq!(steer("drain").await.state, wire::UpstreamState::Draining);
    let late = house.call("db", "ann", "query");
    until(|| late.ticket.state() == State::Finished).await;
    assert_eq!(late.ticket.ending().unwrap().outcome.reason(), "draining");
    assert!(house.servers["db"].answer(held.id));
    until(|| house.dispatcher.upstream("db").unwrap().status().state == crate::upstream::UpstreamState::Drained).await;
    assert_eq!(steer("resume").await.state, wire::UpstreamState::Up);
    for (path, code) in [("/v1/upstreams/bd/pause", "unknown_upstream"), ("/v1/upstreams/db/explode", "unknown_action")]
    {
        match house.client.post(path).await {
            Err(ClientError::Refused { status, fault, .. }) => assert_eq!((status.as_u16(), &*fault.code), (404, code)),
            other => panic!("{other:?}"),
        }
    }
    house.close().await;
}
