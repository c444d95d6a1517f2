//! Cancels and disconnects, in both eras and at every moment of a call.

use super::*;

#[tokio::test]
async fn c26_one_id_for_two_calls_gives_each_its_own_answer() {
    let rig = Rig::new(&["up", "two"]).await;
    let session = rig.session(&[]).await;
    let headers = [("Mcp-Session-Id", &*session)];
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"a"}]}"#));
    rig.servers["two"].page(Ok(r#"{"tools":[{"name":"b"}]}"#));
    let (mut one, mut two) = (rig.client().await, rig.client().await);
    one.send(&rig.post("/mcp", &headers, &call_body("1", "up__a"))).await;
    two.send(&rig.post("/mcp", &headers, &call_body("1", "two__b"))).await;
    rig.until_running("up", 1).await;
    rig.until_running("two", 1).await;
    // Which of the two is meant nobody can say.
    assert_eq!(rig.ask("/mcp", &headers, &cancel_body("1")).await.status, 202);
    assert_eq!((rig.servers["up"].at_server().len(), rig.servers["two"].at_server().len()), (1, 1));
    rig.servers["two"].answer_next();
    let upstream = |got: &client::Got| got.json()["result"]["_meta"]["forebay/call"]["upstream"].clone();
    assert_eq!(upstream(&two.read().await), "two");
    // One is left, so now it is clear.
    assert_eq!(rig.ask("/mcp", &headers, &cancel_body("1")).await.status, 202);
    let got = one.read().await;
    assert_eq!((got.header("content-type"), got.body.len()), (Some("text/event-stream"), 0));
    // The id may be used again.
    one.send(&rig.post("/mcp", &headers, &call_body("1", "up__a"))).await;
    rig.until_running("up", 1).await;
    rig.servers["up"].answer_next();
    assert_eq!(upstream(&one.read().await), "up");
}

#[tokio::test]
async fn c04_a_cancel_is_answered_at_once_and_ends_what_it_names() {
    let rig = Rig::new(&["up"]).await;
    let (mut running, mut queued) = (rig.client().await, rig.client().await);
    running.send(&rig.call("/mcp/up", "41", "slow")).await;
    rig.until_running("up", 1).await;
    queued.send(&rig.call("/mcp/up", "\"41\"", "slow")).await;
    rig.until(|rig| rig.queued("up") == 1).await;
    for (client, id) in [(&mut queued, "\"41\""), (&mut running, "41")] {
        assert_eq!(rig.ask("/mcp/up", &[], &cancel_body(id)).await.status, 202);
        let got = client.read().await;
        assert_eq!((got.status, got.header("content-type")), (200, Some("text/event-stream")));
        assert!(got.body.is_empty());
    }
    rig.until(|rig| rig.servers["up"].at_server().is_empty()).await;
    assert_eq!(rig.outcomes("up", "cancelled", "caller"), 2);
    let begun = |seen: &&Seen| matches!(seen, Seen::Begin(_));
    assert_eq!(rig.servers["up"].seen().iter().filter(begun).count(), 1, "the queued one never ran");
}

#[tokio::test]
async fn a_cancel_in_the_packet_of_its_call_is_neither_lost_nor_late() {
    let rig = Rig::new(&["up"]).await;
    let session = rig.session(&[]).await;
    let headers = [("Mcp-Session-Id", &*session)];
    let mut blocker = rig.client().await;
    blocker.send(&rig.call("/mcp/up", "1", "slow")).await;
    rig.until_running("up", 1).await;
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"slow"}]}"#));
    rig.ask("/mcp", &headers, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    let mut client = rig.client().await;
    for round in 0..200 {
        let id = round.to_string();
        let call = rig.post("/mcp", &headers, &call_body(&id, "up__slow"));
        let cancel = rig.post("/mcp", &headers, &cancel_body(&id));
        client.send(&[call, cancel].concat()).await;
        let got = client.read().await;
        assert_eq!((got.status, got.header("content-type")), (200, Some("text/event-stream")), "{}", got.text());
        assert_eq!(client.read().await.status, 202);
    }
    assert_eq!(rig.outcomes("up", "cancelled", "caller"), 200);
    // A cancel that carries other credentials or another session is not heeded early.
    let call = rig.post("/mcp", &headers, &call_body("7", "up__slow"));
    let strange = rig.post("/mcp", &[], &cancel_body("7"));
    let own = rig.post("/mcp", &headers, &cancel_body("7"));
    client.send(&[call, strange, own].concat()).await;
    assert_eq!(client.read().await.header("content-type"), Some("text/event-stream"));
    assert_eq!(client.read().await.status, 202);
    assert_eq!(client.read().await.status, 202);
    // And the connection is as good as ever.
    client.send(&rig.post("/mcp", &headers, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await;
    assert_eq!(client.read().await.status, 200);
    rig.servers["up"].answer_next();
    assert_eq!(blocker.read().await.status, 200);
}

#[tokio::test]
async fn c04_a_cancel_finds_a_call_whose_list_is_still_waited_for() {
    let rig = Rig::new(&["up"]).await;
    let session = rig.session(&[]).await;
    let headers = [("Mcp-Session-Id", &*session)];
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"t"}]}"#));
    let list = rig.servers["up"].hold_pages();
    // R6: before its upstream is known a call is counted under none.
    let submitted = |rig: &Rig| rig.counts("").submitted;
    let call = |id: &str| rig.post("/mcp", &headers, &call_body(id, "up__t"));
    let cancel = rig.post("/mcp", &headers, &cancel_body("41"));
    // From another connection.
    let mut client = rig.client().await;
    client.send(&call("41")).await;
    rig.until(|rig| submitted(rig) == 1).await;
    assert_eq!(rig.client().await.ask(&cancel).await.status, 202);
    let got = client.read().await;
    assert_eq!((got.header("content-type"), got.body.len()), (Some("text/event-stream"), 0));
    // In the packet of its call.
    client.send(&[call("41"), cancel].concat()).await;
    assert_eq!(client.read().await.header("content-type"), Some("text/event-stream"));
    assert_eq!(client.read().await.status, 202);
    // By an operator, who finds it in the live table.
    client.send(&call("42")).await;
    rig.until(|rig| submitted(rig) == 1).await;
    let live = rig.ingress.dispatcher.live_calls();
    assert_eq!((&**live[0].upstream(), &**live[0].target()), ("", "up__t"));
    rig.ingress.dispatcher.cancel_call(&live[0], crate::outcome::CancelledBy::Operator);
    let got = client.read().await.json();
    assert_eq!(got["result"]["_meta"]["forebay/call"]["outcome"], "cancelled", "{got}");
    // By closing, in both eras.
    let modern = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"up__t",{META}}}}}"#);
    let version = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "up__t")];
    for (ended, request) in [(3, rig.post("/mcp", &version, &modern)), (0, call("43"))] {
        let mut client = rig.client().await;
        client.send(&request).await;
        rig.until(|rig| submitted(rig) == 1).await;
        drop(client);
        rig.until(|rig| submitted(rig) == 0).await;
        if ended > 0 {
            assert_eq!(rig.outcomes("", "cancelled", "caller"), ended);
        }
    }
    assert_eq!(rig.outcomes("", "cancelled", "disconnect"), 1);
    // The list comes: none of them is sent, and who still waits is.
    client.send(&call("44")).await;
    rig.until(|rig| submitted(rig) == 1).await;
    assert_eq!((rig.counts("up").offered, rig.servers["up"].asked().len()), (0, 1), "one fetch for all who wait");
    list.add_permits(1);
    rig.until_running("up", 1).await;
    rig.servers["up"].answer_next();
    assert_eq!(client.read().await.json()["id"], 44);
    let begun = |seen: &&Seen| matches!(seen, Seen::Begin(_));
    assert_eq!(rig.servers["up"].seen().iter().filter(begun).count(), 1);
    let (front, up) = (rig.counts(""), rig.counts("up"));
    assert_eq!((front.offered, front.finished(), front.unaccounted()), (5, 5, 0));
    assert_eq!((up.offered, up.finished(), up.unaccounted()), (1, 1, 0));
    assert_eq!(rig.ingress.dispatcher.live_count(), 0);
}

#[tokio::test]
async fn r28_a_modern_client_cancels_by_closing_and_a_legacy_one_loses_what_had_not_begun() {
    let rig = Rig::new(&["up"]).await;
    let modern = |id: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t",{META}}}}}"#);
        let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "t")];
        rig.post("/mcp/up", &headers, &body)
    };
    // Running: the server is asked to stop.
    let mut client = rig.client().await;
    client.send(&modern("1")).await;
    rig.until_running("up", 1).await;
    drop(client);
    rig.until(|rig| rig.outcomes("up", "cancelled", "caller") == 1).await;
    rig.until_running("up", 0).await;
    // R28: a legacy client's running call goes on, its queued one ends.
    let (mut running, mut queued) = (rig.client().await, rig.client().await);
    running.send(&rig.call("/mcp/up", "1", "t")).await;
    rig.until_running("up", 1).await;
    queued.send(&rig.call("/mcp/up", "2", "t")).await;
    rig.until(|rig| rig.queued("up") == 1).await;
    drop(running);
    drop(queued);
    rig.until(|rig| rig.outcomes("up", "cancelled", "disconnect") == 1).await;
    rig.until(|rig| rig.ingress.open_sockets() == 0).await;
    assert_eq!(rig.servers["up"].at_server().len(), 1);
    rig.servers["up"].answer_next();
    rig.until(|rig| rig.outcomes("up", "completed", "") == 1).await;
    let counts = rig.counts("up");
    assert_eq!(counts.offered, counts.outcomes.iter().sum::<u64>());
}

#[tokio::test]
async fn r28_what_a_legacy_disconnect_does_can_be_chosen() {
    for (chosen, ended) in [(LegacyDisconnect::Keep, 0), (LegacyDisconnect::Cancel, 2)] {
        let global = Global { legacy_disconnect: chosen, ..Global::default() };
        let rig = Rig::with(&["up"], Setup { global, ..Setup::default() }).await;
        let (mut running, mut queued) = (rig.client().await, rig.client().await);
        running.send(&rig.call("/mcp/up", "1", "t")).await;
        rig.until_running("up", 1).await;
        queued.send(&rig.call("/mcp/up", "2", "t")).await;
        rig.until(|rig| rig.queued("up") == 1).await;
        drop((running, queued));
        rig.until(|rig| rig.ingress.open_sockets() == 0).await;
        assert_eq!(rig.outcomes("up", "cancelled", "disconnect"), ended, "{chosen:?}");
    }
}

#[tokio::test]
async fn r28_a_kept_call_goes_on_although_its_list_was_still_waited_for() {
    let global = Global { legacy_disconnect: LegacyDisconnect::Keep, ..Global::default() };
    let rig = Rig::with(&["up"], Setup { global, ..Setup::default() }).await;
    rig.servers["up"].page(Ok(r#"{"tools":[{"name":"t"}]}"#));
    let list = rig.servers["up"].hold_pages();
    let mut client = rig.client().await;
    client.send(&rig.call("/mcp", "1", "up__t")).await;
    rig.until(|rig| rig.counts("").submitted == 1).await;
    drop(client);
    rig.until(|rig| rig.ingress.open_sockets() == 0).await;
    assert_eq!(rig.counts("").submitted, 1);
    list.add_permits(1);
    rig.until_running("up", 1).await;
    rig.servers["up"].answer_next();
    rig.until(|rig| rig.outcomes("up", "completed", "") == 1).await;
    assert_eq!((rig.counts("").offered, rig.counts("up").unaccounted()), (0, 0));
}
