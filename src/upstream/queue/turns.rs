//! Whose turn it is: the ring of each lane, credits between lanes, deficits between callers (rule R14).

use super::flows::{Fifo, Flows, LaneState, List, Turn, WEIGHTS};
use super::slab::NIL;

impl Flows {
    /// The entry that is served next, by credits, deficits and age. Credits are refilled and debts worked
    /// off on the way; nothing is charged yet.
    pub(super) fn pick(&mut self) -> Option<u32> {
        if self.ready == 0 {
            return None;
        }
        if self.held != NIL {
            return Some(self.held);
        }
        let served = |lane: &LaneState| lane.ready > 0 && lane.credit > 0;
        let lane = match self.lanes.iter().position(served) {
            Some(lane) => lane,
            None => {
                self.refill();
                self.lanes.iter().position(served)?
            }
        };
        loop {
            let turn = self.lanes[lane].ring.head;
            if self.turns[turn].deficit > 0 {
                return Some(self.fifos[self.turns[turn].first].head);
            }
            self.rotate(turn);
        }
    }

    /// As many refills as it takes for one waiting lane to have credit: more than one only after a heavy
    /// call had put all of them in debt.
    fn refill(&mut self) {
        let rounds = self.lanes.iter().zip(WEIGHTS).filter(|(lane, _)| lane.ready > 0);
        // The fewest with `credit + rounds * weight > 0`.
        let rounds = rounds.map(|(lane, weight)| (weight - lane.credit).div_euclid(weight)).min().unwrap_or(1);
        let rounds = rounds.max(1);
        for (lane, weight) in self.lanes.iter_mut().zip(WEIGHTS) {
            lane.credit = (lane.credit + rounds * weight).min(weight);
        }
    }

    /// Ends a turn: its quantum is added, and it goes to the tail.
    fn rotate(&mut self, turn: u32) {
        let Turn { lane, weight, .. } = self.turns[turn];
        if self.lanes[usize::from(lane)].ring.tail == turn {
            // Alone in its ring it owes nobody.
            self.turns[turn].deficit = i64::from(weight);
            return;
        }
        self.turns[turn].deficit += i64::from(weight);
        self.remove(turn);
        self.push(turn, true);
    }

    /// Charges a dispatch to lane and caller, before the entry is unlinked.
    pub(super) fn charge(&mut self, fifo: u32, slots: u32) {
        let Fifo { turn, lane, .. } = self.fifos[fifo];
        self.lanes[usize::from(lane)].credit -= i64::from(slots);
        let this = &mut self.turns[turn];
        this.deficit -= i64::from(slots);
        if this.deficit <= 0 && this.ready > 1 {
            self.rotate(turn);
        }
    }

    pub(super) fn list(&mut self, lane: u8, ring: bool) -> &mut List {
        let lane = &mut self.lanes[usize::from(lane)];
        if ring { &mut lane.ring } else { &mut lane.aside }
    }

    /// Appends a turn to the ring or to the turns aside.
    pub(super) fn push(&mut self, turn: u32, ring: bool) {
        self.stamp += 1;
        let stamp = self.stamp;
        let lane = self.turns[turn].lane;
        let tail = self.list(lane, ring).tail;
        let this = &mut self.turns[turn];
        (this.in_ring, this.chained, this.stamp, this.prev, this.next) = (ring, true, stamp, tail, NIL);
        let weight = u64::from(this.weight);
        match tail {
            NIL => self.list(lane, ring).head = turn,
            tail => self.turns[tail].next = turn,
        }
        self.list(lane, ring).tail = turn;
        if ring {
            self.lanes[usize::from(lane)].ring_weight += weight;
        }
    }

    pub(super) fn remove(&mut self, turn: u32) {
        let Turn { lane, in_ring, prev, next, .. } = self.turns[turn];
        match prev {
            NIL => self.list(lane, in_ring).head = next,
            prev => self.turns[prev].next = next,
        }
        match next {
            NIL => self.list(lane, in_ring).tail = prev,
            next => self.turns[next].prev = prev,
        }
        if in_ring {
            let weight = u64::from(self.turns[turn].weight);
            self.lanes[usize::from(lane)].ring_weight -= weight;
        }
        (self.turns[turn].in_ring, self.turns[turn].chained) = (false, false);
    }

    pub(super) fn set_weight(&mut self, turn: u32, weight: u32) {
        let this = &mut self.turns[turn];
        let old = std::mem::replace(&mut this.weight, weight);
        if this.in_ring {
            let lane = &mut self.lanes[usize::from(this.lane)];
            lane.ring_weight = lane.ring_weight - u64::from(old) + u64::from(weight);
        }
    }

    /// A turn gets its first FIFO that may be served: from aside, or brand-new and in no list.
    pub(super) fn enter_ring(&mut self, turn: u32) {
        if self.turns[turn].chained {
            self.remove(turn);
        }
        self.turns[turn].deficit = i64::from(self.turns[turn].weight);
        self.push(turn, true);
    }

    /// A turn lost its last FIFO that may be served.
    pub(super) fn leave_ring(&mut self, turn: u32) {
        self.remove(turn);
        self.push(turn, false);
    }
}
