//! The state document, health, and names from outside.

use super::*;

#[tokio::test]
async fn state_tells_upstreams_and_a_ledger_that_adds_up() {
    let house = House::of(&["db", "web"]).await;
    let calls = house.backlog("db", 12).await;
    let state = house.client.state().await.unwrap();
    assert_eq!(state.instance, house.dispatcher.mark());
    assert_eq!((state.api, &*state.mcp, state.auth), (1, "127.0.0.1:7300", wire::AuthMode::Keys));
    let totals = &state.totals;
    assert_eq!((totals.offered, totals.running, totals.queued, totals.finished), (12, 2, 8, 2));
    assert_eq!(totals.unaccounted, 0);
    assert_eq!(totals.outcomes.len(), 1);
    assert_eq!(totals.outcomes[0].reason.as_deref(), Some("queue_full"));
    let db = &state.upstreams[0];
    assert_eq!((&*db.name, db.running, db.queued, db.refused), ("db", 2, 8, 2));
    assert_eq!((db.max_concurrent, db.queue_size), (2, 8));
    assert_eq!((&*state.upstreams[1].name, state.upstreams[1].queued), ("web", 0));
    drop(calls);
    house.close().await;
}

#[tokio::test]
async fn ready_until_it_drains_and_healthy_throughout() {
    let house = House::of(&[]).await;
    assert_eq!(house.get::<wire::Health>("/readyz").await.status, "ready");
    house.dispatcher.stop_admitting();
    match house.client.get("/readyz").await {
        Err(ClientError::Refused { status, body, .. }) => {
            assert_eq!(status.as_u16(), 503);
            assert_eq!(read::<wire::Health>(&body).unwrap().status, "draining");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(house.get::<wire::Health>("/healthz").await.status, "ok");
    assert!(house.client.state().await.unwrap().draining);
    house.close().await;
}

#[tokio::test]
async fn hostile_names_pass_as_they_are_but_never_as_raw_control_characters() {
    let house = House::of(&["db"]).await;
    let name = "x\u{1b}[2J\u{7}\u{202e}\r\n";
    let call = house.call("db", name, name);
    until(|| call.ticket.state() == State::Running).await;
    let body = house.client.get("/v1/calls").await.unwrap();
    assert!(!body.iter().any(|byte| *byte < 0x20), "{body:?}");
    let page: wire::CallsPage = read(&body).unwrap();
    assert_eq!((&*page.calls[0].caller, page.calls[0].tool.as_deref()), (name, Some(name)));
    house.close().await;
}
