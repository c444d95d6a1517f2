//! The ticket of a call: one shared state, and the one way it ends (rule R1).
//!
//! ```text
//! submitted -> queued -> running -> finished(outcome)
//!                 ^---------'  handed back unsent (rule R5)
//! ```
//!
//! Whoever moves the ticket to `finished` wins; every later attempt is given the winner's ending and must
//! not answer, count or log. Transitions are compare-exchanges made under the ticket's own short lock, in
//! which the ledger moves too, so that ticket and ledger never disagree. The slot that a running call
//! holds is a separate thing: finishing a ticket frees no slot.

use super::steps::{Steps, What};
use crate::caller::CallerFigures;
use crate::ledger::{Ledger, Stage};
use crate::outcome::{Outcome, Refusal};
use crate::sync::{AtomicU8, Mutex};
use bytes::Bytes;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::task::{Context, Poll, Waker};
use tokio::time::Instant;

const SUBMITTED: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const FINISHED: u8 = 3;

/// Where a call stands, as a listing names it. *Lingering* is not a state of the ticket but of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Submitted,
    Queued,
    Running,
    Finished,
}

/// How a call ended, and what its caller is told.
#[derive(Clone, Debug)]
pub struct Ending {
    pub outcome: Outcome,
    pub answer: Answer,
    pub at: Instant,
}

/// What the caller gets.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The upstream's own answer, already in the form that the caller's face needs.
    Upstream(Bytes),
    /// forebay's own words; the face decides on their form.
    Own(Box<Refusal>),
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Ticket {
    state: AtomicU8,
    inner: Mutex<Inner>,
    caller: Arc<CallerFigures>,
    /// Its server was told that it is over.
    asked_to_stop: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    /// Where the call is counted. It moves once at most, while the call is submitted (rule R6).
    ledger: Arc<Ledger>,
    ending: Option<Arc<Ending>>,
    queued: Option<Instant>,
    started: Option<Instant>,
    /// What happened to it besides, if anything did.
    steps: Option<Arc<Steps>>,
    caller: Option<Waker>,
    worker: Option<Waker>,
}

impl Ticket {
    /// A new call, offered and submitted in `ledger` and in its caller's figures from this moment.
    pub fn new(ledger: Arc<Ledger>, caller: Arc<CallerFigures>) -> Self {
        ledger.offered();
        caller.offered();
        let inner =
            Inner { ledger, ending: None, queued: None, started: None, steps: None, caller: None, worker: None };
        Ticket {
            state: AtomicU8::new(SUBMITTED),
            inner: Mutex::new(inner),
            caller,
            asked_to_stop: AtomicBool::new(false),
        }
    }

    pub fn state(&self) -> State {
        match self.state.load(Acquire) {
            SUBMITTED => State::Submitted,
            QUEUED => State::Queued,
            RUNNING => State::Running,
            _ => State::Finished,
        }
    }

    /// When the call began to run (last), if it has.
    pub fn started(&self) -> Option<Instant> {
        self.inner.lock().started
    }

    /// Counts a submitted call in another ledger from now on, and does `also` in the same breath. False, with
    /// nothing done, if the call has finished meanwhile.
    #[must_use]
    pub fn move_to(&self, ledger: &Arc<Ledger>, also: impl FnOnce()) -> bool {
        let mut inner = self.inner.lock();
        if self.state() != State::Submitted {
            return false;
        }
        also();
        ledger.offered();
        inner.ledger.passed_on();
        inner.ledger = ledger.clone();
        true
    }

    /// When the call was put into its queue first, if it was.
    pub fn queued(&self) -> Option<Instant> {
        self.inner.lock().queued
    }

    /// Writes down a step of the call's life, before or after its end.
    pub fn note(&self, at: Instant, what: What, detail: &str) {
        if what == What::AskedToStop {
            self.asked_to_stop.store(true, Relaxed);
        }
        self.shared_steps().put(at, what, detail);
    }

    /// The steps that were written down, if any were.
    pub fn steps(&self) -> Option<Arc<Steps>> {
        self.inner.lock().steps.clone()
    }

    /// The list of steps, which goes on growing with the call.
    pub(crate) fn shared_steps(&self) -> Arc<Steps> {
        self.inner.lock().steps.get_or_insert_default().clone()
    }

    /// Whether the server was asked to stop the call.
    pub(crate) fn asked_to_stop(&self) -> bool {
        self.asked_to_stop.load(Relaxed)
    }

    /// `submitted -> queued`, or queued already: behind its gates a call waits before it has a place in the queue.
    /// False if the call has finished meanwhile.
    #[must_use]
    pub fn queue(&self, now: Instant) -> bool {
        let mut inner = self.inner.lock();
        let moved = self.exchange(SUBMITTED, QUEUED);
        if moved {
            inner.queued = Some(now);
            inner.ledger.moved(Stage::Submitted, Stage::Queued);
        }
        moved || self.state() == State::Queued
    }

    /// `submitted | queued -> running`, just before the hand-off. False if the call has finished
    /// meanwhile, which proves that it never reaches the upstream.
    #[must_use]
    pub fn start(&self, now: Instant) -> bool {
        let mut inner = self.inner.lock();
        let from = if self.exchange(QUEUED, RUNNING) {
            Stage::Queued
        } else if self.exchange(SUBMITTED, RUNNING) {
            Stage::Submitted
        } else {
            return false;
        };
        inner.started = Some(now);
        inner.ledger.moved(from, Stage::Running);
        self.caller.started();
        true
    }

    /// `running -> queued`, for a call of which no byte was written (rule R5). False if it has finished.
    #[must_use]
    pub fn hand_back(&self) -> bool {
        let mut inner = self.inner.lock();
        let moved = self.exchange(RUNNING, QUEUED);
        if moved {
            inner.started = None;
            inner.worker = None;
            inner.ledger.moved(Stage::Running, Stage::Queued);
            self.caller.handed_back();
            let steps = inner.steps.get_or_insert_default();
            steps.put(Instant::now(), What::HandedBack, "nothing of it had been sent");
        }
        moved
    }

    /// Moves any live state to `finished`. The loser is given the winner's ending.
    ///
    /// `ending` is asked for with the stage that the call is leaving and, when it ran, its start.
    pub fn finish(&self, ending: impl FnOnce(Stage, Option<Instant>) -> Ending) -> Result<Arc<Ending>, Arc<Ending>> {
        let mut inner = self.inner.lock();
        if let Some(ending) = &inner.ending {
            return Err(ending.clone());
        }
        let stage = self.stage();
        let ending = ending(stage, inner.started);
        let (ending, wakers) = self.close(&mut inner, stage, ending);
        drop(inner);
        wakers.into_iter().flatten().for_each(Waker::wake);
        Ok(ending)
    }

    /// As [`Ticket::finish`], unless `ending` says none for the stage in which the call stands: then the
    /// call goes on, and none is returned.
    pub fn finish_if(
        &self,
        ending: impl FnOnce(Stage, Option<Instant>) -> Option<Ending>,
    ) -> Result<Option<Arc<Ending>>, Arc<Ending>> {
        let mut inner = self.inner.lock();
        if let Some(ending) = &inner.ending {
            return Err(ending.clone());
        }
        let stage = self.stage();
        let Some(ending) = ending(stage, inner.started) else { return Ok(None) };
        let (ending, wakers) = self.close(&mut inner, stage, ending);
        drop(inner);
        wakers.into_iter().flatten().for_each(Waker::wake);
        Ok(Some(ending))
    }

    /// The stage of a ticket that has not finished; asked under the lock.
    fn stage(&self) -> Stage {
        match self.state.load(Acquire) {
            SUBMITTED => Stage::Submitted,
            QUEUED => Stage::Queued,
            _ => Stage::Running,
        }
    }

    /// The move itself. The wakers are woken after the lock is gone.
    fn close(&self, inner: &mut Inner, stage: Stage, ending: Ending) -> (Arc<Ending>, [Option<Waker>; 2]) {
        let ending = Arc::new(ending);
        self.state.swap(FINISHED, AcqRel);
        inner.ledger.finished(stage, ending.outcome);
        self.caller.finished(stage, ending.outcome);
        inner.ending = Some(ending.clone());
        (ending, [inner.caller.take(), inner.worker.take()])
    }

    /// How the call ended, if it has.
    pub fn ending(&self) -> Option<Arc<Ending>> {
        self.inner.lock().ending.clone()
    }

    /// Waits for the end, on the caller's side. One waiter at a time.
    pub fn ended(&self) -> impl Future<Output = Arc<Ending>> + '_ {
        poll_fn(|context| self.poll(context, |inner| &mut inner.caller))
    }

    /// Waits for the end, on the side of the worker that runs the call: somebody else ended it.
    pub fn stopped(&self) -> impl Future<Output = Arc<Ending>> + '_ {
        poll_fn(|context| self.poll(context, |inner| &mut inner.worker))
    }

    fn poll(&self, context: &Context<'_>, place: impl Fn(&mut Inner) -> &mut Option<Waker>) -> Poll<Arc<Ending>> {
        let mut inner = self.inner.lock();
        if let Some(ending) = &inner.ending {
            return Poll::Ready(ending.clone());
        }
        let place = place(&mut inner);
        match place {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => *place = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    fn exchange(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }
}

impl Drop for Ticket {
    /// A ticket dropped unanswered has nobody left to answer, but it still counts as an ending.
    fn drop(&mut self) {
        let stage = match self.state() {
            State::Submitted => Stage::Submitted,
            State::Queued => Stage::Queued,
            State::Running => Stage::Running,
            State::Finished => return,
        };
        let outcome = Outcome::Lost { sent: stage == Stage::Running };
        self.inner.get_mut().ledger.finished(stage, outcome);
        self.caller.finished(stage, outcome);
    }
}

#[cfg(test)]
#[cfg(forebay_loom)]
mod loom_models;
