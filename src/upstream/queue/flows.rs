//! The order of service: lanes by credits, turns of callers inside a lane by deficit round robin, FIFOs
//! inside a turn by age (rules R13, R14).
//!
//! A *turn* is what goes round in a lane: one caller's calls there (the whole lane's with
//! `fairness = "none"`). It holds a FIFO for each capped tool and one for the rest; the oldest head that is
//! not parked is served. A turn with nothing but parked FIFOs leaves the ring, keeps no deficit and comes
//! back at the tail. Turns of a lane are also chained by length, when the queue is full, so that the longest is found
//! in O(1).

use super::callers::Callers;
use super::pool::Pool;
use super::slab::{NIL, Slab, State};
use super::tools::Tools;
use super::types::{FlowKey, ToolKey};
use crate::caller::Lane;

/// Shares of the lanes under contention.
pub(super) const WEIGHTS: [i64; 3] = [16, 4, 1];

/// Bounds the walk to the place of an entry that came back.
const WALK: u32 = 256;

/// Why a FIFO is kept from its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parked {
    No,
    /// By the gate, until it is unparked by name.
    Gate,
    /// By its tool's cap; it stands in the tool's line.
    Tool,
}

/// One cache line: a dispatch among thousands of callers is paid for in cache misses.
#[repr(C, align(64))]
pub(super) struct Fifo {
    /// Age of the head.
    pub head_seq: u64,
    pub caller: u32,
    pub tool: u32,
    pub turn: u32,
    pub head: u32,
    pub tail: u32,
    pub len: u32,
    /// Place among the turn's other FIFOs, unless it is the first.
    pub heap_at: u32,
    pub sibling_prev: u32,
    pub sibling_next: u32,
    pub line_prev: u32,
    pub line_next: u32,
    pub lane: u8,
    pub parked: Parked,
    /// Had a dispatch since it last stood in its tool's line.
    pub served: bool,
    /// The gate has parked it, once at least: it may be waited for there.
    pub gated: bool,
}

/// What a dispatch touches comes first, in one cache line.
#[repr(C, align(64))]
pub(super) struct Turn {
    pub deficit: i64,
    /// Grows along the ring and along the list of parked turns; a listing finds its way by it.
    pub stamp: u64,
    pub lane: u8,
    pub in_ring: bool,
    /// In the ring or aside.
    pub chained: bool,
    pub len: u32,
    /// Entries in FIFOs that are not parked.
    pub ready: u32,
    pub weight: u32,
    pub prev: u32,
    pub next: u32,
    pub oldest: u32,
    pub newest: u32,
    /// The FIFO to be served: of those not parked the one with the oldest head.
    pub first: u32,
    /// The others that are not parked, a heap by age.
    pub others: Vec<u32>,
    pub longer_prev: u32,
    pub longer_next: u32,
    pub listed: Listed,
}

/// What a listing has shown of a turn: which one, on which page, up to which age.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Listed {
    pub listing: u64,
    pub page: u32,
    pub seq: u64,
}

#[derive(Clone, Copy)]
pub(super) struct List {
    pub head: u32,
    pub tail: u32,
}

pub(super) struct LaneState {
    /// Turns with something to serve, the next one first.
    pub ring: List,
    /// Turns of which every FIFO is parked.
    pub aside: List,
    pub len: u32,
    pub ready: u32,
    /// Sum of the weights in the ring.
    pub ring_weight: u64,
    pub credit: i64,
    /// By length, the first turn of that length.
    pub by_len: Vec<u32>,
    pub longest: u32,
    /// The lane's one turn with `fairness = "none"`.
    pub shared: u32,
}

impl LaneState {
    fn new(credit: i64) -> Self {
        let none = List { head: NIL, tail: NIL };
        LaneState {
            ring: none,
            aside: none,
            len: 0,
            ready: 0,
            ring_weight: 0,
            credit,
            by_len: Vec::new(),
            longest: 0,
            shared: NIL,
        }
    }
}

pub(super) struct Flows {
    pub callers: Callers,
    pub tools: Tools,
    pub fifos: Pool<Fifo>,
    pub turns: Pool<Turn>,
    pub lanes: [LaneState; 3],
    /// One turn a lane (`fairness = "none"`).
    pub one_turn: bool,
    pub stamp: u64,
    /// The chains of lengths are kept, until fewer than so many are queued.
    pub chains: bool,
    pub chains_floor: u32,
    pub queued: u32,
    pub ready: u32,
    pub bytes: u64,
    /// A picked entry that does not fit: it is the next to run, whatever comes meanwhile (rule R14).
    pub held: u32,
    /// FIFOs that the gate had parked and that are no more. Emptied by the actor once a turn.
    pub abandoned: Vec<FlowKey>,
}

impl Flows {
    pub(super) fn new(one_turn: bool, tools: Tools) -> Self {
        Flows {
            callers: Callers::new(),
            tools,
            fifos: Pool::new(),
            turns: Pool::new(),
            lanes: WEIGHTS.map(LaneState::new),
            one_turn,
            stamp: 0,
            chains: false,
            chains_floor: 0,
            queued: 0,
            ready: 0,
            bytes: 0,
            held: NIL,
            abandoned: Vec::new(),
        }
    }

    /// The FIFO of a caller in a lane for a tool, if there is one.
    pub(super) fn fifo(&self, caller: u32, lane: u8, tool: u32) -> Option<u32> {
        let mut fifo = self.callers.get(caller).fifos[usize::from(lane)];
        while fifo != NIL && self.fifos[fifo].tool != tool {
            fifo = self.fifos[fifo].sibling_next;
        }
        (fifo != NIL).then_some(fifo)
    }

    pub(super) fn find(&self, key: FlowKey) -> Option<u32> {
        let caller = self.callers.find(key.caller)?;
        self.fifo(caller, key.lane as u8, key.tool.map_or(NIL, |tool| tool.0))
    }

    pub(super) fn key(&self, fifo: u32) -> FlowKey {
        let fifo = &self.fifos[fifo];
        FlowKey {
            lane: Lane::ALL[usize::from(fifo.lane)],
            caller: self.callers.get(fifo.caller).id,
            tool: (fifo.tool != NIL).then_some(ToolKey(fifo.tool)),
        }
    }

    /// The turn that a newcomer of this caller would join.
    pub(super) fn turn_of(&self, caller: u32, lane: u8) -> Option<u32> {
        let turn = if self.one_turn {
            self.lanes[usize::from(lane)].shared
        } else {
            let caller = self.callers.get(caller);
            if caller.fifos[usize::from(lane)] == NIL { NIL } else { caller.turns[usize::from(lane)] }
        };
        (turn != NIL).then_some(turn)
    }

    /// Forgets all FIFOs and turns; every queued entry has to be linked anew. Callers and what is in flight
    /// stay, and so do the lanes' credits. Who waits at the gate is the rebuilder's to settle.
    pub(super) fn reset(&mut self, one_turn: bool) {
        self.one_turn = one_turn;
        self.chains = false;
        (self.fifos, self.turns) = (Pool::new(), Pool::new());
        for lane in &mut self.lanes {
            *lane = LaneState::new(lane.credit);
        }
        self.callers.clear_queued();
        self.tools.clear_lines();
        (self.queued, self.ready, self.bytes, self.held) = (0, 0, 0, NIL);
    }

    /// Queues an entry whose job, caller, lane, tool and seq are set: at the tail of its FIFO, or by its age
    /// when it comes back unsent (rule R5), which is at the head or behind others that came back.
    pub(super) fn link<J>(&mut self, slab: &mut Slab<J>, place: u32, came_back: bool) -> u32 {
        let (caller, lane, tool, seq, bytes) = {
            let entry = &mut slab[place];
            entry.state = State::Queued;
            (entry.caller, entry.lane, entry.tool, entry.seq, entry.bytes)
        };
        let fifo = match self.fifo(caller, lane, tool) {
            Some(fifo) => fifo,
            None => self.open_fifo(caller, lane, tool),
        };
        // Its neighbours in the FIFO.
        let (prev, next) = if came_back {
            let (mut prev, mut next) = (NIL, self.fifos[fifo].head);
            while next != NIL && slab[next].seq < seq {
                (prev, next) = (next, slab[next].next);
            }
            (prev, next)
        } else {
            (self.fifos[fifo].tail, NIL)
        };
        (slab[place].fifo, slab[place].prev, slab[place].next) = (fifo, prev, next);
        match prev {
            NIL => self.fifos[fifo].head = place,
            prev => slab[prev].next = place,
        }
        match next {
            NIL => self.fifos[fifo].tail = place,
            next => slab[next].prev = place,
        }
        self.fifos[fifo].len += 1;
        let turn = self.callers.get(caller).turns[usize::from(lane)];
        debug_assert_eq!(turn, self.fifos[fifo].turn);
        let newer = if came_back { self.newer_in_turn(slab, turn, seq, prev, next) } else { NIL };
        self.link_in_turn(slab, place, turn, newer);
        if prev == NIL {
            self.fifos[fifo].head_seq = seq;
        }

        self.queued += 1;
        self.bytes += bytes;
        self.callers.count(caller, |caller| caller.queued += 1);
        self.set_weight(turn, self.callers.get(caller).weight);
        let lane = usize::from(lane);
        self.lanes[lane].len += 1;
        self.resize(turn, self.turns[turn].len + 1);
        if self.fifos[fifo].parked == Parked::No {
            self.ready += 1;
            self.lanes[lane].ready += 1;
            self.turns[turn].ready += 1;
            if self.fifos[fifo].len == 1 {
                self.heap_push(turn, fifo);
                if !self.turns[turn].in_ring {
                    self.enter_ring(turn);
                }
            } else if prev == NIL {
                self.heap_fix(turn, fifo);
            }
        } else if !self.turns[turn].chained {
            self.push(turn, false);
        }
        // An older call that came back stands before the one that was picked from this FIFO.
        if self.held != NIL && prev == NIL && self.held == next {
            self.held = place;
        }
        fifo
    }

    /// Before which entry of its turn one that came back belongs. Older ones still queued are others that came
    /// back, or parked; past the bound it is put beside its own FIFO's entries.
    fn newer_in_turn<J>(&self, slab: &Slab<J>, turn: u32, seq: u64, prev: u32, next: u32) -> u32 {
        let mut at = self.turns[turn].oldest;
        for _ in 0..WALK {
            if at == NIL || slab[at].seq > seq {
                return at;
            }
            at = slab[at].newer;
        }
        match (prev, next) {
            (NIL, NIL) => self.turns[turn].oldest,
            (prev, NIL) => slab[prev].newer,
            (_, next) => next,
        }
    }

    /// Chains an entry into its turn, before `newer`.
    fn link_in_turn<J>(&mut self, slab: &mut Slab<J>, place: u32, turn: u32, newer: u32) {
        let older = if newer == NIL { self.turns[turn].newest } else { slab[newer].older };
        slab[place].ordinal = match (older, newer) {
            (NIL, NIL) => 0,
            (older, NIL) => slab[older].ordinal.wrapping_add(1),
            (NIL, newer) => slab[newer].ordinal.wrapping_sub(1),
            (_, newer) => slab[newer].ordinal,
        };
        (slab[place].older, slab[place].newer) = (older, newer);
        match older {
            NIL => self.turns[turn].oldest = place,
            older => slab[older].newer = place,
        }
        match newer {
            NIL => self.turns[turn].newest = place,
            newer => slab[newer].older = place,
        }
    }

    /// Takes a queued entry out of its FIFO, its turn and all counts. Its place stays taken.
    pub(super) fn unlink<J>(&mut self, slab: &mut Slab<J>, place: u32) {
        let (fifo, prev, next, older, newer, caller, bytes) = {
            let entry = &slab[place];
            (entry.fifo, entry.prev, entry.next, entry.older, entry.newer, entry.caller, entry.bytes)
        };
        if self.held == place {
            self.held = NIL;
        }
        match prev {
            NIL => self.fifos[fifo].head = next,
            prev => slab[prev].next = next,
        }
        match next {
            NIL => self.fifos[fifo].tail = prev,
            next => slab[next].prev = prev,
        }
        let turn = self.fifos[fifo].turn;
        match older {
            NIL => self.turns[turn].oldest = newer,
            older => slab[older].newer = newer,
        }
        match newer {
            NIL => self.turns[turn].newest = older,
            newer => slab[newer].older = older,
        }
        self.fifos[fifo].len -= 1;
        self.queued -= 1;
        self.bytes -= bytes;
        self.callers.count(caller, |caller| caller.queued -= 1);
        let lane = usize::from(self.turns[turn].lane);
        self.lanes[lane].len -= 1;
        let ready = self.fifos[fifo].parked == Parked::No;
        if ready {
            self.ready -= 1;
            self.lanes[lane].ready -= 1;
            self.turns[turn].ready -= 1;
        }
        let left = self.turns[turn].len - 1;
        if left == 0 {
            self.remove(turn);
        }
        self.resize(turn, left);
        if self.fifos[fifo].len == 0 {
            if ready {
                self.heap_remove(turn, fifo);
            }
            self.close_fifo(fifo);
            if left == 0 {
                if self.lanes[lane].shared == turn {
                    self.lanes[lane].shared = NIL;
                }
                self.turns.give(turn);
            } else if ready && self.turns[turn].first == NIL {
                self.leave_ring(turn);
            }
        } else if prev == NIL {
            self.fifos[fifo].head_seq = slab[next].seq;
            if ready {
                self.heap_fix(turn, fifo);
            }
        }
        if slab[place].tool != NIL {
            self.refresh_tool(slab[place].tool);
        }
    }

    fn open_fifo(&mut self, caller: u32, lane: u8, tool: u32) -> u32 {
        let turn = match self.turn_of(caller, lane) {
            Some(turn) => turn,
            None => self.open_turn(lane),
        };
        let sibling_next = self.callers.get(caller).fifos[usize::from(lane)];
        let new = Fifo {
            caller,
            tool,
            lane,
            parked: Parked::No,
            served: false,
            gated: false,
            turn,
            head: NIL,
            tail: NIL,
            len: 0,
            head_seq: 0,
            heap_at: NIL,
            sibling_prev: NIL,
            sibling_next,
            line_prev: NIL,
            line_next: NIL,
        };
        let fifo = self.fifos.put(new);
        if sibling_next != NIL {
            self.fifos[sibling_next].sibling_prev = fifo;
        }
        let of_caller = self.callers.get_mut(caller);
        (of_caller.fifos[usize::from(lane)], of_caller.turns[usize::from(lane)]) = (fifo, turn);
        if tool != NIL {
            // A line that is being waited in is closed to newcomers.
            if self.tools.must_wait(tool, lane) {
                self.fifos[fifo].parked = Parked::Tool;
                self.stand_in_line(fifo, true);
            } else {
                self.tools.unparked(tool, lane, 1);
            }
        }
        fifo
    }

    fn close_fifo(&mut self, fifo: u32) {
        if self.fifos[fifo].gated {
            self.abandoned.push(self.key(fifo));
        }
        let (caller, lane, tool, prev, next, parked) = {
            let fifo = &self.fifos[fifo];
            (fifo.caller, fifo.lane, fifo.tool, fifo.sibling_prev, fifo.sibling_next, fifo.parked)
        };
        match prev {
            NIL => self.callers.get_mut(caller).fifos[usize::from(lane)] = next,
            prev => self.fifos[prev].sibling_next = next,
        }
        if next != NIL {
            self.fifos[next].sibling_prev = prev;
        }
        if tool != NIL {
            match parked {
                Parked::No => self.tools.unparked(tool, lane, -1),
                Parked::Tool => self.leave_line(fifo),
                Parked::Gate => {}
            }
        }
        self.fifos.give(fifo);
    }

    fn open_turn(&mut self, lane: u8) -> u32 {
        let turn = self.turns.take(|| Turn {
            lane,
            in_ring: false,
            chained: false,
            len: 0,
            ready: 0,
            weight: 1,
            deficit: 0,
            first: NIL,
            // Room for a few, so that the first capped tool allocates nothing in passing.
            others: Vec::with_capacity(4),
            stamp: 0,
            prev: NIL,
            next: NIL,
            oldest: NIL,
            newest: NIL,
            longer_prev: NIL,
            longer_next: NIL,
            listed: Listed::default(),
        });
        let new = &mut self.turns[turn];
        (new.lane, new.in_ring, new.listed, new.len, new.ready) = (lane, false, Listed::default(), 0, 0);
        new.first = NIL;
        new.others.clear();
        if self.one_turn {
            self.lanes[usize::from(lane)].shared = turn;
        }
        turn
    }
}
