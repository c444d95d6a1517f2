//! Where one caller's calls stand, and how its calls ended.
//!
//! Moved by tickets alone, under each ticket's own lock, so a call is never counted twice. Queued and running share
//! one word, so that a reader never sees a call in both or in neither.

use crate::ledger::Stage;
use crate::outcome::Outcome;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct CallerFigures {
    /// Queued (submitted ones included) in the upper half, running in the lower.
    live: AtomicU64,
    completed: AtomicU64,
    shed: AtomicU64,
    cancelled: AtomicU64,
    other: AtomicU64,
}

const QUEUED: u64 = 1 << 32;
const RUNNING: u64 = 1;

/// Figures of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerCounts {
    pub queued: u32,
    pub running: u32,
    /// Ended in any way.
    pub finished: u64,
    /// Answered by an upstream with a result.
    pub completed: u64,
    /// Refused, displaced or expired.
    pub shed: u64,
    pub cancelled: u64,
}

impl CallerFigures {
    pub fn read(&self) -> CallerCounts {
        let live = self.live.load(Relaxed);
        let [completed, shed, cancelled, other] =
            [&self.completed, &self.shed, &self.cancelled, &self.other].map(|count| count.load(Relaxed));
        CallerCounts {
            queued: (live >> 32) as u32,
            running: live as u32,
            finished: completed + shed + cancelled + other,
            completed,
            shed,
            cancelled,
        }
    }

    pub(crate) fn offered(&self) {
        self.live.fetch_add(QUEUED, Relaxed);
    }

    /// Began to run.
    pub(crate) fn started(&self) {
        self.live.fetch_sub(QUEUED - RUNNING, Relaxed);
    }

    /// Went back into its queue unsent.
    pub(crate) fn handed_back(&self) {
        self.live.fetch_add(QUEUED - RUNNING, Relaxed);
    }

    pub(crate) fn finished(&self, from: Stage, outcome: Outcome) {
        let held = match from {
            Stage::Submitted | Stage::Queued => QUEUED,
            Stage::Running => RUNNING,
        };
        self.live.fetch_sub(held, Relaxed);
        self.count(outcome);
    }

    /// A call that was refused before there was a ticket.
    pub(crate) fn count(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Completed { .. } => &self.completed,
            Outcome::Refused(_) | Outcome::Displaced | Outcome::Expired(_) => &self.shed,
            Outcome::Cancelled { .. } => &self.cancelled,
            Outcome::UpstreamError | Outcome::TimedOut(_) | Outcome::Lost { .. } => &self.other,
        };
        count.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Reason;

    #[test]
    fn a_caller_holds_what_has_not_ended() {
        let figures = CallerFigures::default();
        for _ in 0..3 {
            figures.offered();
        }
        figures.started();
        figures.started();
        figures.handed_back();
        let counts = figures.read();
        assert_eq!((counts.queued, counts.running, counts.finished), (2, 1, 0));
        figures.finished(Stage::Running, Outcome::Completed { is_error: false });
        figures.finished(Stage::Queued, Outcome::Refused(Reason::QueueFull));
        figures.finished(Stage::Submitted, Outcome::Lost { sent: false });
        let counts = figures.read();
        assert_eq!((counts.queued, counts.running, counts.finished), (0, 0, 3));
        assert_eq!((counts.completed, counts.shed, counts.cancelled), (1, 1, 0));
    }
}
