//! Guesses, and what is derived from them: how long a call will wait, where it stands, when to try again
//! (rule R18).
//!
//! The rate at which calls end is `mu = slots / mean slot time` (Little's law); slot time includes time-outs
//! and lingering, and counts a call of weight w as w.

use super::flows::WEIGHTS;
use super::machine::Core;
use super::slab::{NIL, State};
use super::types::{EntryId, Retry};
use crate::caller::{CallerId, Lane};
use std::time::Duration;

/// Before this many calls have ended, nobody is refused on a prediction.
const SAMPLES: u64 = 20;
/// The weight of a new sample; the first ones weigh more, as in a plain mean.
const SMOOTHING: f64 = 0.05;
/// The slot time that is assumed before any call has ended.
const FIRST_GUESS: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60);
/// How far a rank is counted exactly.
const COUNTED: u32 = 64;

/// A smoothed mean, in microseconds of slots.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotTime {
    mean: f64,
    samples: u64,
}

impl SlotTime {
    pub(super) fn feed(&mut self, time: Duration, slots: u32) {
        let sample = time.as_micros() as f64 * f64::from(slots.max(1));
        self.samples += 1;
        self.mean += (sample - self.mean) * (1.0 / self.samples as f64).max(SMOOTHING);
    }

    pub(super) fn mean(&self) -> Option<Duration> {
        (self.samples > 0).then(|| micros(self.mean))
    }
}

impl<J: Clone> Core<J> {
    /// How long a newcomer would wait, if enough is known: none while paused and before 20 calls have ended.
    pub fn predicted_wait(
        &self,
        lane: Lane,
        caller: CallerId,
        caller_weight: u32,
        caller_limit: Option<u32>,
    ) -> Option<Duration> {
        self.foretell(lane, self.flows.callers.find(caller), caller_weight, caller_limit)
    }

    pub(super) fn foretell(
        &self,
        lane: Lane,
        known: Option<u32>,
        caller_weight: u32,
        caller_limit: Option<u32>,
    ) -> Option<Duration> {
        self.predicts().then_some(())?;
        let turn = match known {
            Some(known) => self.flows.turn_of(known, lane as u8),
            None => None,
        };
        let shared = self.flows.one_turn.then_some(self.flows.lanes[lane as usize].ready);
        let own_ready = turn.map_or(0, |turn| self.flows.turns[turn].ready);
        let ahead = self.ahead(lane as usize, turn, shared.unwrap_or(own_ready), caller_weight.max(1));
        let own_queued = known.map_or(0, |at| self.flows.callers.get(at).queued);
        Some(self.wait(ahead, own_queued + 1, caller_limit.unwrap_or(0)))
    }

    /// How long a queued entry will still wait, as [`Core::predicted_wait`].
    pub fn wait_of(&self, id: EntryId) -> Option<Duration> {
        self.predicts().then_some(())?;
        let ahead = self.position(id)? - 1;
        let place = self.slab.find(id)?;
        let limit = self.flows.callers.get(self.slab[place].caller).limit;
        let turn = self.flows.fifos[self.slab[place].fifo].turn;
        Some(self.wait(u64::from(ahead), self.rank(place, turn) + 1, limit))
    }

    /// 1 + the number of queued calls that will probably be served before this one. May grow.
    pub fn position(&self, id: EntryId) -> Option<u32> {
        let place = self.slab.find(id).filter(|&place| self.slab[place].state == State::Queued)?;
        let turn = self.flows.fifos[self.slab[place].fifo].turn;
        Some(self.position_at(place, self.rank(place, turn)))
    }

    /// The position of an entry before which `rank` others stand in its turn.
    pub(super) fn position_at(&self, place: u32, rank: u32) -> u32 {
        let turn = self.flows.fifos[self.slab[place].fifo].turn;
        let weight = self.flows.turns[turn].weight;
        let ahead = self.ahead(usize::from(self.slab[place].lane), Some(turn), rank, weight);
        u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1).min(self.flows.queued)
    }

    /// How many entries stand before this one in its turn: counted near the head, else bounded by numbers
    /// given on joining, from which those that left in the middle are not taken off.
    pub(super) fn rank(&self, place: u32, turn: u32) -> u32 {
        let (mut at, mut rank) = (self.slab[place].older, 0);
        while at != NIL && rank < COUNTED {
            (at, rank) = (self.slab[at].older, rank + 1);
        }
        if at == NIL {
            return rank;
        }
        let turn = &self.flows.turns[turn];
        let bound = self.slab[place].ordinal.wrapping_sub(self.slab[turn.oldest].ordinal);
        bound.clamp(rank, turn.len - 1)
    }

    /// Entries served before one that stands behind `own` others of its turn. Parked ones do not count.
    ///
    /// Its own lane: its turn has to come round often enough, and each round every other caller has its
    /// weight. Other lanes: in full or, if that is less, in the share that their credits give them
    /// meanwhile; counting the higher lanes always in full would refuse calls that are served in time.
    fn ahead(&self, lane: usize, turn: Option<u32>, own: u32, weight: u32) -> u64 {
        let own = u64::from(own);
        let state = &self.flows.lanes[lane];
        let in_lane = if self.flows.one_turn {
            own
        } else {
            let weight = u64::from(weight);
            let in_ring = turn.filter(|&turn| self.flows.turns[turn].in_ring);
            let others = state.ring_weight - in_ring.map_or(0, |turn| u64::from(self.flows.turns[turn].weight));
            let others_ready = u64::from(state.ready - turn.map_or(0, |turn| self.flows.turns[turn].ready));
            let rounds = (own + 1).div_ceil(weight);
            own + (rounds * others).min(others_ready)
        };
        let mut ahead = in_lane;
        for (other, state) in self.flows.lanes.iter().enumerate() {
            if other != lane {
                let share = ((in_lane + 1) * WEIGHTS[other] as u64).div_ceil(WEIGHTS[lane] as u64);
                ahead += share.min(u64::from(state.ready));
            }
        }
        ahead
    }

    /// The longer of two waits: for the slots that all share, and for the caller's own permits.
    fn wait(&self, ahead: u64, own: u32, own_limit: u32) -> Duration {
        let shared = (ahead + 1) as f64 * self.slot_time.mean / f64::from(self.limit);
        let own = match own_limit {
            0 => 0.0,
            limit => f64::from(own) * self.slot_time.mean / f64::from(limit),
        };
        micros(shared.max(own))
    }

    fn predicts(&self) -> bool {
        !self.paused && self.slot_time.samples >= SAMPLES
    }

    /// When a refused, displaced or expired caller should try again: between 100 ms and 60 s, then spread
    /// over 1.0 to 1.3 times that by `randomness` in `0.0..1.0`. Until a call has ended a second a call is
    /// assumed: a caller that is told a rough time comes back later than one that is told none.
    pub fn retry_after(&self, why: Retry, randomness: f64) -> Option<Duration> {
        let slot_time = self.slot_time.mean().unwrap_or(FIRST_GUESS);
        let per_call = slot_time.as_micros() as f64 / f64::from(self.limit);
        let time = match why {
            Retry::Never => return None,
            Retry::Left(left) => left,
            Retry::Over(over) => over,
            Retry::Full => {
                let too_many = f64::from(self.flows.queued) - 0.75 * f64::from(self.settings.queue_size);
                micros(too_many.max(1.0) * per_call)
            }
            Retry::Share(caller) => {
                let queued = self.flows.callers.find(caller).map_or(0, |at| self.flows.callers.get(at).queued);
                let active: u32 = self.flows.callers.present().max(1);
                micros(f64::from(queued) * f64::from(active) * per_call)
            }
        };
        Some(time.clamp(SHORTEST, LONGEST).mul_f64(1.0 + 0.3 * randomness.clamp(0.0, 1.0)))
    }
}

/// Saturates; a float's NaN becomes zero.
fn micros(time: f64) -> Duration {
    Duration::from_micros(time as u64)
}
