//! What stands before the queue: each limit refuses with its own text and time, and serves again when it says.

use crate::support::{Answer, Client, Daemon, HttpUpstream, Log, Pending, forebay, stdio};
use std::time::Duration;

/// What every refusal of the kind "busy" says.
const BUSY: &str = "This is a limit of the gateway, not a failure of the tool: wait";

/// The refusal is of this reason and names a time; waits as long as it says.
#[track_caller]
fn wait_as_told(refused: &Answer, reason: &str) -> Duration {
    let refusal = refused.refusal();
    assert_eq!((&refusal["reason"], &refusal["executed"]), (&reason.into(), &"never".into()), "{refused:?}");
    assert!(refused.text().contains(BUSY) && refused.text().ends_with(&format!(", {reason}]")), "{}", refused.text());
    let wait = Duration::from_millis(refusal["retry_after_ms"].as_u64().expect("a time to wait"));
    std::thread::sleep(wait);
    wait
}

#[test]
fn a_rate_refuses_with_its_figures_and_serves_again_when_it_says() {
    let rate = "[callers.anonymous]\nrate = { per_second = 2, burst = 2 }\n";
    let daemon = Daemon::start(&format!("{rate}{}", stdio("db", &[], "")));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let answers: Vec<_> = (0..3).map(|_| client.call("sleep", r#"{"ms":0}"#)).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.is_refusal()).collect();
    assert_eq!(refused.len(), 1, "two at once, and no more within half a second: {answers:?}");
    assert!(refused[0].text().contains("caller anonymous has used up its rate of calls: 2 calls a second, 2 at once"));
    assert!(wait_as_told(refused[0], "caller_rate") <= Duration::from_millis(500));
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).text(), "slept");
    assert_eq!(daemon.adds_up().of("refused", "caller_rate"), 1);
}

#[test]
fn a_quota_goes_into_debt_refuses_and_serves_again_when_the_debt_is_worked_off() {
    let quota = "[callers.anonymous]\nquota = { bytes_per_minute = 600000 }\n";
    let daemon = Daemon::start(&format!("{quota}{}", stdio("db", &[], "")));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    // The first takes more than the minute's worth, and is sent whole all the same.
    assert_eq!(client.call("big", r#"{"bytes":610000}"#).text().len(), 610_000);
    let refused = client.call("sleep", r#"{"ms":0}"#);
    assert!(refused.text().contains("its quota: 600000 bytes of answers a minute, "), "{}", refused.text());
    assert!(refused.refusal()["limit"].as_str().unwrap().contains("more have been sent"));
    // Ten thousand bytes over, at ten thousand a second.
    let wait = wait_as_told(&refused, "caller_quota");
    assert!(wait <= Duration::from_millis(1100), "{wait:?}");
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).text(), "slept");
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("refused", "caller_quota")), (2, 1));
}

#[test]
fn r13_a_tools_cap_holds_for_all_callers_together_and_holds_up_no_other_tool() {
    let server = HttpUpstream::start(&[]);
    let (ann, bob) = (key("ann"), key("bob"));
    let upstream = server.config("db", "max_concurrent = 4\n[upstreams.db.tools.hold]\nmax_concurrent = 1");
    let daemon = Daemon::start(&format!("[auth]\nmode = \"keys\"\n{}{}{upstream}", ann.1, bob.1));
    let ann = Client::modern(daemon.mcp, "/mcp/db").with_key(&ann.0);
    let bob = Client::modern(daemon.mcp, "/mcp/db").with_key(&bob.0);
    let first = ann.start("hold", r#"{"key":"k"}"#);
    daemon.until_load("db", 1, 0);
    let held: Vec<_> = [&ann, &bob, &bob].map(|client| client.start("hold", r#"{"key":"k"}"#)).into();
    daemon.until_load("db", 1, 3);
    // Neither of the two is held up in what else it does.
    assert_eq!(bob.call("sleep", r#"{"ms":0}"#).text(), "slept");
    assert_eq!(ann.call("sleep", r#"{"ms":0}"#).text(), "slept");
    assert_eq!(server.call("stats", "{}").stats()["calls"]["hold"], 1);
    server.call("release", r#"{"key":"k"}"#);
    assert!(std::iter::once(first).chain(held).map(Pending::answer).all(|answer| answer.text() == "k"));
    assert_eq!(daemon.adds_up().of("completed", "*"), 6);
}

#[test]
fn r12_a_hung_upstream_with_a_full_queue_leaves_the_other_its_part_of_the_global_cap() {
    let (hung, well) = (HttpUpstream::start(&[]), HttpUpstream::start(&[]));
    let limits = "max_concurrent = 8\nqueue_size = 5";
    let config =
        format!("[global]\nmax_concurrent = 4\n{}{}", hung.config("hung", limits), well.config("well", limits));
    let daemon = Daemon::start(&config);
    let client = Client::modern(daemon.mcp, "/mcp/hung");
    let held: Vec<_> = (0..8).map(|_| client.start("hold", r#"{"key":"k"}"#)).collect();
    // Three quarters of four, and no more, though it may run eight.
    daemon.until_load("hung", 3, 5);
    let refused = client.call("sleep", r#"{"ms":0}"#);
    assert_eq!(refused.refusal()["reason"], "queue_full", "{refused:?}");
    let other = client.at("/mcp/well");
    for _ in 0..20 {
        assert_eq!(other.call("sleep", r#"{"ms":1}"#).text(), "slept");
    }
    assert_eq!(hung.call("stats", "{}").stats()["peak"], 3);
    hung.call("release", r#"{"key":"k"}"#);
    assert!(held.into_iter().map(Pending::answer).all(|answer| answer.text() == "k"));
    assert_eq!(daemon.adds_up().of("completed", "*"), 28);
}

#[test]
fn r11_a_callers_cap_holds_over_all_upstreams() {
    let (one, two) = (HttpUpstream::start(&[]), HttpUpstream::start(&[]));
    let caller = "[callers.anonymous]\nmax_concurrent = 2\n";
    let daemon = Daemon::start(&format!("{caller}{}{}", one.config("one", ""), two.config("two", "")));
    let client = Client::modern(daemon.mcp, "/mcp/one");
    let held: Vec<_> = (0..2).map(|_| client.start("hold", r#"{"key":"k"}"#)).collect();
    daemon.until_load("one", 2, 0);
    let waits = client.at("/mcp/two").start("hold", r#"{"key":"k"}"#);
    daemon.until_load("two", 0, 1);
    assert!(!waits.is_answered());
    one.call("release", r#"{"key":"k"}"#);
    assert!(held.into_iter().map(Pending::answer).all(|answer| answer.text() == "k"));
    daemon.until_load("two", 1, 0);
    two.call("release", r#"{"key":"k"}"#);
    assert_eq!(waits.answer().text(), "k");
    assert_eq!(daemon.adds_up().of("completed", "*"), 3);
}

/// `echo` as a tool with cursors: what it is given as `next` stands in its result.
fn paging(per_caller: u32, total: u32, ttl: &str) -> String {
    let rule = format!(
        "pointer = \"/structuredContent/next\"\nargument = \"cursor\"\nttl = \"{ttl}\"\nper_caller = {per_caller}\ntotal = {total}"
    );
    stdio("db", &[], &format!("max_concurrent = 20\n[upstreams.db.tools.echo.cursor]\n{rule}"))
}

#[test]
fn ten_cursors_a_caller_and_a_hundred_in_all_are_open_at_once() {
    let callers: Vec<_> = (0..11).map(|number| key(&format!("c{number}"))).collect();
    let config: String = callers.iter().map(|(_, config)| config.as_str()).collect();
    let daemon = Daemon::start(&format!("[auth]\nmode = \"keys\"\n{config}{}", paging(10, 100, "10m")));
    let client = |number: usize| Client::modern(daemon.mcp, "/mcp/db").with_key(&callers[number].0);
    let ann = client(0);
    for number in 0..10 {
        assert!(!ann.call("echo", &format!(r#"{{"next":"p{number}"}}"#)).is_error());
    }
    let refused = ann.call("echo", r#"{"next":"p10"}"#);
    assert_eq!(
        (&refused.refusal()["reason"], &refused.refusal()["scope"]),
        (&"caller_cursors".into(), &"caller".into())
    );
    let ms = refused.refusal()["retry_after_ms"].as_u64().unwrap();
    assert!((500_000..=600_000).contains(&ms), "when the first runs out: {ms}");
    assert!(
        refused.text().contains("caller c0 holds all its open cursors on db already: 10 of 10 are open of this tool")
    );
    assert!(refused.text().contains("read one of them to its last page, or wait "), "{}", refused.text());
    // Another tool is not held up, and neither is a follow-up.
    assert_eq!(ann.call("sleep", r#"{"ms":0}"#).text(), "slept");
    assert!(!ann.call("echo", r#"{"cursor":"p3","next":"q3"}"#).is_error());
    // The last page gives the place back at once.
    assert!(!ann.call("echo", r#"{"cursor":"q3"}"#).is_error());
    assert!(!ann.call("echo", r#"{"next":"again"}"#).is_error());
    for number in 1..10 {
        for page in 0..10 {
            assert!(!client(number).call("echo", &format!(r#"{{"next":"{page}"}}"#)).is_error());
        }
    }
    let refused = client(10).call("echo", r#"{"next":"x"}"#);
    assert_eq!(refused.refusal()["scope"], "tool");
    assert!(refused.text().contains("all cursors that may be open on db are in use: 100 of 100"), "{}", refused.text());
    daemon.adds_up();
}

#[test]
fn a_cursor_belongs_to_its_caller_and_ends_at_its_time() {
    let (ann, bob) = (key("ann"), key("bob"));
    let config = format!("[auth]\nmode = \"keys\"\n{}{}{}", ann.1, bob.1, paging(1, 100, "1s"));
    let daemon = Daemon::start(&config);
    let ann = Client::modern(daemon.mcp, "/mcp/db").with_key(&ann.0);
    let bob = Client::modern(daemon.mcp, "/mcp/db").with_key(&bob.0);
    assert!(!ann.call("echo", r#"{"next":"secret"}"#).is_error());
    // Another's, and one that was never given, are told alike.
    let (theirs, none) = (bob.call("echo", r#"{"cursor":"secret"}"#), bob.call("echo", r#"{"cursor":"invented"}"#));
    let without_id = |answer: &Answer| answer.text().split(" [call").next().unwrap().to_owned();
    assert_eq!(without_id(&theirs), without_id(&none));
    assert_eq!(theirs.refusal()["scope"], "cursor");
    assert!(theirs.text().contains("begin again without a cursor"), "{}", theirs.text());
    // An empty or missing one begins anew.
    let refused = ann.call("echo", r#"{"cursor":"","next":"more"}"#);
    let wait = Duration::from_millis(refused.refusal()["retry_after_ms"].as_u64().unwrap());
    assert!(wait <= Duration::from_secs(1), "{wait:?}");
    std::thread::sleep(wait);
    assert!(ann.call("echo", r#"{"cursor":"secret"}"#).is_refusal(), "it has run out");
    assert!(!ann.call("echo", r#"{"cursor":null,"next":"more"}"#).is_error(), "served again when it says");
    daemon.adds_up();
}

#[test]
fn r35_a_gate_refuses_what_is_too_big_with_the_operators_words() {
    let log = Log::new();
    let gates = "[[upstreams.db.tools.echo.gate]]\nwhen = \"has(args.limit) && args.limit > 1000\"\nsay = \"ask for at most 1000 rows\"\n\
                 [[upstreams.db.tools.echo.gate]]\nwhen = \"has(args.ids) && args.ids.exists(id, id < 0)\"\nsay = \"ids begin at 0\"\n\
                 [[upstreams.db.tools.sleep.gate]]\nwhen = \"args.ms > 5\"\nsay = \"sleep at most 5 ms\"\n";
    let daemon = Daemon::start(&stdio("db", &["--log", log.path()], gates));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    assert!(!client.call("echo", r#"{"limit":1000,"ids":[0,1]}"#).is_error());
    let refused = client.call("echo", r#"{"limit":1001,"mark":"too-big"}"#);
    assert_eq!(
        refused.text().split(" [call").next().unwrap(),
        "Not executed: a gate on db found this call too big (ask for at most 1000 rows). This is a limit of the \
         gateway, not a failure of the tool: narrow the call, then try again."
    );
    assert_eq!((&refused.refusal()["reason"], &refused.refusal()["scope"]), (&"gated".into(), &"tool".into()));
    // What goes through a list is asked beside the way, and refuses all the same.
    let refused = client.call("echo", r#"{"ids":[1,-1],"mark":"too-big"}"#);
    assert!(refused.text().contains("(ids begin at 0)"), "{}", refused.text());
    // A question that the gate cannot judge is refused with the expression, and so are large arguments.
    let refused = client.call("sleep", "{}");
    assert!(refused.text().contains("the gate `args.ms > 5` could not be evaluated"), "{}", refused.text());
    let large = format!(r#"{{"ms":1,"mark":"too-big","text":"{}"}}"#, "x".repeat(65_536));
    assert!(client.call("sleep", &large).text().contains("larger than 64 KiB"));
    assert_eq!(client.call("sleep", r#"{"ms":1}"#).text(), "slept");
    assert!(log.with("too-big").is_empty());
    let ended = daemon.adds_up();
    assert_eq!((ended.of("refused", "gated"), ended.of("completed", "*")), (4, 2));
}

#[test]
fn r36_a_price_is_asked_first_and_too_high_a_one_refuses() {
    let gate = "max_concurrent = 1\n[[upstreams.db.tools.hold.gate]]\nprice = \"echo\"\nvalue = \"/structuredContent/rows\"\n\
                max = 100\nsay = \"ask for fewer rows\"\n";
    let server = HttpUpstream::start(&[]);
    let rate = "[callers.anonymous]\nrate = { per_second = 0.01, burst = 5 }\n";
    let daemon = Daemon::start(&format!("{rate}{}", server.config("db", gate)));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let refused = client.call("hold", r#"{"key":"k","rows":101}"#);
    assert_eq!((&refused.refusal()["reason"], &refused.refusal()["scope"]), (&"gated".into(), &"price".into()));
    assert!(
        refused.text().contains("too big: echo says 101, and 100 is the most (ask for fewer rows)"),
        "{}",
        refused.text()
    );
    let refused = client.call("hold", r#"{"key":"k"}"#);
    assert!(refused.text().contains("its price is not known: echo gave no number"), "{}", refused.text());
    assert_eq!(refused.refusal()["scope"], "price");
    // The price holds no slot once it is told: the call itself has the one there is.
    let held = client.start("hold", r#"{"key":"k","rows":100}"#);
    daemon.until_load("db", 1, 0);
    crate::support::until("the call itself runs", || {
        daemon.calls("db").iter().any(|row| row.tool.as_deref() == Some("hold")).then_some(())
    });
    // While the slot is taken the price waits: the call is queued for its caller, with its price behind the other.
    let waits = client.start("hold", r#"{"key":"k","rows":1}"#);
    let price = crate::support::until("the price waits", || {
        daemon.calls("db").into_iter().find(|row| row.tool.as_deref() == Some("echo"))
    });
    let parent = price.parent.clone().expect("a price names the call that it is asked for");
    // Cancelling the parent cancels it.
    assert_eq!(daemon.run(&["cancel", &parent]).code, Some(0));
    assert_eq!(waits.answer().refusal()["reason"], "cancelled");
    daemon.until_load("db", 1, 0);
    server.call("release", r#"{"key":"k"}"#);
    assert_eq!(held.answer().text(), "k");
    assert_eq!(server.call("stats", "{}").stats()["calls"]["hold"], 1);
    // Four calls of five are used up: prices are none of the caller's rate.
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).text(), "slept");
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).refusal()["reason"], "caller_rate");
    let ended = daemon.adds_up();
    assert_eq!((ended.of("refused", "gated"), ended.of("cancelled", "operator")), (2, 2));
}

#[test]
fn in_shadow_mode_limits_count_what_they_would_refuse_and_refuse_nothing() {
    let limits = "[global]\nenforce = \"shadow\"\n[callers.anonymous]\nrate = { per_second = 0.01, burst = 1 }\n\
                  quota = { bytes_per_minute = 1024 }\n";
    let tool = "[[upstreams.db.tools.echo.gate]]\nwhen = \"args.limit > 10\"\nsay = \"less\"\n\
                [upstreams.db.tools.echo.cursor]\npointer = \"/structuredContent/next\"\nargument = \"cursor\"\nper_caller = 1\n";
    let daemon = Daemon::start(&format!("{limits}{}", stdio("db", &[], tool)));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    for number in 0..4 {
        let answer = client.call("echo", &format!(r#"{{"limit":{},"next":"p{number}"}}"#, 9 + number));
        assert!(!answer.is_error(), "{answer:?}");
    }
    let report = daemon.admin("GET", "/v1/shadow");
    assert_eq!(report.status, 200);
    let report: forebay_wire::ShadowReport = serde_json::from_slice(&report.body).unwrap();
    let counted = |limit: &str| report.rows.iter().find(|row| row.limit == limit).map_or(0, |row| row.calls);
    assert!(report.global);
    assert_eq!((counted("rate"), counted("gate"), counted("cursors")), (3, 2, 3), "{report:?}");
    assert!(report.rows.iter().all(|row| row.caller.as_deref() == Some("anonymous")));
    assert!(report.rows.iter().find(|row| row.limit == "rate").unwrap().longest_wait_ms > Some(90_000));
    assert_eq!(daemon.adds_up().of("completed", "*"), 4);
}

#[test]
fn one_limit_alone_can_be_in_shadow_mode() {
    let tool = "[[upstreams.db.tools.echo.gate]]\nwhen = \"args.limit > 10\"\nsay = \"less\"\nenforce = \"shadow\"\n\
                [[upstreams.db.tools.echo.gate]]\nwhen = \"args.limit > 20\"\nsay = \"much less\"\n";
    let daemon = Daemon::start(&stdio("db", &[], tool));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    assert!(!client.call("echo", r#"{"limit":11}"#).is_error());
    assert_eq!(client.call("echo", r#"{"limit":21}"#).refusal()["note"], "much less");
    let report: forebay_wire::ShadowReport = serde_json::from_slice(&daemon.admin("GET", "/v1/shadow").body).unwrap();
    assert_eq!((report.global, report.rows.len(), report.rows[0].calls), (false, 1, 2));
    assert_eq!(report.rows[0].upstream.as_deref(), Some("db"));
}

#[test]
fn on_overload_is_told_once_a_while_beside_the_calls() {
    use std::io::{BufRead, BufReader, Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = format!(
        "[hooks]\non_overload = \"http://{}/hook?key=s3cr3t\"\noverload_every = \"1s\"\n",
        listener.local_addr().unwrap()
    );
    let rate = "[callers.anonymous]\nrate = { per_second = 0.01, burst = 1 }\n";
    let daemon = Daemon::start(&format!("{hook}{rate}{}", stdio("db", &[], "")));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).text(), "slept");
    // The webhook takes its time; no refusal waits for it.
    assert_eq!(client.call("sleep", r#"{"ms":0}"#).refusal()["reason"], "caller_rate");
    let tellings = |listener: &std::net::TcpListener| {
        let (mut socket, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        (head, serde_json::from_slice::<serde_json::Value>(&body).unwrap(), move || {
            socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        })
    };
    let (head, told, mut answer) = tellings(&listener);
    assert!(head.starts_with("POST /hook?key=s3cr3t HTTP/1.1"), "{head}");
    assert_eq!((&told["event"], &told["calls"]), (&"overload".into(), &1.into()));
    assert_eq!(told["counts"][0]["reason"], "caller_rate");
    for _ in 0..5 {
        assert!(client.call("sleep", r#"{"ms":0}"#).is_refusal());
    }
    answer();
    // What came meanwhile is told at once, and in one.
    let (_, told, mut answer) = tellings(&listener);
    assert_eq!((&told["calls"], &told["counts"][0]["calls"]), (&5.into(), &5.into()));
    answer();
    assert!(!daemon.said().contains("s3cr3t"));
}

/// A key, and the caller of that name as the config has it.
fn key(name: &str) -> (String, String) {
    let made = forebay(&["key", "new", name, "--output", "json"], &[]).json();
    let part = |field: &str| made[field].as_str().expect("a string").to_owned();
    (part("key"), format!("[callers.{name}]\nkey_hash = \"{}\"\n", part("key_hash")))
}
