//! How long to wait before the daemon is tried again. Randomness is passed in.

use std::time::Duration;

/// The first wait, and the longest.
const FIRST_MS: u64 = 500;
const LONGEST_MS: u64 = 5_000;

/// Waits that double up to a ceiling, each shortened by up to a quarter so that many watchers do not come at once.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failed: u32,
}

impl Backoff {
    /// The next wait. `randomness` is from 0 to 1.
    pub fn next(&mut self, randomness: f64) -> Duration {
        let whole = FIRST_MS.saturating_mul(1 << self.failed.min(8)).min(LONGEST_MS);
        self.failed = self.failed.saturating_add(1);
        let cut = whole as f64 / 4.0 * randomness.clamp(0.0, 1.0);
        Duration::from_millis((whole - cut as u64).max(FIRST_MS))
    }

    /// It worked, so that the next wait is a short one.
    pub fn reset(&mut self) {
        self.failed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_half_a_second_to_five() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..7).map(|_| backoff.next(0.0).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 5000, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.next(0.0).as_millis(), 500);
    }

    #[test]
    fn whatever_the_randomness_a_wait_stays_within_its_bounds() {
        for randomness in [-1.0, 0.0, 0.3, 1.0, 7.0, f64::NAN] {
            let mut backoff = Backoff::default();
            for _ in 0..70 {
                let wait = backoff.next(randomness).as_millis();
                assert!((500..=5000).contains(&wait), "{wait}");
            }
        }
    }
}
