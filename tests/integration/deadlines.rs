//! A caller's deadline is kept at every layer: it bounds waiting and running, what is left of it goes on to the
//! server, and when it passes the server is asked to stop.

use crate::support::{Answer, Connection, Daemon, HttpUpstream, Log, stdio, until};
use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";

/// The ways in which a caller may give its deadline.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Header,
    Meta,
    Rest,
}

/// Calls `hold` with 400 ms for it.
fn call(daemon: &Daemon, upstream: &str, way: Way) -> Answer {
    let mut headers = format!("Host: {}\r\nContent-Type: application/json\r\n", daemon.mcp);
    let (path, body) = match way {
        Way::Rest => {
            let call = json!({"upstream": upstream, "tool": "hold", "arguments": {"key": "k"}, "timeout_ms": 400});
            ("/api/v1/tools/call".to_owned(), call)
        }
        Way::Header | Way::Meta => {
            headers += "Accept: application/json, text/event-stream\r\nMcp-Method: tools/call\r\nMcp-Name: hold\r\n";
            headers += &format!("MCP-Protocol-Version: {MODERN}\r\n");
            let mut meta = json!({
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            if way == Way::Header {
                headers += "Forebay-Timeout: 400ms\r\n";
            } else {
                meta["forebay/timeout_ms"] = 400.into();
            }
            let params = json!({"name": "hold", "arguments": {"key": "k"}, "_meta": meta});
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            (format!("/mcp/{upstream}"), call)
        }
    };
    let body = body.to_string();
    let mut connection = Connection::tcp(daemon.mcp);
    let request = format!("POST {path} HTTP/1.1\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
    connection.send(request.as_bytes()).unwrap();
    Answer::of(connection.receive().unwrap())
}

#[test]
fn a_deadline_given_in_any_way_reaches_the_server_and_stops_it_on_both_transports() {
    let (http_log, http_heads, stdio_log) = (Log::new(), Log::new(), Log::new());
    let server =
        HttpUpstream::start(&["--era", "legacy", "--log", http_log.path(), "--log-headers", http_heads.path()]);
    let config = server.config("web", "") + &stdio("child", &["--era", "legacy", "--log", stdio_log.path()], "");
    let daemon = Daemon::start(&config);
    for (upstream, log) in [("web", &http_log), ("child", &stdio_log)] {
        for (number, way) in [Way::Header, Way::Meta, Way::Rest].into_iter().enumerate() {
            let answer = call(&daemon, upstream, way);
            assert!(answer.message.contains("timed_out"), "{upstream} {way:?}: {answer:?}");
            if way == Way::Rest {
                assert_eq!(answer.response.status, 504);
            }
            let sent: Value = serde_json::from_str(&log.with("\"hold\"")[number]).unwrap();
            let left = sent["params"]["_meta"]["forebay/timeout_ms"].as_u64();
            assert!(left.is_some_and(|left| (1..=400).contains(&left)), "{upstream} {way:?}: {sent}");
            let told =
                until("the server is asked to stop", || log.with("notifications/cancelled").get(number).cloned());
            let told: Value = serde_json::from_str(&told).unwrap();
            assert_eq!(told["params"]["requestId"], sent["id"], "{upstream} {way:?}");
            if upstream == "web" {
                assert_eq!(http_heads.with(&format!("forebay-timeout: {}ms", left.unwrap())).len().min(1), 1);
            }
        }
    }
    let ended = daemon.adds_up();
    assert_eq!(ended.of("timed_out", "caller"), 6);
}
