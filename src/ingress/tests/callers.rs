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

/// Whether a caller's rights let a call through, said once more in other words.
fn allowed(rights: &CallerConfig, upstream: &str, tool: &str) -> bool {
    let joined = format!("{upstream}__{tool}");
    let upstreams = rights.upstreams.iter().flatten().any(|name| name == upstream);
    let tools = rights.tools.iter().flatten().any(|name| name == tool || *name == joined);
    (rights.upstreams.is_none() || upstreams) && (rights.tools.is_none() || tools)
}

#[tokio::test]
async fn a_call_is_forwarded_if_and_only_if_its_caller_may_make_it() {
    const UPSTREAMS: [&str; 2] = ["up", "two"];
    const TOOLS: [&str; 3] = ["a", "b", "c"];
    let mut random = fastrand::Rng::with_seed(0x0fb1);
    let mut some = |all: &[&str]| -> Option<Vec<String>> {
        (random.u8(..4) > 0).then(|| all.iter().filter(|_| random.bool()).map(|name| (*name).to_owned()).collect())
    };
    let names = ["a", "b", "up__a", "up__c", "two__b", "two__a", "up_a", "two__"];
    let rights: Vec<CallerConfig> = (0..16)
        .map(|_| CallerConfig { upstreams: some(&UPSTREAMS), tools: some(&names), ..CallerConfig::default() })
        .collect();
    let key = |number: usize| Key::new([number as u8 + 1; 32]);
    let callers = rights.iter().enumerate().map(|(number, rights)| {
        let keys = vec![parse_key_hash(&key(number).key_hash()).unwrap()];
        (format!("c{number}"), Arc::new(CallerConfig { keys, ..rights.clone() }))
    });
    let setup = Setup { auth: Auth::Keys, callers: callers.collect(), ..Setup::default() };
    let rig = Rig::with(&UPSTREAMS, setup).await;
    for upstream in UPSTREAMS {
        rig.servers[upstream].answer_instantly(true);
        rig.servers[upstream].page(Ok(r#"{"tools":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#));
    }
    let begun = |rig: &Rig, upstream: &str| {
        rig.servers[upstream].seen().iter().filter(|seen| matches!(seen, Seen::Begin(_))).count()
    };
    let (mut passed, mut kept) = (0, 0);
    for (number, rights) in rights.iter().enumerate() {
        let key = format!("Bearer {}", key(number).expose());
        let headers = [("Authorization", &*key)];
        let list =
            rig.ask("/mcp", &headers, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.text().to_owned();
        for (upstream, tool) in UPSTREAMS.iter().flat_map(|upstream| TOOLS.map(|tool| (*upstream, tool))) {
            let may = allowed(rights, upstream, tool);
            assert_eq!(list.contains(&format!("\"{upstream}__{tool}\"")), may, "{rights:?} {upstream} {tool}");
            // The way to call something, and to call something that nobody has.
            let ways = |upstream: &str, tool: &str| {
                [
                    ("/mcp".to_owned(), call_body("1", &format!("{upstream}__{tool}"))),
                    (format!("/mcp/{upstream}"), call_body("1", tool)),
                    ("/api/v1/tools/call".to_owned(), format!(r#"{{"upstream":"{upstream}","tool":"{tool}"}}"#)),
                    ("/api/v1/tools/call".to_owned(), format!(r#"{{"tool":"{upstream}__{tool}"}}"#)),
                ]
            };
            let before = begun(&rig, upstream);
            let reachable = rights.upstreams.as_ref().is_none_or(|names| names.iter().any(|name| name == upstream));
            let missing = if reachable { ways(upstream, "zz") } else { ways("zz", tool) };
            for ((path, body), (none_path, none_body)) in ways(upstream, tool).iter().zip(&missing) {
                let got = rig.ask(path, &headers, body).await;
                let forwarded = got.status == 200 && got.json().get("error").is_none();
                assert_eq!(forwarded, may, "{rights:?} {path} {body}: {}", got.text());
                if may {
                    passed += 1;
                    continue;
                }
                kept += 1;
                // A tool of this name cannot be told from one that does not exist.
                let none = rig.ask(none_path, &headers, none_body).await;
                let (old, new) = if reachable { ("zz", tool) } else { ("zz", upstream) };
                assert_eq!((got.status, got.text()), (none.status, &*none.text().replace(old, new)), "{path} {body}");
            }
            assert_eq!(begun(&rig, upstream) - before, if may { 4 } else { 0 }, "{rights:?} {upstream} {tool}");
        }
    }
    assert!(passed > 50 && kept > 50, "{passed} {kept}");
}

#[tokio::test]
async fn no_call_of_a_caller_takes_longer_than_its_right() {
    let most = Some(Duration::from_millis(80));
    let (setup, alice, _) = alice_and_bob(|config| config.max_deadline = most);
    let rig = Rig::with(&["up"], setup).await;
    let key = ("Authorization", &*alice);
    for headers in [&[key][..], &[key, ("Forebay-Timeout", "1h")]] {
        let got = rig.ask("/mcp/up", headers, &call_body("1", "t")).await.json();
        let call = &got["result"]["_meta"]["forebay/call"];
        assert_eq!(call["outcome"], "timed_out", "{got}");
        rig.until_running("up", 0).await;
    }
}

/// A configuration for tokens whose issuer's keys can never be had.
fn jwt(scopes: &[&str]) -> Auth {
    let nowhere = "http://127.0.0.1:1/jwks".parse().unwrap();
    Auth::Jwt(Arc::new(crate::config::JwtConfig {
        audience: "https://mcp.example/mcp".into(),
        issuers: BTreeMap::from([("https://id.example".into(), nowhere)]),
        algorithms: vec![jsonwebtoken::Algorithm::ES256],
        leeway: Duration::from_secs(10),
        scopes: scopes.iter().map(|scope| (*scope).into()).collect(),
    }))
}

#[tokio::test]
async fn a_client_without_a_token_is_told_where_to_get_one() {
    let rig = Rig::with(&["up"], Setup { auth: jwt(&["call", "list"]), ..Setup::default() }).await;
    let challenge = "Bearer resource_metadata=\"https://mcp.example/.well-known/oauth-protected-resource/mcp\", \
                     scope=\"call list\"";
    let body = call_body("1", "t");
    for headers in [&[][..], &[("Authorization", "Bearer x.y.z")], &[("Authorization", "Bearer fb_x_y")]] {
        let got = rig.ask("/mcp/up", headers, &body).await;
        assert_eq!((got.status, got.header("www-authenticate")), (401, Some(challenge)));
    }
    for path in ["", "/mcp", "/mcp/up"] {
        let head = format!("GET /.well-known/oauth-protected-resource{path} HTTP/1.1\r\nHost: {}\r\n\r\n", rig.address);
        let got = rig.client().await.ask(head.as_bytes()).await;
        let about = json!({
            "resource": "https://mcp.example/mcp", "authorization_servers": ["https://id.example"],
            "bearer_methods_supported": ["header"], "scopes_supported": ["call", "list"]
        });
        assert_eq!((got.status, got.json()), (200, about), "{path}");
    }
    let got = rig.ask("/mcp/up?access_token=x.y.z", &[], &body).await;
    assert_eq!((got.status, got.header("connection")), (400, Some("close")));
    // Nobody knows whose it is while its issuer's keys are not to be had, and nobody is let in.
    let token = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUifQ.AA";
    let got = rig.ask("/mcp/up", &[("Authorization", &format!("Bearer {token}"))], &body).await;
    assert_eq!((got.status, got.header("retry-after").is_some()), (503, true));
    assert_eq!(rig.counts("up").offered, 0);
    // Where callers are known otherwise, there is nothing to tell.
    let plain = Rig::new(&[]).await;
    let head = format!("GET /.well-known/oauth-protected-resource HTTP/1.1\r\nHost: {}\r\n\r\n", plain.address);
    assert_eq!(plain.client().await.ask(head.as_bytes()).await.status, 404);
}

#[tokio::test]
async fn r33_who_calls_over_the_unix_socket_is_known_by_its_user_id() {
    use std::os::unix::fs::PermissionsExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let rig = Rig::new(&["up"]).await;
    rig.servers["up"].answer_instantly(true);
    let folder = tempfile::tempdir().unwrap();
    let socket = crate::admin::Socket::bind_open(&folder.path().join("mcp.sock")).unwrap();
    assert_eq!(std::fs::metadata(socket.path()).unwrap().permissions().mode() & 0o777, 0o666);
    tokio::spawn(listen_unix(rig.ingress.clone(), 0, socket.listener().unwrap()));
    let mut client = tokio::net::UnixStream::connect(socket.path()).await.unwrap();
    let body = call_body("1", "t");
    let request = format!(
        "POST /mcp/up HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\"id\":1"), "{answer}");
    let name = format!("uid:{}", rustix::process::getuid().as_raw());
    let caller = rig.ingress.dispatcher.callers.by_name(&name).unwrap();
    assert_eq!((caller.identity, caller.figures.read().completed), ("peer-uid", 1));
    assert_eq!(rig.ingress.dispatcher.callers.anonymous().figures.read().finished, 0);
    rig.until(|rig| rig.ingress.open_sockets() == 0).await;
}
