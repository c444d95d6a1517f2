//! The front over real sockets on loopback, with scripted servers behind it.

mod client;
mod streams;

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

#[tokio::test]
async fn c23_ids_come_back_as_they_were_written() {
    let rig = Rig::new(&["up"]).await;
    rig.servers["up"].answer_instantly(true);
    let mut client = rig.client().await;
    for id in ["0", "\"0\"", "-1", "9007199254740993", "\"\"", "\"1\"", "1", "123456789012345678901234567890"] {
        let got = client.ask(&rig.call("/mcp/up", id, "echo")).await;
        assert_eq!(got.header("content-type"), Some("application/json"));
        assert!(got.text().contains(&format!(r#""id":{id},"#)), "{}", got.text());
        let got =
            client.ask(&rig.post("/mcp", &[], &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#))).await;
        assert_eq!(got.text(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
    let got = client.ask(&rig.post("/mcp", &[], "{")).await;
    assert_eq!((got.status, got.code(), &got.json()["id"]), (400, -32700, &Value::Null));
}

#[tokio::test]
async fn c19_notifications_and_responses_are_accepted_without_a_body() {
    let rig = Rig::new(&["up"]).await;
    let mut client = rig.client().await;
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/anything"}"#.to_owned(),
        cancel_body("77"),
    ] {
        let got = client.ask(&rig.post("/mcp", &[], &body)).await;
        assert_eq!((got.status, got.header("content-type"), got.body.len()), (202, None, 0), "{body}");
    }
}

#[tokio::test]
async fn c20_media_types_on_the_wire() {
    let rig = Rig::new(&["up"]).await;
    let mut client = rig.client().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let with = |value: &str| {
        let text = String::from_utf8(rig.post("/mcp", &[], body)).unwrap();
        text.replace("Content-Type: application/json", &format!("Content-Type: {value}")).into_bytes()
    };
    for (value, status) in [
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/json;charset=latin1", 415),
        ("text/plain", 415),
    ] {
        let mut client = rig.client().await;
        let got = client.ask(&with(value)).await;
        assert_eq!((got.status, got.header("content-type")), (status, Some("application/json")), "{value}");
    }
    assert_eq!(client.ask(&rig.post("/mcp", &[("Content-Encoding", "gzip")], body)).await.status, 415);
}

#[tokio::test]
async fn c30_strange_hosts_are_refused_before_the_body_is_read() {
    let rig = Rig::new(&["up"]).await;
    let port = rig.address.port();
    let own = format!("localhost:{port}");
    let foreign = format!("evil.example:{port}");
    for path in ["/mcp", "/mcp/up", "/api/v1/tools/call", "/healthz", "/nowhere"] {
        for (host, origin, refused) in [
            (&*foreign, None, true),
            ("localhost:1", None, true),
            (&*own, Some("null".to_owned()), true),
            (&*own, Some("http://localhost.evil.example".to_owned()), true),
            (&*own, Some(format!("http://localhost:{port}")), false),
        ] {
            let mut client = rig.client().await;
            let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
            // The body is announced and never sent.
            let length = if refused { "Content-Length: 100\r\n" } else { "Content-Length: 0\r\n" };
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\n{origin}Content-Type: application/json\r\n{length}\r\n"
            );
            let got = client.ask(head.as_bytes()).await;
            assert_eq!(got.status == 403, refused, "{path} {host} {origin}: {}", got.text());
            assert!(got.json().is_object());
        }
    }
}

#[tokio::test]
async fn paths_and_methods_have_their_answers() {
    let rig = Rig::new(&["up"]).await;
    let ask = async |method: &str, path: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n\r\n", rig.address);
        rig.client().await.ask(head.as_bytes()).await
    };
    let got = ask("GET", "/mcp").await;
    assert_eq!((got.status, got.header("allow")), (405, Some("POST, DELETE")));
    assert_eq!(ask("GET", "/mcp/up").await.status, 405);
    assert_eq!(ask("PUT", "/api/v1/tools").await.header("allow"), Some("GET"));
    assert_eq!(ask("GET", "/").await.status, 404);
    assert_eq!(ask("GET", "/healthz").await.json(), json!({ "status": "ok" }));
    assert_eq!(ask("DELETE", "/mcp").await.status, 400);
    assert_eq!(ask("GET", &format!("/mcp?{}", "x".repeat(9000))).await.status, 414);
    let got = rig.ask("/mcp/none", &[], r#"{"jsonrpc":"2.0","id":"x","method":"tools/list"}"#).await;
    assert_eq!((got.status, &got.json()["id"]), (404, &json!("x")));
    assert!(got.text().contains("`none`"));
}

#[tokio::test]
async fn c34_a_body_over_the_limit_is_refused_at_once() {
    let (mut setup, alice, _) = alice_and_bob(|_| {});
    setup.max_body = 10_000;
    let rig = Rig::with(&["up"], setup).await;
    let head = |key: &str, framing: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{key}{framing}\r\n\r\n",
            rig.address
        )
    };
    let key = format!("Authorization: {alice}\r\n");
    // Declared too long: refused with one byte sent, or none.
    let mut client = rig.client().await;
    let got = client.ask(format!("{}x", head(&key, "Content-Length: 12000000")).as_bytes()).await;
    assert_eq!((got.status, got.header("connection")), (413, Some("close")));
    assert!(client.closed().await);
    // Without a length: refused as soon as the limit is passed.
    let mut client = rig.client().await;
    client.send(head(&key, "Transfer-Encoding: chunked").as_bytes()).await;
    for _ in 0..3 {
        client.try_send(format!("fa0\r\n{}\r\n", "x".repeat(4000)).as_bytes()).await;
    }
    assert_eq!(client.read().await.status, 413);
    // Without a key nothing is read at all.
    for framing in ["Content-Length: 12000000", "Content-Length: 100", "Transfer-Encoding: chunked"] {
        assert_eq!(rig.client().await.ask(head("", framing).as_bytes()).await.status, 401, "{framing}");
    }
    assert_eq!(rig.ingress.dispatcher.memory().held(), 0);
    assert_eq!(rig.counts("up").offered, 0);
}

#[tokio::test(start_paused = true)]
async fn c34_a_stalled_upload_is_given_up_and_holds_no_slot() {
    let rig = Rig::new(&[]).await;
    let began = tokio::time::Instant::now();
    let mut client = rig.client().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        rig.address
    );
    let got = client.ask(head.as_bytes()).await;
    assert_eq!((got.status, got.header("connection")), (408, Some("close")));
    assert_eq!(began.elapsed().as_secs(), 15);
    // A head that does not come is not waited for either.
    let mut slow = rig.client().await;
    slow.send(b"POST /mcp HTTP/1.1\r\nHost:").await;
    assert!(slow.try_read().await.is_none_or(|got| got.status == 408));
}

#[tokio::test]
async fn a_length_beside_a_transfer_coding_ends_the_connection() {
    let rig = Rig::new(&[]).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for framing in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: chunked",
    ] {
        let mut client = rig.client().await;
        let smuggled = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{framing}\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n{smuggled}",
            rig.address,
            body.len()
        );
        client.send(request.as_bytes()).await;
        let got = client.read().await;
        assert_eq!((got.status, got.header("connection")), (200, Some("close")), "{framing}");
        assert!(client.closed().await, "{framing}");
    }
    for bad in ["Content-Length: 4\r\nContent-Length: 5", "Content-Length: -1", "Transfer-Encoding: gzip"] {
        let mut client = rig.client().await;
        let head = format!("POST /mcp HTTP/1.1\r\nHost: {}\r\n{bad}\r\n\r\n", rig.address);
        assert_eq!(client.ask(head.as_bytes()).await.status, 400, "{bad}");
        assert!(client.closed().await, "{bad}");
    }
}

#[tokio::test]
async fn r34_a_key_is_needed_and_wrong_ones_are_answered_alike() {
    let (setup, alice, _) = alice_and_bob(|_| {});
    let rig = Rig::with(&["up"], setup).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(rig.ask("/mcp", &[("Authorization", &alice)], body).await.status, 200);
    let unknown = format!("Bearer {}", Key::new([9; 32]).expose());
    let mut answers = Vec::new();
    let wrong: [&[(&str, &str)]; 5] = [
        &[],
        &[("Authorization", "Bearer nonsense")],
        &[("Authorization", &unknown)],
        &[("Authorization", "Basic eA==")],
        &[("Authorization", &alice), ("Authorization", &alice)],
    ];
    for headers in wrong {
        let got = rig.ask("/mcp", headers, body).await;
        assert_eq!((got.status, got.header("www-authenticate")), (401, Some("Bearer")));
        answers.push(got.body);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
}

#[tokio::test]
async fn c35_limits_are_the_callers_and_wrong_keys_have_their_own() {
    let (setup, alice, bob) =
        alice_and_bob(|config| config.rate = Some(crate::config::Rate { per_second: 5.0 / 60.0, burst: 5 }));
    let rig = Rig::with(&["up"], setup).await;
    rig.servers["up"].answer_instantly(true);
    let body = call_body("1", "echo");
    let mut served = 0;
    for _ in 0..20 {
        let key = ("Authorization", &*alice);
        let session = rig.session(&[key]).await;
        let got = rig.ask("/mcp/up", &[key], &body).await.json();
        let refused = &got["result"]["_meta"]["forebay/refusal"]["reason"];
        served += u32::from(refused.is_null());
        assert!(refused.is_null() || refused == "caller_rate", "{got}");
        let head = format!(
            "DELETE /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: {alice}\r\nMcp-Session-Id: {session}\r\n\r\n",
            rig.address
        );
        assert_eq!(rig.client().await.ask(head.as_bytes()).await.status, 204);
    }
    assert_eq!(served, 5);
    let mut slowed = 0;
    for round in 0..1000 {
        let got = rig.ask("/mcp/up", &[("Authorization", "Bearer wrong")], &body).await;
        match got.status {
            401 => {}
            429 => {
                slowed += 1;
                assert!(got.header("retry-after").is_some());
            }
            other => panic!("{other}"),
        }
        if round % 400 == 399 {
            let got = rig.ask("/mcp/up", &[("Authorization", &bob)], &body).await.json();
            assert!(got["result"]["isError"].is_null(), "{got}");
        }
    }
    assert!(slowed >= 950, "{slowed}");
    let got = rig.ask("/mcp/up", &[("Authorization", &bob)], &body).await.json();
    assert!(got["result"]["isError"].is_null(), "bob gets his third: {got}");
}

#[tokio::test]
async fn handshakes_and_lists_have_a_rate_of_their_own_by_caller() {
    let (setup, alice, bob) = alice_and_bob(|_| {});
    let bounds = Bounds { asks: Rate { per_second: 0.01, burst: 3 }, ..Bounds::default() };
    let rig = Rig::with(&["up"], Setup { bounds, ..setup }).await;
    rig.servers["up"].answer_instantly(true);
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"t"}]}"#));
    let list = r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#;
    let key = [("Authorization", &*alice)];
    rig.session(&key).await;
    for _ in 0..2 {
        assert_eq!(rig.ask("/mcp", &key, list).await.status, 200);
    }
    let hello = r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    for body in [list, hello] {
        let got = rig.ask("/mcp", &key, body).await;
        assert_eq!((got.status, got.code(), &got.json()["id"]), (429, -31429, &json!(9)));
        assert!(
            got.header("retry-after").is_some() && got.json()["error"]["data"]["retry_after_ms"].as_u64() > Some(0)
        );
    }
    let rest =
        |key: &str| format!("GET /api/v1/tools HTTP/1.1\r\nHost: {}\r\nAuthorization: {key}\r\n\r\n", rig.address);
    assert_eq!(rig.client().await.ask(rest(&alice).as_bytes()).await.status, 429);
    // Her calls are not meant, nor is anybody else.
    assert!(rig.ask("/mcp", &key, &call_body("1", "up__t")).await.json()["result"]["isError"].is_null());
    assert_eq!(rig.client().await.ask(rest(&bob).as_bytes()).await.status, 200);
}

#[tokio::test]
async fn an_address_with_too_many_sockets_gets_no_more() {
    let bounds = Bounds { per_address: 2, loopback_is_free: false, ..Bounds::default() };
    let rig = Rig::with(&[], Setup { bounds, ..Setup::default() }).await;
    let ping = rig.post("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let (mut one, mut two) = (rig.client().await, rig.client().await);
    assert_eq!((one.ask(&ping).await.status, two.ask(&ping).await.status), (200, 200));
    assert!(rig.client().await.closed().await);
    drop(two);
    rig.until(|rig| rig.ingress.open_sockets() == 1).await;
    assert_eq!(rig.client().await.ask(&ping).await.status, 200);
    assert_eq!(one.ask(&ping).await.status, 200);
}

#[tokio::test]
async fn c31_a_session_of_somebody_else_does_not_exist() {
    let (setup, alice, bob) = alice_and_bob(|_| {});
    let rig = Rig::with(&["up"], setup).await;
    let session = rig.session(&[("Authorization", &alice)]).await;
    assert_eq!(session.len(), 32);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let with = |key: &str, method: &str| {
        let (length, body) = if method == "POST" { (ping.len(), ping) } else { (0, "") };
        format!(
            "{method} /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: {key}\r\nMcp-Session-Id: {session}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}",
            rig.address
        )
    };
    for method in ["POST", "DELETE"] {
        assert_eq!(rig.client().await.ask(with(&bob, method).as_bytes()).await.status, 404, "{method}");
    }
    assert_eq!(rig.client().await.ask(with(&alice, "POST").as_bytes()).await.status, 200);
    // Bob's cancel of Alice's id, with and without her session, means nothing.
    let mut client = rig.client().await;
    let headers = [("Authorization", &*alice), ("Mcp-Session-Id", &*session)];
    // Her session belongs to /mcp, so her call goes there.
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"hold"}]}"#));
    client.send(&rig.post("/mcp", &headers, &call_body("41", "up__hold"))).await;
    rig.until_running("up", 1).await;
    let got = rig.ask("/mcp", &[("Authorization", &*bob), headers[1]], &cancel_body("41")).await;
    assert_eq!(got.status, 404);
    let got = rig.ask("/mcp", &[("Authorization", &*bob)], &cancel_body("41")).await;
    assert_eq!(got.status, 202);
    assert_eq!(rig.servers["up"].at_server().len(), 1);
    rig.servers["up"].answer_next();
    assert_eq!(client.read().await.json()["id"], 41);
    assert_eq!(rig.client().await.ask(with(&alice, "DELETE").as_bytes()).await.status, 204);
    assert_eq!(rig.client().await.ask(with(&alice, "POST").as_bytes()).await.status, 404);
}

#[tokio::test]
async fn c26_one_id_for_two_calls_gives_each_its_own_answer() {
    let rig = Rig::new(&["up", "two"]).await;
    let session = rig.session(&[]).await;
    let headers = [("Mcp-Session-Id", &*session)];
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"a"}]}"#));
    rig.servers["two"].page(Ok(r#"{"tools":[{"name":"b"}]}"#));
    let (mut one, mut two) = (rig.client().await, rig.client().await);
    one.send(&rig.post("/mcp", &headers, &call_body("1", "up__a"))).await;
    two.send(&rig.post("/mcp", &headers, &call_body("1", "two__b"))).await;
    rig.until_running("up", 1).await;
    rig.until_running("two", 1).await;
    // Which of the two is meant nobody can say.
    assert_eq!(rig.ask("/mcp", &headers, &cancel_body("1")).await.status, 202);
    assert_eq!((rig.servers["up"].at_server().len(), rig.servers["two"].at_server().len()), (1, 1));
    rig.servers["two"].answer_next();
    let upstream = |got: &client::Got| got.json()["result"]["_meta"]["forebay/call"]["upstream"].clone();
    assert_eq!(upstream(&two.read().await), "two");
    // One is left, so now it is clear.
    assert_eq!(rig.ask("/mcp", &headers, &cancel_body("1")).await.status, 202);
    let got = one.read().await;
    assert_eq!((got.header("content-type"), got.body.len()), (Some("text/event-stream"), 0));
    // The id may be used again.
    one.send(&rig.post("/mcp", &headers, &call_body("1", "up__a"))).await;
    rig.until_running("up", 1).await;
    rig.servers["up"].answer_next();
    assert_eq!(upstream(&one.read().await), "up");
}

#[tokio::test]
async fn c04_a_cancel_is_answered_at_once_and_ends_what_it_names() {
    let rig = Rig::new(&["up"]).await;
    let (mut running, mut queued) = (rig.client().await, rig.client().await);
    running.send(&rig.call("/mcp/up", "41", "slow")).await;
    rig.until_running("up", 1).await;
    queued.send(&rig.call("/mcp/up", "\"41\"", "slow")).await;
    rig.until(|rig| rig.queued("up") == 1).await;
    for (client, id) in [(&mut queued, "\"41\""), (&mut running, "41")] {
        assert_eq!(rig.ask("/mcp/up", &[], &cancel_body(id)).await.status, 202);
        let got = client.read().await;
        assert_eq!((got.status, got.header("content-type")), (200, Some("text/event-stream")));
        assert!(got.body.is_empty());
    }
    rig.until(|rig| rig.servers["up"].at_server().is_empty()).await;
    assert_eq!(rig.outcomes("up", "cancelled", "caller"), 2);
    let begun = |seen: &&Seen| matches!(seen, Seen::Begin(_));
    assert_eq!(rig.servers["up"].seen().iter().filter(begun).count(), 1, "the queued one never ran");
}

#[tokio::test]
async fn a_cancel_in_the_packet_of_its_call_is_neither_lost_nor_late() {
    let rig = Rig::new(&["up"]).await;
    let session = rig.session(&[]).await;
    let headers = [("Mcp-Session-Id", &*session)];
    let mut blocker = rig.client().await;
    blocker.send(&rig.call("/mcp/up", "1", "slow")).await;
    rig.until_running("up", 1).await;
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"slow"}]}"#));
    rig.ask("/mcp", &headers, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    let mut client = rig.client().await;
    for round in 0..200 {
        let id = round.to_string();
        let call = rig.post("/mcp", &headers, &call_body(&id, "up__slow"));
        let cancel = rig.post("/mcp", &headers, &cancel_body(&id));
        client.send(&[call, cancel].concat()).await;
        let got = client.read().await;
        assert_eq!((got.status, got.header("content-type")), (200, Some("text/event-stream")), "{}", got.text());
        assert_eq!(client.read().await.status, 202);
    }
    assert_eq!(rig.outcomes("up", "cancelled", "caller"), 200);
    // A cancel that carries other credentials or another session is not heeded early.
    let call = rig.post("/mcp", &headers, &call_body("7", "up__slow"));
    let strange = rig.post("/mcp", &[], &cancel_body("7"));
    let own = rig.post("/mcp", &headers, &cancel_body("7"));
    client.send(&[call, strange, own].concat()).await;
    assert_eq!(client.read().await.header("content-type"), Some("text/event-stream"));
    assert_eq!(client.read().await.status, 202);
    assert_eq!(client.read().await.status, 202);
    // And the connection is as good as ever.
    client.send(&rig.post("/mcp", &headers, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await;
    assert_eq!(client.read().await.status, 200);
    rig.servers["up"].answer_next();
    assert_eq!(blocker.read().await.status, 200);
}

#[tokio::test]
async fn c04_a_cancel_finds_a_call_whose_list_is_still_waited_for() {
    let rig = Rig::new(&["up"]).await;
    let session = rig.session(&[]).await;
    let headers = [("Mcp-Session-Id", &*session)];
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"t"}]}"#));
    let list = rig.servers["up"].hold_pages();
    // R6: before its upstream is known a call is counted under none.
    let submitted = |rig: &Rig| rig.counts("").submitted;
    let call = |id: &str| rig.post("/mcp", &headers, &call_body(id, "up__t"));
    let cancel = rig.post("/mcp", &headers, &cancel_body("41"));
    // From another connection.
    let mut client = rig.client().await;
    client.send(&call("41")).await;
    rig.until(|rig| submitted(rig) == 1).await;
    assert_eq!(rig.client().await.ask(&cancel).await.status, 202);
    let got = client.read().await;
    assert_eq!((got.header("content-type"), got.body.len()), (Some("text/event-stream"), 0));
    // In the packet of its call.
    client.send(&[call("41"), cancel].concat()).await;
    assert_eq!(client.read().await.header("content-type"), Some("text/event-stream"));
    assert_eq!(client.read().await.status, 202);
    // By an operator, who finds it in the live table.
    client.send(&call("42")).await;
    rig.until(|rig| submitted(rig) == 1).await;
    let live = rig.ingress.dispatcher.live_calls();
    assert_eq!((&**live[0].upstream(), &**live[0].target()), ("", "up__t"));
    rig.ingress.dispatcher.cancel_call(&live[0], crate::outcome::CancelledBy::Operator);
    let got = client.read().await.json();
    assert_eq!(got["result"]["_meta"]["forebay/call"]["outcome"], "cancelled", "{got}");
    // By closing, in both eras.
    let modern = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"up__t",{META}}}}}"#);
    let version = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "up__t")];
    for (ended, request) in [(3, rig.post("/mcp", &version, &modern)), (0, call("43"))] {
        let mut client = rig.client().await;
        client.send(&request).await;
        rig.until(|rig| submitted(rig) == 1).await;
        drop(client);
        rig.until(|rig| submitted(rig) == 0).await;
        if ended > 0 {
            assert_eq!(rig.outcomes("", "cancelled", "caller"), ended);
        }
    }
    assert_eq!(rig.outcomes("", "cancelled", "disconnect"), 1);
    // The list comes: none of them is sent, and who still waits is.
    client.send(&call("44")).await;
    rig.until(|rig| submitted(rig) == 1).await;
    assert_eq!((rig.counts("up").offered, rig.servers["up"].asked().len()), (0, 1), "one fetch for all who wait");
    list.add_permits(1);
    rig.until_running("up", 1).await;
    rig.servers["up"].answer_next();
    assert_eq!(client.read().await.json()["id"], 44);
    let begun = |seen: &&Seen| matches!(seen, Seen::Begin(_));
    assert_eq!(rig.servers["up"].seen().iter().filter(begun).count(), 1);
    let (front, up) = (rig.counts(""), rig.counts("up"));
    assert_eq!((front.offered, front.finished(), front.unaccounted()), (5, 5, 0));
    assert_eq!((up.offered, up.finished(), up.unaccounted()), (1, 1, 0));
    assert_eq!(rig.ingress.dispatcher.live_count(), 0);
}

#[tokio::test]
async fn a_list_is_waited_for_no_longer_than_the_call_may_wait() {
    let limits = Limits { queue_timeout: Some(Duration::from_millis(200)), ..Setup::default().limits };
    let rig = Rig::with(&["up"], Setup { limits, ..Setup::default() }).await;
    let outcome = |got: Value| got["result"]["_meta"]["forebay/refusal"].clone();
    // The caller's own deadline.
    let got = rig.ask("/mcp", &[("Forebay-Timeout", "60ms")], &call_body("1", "up__t")).await.json();
    let refusal = outcome(got);
    assert_eq!((&refusal["by"], &refusal["executed"]), (&json!("deadline"), &json!("never")), "{refusal}");
    assert_eq!(rig.outcomes("", "expired", "deadline"), 1);
    // The upstream's: the wait for its list is a wait for it.
    let began = std::time::Instant::now();
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"tool":"up__t"}"#).await;
    assert_eq!((got.status, &got.json()["call"]["executed"]), (503, &json!("never")), "{}", got.text());
    assert_eq!(rig.outcomes("up", "expired", "queue_timeout"), 1);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!((rig.counts("up").finished(), rig.servers["up"].seen().len()), (1, 1), "only opened");
}

#[tokio::test]
async fn cold_lists_are_fetched_once_and_side_by_side() {
    let rig = Rig::new(&["north", "north_"]).await;
    let gates: Vec<_> = ["north", "north_"].map(|name| rig.servers[name].hold_pages()).into();
    rig.servers["north"].page(Ok(r#"{"tools":[{"name":"a"}]}"#));
    rig.servers["north_"].page(Ok(r#"{"tools":[{"name":"ping"}]}"#));
    rig.servers["north_"].answer_instantly(true);
    let mut clients = Vec::new();
    for id in 0..8 {
        let mut client = rig.client().await;
        client.send(&rig.call("/mcp", &id.to_string(), "north___ping")).await;
        clients.push(client);
    }
    rig.until(|rig| rig.counts("").submitted == 8).await;
    // Both are asked before either has answered.
    rig.until(|rig| rig.servers.values().all(|server| server.asked().len() == 1)).await;
    gates.iter().rev().for_each(|gate| gate.add_permits(1));
    for (id, client) in clients.iter_mut().enumerate() {
        let got = client.read().await.json();
        assert_eq!((&got["id"], got["result"]["isError"].is_null()), (&json!(id), true), "{got}");
    }
    assert!(rig.servers.values().all(|server| server.asked().len() == 1));
    assert_eq!((rig.counts("").offered, rig.counts("north_").finished()), (0, 8));
}

#[tokio::test]
async fn a_modern_client_cancels_by_closing_and_a_legacy_one_does_not() {
    let rig = Rig::new(&["up"]).await;
    let modern = |id: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t",{META}}}}}"#);
        let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "t")];
        rig.post("/mcp/up", &headers, &body)
    };
    // Running: the server is asked to stop.
    let mut client = rig.client().await;
    client.send(&modern("1")).await;
    rig.until_running("up", 1).await;
    drop(client);
    rig.until(|rig| rig.outcomes("up", "cancelled", "caller") == 1).await;
    rig.until_running("up", 0).await;
    // R28: a legacy client's running call goes on, its queued one ends.
    let (mut running, mut queued) = (rig.client().await, rig.client().await);
    running.send(&rig.call("/mcp/up", "1", "t")).await;
    rig.until_running("up", 1).await;
    queued.send(&rig.call("/mcp/up", "2", "t")).await;
    rig.until(|rig| rig.queued("up") == 1).await;
    drop(running);
    drop(queued);
    rig.until(|rig| rig.outcomes("up", "cancelled", "disconnect") == 1).await;
    rig.until(|rig| rig.ingress.open_sockets() == 0).await;
    assert_eq!(rig.servers["up"].at_server().len(), 1);
    rig.servers["up"].answer_next();
    rig.until(|rig| rig.outcomes("up", "completed", "") == 1).await;
    let counts = rig.counts("up");
    assert_eq!(counts.offered, counts.outcomes.iter().sum::<u64>());
}

#[tokio::test]
async fn r28_what_a_legacy_disconnect_does_can_be_chosen() {
    for (chosen, ended) in [(LegacyDisconnect::Keep, 0), (LegacyDisconnect::Cancel, 2)] {
        let global = Global { legacy_disconnect: chosen, ..Global::default() };
        let rig = Rig::with(&["up"], Setup { global, ..Setup::default() }).await;
        let (mut running, mut queued) = (rig.client().await, rig.client().await);
        running.send(&rig.call("/mcp/up", "1", "t")).await;
        rig.until_running("up", 1).await;
        queued.send(&rig.call("/mcp/up", "2", "t")).await;
        rig.until(|rig| rig.queued("up") == 1).await;
        drop((running, queued));
        rig.until(|rig| rig.ingress.open_sockets() == 0).await;
        assert_eq!(rig.outcomes("up", "cancelled", "disconnect"), ended, "{chosen:?}");
    }
}

#[tokio::test]
async fn c29_a_true_clash_is_refused_with_both_names() {
    let rig = Rig::new(&["north", "north_"]).await;
    rig.servers["north"].page(Ok(r#"{"tools":[{"name":"_ping"},{"name":"only"}]}"#));
    rig.servers["north_"].page(Ok(r#"{"tools":[{"name":"ping"},{"name":"a__b"}]}"#));
    rig.servers["north"].answer_instantly(true);
    rig.servers["north_"].answer_instantly(true);
    let got = rig.ask("/mcp", &[], &call_body("1", "north___ping")).await;
    assert_eq!(got.code(), -32602);
    assert!(got.text().contains("`_ping` of upstream `north`") && got.text().contains("`ping` of upstream `north_`"));
    assert_eq!((rig.counts("north").offered, rig.counts("north_").offered), (0, 0));
    assert_eq!(rig.outcomes("", "refused", "not_allowed"), 1);
    let list = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    let names: Vec<_> = list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["north__only", "north___a__b"]);
    for (name, upstream) in [("north__only", "north"), ("north___a__b", "north_")] {
        let got = rig.ask("/mcp", &[], &call_body("1", name)).await.json();
        assert_eq!(got["result"]["_meta"]["forebay/call"]["upstream"], upstream, "{got}");
    }
}

#[tokio::test]
async fn an_unknown_tool_is_told_and_a_dead_upstream_is_no_unknown_tool() {
    let rig = Rig::new(&["dead", "up"]).await;
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"a"}]}"#));
    let is = |state| move |rig: &Rig| rig.ingress.dispatcher.upstream("dead").unwrap().status().state == state;
    rig.until(is(UpstreamState::Up)).await;
    rig.servers["dead"].tell(LinkEvent::Final { fault: "command not found".into() });
    rig.until(is(UpstreamState::Down)).await;
    for name in ["up__nothing", "nowhere__a", "a", "up_a", ""] {
        let got = rig.ask("/mcp", &[], &call_body("1", name)).await;
        assert_eq!(got.json()["error"], json!({ "code": -32602, "message": format!("Unknown tool: {name}") }));
    }
    assert_eq!(rig.outcomes("", "refused", "not_allowed"), 5);
    let got = rig.ask("/mcp", &[], &call_body("1", "dead__anything")).await.json();
    let refusal = &got["result"]["_meta"]["forebay/refusal"];
    assert_eq!((&refusal["reason"], &refusal["upstream"]), (&json!("upstream_down"), &json!("dead")), "{got}");
    // The list of the living is whole without it.
    let list = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    assert_eq!(list["result"], json!({ "tools": [{ "name": "up__a" }] }));
    // On its own endpoint the fault is told.
    let got = rig.ask("/mcp/dead", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    assert!(got.text().contains("command not found"), "{}", got.text());
}

#[tokio::test]
async fn hidden_tools_are_as_if_they_were_not() {
    let (setup, alice, bob) = alice_and_bob(|config| config.tools = Some(vec!["up__a".into()]));
    let rig = Rig::with(&["up"], setup).await;
    rig.servers["up"].answer_instantly(true);
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"a"},{"name":"b"}]}"#));
    let key = [("Authorization", &*alice)];
    let list = rig.ask("/mcp", &key, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    assert_eq!(list["result"], json!({ "tools": [{ "name": "up__a" }] }));
    let list = rig.ask("/mcp/up", &key, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    assert_eq!(list["result"], json!({ "tools": [{ "name": "a" }] }));
    for path in ["/mcp", "/mcp/up"] {
        let prefix = if path == "/mcp" { "up__" } else { "" };
        let hidden = rig.ask(path, &key, &call_body("1", &format!("{prefix}b"))).await;
        assert_eq!(
            hidden.text(),
            format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32602,"message":"Unknown tool: {prefix}b"}}}}"#)
        );
        let seen = rig.ask(path, &key, &call_body("1", &format!("{prefix}a"))).await.json();
        assert!(seen["error"].is_null(), "{seen}");
    }
    let rest = |tool: &str| format!(r#"{{"upstream":"up","tool":"{tool}"}}"#);
    let hidden = rig.ask("/api/v1/tools/call", &[("Authorization", &bob)], &rest("b")).await;
    assert_eq!(hidden.status, 404);
    let tools = "GET /api/v1/tools HTTP/1.1\r\n";
    let head = format!("{tools}Host: {}\r\nAuthorization: {bob}\r\n\r\n", rig.address);
    let got = rig.client().await.ask(head.as_bytes()).await.json();
    assert_eq!(got, json!({ "tools": [{ "upstream": "up", "tool": "a", "definition": { "name": "a" } }] }));
}

#[tokio::test]
async fn a_modern_request_is_held_to_its_headers() {
    let rig = Rig::new(&["up"]).await;
    rig.servers["up"].answer_instantly(true);
    let version = ("MCP-Protocol-Version", "2026-07-28");
    let modern = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"m","method":"{method}","params":{{{params}{META}}}}}"#)
    };
    let got = rig.ask("/mcp", &[version, ("Mcp-Method", "server/discover")], &modern("server/discover", "")).await;
    let result = &got.json()["result"];
    assert_eq!(
        (got.status, &result["resultType"], &result["cacheScope"]),
        (200, &json!("complete"), &json!("private"))
    );
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(result["capabilities"], json!({ "tools": {} }));
    let call = modern("tools/call", r#""name":"t","#);
    let good = [version, ("Mcp-Method", "tools/call"), ("Mcp-Name", "t"), ("Mcp-Param-X", "ignored")];
    let got = rig.ask("/mcp/up", &good, &call).await;
    assert_eq!(got.json()["result"]["resultType"], "complete");
    for wrong in [&good[..2], &good[1..], &[version, ("Mcp-Method", "tools/call"), ("Mcp-Name", "u")]] {
        let got = rig.ask("/mcp/up", wrong, &call).await;
        assert_eq!((got.status, got.code(), &got.json()["id"]), (400, -32020, &json!("m")), "{wrong:?}");
    }
    let got = rig.ask("/mcp", &[version, ("Mcp-Method", "ping")], &modern("ping", "")).await;
    assert_eq!((got.status, got.code()), (404, -32601));
    let strange = [("MCP-Protocol-Version", "2031-01-01"), ("Mcp-Method", "tools/list")];
    let got = rig.ask("/mcp", &strange, &modern("tools/list", "").replace("2026-07-28", "2031-01-01")).await;
    assert_eq!(
        (got.status, got.code(), &got.json()["error"]["data"]["requested"]),
        (400, -32022, &json!("2031-01-01"))
    );
}

#[tokio::test]
async fn a_full_queue_is_told_on_both_faces() {
    let limits =
        Limits { max_concurrent: crate::config::Concurrency::Fixed(1), queue_size: 0, ..Limits::built_in(true) };
    let rig = Rig::with(&["up"], Setup { limits, ..Setup::default() }).await;
    let mut running = rig.client().await;
    running.send(&rig.call("/mcp/up", "1", "t")).await;
    rig.until_running("up", 1).await;
    let got = rig.ask("/mcp/up", &[], &call_body("2", "t")).await.json();
    assert_eq!((&got["id"], &got["result"]["isError"]), (&json!(2), &json!(true)));
    let refusal = &got["result"]["_meta"]["forebay/refusal"];
    assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("concurrency_limit"), &json!("never")));
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t"}"#).await;
    assert_eq!((got.status, got.header("retry-after").is_some()), (429, true));
    assert_eq!(got.json()["refusal"]["reason"], "concurrency_limit");
    rig.servers["up"].answer_next();
    assert_eq!(running.read().await.status, 200);
    rig.servers["up"].answer_instantly(true);
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t","arguments":{"n":1}}"#).await;
    assert_eq!((got.status, &got.json()["_meta"]["forebay/call"]["outcome"]), (200, &json!("completed")));
}

#[tokio::test]
async fn c02_a_callers_deadline_is_told_in_any_of_its_places() {
    let rig = Rig::new(&["up"]).await;
    let mut running = rig.client().await;
    running.send(&rig.call("/mcp/up", "1", "t")).await;
    rig.until_running("up", 1).await;
    let got = rig.ask("/mcp/up", &[("Forebay-Timeout", "60ms")], &call_body("2", "t")).await.json();
    assert_eq!(got["result"]["_meta"]["forebay/call"]["outcome"], "expired", "{got}");
    let meta =
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{"forebay/timeout_ms":60}}}"#;
    let got = rig.ask("/mcp/up", &[], meta).await.json();
    assert_eq!(got["result"]["_meta"]["forebay/refusal"]["by"], "deadline", "{got}");
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t","timeout_ms":60}"#).await;
    assert_eq!((got.status, &got.json()["call"]["outcome"]), (503, &json!("expired")));
    let got = rig.ask("/mcp/up", &[("Forebay-Timeout", "60")], &call_body("2", "t")).await;
    assert_eq!((got.status, got.code()), (400, -32602));
    assert_eq!(rig.servers["up"].at_server().len(), 1);
}

/// More than the kernel takes for a client that does not read.
fn large_message() -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"x":"{}"}}}}"#, "y".repeat(24 << 20)).into_bytes()
}

#[tokio::test]
async fn r16_a_result_is_charged_until_it_is_written_and_newcomers_are_refused_meanwhile() {
    let global = Global { max_bytes: 16 << 20, ..Global::default() };
    let rig = Rig::with(&["up"], Setup { global, ..Setup::default() }).await;
    let held = |rig: &Rig| rig.ingress.dispatcher.memory().held();
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"t"}]}"#));
    let (mut slow, mut behind) = (rig.client().await, rig.client().await);
    slow.send(&rig.call("/mcp/up", "1", "big")).await;
    rig.until_running("up", 1).await;
    behind.send(&rig.call("/mcp/up", "2", "next")).await;
    rig.until(|rig| rig.queued("up") == 1).await;
    rig.servers["up"].answer_next_with(&large_message());
    rig.until_running("up", 1).await;
    assert!(held(&rig) >= 24 << 20, "{}", held(&rig));
    // A newcomer is refused on both faces, what is in the house goes on.
    let got = rig.ask("/mcp/up", &[], &call_body("3", "t")).await.json();
    assert_eq!(got["result"]["_meta"]["forebay/refusal"]["reason"], "overloaded", "{got}");
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t"}"#).await;
    assert_eq!((got.status, &got.json()["refusal"]["reason"]), (503, &json!("overloaded")));
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(rig.ask("/mcp/up", &[], list).await.code(), -31429);
    let head = format!("GET /api/v1/tools HTTP/1.1\r\nHost: {}\r\n\r\n", rig.address);
    assert_eq!(rig.client().await.ask(head.as_bytes()).await.status, 503);
    rig.servers["up"].answer_next();
    assert_eq!(behind.read().await.json()["id"], 2);
    // One who reads gets all of it, however large, and then there is room again.
    assert!(slow.read().await.body.len() > 24 << 20);
    rig.until(|rig| held(rig) == 0).await;
    rig.servers["up"].answer_instantly(true);
    let got = rig.ask("/mcp/up", &[], &call_body("4", "t")).await.json();
    assert!(got["result"]["isError"].is_null(), "{got}");
    assert_eq!(rig.ask("/mcp/up", &[], list).await.json()["result"]["tools"][0]["name"], "t");
    rig.until(|rig| held(rig) == 0).await;
    let counts = rig.counts("up");
    assert_eq!((counts.offered, counts.finished(), counts.unaccounted()), (5, 5, 0));
    assert_eq!((rig.outcomes("up", "completed", ""), rig.outcomes("up", "refused", "overloaded")), (3, 2));
}

#[tokio::test]
async fn r16_a_client_that_does_not_read_loses_its_socket_and_gives_its_bytes_back() {
    let bounds = Bounds { write_stall: Duration::from_millis(300), ..Bounds::default() };
    let rig = Rig::with(&["up"], Setup { bounds, ..Setup::default() }).await;
    let held = |rig: &Rig| rig.ingress.dispatcher.memory().held();
    let mut deaf = rig.client().await;
    deaf.send(&rig.call("/mcp/up", "1", "big")).await;
    rig.until_running("up", 1).await;
    rig.servers["up"].answer_next_with(&large_message());
    rig.until(|rig| rig.ingress.open_sockets() == 0).await;
    assert_eq!(held(&rig), 0);
    let counts = rig.counts("up");
    assert_eq!((counts.offered, counts.finished(), rig.outcomes("up", "completed", "")), (1, 1, 1));
    drop(deaf);
}

#[tokio::test]
async fn closing_ends_idle_sockets_and_finishes_what_is_in_flight() {
    let rig = Rig::new(&["up"]).await;
    let (mut idle, mut busy) = (rig.client().await, rig.client().await);
    idle.send(&rig.post("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await;
    idle.read().await;
    busy.send(&rig.call("/mcp/up", "1", "t")).await;
    rig.until_running("up", 1).await;
    rig.ingress.close();
    assert!(idle.closed().await);
    assert_eq!(rig.ingress.open_sockets(), 1);
    rig.servers["up"].answer_next();
    assert_eq!(busy.read().await.status, 200);
    assert!(busy.closed().await);
    tokio::time::timeout(Duration::from_secs(5), rig.ingress.closed()).await.unwrap();
}

#[tokio::test]
async fn r01_a_request_claims_a_call_that_nobody_ends() {
    let rig = Rig::new(&["up"]).await;
    // An upstream whose link never comes up, and an actor that is told nothing: only the deadline is left.
    rig.servers["up"].up_on_open(None);
    rig.servers["up"].tell(LinkEvent::Down { fault: "gone".into(), retry_in: Duration::from_millis(10) });
    let began = std::time::Instant::now();
    let got = rig.ask("/mcp/up", &[("Forebay-Timeout", "150ms")], &call_body("1", "t")).await.json();
    assert_eq!(got["result"]["_meta"]["forebay/call"]["executed"], "never", "{got}");
    assert!(began.elapsed() < Duration::from_secs(5));
    let counts = rig.counts("up");
    assert_eq!(counts.offered, counts.outcomes.iter().sum::<u64>());
}

#[tokio::test]
async fn r01_a_dead_actor_holds_no_request_beyond_its_deadline() {
    let rig = Rig::new(&["up"]).await;
    // Its supervisor lives on a runtime that nobody drives: the upstream is there, its actor never comes to life.
    let still = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let supervisor = Supervisor::start(still.handle(), Gates::new(&Global::default()), 1);
    let config = UpstreamConfig { name: "dead".into(), ..(**rig.servers["up"].shared().config.load()).clone() };
    let shared = UpstreamShared::new(Arc::new(config));
    let server = Scripted::new(&shared);
    rig.ingress.dispatcher.add_upstream(Upstream::start(shared, server.clone(), &supervisor));
    let ask = r#"{"upstream":"dead","tool":"t","timeout_ms":200}"#;
    let began = std::time::Instant::now();
    let got = rig.ask("/api/v1/tools/call", &[], ask).await;
    let took = began.elapsed();
    assert_eq!((got.status, &got.json()["call"]["outcome"]), (503, &json!("expired")), "{}", got.text());
    assert_eq!(got.json()["call"]["executed"], "never");
    assert!(took >= Duration::from_millis(200), "{took:?}");
    // The claim comes a tick or two later; the rest is for a machine that is busy.
    assert!(took < Duration::from_secs(2), "{took:?}");
    let legacy = rig.ask("/mcp/dead", &[("Forebay-Timeout", "200ms")], &call_body("1", "t")).await.json();
    assert_eq!(legacy["result"]["_meta"]["forebay/refusal"]["by"], "deadline", "{legacy}");
    let counts = rig.counts("dead");
    assert_eq!((counts.offered, counts.submitted), (2, 0));
    assert_eq!(counts.outcomes[Outcome::Expired(crate::outcome::ExpiredBy::Deadline).index()], 2);
    assert!(server.seen().is_empty());
    drop(supervisor);
    still.shutdown_background();
}

#[tokio::test]
async fn c22_lists_come_whole_and_cursors_are_our_own() {
    let rig = Rig::new(&["paged", "plain"]).await;
    rig.servers["paged"].page(Ok(r#"{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"8"}"#));
    rig.servers["paged"].page(Ok(r#"{"tools":[{"name":"c"}]}"#));
    rig.servers["plain"].page(Ok(r#"{"tools":[{"name":"d","x":1.10}]}"#));
    let list = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    assert_eq!(
        list.text(),
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"paged__a"},{"name":"paged__b"},{"name":"paged__c"},{"name":"plain__d","x":1.10}]}}"#
    );
    let got = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"8"}}"#).await;
    assert_eq!(got.code(), -32602);
    // Both upstreams were asked once for each page: the second list came from the cache.
    assert_eq!((rig.servers["paged"].asked().len(), rig.servers["plain"].asked().len()), (2, 1));
    let prompts = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":3,"method":"prompts/list"}"#).await.json();
    assert_eq!(prompts["result"], json!({ "prompts": [] }));
}
