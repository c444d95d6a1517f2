//! One turn of the actor (rule R20): all that came back, what was withdrawn, what the link and the gates say;
//! dispatch; at most 256 newcomers; dispatch. No step waits.

use super::{Flight, UpstreamActor, tool_of};
use crate::call::{Call, State, What};
use crate::outcome::{ExpiredBy, Outcome, Reason, Scope};
use crate::upstream::connection::{Completion, How, LinkEvent, Run, RunId, StopReason};
use crate::upstream::link::{Effect, LinkState};
use crate::upstream::queue::{Admitted, EntryId, Next, Offer, Withdrawn};
use crate::upstream::shared::{Hold, Switch};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// Newcomers, link events, due times and entries given up in one turn; about 70 us of work.
pub(super) const SLICE: usize = 256;
/// How often the age of the oldest queued call is looked up.
const OLDEST_EVERY: Duration = Duration::from_millis(100);
/// A call is handed to its connection this often at most when nothing of it was written (rule R5).
const ATTEMPTS: u32 = 4;

impl UpstreamActor {
    /// Does one turn; whether more is waiting than one turn may do.
    pub(super) fn turn(&mut self) -> bool {
        self.read_clock();
        let shared = self.shared.clone();
        shared.figures.turns.fetch_add(1, Relaxed);
        while let Some(completion) = shared.completions.pop() {
            self.completed(completion);
        }
        for _ in 0..SLICE {
            let Some(event) = shared.link_events.pop() else { break };
            self.link_event(event);
        }
        for _ in 0..4 * SLICE {
            let Some(call) = shared.withdrawals.pop() else { break };
            self.withdrawn(&call);
        }
        while let Some(grant) = shared.grants.pop() {
            if let Some(flow) = self.door.granted(grant) {
                self.core.unpark(flow);
            }
        }
        if shared.wanted.swap(false, AcqRel) {
            self.wake_connection();
        }
        let late = self.take_due();
        self.tend();
        let giving_up = self.giving_up && self.give_up_slice();
        let swept = self.dispatch();
        let more = self.take_submits();
        // What was left over by the first dispatch would only be left over by a second.
        let swept = swept || self.dispatch();
        // Before unused grants go on: they must not come back to a flow that is no more.
        while let Some(flow) = self.core.abandoned() {
            self.door.withdraw(flow);
        }
        self.door.pass_on();
        self.publish();
        let told = !shared.withdrawals.is_empty() || !shared.link_events.is_empty();
        more || late || giving_up || swept || told
    }

    pub(super) fn read_clock(&mut self) {
        self.clock = Instant::now();
        self.now = self.moment(self.clock);
        self.door.now = self.clock;
    }

    /// Runs whatever may run now. Calls met on the way that have expired or ended count towards a slice, so
    /// that a queue which expired while it was paused is not swept in one turn; whether more is to be done.
    pub(super) fn dispatch(&mut self) -> bool {
        self.core.pause(!self.may_run());
        self.send_again();
        let mut swept = 0;
        while swept < SLICE {
            let Some(next) = self.core.next(self.now, &mut self.door) else { return false };
            match next {
                Next::Run(id, call) => self.hand_over(id, call),
                Next::Expired(_, call) => {
                    self.in_hand = Some(call.clone());
                    self.expire(&call);
                    self.in_hand = None;
                    swept += 1;
                }
                Next::Shed(_, call) => {
                    self.in_hand = Some(call.clone());
                    self.expire_by(&call, ExpiredBy::Sojourn);
                    self.in_hand = None;
                    swept += 1;
                }
                Next::Gone(_, call) => {
                    call.entry.store(0, Relaxed);
                    swept += 1;
                }
            }
        }
        true
    }

    /// Gives a call whose ticket has just moved to `running` to the connection.
    fn hand_over(&mut self, id: EntryId, call: Arc<Call>) {
        let permits = self.door.permits();
        call.entry.store(id.0, Relaxed);
        let run = RunId { incarnation: self.incarnation, entry: id.0 };
        let by_limit = self.call_timeout(&call).and_then(|limit| self.clock.checked_add(limit));
        let until = [by_limit, call.deadline].into_iter().flatten().min();
        if let Some(until) = until {
            self.core.run_until(id, self.moment(until));
        }
        let place = id.0 as u32 as usize;
        if self.flights.len() <= place {
            self.flights.resize_with(place + 1, || None);
        }
        self.flights[place] = Some(Flight { id, run, _permits: permits, started: self.clock });
        self.began(&call);
        let mut run = Run::new(call, run, until, self.shared.clone(), self.clock);
        run.share = self.share;
        self.connection.begin(run);
    }

    /// A slot came back.
    fn completed(&mut self, completion: Completion) {
        // A slot of a former life is not ours to free; its call has been ended with that life.
        if completion.id.incarnation != self.incarnation {
            return;
        }
        let id = EntryId(completion.id.entry);
        self.weigh(id, &completion.how);
        let goes_on = match &completion.how {
            How::Again(call) => self.keep_for_again(id, call),
            How::Unsent(call) | How::NoRoom(call) if call.was_sent() => self.keep_for_again(id, call),
            How::Unsent(call) => self.hand_back(id, call, true),
            How::NoRoom(call) => self.hand_back(id, call, false),
            How::Answered | How::Busy | How::Lost | How::Dropped => false,
        };
        if goes_on {
            return;
        }
        // The permits are given back after the core has the slot, so that a grant finds it free.
        let flight = self.take_flight(id);
        if let Some(call) = self.core.complete(id, completion.slot_time) {
            call.entry.store(0, Relaxed);
            if call.ticket.asked_to_stop() {
                let how = match completion.how {
                    How::Answered | How::Busy => "the server ended it",
                    How::Lost | How::Unsent(_) | How::NoRoom(_) | How::Again(_) | How::Dropped => {
                        "its connection ended"
                    }
                };
                call.ticket.note(self.clock, What::Released, how);
            }
            match call.ticket.ending().map(|ending| ending.outcome) {
                // How long the server takes: what was cancelled or broke off says nothing of that.
                Some(Outcome::Completed { .. }) => self.shared.latency.lock().add(completion.slot_time, self.clock),
                Some(_) => {}
                None => {
                    call.lose("the connection gave the call up without an answer", self.clock);
                }
            }
        }
        drop(flight);
    }

    /// Returns a call of which nothing was written to the head of its flow (rule R5). `counts` is whether that was
    /// an attempt: one for which no process had room is none (rule R22).
    fn hand_back(&mut self, id: EntryId, call: &Arc<Call>, counts: bool) -> bool {
        if counts && call.attempt() >= ATTEMPTS {
            let mut refusal = call.refusal(Outcome::Lost { sent: false }, Scope::Upstream);
            refusal.note = Some("nothing could be sent, several times over".into());
            call.refuse(refusal, self.clock);
            return false;
        }
        if !call.ticket.hand_back() {
            return false;
        }
        let flight = self.take_flight(id);
        if !self.core.hand_back(id) {
            call.lose("its place in the queue was gone", self.clock);
            return false;
        }
        if counts {
            call.next_attempt();
        }
        drop(flight);
        // It may come back after the queue was given up, and nothing else would end it then.
        self.giving_up |= self.link.refuses(None, self.clock).is_some();
        true
    }

    pub(super) fn take_flight(&mut self, id: EntryId) -> Option<Flight> {
        let place = self.flights.get_mut(id.0 as u32 as usize)?;
        if place.as_ref().is_some_and(|flight| flight.id == id) { place.take() } else { None }
    }

    /// A call ended that may still be here: unlinked if it waits, stopped if it runs.
    fn withdrawn(&mut self, call: &Arc<Call>) {
        let entry = call.entry.load(Acquire);
        if entry == 0 || call.ticket.state() != State::Finished {
            return;
        }
        let id = EntryId(entry);
        if !self.holds(id, call) {
            return;
        }
        match self.core.withdraw(id) {
            Withdrawn::Queued(call) => call.entry.store(0, Relaxed),
            Withdrawn::Running => self.stop(id, call),
            Withdrawn::Lingering | Withdrawn::Unknown => {}
        }
    }

    /// Whether an entry is this very call: its number may be of a former life.
    pub(super) fn holds(&self, id: EntryId, call: &Arc<Call>) -> bool {
        self.core.job(id).is_some_and(|held| Arc::ptr_eq(held, call))
    }

    /// Asks the server to stop a running call that has ended for its caller; the slot lingers.
    pub(super) fn stop(&mut self, id: EntryId, call: &Call) {
        if self.give_up_again(id) {
            return;
        }
        let why = match call.ticket.ending().map(|ending| ending.outcome) {
            // The connection gave the answer itself: the slot is on its way back.
            Some(Outcome::Completed { .. } | Outcome::UpstreamError | Outcome::Lost { .. }) | None => return,
            Some(Outcome::TimedOut(_)) => StopReason::TimedOut,
            Some(Outcome::Cancelled { by: crate::outcome::CancelledBy::Shutdown, .. }) => StopReason::Shutdown,
            Some(Outcome::Cancelled { .. } | Outcome::Refused(_) | Outcome::Displaced | Outcome::Expired(_)) => {
                StopReason::Cancelled
            }
        };
        let until = self.lingers_until(call);
        if self.core.linger(id, until) {
            call.ticket.note(self.clock, What::AskedToStop, why.text());
            self.connection.stop(RunId { incarnation: self.incarnation, entry: id.0 }, why);
            self.probe_after(why);
        }
    }

    fn link_event(&mut self, event: LinkEvent) {
        if let LinkEvent::Probed { answered } = event {
            return self.probed(answered);
        }
        if self.shared.held() == Hold::Between {
            return;
        }
        let fault = self.link.fault().cloned();
        let effect = self.link.apply(event, self.clock);
        self.tell_link(effect, fault.as_ref());
        match effect {
            Effect::Nothing | Effect::Rest => {}
            Effect::CameUp => {
                self.giving_up = false;
                self.greeted();
                self.shared.log_level.store(u8::MAX, Relaxed);
                self.shared.lists.invalidate();
                self.shared.tell_changed();
                self.apply_settings();
            }
            Effect::Resized => self.apply_settings(),
            Effect::WentDown => self.shared.lists.invalidate(),
            Effect::GaveUp => {
                self.shared.lists.invalidate();
                self.giving_up = true;
            }
            Effect::ListsStale => {
                self.shared.lists.invalidate();
                self.shared.tell_changed();
            }
        }
        self.load.has_room();
        self.publish_link();
    }

    /// The first who wants an upstream that starts on demand has it started.
    pub(super) fn wake_connection(&mut self) {
        if self.link.state == LinkState::Asleep {
            self.link.state = LinkState::Starting;
            self.publish_link();
            self.connection.open();
        }
    }

    /// Takes newcomers in; whether there are more.
    fn take_submits(&mut self) -> bool {
        let shared = self.shared.clone();
        for _ in 0..SLICE {
            let Some(call) = shared.next_submit() else { return false };
            self.in_hand = Some(call.clone());
            self.admit(call);
            self.in_hand = None;
        }
        shared.has_submits()
    }

    fn admit(&mut self, call: Arc<Call>) {
        // Cancelled right behind its submission: nothing to do, and never executed.
        if call.ticket.state() == State::Finished {
            return;
        }
        if self.shared.switch() == Switch::Drained {
            return self.refuse(&call, Reason::Draining, Scope::Upstream, None);
        }
        self.wake_connection();
        let limits = &self.config.limits;
        let expires = limits.queue_timeout.and_then(|wait| call.arrived.checked_add(wait));
        let latest = [expires, call.deadline].into_iter().flatten().min();
        let down = match self.link.refuses(latest, self.clock) {
            Some((fault, retry)) => Some((fault, retry)),
            // Without a queue there is nowhere to wait for the link.
            None if limits.queue_size == 0 && !self.link.can_run(self.clock) => {
                let held = self.link.held(self.clock).filter(|_| self.link.state.is_up());
                let fault = self.link.fault().cloned().or_else(|| held.map(|(why, _)| why.into()));
                let retry = self.link.retry_at().or(held.map(|(_, until)| until));
                Some((fault.unwrap_or_else(|| "it is being connected".into()), retry.or(Some(self.clock))))
            }
            None => None,
        };
        if let Some((fault, retry)) = down {
            return self.refuse_down(&call, fault, retry);
        }
        let rights = call.caller.config.load();
        let offer = Offer {
            lane: call.lane(),
            caller: call.caller.id,
            caller_weight: rights.weight,
            caller_limit: rights.max_concurrent,
            tool: tool_of(&self.tools, &call),
            weight: call.weight(),
            bytes: call.bytes(),
            expires: expires.map(|at| self.moment(at)),
            deadline: call.deadline.map(|at| self.moment(at)),
            max_queued: rights.max_queued,
            others_seen: self.recent.saw(call.caller.id, self.clock),
            job: call,
        };
        // A newcomer may run at once only if the link lets it.
        self.core.pause(!self.may_run());
        match self.core.offer(offer, self.now, &mut self.door) {
            Admitted::Run(id, call) => self.hand_over(id, call),
            Admitted::Queued { id, displaced } => self.queued(id, displaced),
            Admitted::Refused { job, why, scope, retry } => {
                let wait = self.core.retry_after(retry, self.rng.f64());
                self.refuse(&job, why, scope, wait);
            }
            Admitted::Gone(_) => {}
        }
    }

    fn queued(&mut self, id: EntryId, displaced: Option<(EntryId, Arc<Call>)>) {
        if let Some((_, victim)) = displaced {
            victim.entry.store(0, Relaxed);
            self.displace(&victim);
        }
        let Some(call) = self.in_hand.take() else { return };
        call.entry.store(id.0, Relaxed);
        if !call.ticket.queue(self.clock) {
            // Ended between the look above and now: its place is free again at once.
            let _ = self.core.withdraw(id);
            call.entry.store(0, Relaxed);
        }
    }

    /// Publishes the figures of this turn.
    pub(super) fn publish(&mut self) {
        let figures = self.core.figures();
        self.load.in_flight(figures.slots);
        let out = &self.shared.figures;
        out.running.store(figures.running, Relaxed);
        out.lingering.store(figures.lingering, Relaxed);
        out.queued.store(figures.queued, Relaxed);
        let unlimited = self.config.limits.max_concurrent.shown() == 0;
        out.limit.store(if unlimited { 0 } else { self.limit() }, Relaxed);
        self.publish_oldest(figures.queued);
        self.shared.saturation.depth(figures.queued, figures.queue_size, self.now.0);
        self.tell_saturation();
        let in_flight = figures.running + figures.lingering > 0;
        if !in_flight && self.shared.held() == Hold::Finishing {
            self.shared.idle.notify_waiters();
        }
        let busy = in_flight || figures.queued > 0;
        if !busy && self.shared.switch() == Switch::Draining && !self.shared.has_submits() {
            self.shared.ran_dry();
        }
    }

    /// Looked up ten times a second at most, since it costs a look at each caller that waits.
    fn publish_oldest(&mut self, queued: u32) {
        let out = &self.shared.figures.oldest;
        if queued == 0 {
            out.store(0, Relaxed);
            self.oldest_is_stale = false;
        } else if self.clock >= self.oldest_next {
            out.store(self.core.oldest().map_or(0, |since| since.0.max(1)), Relaxed);
            self.oldest_next = self.clock + OLDEST_EVERY;
            self.oldest_is_stale = false;
        } else {
            self.oldest_is_stale = true;
        }
    }

    pub(super) fn call_timeout(&self, call: &Call) -> Option<Duration> {
        let own = call.tool().and_then(|tool| self.config.tools.get(&**tool)?.call_timeout);
        own.or(self.config.limits.call_timeout)
    }

    pub(super) fn moment(&self, at: Instant) -> crate::upstream::queue::Moment {
        crate::upstream::queue::Moment(self.shared.micros(at))
    }
}
