//! Cancel by selector, edits, live limits, restart, and who is written down for them.

use super::*;

async fn send<T: serde::de::DeserializeOwned>(house: &House, method: &str, path: &str, body: &str) -> T {
    let (status, answer) = ask(house, method, path, &[("forebay-actor", "cli")], body).await;
    assert_eq!(status, 200, "{path}: {answer}");
    typed(answer)
}

async fn refused(house: &House, method: &str, path: &str, body: &str) -> (u16, String) {
    let (status, answer) = ask(house, method, path, &[], body).await;
    (status, answer["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_selector_ends_what_it_takes_once_and_a_dry_run_ends_nothing() {
    let house = House::of(&["db", "web"]).await;
    let anns = house.backlog("db", 6).await;
    let bobs = house.call("db", "bob", "query");
    let elsewhere = house.call("web", "ann", "query");
    until(|| bobs.ticket.state() == State::Queued && elsewhere.ticket.state() == State::Running).await;
    let cancel = async |body: &str| send::<wire::CancelledMany>(&house, "POST", "/v1/cancel", body).await;

    let dry = cancel(r#"{"caller": "ann", "upstream": "db", "dry_run": true}"#).await;
    assert_eq!((dry.dry_run, dry.matched, dry.cancelled_queued, dry.cancelled_running), (true, 6, 4, 2));
    // Those that wait first, so that none of them starts in a slot that the cancel itself freed.
    let in_turn: Vec<_> = anns[2..].iter().chain(&anns[..2]).map(|call| call.id.to_string()).collect();
    assert_eq!(dry.ids, in_turn);
    assert!(anns.iter().all(|call| call.ticket.ending().is_none()));

    let did = cancel(r#"{"caller": "ann", "upstream": "db", "state": "queued"}"#).await;
    assert_eq!((did.matched, did.cancelled_queued, did.cancelled_running, did.already_finished), (4, 4, 0, 0));
    let left = cancel(r#"{"caller": "ann"}"#).await;
    assert_eq!((left.matched, left.cancelled_running), (3, 3));
    assert_eq!(cancel(r#"{"tool": "nothing"}"#).await.matched, 0);
    assert_eq!(cancel(r#"{"older_than_ms": 3600000}"#).await.matched, 0);
    assert!(bobs.ticket.ending().is_none());
    assert_eq!(cancel(r#"{"all": true}"#).await.matched, 1);
    until(|| house.dispatcher.live_count() == 0).await;
    let state = house.client.state().await.unwrap();
    assert_eq!((state.totals.offered, state.totals.finished, state.totals.unaccounted), (8, 8, 0));
    for (body, code) in [
        ("{}", "empty_selector"),
        (r#"{"dry_run": true}"#, "empty_selector"),
        (r#"{"calller": "ann"}"#, "bad_body"),
        ("", "bad_body"),
        (r#"{"state": "lingering"}"#, "bad_state"),
    ] {
        assert_eq!(refused(&house, "POST", "/v1/cancel", body).await, (400, code.into()), "{body}");
    }
    assert_eq!(refused(&house, "POST", "/v1/cancel", r#"{"upstream": "bd"}"#).await, (404, "unknown_upstream".into()));
    let events: wire::EventsPage = house.get("/v1/events").await;
    let cancels: Vec<_> = events.events.iter().filter(|event| event.kind == "cancelled").collect();
    assert_eq!(cancels.iter().map(|event| event.times).sum::<u64>(), 8);
    let uid = rustix::process::geteuid().as_raw();
    assert!(cancels.iter().all(|event| event.by.as_deref() == Some(&*format!("uid:{uid} cli"))));
    house.close().await;
}

#[tokio::test]
async fn r25_a_queued_call_is_edited_and_a_running_one_is_not() {
    let house = House::of(&["db"]).await;
    let calls = house.backlog("db", 4).await;
    let path = |call: &Call| format!("/v1/calls/{}", call.id);
    let edited: wire::EditAnswer =
        send(&house, "POST", &path(&calls[3]), r#"{"priority": "high", "extend_ms": 60000}"#).await;
    assert_eq!(edited.answer, wire::Edited::Changed);
    let shown = edited.call.unwrap();
    assert_eq!((shown.lane, shown.state), (wire::Lane::High, wire::CallState::Queued));
    assert!(shown.deadline_ms.unwrap() > 60_000, "{shown:?}");
    let far: wire::EditAnswer = send(&house, "POST", &path(&calls[3]), r#"{"extend_ms": 86400000}"#).await;
    assert!(far.call.unwrap().deadline_ms.unwrap() <= 3_600_000, "an hour from now at most");
    let running: wire::EditAnswer = send(&house, "POST", &path(&calls[0]), r#"{"priority": "low"}"#).await;
    assert_eq!(running.answer, wire::Edited::AlreadyRunning);
    house.client.cancel(&calls[2].id.to_string()).await.unwrap();
    let over: wire::EditAnswer = send(&house, "POST", &path(&calls[2]), r#"{"priority": "low"}"#).await;
    assert_eq!(over.answer, wire::Edited::AlreadyFinished);
    assert_eq!(refused(&house, "POST", "/v1/calls/zzz", r#"{"priority": "low"}"#).await, (404, "unknown_id".into()));
    assert_eq!(refused(&house, "POST", &path(&calls[3]), "{}").await, (400, "bad_body".into()));
    let detail: wire::CallDetail = house.get(&path(&calls[3])).await;
    let steps: Vec<_> = detail.timeline.iter().map(|step| &*step.what).collect();
    assert_eq!(steps, ["accepted", "queued", "edited", "edited"]);
    house.close().await;
}

#[tokio::test]
async fn r24_live_limits_hold_at_once_and_lie_above_the_file() {
    let house = House::of(&["db"]).await;
    let calls = house.backlog("db", 7).await;
    let patch = async |body: &str| send::<wire::LimitsAnswer>(&house, "PATCH", "/v1/upstreams/db", body).await;
    let raised = patch(r#"{"max_concurrent": 3}"#).await;
    assert_eq!((raised.now.max_concurrent, raised.file.max_concurrent), (Some(3), Some(2)));
    let runs = || calls.iter().filter(|call| call.ticket.state() == State::Running).count();
    until(|| runs() == 3).await;
    let lowered = patch(r#"{"max_concurrent": 1, "queue_size": 2, "queue_timeout_ms": 0}"#).await;
    assert_eq!(lowered.notes.len(), 3, "{:?}", lowered.notes);
    assert_eq!(runs(), 3, "nothing that runs is ended");
    let detail: wire::UpstreamDetail = house.get("/v1/upstreams/db").await;
    assert_eq!((detail.now.queue_size, detail.file.queue_size), (Some(2), Some(8)));
    assert_eq!((detail.now.queue_timeout_ms, detail.upstream.queue_timeout_ms), (Some(0), None));
    let late = house.call("db", "bob", "query");
    until(|| late.ticket.state() == State::Finished).await;
    assert_eq!(late.ticket.ending().unwrap().outcome.reason(), "queue_full");
    for (body, code) in [
        ("{}", "bad_body"),
        (r#"{"max_concurrent": 4097}"#, "bad_limit"),
        (r#"{"queue_size": 70000}"#, "bad_limit"),
        (r#"{"cancel_grace_ms": 0}"#, "bad_limit"),
        (r#"{"max_concurrency": 3}"#, "bad_body"),
    ] {
        assert_eq!(refused(&house, "PATCH", "/v1/upstreams/db", body).await, (400, code.into()), "{body}");
    }
    // These daemons have no config file.
    let (status, code) = refused(&house, "PATCH", "/v1/upstreams/db?save=true", r#"{"max_concurrent": 3}"#).await;
    assert_eq!((status, &*code), (409, "cannot_save"));
    let detail: wire::UpstreamDetail = house.get("/v1/upstreams/db").await;
    assert_eq!(detail.now.max_concurrent, Some(1), "what cannot be saved is not put in force either");
    house.close().await;
}

#[tokio::test]
async fn a_restart_loses_what_runs_and_keeps_what_waits() {
    let house = House::of(&["db"]).await;
    let calls = house.backlog("db", 3).await;
    let _: wire::Upstream = send(&house, "POST", "/v1/upstreams/db/restart", "").await;
    until(|| calls[0].ticket.ending().is_some() && calls[1].ticket.ending().is_some()).await;
    assert_eq!(calls[0].ticket.ending().unwrap().outcome.name(), "lost");
    until(|| calls[2].ticket.state() == State::Running).await;
    let events: wire::EventsPage = house.get("/v1/events?upstream=db").await;
    assert!(events.events.iter().any(|event| event.kind == "upstream.restarted" && event.by.is_some()));
    house.close().await;
}
