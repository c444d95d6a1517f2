//! What the actor asks of a connection to a server, and what the connection tells back. Nothing here waits.
//!
//! A [`Run`] is one call in the hands of a connection, with the slot it holds. The connection ends the call
//! by [`Run::answer`] or [`Run::lost`], or hands it back unsent by [`Run::hand_back`]; whatever happens to
//! it, a panic included, dropping the slot tells the actor, so a slot cannot leak.

use super::shared::UpstreamShared;
use crate::call::{Call, Ending, State};
use crate::outcome::{Outcome, Scope};
use crate::protocol::method;
use crate::protocol::splice::{self, AnswerKind, CallNote};
use crate::protocol::version::Era;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A running call's number: the actor's incarnation and the entry of the queue's core. Unique over restarts
/// of the actor, so a completion of an earlier life frees nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId {
    pub incarnation: u32,
    pub entry: u64,
}

/// A way to reach one server. Implemented by the stdio and the HTTP transport, and by scripted servers in
/// tests. No method waits or blocks; what takes time happens in the connection's own tasks, and is told to
/// the actor by [`UpstreamShared::tell`] and by the slots.
pub trait Connection: Send + Sync + 'static {
    /// Begins to connect (or to start its children) if it has not; told by [`LinkEvent`]s.
    fn open(&self);

    /// Runs a call. Called only while the link is up and with a slot taken.
    fn begin(&self, run: Run);

    /// The call of this run has ended for its caller (cancelled, timed out): ask the server to stop it.
    /// The slot comes back when the server answers or the exchange ends.
    fn stop(&self, run: RunId, why: StopReason);

    /// The actor has taken the slot of this stopped run back without the server's word (rule R7): what is
    /// still kept for it can go, and an answer from now on is late. Nothing is told back but the slot.
    /// For connections that keep a record of each run beside the exchange itself.
    fn forget(&self, _run: RunId) {}

    /// Gives up what holds these runs: the exchange is dropped, or the child replaced (`after_cancel =
    /// "recycle"`, an unanswered probe).
    fn recycle(&self, run: RunId);

    /// Closes everything at once and forgets every run: before the first dispatch of a new incarnation
    /// (rule R2), on `restart`. The connection opens again afterwards.
    fn reset(&self, why: &str);

    /// A request of forebay's own (lists, handshake-era pings), beside the queue. The answer is the raw
    /// `result` object.
    fn ask(&self, method: &str, params: Option<&str>, timeout: Duration)
    -> BoxFuture<'static, Result<Bytes, AskError>>;

    /// What was learnt in the handshake, while the link is up.
    fn server(&self) -> Option<Arc<ServerInfo>>;

    /// Figures for status: process ids, the last lines of stderr, restarts.
    fn report(&self) -> Report;

    /// The report without the lines of stderr, for who looks often.
    fn brief(&self) -> Report {
        self.report()
    }

    /// Ends it for good: stdin closed, TERM, KILL of the group; connections closed. Bounded.
    fn close(&self) -> BoxFuture<'static, ()>;
}

/// Why a run is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    Cancelled,
    TimedOut,
    Shutdown,
}

impl StopReason {
    pub fn text(self) -> &'static str {
        match self {
            StopReason::Cancelled => "cancelled by the caller or an operator",
            StopReason::TimedOut => "the call's time limit passed",
            StopReason::Shutdown => "the gateway is shutting down",
        }
    }
}

/// What a server said of itself.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    pub era: Era,
    pub version: String,
    /// Raw `capabilities` object.
    pub capabilities: String,
    /// Raw `serverInfo` object.
    pub server_info: String,
    /// Raw JSON string.
    pub instructions: Option<String>,
}

/// What a connection knows of itself, for status and the stderr view.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub pids: Vec<u32>,
    pub restarts: u64,
    /// Why the link is down, whole: for operators, where the phrase in [`LinkEvent`] is for callers too.
    pub fault: Option<String>,
    /// The last lines of stderr, oldest first. Hostile text.
    pub stderr: Vec<String>,
    /// Lines on stdout that were no messages.
    pub noise: u64,
    /// Answers that came after their call had ended.
    pub late: u64,
}

/// Why a request of forebay's own got no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error("{0}")]
    Down(String),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// It was answered, but not in words of the protocol (an HTTP error).
    #[error("{0}")]
    Rejected(String),
    /// The raw JSON-RPC error object.
    #[error("the server answered {0}")]
    Rpc(String),
    #[error("the server's answer cannot be read: {0}")]
    Malformed(String),
}

/// What a connection tells the actor of its link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// It can take calls; with process pools, over this many of the configured processes.
    Up { processes: u32 },
    /// It cannot, and tries again after `retry_in`. `fault` is a short phrase ("exit code 1")
    /// that callers may read: it names no path, no address and no secret.
    Down { fault: Arc<str>, retry_in: Duration },
    /// It cannot, and trying again will not help (401, 403, command not found).
    Final { fault: Arc<str> },
    /// It asked for a rest (429 or 503 with Retry-After).
    Busy { retry_in: Duration },
    /// Its tools, prompts or resources changed: cached lists are stale.
    ListsChanged,
    /// What became of a probe that the actor had sent (rules R8, R10).
    Probed { answered: bool },
}

/// One call in the hands of a connection.
pub struct Run {
    pub call: Arc<Call>,
    pub id: RunId,
    /// Latest end: `call_timeout` and the caller's deadline. The actor's wheel enforces it; the connection
    /// only tells the server how much time is left.
    pub until: Option<Instant>,
    /// Most calls that one of several processes may hold, this one included (rule R22), by the limit that was
    /// in force at hand-off.
    pub share: u32,
    slot: Slot,
}

/// The right to have one call in flight. Dropping it tells the actor.
struct Slot {
    upstream: Arc<UpstreamShared>,
    id: RunId,
    started: Instant,
    /// What happened, as far as it is the connection's to say.
    how: How,
}

/// How a run gave its slot back.
#[derive(Clone, Debug)]
pub enum How {
    /// The server answered, in time or late.
    Answered,
    /// The server answered that it is busy (a signal for rule R17).
    Busy,
    /// The connection broke, or the exchange was dropped.
    Lost,
    /// No byte had been written: the call goes back to the head of its flow (rule R5).
    Unsent(Arc<Call>),
    /// No process had room for it, which the actor has yet to hear: it goes back too, and this is no attempt.
    NoRoom(Arc<Call>),
    /// The link broke under a call that may be sent once more (rule R5): it keeps its slot and its permits.
    Again(Arc<Call>),
    /// The slot was dropped without a word: a panic.
    Dropped,
}

/// What the actor is told when a slot comes back.
#[derive(Clone, Debug)]
pub struct Completion {
    pub id: RunId,
    pub how: How,
    /// From hand-off to now.
    pub slot_time: Duration,
}

impl Run {
    /// Made by the actor alone, right after the ticket moved to `running`.
    pub(crate) fn new(
        call: Arc<Call>,
        id: RunId,
        until: Option<Instant>,
        upstream: Arc<UpstreamShared>,
        now: Instant,
    ) -> Self {
        Run { call, id, until, share: u32::MAX, slot: Slot { upstream, id, started: now, how: How::Dropped } }
    }

    /// The time left for the call, for `forebay/timeout_ms`.
    pub fn left_ms(&self, now: Instant) -> Option<u64> {
        self.until.map(|until| until.saturating_duration_since(now).as_millis() as u64)
    }

    /// Ends the call with the upstream's message, and gives the slot back. False if it came too late, or if
    /// the message is no valid answer (the call is then `lost`).
    pub fn answer(mut self, message: &[u8], era: Era) -> bool {
        let in_time = self.end_answered(message, era);
        // Only now: a panic above leaves the run as dropped, which still ends its call.
        self.slot.how = How::Answered;
        in_time
    }

    fn end_answered(&self, message: &[u8], era: Era) -> bool {
        // Nobody waits for an answer that comes late: it is not even read.
        if self.call.ticket.state() == State::Finished {
            return false;
        }
        let now = Instant::now();
        let (queued, running) = self.call.times(now);
        let mut call_id = Vec::with_capacity(20);
        self.call.id.write_to(&mut call_id);
        let note = CallNote {
            call_id: &call_id,
            upstream: self.call.upstream(),
            queued_ms: queued.as_millis() as u64,
            running_ms: running.as_millis() as u64,
            cacheable: &*self.call.request.method == method::RESOURCES_READ,
        };
        match splice::answer(message, era, &self.call.form, &note) {
            Some((bytes, AnswerKind::Result { is_error })) => {
                self.call.answer(Outcome::Completed { is_error }, bytes, now)
            }
            Some((bytes, AnswerKind::Error)) => self.call.answer(Outcome::UpstreamError, bytes, now),
            None => {
                self.end_lost(true, "the server's answer is not valid JSON-RPC", now);
                false
            }
        }
    }

    /// Ends the call as lost and gives the slot back. `sent` is whether any byte had been written. A call that
    /// was declared safe to repeat goes on instead, once, as far as the budget of its upstream allows (rule R5).
    pub fn lost(mut self, sent: bool, note: &str) {
        if sent && self.slot.upstream.may_send_again(&self.call) {
            self.slot.how = How::Again(self.call.clone());
            return;
        }
        self.end_lost(sent, note, Instant::now());
        self.slot.how = How::Lost;
    }

    /// Hands the call back unsent: it goes to the head of its flow, with the same id and deadline.
    pub fn hand_back(mut self) {
        self.slot.how = How::Unsent(self.call.clone());
    }

    /// Hands the call back because no process has room for it; see [`How::NoRoom`].
    pub fn no_room(mut self) {
        self.slot.how = How::NoRoom(self.call.clone());
    }

    /// Gives the slot back after the call had been ended by somebody else.
    pub fn release(mut self, how: How) {
        self.slot.how = how;
    }

    /// Waits until somebody else ends the call.
    pub async fn stopped(&self) -> Arc<Ending> {
        self.call.ticket.stopped().await
    }

    fn end_lost(&self, sent: bool, note: &str, now: Instant) {
        let mut refusal = self.call.refusal(Outcome::Lost { sent }, Scope::Upstream);
        refusal.note = Some(note.into());
        self.call.refuse(refusal, now);
    }
}

impl Drop for Run {
    /// A run dropped without a word was lost to a panic: its call ends, and it may have been sent.
    fn drop(&mut self) {
        if matches!(self.slot.how, How::Dropped) {
            self.end_lost(true, "the task that ran the call failed", Instant::now());
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let how = std::mem::replace(&mut self.how, How::Dropped);
        let slot_time = Instant::now().saturating_duration_since(self.started);
        self.upstream.complete(Completion { id: self.id, how, slot_time });
    }
}
