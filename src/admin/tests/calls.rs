//! Listings and single calls.

use super::*;

#[tokio::test]
async fn a_listing_in_pages_shows_every_call_once_running_ones_first() {
    let house = House::of(&["db", "idle", "web"]).await;
    let mut calls = house.backlog("db", 7).await;
    calls.extend(house.backlog("web", 5).await);
    let whole: wire::CallsPage = house.get("/v1/calls").await;
    let states: Vec<_> = whole.calls[..7].iter().map(|call| call.state).collect();
    assert_eq!(states[..2], [wire::CallState::Running; 2]);
    assert_eq!(states[2..], [wire::CallState::Queued; 5]);
    let positions: Vec<_> = whole.calls[2..7].iter().map(|call| call.position).collect();
    assert_eq!(positions, (1..=5).map(Some).collect::<Vec<_>>());
    assert!(whole.calls.iter().all(|call| call.deadline_ms.is_some() && call.attempt == 1 && call.weight == 1));
    let mut wanted: Vec<_> = calls.iter().map(|call| call.id.to_string()).collect();
    wanted.sort();
    for limit in [1, 3, 5, 256] {
        let mut ids = house.all_ids("", limit).await;
        ids.sort();
        assert_eq!(ids, wanted, "pages of {limit}");
    }
    house.close().await;
}

#[tokio::test]
async fn filters_narrow_and_what_is_misspelt_is_refused() {
    let house = House::of(&["db"]).await;
    let _calls = house.backlog("db", 3).await;
    let odd = house.call("db", "bob", "drop table");
    until(|| odd.ticket.state() == State::Queued).await;
    assert_eq!(house.all_ids("&caller=bob", 10).await, [odd.id.to_string()]);
    assert_eq!(house.all_ids("&tool=drop%20table", 10).await, [odd.id.to_string()]);
    assert_eq!(house.all_ids("&upstream=db&state=running", 10).await.len(), 2);
    assert_eq!(house.all_ids("&older_than=1h", 10).await.len(), 0);
    assert_eq!(house.all_ids("&older_than=0s", 10).await.len(), 4);
    for (path, status, code) in [
        ("/v1/calls?calller=bob", 400, "bad_query"),
        ("/v1/calls?limit=many", 400, "bad_query"),
        ("/v1/calls?state=finished", 400, "bad_state"),
        ("/v1/calls?older_than=soon", 400, "bad_duration"),
        ("/v1/calls?cursor=x", 400, "bad_cursor"),
        ("/v1/calls?upstream=bd", 404, "unknown_upstream"),
        ("/v1/calls/%FF", 400, "bad_path"),
        ("/v1/calls/not-an-id", 400, "bad_id"),
        ("/v1/nothing", 404, "unknown_route"),
        ("/v1/upstreams/db/pause", 405, "wrong_method"),
    ] {
        let (got, fault) = house.fault(path).await;
        assert_eq!((got, &*fault.code), (status, code), "{path}");
        assert!(!fault.message.is_empty());
    }
    let (_, fault) = house.fault("/v1/calls?upstream=bd").await;
    assert_eq!(fault.hint.as_deref(), Some("there are: db"));
    house.close().await;
}

#[tokio::test]
async fn r27_ids_of_another_run_and_unknown_ids_answer_clearly() {
    let house = House::of(&["db"]).await;
    let unknown = house.client.cancel("zzz").await.unwrap();
    assert_eq!(unknown.answer, wire::Cancelled::UnknownId);
    let other_run = "00000-11";
    assert_eq!(house.client.cancel(other_run).await.unwrap().answer, wire::Cancelled::UnknownId);
    let (status, fault) = house.fault(&format!("/v1/calls/{other_run}")).await;
    assert_eq!((status, &*fault.code), (404, "unknown_id"));
    assert!(fault.message.contains("another run") && fault.message.contains(&house.dispatcher.mark()), "{fault:?}");
    let (_, fault) = house.fault("/v1/calls/zzz").await;
    assert_eq!(fault.message, "no call zzz is known");
    house.close().await;
}

#[tokio::test]
async fn one_call_is_shown_live_lingering_and_finished() {
    let house = House::of(&["db"]).await;
    let server = &house.servers["db"];
    server.on_stop(OnStop::Ignore);
    let calls = house.backlog("db", 3).await;
    let show = async |call: &Call| house.get::<wire::Call>(&format!("/v1/calls/{}", call.id)).await;
    let queued = show(&calls[2]).await;
    assert_eq!((queued.state, queued.position), (wire::CallState::Queued, Some(1)));
    assert_eq!(queued.outcome, None);
    assert_eq!(show(&calls[0]).await.state, wire::CallState::Running);

    house.client.cancel(&calls[0].id.to_string()).await.unwrap();
    let lingering = loop {
        let shown = show(&calls[0]).await;
        if shown.state == wire::CallState::Lingering {
            break shown;
        }
        assert_eq!(shown.state, wire::CallState::Finished, "until the actor has been told");
    };
    assert_eq!(lingering.executed.as_deref(), Some("unknown"));
    until(|| house.dispatcher.upstream("db").unwrap().status().lingering == 1).await;
    let state = house.client.state().await.unwrap();
    assert_eq!((state.totals.lingering, state.totals.unaccounted), (1, 0));

    assert!(server.answer(calls[1].id));
    let done = show(&calls[1]).await;
    assert_eq!((done.state, done.outcome.as_deref()), (wire::CallState::Finished, Some("completed")));
    assert_eq!(done.executed.as_deref(), Some("yes"));
    house.close().await;
}
