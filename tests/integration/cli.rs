//! The commands against a running daemon: what they print, how they end.

use crate::support::{Client, Daemon, HttpUpstream, forebay, stdio};
use serde_json::Value;

#[test]
fn a_pause_lets_calls_queue_and_a_resume_serves_them() {
    let daemon = Daemon::start(&stdio("db", &[], ""));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    assert_eq!(daemon.run(&["upstream", "pause", "db"]).code, Some(0));
    let call = client.start("sleep", r#"{"ms":0}"#);
    daemon.until_load("db", 0, 1);
    let status = daemon.run(&["status", "--output", "json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert_eq!(status.json()["upstreams"][0]["state"], "paused");
    assert_eq!(status.json()["upstreams"][0]["queued"], 1);
    assert_eq!(daemon.run(&["upstream", "resume", "db"]).code, Some(0));
    assert_eq!(call.answer().text(), "slept");
    daemon.adds_up();
}

#[test]
fn a_drain_serves_what_waits_refuses_what_comes_and_ends_with_a_resume() {
    let server = HttpUpstream::start(&[]);
    let daemon = Daemon::start(&server.config("db", "max_concurrent = 1"));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let running = client.start("hold", r#"{"key":"k"}"#);
    daemon.until_load("db", 1, 0);
    let waiting = client.start("sleep", r#"{"ms":0}"#);
    daemon.until_load("db", 1, 1);
    assert_eq!(daemon.run(&["upstream", "drain", "db"]).code, Some(0));
    assert_eq!(client.call("echo", "{}").refusal()["reason"], "draining");
    server.call("release", r#"{"key":"k"}"#);
    assert_eq!((running.answer().text(), waiting.answer().text()), ("k", "slept"));
    daemon.until("it has run dry", "db", |figures| figures.state == forebay_wire::UpstreamState::Drained);
    assert_eq!(client.call("echo", "{}").refusal()["reason"], "draining");
    assert_eq!(daemon.run(&["upstream", "resume", "db"]).code, Some(0));
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).text(), "slept");
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("refused", "draining")), (3, 2));
}

#[test]
fn the_json_of_the_commands_is_that_of_the_admin_api() {
    let daemon = Daemon::start(&stdio("db", &[], ""));
    assert_eq!(daemon.run(&["ps", "--output", "json"]).json(), Value::Array(Vec::new()));
    let status: forebay_wire::State =
        serde_json::from_value(daemon.run(&["status", "--output", "json"]).json()).unwrap();
    assert_eq!(status.instance, daemon.state().instance);
    let called = daemon.run(&["call", "db", "echo", "--args", r#"{"n":1.10}"#, "--output", "json"]);
    assert_eq!(called.code, Some(0), "{called:?}");
    assert!(called.stdout.contains("1.10"), "{called:?}");
    assert_eq!(daemon.run(&["health"]).code, Some(0));
    daemon.adds_up();
}

#[test]
fn exit_codes_tell_what_happened() {
    let daemon = Daemon::start(&stdio("db", &[], ""));
    assert_eq!(forebay(&["no-such-command"], &[]).code, Some(2));
    assert_eq!(daemon.run(&["cancel", "zzzz"]).code, Some(5));
    assert_eq!(daemon.run(&["upstream", "pause", "no-such-upstream"]).code, Some(5));
    assert_eq!(forebay(&["health"], &[("FOREBAY_ADMIN", "unix:/nonexistent/admin.sock")]).code, Some(4));
    let fault = forebay(&["status", "--output", "json"], &[("FOREBAY_ADMIN", "unix:/nonexistent/admin.sock")]);
    let fault: Value = serde_json::from_str(&fault.stderr).expect("with JSON output an error is JSON");
    assert!(fault["message"].is_string() && fault["code"].is_string(), "{fault}");
}

#[test]
fn a_bad_config_is_told_whole_with_its_places_and_nothing_starts() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("forebay.toml");
    let text = "[upstreams.db]\ncommand = \"true\"\nmax_concurent = 2\nqueue_size = -1\n";
    std::fs::write(&file, text).unwrap();
    for command in ["check", "serve"] {
        let ran = forebay(&[command, "--config", file.to_str().unwrap()], &[]);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let said = format!("{}{}", ran.stdout, ran.stderr);
        for part in ["forebay.toml", "max_concurent", "max_concurrent", "queue_size", ":3", ":4"] {
            assert!(said.contains(part), "{part} is in {said}");
        }
    }
}

#[test]
fn c42_a_reader_that_goes_away_is_no_failure() {
    let daemon = Daemon::start(&stdio("db", &[], ""));
    let admin = format!("unix:{}", daemon.admin_socket().display());
    let binary = env!("CARGO_BIN_EXE_forebay");
    for (to, code) in [("| true", "0"), ("> /dev/full", "1"), (">&-", "0")] {
        // `pipefail` hands on the status of the command itself.
        let line = format!("set -o pipefail; \"$0\" status --output json {to}; echo $? >&2");
        let output = std::process::Command::new("bash")
            .args(["-c", &line, binary])
            .env("FOREBAY_ADMIN", &admin)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{to}: {said}");
        if code == "1" {
            assert_ne!(said.lines().last(), Some("0"), "{to}: a full device is a failure: {said}");
        }
    }
}
