//! What the core knows of each caller: how much of it waits and runs, and its FIFOs.

use super::slab::NIL;
use crate::caller::CallerId;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Idle records kept beside twice the present ones, so that a caller that comes and goes costs no hashing
/// in and out.
const IDLE: usize = 64;

/// Ids below this are looked up directly.
const LOW: u32 = 1 << 16;

pub(super) struct Caller {
    pub id: CallerId,
    pub weight: u32,
    /// Its own cap on calls in flight; 0 is none.
    pub limit: u32,
    pub queued: u32,
    pub in_flight: u32,
    /// By lane: the first of its FIFOs there.
    pub fifos: [u32; 3],
    /// By lane: the turn of that FIFO. Known here, it is fetched beside the FIFO, not after it.
    pub turns: [u32; 3],
}

pub(super) struct Callers {
    records: Vec<Caller>,
    free: Vec<u32>,
    /// Records of low ids by the id itself: callers are numbered densely, and this is a cache miss less.
    low: Vec<u32>,
    high: HashMap<u32, u32, BuildHasherDefault<Multiply>>,
    known: usize,
    /// Callers with something queued or in flight.
    present: u32,
}

impl Callers {
    pub(super) fn new() -> Self {
        Callers {
            records: Vec::new(),
            free: Vec::new(),
            low: Vec::new(),
            high: HashMap::default(),
            known: 0,
            present: 0,
        }
    }

    pub(super) fn find(&self, id: CallerId) -> Option<u32> {
        if id.0 < LOW {
            self.low.get(id.0 as usize).copied().filter(|&at| at != NIL)
        } else {
            self.high.get(&id.0).copied()
        }
    }

    pub(super) fn get(&self, at: u32) -> &Caller {
        &self.records[at as usize]
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Caller {
        &mut self.records[at as usize]
    }

    /// The record of a caller, as found or else made; its weight and limit are the newest told.
    pub(super) fn enter(&mut self, known: Option<u32>, id: CallerId, weight: u32, limit: Option<u32>) -> u32 {
        let at = match known {
            Some(at) => at,
            None => self.add(id),
        };
        let caller = self.get_mut(at);
        caller.weight = weight.max(1);
        caller.limit = limit.unwrap_or(0);
        at
    }

    fn add(&mut self, id: CallerId) -> u32 {
        if self.known > 2 * self.present as usize + IDLE {
            self.forget_idle();
        }
        let record = Caller { id, weight: 1, limit: 0, queued: 0, in_flight: 0, fifos: [NIL; 3], turns: [NIL; 3] };
        let at = match self.free.pop() {
            Some(at) => {
                self.records[at as usize] = record;
                at
            }
            None => {
                self.records.push(record);
                self.free.reserve(self.records.len());
                (self.records.len() - 1) as u32
            }
        };
        self.known += 1;
        if id.0 < LOW {
            if self.low.len() <= id.0 as usize {
                self.low.resize((id.0 as usize + 1).next_power_of_two(), NIL);
            }
            self.low[id.0 as usize] = at;
        } else {
            self.high.insert(id.0, at);
        }
        at
    }

    fn forget_idle(&mut self) {
        let Callers { records, free, low, high, known, .. } = self;
        let mut idle = |at: u32| {
            let caller = &records[at as usize];
            let idle = caller.queued + caller.in_flight == 0;
            if idle {
                free.push(at);
                *known -= 1;
            }
            idle
        };
        for at in low.iter_mut().filter(|at| **at != NIL) {
            if idle(*at) {
                *at = NIL;
            }
        }
        high.retain(|_, at| !idle(*at));
    }

    /// Counts what waits and what is in flight, and with it who is present.
    pub(super) fn count(&mut self, at: u32, change: impl FnOnce(&mut Caller)) {
        let caller = &mut self.records[at as usize];
        let before = caller.queued + caller.in_flight > 0;
        change(caller);
        let after = caller.queued + caller.in_flight > 0;
        self.present = self.present + u32::from(after) - u32::from(before);
    }

    /// Forgets what is queued, to be counted anew.
    pub(super) fn clear_queued(&mut self) {
        for at in 0..self.records.len() as u32 {
            self.count(at, |caller| (caller.queued, caller.fifos) = (0, [NIL; 3]));
        }
    }

    /// How many callers have something queued or in flight.
    pub(super) fn present(&self) -> u32 {
        self.present
    }

    /// Whether anybody but this caller has something queued or in flight.
    pub(super) fn others(&self, at: Option<u32>) -> bool {
        let own = at.is_some_and(|at| self.get(at).queued + self.get(at).in_flight > 0);
        self.present > u32::from(own)
    }
}

/// Caller ids are our own dense numbers, so one multiplication spreads them; nobody outside chooses them.
#[derive(Default)]
pub(super) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
