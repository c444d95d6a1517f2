//! What the actor does when its server has too much to do, or keeps failing: feeds the state machines of
//! [`crate::upstream::overload`], sends probes, and sends calls that may be repeated once more.

use super::UpstreamActor;
use crate::call::{Call, State, What};
use crate::config::{Concurrency, Target};
use crate::outcome::Outcome;
use crate::protocol::method;
use crate::protocol::version::Era;
use crate::upstream::connection::{AskError, How, LinkEvent, Run, RunId, StopReason};
use crate::upstream::link::LinkState;
use crate::upstream::overload::{Aimd, Breaker};
use crate::upstream::queue::EntryId;
use crate::upstream::shared::{Hold, Switch};
use forebay_wire::Level;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// How long nothing is dispatched after a call for which no process had room, unless something changes before.
const CROWDED: Duration = Duration::from_millis(50);
/// How often a call that was stopped has its server probed.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Bounds of the time in which a probe has to be answered; between them it is `cancel_grace`.
const SHORTEST_PROBE: Duration = Duration::from_secs(1);
const LONGEST_PROBE: Duration = Duration::from_secs(30);

/// The actor's own part of it.
pub(super) struct Load {
    /// With `max_concurrent = { min, max }`.
    aimd: Option<Aimd>,
    breaker: Breaker,
    /// Running calls that are to be sent once more, in the slots that they hold (rule R5).
    again: Vec<EntryId>,
    /// A probe is under way.
    asking: bool,
    asked: Option<Instant>,
    /// No process had room for a call; set until then.
    crowded: Option<Instant>,
}

impl Load {
    pub(super) fn new(now: Instant) -> Self {
        Load { aimd: None, breaker: Breaker::new(now), again: Vec::new(), asking: false, asked: None, crowded: None }
    }

    /// Something changed that may have made room.
    pub(super) fn has_room(&mut self) {
        self.crowded = None;
    }

    /// Slots in flight at the end of a turn.
    pub(super) fn in_flight(&mut self, slots: u32) {
        if let Some(aimd) = &mut self.aimd {
            aimd.in_flight(slots);
        }
    }
}

impl UpstreamActor {
    /// Whether calls may be handed over now.
    pub(super) fn may_run(&self) -> bool {
        let crowded = self.load.crowded.is_some_and(|until| until > self.clock);
        self.link.can_run(self.clock)
            && !crowded
            && self.shared.switch() != Switch::Paused
            && self.shared.held() == Hold::Free
    }

    // --- the limit that moves ---

    /// Puts the configured range in force, or the fixed limit.
    pub(super) fn apply_range(&mut self) {
        let Concurrency::Adaptive { min, max } = self.config.limits.max_concurrent else {
            self.load.aimd = None;
            self.shared.figures.adapted.store(0, Relaxed);
            return;
        };
        match &mut self.load.aimd {
            Some(aimd) => aimd.bound(min, max),
            None => {
                let before = self.shared.figures.adapted.load(Relaxed);
                let seed = self.rng.u64(..);
                self.load.aimd = Some(Aimd::new(min, max, (before > 0).then_some(before), seed, self.clock));
            }
        }
    }

    /// The limit in force, as if all processes were up.
    pub(super) fn wanted_limit(&self) -> u32 {
        let ceiling = self.config.limits.max_concurrent.ceiling();
        self.load.aimd.as_ref().map_or(ceiling, |aimd| aimd.limit().min(ceiling))
    }

    /// A call was handed over for the first time, or after it had come back unsent.
    pub(super) fn began(&mut self, call: &Call) {
        if let Some(aimd) = &mut self.load.aimd {
            aimd.began();
        }
        if call.attempt() == 1 {
            self.shared.repeats.earn();
        }
    }

    /// A call ran into `call_timeout`.
    pub(super) fn saw_overload(&mut self, id: EntryId) {
        let began = self.began_at(id);
        if let (Some(aimd), Some(began)) = (&mut self.load.aimd, began) {
            aimd.overloaded(began);
        }
    }

    /// Takes in how a slot came back.
    pub(super) fn weigh(&mut self, id: EntryId, how: &How) {
        self.load.crowded = matches!(how, How::NoRoom(_)).then(|| self.clock + CROWDED);
        let Some(began) = self.began_at(id) else { return };
        let Some(call) = self.core.job(id).cloned() else { return };
        let ending = call.ticket.ending().map(|ending| ending.outcome);
        match how {
            How::Answered => {
                self.load.breaker.answered(self.clock);
                let well = match ending {
                    Some(Outcome::Completed { is_error }) => !is_error,
                    Some(Outcome::UpstreamError) => false,
                    _ => return,
                };
                if let Some(aimd) = &mut self.load.aimd {
                    aimd.answered(call.tool(), began, well, self.clock);
                }
            }
            How::Busy => {
                self.load.breaker.answered(self.clock);
                if let Some(aimd) = &mut self.load.aimd {
                    aimd.overloaded(began);
                }
            }
            // What was stopped, or rejected before it ran, says nothing of the link.
            How::Lost if ending != Some(Outcome::Lost { sent: true }) => {}
            How::Lost | How::Again(_) => {
                if let Some(aimd) = &mut self.load.aimd {
                    aimd.overloaded(began);
                }
                // A child's calls are lost together, and its link tells of it.
                if matches!(self.config.target, Target::Http(_)) {
                    self.failed();
                }
            }
            How::Unsent(_) | How::NoRoom(_) | How::Dropped => {}
        }
    }

    fn began_at(&self, id: EntryId) -> Option<Instant> {
        let flight = self.flights.get(id.0 as u32 as usize)?.as_ref()?;
        (flight.id == id).then_some(flight.started)
    }

    // --- the breaker ---

    /// What is to be done in every turn, before calls are handed over.
    pub(super) fn tend(&mut self) {
        let clock = self.clock;
        if let Some(aimd) = &mut self.load.aimd
            && aimd.turn(clock)
        {
            let limit = aimd.limit();
            tracing::debug!(upstream = %self.shared.name, limit, "max_concurrent moved with the load");
            self.shared.figures.adapted.store(limit, Relaxed);
            self.apply_settings();
        }
        if self.probe_due().is_some_and(|at| at <= clock) {
            self.load.breaker.probing();
            self.probe();
        }
    }

    /// When [`Self::tend`] or a dispatch is due.
    pub(super) fn load_due(&self) -> Option<Instant> {
        let crowded = self.load.crowded.filter(|until| *until > self.clock);
        crowded.into_iter().chain(self.probe_due()).min()
    }

    /// While the link is down, its next handshake is the probe.
    fn probe_due(&self) -> Option<Instant> {
        self.load.breaker.probe_at().filter(|_| self.link.state.is_up() && !self.load.asking)
    }

    /// An exchange broke, or a probe was not answered.
    fn failed(&mut self) {
        if self.load.breaker.failed(self.clock, self.rng.f64()) {
            self.show_breaker();
            let name = &self.shared.name;
            self.shared.log(Level::Warn, "upstream.broken", || {
                format!("calls to {name} keep failing on their way: it is left alone until it answers a probe")
            });
        }
    }

    /// The link tells of the breaker, for status and for newcomers.
    fn show_breaker(&mut self) {
        self.link.open_until = match (self.load.breaker.is_closed(), self.load.breaker.probe_at()) {
            (true, _) => None,
            (false, at) => Some(at.unwrap_or(self.clock)),
        };
        self.publish_link();
    }

    /// After a call was stopped, its server is looked at (rule R8). A child's own connection does that.
    pub(super) fn probe_after(&mut self, why: StopReason) {
        let due = self.load.asked.is_none_or(|at| self.clock.saturating_duration_since(at) >= PROBE_EVERY);
        let may = matches!(self.config.target, Target::Http(_)) && !self.config.limits.count_everything;
        if why != StopReason::Shutdown && may && due && !self.load.asking && self.load.breaker.is_closed() {
            self.probe();
        }
    }

    /// Asks the server for a sign of life, beside the calls (rule R9).
    fn probe(&mut self) {
        if self.config.limits.count_everything {
            // It takes no second request: the next call is the trial.
            self.load.asking = true;
            return self.probed(true);
        }
        let era = self.connection.server().map_or(Era::Legacy, |server| server.era);
        let method = match era {
            Era::Legacy => method::PING,
            Era::Modern => method::DISCOVER,
        };
        (self.load.asking, self.load.asked) = (true, Some(self.clock));
        let patience = self.config.limits.cancel_grace.clamp(SHORTEST_PROBE, LONGEST_PROBE);
        let asked = self.connection.ask(method, None, patience);
        let shared = self.shared.clone();
        tokio::spawn(async move {
            // An error is an answer too.
            let answered = matches!(asked.await, Ok(_) | Err(AskError::Rpc(_) | AskError::Rejected(_)));
            shared.tell(LinkEvent::Probed { answered });
        });
    }

    /// What became of a probe.
    pub(super) fn probed(&mut self, answered: bool) {
        if !std::mem::take(&mut self.load.asking) {
            return;
        }
        match (self.load.breaker.is_closed(), answered) {
            (true, true) => {}
            (true, false) => self.failed(),
            (false, true) => self.greeted(),
            (false, false) => {
                self.load.breaker.probe_unanswered(self.clock, self.rng.f64());
                self.show_breaker();
            }
        }
    }

    /// The server answered a probe or a handshake.
    pub(super) fn greeted(&mut self) {
        self.load.asking = false;
        if self.load.breaker.probe_answered() {
            self.show_breaker();
            let name = &self.shared.name;
            self.shared.log(Level::Info, "upstream.mended", || format!("{name} answers again; calls run"));
        }
    }

    /// An operator has the connection made anew: nothing is held against it.
    pub(super) fn forget_load(&mut self) {
        self.load.breaker = Breaker::new(self.clock);
        self.load.asking = false;
        self.load.crowded = None;
        self.show_breaker();
    }

    // --- once more ---

    /// A call keeps its slot, and is sent once more when that can be. False if it has ended.
    pub(super) fn keep_for_again(&mut self, id: EntryId, call: &Arc<Call>) -> bool {
        if call.ticket.state() != State::Running || !self.holds(id, call) {
            return false;
        }
        call.next_attempt();
        call.ticket.note(self.clock, What::SentAgain, "its link broke; the tool is declared safe to repeat");
        self.load.again.push(id);
        true
    }

    /// Sends what is to be sent once more, if that can be now.
    pub(super) fn send_again(&mut self) {
        if self.load.again.is_empty() {
            return;
        }
        let last_fault = match &self.link.state {
            LinkState::Final { fault } => Some(fault.clone()),
            _ => None,
        };
        for id in std::mem::take(&mut self.load.again) {
            let Some(call) = self.core.job(id).cloned() else { continue };
            if let Some(fault) = &last_fault {
                call.lose(fault, self.clock);
            }
            if call.ticket.state() == State::Finished {
                self.free(id);
            } else if self.may_run() {
                let by_limit = self.began_at(id).zip(self.call_timeout(&call));
                let by_limit = by_limit.and_then(|(began, limit)| began.checked_add(limit));
                let until = [by_limit, call.deadline].into_iter().flatten().min();
                let run = RunId { incarnation: self.incarnation, entry: id.0 };
                let mut run = Run::new(call, run, until, self.shared.clone(), self.clock);
                run.share = self.share;
                self.connection.begin(run);
            } else {
                self.load.again.push(id);
            }
        }
    }

    /// A call that waits to be sent once more has ended: nobody works on it, so its slot is free at once. False if
    /// it is no such call.
    pub(super) fn give_up_again(&mut self, id: EntryId) -> bool {
        let Some(at) = self.load.again.iter().position(|waiting| *waiting == id) else { return false };
        self.load.again.swap_remove(at);
        self.free(id);
        true
    }

    fn free(&mut self, id: EntryId) {
        let took = self.began_at(id).map_or(Duration::ZERO, |began| self.clock.saturating_duration_since(began));
        let flight = self.take_flight(id);
        if let Some(call) = self.core.complete(id, took) {
            call.entry.store(0, Relaxed);
        }
        drop(flight);
    }
}
