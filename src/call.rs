//! A call inside forebay: who wants what by when, the bytes it came with, and the ticket it ends with.

mod id;
mod memory;
mod notices;
pub mod steps;
mod ticket;

pub use id::{BadCallId, CallId, CallRef, IdMint};
pub use memory::{Charge, Memory};
pub use notices::{Level, Notices};
pub use steps::{Step, Steps, What};
pub use ticket::{Answer, Ending, State, Ticket};

use crate::caller::{Caller, Lane};
use crate::ledger::{Ledger, Stage};
use crate::limits::cursors::{CursorHash, Held};
use crate::outcome::{CancelledBy, Outcome, Phase, Refusal, Scope};
use crate::protocol::envelope::Request;
use crate::protocol::json::members;
use crate::protocol::splice::{Outbound, ReplyForm};
use crate::protocol::version::Era;
use crate::upstream::UpstreamShared;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// One forwarded request. Shared by the caller's face, the live table, the queue and the worker.
pub struct Call {
    pub id: CallId,
    pub caller: Arc<Caller>,
    /// The request as it came, and where its parts lie.
    pub request: Request,
    /// Where the call goes, as far as was known when it came.
    first_aim: Aim,
    /// Where it goes, once that had to be found out.
    found_aim: OnceLock<Aim>,
    pub arrived: Instant,
    /// The caller's own deadline, if it gave one.
    pub deadline: Option<Instant>,
    /// The runtime thread whose socket the call came from; workers on it are preferred.
    pub home: usize,
    /// The form of the answer.
    pub form: ReplyForm,
    /// What its client hears before the answer, if it wants to.
    pub notices: Option<Notices>,
    pub ticket: Ticket,
    lane: AtomicU8,
    attempt: AtomicU32,
    /// It was sent once more after its link had broken (rule R5).
    sent_again: AtomicBool,
    /// The upstream it was offered to; its name may mean another one by now.
    holder: OnceLock<Weak<UpstreamShared>>,
    /// Where the queue keeps the call, 0 while it is in no queue. A number of the actor's present life: whoever
    /// goes by it checks that it is this call that lives there.
    pub(crate) entry: AtomicU64,
    on_finish: Arc<dyn OnFinish>,
    /// The body's bytes in the memory budget (rule R16).
    charge: Option<Charge>,
    /// The call for which this one asks a price (rule R36).
    pub parent: Option<CallId>,
    /// The cursor that it uses or may open.
    cursor: OnceLock<Held>,
}

/// Where a call goes.
#[derive(Clone, Debug)]
pub struct Aim {
    /// The upstream's name; empty until the call is routed.
    pub upstream: Arc<str>,
    /// What the call is aimed at, as the upstream names it: tool, prompt, resource or method. Hostile text.
    pub target: Arc<str>,
    /// The request names its target otherwise (`upstream__tool`), so the name is spliced.
    pub renamed: bool,
    /// The tool's own limits apply under this name; none for anything but `tools/call`.
    pub tool: Option<Arc<str>>,
    /// How many slots the call takes.
    pub weight: u32,
}

/// Everything that is known of a call when it is accepted.
pub struct Accepted {
    pub id: CallId,
    pub caller: Arc<Caller>,
    /// This and the next four as in [`Aim`].
    pub upstream: Arc<str>,
    pub request: Request,
    pub target: Arc<str>,
    pub renamed: bool,
    pub tool: Option<Arc<str>>,
    pub weight: u32,
    pub lane: Lane,
    pub arrived: Instant,
    pub deadline: Option<Instant>,
    pub home: usize,
    pub form: ReplyForm,
    pub notices: Option<Notices>,
    pub ledger: Arc<Ledger>,
    pub on_finish: Arc<dyn OnFinish>,
    pub charge: Option<Charge>,
    pub parent: Option<CallId>,
}

/// Told of every call's end, once, by whoever won it: live table, history, metrics, log.
pub trait OnFinish: Send + Sync {
    fn finished(&self, call: &Call, ending: &Arc<Ending>);
}

impl Call {
    /// Accepts a call: from here on it is counted as offered and will end exactly once.
    pub fn accept(accepted: Accepted) -> Arc<Call> {
        let ticket = Ticket::new(accepted.ledger, accepted.caller.figures.clone());
        Arc::new(Call {
            id: accepted.id,
            caller: accepted.caller,
            request: accepted.request,
            first_aim: Aim {
                upstream: accepted.upstream,
                target: accepted.target,
                renamed: accepted.renamed,
                tool: accepted.tool,
                weight: accepted.weight,
            },
            found_aim: OnceLock::new(),
            arrived: accepted.arrived,
            deadline: accepted.deadline,
            home: accepted.home,
            form: accepted.form,
            notices: accepted.notices,
            ticket,
            lane: AtomicU8::new(accepted.lane as u8),
            attempt: AtomicU32::new(1),
            sent_again: AtomicBool::new(false),
            holder: OnceLock::new(),
            entry: AtomicU64::new(0),
            on_finish: accepted.on_finish,
            charge: accepted.charge,
            parent: accepted.parent,
            cursor: OnceLock::new(),
        })
    }

    fn aim(&self) -> &Aim {
        self.found_aim.get().unwrap_or(&self.first_aim)
    }

    /// The upstream's name; empty until the call is routed.
    pub fn upstream(&self) -> &Arc<str> {
        &self.aim().upstream
    }

    /// See [`Aim::target`].
    pub fn target(&self) -> &Arc<str> {
        &self.aim().target
    }

    /// See [`Aim::renamed`].
    pub fn is_renamed(&self) -> bool {
        self.aim().renamed
    }

    /// See [`Aim::tool`].
    pub fn tool(&self) -> Option<&Arc<str>> {
        self.aim().tool.as_ref()
    }

    /// How many slots the call takes.
    pub fn weight(&self) -> u32 {
        self.aim().weight
    }

    /// Says where a call goes that was accepted before that was known, and moves it to its upstream's ledger
    /// (rule R6). False if it has ended meanwhile: then it goes nowhere.
    #[must_use]
    pub fn route(&self, aim: Aim, lane: Lane, ledger: &Arc<Ledger>) -> bool {
        self.ticket.move_to(ledger, || {
            let _ = self.found_aim.set(aim);
            self.set_lane(lane);
        })
    }

    pub fn lane(&self) -> Lane {
        Lane::ALL[usize::from(self.lane.load(Relaxed)).min(2)]
    }

    /// For a live change of a queued call; the queue moves its entry as well.
    pub(crate) fn set_lane(&self, lane: Lane) {
        self.lane.store(lane as u8, Relaxed);
    }

    /// Noted by the upstream that the call is offered to, before it has it.
    pub(crate) fn goes_to(&self, upstream: &Arc<UpstreamShared>) {
        // Offered once; a second time would be to the same upstream.
        let _ = self.holder.set(Arc::downgrade(upstream));
    }

    /// The upstream that has the call, if it was offered to one that is still there.
    pub(crate) fn holder(&self) -> Option<Arc<UpstreamShared>> {
        self.holder.get()?.upgrade()
    }

    /// Takes over what the call holds of its tool's cursors, once.
    pub(crate) fn takes_cursor(&self, held: Held) {
        // A second one would be given back by its drop.
        let _ = self.cursor.set(held);
        // Ended meanwhile: whoever ended it did not find this.
        if self.ticket.state() == State::Finished {
            self.leave_cursor();
        }
    }

    /// How often the call has been handed to the upstream's connection, at least 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.load(Relaxed)
    }

    pub(crate) fn next_attempt(&self) -> u32 {
        self.attempt.fetch_add(1, Relaxed) + 1
    }

    /// Whether it has been sent once more, or is about to be; and that it is from now on.
    pub(crate) fn first_repeat(&self) -> bool {
        !self.sent_again.swap(true, Relaxed)
    }

    /// Whether it may have reached its server before: then it never counts as not executed again.
    pub(crate) fn was_sent(&self) -> bool {
        self.sent_again.load(Relaxed)
    }

    /// How the request is written for its upstream, under our own `id`.
    pub fn outbound(&self, id: u64, left_ms: Option<u64>, era: Era) -> Outbound<'_> {
        Outbound {
            id,
            name: self.is_renamed().then_some(&**self.target()),
            token: id,
            left_ms,
            era,
            level: self.notices.as_ref().and_then(Notices::level).map(Level::name),
        }
    }

    /// The size that counts against `queue_bytes`.
    pub fn bytes(&self) -> u64 {
        self.request.body.len() as u64
    }

    /// Ends the call with the upstream's own answer, which is charged from here on until it is written (rule
    /// R16). False if it had ended already.
    pub fn answer(&self, outcome: Outcome, answer: bytes::Bytes, now: Instant) -> bool {
        let good = outcome == (Outcome::Completed { is_error: false });
        // Read before the ticket is locked: an answer may be large.
        let cursor = self.cursor.get().filter(|_| good).map(|held| (held, self.next_cursor(held, &answer)));
        self.finish(|_, _| {
            // Before anybody sees the answer, so that the caller's next call meets what this one has used and left.
            if self.parent.is_none() {
                self.caller.charge_quota(answer.len() as u64, now);
            }
            if let Some((held, next)) = cursor {
                held.settle(next, now);
            }
            let answer = match &self.charge {
                Some(charge) => charge.memory().hold(answer),
                None => answer,
            };
            Ending { outcome, answer: Answer::Upstream(answer), at: now }
        })
        .is_ok()
    }

    /// The cursor that an answer carries.
    fn next_cursor(&self, held: &Held, answer: &[u8]) -> Option<CursorHash> {
        let text = std::str::from_utf8(answer).ok()?;
        let result = match &self.form {
            ReplyForm::JsonRpc { .. } => members(text).ok()?.get("result")?,
            ReplyForm::Result => text,
        };
        CursorHash::of(held.pointer().find(result)?)
    }

    /// Ends the call with an answer of forebay's own. False if it had ended already.
    pub fn refuse(&self, refusal: Refusal, now: Instant) -> bool {
        self.finish(|_, _| Ending { outcome: refusal.outcome, answer: Answer::Own(Box::new(refusal)), at: now }).is_ok()
    }

    /// Ends the call without further figures. False if it had ended already.
    pub fn end(&self, outcome: Outcome, scope: Scope, now: Instant) -> bool {
        self.refuse(self.refusal(outcome, scope), now)
    }

    /// Ends the call with the outcome that belongs to the stage in which it stands; with none it goes on.
    /// False if it goes on, or had ended already.
    pub fn end_by_stage(&self, outcome: impl FnOnce(Stage) -> Option<Outcome>, scope: Scope, now: Instant) -> bool {
        let ended = self.ticket.finish_if(|stage, _| {
            let outcome = outcome(stage)?;
            self.leave_cursor();
            Some(Ending { outcome, answer: Answer::Own(Box::new(self.refusal(outcome, scope))), at: now })
        });
        match ended {
            Ok(Some(ending)) => {
                self.on_finish.finished(self, &ending);
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Ends the call as lost where it stands: a call that was not running was never executed. False if it had
    /// ended already.
    pub fn lose(&self, note: &str, now: Instant) -> bool {
        self.finish(|stage, _| {
            let outcome = Outcome::Lost { sent: stage == Stage::Running };
            let mut refusal = self.refusal(outcome, Scope::Upstream);
            refusal.note = Some(note.into());
            Ending { outcome, answer: Answer::Own(Box::new(refusal)), at: now }
        })
        .is_ok()
    }

    /// Cancels the call where it stands. The loser is told how it had ended.
    pub fn cancel(&self, by: CancelledBy, now: Instant) -> Result<Phase, Arc<Ending>> {
        let mut phase = Phase::Queued;
        self.finish(|stage, _| {
            phase = match stage {
                Stage::Submitted | Stage::Queued => Phase::Queued,
                Stage::Running => Phase::Running,
            };
            let outcome = Outcome::Cancelled { by, phase };
            Ending { outcome, answer: Answer::Own(Box::new(self.refusal(outcome, Scope::Upstream))), at: now }
        })
        .map(|_| phase)
    }

    /// A refusal of this call, its figures still to be filled.
    pub fn refusal(&self, outcome: Outcome, scope: Scope) -> Refusal {
        Refusal::new(outcome, scope, self.id, self.upstream().clone(), self.caller.name.clone())
    }

    /// How long the call waited, and how long it ran, up to `now`.
    pub fn times(&self, now: Instant) -> (Duration, Duration) {
        match self.ticket.started() {
            Some(started) => (started.saturating_duration_since(self.arrived), now.saturating_duration_since(started)),
            None => (now.saturating_duration_since(self.arrived), Duration::ZERO),
        }
    }

    /// Its cursor, or the place that it has taken for one, is no longer used by this call.
    fn leave_cursor(&self) {
        if let Some(held) = self.cursor.get() {
            held.release();
        }
    }

    fn finish(&self, ending: impl FnOnce(Stage, Option<Instant>) -> Ending) -> Result<Arc<Ending>, Arc<Ending>> {
        let ending = self.ticket.finish(|stage, started| {
            let ending = ending(stage, started);
            self.leave_cursor();
            ending
        })?;
        self.on_finish.finished(self, &ending);
        Ok(ending)
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("id", &self.id)
            .field("upstream", self.upstream())
            .field("target", self.target())
            .field("state", &self.ticket.state())
            .finish_non_exhaustive()
    }
}
