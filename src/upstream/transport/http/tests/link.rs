//! The link: handshakes, faults, backoff, reset, close, idle workers, TLS.

use super::super::link::Backoff;
use super::super::pool::IDLE;
use super::rig::*;
use crate::protocol::version::Era;
use crate::upstream::connection::{AskError, Connection, How, LinkEvent};
use std::time::Duration;

#[tokio::test]
async fn both_eras_tell_what_they_are() {
    let server = Hostile::new(modern(|seen| result(seen, "{}"))).await;
    let rig = Rig::up(config(&server.url())).await;
    let info = rig.http.server().unwrap();
    assert_eq!((info.era, &*info.version, &*info.server_info), (Era::Modern, "2026-07-28", r#"{"name":"h"}"#));
    assert_eq!(info.instructions, None);

    let server = Hostile::new(legacy(|seen| result(seen, "{}"))).await;
    let rig = Rig::up(config(&server.url())).await;
    let info = rig.http.server().unwrap();
    assert_eq!((info.era, &*info.version, &*info.capabilities), (Era::Legacy, "2025-11-25", r#"{"tools":{}}"#));
    assert_eq!(info.instructions.as_deref(), Some("\"x\""));
    let initialize = server.seen().into_iter().find(|seen| seen.method() == "initialize").unwrap();
    assert!(initialize.header("mcp-protocol-version").is_none() && initialize.header("authorization").is_some());
}

#[tokio::test]
async fn a_server_that_is_silent_about_discover_is_asked_to_initialize() {
    let inner = legacy(|seen| result(seen, "{}"));
    let server =
        Hostile::new(move |seen| if seen.method() == "server/discover" { Do::Hang } else { inner(seen) }).await;
    let mut config = config(&server.url());
    config.connect_timeout = Duration::from_millis(600);
    let rig = Rig::up(config).await;
    rig.serve("t", "{}").await.completed();
}

#[tokio::test]
async fn a_server_that_speaks_no_revision_of_ours_says_so() {
    let server = Hostile::new(|seen| match &*seen.method() {
        "server/discover" => answer(
            "400 Bad Request",
            "content-type: application/json\r\n",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"m","data":{"supported":["2031-01-01"]}}}"#,
        ),
        _ => Do::Hang,
    })
    .await;
    let rig = Rig::new(config(&server.url()));
    rig.http.open();
    let down = rig.event("it is down", |event| matches!(event, LinkEvent::Down { .. })).await;
    assert!(matches!(&down, LinkEvent::Down { fault, .. } if fault.contains("2031-01-01")), "{down:?}");
}

/// C07: 401 is final, its challenge is named, and nothing is sent any more.
#[tokio::test]
async fn c07_a_401_is_final_until_a_restart() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let server = Hostile::new(move |_| answer(status, "www-authenticate: Bearer realm=\"x\"\r\n", "no")).await;
        let rig = Rig::new(config(&server.url()));
        rig.http.open();
        let last = rig.event("it is final", |event| matches!(event, LinkEvent::Final { .. })).await;
        let LinkEvent::Final { fault } = last else { panic!() };
        assert!(fault.contains(status) && fault.contains("WWW-Authenticate: Bearer realm=\"x\""), "{fault}");
        let started = rig.begin("t", "{}");
        assert!(matches!(rig.slot(started.run).await, How::Unsent(_)));
        let ask = rig.http.ask("tools/list", None, Duration::from_secs(5)).await;
        assert!(matches!(ask, Err(AskError::Down(_))));
        rig.http.open();
        assert_eq!(server.seen().len(), 1);
        rig.forget_events();
        rig.http.reset("restart");
        rig.event("it was tried again", |event| matches!(event, LinkEvent::Final { .. })).await;
        assert_eq!(server.seen().len(), 2);
    }
}

/// C07: refused calls are told with their cause and sent once; the upstream is not given up for them.
#[tokio::test]
async fn c07_a_call_that_is_refused_costs_that_call_alone() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let server = Hostile::new(modern(move |seen| match seen.is_of("fine") {
            true => result(seen, "{}"),
            false => answer(status, "www-authenticate: Bearer scope=\"more\"\r\n", ""),
        }))
        .await;
        let rig = Rig::up(config(&server.url())).await;
        let ended = rig.serve("t", "{}").await;
        ended.lost(false, "the server refused this call, perhaps for its credential");
        ended.lost(false, &format!("HTTP {status}; WWW-Authenticate: Bearer scope=\"more\""));
        let ask = rig.http.ask("tools/list", None, Duration::from_secs(5)).await;
        assert!(matches!(&ask, Err(AskError::Rejected(fault)) if fault.contains(status)), "{ask:?}");
        rig.serve("fine", "{}").await.completed();
        assert_eq!(server.calls().len(), 2);
        let events = rig.events();
        assert!(events.iter().all(|event| matches!(event, LinkEvent::Up { .. })), "{events:?}");
    }
}

/// C07: a simulated hour against a port where nobody listens.
#[tokio::test(start_paused = true)]
async fn c07_a_refused_connection_is_dialled_a_bounded_number_of_times_an_hour() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rig = Rig::with(config(&format!("http://{free}/mcp")), Backoff::default(), None);
    rig.http.open();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let events = rig.events();
    assert!((60..=130).contains(&events.len()), "{} tries", events.len());
    for event in &events {
        let LinkEvent::Down { retry_in, .. } = event else { panic!("{event:?}") };
        assert!(*retry_in >= Duration::from_millis(250) && *retry_in <= Duration::from_secs(60));
    }
}

/// C07, R5: a server that went away gets its calls back unsent, and one reconnect serves all who wait.
#[tokio::test]
async fn c07_many_waiting_calls_share_one_reconnect() {
    let server = Hostile::new(modern(|seen| result(seen, "{}"))).await;
    let address = server.address;
    // The first wait is long enough to see that nobody dials meanwhile.
    let backoff = Backoff { first: Duration::from_millis(400), ceiling: Duration::from_millis(400) };
    let rig = Rig::with(config(&server.url()), backoff, None);
    rig.http.open();
    rig.event("up", |event| matches!(event, LinkEvent::Up { .. })).await;
    rig.serve("t", "{}").await.completed();
    server.stop().await;
    rig.forget_events();
    let calls: Vec<_> = (0..20).map(|_| rig.begin("t", "{}")).collect();
    for call in &calls {
        assert!(matches!(rig.slot(call.run).await, How::Unsent(_)));
    }
    let server = Hostile::at(address, modern(|seen| result(seen, "{}"))).await;
    rig.event("up again", |event| matches!(event, LinkEvent::Up { .. })).await;
    let events = rig.events();
    let downs = events.iter().filter(|event| matches!(event, LinkEvent::Down { .. })).count();
    assert_eq!(downs, 1, "{events:?}");
    assert_eq!(server.seen().iter().filter(|seen| seen.method() == "server/discover").count(), 1);
    rig.serve("t", "{}").await.completed();
}

#[tokio::test]
async fn a_reset_gives_up_every_run_and_opens_again() {
    let server = Hostile::new(legacy(|seen| match seen.is_of("hang") {
        true => Do::Hang,
        false => result(seen, "{}"),
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let calls: Vec<_> = (0..5).map(|_| rig.begin("hang", "{}")).collect();
    server.until("five calls run", |seen, _| seen.iter().filter(|seen| seen.is_call()).count() == 5).await;
    rig.forget_events();
    rig.http.reset("restart");
    for call in &calls {
        call.ended().await.lost(true, "the connection was reset");
        assert!(matches!(rig.slot(call.run).await, How::Lost));
    }
    rig.event("down", |event| matches!(event, LinkEvent::Down { .. })).await;
    rig.event("up", |event| matches!(event, LinkEvent::Up { .. })).await;
    rig.serve("t", "{}").await.completed();
    assert_eq!(server.calls().pop().unwrap().header("mcp-session-id"), Some("s2"));
    assert_eq!(rig.http.report().restarts, 1);
}

#[tokio::test]
async fn closing_ends_the_session_and_takes_no_more() {
    let server = Hostile::new(legacy(|seen| match seen.head.starts_with("DELETE") {
        true => answer("405 Method Not Allowed", "", ""),
        false => Do::Hang,
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    let started = rig.begin("t", "{}");
    server.until("it runs", |seen, _| seen.iter().any(Seen::is_call)).await;
    within("it closes", rig.http.close()).await;
    started.ended().await.lost(true, "");
    let last = server.seen().pop().unwrap();
    assert!(last.head.starts_with("DELETE /mcp "));
    assert_eq!(last.header("mcp-session-id"), Some("s1"));
    rig.begin("t", "{}").ended().await.lost(false, "closed");
    rig.http.open();
    rig.http.reset("no");
    assert_eq!(server.calls().len(), 1);
}

/// R21: workers and their connections go after 10 s without work, above a lowered limit at once.
#[tokio::test]
async fn r21_idle_workers_retire() {
    let server = Hostile::new(modern(|seen| match seen.is_of("hang") {
        true => Do::Hang,
        false => result(seen, "{}"),
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("t", "{}").await.completed();
    assert_eq!(rig.pool().figures(), (1, 1, 0));
    let connection = server.calls()[0].connection;
    tokio::time::pause();
    tokio::time::advance(IDLE * 2 + Duration::from_secs(1)).await;
    tokio::time::resume();
    server.until("the connection is closed", |_, closed| closed.contains(&connection)).await;
    assert_eq!(rig.pool().figures(), (0, 0, 0));

    let calls: Vec<_> = (0..3).map(|_| rig.begin("hang", "{}")).collect();
    server.until("three run", |seen, _| seen.iter().filter(|seen| seen.is_of("hang")).count() == 3).await;
    let mut config = (*rig.shared.config.load_full()).clone();
    config.limits.max_concurrent = crate::config::Concurrency::Fixed(1);
    rig.shared.config.store(config.into());
    for call in &calls {
        rig.http.recycle(call.run);
        rig.slot(call.run).await;
    }
    let (workers, idle, runs) = rig.pool().figures();
    assert!(workers <= 1 && idle <= 1 && runs == 0, "{workers} workers");
}

#[tokio::test]
async fn a_bad_address_is_a_final_fault_that_names_the_mend() {
    let shared = crate::upstream::shared::UpstreamShared::new(config("http://u:p@127.0.0.1/").into());
    let starts = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
    let http = super::super::Http::new(shared.clone(), starts, Vec::new(), 1);
    http.open();
    let told = shared.link_events.pop();
    assert!(matches!(&told, Some(LinkEvent::Final { fault }) if fault.contains("`headers`")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn changed_lists_are_told_once_in_a_while() {
    let rig = Rig::new(config("http://127.0.0.1:1/mcp"));
    let told = |rig: &Rig| rig.events().iter().filter(|event| **event == LinkEvent::ListsChanged).count();
    for _ in 0..10_000 {
        rig.http.inner.lists_changed();
    }
    assert_eq!(told(&rig), 1, "the first at once");
    tokio::time::sleep(Duration::from_millis(101)).await;
    assert_eq!(told(&rig), 2, "and the last of them in its turn");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(told(&rig), 2);
    rig.http.inner.lists_changed();
    assert_eq!(told(&rig), 3);
}

/// C07: a credential that goes bad in mid-life is found out by a handshake beside the session.
#[tokio::test]
async fn c07_a_credential_that_goes_bad_makes_the_link_final_and_a_tool_that_refuses_does_not() {
    let revoked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for era in ["modern", "legacy"] {
        revoked.store(false, std::sync::atomic::Ordering::Relaxed);
        let script = {
            let revoked = revoked.clone();
            move |seen: &Seen| match seen.is_of("refused") || revoked.load(std::sync::atomic::Ordering::Relaxed) {
                true => answer("401 Unauthorized", "www-authenticate: Bearer\r\n", ""),
                false => result(seen, "{}"),
            }
        };
        let gone = revoked.clone();
        let bad = move || gone.load(std::sync::atomic::Ordering::Relaxed);
        let server = match era {
            "modern" => {
                let (normal, script) = (modern(|_| Do::Hang), script);
                Hostile::new(move |seen| match seen.method() == "server/discover" && !bad() {
                    true => normal(seen),
                    false => script(seen),
                })
                .await
            }
            _ => {
                let normal = legacy(script.clone());
                Hostile::new(move |seen| match bad() {
                    true => script(seen),
                    false => normal(seen),
                })
                .await
            }
        };
        let rig = Rig::up(config(&server.url())).await;
        let handshakes = |seen: &[Seen]| {
            let hello = ["server/discover", "initialize"];
            seen.iter().filter(|seen| hello.contains(&&*seen.method())).count()
        };
        let before = handshakes(&server.seen());
        for _ in 0..5 {
            rig.serve("refused", "{}").await.lost(false, "refused this call");
        }
        server.until("the credential is tried", |seen, _| handshakes(seen) > before).await;
        rig.serve("t", "{}").await.completed();
        let tried = handshakes(&server.seen());
        assert!(tried <= before + 2, "one trial in thirty seconds: {tried} after {before}");
        assert!(!rig.events().iter().any(|event| matches!(event, LinkEvent::Final { .. })), "{era}");

        revoked.store(true, std::sync::atomic::Ordering::Relaxed);
        rig.http.inner.link.forget_trial();
        rig.serve("t", "{}").await.lost(false, "refused this call");
        let last = rig.event("the link is final", |event| matches!(event, LinkEvent::Final { .. })).await;
        assert!(matches!(&last, LinkEvent::Final { fault } if fault.contains("401")), "{era}: {last:?}");
    }
}

/// The time left travels in a header too.
#[tokio::test]
async fn the_time_left_is_told_in_header_and_meta() {
    for era in ["modern", "legacy"] {
        let server = match era {
            "modern" => Hostile::new(modern(|seen| result(seen, "{}"))).await,
            _ => Hostile::new(legacy(|seen| result(seen, "{}"))).await,
        };
        let rig = Rig::up(config(&server.url())).await;
        let call = rig.call("t", "{}");
        let run = rig.run(&call, Some(tokio::time::Instant::now() + Duration::from_secs(9)));
        let id = run.id;
        rig.http.begin(run);
        rig.slot(id).await;
        let seen = server.calls().pop().unwrap();
        let header = seen.header("forebay-timeout").and_then(|text| text.strip_suffix("ms")).expect("a time");
        assert!(seen.body.contains(&format!(r#""forebay/timeout_ms":{header}"#)), "{seen:?}");
        let left: u64 = header.parse().unwrap();
        assert!((1..=9000).contains(&left), "{left}");
        rig.serve("t", "{}").await.completed();
        assert_eq!(server.calls().pop().unwrap().header("forebay-timeout"), None, "no limit, no header");
    }
}

/// A 429 rests the upstream even if it names no time.
#[tokio::test]
async fn a_429_without_a_time_is_a_rest_of_a_second_and_a_503_is_none() {
    let server = Hostile::new(modern(|seen| match seen.is_of("many") {
        true => answer("429 Too Many Requests", "", ""),
        false => answer("503 Service Unavailable", "", ""),
    }))
    .await;
    let rig = Rig::up(config(&server.url())).await;
    rig.serve("once", "{}").await.lost(true, "503");
    assert!(!rig.events().iter().any(|event| matches!(event, LinkEvent::Busy { .. })));
    rig.serve("many", "{}").await.lost(false, "429");
    let told = rig.event("it rests", |event| matches!(event, LinkEvent::Busy { .. })).await;
    assert_eq!(told, LinkEvent::Busy { retry_in: Duration::from_secs(1) });
    assert_eq!(server.calls().len(), 2, "neither is sent again");
}
