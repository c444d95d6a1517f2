//! The front over real sockets on loopback, with scripted servers behind it.

mod answers;
mod callers;
mod cancel;
mod client;
mod memory;
mod names;
mod streams;
mod wire;

use super::*;
use crate::caller::key::{Key, parse_key_hash};
use crate::config::{
    Auth, CallerConfig, Config, Global, LegacyDisconnect, Limits, Listen, Rate, Start, StdioTarget, Target,
    UpstreamConfig,
};
use crate::ledger::Counts;
use crate::outcome::Outcome;
use crate::upstream::connection::LinkEvent;
use crate::upstream::scripted::{OnStop, Scripted, Seen};
use crate::upstream::{Gates, Supervisor, Upstream, UpstreamShared, UpstreamState};
use client::{Client, post};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

struct Rig {
    ingress: Arc<Ingress>,
    address: SocketAddr,
    servers: BTreeMap<&'static str, Arc<Scripted>>,
    _supervisor: Supervisor,
}

struct Setup {
    auth: Auth,
    global: Global,
    callers: BTreeMap<String, Arc<CallerConfig>>,
    max_body: u64,
    limits: Limits,
    bounds: Bounds,
}

impl Default for Setup {
    fn default() -> Self {
        let limits =
            Limits { max_concurrent: crate::config::Concurrency::Fixed(1), queue_size: 10, ..Limits::built_in(true) };
        Setup {
            auth: Auth::None,
            global: Global::default(),
            callers: BTreeMap::new(),
            max_body: 1 << 20,
            limits,
            bounds: Bounds::default(),
        }
    }
}

impl Rig {
    async fn new(names: &[&'static str]) -> Rig {
        Rig::with(names, Setup::default()).await
    }

    async fn with(names: &[&'static str], setup: Setup) -> Rig {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let config = Arc::new(Config {
            listen: Listen {
                mcp: address,
                mcp_unix: None,
                admin: "/nowhere".into(),
                hosts: Vec::new(),
                origins: Vec::new(),
                threads: 1,
                max_body: setup.max_body,
            },
            auth: setup.auth,
            global: setup.global,
            upstreams: BTreeMap::new(),
            callers: setup.callers,
            hooks: crate::config::Hooks::default(),
            origin: None,
        });
        let gates = Gates::new(&config.global);
        let supervisor = Supervisor::start(&tokio::runtime::Handle::current(), gates, 1);
        let dispatcher = Dispatcher::new(config, 7);
        let mut servers = BTreeMap::new();
        for name in names {
            let shared = UpstreamShared::new(Arc::new(UpstreamConfig {
                name: (*name).into(),
                target: Target::Stdio(StdioTarget {
                    command: "none".into(),
                    args: Vec::new(),
                    env: BTreeMap::new(),
                    cwd: None,
                    processes: 1,
                }),
                limits: setup.limits.clone(),
                tools: BTreeMap::new(),
                start: Start::Eager,
                connect_timeout: Duration::from_secs(5),
                max_message: 1 << 20,
            }));
            let server = Scripted::new(&shared);
            server.on_stop(OnStop::Honour);
            dispatcher.add_upstream(Upstream::start(shared, server.clone(), &supervisor));
            servers.insert(*name, server);
        }
        let ingress = Ingress::within(setup.bounds, dispatcher, address, 1);
        tokio::spawn(listen(ingress.clone(), listener));
        tokio::spawn(serve(ingress.clone(), 0));
        Rig { ingress, address, servers, _supervisor: supervisor }
    }

    async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
        post(self.address, path, headers, body)
    }

    fn call(&self, path: &str, id: &str, tool: &str) -> Vec<u8> {
        self.post(path, &[], &call_body(id, tool))
    }

    async fn ask(&self, path: &str, headers: &[(&str, &str)], body: &str) -> client::Got {
        self.client().await.ask(&self.post(path, headers, body)).await
    }

    async fn session(&self, headers: &[(&str, &str)]) -> String {
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
        let got = self.ask("/mcp", headers, body).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got.header("mcp-session-id").unwrap().to_owned()
    }

    /// Waits for a condition that other tasks bring about.
    async fn until(&self, what: impl Fn(&Rig) -> bool) {
        let met = async {
            while !what(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), met).await.expect("the condition is not met");
    }

    async fn until_running(&self, server: &str, count: usize) {
        self.until(|rig| rig.servers[server].at_server().len() == count).await;
    }

    fn counts(&self, upstream: &str) -> Counts {
        let all = self.ingress.dispatcher.ledgers();
        all.into_iter().find(|(name, _)| &**name == upstream).unwrap().1
    }

    fn outcomes(&self, upstream: &str, name: &str, reason: &str) -> u64 {
        let counts = self.counts(upstream);
        let of = |index: &usize| Outcome::labels(*index) == (name, reason);
        (0..Outcome::COUNT).filter(of).map(|index| counts.outcomes[index]).sum()
    }

    fn queued(&self, upstream: &str) -> u32 {
        self.ingress.dispatcher.upstream(upstream).unwrap().status().queued
    }
}

fn call_body(id: &str, tool: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#)
}

fn cancel_body(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

fn alice_and_bob(change: impl Fn(&mut CallerConfig)) -> (Setup, String, String) {
    let (alice, bob) = (Key::new([1; 32]), Key::new([2; 32]));
    let config = |key: &Key| {
        let mut config =
            CallerConfig { keys: vec![parse_key_hash(&key.key_hash()).unwrap()], ..CallerConfig::default() };
        change(&mut config);
        Arc::new(config)
    };
    let callers = BTreeMap::from([("alice".into(), config(&alice)), ("bob".into(), config(&bob))]);
    let setup = Setup { auth: Auth::Keys, callers, ..Setup::default() };
    (setup, format!("Bearer {}", alice.expose()), format!("Bearer {}", bob.expose()))
}
