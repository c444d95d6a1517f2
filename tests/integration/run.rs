//! `forebay run`: the queue around one stdio server, without a daemon.

use crate::support::{Log, Pipe, forebay, signal_pid, test_upstream, until};
use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::json;

fn run(options: &[&str], server: &[&str]) -> Pipe {
    let mut args = vec!["run"];
    args.extend(options);
    args.extend(["--", test_upstream().to_str().unwrap(), "--stdio"]);
    args.extend(server);
    Pipe::start(&args, &[])
}

#[test]
fn a_client_sees_the_server_itself_and_its_calls_take_turns() {
    let mut client = run(&[], &["--limit", "1"]);
    let hello = client.hello();
    assert_eq!(hello["result"]["serverInfo"]["name"], "forebay-test-upstream", "{hello}");
    client.ask("list", "tools/list", json!({}));
    let tools = client.answer("list");
    assert!(tools["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "echo"), "{tools}");
    // With `--limit 1` the server itself breaks at a second call at once.
    for id in 1..=8 {
        client.call(id, "sleep", json!({ "ms": 5 }));
    }
    for id in 1..=8 {
        assert_eq!(client.text(id), "slept");
    }
    client.call(9, "stats", json!({}));
    let stats = client.answer(9);
    assert_eq!(stats["result"]["structuredContent"]["peak"], 1, "{stats}");
    let (rest, status) = client.close();
    assert!(rest.is_empty() && status.success(), "{rest:?} {status}");
}

#[test]
fn both_eras_are_spoken_on_one_pipe_and_ids_keep_their_type() {
    let mut client = run(&[], &[]);
    client.call_modern("1", "echo", json!({ "mark": "modern" }));
    client.call(1, "echo", json!({ "mark": "legacy" }));
    let (modern, legacy) = (client.answer("1"), client.answer(1));
    assert_eq!(modern["result"]["structuredContent"]["mark"], "modern");
    assert_eq!(legacy["result"]["structuredContent"]["mark"], "legacy");
    client.ask(2, "no/such/method", json!({}));
    assert!(client.answer(2)["error"].is_object());
}

#[test]
fn c04_a_cancel_right_behind_its_call_is_seen_and_nothing_is_answered() {
    let log = Log::new();
    let mut client = run(&[], &["--log", log.path()]);
    client.hello();
    client.call(1, "hold", json!({ "key": "run" }));
    log.until("\"run\"");
    // Queued behind it, in both eras, each cancelled in the same breath.
    client.call(2, "echo", json!({ "mark": "never-legacy" }));
    client.cancel(2);
    client.call_modern(3, "echo", json!({ "mark": "never-modern" }));
    client.cancel(3);
    client.cancel(1);
    log.until("notifications/cancelled");
    client.call(4, "echo", json!({ "mark": "last" }));
    assert_eq!(client.answer(4)["result"]["structuredContent"]["mark"], "last");
    let (rest, status) = client.close();
    assert!(rest.is_empty() && status.success(), "R4: a cancelled call is not answered: {rest:?}");
    assert_eq!(log.with("never-").len(), 0, "what was cancelled while queued is never sent");
}

#[test]
fn a_full_queue_refuses_in_words() {
    let log = Log::new();
    let mut client = run(&["--queue-size", "0"], &["--log", log.path()]);
    // Answered once the server is up; before that nothing can run, and nothing may wait.
    client.hello();
    client.call(1, "hold", json!({ "key": "k" }));
    log.until("\"k\"");
    client.call(2, "echo", json!({}));
    let refused = client.answer(2);
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(client_text(&refused).contains("concurrency_limit"), "{refused}");
    client.cancel(1);
}

fn client_text(answer: &serde_json::Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

#[test]
fn the_end_of_the_input_lets_calls_finish_and_stops_the_server() {
    let mut client = run(&[], &[]);
    client.call(1, "stats", json!({}));
    let pid = client.answer(1)["result"]["structuredContent"]["pid"].as_u64().unwrap() as i32;
    client.call(2, "sleep", json!({ "ms": 200 }));
    client.call(3, "sleep", json!({ "ms": 1 }));
    let (rest, status) = client.close();
    assert!(status.success(), "{status}");
    let mut ids: Vec<_> = rest.iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [2, 3], "what was asked before the end is answered");
    until("the server is gone", || test_kill_process(Pid::from_raw(pid).unwrap()).is_err().then_some(()));
}

#[test]
fn what_outlasts_the_grace_is_cancelled_and_so_is_everything_at_a_signal() {
    let log = Log::new();
    let mut client = run(&["--grace", "50ms"], &["--log", log.path()]);
    client.call(1, "hold", json!({ "key": "k" }));
    log.until("\"k\"");
    let (rest, status) = client.close();
    assert!(rest.is_empty() && status.success(), "{rest:?} {status}");

    let log = Log::new();
    let mut client = run(&[], &["--log", log.path()]);
    client.call(1, "hold", json!({ "key": "k" }));
    log.until("\"k\"");
    signal_pid(client.pid(), Signal::TERM);
    assert!(client.ended().success());
}

#[test]
fn c15_a_command_that_is_not_there_is_told_before_anything_starts() {
    let ran = forebay(&["run", "--", "no-such-server"], &[]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stdout.is_empty() && ran.stderr.contains("`no-such-server` not found (ENOENT)"), "{ran:?}");
    assert_eq!(forebay(&["run"], &[]).code, Some(2));
    assert_eq!(forebay(&["run", "--max-concurrent", "-1", "--", "cat"], &[]).code, Some(2));
}

#[test]
fn c13_a_server_that_dies_costs_its_call_and_is_started_again() {
    let mut client = run(&[], &[]);
    client.hello();
    client.call(1, "kill_self", json!({}));
    client.call(2, "echo", json!({ "mark": "after" }));
    let lost = client.answer(1);
    assert!(client_text(&lost).contains("lost"), "{lost}");
    assert_eq!(client.answer(2)["result"]["structuredContent"]["mark"], "after");
}
