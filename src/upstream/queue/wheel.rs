//! A hashed timing wheel, threaded through the entries: arming and disarming are O(1) and allocate nothing.
//!
//! 1,024 buckets of 16 ms. A time beyond one rotation shares the bucket of its tick and is passed over until
//! its own rotation. A bucket is worked off once its tick is over, so an entry is told at most one tick
//! late, never early.

use super::slab::{NEVER, NIL, Slab, UNARMED};
use super::types::Moment;

/// Microseconds of a tick.
pub(super) const TICK: u64 = 16_000;
const BUCKETS: usize = 1024;

pub(super) struct Wheel {
    heads: Vec<u32>,
    /// One bit a bucket that holds something.
    filled: [u64; BUCKETS / 64],
    armed: u32,
    /// The first tick not wholly worked off.
    tick: u64,
    /// Within that tick's bucket: the next entry to look at. Kept over slices, so that none is seen twice.
    scan: u32,
    scanning: bool,
}

/// What a look at the wheel found.
pub(super) enum Found {
    Due(u32),
    Nothing,
    /// The budget of looks is used up.
    OutOfBudget,
}

impl Wheel {
    pub(super) fn new(now: Moment) -> Self {
        Wheel {
            heads: vec![NIL; BUCKETS],
            filled: [0; BUCKETS / 64],
            armed: 0,
            tick: now.0 / TICK,
            scan: NIL,
            scanning: false,
        }
    }

    /// Sets the time at which an unarmed entry is due. [`NEVER`] leaves it unarmed.
    pub(super) fn arm<J>(&mut self, slab: &mut Slab<J>, place: u32, due: u64) {
        debug_assert_eq!(slab[place].bucket, UNARMED);
        slab[place].due = due;
        if due == NEVER {
            return;
        }
        // A time that has passed goes into the next bucket to be worked off, or it would wait a rotation.
        let tick = (due / TICK).max(self.tick + u64::from(self.scanning));
        let bucket = tick as usize % BUCKETS;
        let head = self.heads[bucket];
        let entry = &mut slab[place];
        entry.bucket = bucket as u16;
        entry.wheel_prev = NIL;
        entry.wheel_next = head;
        if head != NIL {
            slab[head].wheel_prev = place;
        }
        self.heads[bucket] = place;
        self.filled[bucket / 64] |= 1 << (bucket % 64);
        self.armed += 1;
    }

    pub(super) fn disarm<J>(&mut self, slab: &mut Slab<J>, place: u32) {
        let entry = &mut slab[place];
        let bucket = usize::from(entry.bucket);
        entry.due = NEVER;
        if entry.bucket == UNARMED {
            return;
        }
        entry.bucket = UNARMED;
        let (prev, next) = (entry.wheel_prev, entry.wheel_next);
        if self.scan == place {
            self.scan = next;
        }
        if next != NIL {
            slab[next].wheel_prev = prev;
        }
        if prev != NIL {
            slab[prev].wheel_next = next;
        } else {
            self.heads[bucket] = next;
            if next == NIL {
                self.filled[bucket / 64] &= !(1 << (bucket % 64));
            }
        }
        self.armed -= 1;
    }

    /// The next entry whose tick is over, disarmed. Each entry looked at costs one of `budget`.
    pub(super) fn next<J>(&mut self, slab: &mut Slab<J>, now: Moment, budget: &mut usize) -> Found {
        let current = now.0 / TICK;
        loop {
            if !self.scanning {
                // After a long gap one rotation covers all buckets.
                self.tick = self.tick.max(current.saturating_sub(BUCKETS as u64));
                self.tick = match self.first_filled() {
                    Some(ahead) => (self.tick + ahead).min(current.max(self.tick)),
                    None => current.max(self.tick),
                };
                if self.tick >= current {
                    return Found::Nothing;
                }
                self.scan = self.heads[self.tick as usize % BUCKETS];
                self.scanning = true;
            }
            while self.scan != NIL {
                if *budget == 0 {
                    return Found::OutOfBudget;
                }
                *budget -= 1;
                let place = self.scan;
                if slab[place].due / TICK <= self.tick {
                    self.disarm(slab, place);
                    return Found::Due(place);
                }
                self.scan = slab[place].wheel_next;
            }
            self.scanning = false;
            self.tick += 1;
        }
    }

    /// When to look again: the end of the next filled bucket's tick.
    pub(super) fn next_due(&self) -> Option<Moment> {
        let ahead = self.first_filled()?;
        Some(Moment((self.tick + ahead + 1).saturating_mul(TICK)))
    }

    /// How many ticks ahead of `tick` the first filled bucket lies.
    fn first_filled(&self) -> Option<u64> {
        if self.armed == 0 {
            return None;
        }
        let start = self.tick as usize % BUCKETS;
        let words = self.filled.len();
        for step in 0..=words {
            let word = (start / 64 + step) % words;
            let mut bits = self.filled[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let bucket = word * 64 + bits.trailing_zeros() as usize;
                return Some(((bucket + BUCKETS - start) % BUCKETS) as u64);
            }
        }
        None
    }
}
