//! Answers that become streams, and streams that belong to no call.

use super::*;

fn progress(value: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":7,"progress":{value}}}}}"#
    )
}

fn with_token(id: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{}},"_meta":{{"progressToken":"tok"{meta}}}}}}}"#
    )
}

const MODERN: &str =
    r#","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
const MODERN_CALL: [(&str, &str); 3] =
    [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "echo")];

#[tokio::test]
async fn r29_what_a_server_says_first_makes_its_answer_a_stream() {
    let rig = Rig::new(&["up"]).await;
    let mut client = rig.client().await;
    client.send(&rig.post("/mcp/up", &[], &with_token("5", ""))).await;
    rig.until_running("up", 1).await;
    assert!(rig.servers["up"].says(&progress("1")));
    let head = client.until(r#""progressToken":"tok","progress":1}}"#).await;
    assert!(head.contains("content-type: text/event-stream") && head.contains("x-accel-buffering: no"), "{head}");
    assert!(rig.servers["up"].says(&progress("1")) && rig.servers["up"].says(&progress("1.5")));
    rig.servers["up"].answer_next();
    let rest = client.until("\r\n0\r\n\r\n").await;
    let (news, answer) = (rest.find(r#""progress":1.5"#).unwrap(), rest.find(r#""id":5,"#).unwrap());
    assert!(news < answer && !rest.contains(r#""progress":1}"#), "{rest}");
    assert_eq!(rig.outcomes("up", "completed", ""), 1);
    // The connection serves the next request.
    let got = client.ask(&rig.post("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await;
    assert_eq!(got.status, 200);
}

#[tokio::test]
async fn a_client_that_takes_no_stream_gets_its_answer_alone() {
    let rig = Rig::new(&["up"]).await;
    let body = with_token("5", "");
    let request = String::from_utf8(rig.post("/mcp/up", &[], &body)).unwrap().replace(", text/event-stream", "");
    let mut client = rig.client().await;
    client.send(request.as_bytes()).await;
    rig.until_running("up", 1).await;
    assert!(!rig.servers["up"].says(&progress("1")));
    rig.servers["up"].answer_next();
    assert_eq!(client.read().await.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn c04_a_cancel_behind_a_stream_ends_it_without_a_message() {
    let rig = Rig::new(&["up"]).await;
    let mut client = rig.client().await;
    client.send(&rig.post("/mcp/up", &[], &with_token("5", ""))).await;
    rig.until_running("up", 1).await;
    rig.servers["up"].says(&progress("1"));
    client.until(r#""progress":1"#).await;
    client.send(&rig.post("/mcp/up", &[], &cancel_body("5"))).await;
    let rest = client.until("\r\n0\r\n\r\n").await;
    assert!(!rest.contains("result"), "{rest}");
    assert_eq!(client.read().await.status, 202);
    assert_eq!(rig.outcomes("up", "cancelled", "caller"), 1);
}

#[tokio::test]
async fn a_closed_stream_is_a_modern_clients_cancel() {
    let rig = Rig::new(&["up"]).await;
    let mut client = rig.client().await;
    client.send(&rig.post("/mcp/up", &MODERN_CALL, &with_token("5", MODERN))).await;
    rig.until_running("up", 1).await;
    rig.servers["up"].says(&progress("1"));
    client.until(r#""progress":1"#).await;
    drop(client);
    rig.until(|rig| rig.outcomes("up", "cancelled", "caller") == 1).await;
}

#[tokio::test]
async fn c27_a_session_hears_of_changed_lists_on_its_stream() {
    let rig = Rig::new(&["up"]).await;
    let session = rig.session(&[]).await;
    let get = |session: &str| {
        format!(
            "GET /mcp HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n",
            rig.address
        )
    };
    let mut client = rig.client().await;
    assert_eq!(client.ask(get(&"0".repeat(32)).as_bytes()).await.status, 404);
    client.send(get(&session).as_bytes()).await;
    client.until(": keep-alive\n\n").await;
    rig.servers["up"].tell(LinkEvent::ListsChanged);
    let told = client.until("notifications/resources/list_changed").await;
    assert!(told.contains(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#), "{told}");
    let delete = format!("DELETE /mcp HTTP/1.1\r\nHost: {}\r\nMcp-Session-Id: {session}\r\n\r\n", rig.address);
    assert_eq!(rig.client().await.ask(delete.as_bytes()).await.status, 204);
    client.until("\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn a_modern_client_listens_to_what_it_asked_for() {
    let rig = Rig::new(&["up"]).await;
    let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
    let listen = |what: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{{"notifications":{what},{META}}}}}"#
        )
    };
    let mut client = rig.client().await;
    client.send(&rig.post("/mcp", &headers, &listen(r#"{"promptsListChanged":true}"#))).await;
    let first = client.until("}}}\n\n").await;
    assert!(first.contains(r#""method":"notifications/subscriptions/acknowledged","params":{"notifications":{"promptsListChanged":true}"#), "{first}");
    rig.servers["up"].tell(LinkEvent::ListsChanged);
    let told = client.until("list_changed").await + &client.until("}}}\n\n").await;
    assert!(told.contains("notifications/prompts/list_changed") && !told.contains("tools"), "{told}");
    assert!(told.contains(r#""io.modelcontextprotocol/subscriptionId":"L""#), "{told}");
    let got = rig.ask("/mcp", &headers, &listen("7")).await;
    assert_eq!(got.code(), -32602);
    rig.ingress.close();
    let end = client.until("\r\n0\r\n\r\n").await;
    assert!(end.contains(r#""id":"L","result":{"resultType":"complete""#), "{end}");
}
