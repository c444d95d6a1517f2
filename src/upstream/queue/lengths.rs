//! Turns of a lane chained by length, so that the longest is found at once (rule R15).

use super::flows::{Flows, Turn};
use super::slab::NIL;

impl Flows {
    /// The newest entry of the longest turn of a lane, with that turn.
    pub(super) fn newest_of_longest(&self, lane: usize) -> Option<(u32, u32)> {
        let lane = &self.lanes[lane];
        let turn = *lane.by_len.get(lane.longest as usize)?;
        (lane.longest > 0).then(|| (turn, self.turns[turn].newest))
    }

    /// Lengths change by one at a time, so the longest does too.
    pub(super) fn resize(&mut self, turn: u32, len: u32) {
        let Turn { lane, len: old, longer_prev, longer_next, .. } = self.turns[turn];
        let lane = &mut self.lanes[usize::from(lane)];
        if old > 0 {
            match longer_prev {
                NIL => lane.by_len[old as usize] = longer_next,
                prev => self.turns[prev].longer_next = longer_next,
            }
            if longer_next != NIL {
                self.turns[longer_next].longer_prev = longer_prev;
            }
        }
        self.turns[turn].len = len;
        if len > 0 {
            if lane.by_len.len() <= len as usize {
                lane.by_len.resize((len as usize + 1).next_power_of_two(), NIL);
            }
            let first = lane.by_len[len as usize];
            lane.by_len[len as usize] = turn;
            (self.turns[turn].longer_prev, self.turns[turn].longer_next) = (NIL, first);
            if first != NIL {
                self.turns[first].longer_prev = turn;
            }
        }
        if len > lane.longest {
            lane.longest = len;
        } else if lane.longest > 0 && lane.by_len[lane.longest as usize] == NIL {
            lane.longest -= 1;
        }
    }
}
