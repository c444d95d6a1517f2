//! Who calls: keys, what each may use, sessions, and rates.

use super::*;

#[tokio::test]
async fn r34_a_key_is_needed_and_wrong_ones_are_answered_alike() {
    let (setup, alice, _) = alice_and_bob(|_| {});
    let rig = Rig::with(&["up"], setup).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(rig.ask("/mcp", &[("Authorization", &alice)], body).await.status, 200);
    let unknown = format!("Bearer {}", Key::new([9; 32]).expose());
    let mut answers = Vec::new();
    let wrong: [&[(&str, &str)]; 5] = [
        &[],
        &[("Authorization", "Bearer nonsense")],
        &[("Authorization", &unknown)],
        &[("Authorization", "Basic eA==")],
        &[("Authorization", &alice), ("Authorization", &alice)],
    ];
    for headers in wrong {
        let got = rig.ask("/mcp", headers, body).await;
        assert_eq!((got.status, got.header("www-authenticate")), (401, Some("Bearer")));
        answers.push(got.body);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
}

#[tokio::test]
async fn c35_limits_are_the_callers_and_wrong_keys_have_their_own() {
    let (setup, alice, bob) =
        alice_and_bob(|config| config.rate = Some(crate::config::Rate { per_second: 5.0 / 60.0, burst: 5 }));
    let rig = Rig::with(&["up"], setup).await;
    rig.servers["up"].answer_instantly(true);
    let body = call_body("1", "echo");
    let mut served = 0;
    for _ in 0..20 {
        let key = ("Authorization", &*alice);
        let session = rig.session(&[key]).await;
        let got = rig.ask("/mcp/up", &[key], &body).await.json();
        let refused = &got["result"]["_meta"]["forebay/refusal"]["reason"];
        served += u32::from(refused.is_null());
        assert!(refused.is_null() || refused == "caller_rate", "{got}");
        let head = format!(
            "DELETE /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: {alice}\r\nMcp-Session-Id: {session}\r\n\r\n",
            rig.address
        );
        assert_eq!(rig.client().await.ask(head.as_bytes()).await.status, 204);
    }
    assert_eq!(served, 5);
    let mut slowed = 0;
    for round in 0..1000 {
        let got = rig.ask("/mcp/up", &[("Authorization", "Bearer wrong")], &body).await;
        match got.status {
            401 => {}
            429 => {
                slowed += 1;
                assert!(got.header("retry-after").is_some());
            }
            other => panic!("{other}"),
        }
        if round % 400 == 399 {
            let got = rig.ask("/mcp/up", &[("Authorization", &bob)], &body).await.json();
            assert!(got["result"]["isError"].is_null(), "{got}");
        }
    }
    assert!(slowed >= 950, "{slowed}");
    let got = rig.ask("/mcp/up", &[("Authorization", &bob)], &body).await.json();
    assert!(got["result"]["isError"].is_null(), "bob gets his third: {got}");
}

#[tokio::test]
async fn handshakes_and_lists_have_a_rate_of_their_own_by_caller() {
    let (setup, alice, bob) = alice_and_bob(|_| {});
    let bounds = Bounds { asks: Rate { per_second: 0.01, burst: 3 }, ..Bounds::default() };
    let rig = Rig::with(&["up"], Setup { bounds, ..setup }).await;
    rig.servers["up"].answer_instantly(true);
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"t"}]}"#));
    let list = r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#;
    let key = [("Authorization", &*alice)];
    rig.session(&key).await;
    for _ in 0..2 {
        assert_eq!(rig.ask("/mcp", &key, list).await.status, 200);
    }
    let hello = r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    for body in [list, hello] {
        let got = rig.ask("/mcp", &key, body).await;
        assert_eq!((got.status, got.code(), &got.json()["id"]), (429, -31429, &json!(9)));
        assert!(
            got.header("retry-after").is_some() && got.json()["error"]["data"]["retry_after_ms"].as_u64() > Some(0)
        );
    }
    let rest =
        |key: &str| format!("GET /api/v1/tools HTTP/1.1\r\nHost: {}\r\nAuthorization: {key}\r\n\r\n", rig.address);
    assert_eq!(rig.client().await.ask(rest(&alice).as_bytes()).await.status, 429);
    // Her calls are not meant, nor is anybody else.
    assert!(rig.ask("/mcp", &key, &call_body("1", "up__t")).await.json()["result"]["isError"].is_null());
    assert_eq!(rig.client().await.ask(rest(&bob).as_bytes()).await.status, 200);
}

#[tokio::test]
async fn c31_a_session_of_somebody_else_does_not_exist() {
    let (setup, alice, bob) = alice_and_bob(|_| {});
    let rig = Rig::with(&["up"], setup).await;
    let session = rig.session(&[("Authorization", &alice)]).await;
    assert_eq!(session.len(), 32);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let with = |key: &str, method: &str| {
        let (length, body) = if method == "POST" { (ping.len(), ping) } else { (0, "") };
        format!(
            "{method} /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: {key}\r\nMcp-Session-Id: {session}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}",
            rig.address
        )
    };
    for method in ["POST", "DELETE"] {
        assert_eq!(rig.client().await.ask(with(&bob, method).as_bytes()).await.status, 404, "{method}");
    }
    assert_eq!(rig.client().await.ask(with(&alice, "POST").as_bytes()).await.status, 200);
    // Bob's cancel of Alice's id, with and without her session, means nothing.
    let mut client = rig.client().await;
    let headers = [("Authorization", &*alice), ("Mcp-Session-Id", &*session)];
    // Her session belongs to /mcp, so her call goes there.
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"hold"}]}"#));
    client.send(&rig.post("/mcp", &headers, &call_body("41", "up__hold"))).await;
    rig.until_running("up", 1).await;
    let got = rig.ask("/mcp", &[("Authorization", &*bob), headers[1]], &cancel_body("41")).await;
    assert_eq!(got.status, 404);
    let got = rig.ask("/mcp", &[("Authorization", &*bob)], &cancel_body("41")).await;
    assert_eq!(got.status, 202);
    assert_eq!(rig.servers["up"].at_server().len(), 1);
    rig.servers["up"].answer_next();
    assert_eq!(client.read().await.json()["id"], 41);
    assert_eq!(rig.client().await.ask(with(&alice, "DELETE").as_bytes()).await.status, 204);
    assert_eq!(rig.client().await.ask(with(&alice, "POST").as_bytes()).await.status, 404);
}

#[tokio::test]
async fn hidden_tools_are_as_if_they_were_not() {
    let (setup, alice, bob) = alice_and_bob(|config| config.tools = Some(vec!["up__a".into()]));
    let rig = Rig::with(&["up"], setup).await;
    rig.servers["up"].answer_instantly(true);
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"a"},{"name":"b"}]}"#));
    let key = [("Authorization", &*alice)];
    let list = rig.ask("/mcp", &key, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    assert_eq!(list["result"], json!({ "tools": [{ "name": "up__a" }] }));
    let list = rig.ask("/mcp/up", &key, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    assert_eq!(list["result"], json!({ "tools": [{ "name": "a" }] }));
    for path in ["/mcp", "/mcp/up"] {
        let prefix = if path == "/mcp" { "up__" } else { "" };
        let hidden = rig.ask(path, &key, &call_body("1", &format!("{prefix}b"))).await;
        assert_eq!(
            hidden.text(),
            format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32602,"message":"Unknown tool: {prefix}b"}}}}"#)
        );
        let seen = rig.ask(path, &key, &call_body("1", &format!("{prefix}a"))).await.json();
        assert!(seen["error"].is_null(), "{seen}");
    }
    let rest = |tool: &str| format!(r#"{{"upstream":"up","tool":"{tool}"}}"#);
    let hidden = rig.ask("/api/v1/tools/call", &[("Authorization", &bob)], &rest("b")).await;
    assert_eq!(hidden.status, 404);
    let tools = "GET /api/v1/tools HTTP/1.1\r\n";
    let head = format!("{tools}Host: {}\r\nAuthorization: {bob}\r\n\r\n", rig.address);
    let got = rig.client().await.ask(head.as_bytes()).await.json();
    assert_eq!(got, json!({ "tools": [{ "upstream": "up", "tool": "a", "definition": { "name": "a" } }] }));
}
