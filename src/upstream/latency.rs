//! Slot times of calls that completed in the recent past: a sliding histogram for p50 and p95.
//!
//! Two windows of 30 s take turns, so a figure covers the last 30 to 60 s. Buckets grow by an eighth to a
//! quarter, so a figure is at most that much too high. Fixed size, no allocation.

use std::time::Duration;
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(30);
/// Four buckets an octave of microseconds, up to 2^36 us (19 hours).
const BUCKETS: usize = 4 * 35;

/// See the module's documentation.
pub(crate) struct Latency {
    began: Instant,
    now: Window,
    before: Window,
}

#[derive(Clone)]
struct Window {
    counts: Box<[u32]>,
    total: u64,
}

impl Window {
    fn new() -> Self {
        Window { counts: vec![0; BUCKETS].into(), total: 0 }
    }

    fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }
}

impl Latency {
    pub(crate) fn new(now: Instant) -> Self {
        Latency { began: now, now: Window::new(), before: Window::new() }
    }

    pub(crate) fn add(&mut self, slot_time: Duration, now: Instant) {
        self.turn(now);
        let bucket = &mut self.now.counts[bucket(slot_time)];
        *bucket = bucket.saturating_add(1);
        self.now.total += 1;
    }

    /// The median and the 95th percentile; none without samples.
    pub(crate) fn figures(&mut self, now: Instant) -> Option<(Duration, Duration)> {
        self.turn(now);
        Some((self.percentile(0.5)?, self.percentile(0.95)?))
    }

    fn percentile(&self, part: f64) -> Option<Duration> {
        let total = self.now.total + self.before.total;
        if total == 0 {
            return None;
        }
        let wanted = ((total as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for at in 0..BUCKETS {
            seen += u64::from(self.now.counts[at]) + u64::from(self.before.counts[at]);
            if seen >= wanted {
                return Some(upper(at));
            }
        }
        None
    }

    fn turn(&mut self, now: Instant) {
        let gone = now.saturating_duration_since(self.began);
        if gone < WINDOW {
            return;
        }
        if gone < 2 * WINDOW {
            std::mem::swap(&mut self.now, &mut self.before);
            self.began += WINDOW;
        } else {
            self.before.clear();
            self.began = now;
        }
        self.now.clear();
    }
}

fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(4);
    let octave = 63 - micros.leading_zeros() as usize;
    let quarter = (micros >> (octave - 2)) as usize & 3;
    ((octave - 2) * 4 + quarter).min(BUCKETS - 1)
}

fn upper(bucket: usize) -> Duration {
    let (octave, quarter) = (bucket / 4 + 2, bucket % 4);
    Duration::from_micros((5 + quarter as u64) << (octave - 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_never_too_low_and_at_most_a_quarter_too_high() {
        for micros in [4u64, 5, 7, 8, 100, 999, 20_000, 3_000_000, 7_200_000_000] {
            let time = Duration::from_micros(micros);
            let told = upper(bucket(time));
            assert!(told > time && told <= time.mul_f64(1.25) + Duration::from_micros(1), "{time:?} told as {told:?}");
        }
    }

    #[test]
    fn the_past_is_forgotten_after_two_windows() {
        let start = Instant::now();
        let mut latency = Latency::new(start);
        assert_eq!(latency.figures(start), None);
        for _ in 0..90 {
            latency.add(Duration::from_millis(10), start);
        }
        for _ in 0..10 {
            latency.add(Duration::from_secs(1), start);
        }
        let (p50, p95) = latency.figures(start + Duration::from_secs(40)).unwrap();
        assert!(p50 < Duration::from_millis(13) && p95 > Duration::from_millis(999), "{p50:?} {p95:?}");
        assert_eq!(latency.figures(start + Duration::from_secs(75)), None);
    }
}
