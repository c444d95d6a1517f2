//! The real actor on the real transport: what only the two of them together can promise.

use super::rig::*;
use crate::call::Call;
use crate::upstream::actor::control::PanicForTest;
use crate::upstream::gates::Gates;
use crate::upstream::supervisor::Supervisor;
use crate::upstream::{Status, Upstream, UpstreamState};

/// An upstream in service.
struct Service {
    house: House,
    upstream: Arc<Upstream>,
    /// Dropping it would end the actor.
    _supervisor: Supervisor,
}

impl Setup {
    fn serve(self) -> Service {
        let house = self.build();
        let supervisor =
            Supervisor::start(&tokio::runtime::Handle::current(), Gates::new(&crate::config::Global::default()), 7);
        let upstream = Upstream::start(house.shared.clone(), house.stdio.clone(), &supervisor);
        Service { house, upstream, _supervisor: supervisor }
    }
}

impl Service {
    fn offer(&self, tool: &str, arguments: Value) -> Arc<Call> {
        let call = self.house.call(tool, arguments);
        self.upstream.offer(call.clone());
        call
    }

    /// Waits until the upstream's figures are so.
    async fn until(&self, holds: impl Fn(&Status) -> bool) {
        let wait = async {
            while !holds(&self.upstream.status()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, wait).await;
        assert!(found.is_ok(), "last seen: {:?}", self.upstream.status());
    }

    async fn end(self) {
        self.upstream.remove(Duration::from_secs(5)).await;
        let counts = self.house.shared.ledger.read();
        assert_eq!((counts.unaccounted(), counts.finished()), (0, counts.offered));
        assert_eq!(self.house.stdio.report().pids, [0u32; 0]);
    }
}

#[tokio::test]
async fn c13_what_ran_on_a_killed_child_is_lost_and_what_waited_runs_on_the_next() {
    let service = Setup::new(&[]).limits(|limits| limits.max_concurrent = Concurrency::Fixed(4)).serve();
    let held: Vec<_> = (0..3).map(|_| service.offer("hold", json!({"key": "k"}))).collect();
    let killer = service.offer("kill_self", json!({}));
    let waiting: Vec<_> = (0..2).map(|_| service.offer("echo", json!({}))).collect();
    for call in held.iter().chain([&killer]) {
        assert_eq!(outcome(call).await.0, Outcome::Lost { sent: true });
    }
    for call in &waiting {
        answer(call).await;
    }
    let stats = answer(&service.offer("stats", json!({}))).await;
    assert_eq!(stats["result"]["structuredContent"]["calls"], json!({"echo": 2}));
    assert_eq!(service.house.stdio.report().restarts, 1);
    service.end().await;
}

#[tokio::test]
async fn c14_ten_callers_on_two_children_that_exit_now_and_then() {
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let service = Setup::new(&["--starts", starts.to_str().unwrap(), "--limit", "3"])
        .target(|target| target.processes = 2)
        .limits(|limits| {
            limits.max_concurrent = Concurrency::Fixed(6);
            limits.queue_size = 200;
        })
        .serve();
    let (mut ok, mut lost) = (0, 0);
    let mut rng = fastrand::Rng::with_seed(14);
    let exits: Vec<_> = (0..3).map(|_| rng.usize(0..200)).collect();
    let calls: Vec<_> = (0..200)
        .map(|number| match exits.contains(&number) {
            true => service.offer("exit", json!({"code": 1})),
            false => service.offer("sleep", json!({"ms": 2})),
        })
        .collect();
    for call in &calls {
        match outcome(call).await.0 {
            Outcome::Completed { .. } => ok += 1,
            Outcome::Lost { .. } => lost += 1,
            other => panic!("{other:?}"),
        }
        assert!(service.house.stdio.report().pids.len() <= 2);
    }
    assert_eq!(ok + lost, 200);
    // An exit takes at most the three calls that one child may hold, itself included.
    assert!(lost <= 9, "{lost} calls were lost to three exits");
    let exited = calls.iter().enumerate().filter(|(number, _)| exits.contains(number));
    for (_, call) in exited {
        assert!(matches!(outcome(call).await.0, Outcome::Lost { sent: true }));
    }
    let house = service.house.stdio.clone();
    service.end().await;
    assert_eq!(house.report().pids, [0u32; 0]);
    for pid in std::fs::read_to_string(&starts).unwrap().lines() {
        assert_eq!(process_state(pid.parse().unwrap()), None, "child {pid} is left");
    }
}

#[tokio::test]
async fn r07_a_server_deaf_to_cancels_never_sees_more_than_its_limit_under_hold() {
    // `--limit` makes the server itself the judge: it exits above two calls at once.
    let service = Setup::new(&["--limit", "2"])
        .limits(|limits| {
            limits.max_concurrent = Concurrency::Fixed(2);
            limits.after_cancel = AfterCancel::Hold;
            limits.cancel_grace = Duration::from_millis(20);
        })
        .serve();
    let calls: Vec<_> = (0..20).map(|_| service.offer("ignore_cancel", json!({"ms": 30}))).collect();
    for (number, call) in calls.iter().enumerate() {
        if number % 2 == 0 && call.cancel(CancelledBy::Operator, Instant::now()).is_ok() {
            service.house.shared.withdraw(call.clone());
        }
        ended(call).await;
    }
    let stats = answer(&service.offer("stats", json!({}))).await;
    assert!(stats["result"]["structuredContent"]["peak"].as_u64().unwrap() <= 2);
    assert_eq!(service.house.stdio.report().restarts, 0);
    service.end().await;
}

#[tokio::test]
async fn r02_a_panic_with_five_running_and_twenty_queued_answers_all_and_the_server_never_sees_six() {
    // The server is its own judge: it exits above five calls at once.
    let service = Setup::new(&["--limit", "5"]).limits(|limits| limits.max_concurrent = Concurrency::Fixed(5)).serve();
    let running: Vec<_> = (0..5).map(|_| service.offer("hold", json!({"key": "k"}))).collect();
    let queued: Vec<_> = (0..20).map(|_| service.offer("echo", json!({}))).collect();
    service.until(|status| (status.running, status.queued) == (5, 20)).await;
    // Beside the queue, since every slot is taken.
    let five = json!({"name": "wait", "arguments": {"tool": "hold", "count": 5}}).to_string();
    service.house.stdio.ask("tools/call", Some(&five), PATIENCE).await.expect("all five have reached the server");
    let actor = service.house.shared.actor.borrow().clone().expect("the actor lives");
    actor.tell(PanicForTest).send().await.expect("it takes messages");
    for call in &running {
        assert_eq!(outcome(call).await.0, Outcome::Lost { sent: true });
    }
    for call in &queued {
        assert_eq!(outcome(call).await.0, Outcome::Lost { sent: false });
    }
    let more: Vec<_> = (0..25).map(|_| service.offer("sleep", json!({"ms": 1}))).collect();
    for call in &more {
        answer(call).await;
    }
    let stats = answer(&service.offer("stats", json!({}))).await;
    let seen = &stats["result"]["structuredContent"];
    assert_eq!((&seen["peak"], &seen["calls"]), (&json!(5), &json!({"sleep": 25})));
    assert_eq!(service.house.stdio.report().restarts, 1, "the reset of the panic, and no child that died of six");
    let counts = service.house.shared.ledger.read();
    assert_eq!((counts.offered, counts.finished(), counts.unaccounted()), (51, 51, 0));
    service.end().await;
}

#[tokio::test]
async fn r22_while_a_child_is_away_the_other_takes_its_own_part_alone() {
    // Each child is its own judge: it exits above three calls at once, half of five rounded up.
    let service = Setup::new(&["--limit", "3"])
        .target(|target| target.processes = 2)
        .limits(|limits| {
            limits.max_concurrent = Concurrency::Fixed(5);
            limits.queue_size = 200;
        })
        .serve();
    let mut kills = 0;
    for _ in 0..3 {
        let dead = service.offer("kill_self", json!({}));
        let calls: Vec<_> = (0..40).map(|_| service.offer("sleep", json!({"ms": 2}))).collect();
        assert_eq!(outcome(&dead).await.0, Outcome::Lost { sent: true });
        kills += 1;
        for call in &calls {
            ended(call).await;
        }
        service.until(|status| status.state == UpstreamState::Up).await;
    }
    assert_eq!(service.house.stdio.report().restarts, kills, "nobody died of too many calls");
    service.end().await;
}

#[tokio::test]
async fn r07_a_call_that_the_server_never_ends_is_forgotten_though_nothing_else_happens() {
    let service = Setup::new(&[])
        .limits(|limits| {
            limits.max_concurrent = Concurrency::Fixed(2);
            limits.cancel_grace = Duration::from_millis(20);
        })
        .serve();
    let call = service.offer("hold_deaf", json!({"key": "k"}));
    answer(&service.offer("wait", json!({"tool": "hold_deaf", "count": 1}))).await;
    call.cancel(CancelledBy::Operator, Instant::now()).expect("it runs");
    service.house.shared.withdraw(call.clone());
    ended(&call).await;
    // No call comes, no answer and no cancel: the end of the grace alone lets go of it.
    let forgotten = async {
        while Arc::strong_count(&call) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, forgotten).await.expect("something still holds the call");
    assert_eq!(service.house.load(0), 0);
    assert_eq!(service.upstream.status().lingering, 0);
    service.end().await;
}

#[tokio::test]
async fn a_start_that_fails_tells_operators_the_servers_last_words_and_callers_none() {
    let script = "echo old >&2; echo \"cannot read /srv/db with $TOKEN\" >&2; exit 3";
    let service = Setup::command("sh", &["-c", script])
        .target(|target| drop(target.env.insert("TOKEN".into(), Secret::new("s3cr3t-0002"))))
        .limits(|limits| limits.queue_size = 0)
        .serve();
    let told = async {
        loop {
            let told = crate::snapshot::upstream(&service.upstream).fault.filter(|told| told.contains("/srv/db"));
            if let Some(told) = told {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let told = tokio::time::timeout(PATIENCE, told).await.expect("status tells it");
    assert!(told.ends_with("exit code 3; its stderr ends: old / cannot read /srv/db with ***"), "{told}");
    let (outcome, note) = outcome(&service.offer("echo", json!({}))).await;
    assert_eq!(outcome, Outcome::Refused(crate::outcome::Reason::UpstreamDown));
    assert!(!note.contains("srv") && !note.contains("s3cr3t"), "{note}");
    service.end().await;
}

#[tokio::test]
async fn a_command_that_is_missing_refuses_what_waits_with_its_reason() {
    let service = Setup::command("no-such-command", &[]).serve();
    let call = service.offer("echo", json!({}));
    let (outcome, note) = outcome(&call).await;
    assert_eq!(outcome, Outcome::Refused(crate::outcome::Reason::UpstreamDown));
    assert_eq!(note, "the server's command was not found");
    let told = crate::snapshot::upstream(&service.upstream).fault.expect("status tells why");
    assert!(told.contains("`no-such-command` not found (ENOENT); looked in PATH="), "{told}");
    service.end().await;
}
