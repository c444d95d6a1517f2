//! The answer to every outcome on every face, and `docs/outcomes.md` held to it.

use super::*;
use crate::call::{Accepted, IdMint, OnFinish};
use crate::caller::{Caller, CallerId, Lane};
use crate::config::OverloadReply;
use crate::outcome::{Advice, ExpiredBy, Phase, TimedOutBy};
use crate::protocol::envelope::{Message, read};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

struct Nobody;

impl OnFinish for Nobody {
    fn finished(&self, _: &Call, _: &Arc<Ending>) {}
}

/// A call of `up__echo` (or of another method) that has just ended in its own words.
fn ended(method: &str, era: Option<Era>, outcome: Outcome) -> (Arc<Call>, Arc<Ending>) {
    let text =
        format!(r#"{{"jsonrpc":"2.0","id":"a-1","method":"{method}","params":{{"name":"db__query","uri":"x"}}}}"#);
    let Ok(Message::Request(request)) = read(Bytes::from(text)) else { panic!("no request") };
    let form = match era {
        Some(era) => ReplyForm::JsonRpc { id: request.id_bytes(), era },
        None => ReplyForm::Result,
    };
    let now = Instant::now();
    let call = Call::accept(Accepted {
        id: IdMint::new(7).mint(),
        caller: Arc::new(Caller::new(CallerId(1), "ann".into(), "key", Arc::default())),
        upstream: "db".into(),
        request,
        target: "query".into(),
        renamed: true,
        tool: Some("query".into()),
        weight: 1,
        lane: Lane::Normal,
        arrived: now,
        deadline: None,
        home: 0,
        form,
        notices: None,
        ledger: Arc::default(),
        on_finish: Arc::new(Nobody),
        charge: None,
        parent: None,
    });
    let mut refusal = call.refusal(outcome, Scope::Entries);
    fill(&mut refusal);
    assert!(call.refuse(refusal, now + Duration::from_millis(12)));
    let ending = call.ticket.ending().unwrap();
    (call, ending)
}

/// Figures as an upstream of two slots and sixteen places would give them.
fn fill(refusal: &mut Refusal) {
    refusal.scope = match refusal.outcome {
        Outcome::Refused(Reason::QueueFull) | Outcome::Displaced => Scope::Entries,
        Outcome::Refused(Reason::CallerRate | Reason::CallerQuota | Reason::CallerShare | Reason::CallerCursors) => {
            Scope::Caller
        }
        Outcome::Refused(Reason::Overloaded) => Scope::Global,
        _ => Scope::Upstream,
    };
    if matches!(refusal.scope, Scope::Entries) {
        (refusal.active, refusal.max_concurrent) = (Some(2), Some(2));
        (refusal.queued, refusal.queue_size) = (Some(16), Some(16));
        refusal.queue_timeout_ms = Some(30_000);
    }
    if matches!(refusal.outcome.advice(), Some(Advice::Busy | Advice::Down)) {
        refusal.retry_after_ms = Some(1450);
    }
}

async fn body(reply: Reply) -> (u16, Option<String>, Value) {
    let status = reply.status().as_u16();
    let retry = reply.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned());
    let bytes = reply.into_body().collect().await.unwrap().to_bytes();
    (status, retry, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn global(overload_reply: OverloadReply) -> Global {
    Global { overload_reply, ..Global::default() }
}

const FULL: Outcome = Outcome::Refused(Reason::QueueFull);
const FULL_TEXT: &str = "Not executed: the queue of db is full: 2 of 2 running, 16 of 16 waiting. This is a limit of \
    the gateway, not a failure of the tool: wait 1.5 s, then repeat the same call. [call 00007-11, queue_full]";

fn full_data() -> Value {
    json!({
        "reason": "queue_full", "scope": "entries", "upstream": "db", "caller": "ann", "active": 2,
        "max_concurrent": 2, "queued": 16, "queue_size": 16, "queue_timeout_ms": 30000, "retry_after_ms": 1450,
        "executed": "never", "call_id": "00007-11"
    })
}

#[tokio::test]
async fn a_refused_tool_call_is_a_result_that_a_model_can_read() {
    for (era, has_type) in [(Era::Legacy, false), (Era::Modern, true)] {
        let (call, ending) = ended("tools/call", Some(era), FULL);
        let (status, _, got) = body(mcp(&call, &ending, "db__query", &Global::default())).await;
        let mut result = json!({
            "content": [{ "type": "text", "text": FULL_TEXT }],
            "isError": true,
            "_meta": {
                "forebay/refusal": full_data(),
                "forebay/call": {
                    "call_id": "00007-11", "upstream": "db", "queued_ms": 12, "running_ms": 0,
                    "outcome": "refused", "executed": "never"
                }
            }
        });
        if has_type {
            result["resultType"] = json!("complete");
        }
        assert_eq!((status, got), (200, json!({ "jsonrpc": "2.0", "id": "a-1", "result": result })));
    }
}

#[tokio::test]
async fn other_methods_get_an_error_that_says_the_same() {
    let (call, ending) = ended("prompts/get", Some(Era::Legacy), FULL);
    let error = json!({ "code": -31429, "message": FULL_TEXT, "data": full_data() });
    let whole = json!({ "jsonrpc": "2.0", "id": "a-1", "error": error });
    assert_eq!(body(mcp(&call, &ending, "", &Global::default())).await, (200, None, whole.clone()));
    let (call, ending) = ended("tools/call", Some(Era::Legacy), FULL);
    let reply = mcp(&call, &ending, "", &global(OverloadReply::JsonrpcError));
    assert_eq!(body(reply).await, (200, None, whole.clone()));
    let reply = mcp(&call, &ending, "", &global(OverloadReply::Http429));
    assert_eq!(body(reply).await, (429, Some("2".into()), whole));
    // A status of 429 says "later"; what will not get better with time is no 429.
    let (call, ending) = ended("tools/call", Some(Era::Legacy), Outcome::Lost { sent: true });
    assert_eq!(body(mcp(&call, &ending, "", &global(OverloadReply::Http429))).await.0, 200);
}

#[tokio::test]
async fn r32_a_configured_code_is_used() {
    let (call, ending) = ended("prompts/get", Some(Era::Legacy), FULL);
    let settings = Global { overload_error_code: -32001, ..Global::default() };
    assert_eq!(body(mcp(&call, &ending, "", &settings)).await.2["error"]["code"], -32001);
}

#[tokio::test]
async fn r32_not_allowed_is_answered_as_unknown() {
    let (call, ending) = ended("tools/call", Some(Era::Modern), Outcome::Refused(Reason::NotAllowed));
    let hidden = mcp(&call, &ending, "db__query", &Global::default()).into_body().collect().await.unwrap().to_bytes();
    let unknown = rpc_unknown(b"\"a-1\"", "tool", "db__query").into_body().collect().await.unwrap().to_bytes();
    assert_eq!(hidden, unknown);
    assert_eq!(
        hidden,
        r#"{"jsonrpc":"2.0","id":"a-1","error":{"code":-32602,"message":"Unknown tool: db__query"}}"#.as_bytes()
    );
    let (call, ending) = ended("tools/call", None, Outcome::Refused(Reason::NotAllowed));
    assert_eq!(body(rest(&call, &ending)).await, body(rest_unknown("db", "query")).await);
}

#[tokio::test]
async fn r04_a_client_that_cancelled_gets_no_message() {
    for phase in [Phase::Queued, Phase::Running] {
        let outcome = |by| Outcome::Cancelled { by, phase };
        let (call, ending) = ended("tools/call", Some(Era::Legacy), outcome(CancelledBy::Caller));
        let reply = mcp(&call, &ending, "", &Global::default());
        assert_eq!(reply.headers()[CONTENT_TYPE], "text/event-stream");
        assert!(reply.into_body().collect().await.unwrap().to_bytes().is_empty());
        for by in [CancelledBy::Operator, CancelledBy::Shutdown] {
            let (call, ending) = ended("tools/call", Some(Era::Legacy), outcome(by));
            let (status, _, got) = body(mcp(&call, &ending, "", &Global::default())).await;
            assert_eq!((status, &got["result"]["isError"]), (200, &json!(true)), "{by:?}");
        }
    }
}

#[tokio::test]
async fn r26_rest_tells_status_time_and_refusal() {
    let (call, ending) = ended("tools/call", None, FULL);
    let (status, retry, got) = body(rest(&call, &ending)).await;
    assert_eq!((status, retry.as_deref()), (429, Some("2")));
    let note = json!({
        "call_id": "00007-11", "upstream": "db", "queued_ms": 12, "running_ms": 0,
        "outcome": "refused", "executed": "never"
    });
    assert_eq!(got, json!({ "message": FULL_TEXT, "refusal": full_data(), "call": note }));
    for outcome in every() {
        let (call, ending) = ended("tools/call", None, outcome);
        let (status, retry, got) = body(rest(&call, &ending)).await;
        assert!(got["refusal"]["reason"].is_string(), "{outcome:?}");
        assert!(matches!(status, 200 | 404 | 409 | 422 | 429 | 502 | 503 | 504), "{outcome:?}: {status}");
        assert_eq!(retry.is_some(), matches!(status, 429 | 503) || got["refusal"]["retry_after_ms"].is_u64());
    }
}

#[tokio::test]
async fn an_upstreams_own_error_passes_with_the_status_of_its_era() {
    let answer = |era, text: &'static str| {
        let (call, _) = ended("tools/call", era, FULL);
        let ending = Ending {
            outcome: Outcome::UpstreamError,
            answer: Answer::Upstream(Bytes::from_static(text.as_bytes())),
            at: call.arrived,
        };
        (call, ending)
    };
    let raw = r#"{"jsonrpc":"2.0","id":"a-1","error":{"code":-32601,"message":"m","data":1E400}}"#;
    for (era, status) in [(Era::Modern, 404), (Era::Legacy, 200)] {
        let (call, ending) = answer(Some(era), raw);
        let reply = mcp(&call, &ending, "", &Global::default());
        assert_eq!(reply.status().as_u16(), status);
        assert_eq!(reply.into_body().collect().await.unwrap().to_bytes(), raw.as_bytes());
    }
    let (call, ending) = answer(None, r#"{"code":-1,"message":"m"}"#);
    let (status, _, got) = body(rest(&call, &ending)).await;
    assert_eq!(status, 502);
    assert_eq!(got["error"], json!({ "code": -1, "message": "m" }));
    assert_eq!(got["refusal"]["reason"], "upstream_error");
}

#[tokio::test]
async fn c19_what_is_acknowledged_has_no_body_and_no_type() {
    let reply = accepted();
    assert_eq!(reply.status().as_u16(), 202);
    assert!(reply.headers().is_empty());
    assert!(reply.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn a_parse_error_answers_no_id() {
    let (status, _, got) = body(rpc_error(400, None, error::PARSE_ERROR, "m", None)).await;
    assert_eq!((status, &got["id"]), (400, &Value::Null));
}

/// One outcome for every line of the table.
fn every() -> Vec<Outcome> {
    use Reason::*;
    let mut all = vec![Outcome::Completed { is_error: false }, Outcome::UpstreamError];
    all.extend(
        [
            QueueFull,
            ConcurrencyLimit,
            WouldExpire,
            CallerRate,
            CallerQuota,
            CallerShare,
            CallerCursors,
            Gated,
            UpstreamDown,
            Draining,
            NotAllowed,
            Overloaded,
        ]
        .map(Outcome::Refused),
    );
    all.push(Outcome::Displaced);
    all.extend([ExpiredBy::QueueTimeout, ExpiredBy::Deadline, ExpiredBy::Sojourn].map(Outcome::Expired));
    all.extend([TimedOutBy::CallTimeout, TimedOutBy::Caller].map(Outcome::TimedOut));
    for by in [CancelledBy::Caller, CancelledBy::Operator, CancelledBy::Disconnect, CancelledBy::Shutdown] {
        all.extend([Phase::Queued, Phase::Running].map(|phase| Outcome::Cancelled { by, phase }));
    }
    all.extend([Outcome::Lost { sent: false }, Outcome::Lost { sent: true }]);
    all
}

#[test]
fn the_table_misses_no_outcome() {
    let seen: std::collections::BTreeSet<_> = every().into_iter().map(Outcome::index).collect();
    assert_eq!(seen.len(), Outcome::COUNT);
}

/// How a `tools/call` over MCP is answered by default, told from the answer itself.
async fn mcp_form(outcome: Outcome) -> String {
    match outcome {
        Outcome::Completed { .. } => return "the result".into(),
        Outcome::UpstreamError => return "the error, unchanged".into(),
        Outcome::Cancelled { by: CancelledBy::Disconnect, .. } => return "nobody is there".into(),
        _ => {}
    }
    let (call, ending) = ended("tools/call", Some(Era::Legacy), outcome);
    let (_, _, got) = body(mcp(&call, &ending, "db__query", &Global::default())).await;
    if got["result"]["isError"] == json!(true) {
        "`isError`".into()
    } else if let Some(code) = got["error"]["code"].as_i64() {
        format!("error {code}")
    } else {
        "no message".into()
    }
}

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/outcomes.md");
const TEXTS: &str = "## What each answer says\n";

/// The part of the page that is written from the code.
async fn texts() -> String {
    let mut text = format!(
        "{TEXTS}\nWritten from the code (`FOREBAY_BLESS=1 cargo test --lib outcomes_page`), for an upstream `db` with two \
         slots\nand a queue of 16. *MCP* is the form of a `tools/call` by default.\n\n\
         | outcome | MCP | a model reads |\n|---|---|---|\n"
    );
    for outcome in every() {
        let reason = match outcome {
            Outcome::Cancelled { by: CancelledBy::Disconnect, .. } => continue,
            Outcome::Cancelled { phase: Phase::Queued, .. } => format!("{}, queued", outcome.reason()),
            Outcome::Cancelled { phase: Phase::Running, .. } => format!("{}, running", outcome.reason()),
            Outcome::Lost { sent } => (if sent { "sent" } else { "unsent" }).to_owned(),
            _ => outcome.reason().to_owned(),
        };
        let form = mcp_form(outcome).await;
        let said = match outcome {
            Outcome::Completed { .. } | Outcome::UpstreamError => "what the server said".to_owned(),
            Outcome::Refused(Reason::NotAllowed) => "Unknown tool: db__query".to_owned(),
            Outcome::Cancelled { by: CancelledBy::Caller, .. } => "nothing".to_owned(),
            _ => {
                let (_, ending) = ended("tools/call", None, outcome);
                let Answer::Own(refusal) = &ending.answer else { panic!("{outcome:?}") };
                refusal.text()
            }
        };
        let name = if reason.is_empty() { outcome.name().to_owned() } else { format!("{} ({reason})", outcome.name()) };
        let _ = writeln!(text, "| {name} | {form} | {said} |");
    }
    text
}

#[tokio::test]
async fn outcomes_page_says_what_the_code_does() {
    let mut page = std::fs::read_to_string(PAGE).unwrap();
    let wanted = texts().await;
    let by_hand = page.split(TEXTS).next().unwrap().to_owned();
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        page = format!("{}\n\n{wanted}", by_hand.trim_end());
        std::fs::write(PAGE, &page).unwrap();
    }
    assert!(page.ends_with(&wanted), "docs/outcomes.md differs from the code: run this test with FOREBAY_BLESS=1");
    // The table at its head is written by hand; every outcome has its row there, with the right figures.
    let rows: Vec<Vec<&str>> = by_hand
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    assert_eq!(rows.len(), Outcome::COUNT);
    for outcome in every() {
        let row = rows.iter().find(|row| row[1] == outcome.name() && row[2] == outcome.reason());
        let row = row.unwrap_or_else(|| panic!("{outcome:?} has no row"));
        assert!(row[3].split([' ', ',']).any(|word| word == outcome.executed().name()), "{outcome:?}: {row:?}");
        assert_eq!(row[4], outcome.rest_status().to_string(), "{outcome:?}");
    }
}

/// An outcome, and of a refusal its scope, its limit in words and what the operator says.
type Told = (Outcome, Option<(Scope, &'static str, &'static str)>);

/// Every reason as callers meet it, with the figures that they are given, on both faces; word by word.
#[tokio::test]
async fn every_refusal_is_told_word_by_word() {
    let own = |reason, scope, limit: &'static str| (Outcome::Refused(reason), Some((scope, limit, "")));
    let debt = "600000 bytes of answers a minute, 10290 more have been sent";
    let mut all: Vec<Told> = vec![
        own(Reason::CallerRate, Scope::Caller, "5 calls a second, 20 at once"),
        own(Reason::CallerQuota, Scope::Caller, debt),
        own(
            Reason::CallerCursors,
            Scope::Caller,
            "10 of 10 are open of this tool; one is free after its last page, or 10m after its use",
        ),
        own(
            Reason::CallerCursors,
            Scope::Tool,
            "100 of 100 are open of this tool by all callers; one is free after its last page, or 10m after its use",
        ),
        own(Reason::CallerCursors, Scope::Cursor, ""),
        (Outcome::Refused(Reason::Gated), Some((Scope::Tool, "", "ask for at most 1000 rows"))),
        (
            Outcome::Refused(Reason::Gated),
            Some((Scope::Price, "explain says 12000, and 1000 is the most", "ask for fewer rows")),
        ),
        (Outcome::Refused(Reason::UpstreamDown), Some((Scope::Upstream, "", "exit code 1"))),
    ];
    let special: Vec<_> = all.iter().map(|(outcome, _)| *outcome).collect();
    let own_words = |outcome: &Outcome| {
        !special.contains(outcome) && !matches!(outcome, Outcome::Completed { .. } | Outcome::UpstreamError)
    };
    all.extend(every().into_iter().filter(own_words).map(|outcome| (outcome, None)));
    let mut told = String::new();
    for (outcome, figures) in all {
        let mut ends = Vec::new();
        for (method, era) in
            [("tools/call", Some(Era::Modern)), ("prompts/get", Some(Era::Modern)), ("tools/call", None)]
        {
            let (call, ending) = ended(method, era, outcome);
            let Answer::Own(refusal) = &ending.answer else { panic!("{outcome:?}") };
            let mut refusal = (**refusal).clone();
            if let Some((scope, limit, note)) = figures {
                refusal.scope = scope;
                refusal.limit = Some(limit.into()).filter(|_| !limit.is_empty());
                refusal.note = Some(note.into()).filter(|_| !note.is_empty());
                refusal.retry_after_ms = refusal.retry_after_ms.filter(|_| scope != Scope::Cursor);
            }
            let ending = Ending { answer: Answer::Own(Box::new(refusal)), ..(*ending).clone() };
            ends.push((call, ending));
        }
        let name = format!("{} {}", outcome.name(), outcome.reason());
        let _ = writeln!(told, "## {}", name.trim());
        let (call, ending) = &ends[0];
        let (status, _, got) = body(mcp(call, ending, "db__query", &Global::default())).await;
        let text = got["result"]["content"][0]["text"].as_str();
        let _ = writeln!(told, "mcp {status}: {}", text.map_or_else(|| got["error"].to_string(), str::to_owned));
        let _ = writeln!(told, "_meta: {}", got["result"]["_meta"]["forebay/refusal"]);
        let (call, ending) = &ends[1];
        let (status, _, got) = body(mcp(call, ending, "query", &Global::default())).await;
        let _ = writeln!(told, "prompts/get {status}: {} {}", got["error"]["code"], got["error"]["message"]);
        let (call, ending) = &ends[2];
        let (status, retry, got) = body(rest(call, ending)).await;
        let _ =
            writeln!(told, "rest {status}, retry-after {}: {}\n", retry.as_deref().unwrap_or("none"), got["message"]);
    }
    insta::assert_snapshot!("refusals", told);
}
