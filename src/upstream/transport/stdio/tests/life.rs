//! Children that die, are missing, or outstay their time.

use super::rig::*;

#[tokio::test]
async fn c05_a_call_that_may_have_run_is_lost_and_never_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("count");
    let house = Setup::new(&[]).up().await;
    let (call, run) = house.start("inc", json!({"file": file}));
    let (outcome, note) = outcome(&call).await;
    assert_eq!(outcome, Outcome::Lost { sent: true });
    assert_eq!(note, "exit code 0");
    house.freed(run, "lost").await;
    while house.event().await != (LinkEvent::Up { processes: 1 }) {}
    assert_eq!(house.stats().await["calls"], json!({}));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "1");
    assert_eq!(house.stdio.report().restarts, 1);
    house.close().await;
}

#[tokio::test]
async fn c13_a_killed_child_loses_what_it_held_within_a_second_and_comes_back() {
    let house = Setup::new(&[]).up().await;
    let held: Vec<_> = (0..3).map(|_| house.start("hold", json!({"key": "k"}))).collect();
    let (killer, _) = house.start("kill_self", json!({}));
    let (outcome_of_killer, note) = outcome(&killer).await;
    let died = std::time::Instant::now();
    assert_eq!(outcome_of_killer, Outcome::Lost { sent: true });
    assert_eq!(note, "killed by signal 9");
    for (call, _) in &held {
        assert_eq!(outcome(call).await.0, Outcome::Lost { sent: true });
    }
    assert!(died.elapsed() < Duration::from_secs(1));
    for _ in 0..4 {
        assert_eq!(name(&house.completion().await.how), "lost");
    }
    match house.event().await {
        LinkEvent::Down { fault, retry_in } => {
            assert_eq!(&*fault, "killed by signal 9");
            assert!(retry_in <= Duration::from_millis(500));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(house.event().await, LinkEvent::Up { processes: 1 });
    assert_eq!(house.stats().await["calls"], json!({}));
    house.close().await;
}

#[tokio::test]
async fn c14_never_more_children_than_processes_and_nothing_is_left_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let house = Setup::new(&["--starts", starts.to_str().unwrap()]).target(|target| target.processes = 2).up().await;
    let mut grandchildren = Vec::new();
    let mut rng = fastrand::Rng::with_seed(14);
    for _ in 0..3 {
        let answer = house.run("spawn_grandchild", json!({})).await;
        grandchildren.push(text(&answer).parse::<u32>().unwrap());
        let exits = rng.usize(1..=2);
        let calls: Vec<_> = (0..exits).map(|_| house.start("exit", json!({"code": 1}))).collect();
        for (call, _) in &calls {
            assert!(matches!(outcome(call).await.0, Outcome::Lost { .. }));
        }
        for _ in 0..exits {
            house.completion().await;
        }
        let report = house.stdio.report();
        assert!(report.pids.len() <= 2);
        while house.event().await != (LinkEvent::Up { processes: 2 }) {}
    }
    let started: Vec<u32> = std::fs::read_to_string(&starts).unwrap().lines().map(|pid| pid.parse().unwrap()).collect();
    let living = house.stdio.report().pids;
    assert_eq!(living.len(), 2);
    for pid in &started {
        assert!(process_state(*pid).is_none() || living.contains(pid), "{pid} is left");
    }
    house.close().await;
    for pid in started {
        assert_eq!(process_state(pid), None, "child {pid} is left");
    }
    for pid in grandchildren {
        // Grandchildren are reaped by whoever adopts orphans here; they must not run.
        assert!(matches!(process_state(pid), None | Some('Z' | 'X')), "grandchild {pid} still runs");
    }
}

#[tokio::test]
async fn c14_a_child_deaf_to_everything_is_killed_within_a_bound() {
    let house = Setup::command("sh", &["-c", "trap '' TERM; exec sleep 1000"]).build();
    house.stdio.open();
    let pid = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(pid) = house.stdio.report().pids.first() {
                return *pid;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    let began = std::time::Instant::now();
    house.stdio.close().await;
    assert!(began.elapsed() < Duration::from_secs(6));
    assert_eq!(process_state(pid), None);
}

#[tokio::test]
async fn c15_a_child_has_path_and_home_and_none_of_the_daemons_secrets() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(test_upstream(), folder.path().join("server")).unwrap();
    let house = Setup::command("./server", &["--stdio"])
        .target(|target| {
            target.cwd = Some(folder.path().to_path_buf());
            target.env.insert("X".into(), Secret::new("1"));
        })
        .up()
        .await;
    let answer = house.run("env", json!({})).await;
    let seen = &answer["result"]["structuredContent"];
    let env = seen["env"].as_object().unwrap();
    assert_eq!(env["X"], "1");
    assert!(env.contains_key("PATH"));
    for key in env.keys() {
        assert!(command::BASE.contains(&&**key) || key.starts_with("LC_") || key == "X", "{key} was handed on");
    }
    assert_eq!(seen["cwd"], folder.path().canonicalize().unwrap().to_str().unwrap());
    house.close().await;
}

#[tokio::test]
async fn c15_a_command_that_does_not_exist_is_final_and_says_where_it_was_looked_for() {
    let house = Setup::command("no-such-command", &[])
        .target(|target| drop(target.env.insert("PATH".into(), Secret::new("/nowhere:/else"))))
        .build();
    house.stdio.open();
    // For callers the class of it; the rest is for operators.
    assert_eq!(house.event().await, LinkEvent::Final { fault: "the server's command was not found".into() });
    let fault = "command `no-such-command` not found (ENOENT); looked in PATH=/nowhere:/else";
    assert_eq!(house.stdio.report().fault.as_deref(), Some(fault));
    house.close().await;
}

#[tokio::test]
async fn r05_calls_of_which_no_byte_was_written_are_handed_back_the_oldest_last() {
    // A serial server that is busy does not read, so what comes after fills the pipe and then waits here.
    let house = Setup::new(&["--serial"]).up().await;
    let (held, _) = house.start("hold_deaf", json!({"key": "k"}));
    let large = "x".repeat(1 << 20);
    let waiting: Vec<_> = (0..4).map(|number| house.start("echo", json!({"n": number, "x": large}))).collect();
    // Room for the pipe: the first of them is being written, as far as it goes.
    house.until_bytes(32 << 10).await;
    let pid = house.stdio.report().pids.first().copied();
    process::signal_group(pid, Signal::KILL);
    assert_eq!(outcome(&held).await.0, Outcome::Lost { sent: true });
    assert_eq!(outcome(&waiting[0].0).await.0, Outcome::Lost { sent: true });
    let mut unsent = Vec::new();
    for _ in 0..5 {
        let completion = house.completion().await;
        if let How::Unsent(call) = completion.how {
            assert_eq!(call.ticket.state(), crate::call::State::Running);
            unsent.push(completion.id);
        }
    }
    // Each goes to the head of its flow, so the oldest must come last.
    assert_eq!(unsent, [waiting[3].1, waiting[2].1, waiting[1].1]);
    house.close().await;
}
