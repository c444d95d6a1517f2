//! Turns of a lane chained by length, so that the longest is found at once (rule R15).
//!
//! Only a full queue asks for the longest turn, so the chains are made when it is first asked for, kept while
//! the queue is crowded, and dropped once half of it has gone. Making them costs a look at every turn, of which
//! there are no more than entries that had to come since: O(1) amortised, and nothing while there is room.

use super::flows::{Flows, Turn};
use super::slab::NIL;

impl Flows {
    /// The newest entry of the longest turn of a lane, with that turn.
    pub(super) fn newest_of_longest(&mut self, lane: usize) -> Option<(u32, u32)> {
        if !self.chains {
            self.chain_all();
        }
        let lane = &self.lanes[lane];
        let turn = *lane.by_len.get(lane.longest as usize)?;
        (lane.longest > 0).then(|| (turn, self.turns[turn].newest))
    }

    /// Lengths change by one at a time, so the longest does too.
    pub(super) fn resize(&mut self, turn: u32, len: u32) {
        if !self.chains {
            self.turns[turn].len = len;
            return;
        }
        if self.queued < self.chains_floor {
            self.chains = false;
            self.turns[turn].len = len;
            return;
        }
        let Turn { lane, len: old, longer_prev, longer_next, .. } = self.turns[turn];
        if old > 0 {
            match longer_prev {
                NIL => self.lanes[usize::from(lane)].by_len[old as usize] = longer_next,
                prev => self.turns[prev].longer_next = longer_next,
            }
            if longer_next != NIL {
                self.turns[longer_next].longer_prev = longer_prev;
            }
        }
        self.turns[turn].len = len;
        self.chain(turn);
        let lane = &mut self.lanes[usize::from(lane)];
        if lane.longest > 0 && lane.by_len[lane.longest as usize] == NIL {
            lane.longest -= 1;
        }
    }

    /// Puts a turn into the chain of its length.
    fn chain(&mut self, turn: u32) {
        let Turn { lane, len, .. } = self.turns[turn];
        if len == 0 {
            return;
        }
        let lane = &mut self.lanes[usize::from(lane)];
        if lane.by_len.len() <= len as usize {
            lane.by_len.resize((len as usize + 1).next_power_of_two(), NIL);
        }
        let first = std::mem::replace(&mut lane.by_len[len as usize], turn);
        lane.longest = lane.longest.max(len);
        (self.turns[turn].longer_prev, self.turns[turn].longer_next) = (NIL, first);
        if first != NIL {
            self.turns[first].longer_prev = turn;
        }
    }

    fn chain_all(&mut self) {
        (self.chains, self.chains_floor) = (true, self.queued / 2);
        for lane in 0..self.lanes.len() {
            let lane = &mut self.lanes[lane];
            lane.by_len.fill(NIL);
            lane.longest = 0;
            for mut turn in [lane.ring.head, lane.aside.head] {
                while turn != NIL {
                    self.chain(turn);
                    turn = self.turns[turn].next;
                }
            }
        }
    }
}
