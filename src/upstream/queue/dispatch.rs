//! The other end: who is served next (`next`).

use super::flows::Parked;
use super::machine::Core;
use super::types::{Gate, Moment, Next, Pass};

impl<J: Clone> Core<J> {
    /// The next call to run, or one met on the way that runs no more; None when nothing can be dispatched.
    ///
    /// What has expired or is gone costs its lane and caller nothing (rule R19). A pick that does not fit
    /// holds everything behind it until it fits or is gone (rule R14).
    pub fn next(&mut self, now: Moment, gate: &mut impl Gate<J>) -> Option<Next<J>> {
        if self.paused {
            return None;
        }
        loop {
            // Without a free slot no pick can run; asking would only spend time.
            if self.slots >= self.limit {
                return None;
            }
            let place = self.flows.pick()?;
            let id = self.slab.id(place);
            let (fifo, weight, tool) = (self.slab[place].fifo, self.slab[place].weight, self.slab[place].tool);
            if self.slab[place].expires <= now.0 {
                return self.remove(place).map(|job| Next::Expired(id, job));
            }
            if self.sheds(place, now) {
                return self.remove(place).map(|job| Next::Shed(id, job));
            }
            if self.flows.tools.is_full(tool) {
                let first = !self.flows.fifos[fifo].served;
                self.flows.park(fifo, Parked::Tool, first);
                continue;
            }
            if !self.fits(weight) {
                self.flows.held = place;
                return None;
            }
            let job = self.slab[place].job.clone()?;
            match gate.take(&job, self.flows.key(fifo)) {
                Pass::Go => {}
                Pass::Park => {
                    self.flows.park(fifo, Parked::Gate, false);
                    continue;
                }
                Pass::Gone => return self.remove(place).map(|job| Next::Gone(id, job)),
            }
            self.passed(place, now);
            let took = weight.min(self.limit);
            self.slab[place].took = took;
            self.flows.charge(fifo, took);
            // Counted before the entry leaves its FIFO, so that its slot of the tool is not given twice.
            self.flows.tools.started(tool);
            let goes_on = self.flows.fifos[fifo].len > 1;
            self.flows.unlink(&mut self.slab, place);
            if goes_on {
                self.flows.pass_the_tool_on(fifo);
            }
            self.wheel.disarm(&mut self.slab, place);
            self.start(place);
            return Some(Next::Run(id, job));
        }
    }

    /// Whether a pick has to go for having waited too long in a queue that stands (rule R19). Costs its lane and
    /// caller nothing.
    fn sheds(&mut self, place: u32, now: Moment) -> bool {
        let Some(sojourn) = &self.sojourn else { return false };
        let (lane, waited) = (usize::from(self.slab[place].lane), now.since(Moment(self.slab[place].since)));
        let lower = self.flows.lanes[lane + 1..].iter().any(|lane| lane.ready > 0);
        let sheds = sojourn.drops(lane, waited, lower);
        if sheds {
            self.passed(place, now);
        }
        sheds
    }

    /// An entry leaves its lane after its wait.
    pub(super) fn passed(&mut self, place: u32, now: Moment) {
        if let Some(sojourn) = &mut self.sojourn {
            let entry = &self.slab[place];
            sojourn.left(usize::from(entry.lane), now.since(Moment(entry.since)), now);
        }
    }
}
