//! The callers' front end to end: the whole daemon in this process, real sockets, real servers.
#![cfg(not(forebay_loom))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../src/ingress/tests/client.rs"]
mod client;

use client::{Client, Got, post};
use forebay::app::App;
use forebay::caller::key::{Key, parse_key_hash};
use forebay::config::{
    Auth, CallerConfig, Concurrency, Config, Global, HttpTarget, Limits, Listen, Secret, Start, StdioTarget, Target,
    UpstreamConfig,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const VERSION: (&str, &str) = ("MCP-Protocol-Version", "2026-07-28");
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// The scripted server, built beside this test.
fn test_upstream() -> PathBuf {
    let own = std::env::current_exe().expect("the test knows its own path");
    let folder = own.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    let path = folder.join("forebay-test-upstream");
    let missing = "is missing: build it with `cargo build -p forebay-test-upstream` or test with `--workspace`";
    assert!(path.exists(), "{} {missing}", path.display());
    path
}

fn stdio(args: &[&str]) -> Target {
    Target::Stdio(StdioTarget {
        command: test_upstream().to_str().unwrap().into(),
        args: ["--stdio"].iter().chain(args).map(|arg| Secret::new(*arg)).collect(),
        env: BTreeMap::new(),
        cwd: None,
        processes: 1,
    })
}

/// A server of its own process over HTTP, ended with this value.
struct HttpServer(std::process::Child);

impl HttpServer {
    fn start(args: &[&str]) -> (Self, Target) {
        let mut command = std::process::Command::new(test_upstream());
        command.args(["--http", "127.0.0.1:0"]).args(args).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().parse().unwrap();
        let headers = vec![("x-own".parse().unwrap(), Secret::new("configured"))];
        (HttpServer(child), Target::Http(HttpTarget { url, headers }))
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Daemon {
    app: App,
    _folder: tempfile::TempDir,
}

impl Daemon {
    fn start(upstreams: Vec<(&str, Target, Limits)>) -> Daemon {
        Daemon::with(upstreams, Auth::None, BTreeMap::new())
    }

    fn with(
        upstreams: Vec<(&str, Target, Limits)>,
        auth: Auth,
        callers: BTreeMap<String, Arc<CallerConfig>>,
    ) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let upstream = |(name, target, limits): (&str, Target, Limits)| {
            let config = UpstreamConfig {
                name: name.into(),
                target,
                limits,
                tools: BTreeMap::new(),
                start: Start::Eager,
                connect_timeout: Duration::from_secs(20),
                max_message: 4 << 20,
            };
            (name.to_owned(), Arc::new(config))
        };
        let app = App::start(Config {
            listen: Listen {
                mcp: "127.0.0.1:0".parse().unwrap(),
                mcp_unix: None,
                admin: folder.path().join("admin.sock"),
                hosts: Vec::new(),
                origins: Vec::new(),
                threads: 2,
                max_body: 4 << 20,
            },
            auth,
            global: Global { drain_timeout: Duration::from_secs(5), ..Global::default() },
            upstreams: upstreams.into_iter().map(upstream).collect(),
            callers,
            hooks: forebay::config::Hooks::default(),
            origin: None,
        })
        .unwrap();
        Daemon { app, _folder: folder }
    }

    async fn client(&self) -> Client {
        Client::connect(self.app.mcp).await
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
        post(self.app.mcp, path, headers, body)
    }

    async fn ask(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
        self.client().await.ask(&self.post(path, headers, body)).await
    }

    async fn call(&self, path: &str, tool: &str, arguments: &str) -> Value {
        self.ask(path, &[], &call("1", tool, arguments)).await.json()
    }

    /// Waits at the server itself until it has seen so many calls of a tool.
    async fn seen(&self, upstream: &str, tool: &str, count: u32) {
        let arguments = format!(r#"{{"tool":"{tool}","count":{count}}}"#);
        let got = self.call(&format!("/mcp/{upstream}"), "wait", &arguments).await;
        assert!(got["error"].is_null(), "{got}");
    }

    async fn stop(self) {
        let ledgers = self.app.dispatcher.ledgers();
        self.app.shut_down(std::future::pending()).await;
        for (upstream, counts) in ledgers {
            let ended: u64 = counts.outcomes.iter().sum();
            assert_eq!(counts.offered, ended + counts.submitted + counts.queued + counts.running, "{upstream}");
        }
    }
}

fn call(id: &str, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

fn limits(max_concurrent: u32, queue_size: u32) -> Limits {
    Limits { max_concurrent: Concurrency::Fixed(max_concurrent), queue_size, ..Limits::built_in(true) }
}

#[tokio::test]
async fn both_eras_list_and_call_through_both_endpoints() {
    let daemon = Daemon::start(vec![
        ("one", stdio(&["--era", "legacy"]), limits(5, 10)),
        ("two", stdio(&["--era", "modern"]), limits(5, 10)),
    ]);
    // Legacy: handshake, session, list, call.
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let got = daemon.ask("/mcp", &[], hello).await;
    assert_eq!(got.json()["result"]["protocolVersion"], "2025-11-25");
    let session = got.header("mcp-session-id").unwrap().to_owned();
    let own = [("Mcp-Session-Id", &*session), ("MCP-Protocol-Version", "2025-11-25")];
    let got = daemon.ask("/mcp", &own, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!((got.status, got.body.len()), (202, 0));
    let list = daemon.ask("/mcp", &own, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    let names: Vec<_> =
        list["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"one__echo") && names.contains(&"two__echo"), "{names:?}");
    assert!(names.is_sorted_by_key(|name| name.split("__").next().unwrap()));
    // C25: numbers pass byte for byte, through a legacy and a modern server, for both eras of client.
    let arguments = r#"{"id":9223372036854775807,"big":12345678901234567890123,"f":1.10,"e":1E400,"z":-0.0}"#;
    for upstream in ["one", "two"] {
        for (path, tool) in
            [("/mcp".to_owned(), format!("{upstream}__echo")), (format!("/mcp/{upstream}"), "echo".into())]
        {
            let got = daemon.ask(&path, &[], &call("\"x\"", &tool, arguments)).await;
            assert!(got.text().contains(&format!(r#""structuredContent":{arguments}"#)), "{}", got.text());
            let modern = format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},{META}}}}}"#
            );
            let headers = [VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", &*tool)];
            let got = daemon.ask(&path, &headers, &modern).await;
            assert_eq!(got.status, 200, "{}", got.text());
            assert!(got.text().contains(&format!(r#""structuredContent":{arguments}"#)), "{}", got.text());
            assert!(got.text().contains(r#""id":7"#), "{}", got.text());
            // What a legacy server leaves out is put in; a modern one's answer passes as it is.
            assert_eq!(got.text().contains(r#""resultType":"complete""#), upstream == "one", "{}", got.text());
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn c22_a_paged_upstream_and_one_that_is_not_come_in_one_list() {
    let daemon = Daemon::start(vec![
        ("paged", stdio(&["--tools-page", "8"]), limits(5, 10)),
        ("plain", stdio(&[]), limits(5, 10)),
    ]);
    let list = daemon.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    let names: Vec<_> = list["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].clone()).collect();
    let of = |prefix: &str| {
        let own = names.iter().filter_map(|name| name.as_str().unwrap().strip_prefix(prefix));
        own.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of("paged__"), of("plain__"));
    assert!(of("paged__").len() > 8);
    let own = daemon.ask("/mcp/paged", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    assert_eq!(own["result"]["tools"].as_array().unwrap().len(), of("paged__").len());
    daemon.stop().await;
}

#[tokio::test]
async fn c04_a_cancel_reaches_the_server_under_the_id_used_there() {
    let daemon = Daemon::start(vec![("up", stdio(&[]), limits(2, 10))]);
    let mut client = daemon.client().await;
    client.send(&daemon.post("/mcp/up", &[], &call("41", "hold", r#"{"key":"a"}"#))).await;
    daemon.seen("up", "hold", 1).await;
    assert_eq!(daemon.ask("/mcp/up", &[], &cancel("41")).await.status, 202);
    let got = client.read().await;
    assert_eq!((got.header("content-type"), got.body.len()), (Some("text/event-stream"), 0));
    let got = daemon.call("/mcp/up", "wait", r#"{"cancels":1}"#).await;
    assert!(got["error"].is_null(), "{got}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_modern_client_that_closes_its_stream_cancels_at_the_server() {
    let (_server, target) = HttpServer::start(&[]);
    let daemon = Daemon::start(vec![("up", stdio(&[]), limits(2, 10)), ("web", target, limits(2, 10))]);
    for upstream in ["up", "web"] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"hold","arguments":{{"key":"a"}},{META}}}}}"#
        );
        let headers = [VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", "hold")];
        let mut client = daemon.client().await;
        client.send(&daemon.post(&format!("/mcp/{upstream}"), &headers, &body)).await;
        daemon.seen(upstream, "hold", 1).await;
        drop(client);
        if upstream == "up" {
            let got = daemon.call("/mcp/up", "wait", r#"{"cancels":1}"#).await;
            assert!(got["error"].is_null(), "{got}");
        }
        let cancelled = async {
            loop {
                let ledgers = daemon.app.dispatcher.ledgers();
                let counts = &ledgers.iter().find(|(name, _)| &**name == upstream).unwrap().1;
                let index = (0..counts.outcomes.len())
                    .find(|index| forebay::outcome::Outcome::labels(*index) == ("cancelled", "caller"));
                if counts.outcomes[index.unwrap()] == 1 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), cancelled).await.unwrap();
    }
    daemon.stop().await;
}

#[tokio::test]
async fn c33_a_callers_credentials_never_reach_an_upstream() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("headers");
    let (_server, target) = HttpServer::start(&["--log-headers", log.to_str().unwrap()]);
    let key = Key::new([5; 32]);
    let alice = CallerConfig { keys: vec![parse_key_hash(&key.key_hash()).unwrap()], ..CallerConfig::default() };
    let callers = BTreeMap::from([("alice".into(), Arc::new(alice))]);
    let daemon = Daemon::with(vec![("web", target, limits(2, 10))], Auth::Keys, callers);
    let bearer = format!("Bearer {}", key.expose());
    let headers = [
        ("Authorization", &*bearer),
        ("Cookie", "canary=1"),
        ("X-Tenant", "canary-2"),
        ("X-Own", "canary-3"),
        ("Proxy-Authorization", "canary-4"),
        ("X-Forwarded-User", "canary-5"),
        ("X-Forwarded-For", "canary-6"),
        ("Forwarded", "for=canary-7"),
        ("Forebay-Caller", "canary-8"),
        ("X_Forwarded_User", "canary-9"),
    ];
    for path in ["/mcp/web", "/mcp"] {
        let tool = if path == "/mcp" { "web__echo" } else { "echo" };
        let got = daemon.ask(path, &headers, &call("1", tool, "{}")).await;
        assert!(got.json()["error"].is_null(), "{}", got.text());
    }
    daemon.stop().await;
    let seen = std::fs::read_to_string(&log).unwrap();
    assert!(seen.contains("configured"), "the upstream's own credential is sent: {seen}");
    for word in ["canary", "fb_", "cookie", key.expose()] {
        assert!(!seen.to_lowercase().contains(word), "{word} in {seen}");
    }
}

#[tokio::test]
async fn thirty_calls_against_five_and_ten_get_fifteen_answers_and_fifteen_refusals() {
    let (_server, target) = HttpServer::start(&[]);
    let Target::Http(web) = &target else { panic!("an HTTP target") };
    let direct = web.url.authority().unwrap().as_str().parse().unwrap();
    let daemon = Daemon::start(vec![("web", target, limits(5, 10))]);
    // A time to wait is reckoned from calls that have ended, so there must be one.
    assert!(daemon.call("/mcp/web", "echo", "{}").await["error"].is_null());
    let mut clients = Vec::new();
    for number in 0..30 {
        let mut client = daemon.client().await;
        client.send(&daemon.post("/mcp/web", &[], &call(&number.to_string(), "hold", r#"{"key":"k"}"#))).await;
        clients.push(client);
    }
    // The fifteen that could not be taken have their answers while the others still wait.
    let full = async {
        loop {
            let ledgers = daemon.app.dispatcher.ledgers();
            let counts = &ledgers.iter().find(|(name, _)| &**name == "web").unwrap().1;
            if counts.outcomes.iter().sum::<u64>() == 16 && counts.running == 5 && counts.queued == 10 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), full).await.unwrap();
    // All slots are held, so the server is told past the gateway.
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"release","arguments":{{"key":"k"}},{META}}}}}"#
    );
    let headers = [VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", "release")];
    let got = Client::connect(direct).await.ask(&post(direct, "/mcp", &headers, &body)).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let (mut ok, mut refused) = (0, 0);
    for mut client in clients {
        let got = client.read().await.json();
        let refusal = &got["result"]["_meta"]["forebay/refusal"];
        if refusal.is_null() {
            ok += 1;
        } else {
            assert_eq!((&refusal["reason"], &refusal["queue_size"]), (&json!("queue_full"), &json!(10)), "{got}");
            assert!(refusal["retry_after_ms"].is_u64(), "{got}");
            refused += 1;
        }
    }
    assert_eq!((ok, refused), (15, 15));
    daemon.stop().await;
}
