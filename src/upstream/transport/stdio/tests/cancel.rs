//! Calls that are stopped (rules R7 and R9): what the child is told, when the slot comes back, when a silent child goes.

use super::rig::*;

#[tokio::test]
async fn c04_a_cancel_carries_the_id_used_there_and_goes_to_the_child_that_holds_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("{pid}");
    let house = Setup::new(&["--log", log.to_str().unwrap()]).target(|target| target.processes = 2).up().await;
    let (slow, run) = house.start("hold", json!({"key": "slow"}));
    // The other child is now the less loaded one.
    let (fast, other) = house.start("hold", json!({"key": "fast"}));
    let (_, release) = house.start("wait", json!({"tool": "hold", "count": 1}));
    house.freed(release, "answered").await;
    house.cancel(&slow, run);
    let holder = house.stdio.inner.pool.lock().find(run).expect("it lingers").0;
    let pids: Vec<_> = house.stdio.inner.pool.lock().members.iter().map(|member| member.pid.unwrap()).collect();
    // A server that has honoured a cancel sends no answer, so its own count of cancels is waited for, from
    // the child that holds the call: the only one that could have got it is the only one asked.
    let wait = json!({"name": "wait", "arguments": {"cancels": 1}}).to_string();
    let mut asked = house.stdio.inner.ask(holder, "tools/call", Some(&wait), Era::Modern).unwrap();
    let seen: Value = serde_json::from_slice(&asked.answer().await.unwrap()).unwrap();
    assert_eq!(seen["structuredContent"]["cancels"], seen["structuredContent"]["ids"]);
    let sent = lines(&folder.path().join(pids[holder].to_string()));
    let held = sent.iter().find(|line| line["params"]["name"] == "hold").expect("the call was sent here");
    let cancels: Vec<_> = sent.iter().filter(|line| line["method"] == "notifications/cancelled").collect();
    assert_eq!(cancels.len(), 1);
    assert_eq!(cancels[0]["params"]["requestId"], held["id"]);
    assert_ne!(held["id"], 1);
    let elsewhere = lines(&folder.path().join(pids[1 - holder].to_string()));
    assert!(elsewhere.iter().all(|line| line["method"] != "notifications/cancelled"));
    assert_eq!(outcome(&slow).await.0.name(), "cancelled");
    assert_eq!(fast.ticket.state(), crate::call::State::Running);
    house.close().await;
    assert_eq!(outcome(&fast).await.0, Outcome::Lost { sent: true });
    let mut left = vec![house.completion().await.id, house.completion().await.id];
    left.sort_unstable();
    assert_eq!(left, [run, other]);
}

#[tokio::test]
async fn c04_a_call_stopped_before_it_was_written_never_reaches_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let house = Setup::new(&["--log", log.to_str().unwrap()]).up().await;
    for _ in 0..1000 {
        let (call, run) = house.start("hold", json!({"key": "never"}));
        house.cancel(&call, run);
        house.freed(run, "unsent").await;
    }
    assert_eq!(house.stats().await["calls"], json!({}));
    let sent = lines(&log);
    assert!(sent.iter().all(|line| line["params"]["name"] != "hold" && line["method"] != "notifications/cancelled"));
    let counts = house.shared.ledger.read();
    assert_eq!((counts.offered, counts.unaccounted()), (1001, 0));
    house.close().await;
}

#[tokio::test]
async fn r07_a_serial_server_that_answers_the_probe_has_ended_the_cancelled_call() {
    let house = Setup::new(&[])
        .limits(|limits| {
            limits.max_concurrent = Concurrency::Fixed(1);
            limits.cancel_grace = PATIENCE;
        })
        .up()
        .await;
    let (call, run) = house.start("hold", json!({"key": "k"}));
    house.until_written().await;
    house.cancel(&call, run);
    house.freed(run, "answered").await;
    assert_eq!(house.stats().await["cancels"].as_array().unwrap().len(), 1);
    house.close().await;
}

#[tokio::test]
async fn r07_with_hold_the_slot_comes_back_with_the_late_answer_alone() {
    let house = Setup::new(&[])
        .limits(|limits| {
            limits.max_concurrent = Concurrency::Fixed(1);
            limits.after_cancel = AfterCancel::Hold;
        })
        .up()
        .await;
    let (call, run) = house.start("hold_deaf", json!({"key": "k"}));
    house.until_written().await;
    house.cancel(&call, run);
    house.run("wait", json!({"cancels": 1})).await;
    let probed = || house.stdio.inner.pool.lock().members[0].probe.is_none().then_some(());
    // Its ping was answered before the next call was, so the probe is over, and nothing came back of it.
    house.stats().await;
    assert_eq!(probed(), Some(()));
    assert!(house.shared.completions.is_empty());
    house.start("release", json!({"key": "k"}));
    let freed = [house.completion().await, house.completion().await];
    assert!(freed.iter().any(|done| done.id == run && name(&done.how) == "answered"));
    assert_eq!(house.stdio.report().late, 1);
    house.close().await;
}

#[tokio::test]
async fn r07_a_released_call_is_forgotten_and_its_answer_ends_nothing() {
    let house = Setup::new(&[]).limits(|limits| limits.cancel_grace = Duration::from_millis(10)).up().await;
    let (call, run) = house.start("hold_deaf", json!({"key": "k"}));
    house.until_written().await;
    house.cancel(&call, run);
    assert_eq!(house.load(0), 1);
    // As the actor does when the grace is over.
    house.stdio.forget(run);
    assert_eq!(house.load(0), 0);
    house.freed(run, "answered").await;
    house.start("release", json!({"key": "k"}));
    house.run_among_others("wait", json!({"tool": "hold_deaf", "count": 1})).await;
    house.run_among_others("stats", json!({})).await;
    assert_eq!(house.stdio.report().late, 1);
    assert_eq!(house.stdio.report().restarts, 0);
    house.close().await;
}

#[tokio::test]
async fn r09_a_child_silent_after_a_cancel_is_replaced_when_nobody_else_waits_for_it() {
    let house = Setup::new(&["--serial"]).limits(|limits| limits.cancel_grace = Duration::from_millis(150)).up().await;
    let (call, run) = house.start("hold_deaf", json!({"key": "k"}));
    house.until_written().await;
    house.cancel(&call, run);
    match house.event().await {
        LinkEvent::Down { fault, .. } => assert!(fault.contains("silent"), "{fault}"),
        other => panic!("{other:?}"),
    }
    house.freed(run, "lost").await;
    while house.event().await != (LinkEvent::Up { processes: 1 }) {}
    house.run("echo", json!({})).await;
    house.close().await;
}

#[tokio::test]
async fn r09_a_silent_child_that_others_wait_for_is_suspect_until_they_end() {
    let house = Setup::new(&["--serial"]).limits(|limits| limits.cancel_grace = Duration::from_millis(150)).up().await;
    let (call, run) = house.start("hold_deaf", json!({"key": "k"}));
    let (other, other_run) = house.start("echo", json!({}));
    house.until_written().await;
    house.cancel(&call, run);
    assert!(matches!(house.event().await, LinkEvent::Down { .. }));
    assert!(house.stdio.inner.pool.lock().members[0].is_suspect());
    assert_eq!(other.ticket.state(), crate::call::State::Running);
    let (_, refused) = house.start("echo", json!({}));
    house.freed(refused, "no room").await;
    house.cancel(&other, other_run);
    let mut freed = vec![house.completion().await.id, house.completion().await.id];
    freed.sort_unstable();
    assert_eq!(freed, [run, other_run]);
    while house.event().await != (LinkEvent::Up { processes: 1 }) {}
    house.close().await;
}

#[tokio::test]
async fn recycle_replaces_the_child_at_once_and_reset_forgets_everything() {
    let house = Setup::new(&[]).limits(|limits| limits.after_cancel = AfterCancel::Recycle).up().await;
    let (call, run) = house.start("hold_deaf", json!({"key": "k"}));
    house.until_written().await;
    house.cancel(&call, run);
    house.stdio.recycle(run);
    house.freed(run, "lost").await;
    assert_eq!(
        house.event().await,
        LinkEvent::Down { fault: "replaced after a cancel".into(), retry_in: Duration::ZERO }
    );
    assert_eq!(house.event().await, LinkEvent::Up { processes: 1 });
    let (call, run) = house.start("hold", json!({"key": "k"}));
    house.until_written().await;
    let pid = house.stdio.report().pids[0];
    house.stdio.reset("restarted by an operator");
    // Told before the method returns: the actor may dispatch right after it.
    assert_eq!(call.ticket.ending().unwrap().outcome, Outcome::Lost { sent: true });
    house.freed(run, "lost").await;
    let down = LinkEvent::Down { fault: "restarted by an operator".into(), retry_in: Duration::ZERO };
    assert_eq!(house.event().await, down);
    assert_eq!(house.event().await, LinkEvent::Up { processes: 1 });
    assert_eq!(process_state(pid), None);
    assert_eq!(house.stdio.report().restarts, 2);
    house.close().await;
}
