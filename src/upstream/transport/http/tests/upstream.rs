//! Against the test upstream, a process of its own that checks headers, sessions and cancels strictly.

use super::rig::*;
use crate::outcome::{CancelledBy, Outcome};
use crate::upstream::connection::{Connection, StopReason};
use std::time::Duration;
use tokio::time::Instant;

const WAYS: [&[&str]; 6] = [
    &["--era", "modern"],
    &["--era", "modern", "--sse"],
    &["--era", "legacy"],
    &["--era", "legacy", "--sse"],
    &["--era", "legacy", "--no-session"],
    &["--era", "both"],
];

#[tokio::test]
async fn calls_are_answered_in_every_way_a_server_may_speak() {
    for way in WAYS {
        let upstream = Upstream::start(way).await;
        let rig = Rig::up(config(&upstream.url)).await;
        let arguments = r#"{"a":9223372036854775807,"b":12345678901234567890123,"c":1.10,"d":1E400,"e":-0.0}"#;
        let ended = rig.serve("echo", arguments).await;
        assert!(ended.completed().contains(&format!(r#""structuredContent":{arguments}"#)), "{way:?}: {ended:?}");
        assert_eq!(rig.serve("error", r#"{"code":-7}"#).await.outcome, Outcome::UpstreamError, "{way:?}");
        assert_eq!(rig.serve("fail", "{}").await.outcome, Outcome::Completed { is_error: true }, "{way:?}");
        rig.serve("string_id", "{}").await.completed();
        rig.serve("utf8_bytewise", "{}").await.completed();
        rig.serve("noise", "{}").await.completed();
        rig.serve("twice", "{}").await.completed();
        assert!(rig.serve("big", r#"{"bytes":700000}"#).await.completed().len() > 700_000);
        assert!(rig.serve("big", r#"{"bytes":700000,"id_last":true}"#).await.completed().len() > 700_000);
        rig.serve("bad_utf8", "{}").await.lost(true, "");
        assert_eq!(rig.serve("nö such\ttool", "{}").await.outcome, Outcome::UpstreamError, "{way:?}");
        let list = rig.http.ask("tools/list", None, Duration::from_secs(5)).await.unwrap();
        assert!(String::from_utf8_lossy(&list).contains("hold_deaf"));
    }
}

/// C05: the file says 1.
#[tokio::test]
async fn c05_a_side_effect_happens_once() {
    for way in [&WAYS[0], &WAYS[2]] {
        let upstream = Upstream::start(way).await;
        let rig = Rig::up(config(&upstream.url)).await;
        rig.serve("echo", "{}").await.completed();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("n");
        let arguments = serde_json::json!({ "file": file }).to_string();
        rig.serve("inc", &arguments).await.lost(true, "");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1");
        rig.serve("echo", "{}").await.completed();
    }
}

#[tokio::test]
async fn a_cancel_reaches_the_server_in_both_eras() {
    for way in WAYS {
        let upstream = Upstream::start(way).await;
        let rig = Rig::up(config(&upstream.url)).await;
        let started = rig.begin("hold", r#"{"key":"k"}"#);
        rig.serve("wait", r#"{"tool":"hold","count":1}"#).await.completed();
        started.call.cancel(CancelledBy::Operator, Instant::now()).unwrap();
        rig.http.stop(started.run, StopReason::Cancelled);
        let stats = rig.serve("wait", r#"{"cancels":1}"#).await;
        let id = started.call.id.seq();
        assert!(stats.completed().contains(&format!(r#""cancels":["{id}"]"#)), "{way:?}: {stats:?}");
        rig.http.recycle(started.run);
        rig.slot(started.run).await;
    }
}

/// C18 against a server that really forgets.
#[tokio::test]
async fn c18_sessions_that_a_server_forgot_are_renewed() {
    let upstream = Upstream::start(&["--era", "legacy"]).await;
    let rig = Rig::up(config(&upstream.url)).await;
    rig.serve("echo", "{}").await.completed();
    forget(&upstream).await;
    let calls: Vec<_> = (0..10).map(|_| rig.begin("echo", "{}")).collect();
    for call in &calls {
        call.ended().await.completed();
    }
    assert_eq!(rig.http.report().restarts, 1);
    forget(&upstream).await;
    rig.http.ask("tools/list", None, Duration::from_secs(5)).await.unwrap();
    assert_eq!(rig.http.report().restarts, 2);
}

async fn forget(upstream: &Upstream) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = upstream.url.trim_start_matches("http://").trim_end_matches("/mcp");
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = b"POST /forget HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    socket.write_all(request).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
}
