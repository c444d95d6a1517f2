//! The types against JSON as it is written in the documentation, and against a newer daemon's.
#![expect(clippy::unwrap_used, reason = "tests say by panicking that something is wrong")]

use forebay_wire::{
    Call, CallState, CallsPage, CancelAnswer, Cancelled, Fault, Lane, OutcomeCount, State, Totals, Upstream,
    UpstreamKind, UpstreamState,
};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) {
    let text = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
}

fn call() -> Call {
    Call {
        id: "k3f9q-1f9".into(),
        caller: "ci-bot".into(),
        upstream: "mysql".into(),
        method: "tools/call".into(),
        tool: Some("query\u{1b}[31m\u{202e}".into()),
        lane: Lane::Low,
        state: CallState::Lingering,
        position: Some(3),
        age_ms: 2,
        queued_ms: 1,
        running_ms: 1,
        deadline_ms: Some(u64::MAX),
        weight: 2,
        bytes: 1204,
        attempt: 1,
        parent: Some("k3f9q-1f8".into()),
        outcome: Some("cancelled".into()),
        reason: Some("operator".into()),
        executed: Some("unknown".into()),
    }
}

#[test]
fn every_type_comes_back_as_it_was_sent() {
    round_trip(call());
    round_trip(Call::default());
    round_trip(CallsPage { calls: vec![call()], next: Some("0.mysql".into()), missing: vec!["x".into()] });
    round_trip(CancelAnswer {
        id: "1f9".into(),
        answer: Cancelled::AlreadyFinished,
        outcome: Some("completed".into()),
        reason: None,
    });
    round_trip(Fault { code: "unknown_id".into(), message: "m".into(), hint: None });
    round_trip(State {
        totals: Totals { outcomes: vec![OutcomeCount::default()], unaccounted: -1, ..Totals::default() },
        upstreams: vec![Upstream {
            kind: UpstreamKind::Http,
            state: UpstreamState::Saturated,
            p50_ms: Some(3),
            fault: Some("exit code 1".into()),
            pids: vec![1, 2],
            ..Upstream::default()
        }],
        ..State::default()
    });
}

#[test]
fn names_are_those_of_the_design() {
    let json = serde_json::to_value(call()).unwrap();
    for field in [
        "id",
        "caller",
        "upstream",
        "method",
        "tool",
        "lane",
        "state",
        "position",
        "age_ms",
        "queued_ms",
        "running_ms",
        "deadline_ms",
        "weight",
        "bytes",
        "attempt",
        "outcome",
        "reason",
        "executed",
    ] {
        assert!(json.get(field).is_some(), "{field}");
    }
    assert_eq!(json["state"], "lingering");
    assert_eq!(json["lane"], "low");
    assert_eq!(serde_json::to_value(Cancelled::CancelledQueued).unwrap(), "cancelled_queued");
    for state in CallState::LISTED {
        assert_eq!(serde_json::to_value(state).unwrap(), state.name());
    }
    assert_eq!(serde_json::to_value(UpstreamState::Asleep).unwrap(), UpstreamState::Asleep.name());
    // Never a raw control character on the wire: JSON escapes it, the text stays what it was.
    assert!(!serde_json::to_string(&call()).unwrap().contains('\u{1b}'));
}

#[test]
fn what_a_newer_daemon_adds_is_ignored() {
    let text = r#"{"name":"a","kind":"carrier_pigeon","state":"molting","running":1,"lingering":0,"max_concurrent":2,
        "queued":0,"queue_size":5,"oldest_wait_ms":0,"refused":0,"restarts":0,"wings":2}"#;
    let upstream: Upstream = serde_json::from_str(text).unwrap();
    assert_eq!(upstream.kind, UpstreamKind::Unknown);
    assert_eq!(upstream.state, UpstreamState::Unknown);
    assert_eq!(upstream.running, 1);
}
