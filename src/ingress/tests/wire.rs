//! Requests as bytes: framing, media types, paths, sizes and times, sockets.

use super::*;

#[tokio::test]
async fn c19_notifications_and_responses_are_accepted_without_a_body() {
    let rig = Rig::new(&["up"]).await;
    let mut client = rig.client().await;
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/anything"}"#.to_owned(),
        cancel_body("77"),
    ] {
        let got = client.ask(&rig.post("/mcp", &[], &body)).await;
        assert_eq!((got.status, got.header("content-type"), got.body.len()), (202, None, 0), "{body}");
    }
}

#[tokio::test]
async fn c20_media_types_on_the_wire() {
    let rig = Rig::new(&["up"]).await;
    let mut client = rig.client().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let with = |value: &str| {
        let text = String::from_utf8(rig.post("/mcp", &[], body)).unwrap();
        text.replace("Content-Type: application/json", &format!("Content-Type: {value}")).into_bytes()
    };
    for (value, status) in [
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/json;charset=latin1", 415),
        ("text/plain", 415),
    ] {
        let mut client = rig.client().await;
        let got = client.ask(&with(value)).await;
        assert_eq!((got.status, got.header("content-type")), (status, Some("application/json")), "{value}");
    }
    assert_eq!(client.ask(&rig.post("/mcp", &[("Content-Encoding", "gzip")], body)).await.status, 415);
}

#[tokio::test]
async fn c30_strange_hosts_are_refused_before_the_body_is_read() {
    let rig = Rig::new(&["up"]).await;
    let port = rig.address.port();
    let own = format!("localhost:{port}");
    let foreign = format!("evil.example:{port}");
    for path in ["/mcp", "/mcp/up", "/api/v1/tools/call", "/healthz", "/nowhere"] {
        for (host, origin, refused) in [
            (&*foreign, None, true),
            ("localhost:1", None, true),
            (&*own, Some("null".to_owned()), true),
            (&*own, Some("http://localhost.evil.example".to_owned()), true),
            (&*own, Some(format!("http://localhost:{port}")), false),
        ] {
            let mut client = rig.client().await;
            let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
            // The body is announced and never sent.
            let length = if refused { "Content-Length: 100\r\n" } else { "Content-Length: 0\r\n" };
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\n{origin}Content-Type: application/json\r\n{length}\r\n"
            );
            let got = client.ask(head.as_bytes()).await;
            assert_eq!(got.status == 403, refused, "{path} {host} {origin}: {}", got.text());
            assert!(got.json().is_object());
        }
    }
}

#[tokio::test]
async fn paths_and_methods_have_their_answers() {
    let rig = Rig::new(&["up"]).await;
    let ask = async |method: &str, path: &str| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n\r\n", rig.address);
        rig.client().await.ask(head.as_bytes()).await
    };
    let got = ask("GET", "/mcp").await;
    assert_eq!((got.status, got.header("allow")), (405, Some("POST, DELETE")));
    assert_eq!(ask("GET", "/mcp/up").await.status, 405);
    assert_eq!(ask("PUT", "/api/v1/tools").await.header("allow"), Some("GET"));
    assert_eq!(ask("GET", "/").await.status, 404);
    assert_eq!(ask("GET", "/healthz").await.json(), json!({ "status": "ok" }));
    assert_eq!(ask("DELETE", "/mcp").await.status, 400);
    assert_eq!(ask("GET", &format!("/mcp?{}", "x".repeat(9000))).await.status, 414);
    let got = rig.ask("/mcp/none", &[], r#"{"jsonrpc":"2.0","id":"x","method":"tools/list"}"#).await;
    assert_eq!((got.status, &got.json()["id"]), (404, &json!("x")));
    assert!(got.text().contains("`none`"));
}

#[tokio::test]
async fn c34_a_body_over_the_limit_is_refused_at_once() {
    let (mut setup, alice, _) = alice_and_bob(|_| {});
    setup.max_body = 10_000;
    let rig = Rig::with(&["up"], setup).await;
    let head = |key: &str, framing: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{key}{framing}\r\n\r\n",
            rig.address
        )
    };
    let key = format!("Authorization: {alice}\r\n");
    // Declared too long: refused with one byte sent, or none.
    let mut client = rig.client().await;
    let got = client.ask(format!("{}x", head(&key, "Content-Length: 12000000")).as_bytes()).await;
    assert_eq!((got.status, got.header("connection")), (413, Some("close")));
    assert!(client.closed().await);
    // Without a length: refused as soon as the limit is passed.
    let mut client = rig.client().await;
    client.send(head(&key, "Transfer-Encoding: chunked").as_bytes()).await;
    for _ in 0..3 {
        client.try_send(format!("fa0\r\n{}\r\n", "x".repeat(4000)).as_bytes()).await;
    }
    assert_eq!(client.read().await.status, 413);
    // Without a key nothing is read at all.
    for framing in ["Content-Length: 12000000", "Content-Length: 100", "Transfer-Encoding: chunked"] {
        assert_eq!(rig.client().await.ask(head("", framing).as_bytes()).await.status, 401, "{framing}");
    }
    assert_eq!(rig.ingress.dispatcher.memory().held(), 0);
    assert_eq!(rig.counts("up").offered, 0);
}

#[tokio::test(start_paused = true)]
async fn c34_a_stalled_upload_is_given_up_and_holds_no_slot() {
    let rig = Rig::new(&[]).await;
    let began = tokio::time::Instant::now();
    let mut client = rig.client().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{",
        rig.address
    );
    let got = client.ask(head.as_bytes()).await;
    assert_eq!((got.status, got.header("connection")), (408, Some("close")));
    assert_eq!(began.elapsed().as_secs(), 15);
    // A head that does not come is not waited for either.
    let mut slow = rig.client().await;
    slow.send(b"POST /mcp HTTP/1.1\r\nHost:").await;
    assert!(slow.try_read().await.is_none_or(|got| got.status == 408));
}

#[tokio::test]
async fn a_length_beside_a_transfer_coding_ends_the_connection() {
    let rig = Rig::new(&[]).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for framing in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: chunked",
    ] {
        let mut client = rig.client().await;
        let smuggled = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{framing}\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n{smuggled}",
            rig.address,
            body.len()
        );
        client.send(request.as_bytes()).await;
        let got = client.read().await;
        assert_eq!((got.status, got.header("connection")), (200, Some("close")), "{framing}");
        assert!(client.closed().await, "{framing}");
    }
    for bad in ["Content-Length: 4\r\nContent-Length: 5", "Content-Length: -1", "Transfer-Encoding: gzip"] {
        let mut client = rig.client().await;
        let head = format!("POST /mcp HTTP/1.1\r\nHost: {}\r\n{bad}\r\n\r\n", rig.address);
        assert_eq!(client.ask(head.as_bytes()).await.status, 400, "{bad}");
        assert!(client.closed().await, "{bad}");
    }
}

#[tokio::test]
async fn an_address_with_too_many_sockets_gets_no_more() {
    let bounds = Bounds { per_address: 2, loopback_is_free: false, ..Bounds::default() };
    let rig = Rig::with(&[], Setup { bounds, ..Setup::default() }).await;
    let ping = rig.post("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let (mut one, mut two) = (rig.client().await, rig.client().await);
    assert_eq!((one.ask(&ping).await.status, two.ask(&ping).await.status), (200, 200));
    assert!(rig.client().await.closed().await);
    drop(two);
    rig.until(|rig| rig.ingress.open_sockets() == 1).await;
    assert_eq!(rig.client().await.ask(&ping).await.status, 200);
    assert_eq!(one.ask(&ping).await.status, 200);
}

#[tokio::test]
async fn closing_ends_idle_sockets_and_finishes_what_is_in_flight() {
    let rig = Rig::new(&["up"]).await;
    let (mut idle, mut busy) = (rig.client().await, rig.client().await);
    idle.send(&rig.post("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await;
    idle.read().await;
    busy.send(&rig.call("/mcp/up", "1", "t")).await;
    rig.until_running("up", 1).await;
    rig.ingress.close();
    assert!(idle.closed().await);
    assert_eq!(rig.ingress.open_sockets(), 1);
    rig.servers["up"].answer_next();
    assert_eq!(busy.read().await.status, 200);
    assert!(busy.closed().await);
    tokio::time::timeout(Duration::from_secs(5), rig.ingress.closed()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c06_no_limit_of_the_listener_cuts_a_call_and_only_an_idle_socket_is_closed() {
    let limits = Limits { call_timeout: None, queue_timeout: None, ..Setup::default().limits };
    let patience = Patience { idle: Duration::from_secs(3), head: Duration::from_secs(2) };
    let bounds = Bounds { write_stall: Duration::from_secs(1), patience, ..Bounds::default() };
    let rig = Rig::with(&["up"], Setup { limits, bounds, ..Setup::default() }).await;
    let (mut running, mut queued) = (rig.client().await, rig.client().await);
    running.send(&rig.call("/mcp/up", "1", "t")).await;
    rig.until_running("up", 1).await;
    queued.send(&rig.call("/mcp/up", "2", "t")).await;
    rig.until(|rig| rig.queued("up") == 1).await;
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert_eq!(rig.ingress.open_sockets(), 2);
    rig.servers["up"].answer_next();
    assert_eq!(running.read().await.json()["id"], 1);
    rig.until_running("up", 1).await;
    rig.servers["up"].answer_next();
    assert_eq!(queued.read().await.json()["id"], 2);
    // In use now and then, it stays; then it is left alone.
    let ping = rig.post("/mcp", &[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(running.ask(&ping).await.status, 200);
    }
    let began = tokio::time::Instant::now();
    assert!(running.closed().await);
    assert_eq!(began.elapsed().as_secs(), 3);
    rig.until(|rig| rig.ingress.open_sockets() == 0).await;
}

#[tokio::test]
async fn heads_beyond_all_measure_are_refused_and_harm_nobody() {
    let rig = Rig::new(&[]).await;
    let head = |more: &str| format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n{more}\r\n", rig.address);
    let many: String = (0..200).map(|number| format!("X-{number}: y\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "y".repeat(60 << 10));
    for more in [many, long] {
        let mut client = rig.client().await;
        client.try_send(head(&more).as_bytes()).await;
        assert!(client.try_read().await.is_none_or(|got| got.status == 431));
        assert!(client.closed().await);
    }
    for broken in ["X y: z\r\n", "X: y\r\n z\r\n", "Bad\u{0}: y\r\n"] {
        let mut client = rig.client().await;
        assert_eq!(client.ask(head(broken).as_bytes()).await.status, 400, "{broken:?}");
        assert!(client.closed().await, "{broken:?}");
    }
    assert_eq!(rig.client().await.ask(head("").as_bytes()).await.status, 200);
}

#[tokio::test]
async fn many_requests_in_one_packet_are_answered_in_turn() {
    let rig = Rig::new(&["up"]).await;
    rig.servers["up"].answer_instantly(true);
    let mut client = rig.client().await;
    let requests: Vec<u8> = (0..500).flat_map(|id| rig.call("/mcp/up", &id.to_string(), "t")).collect();
    let (mut reads, sends) = (0, requests.chunks(7000).map(<[u8]>::to_vec).collect::<Vec<_>>());
    for part in sends {
        client.send(&part).await;
    }
    while reads < 500 {
        assert_eq!(client.read().await.json()["id"], reads);
        reads += 1;
    }
    assert_eq!(rig.outcomes("up", "completed", ""), 500);
}
