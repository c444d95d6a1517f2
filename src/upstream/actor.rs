//! The actor of one upstream: it alone owns the queue's core, and decides what runs, waits and ends.
//!
//! It never waits for a server. [`Actor::next`] is overridden: a turn takes in what the rings of
//! [`UpstreamShared`] hold, dispatches, and then looks at one message of the mailbox, so neither starves the
//! other (rule R20). Control comes by mailbox ([`control`]), calls by ring ([`turn`]); how calls end that
//! never reached their server, or outstayed it, is in [`endings`]; what it does when the server has too much to
//! do, or keeps failing, in [`overload`].

pub(super) mod control;
mod door;
mod endings;
mod overload;
mod tell;
mod turn;

use super::connection::{Connection, RunId};
use super::gates::{Gates, Permits};
use super::link::{Link, LinkState, effective_limit, share_of_one};
use super::queue::{Core, Due, EntryId, Moment, Settings, ToolKey};
use super::shared::UpstreamShared;
use crate::call::Call;
use crate::caller::CallerId;
use crate::config::{Start, Target, UpstreamConfig};
use door::Doorkeeper;
use forebay_wire::Level;
use kameo::actor::{Actor, ActorRef, WeakActorRef};
use kameo::error::{ActorStopReason, PanicError};
use kameo::mailbox::{MailboxReceiver, Signal};
use overload::Load;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Places of an actor's mailbox: control only. A sender waits for a place, within its own bound.
pub(super) const MAILBOX: usize = 64;
/// How long another caller counts as present (rule R15).
const OTHERS_FOR: Duration = Duration::from_secs(10);

/// See the module's documentation.
pub(crate) struct UpstreamActor {
    shared: Arc<UpstreamShared>,
    connection: Arc<dyn Connection>,
    incarnation: u32,
    core: Core<Arc<Call>>,
    door: Doorkeeper,
    link: Link,
    load: Load,
    config: Arc<UpstreamConfig>,
    /// Most calls that one of its processes may hold (rule R22).
    share: u32,
    /// Dense numbers of the tools with a cap or weight of their own; a name keeps its number for the core's
    /// whole life.
    tools: HashMap<String, ToolKey>,
    /// What belongs to calls in flight, by the place of their entry.
    flights: Vec<Option<Flight>>,
    /// The call that this turn is moving between a ring and the core, so that a panic cannot lose it.
    in_hand: Option<Arc<Call>>,
    due: Vec<Due<Arc<Call>>>,
    /// The queue is being given up after a final fault; worked off in slices.
    giving_up: bool,
    /// Where the listing stands by which the queue is given up.
    slice_cursor: u64,
    /// The age of the oldest queued call may have changed since it was published.
    oldest_is_stale: bool,
    /// When it may be looked up again.
    oldest_next: Instant,
    recent: Recent,
    rng: fastrand::Rng,
    timer: Option<Pin<Box<Sleep>>>,
    /// This turn's time, as the clock and the core have it.
    clock: Instant,
    now: Moment,
}

/// A call in flight: its permits, and the number its connection knows it by.
struct Flight {
    id: EntryId,
    run: RunId,
    /// Travel with the slot, lingering included (rule R7).
    _permits: Permits,
    started: Instant,
}

/// The two callers that came last, so that a newcomer's rule R15 knows of others.
#[derive(Default)]
struct Recent([Option<(CallerId, Instant)>; 2]);

impl Recent {
    /// Notes a caller; whether another one was seen within 10 s.
    fn saw(&mut self, caller: CallerId, now: Instant) -> bool {
        let [last, before] = &mut self.0;
        if last.is_some_and(|(id, _)| id != caller) {
            *before = *last;
        }
        *last = Some((caller, now));
        before.is_some_and(|(id, at)| id != caller && now.saturating_duration_since(at) <= OTHERS_FOR)
    }
}

/// What an incarnation is made from.
pub(crate) struct Args {
    pub(super) shared: Option<Arc<UpstreamShared>>,
    pub(super) connection: Option<Arc<dyn Connection>>,
    pub(super) gates: Arc<Gates>,
    pub(super) seed: u64,
}

/// The upstream has been dropped by everybody who held it.
#[derive(Clone, Debug)]
pub(crate) struct Forsaken;

impl Actor for UpstreamActor {
    type Args = Args;
    type Error = Forsaken;

    fn name() -> &'static str {
        "upstream"
    }

    async fn on_start(args: Args, me: ActorRef<Self>) -> Result<Self, Forsaken> {
        let (Some(shared), Some(connection)) = (args.shared, args.connection) else { return Err(Forsaken) };
        let incarnation = shared.incarnation.fetch_add(1, AcqRel) + 1;
        let mut awake = !matches!(shared.link.borrow().state, LinkState::Asleep);
        if incarnation > 1 {
            shared.figures.restarts.fetch_add(1, Relaxed);
            shared.log(Level::Error, "actor.restarted", || {
                format!("the actor of {} failed and was restarted; the calls that it held ended lost", shared.name)
            });
            // What the former life was told is void; its runs are at the server still, so the connection goes
            // down before anything is dispatched (rule R2).
            while shared.link_events.pop().is_some() {}
            while shared.grants.pop().is_some() {}
            connection.reset("the upstream's actor was restarted");
            awake = true;
        }
        let config = shared.config.load_full();
        let clock = Instant::now();
        let now = Moment(shared.micros(clock));
        let mut actor = UpstreamActor {
            door: Doorkeeper::new(args.gates, &shared, clock),
            core: Core::new(Settings::new(&config.limits, Vec::new()), now),
            link: Link::new(!awake && config.start == Start::OnDemand),
            load: Load::new(clock),
            incarnation,
            share: u32::MAX,
            config,
            tools: HashMap::new(),
            flights: Vec::new(),
            in_hand: None,
            due: Vec::new(),
            giving_up: false,
            slice_cursor: 0,
            oldest_is_stale: false,
            oldest_next: clock,
            recent: Recent::default(),
            rng: fastrand::Rng::with_seed(args.seed ^ u64::from(incarnation)),
            timer: None,
            clock,
            now,
            connection,
            shared,
        };
        actor.apply_config();
        if actor.link.state == LinkState::Starting {
            actor.connection.open();
        }
        actor.publish_link();
        actor.shared.actor.send_replace(Some(me));
        actor.shared.failed.store(false, SeqCst);
        Ok(actor)
    }

    async fn next(
        &mut self,
        _me: WeakActorRef<Self>,
        mailbox: &mut MailboxReceiver<Self>,
    ) -> Result<Option<Signal<Self>>, Forsaken> {
        loop {
            let more = self.turn();
            match mailbox.try_recv() {
                Ok(signal) => return Ok(Some(signal)),
                Err(tokio::sync::mpsc::error::TryRecvError::Empty) => {}
                Err(tokio::sync::mpsc::error::TryRecvError::Disconnected) => return Ok(None),
            }
            if more {
                tokio::task::yield_now().await;
                continue;
            }
            // Even if every wait below is ready at once, the thread's other tasks get their turns.
            tokio::task::consume_budget().await;
            self.arm();
            let shared = self.shared.clone();
            tokio::select! {
                biased;
                signal = mailbox.recv() => return Ok(signal),
                () = shared.wake.notified() => {}
                () = async { if let Some(timer) = &mut self.timer { timer.as_mut().await } }, if self.timer.is_some() => {}
            }
        }
    }

    /// Ends every call that this life held, before the next life can start (kameo restarts after this).
    async fn on_panic(
        &mut self,
        _me: WeakActorRef<Self>,
        error: PanicError,
    ) -> Result<ControlFlow<ActorStopReason>, Forsaken> {
        tracing::error!(upstream = %self.shared.name, %error, "the upstream's actor failed; its calls end lost");
        self.lose_everything("the upstream's actor failed and was restarted");
        Ok(ControlFlow::Break(ActorStopReason::Panicked(error)))
    }
}

impl Drop for UpstreamActor {
    /// However a life ends, killed included, its calls are answered and its doors closed.
    fn drop(&mut self) {
        self.lose_everything("the upstream's actor ended");
        self.door.leave();
    }
}

impl UpstreamActor {
    /// Puts the config of [`UpstreamShared`] in force.
    fn apply_config(&mut self) {
        let before = std::mem::replace(&mut self.config, self.shared.config.load_full());
        for (name, tool) in &self.config.tools {
            if tool.max_concurrent.is_some() || tool.weight.is_some() {
                let next = ToolKey(self.tools.len() as u32);
                self.tools.entry(name.clone()).or_insert(next);
            }
        }
        self.apply_range();
        self.apply_settings();
        if before.tools != self.config.tools {
            let tools = &self.tools;
            self.core.rekey(|call| (tool_of(tools, call), call.weight()));
        }
    }

    /// The core's settings: the config's, with the limit that the processes at hand allow (rule R22).
    fn apply_settings(&mut self) {
        let mut caps = vec![None; self.tools.len()];
        for (name, key) in &self.tools {
            caps[key.0 as usize] = self.config.tools.get(name).and_then(|tool| tool.max_concurrent);
        }
        let mut settings = Settings::new(&self.config.limits, caps);
        settings.max_concurrent = self.limit();
        self.share = share_of_one(self.wanted_limit(), configured_processes(&self.config));
        self.core.reconfigure(settings, self.now);
    }

    /// The limit in force on slots.
    fn limit(&self) -> u32 {
        let limit = self.wanted_limit();
        let LinkState::Up { processes } = self.link.state else { return limit };
        effective_limit(limit, configured_processes(&self.config), processes.max(1))
    }

    /// Sets the one timer to the next time that matters; an idle upstream has none.
    fn arm(&mut self) {
        let due = self.core.next_due().map(|due| self.shared.instant(due.0));
        let rested = self.link.resting(self.clock);
        let load = self.load_due();
        let stale = self.oldest_is_stale.then_some(self.oldest_next);
        let Some(at) = [due, rested, stale, load].into_iter().flatten().min() else {
            self.timer = None;
            return;
        };
        match &mut self.timer {
            Some(timer) if timer.deadline() == at && !timer.is_elapsed() => {}
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
        }
    }

    fn publish_link(&self) {
        self.shared.link.send_if_modified(|published| {
            let changed = *published != self.link;
            if changed {
                published.clone_from(&self.link);
            }
            changed
        });
    }
}

/// The number of a call's tool, if it has a cap or a weight of its own.
fn tool_of(tools: &HashMap<String, ToolKey>, call: &Call) -> Option<ToolKey> {
    tools.get(&**call.tool()?).copied()
}

/// How many processes an upstream is to have.
pub(super) fn configured_processes(config: &UpstreamConfig) -> u32 {
    match &config.target {
        Target::Stdio(stdio) => stdio.processes.max(1),
        Target::Http(_) => 1,
    }
}
