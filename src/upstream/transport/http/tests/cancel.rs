//! Cancels: by a closed stream on the modern era, by a notice on the legacy one.

use super::rig::*;
use crate::config::AfterCancel;
use crate::outcome::{CancelledBy, Outcome};
use crate::upstream::connection::{Connection, How, StopReason};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

fn cancel(rig: &Rig, started: &Started) {
    started.call.cancel(CancelledBy::Operator, Instant::now()).unwrap();
    rig.http.stop(started.run, StopReason::Cancelled);
}

async fn running(server: &Hostile) -> usize {
    server.until("the call runs", |seen, _| seen.iter().any(Seen::is_call)).await;
    server.calls()[0].connection
}

#[tokio::test]
async fn a_modern_cancel_closes_the_stream_and_frees_the_slot() {
    for pieces in [Vec::new(), chunked(&[b": begun\n\n"], false)] {
        let server = Hostile::new(modern(move |_| Do::Write(pieces.clone()))).await;
        let rig = Rig::up(config(&server.url())).await;
        let started = rig.begin("t", "{}");
        let connection = running(&server).await;
        cancel(&rig, &started);
        assert!(matches!(rig.slot(started.run).await, How::Lost));
        server.until("the stream is closed", |_, closed| closed.contains(&connection)).await;
        assert!(matches!(started.ended().await.outcome, Outcome::Cancelled { .. }));
        assert!(!server.seen().iter().any(|seen| seen.method() == "notifications/cancelled"));
    }
}

/// R7: with `hold` the slot outlives the exchange, the worker does not wait with it.
#[tokio::test]
async fn r07_hold_keeps_the_slot_without_a_worker() {
    let server = Hostile::new(modern(|seen| match seen.is_of("hang") {
        true => Do::Hang,
        false => result(seen, "{}"),
    }))
    .await;
    let mut config = config(&server.url());
    config.limits.after_cancel = AfterCancel::Hold;
    let rig = Rig::up(config).await;
    let started = rig.begin("hang", "{}");
    let connection = running(&server).await;
    cancel(&rig, &started);
    server.until("the stream is closed", |_, closed| closed.contains(&connection)).await;
    rig.serve("t", "{}").await.completed();
    assert_eq!(rig.slots_back(), 1, "only the second call gave its slot back");
    assert_eq!(rig.pool().figures(), (1, 1, 1), "one worker, idle, and the held run");
    rig.http.stop(started.run, StopReason::Cancelled);
    assert_eq!(rig.slots_back(), 1);
    rig.http.recycle(started.run);
    rig.slot(started.run).await;
}

/// R7: with `hold` the call's own `call_timeout` ends it, not the caller's deadline, which may be over.
#[tokio::test]
async fn r07_what_is_held_ends_with_its_call_timeout() {
    let server = Hostile::new(modern(|_| Do::Hang)).await;
    let mut config = config(&server.url());
    config.limits.after_cancel = AfterCancel::Hold;
    config.limits.cancel_grace = Duration::ZERO;
    config.limits.call_timeout = Some(Duration::from_millis(100));
    let rig = Rig::up(config).await;
    let call = rig.call("t", "{}");
    let begun = Instant::now();
    let run = rig.run(&call, Some(begun));
    let started = Started { call, run: run.id };
    rig.http.begin(run);
    running(&server).await;
    cancel(&rig, &started);
    rig.slot(started.run).await;
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!(rig.pool().figures().2, 0);
}

/// R7: with `release` a legacy exchange that the server never ends is given up after the grace.
#[tokio::test]
async fn r07_a_legacy_exchange_does_not_outlive_its_grace() {
    let server = Hostile::new(legacy(|seen| match &*seen.method() {
        "tools/call" => Do::Hang,
        _ => answer("202 Accepted", "", ""),
    }))
    .await;
    let mut config = config(&server.url());
    config.limits.cancel_grace = Duration::from_millis(10);
    let rig = Rig::up(config).await;
    let started = rig.begin("t", "{}");
    let connection = running(&server).await;
    cancel(&rig, &started);
    assert!(matches!(rig.slot(started.run).await, How::Lost));
    server.until("the connection is closed", |_, closed| closed.contains(&connection)).await;
    assert!(server.seen().iter().any(|seen| seen.method() == "notifications/cancelled"));
    assert_eq!(rig.pool().figures(), (1, 1, 0));
}

#[tokio::test]
async fn r07_a_reset_frees_what_is_held() {
    let server = Hostile::new(modern(|_| Do::Hang)).await;
    let mut config = config(&server.url());
    config.limits.after_cancel = AfterCancel::Hold;
    let rig = Rig::up(config).await;
    let started = rig.begin("t", "{}");
    let connection = running(&server).await;
    cancel(&rig, &started);
    server.until("the stream is closed", |_, closed| closed.contains(&connection)).await;
    rig.http.reset("restart");
    rig.slot(started.run).await;
}

#[tokio::test]
async fn c04_a_legacy_cancel_is_a_notice_with_the_id_used_there_and_the_slot_waits_for_the_answer() {
    let gate = Arc::new(Notify::new());
    let told = gate.clone();
    let server = Hostile::new(legacy(move |seen| match &*seen.method() {
        "tools/call" => Do::When(told.clone(), json(&result_text(seen, "{}"))),
        _ => answer("202 Accepted", "", ""),
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let started = rig.begin("t", "{}");
    let connection = running(&server).await;
    cancel(&rig, &started);
    server
        .until("the notice comes", |seen, _| seen.iter().any(|seen| seen.method() == "notifications/cancelled"))
        .await;
    let seen = server.seen();
    let notice = seen.iter().find(|seen| seen.method() == "notifications/cancelled").unwrap();
    assert_ne!(notice.connection, connection);
    assert_eq!(notice.header("mcp-session-id"), Some("s1"));
    assert!(notice.body.contains(&format!(r#""requestId":{},"#, started.call.id.seq())), "{}", notice.body);
    assert_eq!(rig.slots_back(), 0);
    rig.http.stop(started.run, StopReason::Shutdown);
    let before = crate::protocol::splice::ANSWERS.get();
    gate.notify_one();
    assert!(matches!(rig.slot(started.run).await, How::Answered));
    assert_eq!(crate::protocol::splice::ANSWERS.get(), before, "a late answer is not even read");
    assert_eq!(rig.http.report().late, 1);
    let notices = server.seen().iter().filter(|seen| seen.method() == "notifications/cancelled").count();
    assert_eq!(notices, 1, "a second stop asks nothing anew");
}

/// C04: a cancel waits for nothing: neither for other cancels that the server leaves unanswered, nor for lists.
#[tokio::test]
async fn c04_a_cancel_waits_for_no_list_and_no_other_cancel() {
    let server = Hostile::new(legacy(|_| Do::Hang)).await;
    let rig = Rig::up(config(&server.url())).await;
    let limit = Duration::from_secs(60);
    let asks: Vec<_> = (0..8).map(|_| tokio::spawn(rig.http.ask("tools/list", None, limit))).collect();
    let count = |seen: &[Seen], method: &str| seen.iter().filter(|seen| seen.method() == method).count();
    server.until("four lists are asked for", |seen, _| count(seen, "tools/list") == 4).await;
    let calls: Vec<_> = (0..20).map(|_| rig.begin("t", "{}")).collect();
    server.until("all run", |seen, _| count(seen, "tools/call") == 20).await;
    for call in &calls {
        cancel(&rig, call);
    }
    let begun = Instant::now();
    server.until("all notices come", |seen, _| count(seen, "notifications/cancelled") == 20).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "nothing had to be given up first");
    asks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_legacy_exchange_that_is_recycled_is_closed() {
    let server = Hostile::new(legacy(|seen| match &*seen.method() {
        "tools/call" => Do::Hang,
        _ => answer("202 Accepted", "", ""),
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let started = rig.begin("t", "{}");
    let connection = running(&server).await;
    cancel(&rig, &started);
    rig.http.recycle(started.run);
    assert!(matches!(rig.slot(started.run).await, How::Lost));
    server.until("the connection is closed", |_, closed| closed.contains(&connection)).await;
}

/// A stop may come before the worker has begun: then nothing is sent.
#[tokio::test]
async fn a_stop_that_comes_first_sends_nothing() {
    let modern_server = Hostile::new(modern(|seen| result(seen, "{}"))).await;
    let legacy_server = Hostile::new(legacy(|seen| result(seen, "{}"))).await;
    for server in [modern_server, legacy_server] {
        let rig = Rig::up(config(&server.url())).await;
        rig.serve("warm", "{}").await.completed();
        for _ in 0..100 {
            // No await between: the worker, on this same thread, cannot have begun.
            let started = rig.begin("t", "{}");
            cancel(&rig, &started);
            rig.slot(started.run).await;
            // Told only by its ticket: the stop is still on its way.
            let started = rig.begin("t", "{}");
            started.call.cancel(CancelledBy::Operator, Instant::now()).unwrap();
            rig.slot(started.run).await;
        }
        assert_eq!(server.calls().len(), 1);
        assert!(!server.seen().iter().any(|seen| seen.method() == "notifications/cancelled"));
        rig.serve("still works", "{}").await.completed();
    }
}
