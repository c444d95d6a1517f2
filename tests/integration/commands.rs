//! The commands against daemons of every kind: what they send, what they print, how they end.

use crate::support::{FakeDaemon, Ran, forebay};
use serde_json::{Value, json};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Every command that asks a daemon, with arguments that fit.
const ASKING: [&[&str]; 12] = [
    &["status"],
    &["status", "db"],
    &["ps"],
    &["why", "db"],
    &["cancel", "1f9"],
    &["cancel", "--all"],
    &["edit", "1f9", "--priority", "high"],
    &["upstream", "restart", "db"],
    &["upstream", "set", "db", "max_concurrent=3"],
    &["callers"],
    &["events"],
    &["health"],
];

fn fault(status: u16, code: &str, message: &str) -> Option<(u16, String)> {
    Some((status, json!({ "code": code, "message": message, "hint": "look elsewhere" }).to_string()))
}

fn code_of(ran: &Ran) -> Value {
    serde_json::from_str::<Value>(&ran.stderr).unwrap_or_else(|fault| panic!("{fault}: {ran:?}"))["code"].clone()
}

#[test]
fn c43_without_a_daemon_every_command_says_so_within_a_second() {
    for args in ASKING {
        let began = Instant::now();
        let ran = forebay(args, &[("FOREBAY_ADMIN", "unix:/nonexistent/admin.sock")]);
        assert_eq!(ran.code, Some(4), "{args:?}: {ran:?}");
        assert!(ran.stdout.is_empty() && ran.stderr.contains("no daemon answers at"), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("hint:") && !ran.stderr.contains("panicked"), "{args:?}: {ran:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "{args:?}");
    }
}

#[test]
fn an_older_daemon_a_dying_one_and_a_stranger_are_told_apart() {
    let older = FakeDaemon::start(|_, _| fault(404, "unknown_route", "there is no such route"));
    let dying = FakeDaemon::start(|_, _| None);
    let stranger = FakeDaemon::start(|_, _| Some((200, "<html>hello</html>".into())));
    for args in ASKING {
        let all: Vec<_> = args.iter().copied().chain(["--output", "json"]).collect();
        let ran = older.run(&all);
        if args != ["cancel", "1f9"] {
            assert_eq!(ran.code, Some(1), "{args:?}: {ran:?}");
            assert!(ran.stderr.contains("older"), "{args:?}: {ran:?}");
        }
        let ran = dying.run(&all);
        assert_eq!((ran.code, code_of(&ran)), (Some(4), "unreachable".into()), "{args:?}: {ran:?}");
        let ran = stranger.run(args);
        assert_eq!(ran.code, Some(1), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("cannot be read") && !ran.stderr.contains("panicked"), "{args:?}: {ran:?}");
    }
}

#[test]
fn what_the_daemon_refuses_has_its_exit_code_and_hint() {
    for (status, code, exit, word) in [
        (404, "unknown_id", 5, "not_found"),
        (400, "bad_selector", 2, "usage"),
        (403, "read_only", 6, "not_allowed"),
        (503, "unavailable", 1, "failed"),
    ] {
        let daemon = FakeDaemon::start(move |_, _| fault(status, code, "no\u{1b}[2J"));
        let ran = daemon.run(&["callers"]);
        assert_eq!(ran.code, Some(exit), "{ran:?}");
        assert!(ran.stderr.contains("no\\x1b[2J") && ran.stderr.contains("hint: look elsewhere"), "{ran:?}");
        assert_eq!(code_of(&daemon.run(&["callers", "--output", "json"])), word);
    }
}

#[test]
fn a_daemon_that_never_answers_is_given_up_after_the_timeout() {
    let daemon = FakeDaemon::start(|_, _| {
        std::thread::sleep(Duration::from_secs(30));
        None
    });
    let ran = daemon.run(&["status", "--timeout", "50ms"]);
    assert_eq!(ran.code, Some(8), "{ran:?}");
    assert!(ran.stderr.contains("not done within 50ms"), "{ran:?}");
}

#[test]
fn a_selector_is_sent_as_it_was_typed_and_its_counts_are_told() {
    let many = json!({ "dry_run": false, "matched": 3, "cancelled_queued": 2, "cancelled_running": 1, "already_finished": 0,
                       "ids": ["k3f9q-11"] });
    let daemon = FakeDaemon::start(move |_, _| Some((200, many.to_string())));
    let args =
        ["cancel", "--caller", "ci", "--upstream", "db", "--tool", "t", "--state", "queued", "--older-than", "90s"];
    let ran = daemon.run(&args);
    assert!(ran.code == Some(0) && ran.stdout.starts_with("cancelled 3 calls: 2 queued"), "{ran:?}");
    // Piped, it never asks: one request, and no dry run before it.
    let asked = daemon.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    let body: Value = serde_json::from_str(asked[0].strip_prefix("POST /v1/cancel ").unwrap()).unwrap();
    let sent = json!({ "caller": "ci", "upstream": "db", "tool": "t", "state": "queued", "older_than_ms": 90_000 });
    assert_eq!(body, sent);
    assert_eq!(daemon.run(&["cancel", "--all", "--dry-run"]).code, Some(0));
    assert_eq!(daemon.asked()[1], r#"POST /v1/cancel {"all":true,"dry_run":true}"#);
    for wrong in
        [&["cancel"][..], &["cancel", "1f9", "--all"], &["cancel", "1f9", "--dry-run"], &["cancel", "--state", "x"]]
    {
        assert_eq!(daemon.run(wrong).code, Some(2), "{wrong:?}");
    }
    assert_eq!(daemon.asked().len(), 2, "what is not understood is not sent");
}

#[test]
fn limits_and_edits_are_sent_in_the_words_of_the_api() {
    let daemon = FakeDaemon::start(|asked, _| {
        Some(match asked.split(' ').next() {
            Some("PATCH") => {
                (200, json!({ "now": { "max_concurrent": 3 }, "file": { "max_concurrent": 5 } }).to_string())
            }
            _ => (409, json!({ "id": "1f9", "answer": "already_running" }).to_string()),
        })
    });
    let ran = daemon.run(&["upstream", "set", "a/b", "max_concurrent=3", "call_timeout=1m", "--save"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        daemon.asked()[0],
        r#"PATCH /v1/upstreams/a%2Fb?save=true {"max_concurrent":3,"call_timeout_ms":60000}"#
    );
    let row = ran.stdout.lines().nth(1).unwrap_or_default();
    assert!(row.split_whitespace().eq(["max_concurrent", "3", "5"]), "{ran:?}");
    let ran = daemon.run(&["edit", "1f9", "--deadline", "+30s", "--priority", "low"]);
    assert!(ran.code == Some(1) && ran.stdout.contains("runs already"), "{ran:?}");
    assert_eq!(daemon.asked()[1], r#"POST /v1/calls/1f9 {"priority":"low","extend_ms":30000}"#);
    assert_eq!(daemon.run(&["edit", "1f9"]).code, Some(2));
    assert_eq!(daemon.run(&["upstream", "set", "db", "on_full=reject"]).code, Some(2));
}

#[test]
fn an_upstreams_name_counts_before_a_calls_id() {
    let daemon = FakeDaemon::start(|asked, _| match asked {
        "GET /v1/upstreams/db/why" => Some((200, json!({ "sentence": "db is idle" }).to_string())),
        "GET /v1/calls/1f9/why" => Some((200, json!({ "sentence": "it waits" }).to_string())),
        path if path.contains("/upstreams/") => fault(404, "unknown_upstream", "no upstream is named so"),
        _ => fault(400, "bad_id", "no id"),
    });
    assert_eq!(daemon.run(&["why", "db"]).stdout, "db is idle\n");
    assert_eq!(daemon.run(&["why", "1f9"]).stdout, "it waits\n");
    let ran = daemon.run(&["why", "nothing!"]);
    assert!(ran.code == Some(5) && ran.stderr.contains("neither an upstream nor the id of a call"), "{ran:?}");
}

/// A listing that is longer than any pipe's buffer.
fn long_listing() -> FakeDaemon {
    let event =
        json!({ "number": 1, "at_unix_ms": 0, "level": "warn", "kind": "x\u{1b}", "text": "evil\u{1b}[2J\r\u{202e}" });
    let call = json!({ "id": "k3f9q-11", "caller": "c\u{1b}]0;x\u{7}", "upstream": "u\r\n", "method": "tools/call",
                       "tool": "t\u{9b}31m", "lane": "normal", "state": "queued", "age_ms": 1, "queued_ms": 1,
                       "running_ms": 0, "weight": 1, "bytes": 1, "attempt": 1 });
    let caller = json!({ "name": "c\u{1b}[2J", "identity": "key", "queued": 0, "running": 0, "finished": 0, "completed": 0,
                         "shed": 0, "cancelled": 0, "weight": 1, "client": "\u{1b}c\u{0}" });
    let many = |one: &Value| vec![one.to_string(); 2000].join(",");
    let (events, calls) = (many(&event), many(&call));
    FakeDaemon::start(move |asked, _| {
        let answer = if asked.contains("/v1/events?from=0") {
            format!(r#"{{"events":[{events}],"next":2000}}"#)
        } else if asked.contains("/v1/events") {
            r#"{"events":[],"next":2000}"#.to_owned()
        } else if asked.contains("/v1/callers") {
            format!(r#"{{"callers":[{caller}]}}"#)
        } else {
            format!(r#"{{"calls":[{calls}]}}"#)
        };
        Some((200, answer))
    })
}

#[test]
fn no_name_from_outside_ever_steers_a_terminal() {
    let daemon = long_listing();
    for args in [&["ps"][..], &["events"], &["callers"]] {
        let ran = daemon.run(args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let raw = ran.stdout.chars().find(|c| (c.is_control() && *c != '\n') || ('\u{202a}'..='\u{202e}').contains(c));
        assert_eq!(raw, None, "{args:?}");
        assert!(ran.stdout.contains("\\x1b"), "{args:?}");
        // As JSON nothing is lost, and nothing raw is left either.
        let ran = daemon.run(&[args[0], "--output", "json"]);
        assert!(ran.json().as_array().is_some_and(|all| !all.is_empty()), "{args:?}");
        assert!(!ran.stdout.contains('\u{1b}'), "{args:?}");
    }
}

fn piped(daemon: &FakeDaemon, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).env("FOREBAY_ADMIN", daemon.admin()).stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn c42_a_reader_that_stops_reading_ends_the_listing_quietly() {
    let daemon = long_listing();
    for args in [
        &["ps", "--output", "json"][..],
        &["events", "--output", "json"],
        &["events", "-f"],
        &["ps", "--watch"],
        &["ps", "--watch", "--output", "json"],
    ] {
        let mut child = piped(&daemon, args).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut some = [0; 64];
        output.read_exact(&mut some).unwrap();
        drop(output);
        let ended = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success() && told.is_empty(), "{args:?}: {} {told}", ended.status);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn c42_a_full_device_ends_the_listing_with_a_code() {
    let daemon = long_listing();
    for args in [&["ps", "--output", "json"][..], &["ps"], &["events"], &["callers"], &["ps", "--watch"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = piped(&daemon, args).stdout(full).output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(1), "{args:?}: {told}");
        assert!(told.contains("standard output") && !told.contains("panicked"), "{args:?}: {told}");
    }
}

#[test]
fn with_json_a_watch_is_one_value_a_line() {
    let daemon = long_listing();
    let mut child = piped(&daemon, &["ps", "--watch", "--output", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    for _ in 0..2 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line.as_array().unwrap().len(), 2000);
    }
    drop(lines);
    assert!(child.wait().unwrap().success());
}

#[test]
fn completions_and_manual_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = forebay(&["completions", shell], &[]);
        assert!(ran.code == Some(0) && ran.stdout.contains("bridge") && ran.stdout.contains("older-than"), "{shell}");
    }
    assert_eq!(forebay(&["completions", "tcsh"], &[]).code, Some(2));
    let page = forebay(&["man"], &[]);
    assert!(page.code == Some(0) && page.stdout.contains(".TH forebay"), "{page:?}");
    let folder = tempfile::TempDir::new().unwrap();
    let ran = forebay(&["man", "--dir", folder.path().to_str().unwrap()], &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for name in ["forebay.1", "forebay-why.1", "forebay-upstream-set.1"] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
    assert_eq!(forebay(&["man", "--dir", "/dev/null/x"], &[]).code, Some(1));
}

#[test]
fn config_show_tells_origins_and_no_secret() {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    let text = "[upstreams.db]\ncommand = \"x\"\nargs = [\"s3cr3t\"]\nqueue_size = 7\nenv = { K = \"s3cr3t\", L = \"${L}\" }\n";
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    let env = [("L", "s3cr3t"), ("FOREBAY_DEFAULTS_CALL_TIMEOUT", "9s")];
    let ran = forebay(&["config", "show", "--config", path, "--set"], &env);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains(&format!("{path}:4")) && ran.stdout.contains("FOREBAY_DEFAULTS_CALL_TIMEOUT"),
        "{ran:?}"
    );
    let all = forebay(&["config", "show", "--config", path, "--output", "json"], &env);
    let settings = all.json();
    let of = |key: &str| settings.as_array().unwrap().iter().find(|one| one["key"] == key).cloned().unwrap();
    assert_eq!(
        (of("upstreams.db.queue_size")["line"].clone(), of("global.max_bytes")["origin"].clone()),
        (4.into(), "default".into())
    );
    for ran in [ran, all] {
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("s3cr3t"), "C32: {ran:?}");
    }
    assert_eq!(forebay(&["config", "show", "--config", "/nonexistent"], &[]).code, Some(3));
    let schema = forebay(&["config", "schema"], &[]).json();
    assert!(schema["properties"]["upstreams"].is_object());
}

#[test]
fn doctor_works_with_a_daemon_and_without() {
    let server = crate::support::stdio("db", &[], "");
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("forebay.toml");
    let missing = "[upstreams.gone]\ncommand = \"no-such-server\"\n";
    std::fs::write(&file, format!("[listen]\nmcp = \"127.0.0.1:0\"\n{server}{missing}")).unwrap();
    let admin = format!("unix:{}", folder.path().join("admin.sock").display());
    let args = ["doctor", "--config", file.to_str().unwrap(), "--output", "json"];
    let ran = forebay(&args, &[("FOREBAY_ADMIN", &admin)]);
    assert_eq!(ran.code, Some(1), "a command is missing: {ran:?}");
    let found = ran.json();
    let verdict = |found: &Value, check: &str| {
        let all = found.as_array().unwrap();
        all.iter().find(|one| one["check"] == check).map(|one| one["verdict"].clone()).unwrap_or_default()
    };
    for (check, expected) in [
        ("config", "ok"),
        ("daemon", "ok"),
        ("admin socket", "ok"),
        ("MCP address", "ok"),
        ("clock", "ok"),
        ("command of db", "ok"),
        ("upstream db", "ok"),
        ("command of gone", "fail"),
        ("upstream gone", "fail"),
        ("zombies", "ok"),
    ] {
        assert_eq!(verdict(&found, check), expected, "{check}: {found:#}");
    }
    assert!(ran.stdout.contains("(modern)") && ran.stdout.contains("forebay-test-upstream"), "{ran:?}");
    let daemon = crate::support::Daemon::start(&server);
    let ran = daemon.run(&["doctor", "--output", "json"]);
    let found = ran.json();
    for check in ["daemon", "admin socket", "MCP address", "upstream db", "zombies"] {
        assert_eq!(verdict(&found, check), "ok", "{check}: {found:#}");
    }
    let table = daemon.run(&["doctor"]);
    assert!(table.stdout.starts_with("CHECK") && !table.stdout.contains('\u{1b}'), "{table:?}");
}

#[test]
fn why_edit_set_and_cancel_steer_a_real_daemon() {
    use crate::support::{Client, Daemon, stdio};
    let daemon = Daemon::start(&stdio("db", &[], "max_concurrent = 1\nqueue_size = 2\ncancel_grace = \"20s\""));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let running = client.start("hold_deaf", r#"{"key":"k"}"#);
    daemon.until_load("db", 1, 0);
    let _first = client.start("hold", r#"{"key":"one"}"#);
    daemon.until_load("db", 1, 1);
    let _second = client.start("hold", r#"{"key":"two"}"#);
    daemon.until_load("db", 1, 2);
    let calls = daemon.calls("db");
    let (runs, waits) = (&calls[0].id, &calls[2].id);
    let why = |what: &str| {
        let ran = daemon.run(&["why", what]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.stdout
    };
    assert!(why("db").contains("queue is full"), "{}", why("db"));
    assert!(why(waits).contains("1 call is ahead") && why(waits).contains(runs.as_str()), "{}", why(waits));
    assert!(why(runs).contains("runs at db"), "{}", why(runs));
    let edited = daemon.run(&["edit", waits, "--priority", "high", "--deadline", "+30s"]);
    assert!(edited.code == Some(0) && edited.stdout.contains("lane high"), "{edited:?}");
    assert_eq!(daemon.run(&["edit", runs, "--priority", "low"]).code, Some(1));
    assert_eq!(daemon.run(&["edit", "zzzz", "--priority", "low"]).code, Some(5));
    let planned = daemon.run(&["cancel", "--state", "queued", "--dry-run", "--output", "json"]);
    assert_eq!((planned.json()["matched"].clone(), daemon.calls("db").len()), (2.into(), 3));
    let ended = daemon.run(&["cancel", "--upstream", "db", "--output", "json"]);
    assert_eq!(
        (ended.json()["cancelled_queued"].clone(), ended.json()["cancelled_running"].clone()),
        (2.into(), 1.into())
    );
    assert!(running.answer().is_refusal());
    // A serial server that answers the probe behind the cancel has ended the call (rule R7), so it may linger or not.
    assert!(why(runs).contains("operator"), "{}", why(runs));
    assert!(why(waits).contains("never ran"), "{}", why(waits));
    assert_eq!(daemon.run(&["upstream", "set", "db", "max_concurrent=3"]).code, Some(0));
    assert_eq!(daemon.upstream("db").max_concurrent, 3);
    let events = daemon.run(&["events", "--since", "10m", "--output", "json"]).json();
    let kinds: Vec<_> = events.as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    for kind in ["daemon.started", "upstream.up", "call.edited", "cancelled", "limit.changed"] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    assert_eq!(daemon.run(&["callers", "--output", "json"]).json()[0]["name"], "anonymous");
    let nothing = daemon.run(&["cancel", "--caller", "nobody", "--yes"]);
    assert!(nothing.code == Some(0) && nothing.stdout.contains("nothing to cancel"), "{nothing:?}");
    assert_eq!(daemon.run(&["cancel", "--upstream", "no-such"]).code, Some(5));
    assert_eq!(daemon.run(&["upstream", "restart", "db"]).code, Some(0));
}
