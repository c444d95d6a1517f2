//! What stands before the queue: each limit refuses with its own text and time, and serves again when it says.

use crate::support::{Answer, Client, Daemon, HttpUpstream, Pending, forebay, stdio};
use std::time::Duration;

/// What every refusal of the kind "busy" says.
const BUSY: &str = "This is a limit of the gateway, not a failure of the tool: wait";

/// The refusal is of this reason and names a time; waits as long as it says.
#[track_caller]
fn wait_as_told(refused: &Answer, reason: &str) -> Duration {
    let refusal = refused.refusal();
    assert_eq!((&refusal["reason"], &refusal["executed"]), (&reason.into(), &"never".into()), "{refused:?}");
    assert!(refused.text().contains(BUSY) && refused.text().ends_with(&format!(", {reason}]")), "{}", refused.text());
    let wait = Duration::from_millis(refusal["retry_after_ms"].as_u64().expect("a time to wait"));
    std::thread::sleep(wait);
    wait
}

#[test]
fn a_rate_refuses_with_its_figures_and_serves_again_when_it_says() {
    let rate = "[callers.anonymous]\nrate = { per_second = 2, burst = 2 }\n";
    let daemon = Daemon::start(&format!("{rate}{}", stdio("db", &[], "")));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let answers: Vec<_> = (0..3).map(|_| client.call("sleep", r#"{"ms":0}"#)).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.is_refusal()).collect();
    assert_eq!(refused.len(), 1, "two at once, and no more within half a second: {answers:?}");
    assert!(refused[0].text().contains("caller anonymous has used up its rate of calls: 2 calls a second, 2 at once"));
    assert!(wait_as_told(refused[0], "caller_rate") <= Duration::from_millis(500));
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).text(), "slept");
    assert_eq!(daemon.adds_up().of("refused", "caller_rate"), 1);
}

#[test]
fn a_quota_goes_into_debt_refuses_and_serves_again_when_the_debt_is_worked_off() {
    let quota = "[callers.anonymous]\nquota = { bytes_per_minute = 600000 }\n";
    let daemon = Daemon::start(&format!("{quota}{}", stdio("db", &[], "")));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    // The first takes more than the minute's worth, and is sent whole all the same.
    assert_eq!(client.call("big", r#"{"bytes":610000}"#).text().len(), 610_000);
    let refused = client.call("sleep", r#"{"ms":0}"#);
    assert!(refused.text().contains("its quota: 600000 bytes of answers a minute, "), "{}", refused.text());
    assert!(refused.refusal()["limit"].as_str().unwrap().contains("more have been sent"));
    // Ten thousand bytes over, at ten thousand a second.
    let wait = wait_as_told(&refused, "caller_quota");
    assert!(wait <= Duration::from_millis(1100), "{wait:?}");
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).text(), "slept");
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("refused", "caller_quota")), (2, 1));
}

#[test]
fn r13_a_tools_cap_holds_for_all_callers_together_and_holds_up_no_other_tool() {
    let server = HttpUpstream::start(&[]);
    let (ann, bob) = (key("ann"), key("bob"));
    let upstream = server.config("db", "max_concurrent = 4\n[upstreams.db.tools.hold]\nmax_concurrent = 1");
    let daemon = Daemon::start(&format!("[auth]\nmode = \"keys\"\n{}{}{upstream}", ann.1, bob.1));
    let ann = Client::modern(daemon.mcp, "/mcp/db").with_key(&ann.0);
    let bob = Client::modern(daemon.mcp, "/mcp/db").with_key(&bob.0);
    let first = ann.start("hold", r#"{"key":"k"}"#);
    daemon.until_load("db", 1, 0);
    let held: Vec<_> = [&ann, &bob, &bob].map(|client| client.start("hold", r#"{"key":"k"}"#)).into();
    daemon.until_load("db", 1, 3);
    // Neither of the two is held up in what else it does.
    assert_eq!(bob.call("sleep", r#"{"ms":0}"#).text(), "slept");
    assert_eq!(ann.call("sleep", r#"{"ms":0}"#).text(), "slept");
    assert_eq!(server.call("stats", "{}").stats()["calls"]["hold"], 1);
    server.call("release", r#"{"key":"k"}"#);
    assert!(std::iter::once(first).chain(held).map(Pending::answer).all(|answer| answer.text() == "k"));
    assert_eq!(daemon.adds_up().of("completed", "*"), 6);
}

#[test]
fn r12_a_hung_upstream_with_a_full_queue_leaves_the_other_its_part_of_the_global_cap() {
    let (hung, well) = (HttpUpstream::start(&[]), HttpUpstream::start(&[]));
    let limits = "max_concurrent = 8\nqueue_size = 5";
    let config =
        format!("[global]\nmax_concurrent = 4\n{}{}", hung.config("hung", limits), well.config("well", limits));
    let daemon = Daemon::start(&config);
    let client = Client::modern(daemon.mcp, "/mcp/hung");
    let held: Vec<_> = (0..8).map(|_| client.start("hold", r#"{"key":"k"}"#)).collect();
    // Three quarters of four, and no more, though it may run eight.
    daemon.until_load("hung", 3, 5);
    let refused = client.call("sleep", r#"{"ms":0}"#);
    assert_eq!(refused.refusal()["reason"], "queue_full", "{refused:?}");
    let other = client.at("/mcp/well");
    for _ in 0..20 {
        assert_eq!(other.call("sleep", r#"{"ms":1}"#).text(), "slept");
    }
    assert_eq!(hung.call("stats", "{}").stats()["peak"], 3);
    hung.call("release", r#"{"key":"k"}"#);
    assert!(held.into_iter().map(Pending::answer).all(|answer| answer.text() == "k"));
    assert_eq!(daemon.adds_up().of("completed", "*"), 28);
}

#[test]
fn r11_a_callers_cap_holds_over_all_upstreams() {
    let (one, two) = (HttpUpstream::start(&[]), HttpUpstream::start(&[]));
    let caller = "[callers.anonymous]\nmax_concurrent = 2\n";
    let daemon = Daemon::start(&format!("{caller}{}{}", one.config("one", ""), two.config("two", "")));
    let client = Client::modern(daemon.mcp, "/mcp/one");
    let held: Vec<_> = (0..2).map(|_| client.start("hold", r#"{"key":"k"}"#)).collect();
    daemon.until_load("one", 2, 0);
    let waits = client.at("/mcp/two").start("hold", r#"{"key":"k"}"#);
    daemon.until_load("two", 0, 1);
    assert!(!waits.is_answered());
    one.call("release", r#"{"key":"k"}"#);
    assert!(held.into_iter().map(Pending::answer).all(|answer| answer.text() == "k"));
    daemon.until_load("two", 1, 0);
    two.call("release", r#"{"key":"k"}"#);
    assert_eq!(waits.answer().text(), "k");
    assert_eq!(daemon.adds_up().of("completed", "*"), 3);
}

/// A key, and the caller of that name as the config has it.
fn key(name: &str) -> (String, String) {
    let made = forebay(&["key", "new", name, "--output", "json"], &[]).json();
    let part = |field: &str| made[field].as_str().expect("a string").to_owned();
    (part("key"), format!("[callers.{name}]\nkey_hash = \"{}\"\n", part("key_hash")))
}
