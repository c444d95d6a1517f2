//! A server never sees more than its cap; what the queue cannot hold is refused at once, in words and figures.

use crate::support::{Answer, Client, Daemon, HttpUpstream, Log, Pending, forebay, stdio, until};
use forebay_wire::{CallState, UpstreamState};
use std::time::{Duration, Instant};

#[test]
fn six_slow_calls_meet_a_cap_of_two_two_at_a_time() {
    let daemon = Daemon::start(&stdio("db", &[], "max_concurrent = 2"));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let calls: Vec<_> = (0..6).map(|_| client.start("sleep", r#"{"ms":100}"#)).collect();
    for call in calls {
        assert_eq!(call.answer().text(), "slept");
    }
    let stats = client.call("stats", "{}");
    assert_eq!(stats.stats()["peak"], 2);
    assert_eq!(stats.stats()["calls"]["sleep"], 6);
    let ended = daemon.adds_up();
    assert_eq!(ended.of("completed", "*"), 7);
}

#[test]
fn of_thirty_calls_against_five_and_ten_fifteen_are_served_and_fifteen_refused_at_once() {
    let server = HttpUpstream::start(&[]);
    let daemon = Daemon::start(&server.config("db", "max_concurrent = 5\nqueue_size = 10"));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let mut calls: Vec<_> = (0..30).map(|_| client.start("hold", r#"{"key":"k"}"#)).collect();
    // At once: while every slot is still held.
    until("fifteen are answered", || (answered(&calls) == 15).then_some(()));
    daemon.until_load("db", 5, 10);
    let (refused, held): (Vec<_>, Vec<_>) = calls.drain(..).partition(Pending::is_answered);
    for refused in refused.into_iter().map(Pending::answer) {
        let refusal = refused.refusal();
        assert_eq!(refusal["reason"], "queue_full");
        assert_eq!(refusal["upstream"], "db");
        assert_eq!(refusal["max_concurrent"], 5);
        assert_eq!(refusal["active"], 5);
        assert_eq!(refusal["queue_size"], 10);
        assert_eq!(refusal["queued"], 10);
        assert_eq!(refusal["executed"], "never");
        assert!(refusal["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{refusal}");
        assert!(refused.text().contains("5 of 5 running, 10 of 10 waiting"), "{}", refused.text());
        assert!(refused.text().contains("limit of the gateway, not a failure of the tool"), "{}", refused.text());
        assert_eq!(refused.response.status, 200);
    }
    server.call("release", r#"{"key":"k"}"#);
    for held in held.into_iter().map(Pending::answer) {
        assert_eq!(held.text(), "k");
        assert!(held.json["result"]["_meta"]["forebay/call"]["call_id"].is_string());
    }
    let stats = server.call("stats", "{}");
    assert_eq!(stats.stats()["peak"], 5);
    assert_eq!(stats.stats()["calls"]["hold"], 15);
    let ended = daemon.adds_up();
    assert_eq!(ended.of("completed", "*"), 15);
    assert_eq!(ended.of("refused", "queue_full"), 15);
    assert_eq!(daemon.upstream("db").refused, 15);
}

#[test]
fn c02_a_call_whose_time_ends_in_the_queue_is_answered_then_and_never_reaches_the_server() {
    let log = Log::new();
    let server = HttpUpstream::start(&[]);
    let child = stdio("child", &["--log", log.path()], "max_concurrent = 1");
    let daemon = Daemon::start(&format!("{child}{}", server.config("other", "")));
    let client = Client::modern(daemon.mcp, "/mcp/child");
    let legacy = Client::legacy(daemon.mcp, "/mcp/child");
    let running = client.start("hold", r#"{"key":"k"}"#);
    daemon.until_load("child", 1, 0);
    let params = r#"{"name":"echo","arguments":{"mark":"too-late"},"_meta":{"forebay/timeout_ms":300}}"#;
    let began = Instant::now();
    let late = legacy.request("7", "tools/call", params);
    let took = began.elapsed();
    assert_eq!((&late.refusal()["reason"], &late.refusal()["executed"]), (&"expired".into(), &"never".into()));
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
    // Its slot was never taken: the one call that runs is still the first.
    daemon.until_load("child", 1, 0);
    let next = client.start("echo", r#"{"mark":"next"}"#);
    daemon.until_load("child", 1, 1);
    let row = daemon.calls("child").into_iter().find(|row| row.state == CallState::Running).expect("one runs");
    assert_eq!(daemon.run(&["cancel", &row.id]).code, Some(0));
    assert_eq!(running.answer().refusal()["reason"], "cancelled");
    assert_eq!(next.answer().json["result"]["structuredContent"]["mark"], "next");
    assert!(log.with("too-late").is_empty(), "{:?}", log.with("too-late"));
    let ended = daemon.adds_up();
    assert_eq!((ended.of("expired", "*"), ended.of("completed", "*")), (1, 1));
}

#[test]
fn c06_a_calls_time_limit_ends_that_call_alone_and_the_upstream_stays_up() {
    let server = HttpUpstream::start(&[]);
    let limit = "max_concurrent = 4\ncall_timeout = \"1s\"";
    let own = |name: &str| format!("[upstreams.{name}.tools.hold]\ncall_timeout = \"30s\"\n");
    let (child, net) = (stdio("child", &[], limit), server.config("net", limit));
    let daemon = Daemon::start(&format!("{child}{}{net}{}", own("child"), own("net")));
    for name in ["child", "net"] {
        let client = Client::modern(daemon.mcp, &format!("/mcp/{name}"));
        let pids = daemon.upstream(name).pids;
        // In flight beside the long one, before its end and after it.
        let bystander = client.start("hold", r#"{"key":"k"}"#);
        daemon.until_load(name, 1, 0);
        let long = client.start("sleep", r#"{"ms":5000}"#);
        let long = long.answer();
        assert_eq!((&long.refusal()["reason"], &long.refusal()["by"]), (&"timed_out".into(), &"call_timeout".into()));
        assert!(!bystander.is_answered());
        // The server was told, of this call and no other.
        let seen = client.call("wait", r#"{"cancels":1}"#);
        let cancels = seen.stats()["cancels"].as_array().unwrap();
        assert!(cancels.len() == 1 && seen.stats()["ids"].as_array().unwrap().contains(&cancels[0]), "{seen:?}");
        client.call("release", r#"{"key":"k"}"#);
        assert_eq!(bystander.answer().text(), "k");
        let figures = daemon.upstream(name);
        assert_eq!((figures.state, figures.restarts), (UpstreamState::Up, 0));
        assert_eq!(figures.pids, pids);
    }
    let ended = daemon.adds_up();
    assert_eq!((ended.of("timed_out", "*"), ended.of("completed", "*")), (2, 6));
}

#[test]
fn c40_without_a_queue_a_free_slot_is_used_and_a_taken_one_refuses() {
    let server = HttpUpstream::start(&[]);
    let daemon = Daemon::start(&server.config("db", "max_concurrent = 1\nqueue_size = 0"));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).text(), "slept");
    let held = client.start("hold", r#"{"key":"k"}"#);
    daemon.until_load("db", 1, 0);
    let refused = client.call("echo", "{}");
    let refusal = refused.refusal();
    assert_eq!(refusal["reason"], "concurrency_limit");
    assert_eq!((&refusal["active"], &refusal["max_concurrent"]), (&1.into(), &1.into()));
    server.call("release", r#"{"key":"k"}"#);
    assert_eq!(held.answer().text(), "k");
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("refused", "concurrency_limit")), (2, 1));
}

#[test]
fn a_runaway_gives_a_place_to_a_careful_caller() {
    let server = HttpUpstream::start(&[]);
    let (runaway, careful) = (key("runaway"), key("careful"));
    let callers = format!("{}{}", caller("runaway", &runaway.1), caller("careful", &careful.1));
    let upstream = server.config("db", "max_concurrent = 1\nqueue_size = 4");
    let daemon = Daemon::start(&format!("[auth]\nmode = \"keys\"\n{callers}{upstream}"));
    let flood = Client::modern(daemon.mcp, "/mcp/db").with_key(&runaway.0);
    let flood: Vec<_> = (0..5).map(|_| flood.start("hold", r#"{"key":"k"}"#)).collect();
    daemon.until_load("db", 1, 4);
    let careful = Client::modern(daemon.mcp, "/mcp/db").with_key(&careful.0);
    let careful = careful.start("hold", r#"{"key":"k"}"#);
    // One of the runaway's own calls makes room, unexecuted; the careful caller waits in its place.
    until("one is answered", || (answered(&flood) == 1).then_some(()));
    assert!(!careful.is_answered());
    daemon.until_load("db", 1, 4);
    server.call("release", r#"{"key":"k"}"#);
    assert_eq!(careful.answer().text(), "k");
    let (gone, served): (Vec<_>, Vec<_>) = flood.into_iter().map(Pending::answer).partition(Answer::is_refusal);
    assert_eq!((gone.len(), served.len()), (1, 4));
    assert_eq!(gone[0].refusal()["reason"], "displaced");
    assert_eq!(gone[0].refusal()["executed"], "never");
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("displaced", "*")), (5, 1));
}

#[test]
fn r26_rest_refuses_with_a_status_and_a_time() {
    let server = HttpUpstream::start(&[]);
    let daemon = Daemon::start(&server.config("db", "max_concurrent = 1\nqueue_size = 0"));
    let held = Client::modern(daemon.mcp, "/mcp/db").start("hold", r#"{"key":"k"}"#);
    daemon.until_load("db", 1, 0);
    let body = r#"{"upstream":"db","tool":"echo","arguments":{}}"#;
    let request = format!(
        "POST /api/v1/tools/call HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        daemon.mcp,
        body.len()
    );
    let mut connection = crate::support::Connection::tcp(daemon.mcp);
    connection.send(request.as_bytes()).unwrap();
    let response = connection.receive().unwrap();
    assert_eq!(response.status, 429);
    let seconds = response.header("retry-after").and_then(|value| value.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| seconds > 0), "{response:?}");
    let text = String::from_utf8_lossy(&response.body);
    assert!(text.contains("concurrency_limit"), "{text}");
    server.call("release", r#"{"key":"k"}"#);
    assert_eq!(held.answer().text(), "k");
    daemon.adds_up();
}

fn answered(calls: &[Pending]) -> usize {
    calls.iter().filter(|call| call.is_answered()).count()
}

/// A key and its hash, from the command that people use.
fn key(name: &str) -> (String, String) {
    let made = forebay(&["key", "new", name, "--output", "json"], &[]);
    let json = made.json();
    let part = |field: &str| json[field].as_str().expect("a string").to_owned();
    (part("key"), part("key_hash"))
}

fn caller(name: &str, hash: &str) -> String {
    format!("[callers.{name}]\nkey_hash = \"{hash}\"\n")
}
