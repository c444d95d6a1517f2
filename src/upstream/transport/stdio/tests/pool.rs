//! Who gets a call, and what is asked beside the calls.

use super::rig::*;

#[tokio::test]
async fn questions_of_the_server_are_answered_at_once() {
    let house = Setup::new(&[]).up().await;
    for line in [
        r#"{"jsonrpc":"2.0","id":"q","method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}"#,
    ] {
        house.run("raw", json!({"line": line})).await;
    }
    let seen = house.run("wait", json!({"answers": 2})).await;
    let answers: Vec<Value> = seen["result"]["structuredContent"]["answers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| serde_json::from_str(answer.as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": "q", "result": {}}));
    assert_eq!(answers[1]["id"], 7);
    assert_eq!(answers[1]["error"]["code"], -32601);
    house.close().await;
}

#[tokio::test]
async fn changed_lists_are_told_and_a_burst_of_them_is_not() {
    let house = Setup::new(&[]).up().await;
    let line = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let burst = [line; 50].join("\n");
    house.run("raw", json!({"line": burst})).await;
    assert_eq!(house.event().await, LinkEvent::ListsChanged);
    house.stats().await;
    let mut told = 1;
    while house.shared.link_events.pop().is_some() {
        told += 1;
    }
    assert!(told <= 3, "{told} events for one burst");
    house.close().await;
}

#[tokio::test]
async fn lists_are_asked_for_beside_the_calls() {
    for era in ["modern", "legacy"] {
        let house = Setup::new(&["--era", era, "--tools-page", "3"]).up().await;
        let page = house.stdio.ask("tools/list", Some("{\"cursor\":\"3\"}"), PATIENCE).await.unwrap();
        let page: Value = serde_json::from_slice(&page).unwrap();
        assert_eq!(page["tools"].as_array().unwrap().len(), 3);
        assert_eq!(page["nextCursor"], "6");
        let fault = house.stdio.ask("no/such", None, PATIENCE).await.unwrap_err();
        assert!(matches!(&fault, AskError::Rpc(error) if error.contains("-32601")), "{fault}");
        let params = json!({"name": "hold", "arguments": {"key": "k"}}).to_string();
        let slow = house.stdio.ask("tools/call", Some(&params), Duration::from_millis(20)).await;
        assert_eq!(slow, Err(AskError::TimedOut(Duration::from_millis(20))));
        let seen = house.run("wait", json!({"cancels": 1})).await;
        assert_eq!(seen["result"]["structuredContent"]["cancels"].as_array().unwrap().len(), 1);
        house.close().await;
    }
}

#[tokio::test]
async fn a_request_of_our_own_that_timed_out_before_it_was_written_is_never_sent() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let house = Setup::new(&["--log", log.to_str().unwrap()]).up().await;
    let pid = house.stdio.report().pids.first().copied();
    process::signal_group(pid, Signal::STOP);
    // More than the pipe takes, so that the writer is busy with it.
    let (large, _) = house.start("echo", json!({"x": "x".repeat(1 << 20)}));
    house.until_bytes(32 << 10).await;
    let asked = house.stdio.ask("never/sent", None, Duration::from_millis(20)).await;
    assert_eq!(asked, Err(AskError::TimedOut(Duration::from_millis(20))));
    process::signal_group(pid, Signal::CONT);
    answer(&large).await;
    house.run_among_others("stats", json!({})).await;
    let sent = lines(&log);
    assert!(sent.iter().any(|line| line["params"]["name"] == "stats"));
    let strangers = ["never/sent", "notifications/cancelled"];
    assert!(sent.iter().all(|line| !strangers.contains(&line["method"].as_str().unwrap())), "{sent:?}");
    house.close().await;
}

#[tokio::test]
async fn r22_no_child_takes_more_than_its_part_of_the_limit() {
    let house = Setup::new(&[]).target(|target| target.processes = 2).up().await;
    for _ in 0..4 {
        house.begin_with_share(&house.call("hold", json!({"key": "k"})), 2);
    }
    assert_eq!([house.load(0), house.load(1)], [2, 2]);
    // As it happens while the actor has yet to hear that a third child is gone.
    let fifth = house.begin_with_share(&house.call("hold", json!({"key": "k"})), 2);
    house.freed(fifth, "no room").await;
    // A higher limit at the time of the hand-off leaves more to each.
    house.begin_with_share(&house.call("hold", json!({"key": "k"})), 3);
    assert_eq!([house.load(0), house.load(1)], [3, 2]);
    house.close().await;
}

#[tokio::test]
async fn r22_calls_go_to_the_least_loaded_child_and_the_number_of_children_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("{pid}");
    let house = Setup::new(&["--log", log.to_str().unwrap()]).target(|target| target.processes = 3).build();
    house.stdio.open();
    for processes in 1..=3 {
        assert_eq!(house.event().await, LinkEvent::Up { processes });
    }
    for _ in 0..9 {
        house.start("hold", json!({"key": "k"}));
    }
    // Open at the same time, so that each child gets one.
    let waits: Vec<_> = (0..3).map(|_| house.start("wait", json!({"tool": "hold", "count": 3}))).collect();
    for (wait, _) in &waits {
        answer(wait).await;
    }
    for _ in &waits {
        assert_eq!(name(&house.completion().await.how), "answered");
    }
    let pids = house.stdio.report().pids;
    for pid in &pids {
        let held = lines(&folder.path().join(pid.to_string()));
        assert_eq!(held.iter().filter(|line| line["params"]["name"] == "hold").count(), 3);
    }
    process::signal_group(pids.first().copied(), Signal::KILL);
    assert_eq!(house.event().await, LinkEvent::Up { processes: 2 });
    assert_eq!(house.event().await, LinkEvent::Up { processes: 3 });
    for _ in 0..3 {
        assert_eq!(name(&house.completion().await.how), "lost");
    }
    house.close().await;
}
