//! Routes calls to upstreams and knows every live call by its id.
//!
//! Every source of calls (MCP, REST, bridge, demo) comes through [`Dispatcher::submit`]; there is no second
//! way to an upstream. The order of checks is fixed: may this caller make this call, has it calls left,
//! is there memory, then the queue.

mod admit;
mod gating;
pub mod history;
pub mod live;
pub mod route;

use crate::call::{Accepted, Aim, Call, CallRef, Charge, IdMint, Memory, Notices};
use crate::caller::registry::Callers;
use crate::caller::{Caller, CallerId, Lane};
use crate::config::{CallerConfig, Config};
use crate::events::EventLog;
use crate::hooks::Overload;
use crate::ledger::{Counts, Ledger};
use crate::limits::cursors::Cursors;
use crate::limits::shadow::{Enforce, Limit, Shadow};
use crate::outcome::{CancelledBy, ExpiredBy, Outcome, Phase, Reason, Refusal, Scope};
use crate::protocol::envelope::Request;
use crate::protocol::method;
use crate::protocol::splice::ReplyForm;
use crate::upstream::Upstream;
use arc_swap::ArcSwap;
use history::Record;
use live::Books;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// A caller's deadline lies at most so far ahead: more means no limit, and must not wrap a clock.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);

/// See the module's documentation.
pub struct Dispatcher {
    pub config: ArcSwap<Config>,
    /// How the config stands, for those who look; none where nothing can be reloaded.
    pub config_state: arc_swap::ArcSwapOption<forebay_wire::ConfigState>,
    pub callers: Callers,
    books: Arc<Books>,
    mint: IdMint,
    started: Instant,
    upstreams: ArcSwap<BTreeMap<Arc<str>, Arc<Upstream>>>,
    /// Calls that were refused before an upstream was known (rule R6).
    front: Arc<Ledger>,
    /// Upstreams that are out of the table. Its lock is held while the table changes, so that a reader of all
    /// ledgers meets each of them once.
    removed: Mutex<Removed>,
    /// Bytes of bodies and results in the house (rule R16).
    memory: Memory,
    draining: AtomicBool,
    /// Open cursors of tools that leave some.
    cursors: Arc<Cursors>,
    shadow: Shadow,
    /// For calls that need a task of their own.
    me: Weak<Dispatcher>,
}

#[derive(Default)]
struct Removed {
    /// Those whose calls are still being ended.
    leaving: Vec<Arc<Upstream>>,
    /// The ledgers of those that are gone, added up.
    counts: Counts,
}

/// A call that somebody wants to make, routed already.
pub struct Wanted {
    pub caller: Arc<Caller>,
    pub upstream: Arc<Upstream>,
    pub request: Request,
    /// As the upstream names it.
    pub target: Arc<str>,
    /// The request names it otherwise.
    pub renamed: bool,
    /// The tool, if this is a `tools/call`.
    pub tool: Option<Arc<str>>,
    pub lane: Option<Lane>,
    /// When the request came in; waiting for a list on the way here is part of its time.
    pub arrived: Instant,
    /// The caller's own deadline, from its arrival.
    pub timeout: Option<Duration>,
    pub home: usize,
    pub form: ReplyForm,
    pub notices: Option<Notices>,
}

/// A call whose upstream has to be found out first. It can be seen, cancelled and answered from the start.
pub struct Arrival {
    pub caller: Arc<Caller>,
    pub request: Request,
    pub arrived: Instant,
    pub timeout: Option<Duration>,
    pub home: usize,
    pub form: ReplyForm,
    pub notices: Option<Notices>,
}

/// What a cancel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAnswer {
    CancelledQueued,
    /// Asked to stop; the slot lingers until the upstream has ended it.
    CancelledRunning,
    AlreadyFinished(Outcome),
    UnknownId {
        other_run: bool,
    },
}

/// What is known of a call.
pub enum Found {
    Live(Arc<Call>),
    Finished(Arc<Record>),
    Unknown { other_run: bool },
}

impl Dispatcher {
    /// `randomness` marks this run of the daemon in its call ids.
    pub fn new(config: Arc<Config>, randomness: u32) -> Arc<Self> {
        Arc::new_cyclic(|me| Dispatcher {
            me: me.clone(),
            cursors: Arc::default(),
            shadow: Shadow::default(),
            callers: Callers::new(&config),
            config: ArcSwap::new(config),
            config_state: arc_swap::ArcSwapOption::empty(),
            books: Arc::default(),
            mint: IdMint::new(randomness),
            started: Instant::now(),
            upstreams: ArcSwap::default(),
            front: Arc::new(Ledger::default()),
            removed: Mutex::default(),
            memory: Memory::default(),
            draining: AtomicBool::new(false),
        })
    }

    /// Takes a call in. The call returned will end exactly once; it may have ended already.
    pub fn submit(&self, wanted: Wanted) -> Arc<Call> {
        let Wanted { caller, upstream, request, target, renamed, tool, lane, arrived, timeout, home, form, notices } =
            wanted;
        let (weight, lane) = terms(&upstream, &caller, tool.as_deref(), lane);
        let charge = self.charge(request.body.len() as u64);
        let fits = charge.is_some();
        let call = Call::accept(Accepted {
            id: self.mint.mint(),
            upstream: upstream.name().clone(),
            request,
            target,
            renamed,
            weight,
            lane,
            tool,
            arrived,
            deadline: deadline(arrived, timeout, &caller),
            home,
            form,
            notices,
            ledger: upstream.shared().ledger.clone(),
            on_finish: self.books.clone(),
            charge,
            parent: None,
            caller,
        });
        self.books.live.insert(&call);
        self.admit(&call, &upstream, fits);
        call
    }

    /// Takes a call in before it is known where it goes. It counts under no upstream until [`Dispatcher::route`]
    /// (rule R6), and may have ended already.
    pub fn accept(&self, arrival: Arrival) -> Arc<Call> {
        let Arrival { caller, request, arrived, timeout, home, form, notices } = arrival;
        let charge = self.charge(request.body.len() as u64);
        let fits = charge.is_some();
        let call = Call::accept(Accepted {
            id: self.mint.mint(),
            upstream: "".into(),
            target: request.target_name().as_deref().unwrap_or(&request.method).into(),
            request,
            renamed: false,
            weight: 1,
            lane: Lane::Normal.max(caller.config.load().max_priority),
            tool: None,
            arrived,
            deadline: deadline(arrived, timeout, &caller),
            home,
            form,
            notices,
            ledger: self.front.clone(),
            on_finish: self.books.clone(),
            charge,
            parent: None,
            caller,
        });
        self.books.live.insert(&call);
        if self.draining.load(Relaxed) {
            refuse_draining(&call);
        } else if !fits {
            call.end(Outcome::Refused(Reason::Overloaded), Scope::Global, Instant::now());
        }
        call
    }

    /// Sends an accepted call on its way, unless it has ended meanwhile. `target` is as the upstream names it.
    pub fn route(&self, call: &Arc<Call>, upstream: &Arc<Upstream>, target: Arc<str>, asked: Option<Lane>) {
        let tool = (&*call.request.method == method::TOOLS_CALL).then(|| target.clone());
        let (weight, lane) = terms(upstream, &call.caller, tool.as_deref(), asked);
        let renamed = *target != **call.target();
        let aim = Aim { upstream: upstream.name().clone(), target, renamed, tool, weight };
        if !call.route(aim, lane, &upstream.shared().ledger) {
            return;
        }
        let now = Instant::now();
        let most = upstream.shared().config.load().limits.queue_timeout;
        if most.is_some_and(|most| now.saturating_duration_since(call.arrived) >= most) {
            call.end(Outcome::Expired(ExpiredBy::QueueTimeout), Scope::Upstream, now);
        } else {
            self.admit(call, upstream, true);
        }
    }

    /// The checks that stand before an upstream's queue, in their order.
    fn admit(&self, call: &Arc<Call>, upstream: &Arc<Upstream>, fits: bool) {
        let now = Instant::now();
        if !may_call(&call.caller.config.load(), upstream.name(), call.tool().map(|tool| &**tool)) {
            call.end(Outcome::Refused(Reason::NotAllowed), Scope::Caller, now);
        } else if self.draining.load(Relaxed) {
            refuse_draining(call);
        } else if let Err(refusal) =
            admit::own_limits(call, |enforce, limit| self.counts(call, enforce, limit, now), now)
        {
            call.refuse(*refusal, now);
        } else if !fits {
            call.end(Outcome::Refused(Reason::Overloaded), Scope::Global, now);
        } else if let Err(refusal) = self.take_cursor(call, upstream, now) {
            call.refuse(*refusal, now);
        } else {
            call.caller.saw(now);
            match self.me.upgrade() {
                Some(me) => gating::pass(&me, call, upstream),
                None => upstream.offer(call.clone()),
            }
        }
    }

    /// Whether a limit that refuses a call is in shadow mode; then it is counted, with the time to wait.
    fn counts(&self, call: &Call, enforce: Enforce, (limit, wait_ms): (Limit, Option<u64>), now: Instant) -> bool {
        let all = self.config.load().global.enforce;
        if enforce == Enforce::On && all == Enforce::On {
            return false;
        }
        let nowhere: Arc<str> = "".into();
        let upstream = match limit {
            Limit::Rate | Limit::Quota => &nowhere,
            Limit::Cursors | Limit::Gate => call.upstream(),
        };
        self.shadow.count(limit, upstream, &call.caller, wait_ms, now);
        true
    }

    fn take_cursor(&self, call: &Call, upstream: &Upstream, now: Instant) -> Result<(), Box<Refusal>> {
        let settings = upstream.shared().config.load();
        let tool = call.tool().and_then(|tool| settings.tools.get(&**tool));
        let rule = tool.and_then(|tool| tool.cursor.as_ref());
        match admit::cursor(call, &self.cursors, rule, now) {
            Err(refusal) => {
                let limit = (Limit::Cursors, refusal.retry_after_ms);
                let shadowed = rule.is_some_and(|rule| self.counts(call, rule.enforce, limit, now));
                if shadowed { Ok(()) } else { Err(refusal) }
            }
            Ok(()) => Ok(()),
        }
    }

    /// Whether a caller may use a tool (or, without one, anything of the upstream).
    pub fn allows(&self, caller: &Caller, upstream: &str, tool: Option<&str>) -> bool {
        may_call(&caller.config.load(), upstream, tool)
    }

    /// Cancels by id. Never waits behind calls: the ticket is ended first, the actor is told after.
    ///
    /// With `only`, a call of anybody else is unknown.
    pub fn cancel(&self, reference: CallRef, by: CancelledBy, only: Option<CallerId>) -> CancelAnswer {
        match self.find(reference) {
            Found::Live(call) if only.is_none_or(|caller| caller == call.caller.id) => self.cancel_call(&call, by),
            Found::Finished(record) if only.is_none_or(|caller| caller == record.caller_id) => {
                CancelAnswer::AlreadyFinished(record.outcome)
            }
            Found::Live(_) | Found::Finished(_) => CancelAnswer::UnknownId { other_run: false },
            Found::Unknown { other_run } => CancelAnswer::UnknownId { other_run },
        }
    }

    /// Cancels a call that is at hand.
    pub fn cancel_call(&self, call: &Arc<Call>, by: CancelledBy) -> CancelAnswer {
        match call.cancel(by, Instant::now()) {
            Ok(phase) => {
                self.withdraw(call);
                match phase {
                    Phase::Queued => CancelAnswer::CancelledQueued,
                    Phase::Running => CancelAnswer::CancelledRunning,
                }
            }
            Err(ending) => CancelAnswer::AlreadyFinished(ending.outcome),
        }
    }

    /// Tells the actor that a call which it may hold has ended. The upstream may have been taken out of the
    /// table since, or another one have its name.
    pub fn withdraw(&self, call: &Arc<Call>) {
        if let Some(upstream) = call.holder() {
            upstream.withdraw(call.clone());
        }
    }

    /// A call by what a person typed.
    pub fn find(&self, reference: CallRef) -> Found {
        let Some(id) = self.mint.resolve(reference) else {
            return Found::Unknown { other_run: true };
        };
        if let Some(call) = self.books.live.get(id) {
            return Found::Live(call);
        }
        match self.books.history.get(id) {
            Some(record) => Found::Finished(record),
            None => Found::Unknown { other_run: false },
        }
    }

    /// Every live call; for selectors and shutdown.
    pub fn live_calls(&self) -> Vec<Arc<Call>> {
        self.books.live.all()
    }

    /// In how many parts the live calls are kept.
    pub fn live_shards(&self) -> usize {
        live::SHARDS
    }

    /// Adds the live calls of one part that `takes` wants. The part is held for as long as that takes.
    pub fn live_in_shard(&self, shard: usize, takes: impl Fn(&Call) -> bool, found: &mut Vec<Arc<Call>>) {
        self.books.live.shard_calls(shard, takes, found);
    }

    /// How many calls have not ended.
    pub fn live_count(&self) -> usize {
        self.books.live.count()
    }

    pub fn upstream(&self, name: &str) -> Option<Arc<Upstream>> {
        self.upstreams.load().get(name).cloned()
    }

    /// All upstreams, by name.
    pub fn upstreams(&self) -> Arc<BTreeMap<Arc<str>, Arc<Upstream>>> {
        self.upstreams.load_full()
    }

    /// What has been refused since it was told last.
    pub fn overload(&self) -> &Arc<Overload> {
        &self.books.overload
    }

    /// What limits in shadow mode would have refused.
    pub fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// What happened.
    pub fn events(&self) -> &Arc<EventLog> {
        &self.books.events
    }

    pub fn add_upstream(&self, upstream: Arc<Upstream>) {
        self.change_upstreams(vec![upstream], &[]);
    }

    /// Puts upstreams into the table and takes others out of it, at once. Those taken out are returned: they are
    /// removed by their own [`Upstream::remove`], and their ledgers stay in the totals by [`Dispatcher::fold`] after
    /// that.
    pub fn change_upstreams(&self, added: Vec<Arc<Upstream>>, removed: &[Arc<str>]) -> Vec<Arc<Upstream>> {
        let mut gone = self.removed.lock();
        let mut table = BTreeMap::clone(&self.upstreams.load());
        let leaving: Vec<_> = removed.iter().filter_map(|name| table.remove(name)).collect();
        gone.leaving.extend(leaving.iter().cloned());
        for upstream in added {
            upstream.shared().log_to(self.events());
            table.insert(upstream.name().clone(), upstream);
        }
        self.upstreams.store(Arc::new(table));
        leaving
    }

    /// Takes the route away; see [`Dispatcher::change_upstreams`].
    pub fn remove_route(&self, name: &str) -> Option<Arc<Upstream>> {
        self.change_upstreams(Vec::new(), &[name.into()]).pop()
    }

    /// Adds a removed upstream's ledger to the totals: nothing of it is live any more.
    pub fn fold(&self, upstream: &Arc<Upstream>) {
        let mut removed = self.removed.lock();
        let before = removed.leaving.len();
        removed.leaving.retain(|other| !Arc::ptr_eq(other, upstream));
        if removed.leaving.len() < before {
            removed.counts.add(&upstream.shared().ledger.read());
        }
    }

    /// Upstreams that are out of the table and still end their calls.
    pub fn leaving(&self) -> Vec<Arc<Upstream>> {
        self.removed.lock().leaving.clone()
    }

    /// Ledgers by upstream, with `""` for calls that met none and `_removed` for upstreams that are out of the table.
    pub fn ledgers(&self) -> Vec<(Arc<str>, Counts)> {
        let removed = self.removed.lock();
        let mut gone = removed.counts;
        removed.leaving.iter().for_each(|upstream| gone.add(&upstream.shared().ledger.read()));
        let mut all = vec![("".into(), self.front.read()), ("_removed".into(), gone)];
        all.extend(self.upstreams.load().iter().map(|(name, up)| (name.clone(), up.shared().ledger.read())));
        all
    }

    /// Refuses whatever comes from now on.
    pub fn stop_admitting(&self) {
        self.draining.store(true, Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// The mark of this run, as in its call ids.
    pub fn mark(&self) -> String {
        self.mint.mark()
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    /// Counts a call that is refused before any upstream is known (an unknown tool, no rights).
    pub fn refuse_unrouted(&self, outcome: Outcome, caller: &Arc<Caller>) -> Refusal {
        self.front.offered();
        self.front.finished(crate::ledger::Stage::Submitted, outcome);
        caller.figures.count(outcome);
        let id = self.mint.mint();
        let nowhere: Arc<str> = "".into();
        let now = Instant::now();
        self.events().sum(&caller.name, caller.id, &nowhere, &"something unknown".into(), id, outcome, now);
        Refusal::new(outcome, Scope::Caller, id, nowhere, caller.name.clone())
    }

    /// Bytes of bodies and results held at this moment (rule R16).
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether the bound on memory is met, so that nothing large is to be made for a newcomer.
    pub fn is_full(&self) -> bool {
        self.memory.held() >= self.config.load().global.max_bytes
    }

    /// Charges what a newcomer brings; none when the bound on memory is met.
    pub fn charge(&self, bytes: u64) -> Option<Charge> {
        self.memory.take(bytes, self.config.load().global.max_bytes)
    }
}

fn refuse_draining(call: &Call) {
    let outcome = Outcome::Refused(Reason::Draining);
    let refusal = Refusal::new(outcome, Scope::Global, call.id, "".into(), call.caller.name.clone());
    call.refuse(refusal, Instant::now());
}

/// The caller's own deadline, and never beyond its right.
fn deadline(arrived: Instant, timeout: Option<Duration>, caller: &Caller) -> Option<Instant> {
    let most = caller.config.load().max_deadline;
    arrived.checked_add(timeout.into_iter().chain(most).min()?.min(LONGEST_TIMEOUT))
}

/// The weight and the lane of a call.
fn terms(upstream: &Upstream, caller: &Caller, tool: Option<&str>, asked: Option<Lane>) -> (u32, Lane) {
    let settings = upstream.shared().config.load();
    let tool = tool.and_then(|tool| settings.tools.get(tool));
    let lane = lane_of(asked, tool.and_then(|tool| tool.priority), caller.config.load().max_priority);
    (tool.and_then(|tool| tool.weight).unwrap_or(1), lane)
}

fn may_call(rights: &CallerConfig, upstream: &str, tool: Option<&str>) -> bool {
    let on_upstream = rights.upstreams.as_ref().is_none_or(|allowed| allowed.iter().any(|name| name == upstream));
    let on_tool = match (&rights.tools, tool) {
        (Some(allowed), Some(tool)) => {
            let joined = |name: &str| {
                name.strip_prefix(upstream).and_then(|rest| rest.strip_prefix(route::SEPARATOR)) == Some(tool)
            };
            allowed.iter().any(|name| name == tool || joined(name))
        }
        (None, _) | (_, None) => true,
    };
    on_upstream && on_tool
}

/// The lower of what was asked for and what the tool has, within the caller's right.
fn lane_of(asked: Option<Lane>, tool: Option<Lane>, most: Lane) -> Lane {
    let wanted = match (asked, tool) {
        (Some(asked), Some(tool)) => asked.max(tool),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => Lane::Normal,
    };
    wanted.max(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_lane_counts_and_rights_cap_it() {
        use Lane::{High, Low, Normal};
        assert_eq!(lane_of(None, None, High), Normal);
        assert_eq!(lane_of(Some(High), None, High), High);
        assert_eq!(lane_of(Some(High), Some(Low), High), Low);
        assert_eq!(lane_of(None, Some(High), Normal), Normal);
        assert_eq!(lane_of(Some(High), None, Low), Low);
    }

    #[test]
    fn rights_name_upstreams_and_tools() {
        let rights = CallerConfig {
            upstreams: Some(vec!["db".into()]),
            tools: Some(vec!["db__query".into(), "list".into()]),
            ..CallerConfig::default()
        };
        assert!(may_call(&rights, "db", Some("query")));
        assert!(may_call(&rights, "db", Some("list")));
        assert!(may_call(&rights, "db", None));
        assert!(!may_call(&rights, "db", Some("drop")));
        assert!(!may_call(&rights, "web", Some("list")));
        assert!(may_call(&CallerConfig::default(), "any", Some("thing")));
    }
}
