//! FIFOs that step aside, and how they come back (rule R13).

use super::flows::{Fifo, Flows, Parked};
use super::slab::NIL;

impl Flows {
    /// Keeps a FIFO from its turn. At the tail of its tool's line unless `first`.
    pub(super) fn park(&mut self, fifo: u32, why: Parked, first: bool) {
        debug_assert_eq!(self.fifos[fifo].parked, Parked::No);
        let Fifo { turn, len, lane, tool, head, .. } = self.fifos[fifo];
        if self.held == head {
            self.held = NIL;
        }
        self.fifos[fifo].parked = why;
        self.fifos[fifo].gated |= why == Parked::Gate;
        self.heap_remove(turn, fifo);
        self.turns[turn].ready -= len;
        self.lanes[usize::from(lane)].ready -= len;
        self.ready -= len;
        if self.turns[turn].first == NIL {
            self.leave_ring(turn);
        }
        if tool != NIL {
            self.tools.unparked(tool, lane, -1);
            if why == Parked::Tool {
                self.stand_in_line(fifo, !first);
            } else {
                self.refresh_tool(tool);
            }
        }
    }

    /// Parks a FIFO by the gate, wherever it stands.
    pub(super) fn park_by_gate(&mut self, fifo: u32) {
        match self.fifos[fifo].parked {
            Parked::No => self.park(fifo, Parked::Gate, false),
            Parked::Tool => {
                self.leave_line(fifo);
                self.fifos[fifo].parked = Parked::Gate;
                self.fifos[fifo].gated = true;
            }
            Parked::Gate => {}
        }
    }

    /// Gives a FIFO back to its turn; a turn that was aside comes back at the tail of its ring.
    pub(super) fn unpark(&mut self, fifo: u32) {
        let Fifo { turn, len, lane, tool, parked, .. } = self.fifos[fifo];
        debug_assert_ne!(parked, Parked::No);
        if parked == Parked::Tool {
            self.leave_line(fifo);
        }
        self.fifos[fifo].parked = Parked::No;
        self.fifos[fifo].served = false;
        if tool != NIL {
            self.tools.unparked(tool, lane, 1);
        }
        self.turns[turn].ready += len;
        self.lanes[usize::from(lane)].ready += len;
        self.ready += len;
        self.heap_push(turn, fifo);
        if !self.turns[turn].in_ring {
            self.enter_ring(turn);
        }
    }

    /// What the gate had parked may be served again, as far as its tool's line lets it.
    pub(super) fn release(&mut self, fifo: u32) {
        let Fifo { tool, lane, parked, .. } = self.fifos[fifo];
        if parked != Parked::Gate {
            return;
        }
        if self.tools.must_wait(tool, lane) {
            self.fifos[fifo].parked = Parked::Tool;
            self.fifos[fifo].served = false;
            self.stand_in_line(fifo, true);
            self.refresh_tool(tool);
        } else {
            self.unpark(fifo);
        }
    }
}
