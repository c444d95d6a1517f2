//! The words in which the actor talks to the core. Plain values; what they do is in the other files.

use crate::caller::{CallerId, Lane};
use crate::config::{Fairness, Limits, OnFull};
use crate::outcome::{Reason, Scope};
use crate::upstream::RowState;
use std::time::Duration;

/// A time, in microseconds since an origin that the actor chose. The core has no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// The moment `time` later; stays at the end of time rather than wrapping.
    pub fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it is still to come.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// One entry of the core: generation in the high half, place in the low half. Never 0, and an id whose
/// place has been given to another entry names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

/// A dense number for a tool that has a cap or a weight of its own; an index of [`Settings::tool_caps`].
/// It means the same tool for the core's whole life (see `Core::rekey` for a changed config).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolKey(pub u32);

/// One FIFO: the queued calls of a caller in a lane, for one capped tool or for all the others together
/// (rule R13). Also with `fairness = "none"`, where all the FIFOs of a lane share one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    pub lane: Lane,
    pub caller: CallerId,
    pub tool: Option<ToolKey>,
}

/// The limits in force. All of them can change at any time.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Slots. 0 lifts the limit to the hard ceiling of 4,096; to run nothing, pause the core instead.
    pub max_concurrent: u32,
    /// Places in the queue; 0 means never queue.
    pub queue_size: u32,
    /// Bytes of queued calls.
    pub queue_bytes: u64,
    pub on_full: OnFull,
    pub fairness: Fairness,
    /// Most queued calls of one caller; unset, rule R15's default holds.
    pub max_queued: Option<u32>,
    /// The wait above which a queue counts as standing (rule R19); none leaves waits alone.
    pub sojourn: Option<Duration>,
    /// Most calls in flight of each tool, by [`ToolKey`]; none (or beyond the end) is unlimited.
    pub tool_caps: Vec<Option<u32>>,
}

impl Settings {
    /// The settings of an upstream's limits, with the caps of its tools.
    pub fn new(limits: &Limits, tool_caps: Vec<Option<u32>>) -> Self {
        Settings {
            max_concurrent: limits.max_concurrent.ceiling(),
            queue_size: limits.queue_size,
            queue_bytes: limits.queue_bytes,
            on_full: limits.on_full,
            fairness: limits.fairness,
            max_queued: limits.max_queued,
            sojourn: limits.queue_timeout.filter(|_| limits.sojourn).map(|wait| wait / 4),
            tool_caps,
        }
    }
}

/// A newcomer, and what the core has to know of it.
#[derive(Clone, Debug)]
pub struct Offer<J> {
    pub job: J,
    pub lane: Lane,
    pub caller: CallerId,
    /// The caller's quantum in the round of its lane; 0 counts as 1.
    pub caller_weight: u32,
    /// The caller's own cap on calls in flight, for the predicted wait only (the gate enforces it).
    pub caller_limit: Option<u32>,
    /// Set for tools with a cap or a weight of their own.
    pub tool: Option<ToolKey>,
    /// Slots that the call takes; 0 counts as 1, and more than the limit counts as the limit.
    pub weight: u32,
    pub bytes: u64,
    /// Arrival + `queue_timeout`.
    pub expires: Option<Moment>,
    /// The caller's own deadline. The queue expiry is the earlier of the two, and can be moved up to it.
    pub deadline: Option<Moment>,
    /// The caller's own bound on its queued calls; the narrower of this and the upstream's counts.
    pub max_queued: Option<u32>,
    /// Another caller was seen within 10 s (rule R15). Those queued or in flight the core knows itself.
    pub others_seen: bool,
}

/// What became of a newcomer.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Admitted<J> {
    /// It takes free slots at once; nothing waited before it.
    Run(EntryId, J),
    /// It waits, perhaps in the place of another call, which is handed out to be answered `displaced`.
    Queued { id: EntryId, displaced: Option<(EntryId, J)> },
    /// It is not taken; nothing of it is left in the core.
    Refused { job: J, why: Reason, scope: Scope, retry: Retry },
    /// The gate said that it had finished already; nothing of it is left in the core.
    Gone(J),
}

/// What lies outside the core: permits of the caller and of the whole daemon, and the ticket.
pub trait Gate<J> {
    /// Asked just before a dispatch, with everything else settled. After [`Pass::Go`] the call runs.
    fn take(&mut self, job: &J, flow: FlowKey) -> Pass;
}

impl<J, F: FnMut(&J, FlowKey) -> Pass> Gate<J> for F {
    fn take(&mut self, job: &J, flow: FlowKey) -> Pass {
        self(job, flow)
    }
}

/// A gate that lets everything through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl<J> Gate<J> for Open {
    fn take(&mut self, _job: &J, _flow: FlowKey) -> Pass {
        Pass::Go
    }
}

/// A gate's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// All permits are taken.
    Go,
    /// A permit is missing: the FIFO steps aside until `Core::unpark` (rule R13).
    Park,
    /// The call has finished meanwhile: it is dropped, at no cost to its lane and caller.
    Gone,
}

/// What `Core::next` met.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Next<J> {
    /// Run it: its slots are taken.
    Run(EntryId, J),
    /// Its time had passed; it has left the core.
    Expired(EntryId, J),
    /// It had waited too long in a queue that stands (rule R19); it has left the core.
    Shed(EntryId, J),
    /// It had finished; it has left the core.
    Gone(EntryId, J),
}

/// A time that passed.
#[derive(Clone, Debug, PartialEq)]
pub enum Due<J> {
    /// A queued call expired; it has left the core.
    QueueExpired(EntryId, J),
    /// A run reached its limit; it is still running. Told once.
    RunTimedOut(EntryId, J),
    /// A lingering slot's grace is over; it is still lingering. Told once.
    GraceOver(EntryId, J),
}

/// What a withdrawn entry was doing.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Withdrawn<J> {
    /// It was queued and has left the core; its place is free.
    Queued(J),
    Running,
    Lingering,
    /// No such entry (any more).
    Unknown,
}

/// From what a `retry_after` is reckoned (`Core::retry_after`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Retry {
    /// Until a quarter of the queue is free again.
    Full,
    /// Until this caller's calls have been served in its turns.
    Share(CallerId),
    /// The predicted wait is longer than the time left by this much.
    Over(Duration),
    /// A time that is known by itself, such as a breaker's.
    Left(Duration),
    /// Nothing that waiting would help.
    Never,
}

/// One row of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<J> {
    pub id: EntryId,
    pub job: J,
    pub state: RowState,
    pub lane: Lane,
    pub caller: CallerId,
    /// 1 is served next; an estimate. None unless queued.
    pub position: Option<u32>,
    /// A gate or a tool's cap keeps its FIFO from its turn.
    pub parked: bool,
    /// Since when it is in the core.
    pub since: Moment,
    /// The next time limit that concerns it: queue expiry, end of run, end of grace.
    pub due: Option<Moment>,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows<J> {
    pub rows: Vec<Row<J>>,
    /// Where the next part begins; none at the end.
    pub next: Option<u64>,
    /// The cursor is too old (many listings began since): begin again with 0.
    pub stale: bool,
}

/// Figures of this moment; all O(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Figures {
    /// Calls that run.
    pub running: u32,
    /// Finished calls whose slots are still held.
    pub lingering: u32,
    /// Slots that both hold; above `running + lingering` when calls have weights.
    pub slots: u32,
    /// The limit on slots in force.
    pub limit: u32,
    pub queued: u32,
    pub queue_size: u32,
    /// Queued entries that a gate or a tool's cap keeps aside.
    pub parked: u32,
    /// Bytes of queued calls.
    pub bytes: u64,
    /// Queued, by lane.
    pub lanes: [u32; 3],
    /// Mean time that a slot is held by a call, as smoothed; none before the first end.
    pub slot_time: Option<Duration>,
}
