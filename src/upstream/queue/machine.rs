//! [`Core`]: one upstream's queue and its slots. What comes in and goes out is in the files beside this one;
//! here is what happens to entries that are in.

use super::estimate::SlotTime;
use super::flows::{Flows, Parked};
use super::listing::Marks;
use super::slab::{NEVER, NIL, Slab, State, UNARMED};
use super::tools::Tools;
use super::types::{Due, EntryId, Figures, FlowKey, Moment, Settings, ToolKey, Withdrawn};
use super::wheel::{Found, Wheel};
use crate::caller::Lane;
use crate::config::{Fairness, MAX_CONCURRENT_CEILING};
use crate::upstream::Edited;
use crate::upstream::overload::Sojourn;
use std::time::Duration;

/// Bounds the work of one [`Core::due`] beside what it hands out: looks at entries whose time is not yet.
const LOOKS: usize = 1024;

/// See the module's documentation. `J` is the job: cheap to clone, an `Arc` in the product.
pub struct Core<J> {
    pub(super) slab: Slab<J>,
    pub(super) flows: Flows,
    pub(super) wheel: Wheel,
    pub(super) settings: Settings,
    /// Slots in force.
    pub(super) limit: u32,
    pub(super) paused: bool,
    pub(super) slots: u32,
    pub(super) running: u32,
    pub(super) lingering: u32,
    /// Those in flight, in order of dispatch.
    pub(super) first_started: u32,
    last_started: u32,
    starts: u64,
    pub(super) arrivals: u64,
    pub(super) slot_time: SlotTime,
    pub(super) sojourn: Option<Sojourn>,
    pub(super) marks: Marks,
}

impl<J: Clone> Core<J> {
    pub fn new(settings: Settings, now: Moment) -> Self {
        let tools = Tools::new(&settings.tool_caps);
        Core {
            slab: Slab::new(),
            flows: Flows::new(settings.fairness == Fairness::None, tools),
            wheel: Wheel::new(now),
            limit: limit_of(&settings),
            sojourn: settings.sojourn.map(Sojourn::new),
            settings,
            paused: false,
            slots: 0,
            running: 0,
            lingering: 0,
            first_started: NIL,
            last_started: NIL,
            starts: 0,
            arrivals: 0,
            slot_time: SlotTime::default(),
            marks: Marks::default(),
        }
    }

    /// Puts new settings in force from this moment (rule R24). Lowered limits take nothing away: what waits
    /// stays, what runs finishes, and nothing starts until there is room. After a raise, ask [`Core::next`].
    pub fn reconfigure(&mut self, settings: Settings, _now: Moment) {
        let one_turn = settings.fairness == Fairness::None;
        self.flows.tools.set_caps(&settings.tool_caps);
        self.limit = limit_of(&settings);
        let restarts = settings.max_concurrent != self.settings.max_concurrent;
        if restarts || self.sojourn.as_ref().map(Sojourn::target) != settings.sojourn {
            self.sojourn = settings.sojourn.map(Sojourn::new);
        }
        self.settings = settings;
        if one_turn != self.flows.one_turn {
            self.rebuild(one_turn);
        }
        self.flows.refresh_tools();
    }

    /// Asks anew which tool each live entry belongs to and what it weighs, after a change of the config's
    /// tools. What is in flight keeps the slots that it took.
    pub fn rekey(&mut self, mut key: impl FnMut(&J) -> (Option<ToolKey>, u32)) {
        let places: Vec<u32> = self.slab.live().map(|(place, _)| place).collect();
        self.flows.tools.clear_in_flight();
        for place in places {
            let Some((tool, weight)) = self.slab[place].job.as_ref().map(&mut key) else { continue };
            let tool = self.tool(tool);
            let entry = &mut self.slab[place];
            (entry.tool, entry.weight) = (tool, weight.max(1));
            if entry.state != State::Queued {
                self.flows.tools.started(tool);
            }
        }
        self.rebuild(self.flows.one_turn);
        self.flows.refresh_tools();
    }

    /// While paused nothing is dispatched; newcomers queue, times pass.
    pub fn pause(&mut self, paused: bool) {
        if self.paused != paused
            && let Some(sojourn) = &mut self.sojourn
        {
            // What waited for this did not wait for slots.
            sojourn.restart();
        }
        self.paused = paused;
    }

    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    // --- in flight ---

    /// Sets when a run has to end; the wheel tells it by [`Due::RunTimedOut`].
    pub fn run_until(&mut self, id: EntryId, until: Moment) -> bool {
        self.in_flight(id, State::Running).map(|place| self.rearm(place, until.0)).is_some()
    }

    /// The call has finished for its caller, its slots are still held (rule R7). Without a grace they are
    /// held until [`Core::complete`].
    pub fn linger(&mut self, id: EntryId, grace: Option<Moment>) -> bool {
        let Some(place) = self.in_flight(id, State::Running) else { return false };
        self.slab[place].state = State::Lingering;
        self.running -= 1;
        self.lingering += 1;
        self.rearm(place, grace.map_or(NEVER, |grace| grace.0));
        true
    }

    /// Frees the slots of a run or of a lingering one. A stale id frees nothing.
    pub fn complete(&mut self, id: EntryId, slot_time: Duration) -> Option<J> {
        let place = self.slab.find(id)?;
        if self.slab[place].state == State::Queued {
            return None;
        }
        self.slot_time.feed(slot_time, self.slab[place].took);
        self.end(place);
        self.slab.give(place)
    }

    /// A run of which no byte was sent returns to the head of its FIFO, with its id and its time limit
    /// (rule R5). It is queued even if the queue has no place left.
    pub fn hand_back(&mut self, id: EntryId) -> bool {
        let Some(place) = self.in_flight(id, State::Running) else { return false };
        self.end(place);
        self.flows.link(&mut self.slab, place, true);
        let expires = self.slab[place].expires;
        self.wheel.arm(&mut self.slab, place, expires);
        true
    }

    fn in_flight(&self, id: EntryId, state: State) -> Option<u32> {
        self.slab.find(id).filter(|&place| self.slab[place].state == state)
    }

    fn rearm(&mut self, place: u32, due: u64) {
        self.wheel.disarm(&mut self.slab, place);
        self.wheel.arm(&mut self.slab, place, due);
    }

    /// Takes slots for an entry that is in no FIFO and no wheel.
    pub(super) fn start(&mut self, place: u32) {
        self.starts += 1;
        let last = self.last_started;
        let entry = &mut self.slab[place];
        entry.state = State::Running;
        entry.started = self.starts;
        (entry.prev, entry.next) = (last, NIL);
        let (caller, took) = (entry.caller, entry.took);
        match last {
            NIL => self.first_started = place,
            last => self.slab[last].next = place,
        }
        self.last_started = place;
        self.running += 1;
        self.slots += took;
        self.flows.callers.count(caller, |caller| caller.in_flight += 1);
    }

    /// Gives an entry's slots back; its place stays taken.
    fn end(&mut self, place: u32) {
        self.wheel.disarm(&mut self.slab, place);
        let entry = &mut self.slab[place];
        let (prev, next, caller, tool) = (entry.prev, entry.next, entry.caller, entry.tool);
        if entry.state == State::Running {
            self.running -= 1;
        } else {
            self.lingering -= 1;
        }
        self.slots -= std::mem::take(&mut entry.took);
        match prev {
            NIL => self.first_started = next,
            prev => self.slab[prev].next = next,
        }
        match next {
            NIL => self.last_started = prev,
            next => self.slab[next].prev = prev,
        }
        self.flows.callers.count(caller, |caller| caller.in_flight -= 1);
        self.flows.tools.ended(tool);
        self.flows.refresh_tool(tool);
    }

    // --- queued ---

    /// Takes a queued entry out at once; of others it tells what they are doing.
    pub fn withdraw(&mut self, id: EntryId) -> Withdrawn<J> {
        let Some(place) = self.slab.find(id) else { return Withdrawn::Unknown };
        match self.slab[place].state {
            State::Queued => self.remove(place).map_or(Withdrawn::Unknown, Withdrawn::Queued),
            State::Running => Withdrawn::Running,
            State::Lingering => Withdrawn::Lingering,
            State::Free => Withdrawn::Unknown,
        }
    }

    /// Moves a queued entry to the tail of its caller's FIFO in another lane.
    pub fn set_lane(&mut self, id: EntryId, lane: Lane) -> Edited {
        let place = match self.editable(id) {
            Ok(place) => place,
            Err(why) => return why,
        };
        if self.slab[place].lane != lane as u8 {
            self.flows.unlink(&mut self.slab, place);
            self.arrivals += 1;
            (self.slab[place].lane, self.slab[place].seq) = (lane as u8, self.arrivals);
            self.flows.link(&mut self.slab, place, false);
        }
        Edited::Changed
    }

    /// Moves the queue expiry of a queued entry, at most to its caller's own deadline (rule R25).
    pub fn set_expiry(&mut self, id: EntryId, expires: Moment) -> Edited {
        let place = match self.editable(id) {
            Ok(place) => place,
            Err(why) => return why,
        };
        let expires = expires.0.min(self.slab[place].deadline);
        self.slab[place].expires = expires;
        self.rearm(place, expires);
        Edited::Changed
    }

    fn editable(&self, id: EntryId) -> Result<u32, Edited> {
        let place = self.slab.find(id).ok_or(Edited::Unknown)?;
        match self.slab[place].state {
            State::Queued => Ok(place),
            State::Running | State::Lingering => Err(Edited::AlreadyRunning),
            State::Free => Err(Edited::Unknown),
        }
    }

    /// A permit for this FIFO is to be had: it may be served again (rule R13). Of a FIFO that is not parked
    /// by the gate, or is no more, nothing changes.
    pub fn unpark(&mut self, flow: FlowKey) {
        if let Some(fifo) = self.flows.find(flow) {
            self.flows.release(fifo);
        }
    }

    /// The job of a live entry.
    pub fn job(&self, id: EntryId) -> Option<&J> {
        self.slab.find(id).and_then(|place| self.slab[place].job.as_ref())
    }

    /// The next FIFO that the gate had parked and that is no more: it need not wait there any longer. To be
    /// emptied before the gate is asked for grants again; what has been parked anew since is left out.
    pub fn abandoned(&mut self) -> Option<FlowKey> {
        while let Some(flow) = self.flows.abandoned.pop() {
            let parked = self.flows.find(flow).is_some_and(|fifo| self.flows.fifos[fifo].parked == Parked::Gate);
            if !parked {
                return Some(flow);
            }
        }
        None
    }

    /// A queued entry leaves the core.
    pub(super) fn remove(&mut self, place: u32) -> Option<J> {
        self.flows.unlink(&mut self.slab, place);
        self.wheel.disarm(&mut self.slab, place);
        self.slab.give(place)
    }

    // --- time ---

    /// Hands out what has fallen due, at most `at_most`, and says whether to ask again for more: the work
    /// of one call is bounded (rule R20).
    pub fn due(&mut self, now: Moment, out: &mut Vec<Due<J>>, at_most: usize) -> bool {
        let mut looks = at_most + LOOKS;
        for _ in 0..at_most {
            let place = match self.wheel.next(&mut self.slab, now, &mut looks) {
                Found::Due(place) => place,
                Found::Nothing => return false,
                Found::OutOfBudget => return true,
            };
            let id = self.slab.id(place);
            let due = match self.slab[place].state {
                State::Queued => self.remove(place).map(|job| Due::QueueExpired(id, job)),
                State::Running => self.slab[place].job.clone().map(|job| Due::RunTimedOut(id, job)),
                State::Lingering => self.slab[place].job.clone().map(|job| Due::GraceOver(id, job)),
                State::Free => None,
            };
            out.extend(due);
        }
        self.next_due().is_some_and(|due| due <= now)
    }

    /// When to call [`Core::due`] next: perhaps early, never more than a 16 ms tick late. None while no
    /// time limit runs.
    pub fn next_due(&self) -> Option<Moment> {
        self.wheel.next_due()
    }

    // --- figures ---

    pub fn figures(&self) -> Figures {
        Figures {
            running: self.running,
            lingering: self.lingering,
            slots: self.slots,
            limit: self.limit,
            queued: self.flows.queued,
            queue_size: self.settings.queue_size,
            parked: self.flows.queued - self.flows.ready,
            bytes: self.flows.bytes,
            lanes: [0, 1, 2].map(|lane| self.flows.lanes[lane].len),
            slot_time: self.slot_time.mean(),
        }
    }

    /// Since when the longest-waiting entry waits. Costs a look at each caller that waits.
    pub fn oldest(&self) -> Option<Moment> {
        let mut oldest = None;
        for lane in &self.flows.lanes {
            for mut turn in [lane.ring.head, lane.aside.head] {
                while turn != NIL {
                    let since = Moment(self.slab[self.flows.turns[turn].oldest].since);
                    oldest = Some(oldest.map_or(since, |oldest: Moment| oldest.min(since)));
                    turn = self.flows.turns[turn].next;
                }
            }
        }
        oldest
    }

    // --- rebuilding ---

    /// Queues everything anew, by age: for a change of what makes a turn. Costs a walk over all entries, and
    /// is the one operation beside listings that allocates.
    fn rebuild(&mut self, one_turn: bool) {
        let mut queued: Vec<(u64, u32)> = Vec::with_capacity(self.flows.queued as usize);
        queued.extend(self.slab.live().filter(|(_, e)| e.state == State::Queued).map(|(place, e)| (e.seq, place)));
        queued.sort_unstable();
        let (mut parked, mut gated): (Vec<FlowKey>, Vec<FlowKey>) = (Vec::new(), Vec::new());
        for &(_, place) in &queued {
            let fifo = self.slab[place].fifo;
            if self.flows.fifos[fifo].gated && self.flows.fifos[fifo].head == place {
                gated.push(self.flows.key(fifo));
                if self.flows.fifos[fifo].parked == Parked::Gate {
                    parked.push(self.flows.key(fifo));
                }
            }
        }
        self.flows.reset(one_turn);
        for (_, place) in queued {
            self.flows.link(&mut self.slab, place, false);
        }
        for key in parked {
            if let Some(fifo) = self.flows.find(key) {
                self.flows.park_by_gate(fifo);
            }
        }
        // A FIFO under another key is another one to the gate; one that is parked again is left out later.
        self.flows.abandoned.extend(gated);
    }

    /// The number by which entries know a tool. A tool that no cap speaks of is counted all the same, since
    /// a cap may come.
    pub(super) fn tool(&mut self, tool: Option<ToolKey>) -> u32 {
        match tool {
            None => NIL,
            Some(tool) => {
                self.flows.tools.make_room(tool.0 as usize + 1);
                tool.0
            }
        }
    }

    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    pub(super) fn is_armed(&self, place: u32) -> bool {
        self.slab[place].bucket != UNARMED
    }
}

fn limit_of(settings: &Settings) -> u32 {
    match settings.max_concurrent {
        0 => MAX_CONCURRENT_CEILING,
        limit => limit.min(MAX_CONCURRENT_CEILING),
    }
}
