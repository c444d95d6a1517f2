//! Events, callers, the story of a call, an upstream's detail, and why.

use super::*;

#[tokio::test]
async fn events_are_numbered_and_narrowed() {
    let house = House::of(&["db"]).await;
    for action in ["pause", "resume", "pause"] {
        house.client.post(&format!("/v1/upstreams/db/{action}")).await.unwrap();
    }
    let all: wire::EventsPage = house.get("/v1/events").await;
    let numbers: Vec<_> = all.events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(all.next, numbers.len() as u64 + 1);
    let kinds: Vec<_> = all.events.iter().filter(|event| event.by.is_some()).map(|event| &*event.kind).collect();
    assert_eq!(kinds, ["upstream.paused", "upstream.resumed", "upstream.paused"]);
    let rest: wire::EventsPage = house.get(&format!("/v1/events?from={}&limit=1", all.next - 2)).await;
    assert_eq!((rest.events.len(), rest.events[0].number, rest.next), (1, all.next - 2, all.next - 1));
    let loud: wire::EventsPage = house.get("/v1/events?level=error").await;
    assert_eq!(loud.events, []);
    let elsewhere: wire::EventsPage = house.get("/v1/events?upstream=web").await;
    assert_eq!(elsewhere.events, []);
    for path in ["/v1/events?level=loud", "/v1/events?frm=1"] {
        assert_eq!(house.fault(path).await.1.code, "bad_query");
    }
    house.close().await;
}

#[tokio::test]
async fn callers_are_listed_in_pages_with_their_figures() {
    let house = House::of(&["db"]).await;
    let calls = house.backlog("db", 12).await;
    house.client.cancel(&calls[5].id.to_string()).await.unwrap();
    assert!(house.servers["db"].answer(calls[0].id));
    until(|| calls[2].ticket.state() == State::Running).await;
    house.dispatcher.callers.by_name("ann").unwrap().claimed("claude", "1.0");
    let page: wire::CallersPage = house.get("/v1/callers?limit=2").await;
    let names: Vec<_> = page.callers.iter().map(|caller| &*caller.name).collect();
    assert_eq!(names, ["ann", "anonymous"]);
    let ann = &page.callers[0];
    assert_eq!((ann.running, ann.queued, ann.finished), (2, 6, 4));
    assert_eq!((ann.completed, ann.shed, ann.cancelled), (1, 2, 1));
    assert_eq!((&*ann.identity, ann.client.as_deref()), ("key", Some("claude/1.0")));
    let rest: wire::CallersPage = house.get(&format!("/v1/callers?cursor={}", page.next.unwrap())).await;
    assert_eq!(rest.callers.iter().map(|caller| &*caller.name).collect::<Vec<_>>(), ["bob", "eve"]);
    assert_eq!(rest.next, None);
    house.close().await;
}

#[tokio::test]
async fn r31_a_call_has_its_story_also_after_its_end() {
    let house = House::of(&["db"]).await;
    house.servers["db"].on_stop(OnStop::Ignore);
    let calls = house.backlog("db", 3).await;
    let detail = async |call: &Call| house.get::<wire::CallDetail>(&format!("/v1/calls/{}", call.id)).await;
    let steps =
        |detail: &wire::CallDetail| -> Vec<String> { detail.timeline.iter().map(|step| step.what.clone()).collect() };
    let queued = detail(&calls[2]).await;
    assert_eq!((steps(&queued), queued.waiting), (vec!["accepted".to_owned(), "queued".into()], Some(1)));
    assert!(queued.arrived_unix_ms > 1_600_000_000_000);
    house.client.cancel(&calls[0].id.to_string()).await.unwrap();
    until(|| house.dispatcher.upstream("db").unwrap().status().lingering == 1).await;
    let lingering = detail(&calls[0]).await;
    assert_eq!(lingering.call.state, wire::CallState::Lingering);
    assert!(house.servers["db"].answer(calls[0].id));
    until(|| calls[2].ticket.state() == State::Running).await;
    let over = detail(&calls[0]).await;
    assert_eq!(over.call.state, wire::CallState::Finished);
    let over = steps(&over);
    assert_eq!(over[over.len() - 3..], ["finished", "asked_to_stop", "released"]);
    house.close().await;
}

#[tokio::test]
async fn why_names_who_holds_the_slots() {
    let house = House::of(&["db"]).await;
    let calls = house.backlog("db", 4).await;
    let why: wire::Why = house.get(&format!("/v1/calls/{}/why", calls[3].id)).await;
    assert!(why.sentence.contains("2 of 2 slots of db are taken"), "{}", why.sentence);
    assert!(why.sentence.contains("1 call is ahead"), "{}", why.sentence);
    assert_eq!((why.holders.len(), &*why.waiting[0].caller, why.waiting[0].calls), (2, "ann", 2));
    let split = why.split.unwrap();
    let age = house.get::<wire::Call>(&format!("/v1/calls/{}", calls[3].id)).await.age_ms;
    let sum = split.admission_ms + split.queue_ms + split.upstream_ms + split.delivery_ms;
    assert!(sum <= age, "{sum} {age}");
    let running: wire::Why = house.get(&format!("/v1/calls/{}/why", calls[0].id)).await;
    assert!(running.sentence.contains("runs at db"), "{}", running.sentence);
    house.client.cancel(&calls[3].id.to_string()).await.unwrap();
    let over: wire::Why = house.get(&format!("/v1/calls/{}/why", calls[3].id)).await;
    assert!(over.sentence.contains("was cancelled by an operator; it had waited"), "{}", over.sentence);
    let upstream: wire::Why = house.get("/v1/upstreams/db/why").await;
    assert!(upstream.sentence.contains("1 of 8 queue places are taken (1 by ann)"), "{}", upstream.sentence);
    assert_eq!(house.fault("/v1/calls/zzz/why").await.0, 404);
    assert_eq!(house.fault("/v1/upstreams/bd/why").await.0, 404);
    house.close().await;
}

#[tokio::test]
async fn an_upstream_has_its_detail_and_its_error_output() {
    let house = House::of(&["db"]).await;
    house.backlog("db", 12).await;
    let detail: wire::UpstreamDetail = house.get("/v1/upstreams/db").await;
    assert_eq!((&*detail.upstream.name, &*detail.on_full, &*detail.after_cancel), ("db", "displace", "release"));
    assert_eq!(detail.now, detail.file);
    assert_eq!((detail.outcomes.len(), detail.outcomes[0].calls), (1, 2));
    let stderr: wire::Stderr = house.get("/v1/upstreams/db/stderr?lines=5").await;
    assert_eq!((&*stderr.upstream, stderr.stderr.len()), ("db", 0));
    assert_eq!(house.fault("/v1/upstreams/db/stderr?lnes=5").await.1.code, "bad_query");
    assert_eq!(house.fault("/v1/upstreams/bd").await.1.code, "unknown_upstream");
    house.close().await;
}
