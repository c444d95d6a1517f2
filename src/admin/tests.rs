//! The API over a real unix socket, with real actors and scripted servers. Tests by role are in the files beside.
#![expect(clippy::unwrap_used, reason = "tests say by panicking that something is wrong")]

mod calls;
mod change;
mod flood;
mod look;
mod state;
mod steer;
mod stream;

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
        House::with_places(names, 8).await
    }

    /// The same with so many places in each queue.
    async fn with_places(names: &[&str], queue_size: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run/forebay.sock");
        let mcp = "127.0.0.1:7300".parse().unwrap();
        let config = Config {
            listen: Listen {
                mcp,
                mcp_unix: None,
                admin: path.clone(),
                hosts: Vec::new(),
                origins: Vec::new(),
                threads: 1,
                max_body: 1 << 20,
            },
            auth: Auth::Keys,
            global: Global::default(),
            upstreams: BTreeMap::new(),
            callers: ["ann", "bob", "eve"].map(|name| (name.to_owned(), Arc::default())).into(),
            hooks: crate::config::Hooks::default(),
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
                limits: Limits { max_concurrent: Concurrency::Fixed(2), queue_size, ..Limits::built_in(true) },
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
            tokio::spawn(Admin::new(dispatcher.clone(), mcp, None).serve(Socket::bind(&path).unwrap(), stop.clone()));
        let client = Client::new(path);
        House { dispatcher, servers, client, stop, serving, home, _supervisor: supervisor }
    }

    fn call(&self, upstream: &str, caller: &str, tool: &str) -> Arc<Call> {
        let tool_json = serde_json::to_string(tool).unwrap();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":{tool_json},"arguments":{{}}}}}}"#
        );
        let Ok(Message::Request(request)) = envelope::read(Bytes::from(body)) else { panic!("not a request") };
        let known = self.dispatcher.callers.by_name(caller);
        let unknown = || Arc::new(Caller::new(CallerId(700), caller.into(), "key", Arc::new(CallerConfig::default())));
        self.dispatcher.submit(Wanted {
            caller: known.unwrap_or_else(unknown),
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
            notices: None,
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

/// One request with whatever headers and body; status and body of the answer.
async fn ask(
    house: &House,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, serde_json::Value) {
    let stream = tokio::net::UnixStream::connect(house.client.socket()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    let driving = tokio::spawn(connection);
    let mut request = http::Request::builder().method(method).uri(path).header("host", "forebay");
    if !body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = http_body_util::Full::new(Bytes::from(body.to_owned()));
    let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    driving.abort();
    (status, serde_json::from_slice(&body).unwrap())
}

fn typed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}
