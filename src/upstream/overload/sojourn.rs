//! Control of how long calls wait (rule R19), as CoDel does it, with times of seconds: if even the shortest
//! wait of a lane was above the target for a whole interval, the queue stands, and what has waited over twice
//! the target is dropped when its turn comes, until an interval is clean.
//!
//! It is asked at dispatch alone, so a lane that nothing can leave is not judged. Off unless configured.

use crate::upstream::queue::Moment;
use std::time::Duration;

/// Over how long the shortest wait is taken.
const INTERVAL: Duration = Duration::from_secs(10);

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Sojourn {
    target: Duration,
    lanes: [Lane; 3],
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// When the interval began; none before the first dispatch.
    since: Option<Moment>,
    least: Duration,
    dropping: bool,
}

impl Sojourn {
    pub(crate) fn new(target: Duration) -> Self {
        Sojourn { target, lanes: [Lane::default(); 3] }
    }

    pub(crate) fn target(&self) -> Duration {
        self.target
    }

    /// What was seen is void: calls waited for something else than the load (a pause, a lost link, another
    /// limit).
    pub(crate) fn restart(&mut self) {
        self.lanes = [Lane::default(); 3];
    }

    /// A call left this lane's queue, or passed it by, after so long.
    pub(crate) fn left(&mut self, lane: usize, waited: Duration, now: Moment) {
        let lane = &mut self.lanes[lane];
        let Some(since) = lane.since else {
            (lane.since, lane.least) = (Some(now), waited);
            return;
        };
        lane.least = lane.least.min(waited);
        if now.since(since) >= INTERVAL {
            lane.dropping = lane.least > self.target;
            (lane.since, lane.least) = (Some(now), waited);
        }
    }

    /// Whether a call whose turn has come is to be dropped for having waited so long. `lower` is whether a lower
    /// lane has calls that could run: those go first.
    pub(crate) fn drops(&self, lane: usize, waited: Duration, lower: bool) -> bool {
        !lower && self.lanes[lane].dropping && waited > self.target * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_secs(2);

    fn secs(secs: f64) -> Duration {
        Duration::from_secs_f64(secs)
    }

    fn at(time: f64) -> Moment {
        Moment::default().after(secs(time))
    }

    /// Waits of these lengths, one a second.
    fn after(sojourn: &mut Sojourn, from: f64, waits: &[f64]) {
        for (second, wait) in waits.iter().enumerate() {
            sojourn.left(2, secs(*wait), at(from + second as f64));
        }
    }

    #[test]
    fn r19_a_standing_queue_is_shortened_until_an_interval_is_clean() {
        let mut sojourn = Sojourn::new(TARGET);
        after(&mut sojourn, 0.0, &[3.0; 10]);
        assert!(!sojourn.drops(2, secs(5.0), false), "the interval is not over");
        after(&mut sojourn, 10.0, &[3.0]);
        assert!(sojourn.drops(2, secs(4.1), false));
        assert!(!sojourn.drops(2, secs(4.0), false), "only what waited over twice the target");
        assert!(!sojourn.drops(1, secs(9.0), false), "lanes are judged apart");
        assert!(!sojourn.drops(2, secs(9.0), true), "the lowest lane goes first");
        // One short wait in the interval: the queue does not stand any more.
        after(&mut sojourn, 11.0, &[3.0, 3.0, 1.9, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]);
        assert!(!sojourn.drops(2, secs(9.0), false));
    }

    #[test]
    fn r19_a_short_burst_drops_nothing() {
        let mut sojourn = Sojourn::new(TARGET);
        after(&mut sojourn, 0.0, &[9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0, 0.0, 0.0]);
        assert!(!sojourn.drops(2, secs(9.0), false));
    }

    #[test]
    fn r19_what_was_seen_before_a_restart_is_void() {
        let mut sojourn = Sojourn::new(TARGET);
        after(&mut sojourn, 0.0, &[3.0; 12]);
        assert!(sojourn.drops(2, secs(9.0), false));
        sojourn.restart();
        assert!(!sojourn.drops(2, secs(9.0), false));
        after(&mut sojourn, 100.0, &[3.0; 10]);
        assert!(!sojourn.drops(2, secs(9.0), false));
    }
}
