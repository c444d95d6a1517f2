//! What callers are told: ids, refusals, deadlines, and the codes of both faces.

use super::*;

#[tokio::test]
async fn c23_ids_come_back_as_they_were_written() {
    let rig = Rig::new(&["up"]).await;
    rig.servers["up"].answer_instantly(true);
    let mut client = rig.client().await;
    for id in ["0", "\"0\"", "-1", "9007199254740993", "\"\"", "\"1\"", "1", "123456789012345678901234567890"] {
        let got = client.ask(&rig.call("/mcp/up", id, "echo")).await;
        assert_eq!(got.header("content-type"), Some("application/json"));
        assert!(got.text().contains(&format!(r#""id":{id},"#)), "{}", got.text());
        let got =
            client.ask(&rig.post("/mcp", &[], &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#))).await;
        assert_eq!(got.text(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
    let got = client.ask(&rig.post("/mcp", &[], "{")).await;
    assert_eq!((got.status, got.code(), &got.json()["id"]), (400, -32700, &Value::Null));
}

#[tokio::test]
async fn a_modern_request_is_held_to_its_headers() {
    let rig = Rig::new(&["up"]).await;
    rig.servers["up"].answer_instantly(true);
    let version = ("MCP-Protocol-Version", "2026-07-28");
    let modern = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"m","method":"{method}","params":{{{params}{META}}}}}"#)
    };
    let got = rig.ask("/mcp", &[version, ("Mcp-Method", "server/discover")], &modern("server/discover", "")).await;
    let result = &got.json()["result"];
    assert_eq!(
        (got.status, &result["resultType"], &result["cacheScope"]),
        (200, &json!("complete"), &json!("private"))
    );
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(result["capabilities"], json!({ "tools": {} }));
    let call = modern("tools/call", r#""name":"t","#);
    let good = [version, ("Mcp-Method", "tools/call"), ("Mcp-Name", "t"), ("Mcp-Param-X", "ignored")];
    let got = rig.ask("/mcp/up", &good, &call).await;
    assert_eq!(got.json()["result"]["resultType"], "complete");
    for wrong in [&good[..2], &good[1..], &[version, ("Mcp-Method", "tools/call"), ("Mcp-Name", "u")]] {
        let got = rig.ask("/mcp/up", wrong, &call).await;
        assert_eq!((got.status, got.code(), &got.json()["id"]), (400, -32020, &json!("m")), "{wrong:?}");
    }
    let got = rig.ask("/mcp", &[version, ("Mcp-Method", "ping")], &modern("ping", "")).await;
    assert_eq!((got.status, got.code()), (404, -32601));
    let strange = [("MCP-Protocol-Version", "2031-01-01"), ("Mcp-Method", "tools/list")];
    let got = rig.ask("/mcp", &strange, &modern("tools/list", "").replace("2026-07-28", "2031-01-01")).await;
    assert_eq!(
        (got.status, got.code(), &got.json()["error"]["data"]["requested"]),
        (400, -32022, &json!("2031-01-01"))
    );
}

#[tokio::test]
async fn a_full_queue_is_told_on_both_faces() {
    let limits =
        Limits { max_concurrent: crate::config::Concurrency::Fixed(1), queue_size: 0, ..Limits::built_in(true) };
    let rig = Rig::with(&["up"], Setup { limits, ..Setup::default() }).await;
    let mut running = rig.client().await;
    running.send(&rig.call("/mcp/up", "1", "t")).await;
    rig.until_running("up", 1).await;
    let got = rig.ask("/mcp/up", &[], &call_body("2", "t")).await.json();
    assert_eq!((&got["id"], &got["result"]["isError"]), (&json!(2), &json!(true)));
    let refusal = &got["result"]["_meta"]["forebay/refusal"];
    assert_eq!((&refusal["reason"], &refusal["executed"]), (&json!("concurrency_limit"), &json!("never")));
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t"}"#).await;
    assert_eq!((got.status, got.header("retry-after").is_some()), (429, true));
    assert_eq!(got.json()["refusal"]["reason"], "concurrency_limit");
    rig.servers["up"].answer_next();
    assert_eq!(running.read().await.status, 200);
    rig.servers["up"].answer_instantly(true);
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t","arguments":{"n":1}}"#).await;
    assert_eq!((got.status, &got.json()["_meta"]["forebay/call"]["outcome"]), (200, &json!("completed")));
}

#[tokio::test]
async fn c02_a_callers_deadline_is_told_in_any_of_its_places() {
    let rig = Rig::new(&["up"]).await;
    let mut running = rig.client().await;
    running.send(&rig.call("/mcp/up", "1", "t")).await;
    rig.until_running("up", 1).await;
    let got = rig.ask("/mcp/up", &[("Forebay-Timeout", "60ms")], &call_body("2", "t")).await.json();
    assert_eq!(got["result"]["_meta"]["forebay/call"]["outcome"], "expired", "{got}");
    let meta =
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","_meta":{"forebay/timeout_ms":60}}}"#;
    let got = rig.ask("/mcp/up", &[], meta).await.json();
    assert_eq!(got["result"]["_meta"]["forebay/refusal"]["by"], "deadline", "{got}");
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t","timeout_ms":60}"#).await;
    assert_eq!((got.status, &got.json()["call"]["outcome"]), (503, &json!("expired")));
    let got = rig.ask("/mcp/up", &[("Forebay-Timeout", "60")], &call_body("2", "t")).await;
    assert_eq!((got.status, got.code()), (400, -32602));
    assert_eq!(rig.servers["up"].at_server().len(), 1);
}

#[tokio::test]
async fn r01_a_request_claims_a_call_that_nobody_ends() {
    let rig = Rig::new(&["up"]).await;
    // An upstream whose link never comes up, and an actor that is told nothing: only the deadline is left.
    rig.servers["up"].up_on_open(None);
    rig.servers["up"].tell(LinkEvent::Down { fault: "gone".into(), retry_in: Duration::from_millis(10) });
    let began = std::time::Instant::now();
    let got = rig.ask("/mcp/up", &[("Forebay-Timeout", "150ms")], &call_body("1", "t")).await.json();
    assert_eq!(got["result"]["_meta"]["forebay/call"]["executed"], "never", "{got}");
    assert!(began.elapsed() < Duration::from_secs(5));
    let counts = rig.counts("up");
    assert_eq!(counts.offered, counts.outcomes.iter().sum::<u64>());
}

#[tokio::test]
async fn r01_a_dead_actor_holds_no_request_beyond_its_deadline() {
    let rig = Rig::new(&["up"]).await;
    // Its supervisor lives on a runtime that nobody drives: the upstream is there, its actor never comes to life.
    let still = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let supervisor = Supervisor::start(still.handle(), Gates::new(&Global::default()), 1);
    let config = UpstreamConfig { name: "dead".into(), ..(**rig.servers["up"].shared().config.load()).clone() };
    let shared = UpstreamShared::new(Arc::new(config));
    let server = Scripted::new(&shared);
    rig.ingress.dispatcher.add_upstream(Upstream::start(shared, server.clone(), &supervisor));
    let ask = r#"{"upstream":"dead","tool":"t","timeout_ms":200}"#;
    let began = std::time::Instant::now();
    let got = rig.ask("/api/v1/tools/call", &[], ask).await;
    let took = began.elapsed();
    assert_eq!((got.status, &got.json()["call"]["outcome"]), (503, &json!("expired")), "{}", got.text());
    assert_eq!(got.json()["call"]["executed"], "never");
    assert!(took >= Duration::from_millis(200), "{took:?}");
    // The claim comes a tick or two later; the rest is for a machine that is busy.
    assert!(took < Duration::from_secs(2), "{took:?}");
    let legacy = rig.ask("/mcp/dead", &[("Forebay-Timeout", "200ms")], &call_body("1", "t")).await.json();
    assert_eq!(legacy["result"]["_meta"]["forebay/refusal"]["by"], "deadline", "{legacy}");
    let counts = rig.counts("dead");
    assert_eq!((counts.offered, counts.submitted), (2, 0));
    assert_eq!(counts.outcomes[Outcome::Expired(crate::outcome::ExpiredBy::Deadline).index()], 2);
    assert!(server.seen().is_empty());
    drop(supervisor);
    still.shutdown_background();
}

/// One REST call that ends as `end` makes it end.
async fn rest_ending(rig: &Rig, end: impl AsyncFnOnce(&Rig)) -> (u16, bool, String, String) {
    let mut client = rig.client().await;
    client.send(&rig.post("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t"}"#)).await;
    end(rig).await;
    let got = client.read().await;
    let body = got.json();
    let refusal = &body["refusal"];
    let outcome = body["call"]["outcome"].as_str().unwrap_or_default();
    let reason = refusal["reason"].as_str().unwrap_or_default();
    assert!(got.status == 200 || refusal["executed"].is_string(), "{body}");
    (got.status, got.header("retry-after").is_some(), outcome.to_owned(), reason.to_owned())
}

fn told(status: u16, later: bool, outcome: &str, reason: &str) -> (u16, bool, String, String) {
    (status, later, outcome.into(), reason.into())
}

#[tokio::test]
async fn r26_each_ending_has_its_code_on_the_wire() {
    let limits = Limits { queue_size: 1, call_timeout: Some(Duration::from_millis(150)), ..Setup::default().limits };
    let rig = Rig::with(&["up"], Setup { limits, ..Setup::default() }).await;
    let first = |rig: &Rig| rig.servers["up"].at_server()[0];
    let got = rest_ending(&rig, async |rig| rig.until_running("up", 1).await).await;
    assert_eq!(got, told(504, false, "timed_out", "timed_out"));
    rig.until_running("up", 0).await;
    let got = rest_ending(&rig, async |rig| {
        rig.until_running("up", 1).await;
        rig.servers["up"].lose(first(rig), true);
    });
    assert_eq!(got.await, told(502, false, "lost", "lost"));
    let got = rest_ending(&rig, async |rig| {
        rig.until_running("up", 1).await;
        rig.servers["up"].answer_next_with(br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}"#);
    });
    assert_eq!(got.await, told(502, false, "upstream_error", "upstream_error"));
    let got = rest_ending(&rig, async |rig| {
        rig.until_running("up", 1).await;
        let call = rig.ingress.dispatcher.live_calls().remove(0);
        rig.ingress.dispatcher.cancel_call(&call, crate::outcome::CancelledBy::Operator);
    });
    assert_eq!(got.await, told(409, false, "cancelled", "cancelled"));
    rig.until_running("up", 0).await;
    rig.servers["up"].answer_instantly(true);
    let failed = br#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}"#;
    assert_eq!(rest_ending(&rig, async |_| ()).await.0, 200);
    rig.servers["up"].answer_instantly(false);
    let mut client = rig.client().await;
    client.send(&rig.post("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t"}"#)).await;
    rig.until_running("up", 1).await;
    rig.servers["up"].answer_next_with(failed);
    let got = client.read().await;
    assert_eq!((got.status, &got.json()["isError"]), (200, &json!(true)));
    // 404 alike for what is not there; 429 and 503 are in the tests of queues, deadlines, memory and states.
    for ask in [r#"{"upstream":"none","tool":"t"}"#, r#"{"tool":"none__t"}"#] {
        let got = rig.ask("/api/v1/tools/call", &[], ask).await;
        assert_eq!((got.status, &got.json()["refusal"]["reason"]), (404, &json!("not_allowed")), "{ask}");
    }
    rig.ingress.dispatcher.stop_admitting();
    let got = rest_ending(&rig, async |_| ()).await;
    assert_eq!(got, told(503, true, "refused", "draining"));
}

#[tokio::test]
async fn r06_the_ledgers_add_up_whatever_becomes_of_a_call() {
    let rig = Rig::new(&["up"]).await;
    rig.servers["up"].answer_instantly(true);
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"t"}]}"#));
    for (path, tool) in [("/mcp", "up__t"), ("/mcp", "up__none"), ("/mcp", "none"), ("/mcp/up", "t")] {
        rig.ask(path, &[], &call_body("1", tool)).await;
    }
    for body in [r#"{"upstream":"up","tool":"t"}"#, r#"{"upstream":"none","tool":"t"}"#, r#"{"tool":"up__t"}"#] {
        rig.ask("/api/v1/tools/call", &[], body).await;
    }
    let (front, up) = (rig.counts(""), rig.counts("up"));
    assert_eq!((front.offered, rig.outcomes("", "refused", "not_allowed")), (3, 3));
    assert_eq!((up.offered, rig.outcomes("up", "completed", "")), (4, 4));
    assert_eq!((front.unaccounted(), up.unaccounted()), (0, 0));
}
