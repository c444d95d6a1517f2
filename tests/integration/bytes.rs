//! Params and results pass byte for byte; only the id, the name's prefix, the progress token and `_meta` change.

use crate::support::{Client, Daemon, HttpUpstream, Log, stdio};

/// What a JSON library would alter: numbers beyond 64 bits, trailing zeros, exponents, minus zero, unknown
/// fields, odd orders and spaces, escapes.
const ODD: &str = r#"{"z":9223372036854775807,"a":12345678901234567890123,"f":1.10,"e":1E400,"m":-0.0, "sp" : [ 1 ,2],"esc":"\u00e9\/\ud83d\ude00","é":"é😀","id":5,"name":"other","_meta":{"progressToken":7},"newer":{"x":null}}"#;

#[test]
fn c25_numbers_order_and_unknown_fields_pass_byte_for_byte_both_ways() {
    let (child_log, http_log) = (Log::new(), Log::new());
    let server = HttpUpstream::start(&["--log", http_log.path()]);
    let child = stdio("child", &["--log", child_log.path()], "");
    let daemon = Daemon::start(&format!("{child}{}", server.config("net", "")));
    for (name, log) in [("child", &child_log), ("net", &http_log)] {
        let modern = Client::modern(daemon.mcp, &format!("/mcp/{name}"));
        let legacy = Client::legacy(daemon.mcp, &format!("/mcp/{name}"));
        let all = modern.at("/mcp");
        for answer in [modern.call("echo", ODD), legacy.call("echo", ODD), all.call(&format!("{name}__echo"), ODD)] {
            assert!(answer.message.contains(&format!(r#""structuredContent":{ODD}"#)), "{}", answer.message);
        }
        let sent = log.with("tools/call");
        assert_eq!(sent.len(), 3, "{sent:?}");
        for message in sent {
            assert!(message.contains(&format!(r#""arguments":{ODD}"#)), "{message}");
            assert!(message.contains(r#""name":"echo""#), "{message}");
        }
    }
    daemon.adds_up();
}

#[test]
fn c23_ids_come_back_with_their_type_and_text() {
    let log = Log::new();
    let daemon = Daemon::start(&stdio("db", &["--log", log.path()], ""));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let ids = ["0", "\"0\"", "-1", "9007199254740993", "\"\"", "\"1\"", "1", "\"\\u0041\""];
    // Together, so that like ids are in flight at once.
    let calls: Vec<_> = ids
        .map(|id| {
            let client = client.clone();
            std::thread::spawn(move || client.call_as(id, "sleep", r#"{"ms":50}"#))
        })
        .into_iter()
        .collect();
    for (id, call) in ids.iter().zip(calls) {
        let answer = call.join().unwrap();
        assert!(answer.message.contains(&format!("\"id\":{id}")), "{id} in {}", answer.message);
        assert_eq!(answer.text(), "slept");
    }
    let own: std::collections::HashSet<_> = log
        .with("tools/call")
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].to_string())
        .collect();
    assert_eq!(own.len(), ids.len(), "the server sees ids of forebay's own: {own:?}");
    daemon.adds_up();
}

#[test]
fn c24_errors_of_the_server_pass_unchanged() {
    let daemon = Daemon::start(&stdio("db", &[], ""));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let answer = client.call("error", r#"{"code":-32099}"#);
    assert!(answer.message.contains(r#""error":{"code":-32099,"message":"as told"}"#), "{}", answer.message);
    let failed = client.call("fail", "{}");
    assert!(failed.is_error() && !failed.is_refusal(), "{failed:?}");
    assert_eq!(failed.text(), "it failed");
    let ended = daemon.adds_up();
    assert_eq!((ended.of("upstream_error", "*"), ended.of("completed", "*")), (1, 1));
}
