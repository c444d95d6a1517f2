//! A child that dies takes nobody with it but the calls that it ran.

use crate::support::{Answer, Client, Daemon, Log, Pending, stdio};
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[test]
fn c13_a_child_killed_with_three_running_and_two_queued_loses_three_and_serves_two() {
    let log = Log::new();
    let daemon = Daemon::start(&stdio("db", &["--log", log.path()], "max_concurrent = 3"));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let running: Vec<_> = (0..3).map(|n| client.start("hold", &format!(r#"{{"key":"run-{n}"}}"#))).collect();
    daemon.until_load("db", 3, 0);
    let queued: Vec<_> = (0..2).map(|n| client.start("echo", &format!(r#"{{"mark":"wait-{n}"}}"#))).collect();
    let figures = daemon.until("two wait", "db", |figures| (figures.running, figures.queued) == (3, 2));
    // All three have reached the child, or killing it would prove less.
    log.until("run-0");
    log.until("run-1");
    log.until("run-2");
    let [pid] = figures.pids[..] else { panic!("one child: {figures:?}") };

    let killed = Instant::now();
    crate::support::signal_pid(pid, Signal::KILL);
    let lost: Vec<Answer> = running.into_iter().map(Pending::answer).collect();
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(1), "told within a second, not {took:?}");
    for answer in &lost {
        assert_eq!(answer.refusal()["reason"], "lost");
        assert_eq!(answer.refusal()["executed"], "unknown");
        assert!(answer.text().contains("It may have run"), "{}", answer.text());
    }
    for (n, answer) in queued.into_iter().map(Pending::answer).enumerate() {
        assert_eq!(answer.json["result"]["structuredContent"]["mark"], format!("wait-{n}"));
    }
    for mark in ["run-0", "run-1", "run-2", "wait-0", "wait-1"] {
        assert_eq!(log.with(mark).len(), 1, "{mark} is sent once");
    }
    let figures = daemon.upstream("db");
    assert_eq!(figures.restarts, 1);
    assert_ne!(figures.pids, [pid]);
    let ended = daemon.adds_up();
    assert_eq!((ended.of("completed", "*"), ended.of("lost", "*")), (2, 3));
}

#[test]
fn c03_a_child_that_keeps_dying_never_sees_more_than_its_cap() {
    // `--limit 2` makes the server itself break above two calls.
    let daemon = Daemon::start(&stdio("db", &["--limit", "2"], "max_concurrent = 2"));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let mut lost = 0;
    for _ in 0..3 {
        let calls: Vec<_> = (0..12).map(|_| client.start("sleep", r#"{"ms":20}"#)).collect();
        let dead = client.start("kill_self", "{}");
        for answer in calls.into_iter().map(Pending::answer) {
            if answer.is_refusal() {
                assert_eq!(answer.refusal()["reason"], "lost", "{answer:?}");
                lost += 1;
            } else {
                assert_eq!(answer.text(), "slept");
            }
        }
        assert_eq!(dead.answer().refusal()["reason"], "lost");
    }
    let figures = daemon.until("it is up again", "db", |figures| figures.pids.len() == 1);
    // A fourth restart would be the server's own, for a third call at once (exit code 70).
    assert_eq!(figures.restarts, 3, "{}", daemon.said());
    let ended = daemon.adds_up();
    assert_eq!(ended.of("lost", "*"), lost + 3);
    assert_eq!(ended.of("completed", "*"), 36 - lost);
}

#[test]
fn c14_no_process_is_left_behind() {
    let mut daemon = Daemon::start(&stdio("db", &[], "processes = 2\nmax_concurrent = 4"));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let grandchild: u32 = client.call("spawn_grandchild", "{}").text().parse().expect("a process id");
    let children = daemon.upstream("db").pids;
    assert_eq!(children.len(), 2);
    daemon.signal(Signal::TERM);
    assert!(daemon.ended().success(), "{}", daemon.said());
    for pid in children.into_iter().chain([grandchild]) {
        assert!(!alive(pid), "process {pid} is left behind");
    }
}

/// Whether a process exists and is no zombie whose parent has gone.
fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
}
