//! The API over a real unix socket, with real actors and scripted servers.
#![expect(clippy::unwrap_used, reason = "tests say by panicking that something is wrong")]

use super::{Admin, Socket};
use crate::call::{Call, State};
use crate::caller::{Caller, CallerId};
use crate::config::{
    Auth, CallerConfig, Concurrency, Config, Global, HttpTarget, Limits, Listen, Start, Target, UpstreamConfig,
};
use crate::dispatcher::{Dispatcher, Wanted};
use crate::protocol::envelope::{self, Message};
use crate::protocol::splice::ReplyForm;
use crate::upstream::scripted::{OnStop, Scripted};
use crate::upstream::{Gates, Supervisor, Upstream, UpstreamShared};
use bytes::Bytes;
use forebay_tui::client::{Client, ClientError, read};
use forebay_wire as wire;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const MARK: u32 = 12_345;

struct House {
    dispatcher: Arc<Dispatcher>,
    servers: BTreeMap<String, Arc<Scripted>>,
    client: Client,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
    home: tempfile::TempDir,
    _supervisor: Supervisor,
}

impl House {
    /// Upstreams of these names, each with two slots and eight places.
    async fn of(names: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run/forebay.sock");
        let mcp = "127.0.0.1:7300".parse().unwrap();
        let config = Config {
            listen: Listen {
                mcp,
                admin: path.clone(),
                hosts: Vec::new(),
                origins: Vec::new(),
                threads: 1,
                max_body: 1 << 20,
            },
            auth: Auth::Keys,
            global: Global::default(),
            upstreams: BTreeMap::new(),
            callers: BTreeMap::new(),
            origin: None,
        };
        let dispatcher = Dispatcher::new(Arc::new(config), MARK);
        let gates = Gates::new(&Global::default());
        let supervisor = Supervisor::start(&tokio::runtime::Handle::current(), gates, 7);
        let mut servers = BTreeMap::new();
        for name in names {
            let shared = UpstreamShared::new(Arc::new(UpstreamConfig {
                name: (*name).into(),
                target: Target::Http(HttpTarget { url: "http://127.0.0.1:1/".parse().unwrap(), headers: Vec::new() }),
                limits: Limits { max_concurrent: Concurrency::Fixed(2), queue_size: 8, ..Limits::built_in(true) },
                tools: BTreeMap::new(),
                start: Start::Eager,
                connect_timeout: Duration::from_secs(10),
                max_message: 1 << 20,
            }));
            let server = Scripted::new(&shared);
            dispatcher.add_upstream(Upstream::start(shared, server.clone(), &supervisor));
            servers.insert((*name).to_owned(), server);
        }
        let stop = CancellationToken::new();
        let serving =
            tokio::spawn(Admin::new(dispatcher.clone(), mcp).serve(Socket::bind(&path).unwrap(), stop.clone()));
        let client = Client::new(path);
        House { dispatcher, servers, client, stop, serving, home, _supervisor: supervisor }
    }

    fn call(&self, upstream: &str, caller: &str, tool: &str) -> Arc<Call> {
        let tool_json = serde_json::to_string(tool).unwrap();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":{tool_json},"arguments":{{}}}}}}"#
        );
        let Ok(Message::Request(request)) = envelope::read(Bytes::from(body)) else { panic!("not a request") };
        self.dispatcher.submit(Wanted {
            caller: Arc::new(Caller::new(CallerId(7), caller.into(), "key", Arc::new(CallerConfig::default()))),
            upstream: self.dispatcher.upstream(upstream).unwrap(),
            request,
            target: tool.into(),
            renamed: false,
            tool: Some(tool.into()),
            lane: None,
            arrived: tokio::time::Instant::now(),
            timeout: None,
            home: 0,
            form: ReplyForm::Result,
        })
    }

    /// That many calls, once the first two run and the rest is queued.
    async fn backlog(&self, upstream: &str, count: usize) -> Vec<Arc<Call>> {
        let calls: Vec<_> = (0..count).map(|_| self.call(upstream, "ann", "query")).collect();
        let stands = |state| calls.iter().filter(|call| call.ticket.state() == state).count();
        until(|| stands(State::Running) == count.min(2) && stands(State::Submitted) == 0).await;
        calls
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> T {
        read(&self.client.get(path).await.unwrap()).unwrap()
    }

    async fn fault(&self, path: &str) -> (u16, wire::Fault) {
        match self.client.get(path).await {
            Err(ClientError::Refused { status, fault, .. }) => (status.as_u16(), fault),
            other => panic!("{path}: {other:?}"),
        }
    }

    async fn all_ids(&self, query: &str, limit: usize) -> Vec<String> {
        let mut ids = Vec::new();
        let mut path = format!("/v1/calls?limit={limit}{query}");
        for _ in 0..100 {
            let page: wire::CallsPage = self.get(&path).await;
            assert!(page.calls.len() <= limit);
            ids.extend(page.calls.into_iter().map(|call| call.id));
            let Some(next) = page.next else { return ids };
            path = format!("/v1/calls?limit={limit}{query}&cursor={}", forebay_tui::client::escaped(&next));
        }
        panic!("the listing has no end");
    }

    async fn close(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
        assert!(!self.home.path().join("run/forebay.sock").exists(), "the socket goes with the daemon");
    }
}

/// Waits for a condition, giving the other tasks their turns.
async fn until(condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.expect("the condition holds in time");
}

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
