//! Requests and answers, one exchange each.

use super::rig::*;
use crate::outcome::Outcome;
use crate::upstream::connection::{AskError, Connection, How, LinkEvent};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// C33: the upstream gets only its own credential, and no header of a caller's.
#[tokio::test]
async fn c33_headers_are_built_from_scratch() {
    let server = Hostile::new(modern(|seen| result(seen, r#"{"content":[]}"#))).await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("get_weather", "{}").await.completed();
    rig.serve("wetter für\n", "{}").await.completed();
    let [first, second] = &*server.calls() else { panic!() };
    let mut names: Vec<_> =
        first.head.lines().skip(1).map(|line| line.split(':').next().unwrap().to_ascii_lowercase()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "accept",
            "authorization",
            "content-length",
            "content-type",
            "host",
            "mcp-method",
            "mcp-name",
            "mcp-protocol-version"
        ]
    );
    assert!(first.head.starts_with("POST /mcp HTTP/1.1\r\n"), "{}", first.head);
    assert_eq!(first.header("authorization"), Some("Bearer OWN"));
    assert_eq!(first.header("host"), Some(&*server.address.to_string()));
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(first.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(first.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(first.header("mcp-method"), Some("tools/call"));
    assert_eq!(first.header("mcp-name"), Some("get_weather"));
    assert_eq!(second.header("mcp-name"), Some("=?base64?d2V0dGVyIGbDvHIK?="));
}

#[tokio::test]
async fn calls_one_after_the_other_share_a_connection_and_calls_at_once_do_not() {
    let server = Hostile::new(modern(|seen| match seen.is_of("hang") {
        true => Do::Hang,
        false => result(seen, "{}"),
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    for _ in 0..10 {
        rig.serve("t", "{}").await.completed();
    }
    let used: std::collections::BTreeSet<_> = server.calls().iter().map(|call| call.connection).collect();
    assert_eq!(used.len(), 1);
    let before = server.connections();
    let held: Vec<_> = (0..3).map(|_| rig.begin("hang", "{}")).collect();
    server.until("three calls run", |seen, _| seen.iter().filter(|seen| seen.is_of("hang")).count() == 3).await;
    assert_eq!(server.connections(), before + 2, "one of them took the idle worker");
    assert_eq!(rig.pool().figures(), (3, 0, 3));
    drop(held);
}

/// C16, C17: an event stream in odd pieces, with other things in it.
#[tokio::test]
async fn c16_c17_an_answer_in_an_event_stream_is_found() {
    let server = Hostile::new(modern(|seen| {
        let message = result_text(seen, r#"{"content":[],"x":1.10}"#);
        let (head, tail) = message.split_at(17);
        let other = r#"{"jsonrpc":"2.0","id":999999,"result":{}}"#;
        let mixed = format!(
            ": ping\r\n\r\ndata:\n\nevent: odd\rdata: {other}\r\rdata: {other}\n\n\
             data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}}\n\n"
        );
        let message = format!("event: message\r\ndata: {head}\r\ndata: {tail}\r\n\r\n");
        let bytes = [mixed.as_bytes(), message.as_bytes()].concat();
        let parts: Vec<&[u8]> = bytes.chunks(7).collect();
        Do::Write(chunked(&parts, true))
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    for _ in 0..3 {
        let ended = rig.serve("t", "{}").await;
        assert!(ended.completed().contains("1.10"));
        assert!(ended.text.contains(r#""id":"mine""#));
    }
    rig.event("the lists are stale", |event| *event == LinkEvent::ListsChanged).await;
    let used: std::collections::BTreeSet<_> = server.calls().iter().map(|call| call.connection).collect();
    assert_eq!(used.len(), 1, "a stream that ended well leaves its connection usable");
    assert_eq!(rig.http.report().noise, 3);
}

/// A server must not fill the actor's queue of link events by a stream of notices.
#[tokio::test]
async fn a_flood_of_list_changes_on_a_stream_is_told_a_few_times() {
    let server = Hostile::new(modern(|seen| {
        let notice = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n".repeat(100);
        let mut parts = vec![notice.as_bytes(); 50];
        let event = format!("data: {}\n\n", result_text(seen, "{}"));
        parts.push(event.as_bytes());
        Do::Write(chunked(&parts, true))
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let begun = tokio::time::Instant::now();
    rig.serve("t", "{}").await.completed();
    let told = rig.events().iter().filter(|event| **event == LinkEvent::ListsChanged).count();
    let most = 2 + begun.elapsed().as_millis() as usize / 100;
    assert!((1..=most).contains(&told), "{told} of 5000, at most {most}");
}

#[tokio::test]
async fn a_stream_that_goes_on_after_its_answer_delays_nobody() {
    let server = Hostile::new(modern(|seen| {
        let event = format!("data: {}\n\n", result_text(seen, "{}"));
        Do::Write(chunked(&[event.as_bytes()], false))
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("t", "{}").await.completed();
    rig.serve("t", "{}").await.completed();
    let [first, second] = &*server.calls() else { panic!() };
    assert_ne!(first.connection, second.connection, "a connection with unread bytes is not used again");
}

/// Under load the next call is there before the stream of the last answer has ended.
#[tokio::test]
async fn a_stream_that_ends_a_little_after_its_answer_leaves_its_connection() {
    let (ends, ended) = std::sync::mpsc::channel();
    let ends = parking_lot::Mutex::new(ends);
    let server = Hostile::new(modern(move |seen| {
        let event = format!("data: {}\n\n", result_text(seen, "{}"));
        let first = chunked(&[event.as_bytes()], false).concat();
        let end = Arc::new(Notify::new());
        ends.lock().send(end.clone()).unwrap();
        Do::Then(first, end, b"9\r\n: the end\r\n0\r\n\r\n".to_vec())
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("t", "{}").await.completed();
    for _ in 0..24 {
        let next = rig.begin("t", "{}");
        // The worker has its run now, the answer before is with its caller, and the stream goes on.
        tokio::task::yield_now().await;
        ended.recv().unwrap().notify_one();
        next.ended().await.completed();
        rig.slot(next.run).await;
    }
    let used: std::collections::BTreeSet<_> = server.calls().iter().map(|call| call.connection).collect();
    // A machine that stands still for 20 ms costs a few.
    assert!(used.len() < 25, "each of 25 calls on a connection of its own");
}

/// A stream that never ends is waited for now and then only.
#[tokio::test]
async fn streams_that_stay_open_do_not_slow_every_call() {
    let server = Hostile::new(modern(|seen| {
        let event = format!("data: {}\n\n", result_text(seen, "{}"));
        Do::Write(chunked(&[event.as_bytes()], false))
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    for _ in 0..17 {
        rig.serve("t", "{}").await.completed();
    }
    // Waits at the 2nd, the 10th and, now due, the 18th.
    assert_eq!(rig.http.inner.no_waits.load(std::sync::atomic::Ordering::Relaxed), 0);
    rig.serve("t", "{}").await.completed();
    assert_eq!(rig.http.inner.no_waits.load(std::sync::atomic::Ordering::Relaxed), 7);
}

/// C20: over the wire, and an answer that cannot be read is told with the upstream's name.
#[tokio::test]
async fn c20_c21_answers_are_read_by_what_they_say_they_are() {
    let server = Hostile::new(modern(|seen| {
        let body = result_text(seen, r#"{"content":[]}"#);
        let arguments: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
        let headers = arguments["params"]["arguments"]["headers"].as_str().unwrap();
        answer("200 OK", headers, &body)
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let with = async |headers: &str| rig.serve("t", &serde_json::json!({ "headers": headers }).to_string()).await;
    with("Content-Type: application/json; charset=utf-8\r\n").await.completed();
    with("Content-Type: Application/JSON\r\n").await.completed();
    with("").await.completed();
    with("content-type: application/json;charset=latin1\r\n").await.lost(true, "up: it answered in the charset latin1");
    with("content-type: text/html\r\n").await.lost(true, "text/html");
    let br = with("content-type: application/json\r\ncontent-encoding: br\r\n").await;
    br.lost(true, "up: it answered with the content coding br");
    assert!(server.seen().iter().all(|seen| seen.header("accept-encoding").is_none()));
}

#[tokio::test]
async fn c24_c25_numbers_and_unknown_fields_pass_as_they_came() {
    let result = r#"{"content":[],"n":[9223372036854775807,12345678901234567890123,1.10,1E400,-0.0],"newer":{}}"#;
    let server = Hostile::new(modern(move |seen| {
        // The id last, as the TypeScript SDK writes it.
        Do::Write(vec![json(&format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{}}}"#, seen.id()))])
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let arguments = r#"{"a":12345678901234567890123,"b":1.10,"c":1E400}"#;
    let ended = rig.serve("t", arguments).await;
    assert!(
        ended.completed().contains(r#""n":[9223372036854775807,12345678901234567890123,1.10,1E400,-0.0],"newer":{}"#)
    );
    assert!(server.calls()[0].body.contains(arguments));
}

/// C24: what a caller's JSON reader may well take is not ours to refuse.
#[tokio::test]
async fn c24_a_result_that_cannot_be_annotated_passes_byte_for_byte() {
    let many: Vec<_> = (0..300).map(|n| format!("\"k{n}\": {n}")).collect();
    for text in
        [r#"{"a":1,"a":1.10}"#.to_owned(), r#"{"\ud800":"\udc00"}"#.to_owned(), format!("{{{}}}", many.join(", "))]
    {
        let sent = text.clone();
        let server = Hostile::new(modern(move |seen| result(seen, &sent))).await;
        let rig = Rig::up(config(&server.url())).await;
        let ended = rig.serve("t", "{}").await;
        assert_eq!(ended.completed(), format!(r#"{{"jsonrpc":"2.0","id":"mine","result":{text}}}"#));
    }
}

#[tokio::test]
async fn an_answer_with_another_id_goes_to_nobody() {
    let server = Hostile::new(modern(|_| Do::Write(vec![json(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)]))).await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("t", "{}").await.lost(true, "no JSON-RPC message with the request's id");
}

#[tokio::test]
async fn errors_over_http_with_our_id_are_the_upstreams_own_answer() {
    let server = Hostile::new(modern(|seen| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"none"}}}}"#, seen.id());
        let code = if seen.is_of("forbidden") { "403 Forbidden" } else { "404 Not Found" };
        answer(code, "content-type: application/json\r\n", &body)
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    for tool in ["t", "forbidden"] {
        let ended = rig.serve(tool, "{}").await;
        assert_eq!(ended.outcome, Outcome::UpstreamError);
        assert_eq!(ended.text, r#"{"jsonrpc":"2.0","id":"mine","error":{"code":-32601,"message":"none"}}"#);
    }
    assert!(!rig.events().iter().any(|event| matches!(event, LinkEvent::Final { .. })));
}

#[tokio::test]
async fn errors_without_our_id_say_whether_the_call_may_have_run() {
    let server = Hostile::new(modern(|seen| {
        let arguments: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
        let status = arguments["params"]["arguments"]["status"].as_str().unwrap();
        let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"so\u0007 it is"}}"#;
        answer(status, "content-type: application/json\r\n", body)
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let with = async |status: &str| rig.serve("t", &serde_json::json!({ "status": status }).to_string()).await;
    with("500 Internal Server Error").await.lost(true, "HTTP 500 Internal Server Error: so  it is");
    with("502 Bad Gateway").await.lost(true, "HTTP 502");
    with("404 Not Found").await.lost(false, "HTTP 404 Not Found: so  it is");
    with("413 Payload Too Large").await.lost(false, "HTTP 413");
    with("409 Conflict").await.lost(true, "HTTP 409");
}

#[tokio::test]
async fn a_busy_upstream_is_given_its_rest() {
    let server = Hostile::new(modern(|seen| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-1,"message":"later"}}}}"#, seen.id());
        match () {
            () if seen.is_of("text") => answer("429 Too Many Requests", "retry-after: 3\r\n", "slow down"),
            () if seen.is_of("gone") => answer("503 Service Unavailable", "", "maybe it ran"),
            () => answer("503 Service Unavailable", "retry-after: 7\r\ncontent-type: application/json\r\n", &body),
        }
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let started = rig.begin("text", "{}");
    let ended = started.ended().await;
    ended.lost(false, "HTTP 429 Too Many Requests");
    assert_eq!(ended.retry_after_ms, Some(3000));
    assert!(matches!(rig.slot(started.run).await, How::Busy));
    rig.event("a rest of 3 s", |event| *event == LinkEvent::Busy { retry_in: Duration::from_secs(3) }).await;
    assert_eq!(rig.serve("own", "{}").await.outcome, Outcome::UpstreamError);
    rig.event("a rest of 7 s", |event| *event == LinkEvent::Busy { retry_in: Duration::from_secs(7) }).await;
    rig.serve("gone", "{}").await.lost(true, "HTTP 503");
}

#[tokio::test]
async fn a_header_mismatch_is_sent_once_more_and_no_oftener() {
    let server = Hostile::new(modern(|seen| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32020,"message":"m"}}}}"#, seen.id());
        answer("400 Bad Request", "content-type: application/json\r\n", &body)
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    assert_eq!(rig.serve("t", "{}").await.outcome, Outcome::UpstreamError);
    assert_eq!(server.calls().len(), 2);
    rig.event("the lists are stale", |event| *event == LinkEvent::ListsChanged).await;
}

#[tokio::test]
async fn a_server_that_left_the_modern_era_is_probed_again() {
    let legacy = legacy(|seen| result(seen, "{}"));
    let modern = modern(|_| answer("400 Bad Request", "", "what is that?"));
    let discovered = std::sync::atomic::AtomicBool::new(false);
    let server = Hostile::new(move |seen| {
        let first = seen.method() == "server/discover" && !discovered.swap(true, std::sync::atomic::Ordering::Relaxed);
        if first || seen.is_call() && seen.header("mcp-session-id").is_none() { modern(seen) } else { legacy(seen) }
    })
    .await;
    let rig = Rig::up(config(&server.url())).await;
    // A bare 400 is no rejection by protocol: its call is not sent again, those behind it find the new era.
    rig.begin("t", "{}").ended().await.lost(false, "HTTP 400 Bad Request");
    assert_eq!(server.calls().len(), 1);
    rig.serve("t", "{}").await.completed();
    assert_eq!(server.calls().len(), 2);
    assert_eq!(rig.http.server().unwrap().version, "2025-11-25");
}

#[tokio::test]
async fn asks_go_beside_the_calls() {
    let server = Hostile::new(modern(|seen| match &*seen.method() {
        "tools/list" => result(seen, r#"{"tools":[ {"name":"a","n":1.10} ]}"#),
        "prompts/get" => result(seen, r#"{}"#),
        _ => Do::Write(vec![json(&format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-1}}}}"#, seen.id()))]),
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let limit = Duration::from_secs(5);
    let list = rig.http.ask("tools/list", Some(r#"{"cursor":"2"}"#), limit).await.unwrap();
    assert_eq!(list, r#"{"tools":[ {"name":"a","n":1.10} ]}"#.as_bytes());
    let asked = server.seen().pop().unwrap();
    assert_eq!(asked.header("mcp-method"), Some("tools/list"));
    assert!(asked.body.contains(r#""cursor":"2""#) && asked.body.contains("protocolVersion"), "{}", asked.body);
    rig.http.ask("prompts/get", Some(r#"{"name":"p q"}"#), limit).await.unwrap();
    assert_eq!(server.seen().pop().unwrap().header("mcp-name"), Some("p q"));
    assert_eq!(rig.http.ask("x", None, limit).await, Err(AskError::Rpc(r#"{"code":-1}"#.into())));
    assert_eq!(rig.slots_back(), 0);
}

#[tokio::test]
async fn c28_a_legacy_servers_questions_are_answered_on_a_request_of_their_own() {
    let server = Hostile::new(legacy(|seen| match &*seen.method() {
        "tools/call" => {
            let ping = "data: {\"jsonrpc\":\"2.0\",\"id\":\"p1\",\"method\":\"ping\"}\n\n";
            let sample = "data: {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"sampling/createMessage\"}\n\n";
            let event = format!("data: {}\n\n", result_text(seen, "{}"));
            Do::Write(chunked(&[ping.as_bytes(), sample.as_bytes(), event.as_bytes()], true))
        }
        _ => answer("202 Accepted", "", ""),
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("t", "{}").await.completed();
    let has = |seen: &[Seen], text: &str| seen.iter().any(|seen| seen.body.contains(text));
    server
        .until("both are answered", |seen, _| {
            has(seen, r#""id":"p1","result":{}"#) && has(seen, r#""id":5,"error":{"code":-32601"#)
        })
        .await;
}
