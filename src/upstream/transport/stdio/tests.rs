//! The transport alone against a real child, `forebay-test-upstream`: the tests stand in for the actor.

mod with_actor;

use super::*;
use crate::call::{Accepted, Answer, Call, Ending, IdMint, OnFinish};
use crate::caller::{Caller, CallerId, Lane};
use crate::config::{AfterCancel, Concurrency, Limits, Secret, Start, StdioTarget, UpstreamConfig};
use crate::outcome::{CancelledBy, Outcome};
use crate::protocol::envelope::{self, Message};
use crate::protocol::splice::ReplyForm;
use crate::protocol::version::Era;
use crate::upstream::connection::{Completion, LinkEvent};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

/// No wait of a test is longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The scripted server, built beside this test.
fn test_upstream() -> PathBuf {
    let own = std::env::current_exe().expect("the test knows its own path");
    let folder = own.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    let path = folder.join("forebay-test-upstream");
    let missing = "is missing: build it with `cargo build -p forebay-test-upstream` or test with `--workspace`";
    assert!(path.exists(), "{} {missing}", path.display());
    path
}

/// What an actor would hold of one upstream.
struct House {
    shared: Arc<UpstreamShared>,
    stdio: Arc<Stdio>,
    mint: IdMint,
    entries: AtomicU64,
}

struct Nobody;

impl OnFinish for Nobody {
    fn finished(&self, _call: &Call, _ending: &Arc<Ending>) {}
}

/// Settings that tests change.
struct Setup {
    config: UpstreamConfig,
}

impl Setup {
    fn new(args: &[&str]) -> Self {
        let upstream = test_upstream();
        Setup::command(upstream.to_str().expect("a plain path"), &[&["--stdio"], args].concat())
    }

    fn command(command: &str, args: &[&str]) -> Self {
        let target = StdioTarget {
            command: command.into(),
            args: args.iter().map(|arg| Secret::new(*arg)).collect(),
            env: BTreeMap::new(),
            cwd: None,
            processes: 1,
        };
        Setup {
            config: UpstreamConfig {
                name: "up".into(),
                target: Target::Stdio(target),
                limits: Limits { max_concurrent: Concurrency::Fixed(64), ..Limits::built_in(true) },
                tools: BTreeMap::new(),
                start: Start::Eager,
                connect_timeout: Duration::from_secs(10),
                max_message: 6 << 20,
            },
        }
    }

    fn target(mut self, change: impl FnOnce(&mut StdioTarget)) -> Self {
        let Target::Stdio(target) = &mut self.config.target else { unreachable!() };
        change(target);
        self
    }

    fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.config.limits);
        self
    }

    fn config(mut self, change: impl FnOnce(&mut UpstreamConfig)) -> Self {
        change(&mut self.config);
        self
    }

    fn build(self) -> House {
        let shared = UpstreamShared::new(Arc::new(self.config));
        let processes = match &shared.config.load().target {
            Target::Stdio(target) => target.processes as usize,
            Target::Http(_) => unreachable!(),
        };
        let inner = Inner::new(shared.clone(), Arc::new(Semaphore::new(4)), processes, 7);
        let stdio = Arc::new(Stdio { inner });
        House { shared, stdio, mint: IdMint::new(1), entries: AtomicU64::new(1) }
    }

    /// Opened, and all children up.
    async fn up(self) -> House {
        let house = self.build();
        house.stdio.open();
        let processes = house.stdio.inner.signals.len() as u32;
        while house.event().await != (LinkEvent::Up { processes }) {}
        house
    }
}

impl House {
    /// Waits until `found` gives something; it is asked again whenever the actor would be woken.
    async fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
        let wait = async {
            loop {
                if let Some(found) = found() {
                    return found;
                }
                self.shared.wake.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("what the test waits for did not happen")
    }

    async fn event(&self) -> LinkEvent {
        self.until(|| self.shared.link_events.pop()).await
    }

    async fn completion(&self) -> Completion {
        self.until(|| self.shared.completions.pop()).await
    }

    fn call_raw(&self, body: String) -> Arc<Call> {
        let Ok(Message::Request(request)) = envelope::read(Bytes::from(body)) else { panic!("a request") };
        let target: Arc<str> = request.target_name().unwrap_or_default().into();
        let caller = Caller::new(CallerId(0), "test".into(), "none", Arc::default());
        Call::accept(Accepted {
            id: self.mint.mint(),
            caller: Arc::new(caller),
            upstream: self.shared.name.clone(),
            form: ReplyForm::JsonRpc { id: request.id_bytes(), era: Era::Legacy },
            request,
            target,
            renamed: false,
            tool: None,
            weight: 1,
            lane: Lane::Normal,
            arrived: Instant::now(),
            deadline: None,
            home: 0,
            ledger: self.shared.ledger.clone(),
            on_finish: Arc::new(Nobody),
            charge: None,
        })
    }

    fn call(&self, tool: &str, arguments: Value) -> Arc<Call> {
        let params = json!({"name": tool, "arguments": arguments});
        self.call_raw(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string())
    }

    /// Begins a call as an actor does; the run's id is for `stop`.
    fn begin(&self, call: &Arc<Call>) -> RunId {
        let entry = self.entries.fetch_add(1, Relaxed);
        let id = RunId { incarnation: 0, entry };
        let now = Instant::now();
        assert!(call.ticket.start(now));
        self.stdio.begin(Run::new(call.clone(), id, Some(now + PATIENCE), self.shared.clone(), now));
        id
    }

    fn start(&self, tool: &str, arguments: Value) -> (Arc<Call>, RunId) {
        let call = self.call(tool, arguments);
        let run = self.begin(&call);
        (call, run)
    }

    /// Calls a tool and gives its answer, after its completion.
    async fn run(&self, tool: &str, arguments: Value) -> Value {
        let (call, run) = self.start(tool, arguments);
        let answer = answer(&call).await;
        self.freed(run, "answered").await;
        answer
    }

    async fn freed(&self, run: RunId, how: &str) {
        let completion = self.completion().await;
        assert_eq!(completion.id, run);
        assert_eq!(name(&completion.how), how);
    }

    /// Cancels a running call as the dispatcher and the actor do.
    fn cancel(&self, call: &Call, run: RunId) {
        call.cancel(CancelledBy::Operator, Instant::now()).expect("the call has not ended");
        self.stdio.stop(run, StopReason::Cancelled);
    }

    async fn stats(&self) -> Value {
        self.run("stats", json!({})).await["result"]["structuredContent"].clone()
    }

    /// Closes, and checks that nothing is left of these processes.
    async fn close(&self) {
        let pids = self.stdio.report().pids;
        self.stdio.close().await;
        assert_eq!(self.stdio.inner.pool.lock().alive, 0);
        for pid in pids {
            assert_eq!(process_state(pid), None, "process {pid} is left");
        }
    }
}

fn name(how: &How) -> &'static str {
    match how {
        How::Answered => "answered",
        How::Busy => "busy",
        How::Lost => "lost",
        How::Unsent(_) => "unsent",
        How::Dropped => "dropped",
    }
}

async fn ended(call: &Call) -> Arc<Ending> {
    tokio::time::timeout(PATIENCE, call.ticket.ended()).await.expect("the call has not ended")
}

async fn answer(call: &Call) -> Value {
    match &ended(call).await.answer {
        Answer::Upstream(bytes) => serde_json::from_slice(bytes).expect("an answer is JSON"),
        Answer::Own(refusal) => panic!("{}", refusal.text()),
    }
}

async fn outcome(call: &Call) -> (Outcome, String) {
    let ending = ended(call).await;
    let note = match &ending.answer {
        Answer::Upstream(_) => String::new(),
        Answer::Own(refusal) => refusal.note.as_deref().unwrap_or_default().to_owned(),
    };
    (ending.outcome, note)
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().expect("a text")
}

/// The state letter of a process; none if there is no such process.
fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line is a message")).collect()
}

#[tokio::test]
async fn both_eras_are_found_and_an_answer_comes_back_byte_for_byte() {
    for (args, era) in [
        (&["--era", "modern"][..], Era::Modern),
        (&["--era", "legacy"], Era::Legacy),
        (&["--era", "both"], Era::Modern),
        (&["--era", "legacy", "--noise-at-start"], Era::Legacy),
    ] {
        let house = Setup::new(args).up().await;
        let info = house.stdio.server().unwrap();
        assert_eq!(info.era, era);
        assert!(info.capabilities.contains("listChanged") && info.server_info.contains("forebay-test-upstream"));
        assert_eq!(info.instructions.as_deref(), Some("\"be kind\""));
        // Written over several lines, as an HTTP body may be: a line of stdio it must be all the same.
        let arguments = "{\"id\":9223372036854775807,\"f\":1.10,\"z\":-0.0,\"s\":\"a\\nb\"}";
        let call = house.call_raw(format!(
            "{{\r\n \"jsonrpc\":\"2.0\",\n\"id\":\"x\",\"method\":\"tools/call\",\n\"params\":{{\"name\":\"echo\",\n\"arguments\":{arguments}}}}}\n"
        ));
        house.begin(&call);
        let Answer::Upstream(bytes) = ended(&call).await.answer.clone() else { panic!() };
        let answer = std::str::from_utf8(&bytes).unwrap();
        assert!(answer.contains(&format!("\"structuredContent\":{arguments}")), "{answer}");
        assert!(answer.contains("\"id\":\"x\""), "{answer}");
        house.close().await;
    }
}

#[tokio::test]
async fn a_server_silent_to_discover_is_greeted_the_old_way() {
    let house = Setup::new(&["--era", "legacy", "--silent-discover"])
        .config(|config| config.connect_timeout = Duration::from_millis(1500))
        .up()
        .await;
    assert_eq!(house.stdio.server().unwrap().era, Era::Legacy);
    assert_eq!(house.stats().await["initialized"], true);
    house.close().await;
}

#[tokio::test]
async fn a_modern_server_that_is_slow_to_start_is_not_taken_for_an_old_one() {
    let house = Setup::new(&["--era", "modern", "--slow-init", "600"])
        .config(|config| config.connect_timeout = Duration::from_millis(1500))
        .up()
        .await;
    assert_eq!(house.stdio.server().unwrap().era, Era::Modern);
    house.close().await;
}

#[tokio::test]
async fn a_server_that_dies_of_the_probe_is_greeted_the_old_way_next_time() {
    let house = Setup::new(&["--era", "legacy", "--dies-of-discover"]).build();
    house.stdio.open();
    assert!(matches!(house.event().await, LinkEvent::Down { fault, .. } if &*fault == "exit code 1"));
    assert_eq!(house.event().await, LinkEvent::Up { processes: 1 });
    assert_eq!(house.stdio.server().unwrap().era, Era::Legacy);
    house.close().await;
}

#[tokio::test]
async fn a_handshake_that_is_not_answered_ends_in_its_own_time_and_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let house = Setup::new(&["--silent-init", "--starts", starts.to_str().unwrap()])
        .config(|config| config.connect_timeout = Duration::from_millis(300))
        .build();
    house.stdio.open();
    for _ in 0..2 {
        match house.event().await {
            LinkEvent::Down { fault, retry_in } => {
                assert!(fault.contains("handshake within 300ms"), "{fault}");
                assert!(retry_in <= Duration::from_secs(1));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(house.stdio.server().is_none());
    assert!(matches!(house.stdio.ask("tools/list", None, PATIENCE).await, Err(AskError::Down(_))));
    let (_, run) = house.start("echo", json!({}));
    house.freed(run, "unsent").await;
    house.close().await;
    let started = std::fs::read_to_string(&starts).unwrap();
    assert!(started.lines().count() >= 2);
    assert!(started.lines().all(|pid| process_state(pid.parse().unwrap()).is_none()));
}

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
async fn c09_a_child_that_floods_its_standard_error_is_answered_at_once() {
    let house = Setup::new(&[]).up().await;
    for _ in 0..3 {
        let answer = house.run("flood_stderr", json!({"bytes": 256 << 10})).await;
        assert_eq!(text(&answer), "flooded");
    }
    house.run("stderr", json!({"line": "\nlast words"})).await;
    house.close().await;
    let report = house.stdio.report();
    assert_eq!(report.stderr.last().unwrap(), "last words");
    assert!(report.stderr.iter().all(|line| line.len() <= 4096));
}

#[tokio::test]
async fn c10_lines_that_are_no_messages_are_skipped_and_counted() {
    let house = Setup::new(&[]).up().await;
    assert_eq!(text(&house.run("noise", json!({})).await), "after the noise");
    assert_eq!(house.stdio.report().noise, 4);
    // An answer that is not JSON costs the call it belongs to; a log line that names an id costs nothing.
    let (held, run) = house.start("hold", json!({"key": "k"}));
    let id = house.stdio.inner.pool.lock().find(run).unwrap().1.0;
    house.run("raw", json!({"line": format!("{{\"level\":\"info\",\"id\":{id}}}")})).await;
    assert_eq!(held.ticket.state(), crate::call::State::Running);
    let (_, raw) = house.start("raw", json!({"line": format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":NaN}}")}));
    let (outcome, note) = outcome(&held).await;
    assert_eq!(outcome, Outcome::Lost { sent: true });
    assert_eq!(note, "the server's answer is not valid JSON");
    house.freed(run, "lost").await;
    house.freed(raw, "answered").await;
    house.close().await;
}

#[tokio::test]
async fn c11_bytes_out_equal_bytes_in_and_what_is_not_utf8_costs_its_call_alone() {
    let house = Setup::new(&[]).up().await;
    assert_eq!(text(&house.run("utf8_bytewise", json!({})).await), "é😀");
    let (bad, run) = house.start("bad_utf8", json!({}));
    let (outcome, note) = outcome(&bad).await;
    assert_eq!(outcome, Outcome::Lost { sent: true });
    assert_eq!(note, "the server's answer is not UTF-8");
    house.freed(run, "lost").await;
    assert_eq!(text(&house.run("utf8_bytewise", json!({})).await), "é😀");
    assert_eq!(house.stdio.report().restarts, 0);
    house.close().await;
}

#[tokio::test]
async fn c12_long_lines_arrive_and_one_over_the_cap_costs_one_call() {
    let house = Setup::new(&[]).up().await;
    for bytes in [70_000, 5 << 20, 3] {
        assert_eq!(text(&house.run("big", json!({"bytes": bytes})).await).len(), bytes);
    }
    for id_last in [false, true] {
        let (bystander, held) = house.start("hold", json!({"key": id_last.to_string()}));
        let (big, run) = house.start("big", json!({"bytes": 7 << 20, "id_last": id_last}));
        let (outcome, note) = outcome(&big).await;
        assert_eq!(outcome, Outcome::Lost { sent: true });
        assert_eq!(note, "the server's answer is longer than `max_message`");
        house.freed(run, "lost").await;
        let (_, release) = house.start("release", json!({"key": id_last.to_string()}));
        assert_eq!(text(&answer(&bystander).await), id_last.to_string());
        let mut freed = vec![house.completion().await.id, house.completion().await.id];
        freed.sort_unstable();
        assert_eq!(freed, [held, release]);
    }
    assert_eq!(house.stdio.report().restarts, 0);
    house.close().await;
}

#[tokio::test]
async fn a_child_that_floods_its_standard_output_is_replaced() {
    let house = Setup::new(&[]).config(|config| config.max_message = 1 << 20).up().await;
    let (call, run) = house.start("flood_stdout", json!({"bytes": 80 << 20}));
    let (outcome, note) = outcome(&call).await;
    assert_eq!(outcome, Outcome::Lost { sent: true });
    assert_eq!(note, "flooded its standard output");
    house.freed(run, "lost").await;
    while house.event().await != (LinkEvent::Up { processes: 1 }) {}
    house.run("echo", json!({})).await;
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
    let fault = "command `no-such-command` not found (ENOENT); looked in PATH=/nowhere:/else";
    assert_eq!(house.event().await, LinkEvent::Final { fault: fault.into() });
    house.close().await;
}

#[tokio::test]
async fn c23_an_id_given_back_as_a_string_is_tolerated() {
    let house = Setup::new(&[]).up().await;
    assert_eq!(text(&house.run("string_id", json!({})).await), "a string");
    house.close().await;
}

#[tokio::test]
async fn c26_calls_of_the_same_id_get_their_own_answers() {
    let house = Setup::new(&[]).up().await;
    let (first, run_a) = house.start("hold", json!({"key": "a"}));
    let (second, run_b) = house.start("hold", json!({"key": "b"}));
    house.start("release", json!({"key": "b"}));
    assert_eq!(text(&answer(&second).await), "b");
    house.start("release", json!({"key": "a"}));
    let answer = answer(&first).await;
    assert_eq!((text(&answer), &answer["id"]), ("a", &json!(1)));
    let mut freed = Vec::new();
    for _ in 0..4 {
        freed.push(house.completion().await.id);
    }
    assert!(freed.contains(&run_a) && freed.contains(&run_b));
    assert_eq!(text(&house.run("twice", json!({})).await), "twice");
    house.stats().await;
    assert_eq!(house.stdio.report().late, 1);
    house.close().await;
}

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

#[tokio::test]
async fn r05_calls_of_which_no_byte_was_written_are_handed_back_the_oldest_last() {
    // A serial server that is busy does not read, so what comes after fills the pipe and then waits here.
    let house = Setup::new(&["--serial"]).up().await;
    let (held, _) = house.start("hold_deaf", json!({"key": "k"}));
    let large = "x".repeat(1 << 20);
    let waiting: Vec<_> = (0..4).map(|number| house.start("echo", json!({"n": number, "x": large}))).collect();
    // Room for the pipe: the first of them is being written, as far as it goes.
    let written = &house.stdio.inner.signals[0].written;
    tokio::time::timeout(PATIENCE, async {
        while written.load(Relaxed) < 32 << 10 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
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
    let load = || house.stdio.inner.pool.lock().members[0].book.load();
    assert_eq!(load(), 1);
    // It is forgotten with some later call, after the grace and a little.
    let began = std::time::Instant::now();
    while load() > 0 {
        let (echo, _) = house.start("echo", json!({}));
        answer(&echo).await;
        assert!(began.elapsed() < PATIENCE);
    }
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
    house.freed(refused, "unsent").await;
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

impl House {
    /// Calls a tool while completions of others may come.
    async fn run_among_others(&self, tool: &str, arguments: Value) -> Value {
        let (call, _) = self.start(tool, arguments);
        answer(&call).await
    }

    /// Waits until the writer has nothing left, so that a stop finds the call sent.
    async fn until_written(&self) {
        let written = async {
            while !self.stdio.inner.pool.lock().members.iter().all(|member| member.out.is_empty()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, written).await.expect("the child does not read");
    }
}
