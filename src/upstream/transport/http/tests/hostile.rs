//! Servers that break the exchange: closes, cuts, floods, redirects.

use super::rig::*;
use crate::upstream::connection::{Connection, How, LinkEvent};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// C05: what may have run is never sent again.
#[tokio::test]
async fn c05_a_link_that_breaks_in_mid_call_is_told_and_nothing_is_sent_twice() {
    let cut = |pieces: &'static [&'static str]| {
        move |_: &Seen| Do::WriteAndClose(pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect())
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n";
    let half: &[&str] = &[head, "{\"jsonrpc\":\"2.0\""];
    let events = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    for (script, words) in [
        (cut(&[]), ""),
        (cut(&["HTTP/1.1 200 OK\r\ncontent-"]), ""),
        (cut(Box::leak(Box::new([head])) as &[&str]), "broke in the body"),
        (cut(Box::leak(half.to_vec().into_boxed_slice())), "broke in the body"),
        (cut(Box::leak(Box::new([events, "data: {\"jsonrpc\"\n"])) as &[&str]), "ended without an answer"),
        (cut(&["no HTTP at all\r\n\r\n"]), ""),
    ] {
        let server = Hostile::new(modern(script)).await;
        let rig = Rig::up(config(&server.url())).await;
        let started = rig.begin("inc", "{}");
        started.ended().await.lost(true, words);
        assert!(matches!(rig.slot(started.run).await, How::Lost));
        assert_eq!(server.calls().len(), 1);
    }
}

/// R5: a connection that died while it was idle costs no call.
#[tokio::test]
async fn r05_a_dead_pooled_connection_is_replaced_before_a_byte_is_written() {
    let server = Hostile::new(modern(|seen| Do::WriteAndClose(vec![json(&result_text(seen, "{}"))]))).await;
    let rig = Rig::up(config(&server.url())).await;
    for sent in 1..=200 {
        rig.serve("t", "{}").await.completed();
        // A close that is still on its way while a request is written cannot be told from one that comes
        // after it; this test is about closes that have arrived.
        let gone = |seen: &[Seen], closed: &[usize]| {
            seen.iter().filter(|seen| seen.is_call() && closed.contains(&seen.connection)).count() == sent
        };
        server.until("both sides have closed", gone).await;
    }
    assert_eq!(server.calls().len(), 200);
    assert!(!rig.events().iter().any(|event| matches!(event, LinkEvent::Down { .. })));
}

#[tokio::test]
async fn bodies_above_the_limit_cost_one_call_each() {
    let server = Hostile::new(modern(|seen| {
        let big = result_text(seen, &format!(r#"{{"x":"{}"}}"#, "a".repeat(5000)));
        match () {
            () if seen.is_of("length") => Do::Write(vec![json(&big)]),
            () if seen.is_of("endless") => {
                // Declared short of the limit by nothing: chunks that never end.
                let chunk = [b'x'; 1000];
                Do::Write(chunked(&vec![&chunk[..]; 50], false))
            }
            () if seen.is_of("head") => {
                let line = format!("x-long: {}\r\n", "a".repeat(300_000));
                answer("200 OK", &line, "{}")
            }
            () => result(seen, "{}"),
        }
    }))
    .await;
    let mut config = config(&server.url());
    config.max_message = 4096;
    let rig = Rig::up(config).await;
    rig.serve("length", "{}").await.lost(true, "up: the body is larger than 4096 bytes");
    rig.serve("endless", "{}").await.lost(true, "up: an event of the stream is larger than 4096 bytes");
    rig.serve("head", "{}").await.lost(true, "");
    rig.serve("small", "{}").await.completed();
}

/// A worker that fails while it answers is gone: its place is given to nobody.
#[tokio::test]
async fn a_worker_that_panics_is_never_given_another_call() {
    for padding in [10, 100_000] {
        let server =
            Hostile::new(modern(move |seen| result(seen, &format!(r#"{{"x":"{}"}}"#, "a".repeat(padding))))).await;
        let rig = Rig::up(config(&server.url())).await;
        rig.serve("t", "{}").await.completed();
        let failed = rig.begin(PANICS, "{}");
        failed.ended().await.completed();
        assert!(matches!(rig.slot(failed.run).await, How::Dropped));
        assert_eq!(rig.pool().figures(), (0, 0, 0));
        for _ in 0..3 {
            rig.serve("t", "{}").await.completed();
        }
        assert_eq!(rig.pool().figures(), (1, 1, 0));
    }
}

/// C19: however a notification is acknowledged, the handshake goes on.
#[tokio::test]
async fn c19_every_form_of_acknowledgement_is_taken() {
    for form in [
        "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nnull",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ] {
        let inner = legacy(|seen| result(seen, "{}"));
        let server = Hostile::new(move |seen| match &*seen.method() {
            "notifications/initialized" => Do::Write(vec![form.as_bytes().to_vec()]),
            _ => inner(seen),
        })
        .await;
        let rig = Rig::up(config(&server.url())).await;
        rig.serve("t", "{}").await.completed();
        let call = server.calls().pop().unwrap();
        assert_eq!(call.header("mcp-session-id"), Some("s1"));
        assert_eq!(call.header("mcp-protocol-version"), Some("2025-11-25"));
        assert_eq!(call.header("mcp-method"), None);
    }
}

/// C19, the other side: a request that is acknowledged like a notification has no answer.
#[tokio::test]
async fn c19_a_request_answered_with_nothing_is_lost() {
    let server = Hostile::new(modern(|_| answer("202 Accepted", "", ""))).await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("t", "{}").await.lost(true, "HTTP 202 and no message");
}

/// C36: redirects are not followed, but on the same origin with method and body kept.
#[tokio::test]
async fn c36_redirects_never_carry_a_credential_away() {
    let away = Hostile::new(|seen| result(seen, "{}")).await;
    let elsewhere = away.url();
    let server = Hostile::new(modern(move |seen| {
        let to = |status: &str, location: &str| answer(status, &format!("location: {location}\r\n"), "");
        let path = seen.head.split(' ').nth(1).unwrap();
        match (path, ()) {
            ("/mcp", ()) if seen.is_of("meta") => to("302 Found", "http://169.254.169.254/latest?token=CANARY"),
            ("/mcp", ()) if seen.is_of("slash") => to("301 Moved Permanently", "/mcp/"),
            ("/mcp", ()) if seen.is_of("other") => to("307 Temporary Redirect", &elsewhere),
            ("/mcp", ()) if seen.is_of("same") => to("308 Permanent Redirect", "/mcp/"),
            (_, ()) if seen.is_of("loop") => to("307 Temporary Redirect", "/mcp"),
            _ => result(seen, "{}"),
        }
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let meta = rig.serve("meta", "{}").await;
    meta.lost(false, "trailing slash");
    assert!(!meta.text.contains("CANARY"));
    rig.serve("slash", "{}").await.lost(false, "HTTP 301 Moved Permanently: a POST is not redirected");
    rig.serve("other", "{}").await.lost(false, "a redirect to another origin (127.0.0.1) is not followed");
    rig.serve("same", r#"{"k":1.10}"#).await.completed();
    let [first, second] = &*server.calls().into_iter().filter(|call| call.is_of("same")).collect::<Vec<_>>() else {
        panic!()
    };
    assert!(second.head.starts_with("POST /mcp/ HTTP/1.1"));
    assert_eq!(first.body, second.body);
    assert_eq!(second.header("authorization"), Some("Bearer OWN"));
    let before = server.calls().len();
    rig.serve("loop", "{}").await.lost(false, "more than 3 redirects");
    assert_eq!(server.calls().len() - before, 4);
    assert_eq!(away.connections(), 0);
}

/// C36: a permanent redirect met in the handshake is remembered.
#[tokio::test]
async fn c36_a_moved_endpoint_is_asked_once_only() {
    let inner = legacy(|seen| result(seen, "{}"));
    let server = Hostile::new(move |seen| match seen.head.starts_with("POST /mcp ") {
        true => answer("308 Permanent Redirect", "location: /mcp/\r\n", ""),
        false => inner(seen),
    })
    .await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("t", "{}").await.completed();
    let [call] = &*server.calls() else { panic!() };
    assert!(call.head.starts_with("POST /mcp/ "));
}

/// C18: ten callers find their session gone; one handshake mends it for all.
#[tokio::test]
async fn c18_a_forgotten_session_is_renewed_once_for_all() {
    let server = Hostile::new(legacy(|seen| match seen.header("mcp-session-id") {
        Some("s1") => answer("404 Not Found", "", "gone"),
        Some(_) => result(seen, "{}"),
        None => answer("400 Bad Request", "", ""),
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let calls: Vec<_> = (0..10).map(|_| rig.begin("t", "{}")).collect();
    for call in &calls {
        call.ended().await.completed();
    }
    let seen = server.seen();
    let initialize: Vec<_> = seen.iter().filter(|seen| seen.method() == "initialize").collect();
    assert_eq!(initialize.len(), 2);
    assert!(initialize.iter().all(|seen| seen.header("mcp-session-id").is_none()));
    for call in &calls {
        let id = call.call.id.seq().to_string();
        let sent: Vec<_> = server.calls().into_iter().filter(|seen| seen.id() == id).collect();
        assert!((1..=2).contains(&sent.len()), "{} times", sent.len());
        assert_eq!(sent.last().unwrap().header("mcp-session-id"), Some("s2"));
    }
    let events = rig.events();
    assert!(!events.iter().any(|event| matches!(event, LinkEvent::Down { .. })), "{events:?}");
}

/// C18: a second 404 is an error, with backoff.
#[tokio::test]
async fn c18_a_second_404_is_an_error_and_backs_off() {
    let server = Hostile::new(legacy(|_| answer("404 Not Found", "", ""))).await;
    let rig = Rig::up(config(&server.url())).await;
    let started = rig.begin("t", "{}");
    started.ended().await.lost(false, "HTTP 404 Not Found");
    assert_eq!(server.calls().len(), 2);
    let down = rig.event("the link is down", |event| matches!(event, LinkEvent::Down { .. })).await;
    assert!(matches!(down, LinkEvent::Down { fault, .. } if fault.contains("fresh session")));
    rig.forget_events();
    rig.event("it comes back", |event| matches!(event, LinkEvent::Up { .. })).await;
}

/// C18: without a session a 404 is an error like any other.
#[tokio::test]
async fn c18_a_404_without_a_session_is_a_plain_error() {
    let server = Hostile::new(modern(|_| answer("404 Not Found", "", ""))).await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("t", "{}").await.lost(false, "HTTP 404 Not Found");
    assert_eq!(server.seen().len(), 2);
}

/// A call that ended while its session was renewed is not sent again.
#[tokio::test]
async fn what_ended_meanwhile_is_not_sent_again() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let (opened, count) = (gate.clone(), AtomicU64::new(0));
    let inner = legacy(|_| answer("404 Not Found", "", ""));
    let server = Hostile::new(move |seen| match &*seen.method() {
        "initialize" if count.fetch_add(1, Relaxed) > 0 => Do::When(opened.clone(), b"HTTP/1.1 500 E\r\n\r\n".to_vec()),
        _ => inner(seen),
    })
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let started = rig.begin("t", "{}");
    server.until("it is renewed", |seen, _| seen.iter().filter(|s| s.method() == "initialize").count() == 2).await;
    started.call.cancel(crate::outcome::CancelledBy::Operator, tokio::time::Instant::now()).unwrap();
    rig.http.stop(started.run, crate::upstream::connection::StopReason::Cancelled);
    rig.slot(started.run).await;
    gate.notify_one();
    assert_eq!(server.calls().len(), 1);
    assert!(!server.seen().iter().any(|seen| seen.method() == "notifications/cancelled"));
}

/// C32: what a server repeats of our credential is not shown again by us; what is the caller's passes.
#[tokio::test]
async fn c32_a_fault_never_repeats_a_configured_secret() {
    let echo = |seen: &Seen| {
        let token = seen.header("authorization").unwrap().to_owned();
        let headers = format!("content-type: application/json\r\nwww-authenticate: Bearer error=\"{token}\"\r\n");
        let id = if seen.is_of("ours") { seen.id() } else { "null".into() };
        let query = seen.head.split(' ').nth(1).unwrap();
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"{token} at {query}"}}}}"#);
        (headers, body)
    };
    let secret = |url: &str| {
        let mut config = config(&format!("{url}?key=CANARY-query"));
        let crate::config::Target::Http(target) = &mut config.target else { panic!() };
        let value = crate::config::Secret::new("Bearer CANARY-token");
        target.headers = vec![(http::HeaderName::from_static("authorization"), value)];
        config
    };
    let server = Hostile::new(modern(move |seen| {
        let (headers, body) = echo(seen);
        match () {
            () if seen.is_of("type") => answer("200 OK", &format!("content-type: {}\r\n", "CANARY-token"), ""),
            () if seen.is_of("moved") => answer("302 Found", "location: /at/CANARY-query/\r\n", ""),
            () if seen.method() == "tools/list" => {
                answer("200 OK", "content-type: application/json\r\n", &body.replace("null", &seen.id()))
            }
            () => answer("400 Bad Request", &headers, &body),
        }
    }))
    .await;
    let rig = Rig::up(secret(&server.url())).await;
    for tool in ["t", "type", "moved"] {
        let ended = rig.serve(tool, "{}").await;
        assert!(matches!(ended.outcome, crate::outcome::Outcome::Lost { .. }), "{ended:?}");
        assert!(!ended.text.contains("CANARY") && ended.text.contains("[secret]"), "{ended:?}");
    }
    let ours = rig.serve("ours", "{}").await;
    assert!(ours.text.contains("Bearer CANARY-token at /mcp?key=CANARY-query"), "the caller's own answer: {ours:?}");
    let ask = rig.http.ask("tools/list", None, std::time::Duration::from_secs(5)).await.unwrap_err();
    assert!(!ask.to_string().contains("CANARY"), "{ask}");

    let server = Hostile::new(move |seen| {
        let (headers, body) = echo(seen);
        answer("403 Forbidden", &headers, &body)
    })
    .await;
    let rig = Rig::new(secret(&server.url()));
    rig.http.open();
    let last = rig.event("it is final", |event| matches!(event, LinkEvent::Final { .. })).await;
    assert!(!format!("{last:?}").contains("CANARY"), "{last:?}");
}
