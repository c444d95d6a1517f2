//! Ending a call by its id: queued or running, at once, and never behind other calls.

use crate::support::{Answer, Client, Connection, Daemon, HttpUpstream, Log, stdio, until};
use forebay_wire::{CallState, Lane};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

#[test]
fn a_queued_call_is_listed_and_cancelled_and_the_server_never_sees_it() {
    let log = Log::new();
    let server = HttpUpstream::start(&["--log", log.path()]);
    let daemon = Daemon::start(&server.config("db", "max_concurrent = 1\nqueue_timeout = \"1h\""));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let held = client.start("hold", r#"{"key":"k"}"#);
    daemon.until_load("db", 1, 0);
    let waiting = client.start("echo", r#"{"mark":"never-sent"}"#);
    daemon.until_load("db", 1, 1);

    let listed = daemon.run(&["ps", "--output", "json"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let rows: Vec<forebay_wire::Call> = serde_json::from_value(listed.json()).unwrap();
    assert_eq!(rows.len(), 2);
    let row = rows.iter().find(|row| row.state == CallState::Queued).expect("one waits");
    assert_eq!((&*row.caller, row.tool.as_deref(), row.lane), ("anonymous", Some("echo"), Lane::Normal));
    assert_eq!((row.position, row.attempt), (Some(1), 1));
    assert!(row.deadline_ms.is_some_and(|left| left > 3_000_000), "{row:?}");
    assert!(row.age_ms <= 60_000, "{row:?}");
    let table = daemon.run(&["ps"]);
    let heads = ["ID", "STATE", "POS", "LANE", "CALLER", "UPSTREAM", "TOOL", "AGE", "LEFT"];
    assert_eq!(table.stdout.lines().next().map(|line| line.split_whitespace().collect()), Some(heads.to_vec()));
    for word in [&*row.id, "anonymous", "normal", "echo", "hold"] {
        assert!(table.stdout.contains(word), "{word} is in {}", table.stdout);
    }

    let cancelled = daemon.run(&["cancel", &row.id, "--output", "json"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert!(cancelled.stdout.contains("cancelled_queued"), "{cancelled:?}");
    // Answered while the slot is still held.
    let answer = waiting.answer();
    assert_eq!(answer.refusal()["reason"], "cancelled");
    assert_eq!(answer.refusal()["by"], "operator");
    assert_eq!(answer.refusal()["executed"], "never");
    daemon.until_load("db", 1, 0);

    let again = daemon.run(&["cancel", &row.id, "--output", "json"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stdout.contains("already_finished"), "{again:?}");
    server.call("release", r#"{"key":"k"}"#);
    assert_eq!(held.answer().text(), "k");
    assert!(log.with("never-sent").is_empty());
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("cancelled", "operator")), (1, 1));
}

#[test]
fn a_running_call_is_answered_at_once_and_the_server_is_told_by_its_own_id() {
    let log = Log::new();
    // Two slots: a server that runs one call at a time frees its slot as soon as it answers a probe.
    let daemon = Daemon::start(&stdio("db", &["--log", log.path()], "max_concurrent = 2\ncancel_grace = \"1h\""));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let running = client.start("hold_deaf", r#"{"key":"mine"}"#);
    daemon.until_load("db", 1, 0);
    let sent: Value = serde_json::from_str(&log.until("\"mine\"")).unwrap();
    let row = daemon.calls("db").remove(0);
    assert_eq!(row.state, CallState::Running);

    let cancelled = daemon.run(&["cancel", &row.id, "--output", "json"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert!(cancelled.stdout.contains("cancelled_running"), "{cancelled:?}");
    let answer = running.answer();
    assert_eq!(answer.refusal()["reason"], "cancelled");
    assert_eq!(answer.refusal()["executed"], "unknown");
    let told: Value = serde_json::from_str(&log.until("notifications/cancelled")).unwrap();
    assert_eq!(told["params"]["requestId"], sent["id"]);

    // Over for its caller, while the server has not ended it.
    daemon.until("the slot lingers", "db", |figures| (figures.running, figures.lingering) == (0, 1));
    let row = daemon.call(&row.id).expect("the call is known");
    assert_eq!(row.state, CallState::Lingering);
    assert_eq!(row.outcome.as_deref(), Some("cancelled"));
    client.call("release", r#"{"key":"mine"}"#);
    daemon.until("the late answer frees the slot", "db", |figures| figures.lingering == 0);
    let row = daemon.call(&row.id).expect("the call is known");
    assert_eq!((row.state, row.outcome.as_deref()), (CallState::Finished, Some("cancelled")));
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("cancelled", "operator")), (1, 1));
}

#[test]
fn r07_a_server_deaf_to_cancels_never_exceeds_its_cap_on_hold() {
    let log = Log::new();
    let settings = "max_concurrent = 2\nafter_cancel = \"hold\"\ncancel_grace = \"10ms\"";
    let daemon = Daemon::start(&stdio("db", &["--log", log.path()], settings));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    for _ in 0..3 {
        let deaf: Vec<_> = (0..2).map(|_| client.start("ignore_cancel", r#"{"ms":400}"#)).collect();
        daemon.until_load("db", 2, 0);
        let waiting: Vec<_> = (0..2).map(|_| client.start("sleep", r#"{"ms":1}"#)).collect();
        daemon.until_load("db", 2, 2);
        for row in daemon.calls("db").iter().filter(|row| row.state == CallState::Running) {
            assert_eq!(daemon.run(&["cancel", &row.id]).code, Some(0));
        }
        for deaf in deaf {
            assert_eq!(deaf.answer().refusal()["reason"], "cancelled");
        }
        for waiting in waiting {
            assert_eq!(waiting.answer().text(), "slept");
        }
        daemon.until("no slot lingers", "db", |figures| figures.lingering == 0);
    }
    let stats = client.call("stats", "{}");
    assert_eq!(stats.stats()["peak"], 2);
    assert_eq!((&stats.stats()["calls"]["ignore_cancel"], &stats.stats()["calls"]["sleep"]), (&6.into(), &6.into()));
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("cancelled", "operator")), (7, 6));
}

#[test]
fn a_modern_client_that_hangs_up_cancels_a_legacy_one_that_says_so_does_too() {
    let log = Log::new();
    let daemon = Daemon::start(&stdio("db", &["--log", log.path()], "max_concurrent = 2\ncancel_grace = \"1s\""));
    let modern = Client::modern(daemon.mcp, "/mcp/db");
    let mut connection = Connection::tcp(daemon.mcp);
    connection.send(&modern.call_bytes("1", "hold", r#"{"key":"a"}"#)).unwrap();
    daemon.until_load("db", 1, 0);
    connection.hang_up();
    daemon.until_load("db", 0, 0);
    until("the server is told", || (log.with("notifications/cancelled").len() == 1).then_some(()));

    let legacy = Client::legacy(daemon.mcp, "/mcp/db");
    let mut connection = Connection::tcp(daemon.mcp);
    connection.send(&legacy.call_bytes("\"x\"", "hold", r#"{"key":"b"}"#)).unwrap();
    daemon.until_load("db", 1, 0);
    let mut other = Connection::tcp(daemon.mcp);
    other.send(&legacy.cancel_bytes("\"x\"")).unwrap();
    assert_eq!(other.receive().unwrap().status, 202);
    // R4: no message for a call that its own client cancelled.
    let answer = Answer::of(connection.receive().unwrap());
    assert_eq!(answer.message, "", "{answer:?}");
    daemon.until_load("db", 0, 0);
    until("the server is told", || (log.with("notifications/cancelled").len() == 2).then_some(()));
    let ended = daemon.adds_up();
    // Both are how a client of its era cancels.
    assert_eq!((ended.of("cancelled", "caller"), ended.of("cancelled", "*")), (2, 2));
}

/// A call and its cancel leave in the same packet, or at nearly the same time on two connections, ten thousand
/// times, while the only slot is often taken. Whatever wins, wins alone.
#[test]
fn a_cancel_right_behind_its_call_never_lets_it_run_and_be_unrun() {
    const TIMES: u64 = 10_000;
    // Often enough that the history still holds its calls.
    const ROUND: u64 = 200;
    let log = Log::new();
    let settings = "max_concurrent = 1\nqueue_size = 100\ncancel_grace = \"20ms\"";
    let daemon = Daemon::start(&stdio("db", &["--log", log.path()], settings));
    let client = Client::legacy(daemon.mcp, "/mcp/db");
    let [mut calls, mut cancels, mut filler] = [0; 3].map(|_| Connection::tcp(daemon.mcp));
    let (mut completed, mut silent, mut seen) = (HashSet::new(), HashSet::new(), HashSet::new());
    let (mut read, mut numbers, mut sizes, mut kept) = (0, 0, HashMap::new(), HashMap::new());
    for n in 0..TIMES {
        // Every other call finds the slot taken, or just about to be.
        let filled = n % 2 == 0;
        if filled {
            filler.send(&client.call_bytes(&format!("\"f{n}\""), "echo", "{}")).unwrap();
        }
        // The history does not keep arguments, so each call of a round has a size of its own to be known by.
        let pad = "x".repeat(10 * (n % ROUND + 10) as usize);
        let call = client.call_bytes(&n.to_string(), "echo", &format!(r#"{{"mark":{n},"pad":"{pad}"}}"#));
        sizes.insert(body_size(&call), n);
        let cancel = client.cancel_bytes(&n.to_string());
        // In the same packet; every fourth on another connection, up to half a millisecond later, so that a
        // call is met in each of its states.
        let same = n % 4 != 3;
        if same {
            calls.send(&[call, cancel].concat()).unwrap();
        } else {
            calls.send(&call).unwrap();
            let then = Instant::now() + Duration::from_micros(n % 64 * 8);
            while Instant::now() < then {
                std::hint::spin_loop();
            }
            cancels.send(&cancel).unwrap();
        }
        let answer = Answer::of(calls.receive().unwrap());
        let told = if same { calls.receive() } else { cancels.receive() };
        assert_eq!(told.unwrap().status, 202);
        if filled {
            assert_eq!(filler.receive().unwrap().status, 200);
        }
        if answer.message.is_empty() {
            silent.insert(n);
        } else {
            assert_eq!(answer.json["id"], n, "{answer:?}");
            assert_eq!(answer.json["result"]["structuredContent"]["mark"], n, "{answer:?}");
            completed.insert(n);
        }
        if n % ROUND == ROUND - 1 {
            // Calls are numbered in turn. They begin at 33.
            while let Some(call) =
                daemon.call(&base32(numbers)).or_else(|| (kept.is_empty() && numbers < 64).then(Default::default))
            {
                numbers += 1;
                if let Some(mark) = sizes.get(&call.bytes) {
                    assert!(kept.insert(*mark, call).is_none(), "call {mark} has two records");
                }
            }
            sizes.clear();
            for mark in log.next(&mut read).iter().filter_map(|line| sent(line)) {
                assert!(seen.insert(mark), "call {mark} was sent twice");
                if silent.contains(&mark) {
                    let call = kept.get(&mark).expect("the call is in the history");
                    assert_eq!(call.outcome.as_deref(), Some("cancelled"), "{call:?}");
                    assert_ne!(call.executed.as_deref(), Some("never"), "call {mark} ran: {call:?}");
                }
            }
        }
    }
    assert_eq!(kept.len() as u64, TIMES, "every call was found again");
    let ended = daemon.adds_up();
    assert_eq!((completed.len() + silent.len()) as u64, TIMES);
    assert_eq!(ended.of("completed", "*"), completed.len() as u64 + TIMES / 2);
    assert_eq!(ended.of("cancelled", "caller"), silent.len() as u64);
    assert!(!silent.is_empty() && !completed.is_empty(), "both ends were met: {} were cancelled", silent.len());
    for mark in log.next(&mut read).iter().filter_map(|line| sent(line)) {
        assert!(seen.insert(mark), "call {mark} was sent twice");
    }
    assert!(completed.is_subset(&seen), "what completed was sent");
    daemon.until("no slot is lost", "db", |figures| (figures.running, figures.lingering) == (0, 0));
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).text(), "slept");
}

/// The mark of a call, from a line that the server received.
fn sent(line: &str) -> Option<u64> {
    let message: Value = serde_json::from_str(line).ok()?;
    message["params"]["arguments"]["mark"].as_u64()
}

/// The size of the body of a request, as the daemon counts it.
fn body_size(request: &[u8]) -> u64 {
    let head = request.windows(4).position(|at| at == b"\r\n\r\n").expect("a request has a head") + 4;
    (request.len() - head) as u64
}

/// A call's number as people type it.
fn base32(mut number: u64) -> String {
    let mut digits = Vec::new();
    while number > 0 || digits.is_empty() {
        digits.push(b"0123456789abcdefghjkmnpqrstvwxyz"[number as usize % 32]);
        number /= 32;
    }
    digits.reverse();
    String::from_utf8(digits).unwrap()
}
