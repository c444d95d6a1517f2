//! How long a member waits before its next start: doubling with jitter, up to a ceiling.

use std::time::Duration;

pub(super) const FIRST: Duration = Duration::from_millis(500);
pub(super) const CEILING: Duration = Duration::from_secs(60);
/// A child that was up this long was healthy: its end is the first of a new series.
pub(super) const HEALTHY: Duration = Duration::from_secs(10);

/// One member's series of failures.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after another failure of a child that was up for `up`. A final fault waits the ceiling at
    /// once: somebody may install the command meanwhile.
    pub(super) fn next(&mut self, up: Duration, is_final: bool, rng: &mut fastrand::Rng) -> Duration {
        if up >= HEALTHY {
            self.failures = 0;
        }
        let step = match is_final {
            true => CEILING,
            false => FIRST.saturating_mul(1 << self.failures.min(16)).min(CEILING),
        };
        self.failures = self.failures.saturating_add(1);
        // Half of it is fixed and half random, so that many upstreams do not come back in step.
        step.mul_f64(0.5 + rng.f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r22_waits_double_to_a_ceiling_with_jitter_and_start_anew_after_health() {
        let (mut backoff, mut rng) = (Backoff::default(), fastrand::Rng::with_seed(7));
        for step in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0] {
            let wait = backoff.next(Duration::ZERO, false, &mut rng).as_secs_f64();
            assert!((step / 2.0..=step).contains(&wait), "{wait} is not between half of {step} and {step}");
        }
        assert!(backoff.next(HEALTHY, false, &mut rng) <= FIRST);
        assert!(backoff.next(Duration::ZERO, true, &mut rng) >= CEILING / 2);
    }
}
