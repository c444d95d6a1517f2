//! Lists, and the names that lead from them to an upstream.

use super::*;

#[tokio::test]
async fn a_list_is_waited_for_no_longer_than_the_call_may_wait() {
    let limits = Limits { queue_timeout: Some(Duration::from_millis(200)), ..Setup::default().limits };
    let rig = Rig::with(&["up"], Setup { limits, ..Setup::default() }).await;
    let outcome = |got: Value| got["result"]["_meta"]["forebay/refusal"].clone();
    // The caller's own deadline.
    let got = rig.ask("/mcp", &[("Forebay-Timeout", "60ms")], &call_body("1", "up__t")).await.json();
    let refusal = outcome(got);
    assert_eq!((&refusal["by"], &refusal["executed"]), (&json!("deadline"), &json!("never")), "{refusal}");
    assert_eq!(rig.outcomes("", "expired", "deadline"), 1);
    // The upstream's: the wait for its list is a wait for it.
    let began = std::time::Instant::now();
    let got = rig.ask("/api/v1/tools/call", &[], r#"{"tool":"up__t"}"#).await;
    assert_eq!((got.status, &got.json()["call"]["executed"]), (503, &json!("never")), "{}", got.text());
    assert_eq!(rig.outcomes("up", "expired", "queue_timeout"), 1);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!((rig.counts("up").finished(), rig.servers["up"].seen().len()), (1, 1), "only opened");
}

#[tokio::test]
async fn cold_lists_are_fetched_once_and_side_by_side() {
    let rig = Rig::new(&["north", "north_"]).await;
    let gates: Vec<_> = ["north", "north_"].map(|name| rig.servers[name].hold_pages()).into();
    rig.servers["north"].page(Ok(r#"{"tools":[{"name":"a"}]}"#));
    rig.servers["north_"].page(Ok(r#"{"tools":[{"name":"ping"}]}"#));
    rig.servers["north_"].answer_instantly(true);
    let mut clients = Vec::new();
    for id in 0..8 {
        let mut client = rig.client().await;
        client.send(&rig.call("/mcp", &id.to_string(), "north___ping")).await;
        clients.push(client);
    }
    rig.until(|rig| rig.counts("").submitted == 8).await;
    // Both are asked before either has answered.
    rig.until(|rig| rig.servers.values().all(|server| server.asked().len() == 1)).await;
    gates.iter().rev().for_each(|gate| gate.add_permits(1));
    for (id, client) in clients.iter_mut().enumerate() {
        let got = client.read().await.json();
        assert_eq!((&got["id"], got["result"]["isError"].is_null()), (&json!(id), true), "{got}");
    }
    assert!(rig.servers.values().all(|server| server.asked().len() == 1));
    assert_eq!((rig.counts("").offered, rig.counts("north_").finished()), (0, 8));
}

#[tokio::test]
async fn c29_a_true_clash_is_refused_with_both_names() {
    let rig = Rig::new(&["north", "north_"]).await;
    rig.servers["north"].page(Ok(r#"{"tools":[{"name":"_ping"},{"name":"only"}]}"#));
    rig.servers["north_"].page(Ok(r#"{"tools":[{"name":"ping"},{"name":"a__b"}]}"#));
    rig.servers["north"].answer_instantly(true);
    rig.servers["north_"].answer_instantly(true);
    let got = rig.ask("/mcp", &[], &call_body("1", "north___ping")).await;
    assert_eq!(got.code(), -32602);
    assert!(got.text().contains("`_ping` of upstream `north`") && got.text().contains("`ping` of upstream `north_`"));
    assert_eq!((rig.counts("north").offered, rig.counts("north_").offered), (0, 0));
    assert_eq!(rig.outcomes("", "refused", "not_allowed"), 1);
    let list = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    let names: Vec<_> = list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["north__only", "north___a__b"]);
    for (name, upstream) in [("north__only", "north"), ("north___a__b", "north_")] {
        let got = rig.ask("/mcp", &[], &call_body("1", name)).await.json();
        assert_eq!(got["result"]["_meta"]["forebay/call"]["upstream"], upstream, "{got}");
    }
}

#[tokio::test]
async fn r32_an_unknown_tool_has_its_own_code_and_a_dead_upstream_is_no_unknown_tool() {
    let rig = Rig::new(&["dead", "up"]).await;
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"a"}]}"#));
    let is = |state| move |rig: &Rig| rig.ingress.dispatcher.upstream("dead").unwrap().status().state == state;
    rig.until(is(UpstreamState::Up)).await;
    rig.servers["dead"].tell(LinkEvent::Final { fault: "command not found".into() });
    rig.until(is(UpstreamState::Down)).await;
    for name in ["up__nothing", "nowhere__a", "a", "up_a", ""] {
        let got = rig.ask("/mcp", &[], &call_body("1", name)).await;
        assert_eq!(got.json()["error"], json!({ "code": -32602, "message": format!("Unknown tool: {name}") }));
    }
    assert_eq!(rig.outcomes("", "refused", "not_allowed"), 5);
    let got = rig.ask("/mcp", &[], &call_body("1", "dead__anything")).await.json();
    let refusal = &got["result"]["_meta"]["forebay/refusal"];
    assert_eq!((&refusal["reason"], &refusal["upstream"]), (&json!("upstream_down"), &json!("dead")), "{got}");
    // The list of the living is whole without it.
    let list = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.json();
    assert_eq!(list["result"], json!({ "tools": [{ "name": "up__a" }] }));
    // On its own endpoint the fault is told.
    let got = rig.ask("/mcp/dead", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    assert!(got.text().contains("command not found"), "{}", got.text());
}

#[tokio::test]
async fn c22_lists_come_whole_and_cursors_are_our_own() {
    let rig = Rig::new(&["paged", "plain"]).await;
    rig.servers["paged"].page(Ok(r#"{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"8"}"#));
    rig.servers["paged"].page(Ok(r#"{"tools":[{"name":"c"}]}"#));
    rig.servers["plain"].page(Ok(r#"{"tools":[{"name":"d","x":1.10}]}"#));
    let list = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    assert_eq!(
        list.text(),
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"paged__a"},{"name":"paged__b"},{"name":"paged__c"},{"name":"plain__d","x":1.10}]}}"#
    );
    let got = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"8"}}"#).await;
    assert_eq!(got.code(), -32602);
    // Both upstreams were asked once for each page: the second list came from the cache.
    assert_eq!((rig.servers["paged"].asked().len(), rig.servers["plain"].asked().len()), (2, 1));
    let prompts = rig.ask("/mcp", &[], r#"{"jsonrpc":"2.0","id":3,"method":"prompts/list"}"#).await.json();
    assert_eq!(prompts["result"], json!({ "prompts": [] }));
}
