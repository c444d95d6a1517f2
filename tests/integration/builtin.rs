//! The built-in tools: a caller sees and ends its own calls over MCP, and nobody else's.

use crate::support::{Answer, Client, Daemon, forebay, stdio};
use serde_json::{Value, json};

struct House {
    daemon: Daemon,
    alice: Client,
    bob: Client,
}

fn house(settings: &str) -> House {
    let keys: Vec<_> =
        ["alice", "bob"].map(|name| forebay(&["key", "new", name, "--output", "json"], &[]).json()).into();
    let callers: String = keys
        .iter()
        .map(|key| format!("[callers.{}]\nkey_hash = {}\n", key["name"].as_str().unwrap(), key["key_hash"]))
        .collect();
    let server = stdio("db", &[], "max_concurrent = 1");
    let daemon = Daemon::start(&format!("[auth]\nmode = \"keys\"\n{settings}{callers}{server}"));
    let client = |key: &Value| Client::modern(daemon.mcp, "/mcp").with_key(key["key"].as_str().unwrap());
    House { alice: client(&keys[0]), bob: client(&keys[1]), daemon }
}

fn own(answer: &Answer) -> &Value {
    &answer.json["result"]["structuredContent"]
}

fn tools(client: &Client) -> Vec<String> {
    let meta = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;
    let answer = client.request("1", "tools/list", meta);
    let tools = answer.json["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .filter(|name| name.starts_with("forebay__"))
        .collect()
}

#[test]
fn r27_a_caller_sees_and_ends_its_own_calls_and_anothers_is_unknown() {
    let House { daemon, alice, bob } = house("[global]\nbuiltin_tools = true\n");
    assert_eq!(tools(&alice), ["forebay__my_calls", "forebay__cancel_my_call"]);
    let running = alice.start("db__hold", r#"{"key":"k"}"#);
    daemon.until_load("db", 1, 0);
    let waiting = alice.start("db__echo", r#"{"mark":"alice"}"#);
    daemon.until_load("db", 1, 1);
    let other = bob.start("db__echo", r#"{"mark":"bob"}"#);
    daemon.until_load("db", 1, 2);

    let answer = alice.call("forebay__my_calls", "{}");
    let mine = own(&answer)["calls"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
    let states: Vec<_> = mine.iter().map(|call| (call["tool"].as_str(), call["state"].as_str())).collect();
    assert_eq!(states, [(Some("hold"), Some("running")), (Some("echo"), Some("queued"))]);
    assert_eq!(own(&answer)["total"], 2);
    let id = |at: usize| mine[at]["id"].as_str().unwrap().to_owned();

    // Bob can neither see nor end them: what is not his is answered as what never was.
    assert_eq!(own(&bob.call("forebay__my_calls", "{}"))["total"], 1);
    let cancel = |client: &Client, id: &str| client.call("forebay__cancel_my_call", &json!({ "id": id }).to_string());
    let (hers, nobodys) = (cancel(&bob, &id(1)), cancel(&bob, "zzzz"));
    assert_eq!(hers.json["result"]["isError"], true, "{hers:?}");
    assert_eq!(hers.message.replace(&id(1), "zzzz"), nobodys.message);
    assert_eq!(cancel(&bob, "no id at all").message.replace("no id at all", "zzzz"), nobodys.message);

    let ended = cancel(&alice, &id(1));
    assert_eq!(own(&ended), &json!({ "id": id(1), "answer": "cancelled_queued" }));
    assert_eq!(waiting.answer().refusal()["executed"], "never");
    assert_eq!(own(&cancel(&alice, &id(0)))["answer"], "cancelled_running");
    assert!(running.answer().is_refusal());
    assert_eq!(other.answer().json["result"]["structuredContent"]["mark"], "bob");
    assert_eq!(own(&cancel(&alice, &id(1)))["answer"], "already_finished");
    assert_eq!(own(&alice.call("forebay__cancel_my_call", "{}"))["answer"], "bad_arguments");
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("cancelled", "*")), (1, 2), "they are no calls themselves");
}

#[test]
fn they_are_off_unless_asked_for_and_their_name_is_kept_free() {
    let House { daemon: _daemon, alice, .. } = house("");
    assert!(tools(&alice).is_empty());
    let answer = alice.call("forebay__my_calls", "{}");
    assert!(answer.json["error"]["message"].as_str().unwrap_or_default().contains("Unknown tool"), "{answer:?}");
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), "[global]\nbuiltin_tools = true\n[upstreams.forebay]\ncommand = \"true\"\n").unwrap();
    let ran = forebay(&["check", "--config", file.path().to_str().unwrap()], &[]);
    assert!(ran.code == Some(3) && ran.stderr.contains("built-in tools"), "{ran:?}");
}
