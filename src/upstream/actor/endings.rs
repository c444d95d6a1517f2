//! How calls end by the actor's hand: refused, displaced, expired, timed out, given up, lost; and what becomes
//! of a slot whose grace is over (rule R7).

use super::UpstreamActor;
use super::turn::SLICE;
use crate::call::{Call, What};
use crate::config::AfterCancel;
use crate::outcome::{CancelledBy, ExpiredBy, Outcome, Reason, Refusal, Scope, TimedOutBy};
use crate::upstream::RowState;
use crate::upstream::queue::{Due, EntryId, Moment, Retry, Withdrawn};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

impl UpstreamActor {
    /// Ends what is due; whether more is due than one turn may do.
    pub(super) fn take_due(&mut self) -> bool {
        let more = self.core.due(self.now, &mut self.due, SLICE);
        // Taken one by one: after a panic, what is left here is still found and answered.
        while let Some(due) = self.due.pop() {
            match due {
                Due::QueueExpired(_, call) => self.expire(&call),
                Due::RunTimedOut(id, call) => self.time_out(id, &call),
                Due::GraceOver(id, _) => self.grace_over(id),
            }
        }
        more
    }

    /// The call waited too long; never executed.
    pub(super) fn expire(&mut self, call: &Arc<Call>) {
        let own = call.deadline.is_some_and(|deadline| deadline <= self.clock);
        self.expire_by(call, if own { ExpiredBy::Deadline } else { ExpiredBy::QueueTimeout });
    }

    /// The same, for a reason that is known.
    pub(super) fn expire_by(&mut self, call: &Arc<Call>, by: ExpiredBy) {
        call.entry.store(0, Relaxed);
        let wait = self.core.retry_after(Retry::Full, self.rng.f64());
        self.finish(call, Outcome::Expired(by), Scope::Upstream, wait);
    }

    /// The call ran too long: its caller is answered, the server is asked to stop, the slot lingers.
    fn time_out(&mut self, id: EntryId, call: &Arc<Call>) {
        let own = call.deadline.is_some_and(|deadline| deadline <= self.clock);
        let by = if own { TimedOutBy::Caller } else { TimedOutBy::CallTimeout };
        self.finish(call, Outcome::TimedOut(by), Scope::Upstream, None);
        if by == TimedOutBy::CallTimeout {
            self.saw_overload(id);
        }
        // Ended by somebody else meanwhile, it still has to stop.
        self.stop(id, call);
    }

    /// Until when a stopped call's slot lingers. Under `hold`, the call's own time limit counts too; without
    /// one, the slot is held until the server ends the call.
    pub(super) fn lingers_until(&self, call: &Call) -> Option<Moment> {
        let grace = self.now.after(self.config.limits.cancel_grace);
        match self.config.limits.after_cancel {
            AfterCancel::Release | AfterCancel::Recycle => Some(grace),
            AfterCancel::Hold => {
                let started = call.ticket.started().unwrap_or(self.clock);
                self.call_timeout(call).map(|limit| self.moment(started).after(limit).max(grace))
            }
        }
    }

    /// The server has not ended a call that it was asked to stop.
    fn grace_over(&mut self, id: EntryId) {
        match self.config.limits.after_cancel {
            AfterCancel::Release | AfterCancel::Hold => self.release(id),
            AfterCancel::Recycle => {
                if let Some(flight) = self.flights.get(id.0 as u32 as usize).and_then(Option::as_ref) {
                    self.connection.recycle(flight.run);
                }
            }
        }
    }

    /// Frees a slot whose call the server has not ended, and counts it.
    fn release(&mut self, id: EntryId) {
        let flight = self.take_flight(id);
        let started = flight.as_ref().map_or(self.clock, |flight| flight.started);
        if let Some(call) = self.core.complete(id, self.clock.saturating_duration_since(started)) {
            call.entry.store(0, Relaxed);
            call.ticket.note(self.clock, What::Released, "after cancel_grace; the server may still work on it");
            self.shared.figures.released.fetch_add(1, Relaxed);
        }
        // Before the next dispatch, so that the connection's count of what it holds is never above ours.
        if let Some(flight) = &flight {
            self.connection.forget(flight.run);
        }
        drop(flight);
    }

    pub(super) fn displace(&mut self, victim: &Arc<Call>) {
        self.shared.saturation.refused(self.now.0);
        let wait = self.core.retry_after(Retry::Full, self.rng.f64());
        self.finish(victim, Outcome::Displaced, Scope::Entries, wait);
    }

    pub(super) fn refuse(&mut self, call: &Arc<Call>, why: Reason, scope: Scope, wait: Option<Duration>) {
        // Only what says that the server has too much to do counts: a caller's tight deadline does not.
        if matches!(why, Reason::QueueFull | Reason::ConcurrencyLimit) {
            self.shared.saturation.refused(self.now.0);
        }
        self.finish(call, Outcome::Refused(why), scope, wait);
    }

    /// Refused because the server cannot be reached in time, with the fault and the time of the next try.
    pub(super) fn refuse_down(&mut self, call: &Arc<Call>, fault: Arc<str>, retry_at: Option<Instant>) {
        let wait = retry_at.map(|at| at.saturating_duration_since(self.clock));
        let wait = wait.and_then(|left| self.core.retry_after(Retry::Left(left), self.rng.f64()));
        let mut refusal = self.refusal(call, Outcome::Refused(Reason::UpstreamDown), Scope::Upstream, wait);
        refusal.note = Some(fault);
        call.refuse(refusal, self.clock);
    }

    fn finish(&mut self, call: &Arc<Call>, outcome: Outcome, scope: Scope, wait: Option<Duration>) {
        let refusal = self.refusal(call, outcome, scope, wait);
        call.refuse(refusal, self.clock);
    }

    /// A refusal with the figures of this moment.
    fn refusal(&self, call: &Call, outcome: Outcome, scope: Scope, wait: Option<Duration>) -> Refusal {
        let mut refusal = call.refusal(outcome, scope);
        self.shared.fill(&mut refusal);
        let figures = self.core.figures();
        refusal.active = Some(figures.running + figures.lingering);
        refusal.queued = Some(figures.queued);
        refusal.retry_after_ms = wait.map(|wait| wait.as_millis() as u64);
        refusal
    }

    /// Refuses a slice of the queue after a final fault; whether there is more.
    pub(super) fn give_up_slice(&mut self) -> bool {
        let fault = self.link.fault().cloned().unwrap_or_else(|| "it cannot be reached".into());
        let left = self.end_queued_slice(|actor, call| actor.refuse_down(call, fault.clone(), None));
        self.giving_up = left;
        left
    }

    /// Cancels a slice of what is queued, for shutdown; whether there is more.
    pub(super) fn shut_down_slice(&mut self) -> bool {
        self.end_queued_slice(|actor, call| {
            let outcome = Outcome::Cancelled { by: CancelledBy::Shutdown, phase: crate::outcome::Phase::Queued };
            actor.finish(call, outcome, Scope::Upstream, None);
        })
    }

    /// Takes one page of the listing; what of it is queued ends. False once nothing is queued any more.
    fn end_queued_slice(&mut self, mut end: impl FnMut(&mut Self, &Arc<Call>)) -> bool {
        let page = self.core.page(self.slice_cursor, SLICE);
        self.slice_cursor = page.next.unwrap_or(0);
        for row in page.rows.into_iter().filter(|row| row.state == RowState::Queued) {
            if let Withdrawn::Queued(call) = self.core.withdraw(row.id) {
                call.entry.store(0, Relaxed);
                self.in_hand = Some(call.clone());
                end(self, &call);
                self.in_hand = None;
            }
        }
        self.core.figures().queued > 0
    }

    /// Cancels what runs, for shutdown; the server is asked to stop each.
    pub(super) fn shut_down_running(&mut self) {
        for (id, call) in self.in_flight() {
            let outcome = Outcome::Cancelled { by: CancelledBy::Shutdown, phase: crate::outcome::Phase::Running };
            self.finish(&call, outcome, Scope::Upstream, None);
            self.stop(id, &call);
        }
    }

    /// Ends what runs as lost, before its connection is reset on purpose.
    pub(super) fn lose_running(&mut self, note: &str) {
        for (_, call) in self.in_flight() {
            call.lose(note, self.clock);
        }
    }

    fn in_flight(&self) -> Vec<(EntryId, Arc<Call>)> {
        let running = self.core.entries().filter(|(_, state, _)| *state == RowState::Running);
        running.map(|(id, _, call)| (id, call.clone())).collect()
    }

    /// Ends every call that this life holds. What runs may have been executed, what waits was not (rule R2).
    pub(super) fn lose_everything(&mut self, note: &str) {
        let now = Instant::now();
        let due = self.due.iter().map(|due| match due {
            Due::QueueExpired(_, call) | Due::RunTimedOut(_, call) | Due::GraceOver(_, call) => call,
        });
        let held = self.core.entries().map(|(_, _, call)| call);
        for call in held.chain(due).chain(&self.in_hand) {
            call.entry.store(0, Relaxed);
            call.lose(note, now);
        }
        self.in_hand = None;
        self.flights.clear();
    }
}
