//! The bound on memory (rule R16), from the body to the last byte of the answer.

use super::*;

/// More than the kernel takes for a client that does not read.
fn large_message() -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"x":"{}"}}}}"#, "y".repeat(24 << 20)).into_bytes()
}

#[tokio::test]
async fn r16_a_result_is_charged_until_it_is_written_and_newcomers_are_refused_meanwhile() {
    let global = Global { max_bytes: 16 << 20, ..Global::default() };
    let rig = Rig::with(&["up"], Setup { global, ..Setup::default() }).await;
    let held = |rig: &Rig| rig.ingress.dispatcher.memory().held();
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"t"}]}"#));
    let (mut slow, mut behind) = (rig.client().await, rig.client().await);
    slow.send(&rig.call("/mcp/up", "1", "big")).await;
    rig.until_running("up", 1).await;
    behind.send(&rig.call("/mcp/up", "2", "next")).await;
    rig.until(|rig| rig.queued("up") == 1).await;
    rig.servers["up"].answer_next_with(&large_message());
    rig.until_running("up", 1).await;
    assert!(held(&rig) >= 24 << 20, "{}", held(&rig));
    // A newcomer is refused on both faces, what is in the house goes on.
    let got = rig.ask("/mcp/up", &[], &call_body("3", "t")).await.json();
    assert_eq!(got["result"]["_meta"]["forebay/refusal"]["reason"], "overloaded", "{got}");
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"upstream":"up","tool":"t"}"#).await;
    assert_eq!((got.status, &got.json()["refusal"]["reason"]), (503, &json!("overloaded")));
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    assert_eq!(rig.ask("/mcp/up", &[], list).await.code(), -31429);
    let head = format!("GET /api/v1/tools HTTP/1.1\r\nHost: {}\r\n\r\n", rig.address);
    assert_eq!(rig.client().await.ask(head.as_bytes()).await.status, 503);
    rig.servers["up"].answer_next();
    assert_eq!(behind.read().await.json()["id"], 2);
    // One who reads gets all of it, however large, and then there is room again.
    assert!(slow.read().await.body.len() > 24 << 20);
    rig.until(|rig| held(rig) == 0).await;
    rig.servers["up"].answer_instantly(true);
    let got = rig.ask("/mcp/up", &[], &call_body("4", "t")).await.json();
    assert!(got["result"]["isError"].is_null(), "{got}");
    assert_eq!(rig.ask("/mcp/up", &[], list).await.json()["result"]["tools"][0]["name"], "t");
    rig.until(|rig| held(rig) == 0).await;
    let counts = rig.counts("up");
    assert_eq!((counts.offered, counts.finished(), counts.unaccounted()), (5, 5, 0));
    assert_eq!((rig.outcomes("up", "completed", ""), rig.outcomes("up", "refused", "overloaded")), (3, 2));
}

#[tokio::test]
async fn r16_a_client_that_does_not_read_loses_its_socket_and_gives_its_bytes_back() {
    let bounds = Bounds { write_stall: Duration::from_millis(300), ..Bounds::default() };
    let rig = Rig::with(&["up"], Setup { bounds, ..Setup::default() }).await;
    let held = |rig: &Rig| rig.ingress.dispatcher.memory().held();
    let mut deaf = rig.client().await;
    deaf.send(&rig.call("/mcp/up", "1", "big")).await;
    rig.until_running("up", 1).await;
    rig.servers["up"].answer_next_with(&large_message());
    rig.until(|rig| rig.ingress.open_sockets() == 0).await;
    assert_eq!(held(&rig), 0);
    let counts = rig.counts("up");
    assert_eq!((counts.offered, counts.finished(), rig.outcomes("up", "completed", "")), (1, 1, 1));
    drop(deaf);
}
