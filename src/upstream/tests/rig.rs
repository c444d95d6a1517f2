//! One upstream with its supervisor, its scripted server and callers, for tests.

use crate::call::{Accepted, Call, CallId, Ending, IdMint, OnFinish, State};
use crate::caller::{Caller, CallerId, Lane};
use crate::config::{
    Auth, CallerConfig, Concurrency, Config, Global, HttpTarget, Limits, Listen, Start, StdioTarget, Target,
    ToolConfig, UpstreamConfig,
};
use crate::outcome::Outcome;
use crate::protocol::envelope::{self, Message};
use crate::protocol::splice::ReplyForm;
use crate::protocol::version::Era;
use crate::upstream::scripted::Scripted;
use crate::upstream::{Gates, Supervisor, Upstream, UpstreamShared};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(super) struct Rig {
    pub(super) upstream: Arc<Upstream>,
    pub(super) server: Arc<Scripted>,
    pub(super) supervisor: Supervisor,
    pub(super) ends: Arc<Ends>,
    mint: IdMint,
}

/// Counts how often each call was told to have ended.
#[derive(Default)]
pub(super) struct Ends(Mutex<BTreeMap<CallId, u32>>);

impl OnFinish for Ends {
    fn finished(&self, call: &Call, _: &Arc<Ending>) {
        *self.0.lock().entry(call.id).or_default() += 1;
    }
}

impl Ends {
    pub(super) fn of(&self, call: &Call) -> u32 {
        self.0.lock().get(&call.id).copied().unwrap_or(0)
    }
}

/// What a test's call is like, beyond its caller.
#[derive(Clone, Default)]
pub(super) struct Like {
    pub(super) lane: Option<Lane>,
    pub(super) deadline: Option<Duration>,
    pub(super) tool: Option<&'static str>,
    pub(super) weight: u32,
}

pub(super) fn limits(max_concurrent: u32, queue_size: u32) -> Limits {
    Limits { max_concurrent: Concurrency::Fixed(max_concurrent), queue_size, ..Limits::built_in(true) }
}

pub(super) fn config(name: &str, limits: Limits) -> UpstreamConfig {
    UpstreamConfig {
        name: name.into(),
        target: Target::Http(HttpTarget { url: "http://127.0.0.1:1/mcp".parse().unwrap(), headers: Vec::new() }),
        limits,
        tools: BTreeMap::new(),
        start: Start::Eager,
        connect_timeout: Duration::from_secs(10),
        max_message: 1 << 20,
    }
}

/// A daemon's config without upstreams or callers.
pub(super) fn plain_config() -> Config {
    Config {
        listen: Listen {
            mcp: "127.0.0.1:0".parse().unwrap(),
            mcp_unix: None,
            admin: "/nowhere".into(),
            hosts: Vec::new(),
            origins: Vec::new(),
            threads: 1,
            max_body: 1 << 20,
        },
        auth: Auth::None,
        global: Global::default(),
        upstreams: BTreeMap::new(),
        callers: BTreeMap::new(),
        hooks: crate::config::Hooks::default(),
        origin: None,
    }
}

pub(super) fn with_processes(mut config: UpstreamConfig, processes: u32) -> UpstreamConfig {
    let (args, env) = (Vec::new(), BTreeMap::new());
    config.target = Target::Stdio(StdioTarget { command: "true".into(), args, env, cwd: None, processes });
    config
}

pub(super) fn with_tool(mut config: UpstreamConfig, name: &str, tool: ToolConfig) -> UpstreamConfig {
    config.tools.insert(name.into(), tool);
    config
}

pub(super) fn caller(id: u32) -> Arc<Caller> {
    caller_with(id, CallerConfig::default())
}

pub(super) fn caller_with(id: u32, config: CallerConfig) -> Arc<Caller> {
    Arc::new(Caller::new(CallerId(id), format!("c{id}").into(), "key", Arc::new(config)))
}

pub(super) fn supervisor(global: &Global) -> Supervisor {
    Supervisor::start(&tokio::runtime::Handle::current(), Gates::new(global), 7)
}

impl Rig {
    /// An upstream that is up, with these limits.
    pub(super) async fn up(limits: Limits) -> Self {
        Rig::of(config("up", limits)).await
    }

    pub(super) async fn of(config: UpstreamConfig) -> Self {
        let rig = Rig::start(config, supervisor(&Global::default()), |_| {});
        rig.settle().await;
        rig
    }

    /// Starts an upstream under `supervisor`; `script` sets its server up before.
    pub(super) fn start(config: UpstreamConfig, supervisor: Supervisor, script: impl FnOnce(&Scripted)) -> Self {
        let shared = UpstreamShared::new(Arc::new(config));
        let server = Scripted::new(&shared);
        script(&server);
        let upstream = Upstream::start(shared, server.clone(), &supervisor);
        Rig { upstream, server, supervisor, ends: Arc::default(), mint: IdMint::new(fastrand::u32(..)) }
    }

    /// Accepts a call without offering it.
    pub(super) fn accept(&self, caller: &Arc<Caller>, like: Like) -> Arc<Call> {
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{}}}"#;
        let Message::Request(request) = envelope::read(Bytes::from_static(body)).unwrap() else {
            panic!("not a request")
        };
        let now = Instant::now();
        Call::accept(Accepted {
            id: self.mint.mint(),
            caller: caller.clone(),
            upstream: self.upstream.name().clone(),
            request,
            target: "t".into(),
            renamed: false,
            tool: like.tool.map(Into::into),
            weight: like.weight.max(1),
            lane: like.lane.unwrap_or_default(),
            arrived: now,
            deadline: like.deadline.map(|after| now + after),
            home: 0,
            form: ReplyForm::JsonRpc { id: Bytes::from_static(b"1"), era: Era::Legacy },
            notices: None,
            ledger: self.upstream.shared().ledger.clone(),
            on_finish: self.ends.clone(),
            charge: None,
            parent: None,
        })
    }

    /// Accepts and offers a call.
    pub(super) fn call(&self, caller: &Arc<Caller>, like: Like) -> Arc<Call> {
        let call = self.accept(caller, like);
        self.upstream.offer(call.clone());
        call
    }

    pub(super) fn calls(&self, caller: &Arc<Caller>, count: usize) -> Vec<Arc<Call>> {
        (0..count).map(|_| self.call(caller, Like::default())).collect()
    }

    /// Cancels as the dispatcher does: the ticket first, then the actor is told.
    pub(super) fn cancel(&self, call: &Arc<Call>, by: crate::outcome::CancelledBy) -> bool {
        let won = call.cancel(by, Instant::now()).is_ok();
        if won {
            self.upstream.shared().withdraw(call.clone());
        }
        won
    }

    /// Lets everything run that can run without time passing.
    pub(super) async fn settle(&self) {
        settle().await;
    }

    /// Lets time pass, a tick of the wheel at most at once, so that everything falls due in its order.
    pub(super) async fn pass(&self, time: Duration) {
        pass(time).await;
    }

    /// The ledger adds up and no call ended twice.
    pub(super) fn check(&self, calls: &[Arc<Call>]) {
        let counts = self.upstream.shared().ledger.read();
        assert_eq!(counts.unaccounted(), 0, "{counts:?}");
        for call in calls {
            let ended = call.ticket.state() == State::Finished;
            assert_eq!(self.ends.of(call), u32::from(ended), "{call:?}");
        }
    }
}

pub(super) async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn pass(time: Duration) {
    let end = Instant::now() + time;
    settle().await;
    while Instant::now() < end {
        let step = (end - Instant::now()).min(Duration::from_millis(16));
        tokio::time::advance(step).await;
        settle().await;
    }
}

pub(super) fn outcome(call: &Call) -> Option<Outcome> {
    call.ticket.ending().map(|ending| ending.outcome)
}

/// The refusal of a call that forebay answered itself.
pub(super) fn refusal(call: &Call) -> crate::outcome::Refusal {
    match &call.ticket.ending().expect("the call has ended").answer {
        crate::call::Answer::Own(refusal) => (**refusal).clone(),
        crate::call::Answer::Upstream(_) => panic!("answered by the upstream"),
    }
}

pub(super) fn in_state(calls: &[Arc<Call>], state: State) -> usize {
    calls.iter().filter(|call| call.ticket.state() == state).count()
}

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
