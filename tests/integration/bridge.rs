//! `forebay bridge`: a daemon's MCP for clients on standard input and output.

use crate::support::{Daemon, Log, Pipe, stdio};
use serde_json::json;

fn bridge(daemon: &Daemon, args: &[&str]) -> Pipe {
    let admin = format!("unix:{}", daemon.admin_socket().display());
    let mut all = vec!["bridge"];
    all.extend(args);
    Pipe::start(&all, &[("FOREBAY_ADMIN", &admin)])
}

#[test]
fn answers_of_many_calls_at_once_never_cross() {
    let daemon = Daemon::start(&stdio("db", &[], "max_concurrent = 4"));
    let mut all = bridge(&daemon, &[]);
    let mut one = bridge(&daemon, &["db", "--caller", "laptop"]);
    all.hello();
    let hello = one.hello();
    assert_eq!(hello["result"]["serverInfo"]["name"], "forebay-test-upstream");
    for id in 0..40 {
        one.call(id, "echo", json!({ "mark": format!("one-{id}") }));
        all.call_modern(id, "db__echo", json!({ "mark": format!("all-{id}") }));
    }
    for id in 0..40 {
        assert_eq!(one.answer(id)["result"]["structuredContent"]["mark"], format!("one-{id}"));
        assert_eq!(all.answer(id)["result"]["structuredContent"]["mark"], format!("all-{id}"));
    }
    assert!(one.close().0.is_empty() && all.close().0.is_empty());
    assert_eq!(daemon.adds_up().of("completed", "*"), 80);
}

#[test]
fn r04_a_cancel_travels_and_nothing_is_answered_but_an_operators_is() {
    let log = Log::new();
    let daemon = Daemon::start(&stdio("db", &["--log", log.path()], "max_concurrent = 1"));
    let mut client = bridge(&daemon, &["db"]);
    client.hello();
    client.call(1, "hold", json!({ "key": "run" }));
    daemon.until_load("db", 1, 0);
    client.call(2, "echo", json!({ "mark": "never" }));
    client.call_modern(3, "echo", json!({ "mark": "never" }));
    client.call(4, "echo", json!({ "mark": "by-operator" }));
    daemon.until_load("db", 1, 3);
    client.cancel(2);
    client.cancel(3);
    daemon.until_load("db", 1, 1);
    let waiting = daemon.calls("db").into_iter().find(|call| call.position.is_some()).unwrap();
    assert_eq!(daemon.run(&["cancel", &waiting.id]).code, Some(0));
    let told = client.answer(4);
    assert!(told.to_string().contains("cancelled"), "{told}");
    client.cancel(1);
    log.until("notifications/cancelled");
    client.call(5, "echo", json!({ "mark": "last" }));
    assert_eq!(client.answer(5)["result"]["structuredContent"]["mark"], "last");
    let (rest, status) = client.close();
    assert!(rest.is_empty() && status.success(), "{rest:?}");
    assert_eq!(log.with("\"never\"").len() + log.with("by-operator").len(), 0);
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("cancelled", "*")), (1, 4));
}

#[test]
fn c43_a_daemon_that_is_away_is_told_and_a_restarted_one_is_found_again() {
    let config = stdio("db", &[], "");
    let daemon = Daemon::start(&config);
    let mut client = bridge(&daemon, &["db"]);
    client.hello();
    client.call(1, "echo", json!({ "mark": "before" }));
    assert_eq!(client.answer(1)["result"]["structuredContent"]["mark"], "before");
    let folder = daemon.crash();
    client.call(2, "echo", json!({}));
    let away = client.answer(2);
    let text = away["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("no daemon") && text.contains("Not executed"), "{away}");
    // Another port, another run: its session is begun anew unseen.
    let daemon = Daemon::start_in(folder, &config).unwrap();
    client.call(3, "echo", json!({ "mark": "after" }));
    assert_eq!(client.answer(3)["result"]["structuredContent"]["mark"], "after");
    client.call_modern(4, "echo", json!({ "mark": "modern" }));
    assert_eq!(client.answer(4)["result"]["structuredContent"]["mark"], "modern");
    assert_eq!(daemon.adds_up().of("completed", "*"), 2);
}

#[test]
fn a_daemon_that_dies_in_mid_call_leaves_a_clear_answer() {
    let daemon = Daemon::start(&stdio("db", &[], ""));
    let mut client = bridge(&daemon, &["db"]);
    client.hello();
    client.call(1, "hold", json!({ "key": "k" }));
    daemon.until_load("db", 1, 0);
    let _folder = daemon.crash();
    let lost = client.answer(1);
    let text = lost["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("may have been executed"), "{lost}");
}

#[test]
fn a_key_is_needed_where_keys_are_and_is_taken_from_a_file() {
    let made = crate::support::forebay(&["key", "new", "alice", "--output", "json"], &[]).json();
    let settings = format!("[auth]\nmode = \"keys\"\n[callers.alice]\nkey_hash = {}\n", made["key_hash"]);
    let daemon = Daemon::start(&format!("{settings}{}", stdio("db", &[], "")));
    let mut nobody = bridge(&daemon, &["db"]);
    nobody.call(1, "echo", json!({}));
    let refused = nobody.answer(1);
    assert!(refused["error"]["message"].as_str().unwrap_or_default().contains("key"), "{refused}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{}\n", made["key"].as_str().unwrap())).unwrap();
    let mut alice = bridge(&daemon, &["db", "--key-file", file.path().to_str().unwrap()]);
    alice.hello();
    alice.call(1, "echo", json!({ "mark": "in" }));
    assert_eq!(alice.answer(1)["result"]["structuredContent"]["mark"], "in");
}
