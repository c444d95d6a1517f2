//! What the tests have in common: an upstream without its actor, its settings, and what calls ended as.

use super::super::pool::Inner;
pub(super) use super::super::{Stdio, command, process};
use crate::call::{Accepted, Answer, Call, Ending, IdMint, OnFinish};
use crate::caller::{Caller, CallerId, Lane};
pub(super) use crate::config::{AfterCancel, Concurrency, Secret};
use crate::config::{Limits, Start, StdioTarget, Target, UpstreamConfig};
pub(super) use crate::outcome::{CancelledBy, Outcome};
use crate::protocol::envelope::{self, Message};
use crate::protocol::splice::ReplyForm;
pub(super) use crate::protocol::version::Era;
use crate::upstream::connection::Completion;
pub(super) use crate::upstream::connection::{AskError, Connection, How, LinkEvent, Run, RunId, StopReason};
use crate::upstream::shared::UpstreamShared;
use bytes::Bytes;
pub(super) use rustix::process::Signal;
pub(super) use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
pub(super) use std::sync::Arc;
use std::sync::atomic::AtomicU64;
pub(super) use std::sync::atomic::Ordering::Relaxed;
pub(super) use std::time::Duration;
use tokio::sync::Semaphore;
pub(super) use tokio::time::Instant;

/// No wait of a test is longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The scripted server, built beside this test.
pub(super) fn test_upstream() -> PathBuf {
    let own = std::env::current_exe().expect("the test knows its own path");
    let folder = own.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    let path = folder.join("forebay-test-upstream");
    let missing = "is missing: build it with `cargo build -p forebay-test-upstream` or test with `--workspace`";
    assert!(path.exists(), "{} {missing}", path.display());
    path
}

/// What an actor would hold of one upstream.
pub(super) struct House {
    pub(super) shared: Arc<UpstreamShared>,
    pub(super) stdio: Arc<Stdio>,
    mint: IdMint,
    entries: AtomicU64,
}

struct Nobody;

impl OnFinish for Nobody {
    fn finished(&self, _call: &Call, _ending: &Arc<Ending>) {}
}

/// Settings that tests change.
pub(super) struct Setup {
    config: UpstreamConfig,
}

impl Setup {
    pub(super) fn new(args: &[&str]) -> Self {
        let upstream = test_upstream();
        Setup::command(upstream.to_str().expect("a plain path"), &[&["--stdio"], args].concat())
    }

    pub(super) fn command(command: &str, args: &[&str]) -> Self {
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

    pub(super) fn target(mut self, change: impl FnOnce(&mut StdioTarget)) -> Self {
        let Target::Stdio(target) = &mut self.config.target else { unreachable!() };
        change(target);
        self
    }

    pub(super) fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.config.limits);
        self
    }

    pub(super) fn config(mut self, change: impl FnOnce(&mut UpstreamConfig)) -> Self {
        change(&mut self.config);
        self
    }

    pub(super) fn build(self) -> House {
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
    pub(super) async fn up(self) -> House {
        let house = self.build();
        house.stdio.open();
        let processes = house.stdio.inner.signals.len() as u32;
        while house.event().await != (LinkEvent::Up { processes }) {}
        house
    }
}

impl House {
    /// Waits until `found` gives something; it is asked again whenever the actor would be woken.
    pub(super) async fn until<T>(&self, mut found: impl FnMut() -> Option<T>) -> T {
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

    pub(super) async fn event(&self) -> LinkEvent {
        self.until(|| self.shared.link_events.pop()).await
    }

    pub(super) async fn completion(&self) -> Completion {
        self.until(|| self.shared.completions.pop()).await
    }

    pub(super) fn call_raw(&self, body: String) -> Arc<Call> {
        let Ok(Message::Request(request)) = envelope::read(Bytes::from(body)) else { panic!("a request") };
        let target: Arc<str> = request.target_name().unwrap_or_default().into();
        let caller = Caller::new(CallerId(0), "test".into(), "none", Arc::default());
        Call::accept(Accepted {
            id: self.mint.mint(),
            caller: Arc::new(caller),
            upstream: self.shared.name.clone(),
            form: ReplyForm::JsonRpc { id: request.id_bytes(), era: Era::Legacy },
            notices: None,
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
            parent: None,
        })
    }

    pub(super) fn call(&self, tool: &str, arguments: Value) -> Arc<Call> {
        let params = json!({"name": tool, "arguments": arguments});
        self.call_raw(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string())
    }

    /// Begins a call as an actor does; the run's id is for `stop`.
    pub(super) fn begin(&self, call: &Arc<Call>) -> RunId {
        self.begin_with_share(call, u32::MAX)
    }

    /// The same, with the most calls that a child may hold.
    pub(super) fn begin_with_share(&self, call: &Arc<Call>, share: u32) -> RunId {
        let entry = self.entries.fetch_add(1, Relaxed);
        let id = RunId { incarnation: 0, entry };
        let now = Instant::now();
        assert!(call.ticket.start(now));
        let mut run = Run::new(call.clone(), id, Some(now + PATIENCE), self.shared.clone(), now);
        run.share = share;
        self.stdio.begin(run);
        id
    }

    pub(super) fn start(&self, tool: &str, arguments: Value) -> (Arc<Call>, RunId) {
        let call = self.call(tool, arguments);
        let run = self.begin(&call);
        (call, run)
    }

    /// Calls a tool and gives its answer, after its completion.
    pub(super) async fn run(&self, tool: &str, arguments: Value) -> Value {
        let (call, run) = self.start(tool, arguments);
        let answer = answer(&call).await;
        self.freed(run, "answered").await;
        answer
    }

    pub(super) async fn freed(&self, run: RunId, how: &str) {
        let completion = self.completion().await;
        assert_eq!(completion.id, run);
        assert_eq!(name(&completion.how), how);
    }

    /// Cancels a running call as the dispatcher and the actor do.
    pub(super) fn cancel(&self, call: &Call, run: RunId) {
        call.cancel(CancelledBy::Operator, Instant::now()).expect("the call has not ended");
        self.stdio.stop(run, StopReason::Cancelled);
    }

    pub(super) async fn stats(&self) -> Value {
        self.run("stats", json!({})).await["result"]["structuredContent"].clone()
    }

    /// Closes, and checks that nothing is left of these processes.
    pub(super) async fn close(&self) {
        let pids = self.stdio.report().pids;
        self.stdio.close().await;
        assert_eq!(self.stdio.inner.pool.lock().alive, 0);
        for pid in pids {
            assert_eq!(process_state(pid), None, "process {pid} is left");
        }
    }
}

pub(super) fn name(how: &How) -> &'static str {
    match how {
        How::Answered => "answered",
        How::Busy => "busy",
        How::Lost => "lost",
        How::Unsent(_) => "unsent",
        How::NoRoom(_) => "no room",
        How::Again(_) => "again",
        How::Dropped => "dropped",
    }
}

pub(super) async fn ended(call: &Call) -> Arc<Ending> {
    tokio::time::timeout(PATIENCE, call.ticket.ended()).await.expect("the call has not ended")
}

pub(super) async fn answer(call: &Call) -> Value {
    match &ended(call).await.answer {
        Answer::Upstream(bytes) => serde_json::from_slice(bytes).expect("an answer is JSON"),
        Answer::Own(refusal) => panic!("{}", refusal.text()),
    }
}

pub(super) async fn outcome(call: &Call) -> (Outcome, String) {
    let ending = ended(call).await;
    let note = match &ending.answer {
        Answer::Upstream(_) => String::new(),
        Answer::Own(refusal) => refusal.note.as_deref().unwrap_or_default().to_owned(),
    };
    (ending.outcome, note)
}

pub(super) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().expect("a text")
}

/// The state letter of a process; none if there is no such process.
pub(super) fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

pub(super) fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line is a message")).collect()
}

impl House {
    /// Calls a tool while completions of others may come.
    pub(super) async fn run_among_others(&self, tool: &str, arguments: Value) -> Value {
        let (call, _) = self.start(tool, arguments);
        answer(&call).await
    }

    /// Calls that a child holds.
    pub(super) fn load(&self, index: usize) -> usize {
        self.stdio.inner.pool.lock().members[index].book.load()
    }

    /// Waits until the first child was given so many bytes.
    pub(super) async fn until_bytes(&self, bytes: u64) {
        let written = async {
            while self.stdio.inner.signals[0].written.load(Relaxed) < bytes {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, written).await.expect("the child takes that much");
    }

    /// Waits until the writer has nothing left, so that a stop finds the call sent.
    pub(super) async fn until_written(&self) {
        let written = async {
            while !self.stdio.inner.pool.lock().members.iter().all(|member| member.out.is_empty()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, written).await.expect("the child does not read");
    }
}
