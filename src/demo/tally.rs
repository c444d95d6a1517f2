//! What callers measured: counts by ending, and times. Every figure that the demo prints comes from here.

use super::client::Answer;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

/// Times kept of each kind, the latest ones; a demo that is held runs for hours.
const KEPT: usize = 16_384;

/// The calls of one caller, or of several together.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub calls: u64,
    pub ok: u64,
    /// The server answered that it failed.
    pub failed: u64,
    /// No answer that can be used.
    pub broken: u64,
    /// Answered by forebay, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The words of the last refusal, and of the last breakage.
    pub said: Option<String>,
    pub fault: Option<String>,
    pub ok_times: Times,
    pub refused_times: Times,
}

impl Tally {
    pub fn add(&mut self, answer: &Answer, took: Duration) {
        self.calls += 1;
        match answer {
            Answer::Ok(_) => {
                self.ok += 1;
                self.ok_times.add(took);
            }
            Answer::Failed(_) => self.failed += 1,
            Answer::Refused { reason, text } => {
                *self.refused.entry(reason.clone()).or_default() += 1;
                self.refused_times.add(took);
                self.said = Some(text.clone());
            }
            Answer::Broken(fault) => {
                self.broken += 1;
                self.fault = Some(fault.clone());
            }
        }
    }

    pub fn merge(&mut self, other: &Tally) {
        self.calls += other.calls;
        self.ok += other.ok;
        self.failed += other.failed;
        self.broken += other.broken;
        for (reason, calls) in &other.refused {
            *self.refused.entry(reason.clone()).or_default() += calls;
        }
        self.said = self.said.take().or_else(|| other.said.clone());
        self.fault = self.fault.take().or_else(|| other.fault.clone());
        self.ok_times.0.extend(&other.ok_times.0);
        self.refused_times.0.extend(&other.refused_times.0);
    }

    pub fn all_refused(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// Measured times, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Times(VecDeque<u32>);

impl Times {
    fn add(&mut self, took: Duration) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    /// The time that `percent` of the calls did not exceed (nearest rank).
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted: Vec<u32> = self.0.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent.min(100)).div_ceil(100).max(1);
        sorted.get(rank - 1).map(|micros| Duration::from_micros(u64::from(*micros)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_measured_times() {
        let mut times = Times::default();
        assert_eq!(times.percentile(50), None);
        for ms in (1..=100).rev() {
            times.add(Duration::from_millis(ms));
        }
        assert_eq!(times.percentile(0), Some(Duration::from_millis(1)));
        assert_eq!(times.percentile(50), Some(Duration::from_millis(50)));
        assert_eq!(times.percentile(95), Some(Duration::from_millis(95)));
        assert_eq!(times.percentile(100), Some(Duration::from_millis(100)));
    }

    #[test]
    fn every_call_is_counted_under_exactly_one_ending() {
        let mut tally = Tally::default();
        let full = Answer::Refused { reason: "queue_full".into(), text: "full".into() };
        for answer in [Answer::Ok("".into()), Answer::Failed("".into()), full, Answer::Broken("x".into())] {
            tally.add(&answer, Duration::from_millis(1));
        }
        let mut both = tally.clone();
        both.merge(&tally);
        for tally in [&tally, &both] {
            assert_eq!(tally.calls, tally.ok + tally.failed + tally.broken + tally.all_refused());
        }
        assert_eq!(both.refused["queue_full"], 2);
        assert_eq!(both.said.as_deref(), Some("full"));
    }
}
