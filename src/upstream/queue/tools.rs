//! Caps of single tools. A FIFO whose tool is at its cap stands in the tool's line, one line a lane.
//!
//! A freed slot of the tool lets the first of each lane's line back to its turn; whichever of them is served
//! first takes it, so lanes keep their shares, and inside a lane the callers go round. That is O(1) a
//! dispatch, however many callers wait for the tool.

use super::flows::{Flows, Parked};
use super::slab::NIL;

#[derive(Clone, Copy)]
struct Tool {
    /// Most calls in flight.
    cap: u32,
    in_flight: u32,
    line_head: [u32; 3],
    line_tail: [u32; 3],
    /// By lane: FIFOs of the tool that are not parked.
    unparked: [u32; 3],
}

pub(super) struct Tools {
    tools: Vec<Tool>,
}

impl Tools {
    pub(super) fn new(caps: &[Option<u32>]) -> Self {
        let mut tools = Tools { tools: Vec::new() };
        tools.set_caps(caps);
        tools
    }

    /// Puts new caps in force; tools beyond the end are unlimited. 0 is unlimited too, as everywhere.
    pub(super) fn set_caps(&mut self, caps: &[Option<u32>]) {
        self.make_room(caps.len());
        for (at, tool) in self.tools.iter_mut().enumerate() {
            tool.cap = caps.get(at).copied().flatten().filter(|&cap| cap > 0).unwrap_or(u32::MAX);
        }
    }

    /// Sees to it that there is a record of every tool below `count`.
    pub(super) fn make_room(&mut self, count: usize) {
        if self.tools.len() < count {
            let new = Tool { cap: u32::MAX, in_flight: 0, line_head: [NIL; 3], line_tail: [NIL; 3], unparked: [0; 3] };
            self.tools.resize(count, new);
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.tools.len() as u32
    }

    pub(super) fn is_full(&self, tool: u32) -> bool {
        tool != NIL && self.tools[tool as usize].in_flight >= self.tools[tool as usize].cap
    }

    /// Whether a FIFO that is new to the tool has to stand in line.
    pub(super) fn must_wait(&self, tool: u32, lane: u8) -> bool {
        tool != NIL && (self.is_full(tool) || self.tools[tool as usize].line_head[usize::from(lane)] != NIL)
    }

    pub(super) fn unparked(&mut self, tool: u32, lane: u8, change: i32) {
        let count = &mut self.tools[tool as usize].unparked[usize::from(lane)];
        *count = count.wrapping_add_signed(change);
    }

    pub(super) fn started(&mut self, tool: u32) {
        if tool != NIL {
            self.tools[tool as usize].in_flight += 1;
        }
    }

    pub(super) fn ended(&mut self, tool: u32) {
        if tool != NIL {
            self.tools[tool as usize].in_flight -= 1;
        }
    }

    /// Forgets the lines, but not what is in flight.
    pub(super) fn clear_lines(&mut self) {
        for tool in &mut self.tools {
            (tool.line_head, tool.line_tail, tool.unparked) = ([NIL; 3], [NIL; 3], [0; 3]);
        }
    }

    /// Forgets what is in flight, to be counted anew.
    pub(super) fn clear_in_flight(&mut self) {
        for tool in &mut self.tools {
            tool.in_flight = 0;
        }
    }
}

impl Flows {
    /// Lets the first of each line back to its turn, as long as the tool has a free slot and none of it is
    /// there already.
    pub(super) fn refresh_tool(&mut self, tool: u32) {
        if tool == NIL || self.tools.is_full(tool) {
            return;
        }
        for lane in 0..3 {
            let Tool { line_head, unparked, .. } = self.tools.tools[tool as usize];
            if unparked[lane] == 0 && line_head[lane] != NIL {
                self.unpark(line_head[lane]);
            }
        }
    }

    pub(super) fn refresh_tools(&mut self) {
        for tool in 0..self.tools.count() {
            self.refresh_tool(tool);
        }
    }

    /// After a dispatch from a FIFO that goes on: where others stand in line, it goes to the end of it.
    pub(super) fn pass_the_tool_on(&mut self, fifo: u32) {
        let (tool, lane) = (self.fifos[fifo].tool, usize::from(self.fifos[fifo].lane));
        if tool != NIL && self.fifos[fifo].parked == Parked::No {
            self.fifos[fifo].served = true;
            if self.tools.tools[tool as usize].line_head[lane] != NIL {
                self.park(fifo, Parked::Tool, false);
                self.refresh_tool(tool);
            }
        }
    }

    pub(super) fn stand_in_line(&mut self, fifo: u32, at_tail: bool) {
        let (tool, lane) = (self.fifos[fifo].tool as usize, usize::from(self.fifos[fifo].lane));
        let line = &mut self.tools.tools[tool];
        let (prev, next) = if at_tail { (line.line_tail[lane], NIL) } else { (NIL, line.line_head[lane]) };
        if prev == NIL {
            line.line_head[lane] = fifo;
        } else {
            self.fifos[prev].line_next = fifo;
        }
        if next == NIL {
            line.line_tail[lane] = fifo;
        } else {
            self.fifos[next].line_prev = fifo;
        }
        (self.fifos[fifo].line_prev, self.fifos[fifo].line_next) = (prev, next);
    }

    pub(super) fn leave_line(&mut self, fifo: u32) {
        let (tool, lane) = (self.fifos[fifo].tool as usize, usize::from(self.fifos[fifo].lane));
        let (prev, next) = (self.fifos[fifo].line_prev, self.fifos[fifo].line_next);
        let line = &mut self.tools.tools[tool];
        if prev == NIL {
            line.line_head[lane] = next;
        } else {
            self.fifos[prev].line_next = next;
        }
        if next == NIL {
            line.line_tail[lane] = prev;
        } else {
            self.fifos[next].line_prev = prev;
        }
        (self.fifos[fifo].line_prev, self.fifos[fifo].line_next) = (NIL, NIL);
    }
}
