//! The ledger of calls (rule R6): what was offered, where each call stands, how each ended.
//!
//! `offered == submitted + queued + running + sum(outcomes)` holds at every moment that can be read,
//! because ticket transitions move two figures under one short lock and a reader takes the same lock.

use crate::outcome::Outcome;
use parking_lot::Mutex;

/// Where a call stands that has not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Submitted,
    Queued,
    Running,
}

/// One instant of a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub offered: u64,
    pub submitted: u64,
    pub queued: u64,
    pub running: u64,
    /// By [`Outcome::index`].
    pub outcomes: [u64; Outcome::COUNT],
}

impl Counts {
    /// Calls that have ended.
    pub fn finished(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Calls that the ledger has lost sight of; always 0.
    pub fn unaccounted(&self) -> i64 {
        let live = self.submitted + self.queued + self.running;
        self.offered as i64 - (self.finished() + live) as i64
    }

    /// Adds another ledger's figures, as when a removed upstream is folded into the totals (rule R3).
    pub fn add(&mut self, other: &Counts) {
        self.offered += other.offered;
        self.submitted += other.submitted;
        self.queued += other.queued;
        self.running += other.running;
        for (mine, theirs) in self.outcomes.iter_mut().zip(other.outcomes) {
            *mine += theirs;
        }
    }

    fn stage(&mut self, stage: Stage) -> &mut u64 {
        match stage {
            Stage::Submitted => &mut self.submitted,
            Stage::Queued => &mut self.queued,
            Stage::Running => &mut self.running,
        }
    }
}

/// The ledger of one upstream. Only [`crate::call::Ticket`] writes to it.
#[derive(Debug, Default)]
pub struct Ledger {
    counts: Mutex<Counts>,
}

impl Ledger {
    /// The figures of this instant.
    pub fn read(&self) -> Counts {
        *self.counts.lock()
    }

    /// Calls that arrived so far.
    pub fn offered_so_far(&self) -> u64 {
        self.counts.lock().offered
    }

    pub(crate) fn offered(&self) {
        let mut counts = self.counts.lock();
        counts.offered += 1;
        counts.submitted += 1;
    }

    /// A submitted call is counted in another ledger from now on.
    pub(crate) fn passed_on(&self) {
        let mut counts = self.counts.lock();
        counts.offered -= 1;
        counts.submitted -= 1;
    }

    pub(crate) fn moved(&self, from: Stage, to: Stage) {
        let mut counts = self.counts.lock();
        *counts.stage(from) -= 1;
        *counts.stage(to) += 1;
    }

    pub(crate) fn finished(&self, from: Stage, outcome: Outcome) {
        let mut counts = self.counts.lock();
        *counts.stage(from) -= 1;
        counts.outcomes[outcome.index()] += 1;
    }
}
