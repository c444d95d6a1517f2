//! The door: who runs at once, who waits, whose place is taken, who is refused (`offer`).
//!
//! The order of the checks is fixed: time already passed; free slots and nobody before it; the caller's
//! share; the predicted wait; a place; another's place. A share bounds what waits, so it does not keep a
//! call from running that need not wait.

use super::machine::Core;
use super::slab::{NEVER, NIL};
use super::types::{Admitted, FlowKey, Gate, Moment, Offer, Pass, Retry};
use crate::config::OnFull;
use crate::outcome::{Reason, Scope};

impl<J: Clone> Core<J> {
    /// Decides on a newcomer. Draining and a final fault are the actor's own checks, before this one.
    ///
    /// The gate is asked only if the call could run at once. If it parks a newcomer that is then refused, the
    /// newcomer's FIFO is told by [`Core::abandoned`].
    pub fn offer(&mut self, offer: Offer<J>, now: Moment, gate: &mut impl Gate<J>) -> Admitted<J> {
        let mut parked = None;
        let admitted = self.admit(offer, now, gate, &mut parked);
        if let (Admitted::Refused { .. }, Some(flow)) = (&admitted, parked) {
            self.flows.abandoned.push(flow);
        }
        admitted
    }

    /// `parked` is told which FIFO the gate has parked.
    fn admit(
        &mut self,
        offer: Offer<J>,
        now: Moment,
        gate: &mut impl Gate<J>,
        parked: &mut Option<FlowKey>,
    ) -> Admitted<J> {
        let deadline = offer.deadline.map_or(NEVER, |at| at.0);
        let expires = offer.expires.map_or(NEVER, |at| at.0).min(deadline);
        if expires <= now.0 {
            return refused(offer.job, Reason::WouldExpire, Scope::Caller, Retry::Never);
        }
        let lane = offer.lane as u8;
        let weight = offer.weight.max(1);
        let tool = self.tool(offer.tool);
        let known = self.flows.callers.find(offer.caller);

        if self.runs_at_once(known, lane, tool, weight) {
            let flow = FlowKey { lane: offer.lane, caller: offer.caller, tool: offer.tool };
            match gate.take(&offer.job, flow) {
                Pass::Go => {
                    let job = offer.job.clone();
                    let place = self.enter(offer, known, now, expires, deadline, tool);
                    self.slab[place].took = weight.min(self.limit);
                    self.flows.tools.started(tool);
                    self.passed(place, now);
                    self.start(place);
                    return Admitted::Run(self.slab.id(place), job);
                }
                Pass::Gone => return Admitted::Gone(offer.job),
                Pass::Park => *parked = Some(flow),
            }
        }

        let own_queued = known.map_or(0, |at| self.flows.callers.get(at).queued);
        if own_queued >= self.share(&offer, known) {
            return refused(offer.job, Reason::CallerShare, Scope::Caller, Retry::Share(offer.caller));
        }
        if self.flows.queued > 0 && expires != NEVER {
            let left = Moment(expires).since(now);
            let wait = self.foretell(offer.lane, known, offer.caller_weight, offer.caller_limit);
            if let Some(wait) = wait.filter(|&wait| wait > left) {
                return refused(offer.job, Reason::WouldExpire, Scope::Upstream, Retry::Over(wait - left));
            }
        }

        let displaced = match self.make_place(known, lane, offer.bytes) {
            Ok(displaced) => displaced,
            Err(_) if self.settings.queue_size == 0 => {
                let scope = if self.flows.tools.is_full(tool) {
                    Scope::Tool
                } else if parked.is_some() {
                    Scope::Caller
                } else {
                    Scope::Upstream
                };
                return refused(offer.job, Reason::ConcurrencyLimit, scope, Retry::Full);
            }
            Err(scope) => return refused(offer.job, Reason::QueueFull, scope, Retry::Full),
        };
        let displaced = displaced.map(|place| (self.slab.id(place), place));
        let displaced = displaced.and_then(|(id, place)| self.remove(place).map(|job| (id, job)));

        let place = self.enter(offer, known, now, expires, deadline, tool);
        let fifo = self.flows.link(&mut self.slab, place, false);
        self.wheel.arm(&mut self.slab, place, expires);
        if parked.is_some() {
            self.flows.park_by_gate(fifo);
        }
        Admitted::Queued { id: self.slab.id(place), displaced }
    }

    /// Slots are free and nobody who could use them waits.
    fn runs_at_once(&self, caller: Option<u32>, lane: u8, tool: u32, weight: u32) -> bool {
        let own = caller.and_then(|caller| self.flows.fifo(caller, lane, tool));
        !self.paused
            && self.flows.ready == 0
            && self.fits(weight)
            && !self.flows.tools.must_wait(tool, lane)
            && own.is_none()
    }

    /// Whether a call of this weight may take its slots now.
    pub(super) fn fits(&self, weight: u32) -> bool {
        self.slots.saturating_add(weight.min(self.limit)) <= self.limit
    }

    /// Most queued calls of this newcomer's caller (rule R15).
    fn share(&self, offer: &Offer<J>, known: Option<u32>) -> u32 {
        let set = match (self.settings.max_queued, offer.max_queued) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        match (set, self.settings.on_full) {
            (Some(share), _) => share,
            (None, OnFull::Reject) if offer.others_seen || self.flows.callers.others(known) => {
                // Half, but never so little that nobody could wait at all.
                (self.settings.queue_size / 2).max(1)
            }
            (None, OnFull::Reject | OnFull::Displace) => u32::MAX,
        }
    }

    /// Finds a place, or the entry that has to go so that there is one (rule R15): at most one, and only if
    /// the newcomer then fits. Else says by what the queue is full.
    fn make_place(&mut self, caller: Option<u32>, lane: u8, bytes: u64) -> Result<Option<u32>, Scope> {
        let (queued, queued_bytes) = (self.flows.queued, self.flows.bytes);
        let (queue_size, queue_bytes) = (self.settings.queue_size, self.settings.queue_bytes);
        let fits = |entries: u32, freed: u64| {
            let count = queued - entries < queue_size;
            let size = (queued_bytes - freed).saturating_add(bytes) <= queue_bytes;
            match (count, size) {
                (true, true) => Ok(()),
                (false, _) => Err(Scope::Entries),
                (true, false) => Err(Scope::Bytes),
            }
        };
        let Err(scope) = fits(0, 0) else { return Ok(None) };
        if self.settings.on_full == OnFull::Reject {
            return Err(scope);
        }
        let victim = self.victim(caller, lane).ok_or(scope)?;
        fits(1, self.slab[victim].bytes).map(|()| Some(victim))
    }

    /// Whose place a newcomer may take: the newest call of the longest turn in the lowest lane strictly
    /// below; failing that, in its own lane, if that turn is longer than its own by two or more.
    fn victim(&mut self, caller: Option<u32>, lane: u8) -> Option<u32> {
        let lane = usize::from(lane);
        let below = (lane + 1..3).rev().find_map(|lane| self.flows.newest_of_longest(lane));
        if let Some((_, victim)) = below {
            return Some(victim);
        }
        let (longest, victim) = self.flows.newest_of_longest(lane)?;
        let own = caller.and_then(|caller| self.flows.turn_of(caller, lane as u8));
        // With one turn a lane, a newcomer's own turn is the longest even if it is new to it.
        let own = own.or(self.flows.one_turn.then_some(longest));
        let own_len = own.map_or(0, |turn| self.flows.turns[turn].len);
        (self.flows.turns[longest].len >= own_len + 2).then_some(victim)
    }

    /// A place for a newcomer, in no list yet.
    fn enter(
        &mut self,
        offer: Offer<J>,
        known: Option<u32>,
        now: Moment,
        expires: u64,
        deadline: u64,
        tool: u32,
    ) -> u32 {
        let caller = self.flows.callers.enter(known, offer.caller, offer.caller_weight, offer.caller_limit);
        let place = self.slab.take();
        self.arrivals += 1;
        let seq = self.arrivals;
        debug_assert!(!self.is_armed(place));
        let entry = &mut self.slab[place];
        entry.job = Some(offer.job);
        entry.seq = seq;
        entry.expires = expires;
        entry.deadline = deadline;
        entry.bytes = offer.bytes;
        entry.lane = offer.lane as u8;
        entry.weight = offer.weight.max(1);
        entry.took = 0;
        entry.caller = caller;
        entry.tool = tool;
        entry.since = now.0;
        entry.fifo = NIL;
        place
    }
}

fn refused<J>(job: J, why: Reason, scope: Scope, retry: Retry) -> Admitted<J> {
    Admitted::Refused { job, why, scope, retry }
}
