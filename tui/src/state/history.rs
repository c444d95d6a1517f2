//! What a figure was in the last minutes: one sample a second, for sparklines and rates.

use std::collections::VecDeque;

/// Seconds that are kept; the oldest sample leaves for the newest.
pub(super) const KEPT: usize = 300;

/// The figures of one second. The counters count up from the daemon's start, and may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub queued: u32,
    pub offered: u32,
    pub shed: u32,
    pub failed: u32,
    pub finished: u32,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

impl History {
    pub fn push(&mut self, sample: Sample) {
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }

    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// How far a counter went up in the last so many seconds, or since the first sample if that is later.
    pub fn gain(&self, counter: fn(&Sample) -> u32, seconds: usize) -> u64 {
        let (Some(last), Some(first)) =
            (self.samples.back(), self.samples.get(self.samples.len().saturating_sub(seconds + 1)))
        else {
            return 0;
        };
        u64::from(counter(last).wrapping_sub(counter(first)))
    }

    /// How far a counter went up a minute, over the last minute or what there is of it.
    pub fn per_minute(&self, counter: fn(&Sample) -> u32) -> u64 {
        let seconds = self.samples.len().saturating_sub(1).min(60) as u64;
        // A rate of a few seconds would jump about.
        if seconds < 10 { self.gain(counter, 60) } else { self.gain(counter, 60) * 60 / seconds }
    }

    /// The highest number of waiting calls in each of `columns` equal parts of the last `seconds`, oldest first.
    /// `None` where nothing was sampled.
    pub fn waits(&self, columns: usize, seconds: usize) -> Vec<Option<u32>> {
        let mut peaks = vec![None; columns];
        if columns == 0 {
            return peaks;
        }
        let have = self.samples.len().min(seconds);
        for (back, sample) in self.samples.iter().rev().take(have).enumerate() {
            let column = columns - 1 - (back * columns / seconds).min(columns - 1);
            peaks[column] = peaks[column].max(Some(sample.queued));
        }
        peaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(queued: impl IntoIterator<Item = u32>) -> History {
        let mut history = History::default();
        for queued in queued {
            history.push(Sample { queued, offered: queued.wrapping_mul(10), ..Sample::default() });
        }
        history
    }

    #[test]
    fn a_peak_of_one_second_is_still_seen() {
        let mut waits = vec![0; 60];
        waits[31] = 9;
        assert_eq!(of(waits).waits(4, 60), [Some(0), Some(0), Some(9), Some(0)]);
    }

    #[test]
    fn what_was_not_sampled_is_told_from_nothing_waiting() {
        assert_eq!(of([3]).waits(3, 60), [None, None, Some(3)]);
        assert_eq!(of([]).waits(2, 60), [None, None]);
        assert_eq!(of([1]).waits(0, 60), []);
    }

    #[test]
    fn a_counter_that_wraps_goes_up_all_the_same() {
        let mut history = History::default();
        history.push(Sample { shed: u32::MAX - 1, ..Sample::default() });
        history.push(Sample { shed: 3, ..Sample::default() });
        assert_eq!(history.gain(|sample| sample.shed, 60), 5);
    }

    #[test]
    fn no_more_than_what_is_kept_is_kept() {
        let history = of(0..1000);
        assert_eq!(history.samples.len(), KEPT);
        assert_eq!(history.gain(|sample| sample.offered, 60), 600);
        assert_eq!(history.per_minute(|sample| sample.offered), 600);
    }
}
