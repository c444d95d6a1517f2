//! Whether an upstream has been saturated for a while: its queue at or over 80 % of its size, or refusals,
//! for 30 s. Atomics only, written by the actor and the submitters, read by whoever asks for the status.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

const FOR: u64 = 30_000_000;
/// Refusals further apart than this belong to different spells.
const SPELL_GAP: u64 = 10_000_000;

/// Times are microseconds since the upstream was made; 0 is never.
#[derive(Debug, Default)]
pub(crate) struct Saturation {
    full_since: AtomicU64,
    refusing_since: AtomicU64,
    refused_last: AtomicU64,
    /// As it was last told.
    told: AtomicBool,
}

impl Saturation {
    /// The queue's depth at the end of a turn.
    pub(crate) fn depth(&self, queued: u32, queue_size: u32, now: u64) {
        let full = queue_size > 0 && u64::from(queued) * 5 >= u64::from(queue_size) * 4;
        match (full, self.full_since.load(Relaxed)) {
            (true, 0) => self.full_since.store(now, Relaxed),
            (false, since) if since != 0 => self.full_since.store(0, Relaxed),
            _ => {}
        }
    }

    /// A call was refused or displaced for want of a place.
    pub(crate) fn refused(&self, now: u64) {
        let last = self.refused_last.swap(now, Relaxed);
        if last == 0 || now.saturating_sub(last) > SPELL_GAP {
            self.refusing_since.store(now, Relaxed);
        }
    }

    /// Whether it has come or gone since this was last asked; asked by the actor alone.
    pub(crate) fn turned(&self, now: u64) -> Option<bool> {
        let on = self.is_on(now);
        (self.told.load(Relaxed) != on).then(|| {
            self.told.store(on, Relaxed);
            on
        })
    }

    pub(crate) fn is_on(&self, now: u64) -> bool {
        let full = self.full_since.load(Relaxed);
        let (since, last) = (self.refusing_since.load(Relaxed), self.refused_last.load(Relaxed));
        let was_full = full != 0 && now.saturating_sub(full) >= FOR;
        let refused = last != 0 && now.saturating_sub(last) <= SPELL_GAP && now.saturating_sub(since) >= FOR;
        was_full || refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn a_queue_over_four_fifths_for_half_a_minute_is_saturated() {
        let saturation = Saturation::default();
        saturation.depth(80, 100, S);
        assert!(!saturation.is_on(30 * S));
        assert!(saturation.is_on(31 * S));
        assert_eq!((saturation.turned(31 * S), saturation.turned(31 * S)), (Some(true), None));
        saturation.depth(79, 100, 32 * S);
        assert!(!saturation.is_on(33 * S));
        saturation.depth(0, 0, 34 * S);
        assert!(!saturation.is_on(90 * S));
    }

    #[test]
    fn refusals_count_only_as_one_spell() {
        let saturation = Saturation::default();
        saturation.refused(S);
        saturation.refused(20 * S);
        assert!(!saturation.is_on(35 * S));
        for at in 20..=50 {
            saturation.refused(at * S);
        }
        assert!(saturation.is_on(51 * S));
        assert!(!saturation.is_on(61 * S));
    }
}
