//! What outlives an incarnation of an upstream's actor (rule R2): rings, ledger, live limits, switches, caches,
//! and the figures that are read without asking the actor.

use super::actor::UpstreamActor;
use super::connection::{Completion, LinkEvent};
use super::gates::{Grant, Sink};
use super::handle::ListKind;
use super::latency::Latency;
use super::link::{Link, LinkState};
use super::lists::Lists;
use super::news::{Hub, Kinds};
use super::overload::Budget;
use super::saturation::Saturation;
use crate::call::{Call, State};
use crate::config::{Limits, Start, UpstreamConfig};
use crate::events::{Draft, EventLog};
use crate::ledger::Ledger;
use crate::outcome::{Outcome, Reason, Refusal, Scope};
use crate::protocol::json::{members, unquote};
use arc_swap::ArcSwap;
use crossbeam_queue::{ArrayQueue, SegQueue};
use forebay_wire::Level;
use kameo::actor::ActorRef;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Places of the ring that stands for none.
const NO_RING: usize = 1;
/// Told to whoever is refused meanwhile.
const FAILING: &str = "its actor keeps failing and is restarted after a rest";

/// Shared by the handle, the actor, the connection and its workers.
pub struct UpstreamShared {
    pub name: Arc<str>,
    pub config: ArcSwap<UpstreamConfig>,
    /// Limits as the config file has them, below what was changed live.
    pub(crate) file_limits: ArcSwap<Limits>,
    pub ledger: Arc<Ledger>,
    /// Calls on their way into the queue. Large enough that full means the queue is full too; of [`NO_RING`] places,
    /// and never pushed into, until there is a first call (rule R21).
    submits: ArcSwap<ArrayQueue<Arc<Call>>>,
    /// Submit rings that were replaced by larger ones; emptied before the current one is. Its lock is also what
    /// makes changes of the config one at a time.
    retired: Mutex<Vec<Arc<ArrayQueue<Arc<Call>>>>>,
    has_retired: AtomicBool,
    /// Slots given back. Pushed from `Drop`, so a push must not be able to fail; at most one a slot.
    pub(crate) completions: SegQueue<Completion>,
    /// The lowest level of log lines that the server was asked for on this link, as a number; above all levels if none.
    pub(crate) log_level: AtomicU8,
    /// Kinds of lists that the server said have changed since the actor was told last.
    changed: AtomicU8,
    /// Who wants to hear what belongs to no call.
    pub(crate) news: Hub,
    /// Calls that ended while queued or running and have to be unlinked or stopped; at most one a call.
    pub(crate) withdrawals: SegQueue<Arc<Call>>,
    /// Few: a link changes at human speed.
    pub(crate) link_events: SegQueue<LinkEvent>,
    /// Permits for parked flows; at most one a parked flow.
    pub(crate) grants: SegQueue<Grant>,
    /// One permit is kept, so a push right before the actor waits is not missed.
    pub(crate) wake: Notify,
    /// No call is taken any more (rule R3).
    closed: AtomicBool,
    /// Told when a drain has run dry.
    pub(crate) dry: Notify,
    /// The actor is dead beyond its restart limit and waits for the supervisor's timer.
    pub(crate) failed: AtomicBool,
    /// When that timer goes off, in microseconds since the origin.
    pub(crate) revives: AtomicU64,
    /// Somebody wants the connection open although it starts on demand.
    pub(crate) wanted: AtomicBool,
    pub(crate) incarnation: AtomicU32,
    switch: AtomicU8,
    hold: AtomicU8,
    /// Told when nothing is in flight while the dispatch is held for an exchange.
    pub(crate) idle: Notify,
    /// The actor's mailbox; none between the lives of an actor.
    pub(crate) actor: watch::Sender<Option<ActorRef<UpstreamActor>>>,
    pub(crate) link: watch::Sender<Link>,
    pub(crate) figures: Figures,
    pub(crate) latency: Mutex<Latency>,
    pub(crate) saturation: Saturation,
    pub(crate) lists: Lists,
    /// For calls that are sent once more (rule R5).
    pub(crate) repeats: Budget,
    /// Where what happens is told; set once, when the daemon takes the upstream in.
    events: OnceLock<Arc<EventLog>>,
    origin: Instant,
}

/// Figures that the actor publishes at the end of each turn.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) running: AtomicU32,
    pub(crate) lingering: AtomicU32,
    pub(crate) queued: AtomicU32,
    /// The limit in force, processes considered; 0 is unlimited.
    pub(crate) limit: AtomicU32,
    /// Where the limit that moves with the load stands, for the next life of the actor; 0 is nowhere yet.
    pub(crate) adapted: AtomicU32,
    /// When the oldest queued call arrived, in microseconds since the origin; 0 for none.
    pub(crate) oldest: AtomicU64,
    /// Slots given up although the upstream had not ended their call (`after_cancel = "release"`).
    pub(crate) released: AtomicU64,
    /// Lives of the actor after its first.
    pub(crate) restarts: AtomicU64,
    /// Turns that the actor took.
    pub(crate) turns: AtomicU64,
}

/// Whether calls are taken and dispatched, as an operator has set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Switch {
    Open = 0,
    /// Nothing is dispatched, arrivals queue.
    Paused = 1,
    /// Arrivals are refused, what is queued runs.
    Draining = 2,
    /// Drained dry; still refusing.
    Drained = 3,
}

/// Whether the dispatch is held because the connection is being exchanged. Beside [`Switch`], which is the operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Hold {
    Free = 0,
    /// What is in flight may end; nothing begins.
    Finishing = 1,
    /// The former connection is closed or closing, and what it still says of its link is void.
    Between = 2,
}

impl UpstreamShared {
    pub fn new(config: Arc<UpstreamConfig>) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(UpstreamShared {
            name: config.name.clone(),
            ledger: Arc::new(Ledger::default()),
            submits: ArcSwap::from_pointee(ArrayQueue::new(NO_RING)),
            retired: Mutex::default(),
            has_retired: AtomicBool::new(false),
            completions: SegQueue::new(),
            log_level: AtomicU8::new(u8::MAX),
            changed: AtomicU8::new(0),
            news: Hub::default(),
            withdrawals: SegQueue::new(),
            link_events: SegQueue::new(),
            grants: SegQueue::new(),
            wake: Notify::new(),
            closed: AtomicBool::new(false),
            dry: Notify::new(),
            failed: AtomicBool::new(false),
            revives: AtomicU64::new(0),
            wanted: AtomicBool::new(config.start == Start::Eager),
            incarnation: AtomicU32::new(0),
            switch: AtomicU8::new(Switch::Open as u8),
            hold: AtomicU8::new(Hold::Free as u8),
            idle: Notify::new(),
            actor: watch::Sender::new(None),
            link: watch::Sender::new(Link::new(config.start == Start::OnDemand)),
            figures: Figures { limit: AtomicU32::new(config.limits.max_concurrent.shown()), ..Figures::default() },
            latency: Mutex::new(Latency::new(now)),
            saturation: Saturation::default(),
            lists: Lists::default(),
            repeats: Budget::default(),
            events: OnceLock::new(),
            origin: now,
            file_limits: ArcSwap::from_pointee(config.limits.clone()),
            config: ArcSwap::new(config),
        })
    }

    /// From now on, what happens here is told to `events`.
    pub fn log_to(&self, events: &Arc<EventLog>) {
        let _ = self.events.set(events.clone());
    }

    /// Tells what happened; for what is rare.
    pub(crate) fn log(&self, level: Level, kind: &'static str, text: impl FnOnce() -> String) {
        if let Some(events) = self.events.get() {
            events.tell(Draft::new(level, kind, text()).upstream(&self.name));
        }
    }

    /// A slot came back.
    pub(crate) fn complete(&self, completion: Completion) {
        self.completions.push(completion);
        self.wake.notify_one();
    }

    /// The connection tells of its link.
    pub fn tell(&self, event: LinkEvent) {
        self.link_events.push(event);
        self.wake.notify_one();
    }

    /// A call ended that the actor may hold: it is unlinked from the queue, or its run is stopped.
    pub fn withdraw(&self, call: Arc<Call>) {
        self.withdrawals.push(call);
        self.wake.notify_one();
    }

    /// Whether the upstream takes no calls any more.
    pub fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Puts a call into the submit ring. Never waits; a call that cannot be taken ends at once.
    pub(crate) fn submit(&self, call: Arc<Call>) {
        if let Some((reason, note)) = self.door_shut() {
            return self.turn_away(&call, reason, note);
        }
        let ours = call.clone();
        if self.submits.load().capacity() == NO_RING {
            self.make_ring();
        }
        match self.submits.load().push(call) {
            Ok(()) => self.wake.notify_one(),
            Err(call) => {
                self.saturation.refused(self.micros(Instant::now()));
                return self.turn_away(&call, Reason::QueueFull, None);
            }
        }
        // Whoever closed the door, or found the actor dead, may have emptied the ring before this push: the call
        // is taken back by its ticket, and the ring's entry is dropped by whoever finds it.
        if self.is_closed() {
            self.turn_away(&ours, Reason::Draining, None);
        } else if self.failed.load(SeqCst) {
            self.turn_away(&ours, Reason::UpstreamDown, Some(FAILING.into()));
        }
    }

    /// The actor is dead beyond its restart limit until `revives` (rule R3): newcomers are refused from here on,
    /// and nothing is running or queued any more. What is in the submit ring is left to [`Self::refuse_submits`].
    pub(super) fn fail(&self, revives: Instant) {
        self.revives.store(self.micros(revives), Relaxed);
        self.failed.store(true, SeqCst);
        self.actor.send_replace(None);
        let figures = &self.figures;
        for figure in [&figures.running, &figures.lingering, &figures.queued] {
            figure.store(0, Relaxed);
        }
        figures.oldest.store(0, Relaxed);
        self.saturation.depth(0, self.config.load().limits.queue_size, self.micros(Instant::now()));
    }

    /// Refuses at most so many calls of the submit ring, while no actor is there to take them; whether there may
    /// be more.
    pub(super) fn refuse_submits(&self, at_most: usize) -> bool {
        for _ in 0..at_most {
            let Some(call) = self.next_submit() else { return false };
            self.turn_away(&call, Reason::UpstreamDown, Some(FAILING.into()));
        }
        true
    }

    /// Has the submit ring made, for the first call. Nobody has pushed into what stands for it until now, so
    /// there is nothing to keep of that.
    fn make_ring(&self) {
        let _one_at_a_time = self.retired.lock();
        if self.submits.load().capacity() == NO_RING {
            self.submits.store(Arc::new(ArrayQueue::new(places(&self.config.load()))));
        }
    }

    /// The next submitted call, rings that were replaced first.
    pub(crate) fn next_submit(&self) -> Option<Arc<Call>> {
        if self.has_retired.load(SeqCst) {
            let mut retired = self.retired.lock();
            // Nobody finds a retired ring any more; one that nobody holds either stays empty.
            retired.retain(|ring| {
                let held = Arc::strong_count(ring) > 1;
                // Whoever held it may have pushed just before letting go.
                fence(Acquire);
                held || !ring.is_empty()
            });
            if retired.is_empty() {
                self.has_retired.store(false, SeqCst);
            }
            if let Some(call) = retired.iter().find_map(|ring| ring.pop()) {
                return Some(call);
            }
        }
        self.submits.load().pop()
    }

    pub(crate) fn has_submits(&self) -> bool {
        self.has_retired.load(SeqCst) || !self.submits.load().is_empty()
    }

    /// Whether a call whose link broke while it ran is sent once more (rule R5): its tool has `retry = true` and is
    /// annotated as safe, as far as is known, it was not sent again before, and the budget has something left.
    pub(crate) fn may_send_again(&self, call: &Call) -> bool {
        let declared = || {
            let config = self.config.load();
            let tool = call.tool()?;
            config.tools.get(&**tool).filter(|tool| tool.retry)?;
            let list = self.lists.known(ListKind::Tools)?;
            list.items.iter().find(|item| item.name == *tool)?.safe_to_repeat.then_some(())
        };
        call.ticket.state() == State::Running
            && !self.is_closed()
            && declared().is_some()
            && call.first_repeat()
            && self.repeats.spend()
    }

    /// Puts a changed config in force, with a larger submit ring if it needs one. One change at a time, each
    /// made on what the one before has left, so that none undoes another. `change` must not wait.
    pub(crate) fn reconfigure(&self, change: impl FnOnce(&mut UpstreamConfig)) {
        let mut retired = self.retired.lock();
        let mut config = UpstreamConfig::clone(&self.config.load());
        change(&mut config);
        let wanted = places(&config);
        self.config.store(Arc::new(config));
        let places = self.submits.load().capacity();
        if places != NO_RING && places < wanted {
            let old = self.submits.swap(Arc::new(ArrayQueue::new(wanted)));
            retired.push(old);
            self.has_retired.store(true, SeqCst);
        }
        drop(retired);
        self.wake.notify_one();
    }

    /// Closes the door for good; what is in the submit ring is still taken in.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.wake.notify_one();
    }

    pub(crate) fn switch(&self) -> Switch {
        match self.switch.load(SeqCst) {
            1 => Switch::Paused,
            2 => Switch::Draining,
            3 => Switch::Drained,
            _ => Switch::Open,
        }
    }

    pub(crate) fn set_switch(&self, switch: Switch) {
        self.switch.store(switch as u8, SeqCst);
        self.wake.notify_one();
    }

    /// Has a connection that starts on demand opened.
    pub(crate) fn wake_connection(&self) {
        self.wanted.store(true, SeqCst);
        self.wake.notify_one();
    }

    pub(crate) fn held(&self) -> Hold {
        match self.hold.load(SeqCst) {
            1 => Hold::Finishing,
            2 => Hold::Between,
            _ => Hold::Free,
        }
    }

    pub(crate) fn set_hold(&self, hold: Hold) {
        self.hold.store(hold as u8, SeqCst);
        self.wake.notify_one();
    }

    /// Ends a wait for calls in flight, if that is all that the exchange has come to.
    pub(crate) fn give_hold_up(&self) {
        let _ = self.hold.compare_exchange(Hold::Finishing as u8, Hold::Free as u8, SeqCst, SeqCst);
        self.idle.notify_waiters();
        self.wake.notify_one();
    }

    /// `draining -> drained`, if it is still draining.
    pub(crate) fn ran_dry(&self) {
        let dry = self.switch.compare_exchange(Switch::Draining as u8, Switch::Drained as u8, SeqCst, SeqCst);
        if dry.is_ok() {
            self.log(Level::Info, "upstream.drained", || {
                format!("{} has run dry; it refuses until it is resumed", self.name)
            });
            self.dry.notify_waiters();
        }
    }

    /// Places of the submit ring; 0 before it is made.
    #[cfg(test)]
    pub(crate) fn submit_places(&self) -> usize {
        let places = self.submits.load().capacity();
        if places == NO_RING { 0 } else { places }
    }

    /// Turns that the actor took, to show that an idle upstream takes none.
    #[cfg(test)]
    pub(crate) fn turns(&self) -> u64 {
        self.figures.turns.load(Relaxed)
    }

    /// Fills the figures of a refusal in, as they were published last.
    pub(crate) fn fill(&self, refusal: &mut Refusal) {
        let figures = &self.figures;
        let config = self.config.load();
        refusal.active = Some(figures.running.load(Relaxed) + figures.lingering.load(Relaxed));
        refusal.max_concurrent = Some(figures.limit.load(Relaxed));
        refusal.queued = Some(figures.queued.load(Relaxed));
        refusal.queue_size = Some(config.limits.queue_size);
        refusal.queue_timeout_ms = config.limits.queue_timeout.map(|wait| wait.as_millis() as u64);
    }

    /// Microseconds since the upstream was made, and one, so that 0 can stand for never.
    pub(crate) fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.origin).as_micros() as u64 + 1
    }

    pub(crate) fn instant(&self, micros: u64) -> Instant {
        self.origin + Duration::from_micros(micros.saturating_sub(1))
    }

    /// When the supervisor starts a failed actor anew.
    pub(crate) fn revives_at(&self) -> Instant {
        self.instant(self.revives.load(Relaxed))
    }

    /// Why nothing is taken at this moment.
    fn door_shut(&self) -> Option<(Reason, Option<Arc<str>>)> {
        if self.is_closed() || matches!(self.switch(), Switch::Draining | Switch::Drained) {
            return Some((Reason::Draining, None));
        }
        self.failed.load(SeqCst).then(|| (Reason::UpstreamDown, Some(FAILING.into())))
    }

    fn turn_away(&self, call: &Call, reason: Reason, note: Option<Arc<str>>) {
        let now = Instant::now();
        let scope = if reason == Reason::QueueFull { Scope::Entries } else { Scope::Upstream };
        let mut refusal = call.refusal(Outcome::Refused(reason), scope);
        self.fill(&mut refusal);
        refusal.note = note;
        if reason == Reason::UpstreamDown {
            let left = self.revives_at().saturating_duration_since(now);
            refusal.retry_after_ms = Some((left.as_millis() as u64).max(100));
        }
        call.refuse(refusal, now);
    }
}

impl UpstreamShared {
    /// The server said that a list changed. Told on by the actor once it has thrown the cached ones away.
    pub(crate) fn note_changed(&self, kinds: Kinds) {
        self.changed.fetch_or(kinds.bits(), Relaxed);
    }

    /// The lists are stale: whoever listens hears which. All of them if nobody said.
    pub(crate) fn tell_changed(&self) {
        let kinds = Kinds::from_bits(self.changed.swap(0, Relaxed));
        self.news.changed(if kinds == Kinds::NONE { Kinds::ALL } else { kinds });
    }

    /// The server said that a resource changed.
    pub(crate) fn note_updated(&self, params: Option<&str>) {
        let Some(params) = params else { return };
        if let Some(uri) = members(params).ok().and_then(|read| read.get("uri").and_then(unquote).map(Cow::into_owned))
        {
            self.news.updated(&uri, params);
        }
    }
}

impl Sink for UpstreamShared {
    fn grant(&self, grant: Grant) {
        self.grants.push(grant);
        self.wake.notify_one();
    }
}

impl AsRef<Lists> for UpstreamShared {
    fn as_ref(&self) -> &Lists {
        &self.lists
    }
}

impl LinkState {
    pub(crate) fn is_up(&self) -> bool {
        matches!(self, LinkState::Up { .. })
    }
}

/// Places of the submit ring for these limits (rule R21).
fn places(config: &UpstreamConfig) -> usize {
    let wanted = u64::from(config.limits.queue_size) + u64::from(config.limits.max_concurrent.ceiling());
    wanted.clamp(64, 65_536) as usize
}
