//! How much may be sent twice (rule R5): one repeat for every ten calls, so that repeats cannot double the
//! load of a server that is failing already. Atomic, because connections spend it from their own threads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What one repeat costs; a call earns one.
const PRICE: u32 = 10;
/// Most that is saved up: ten repeats.
const MOST: u32 = 10 * PRICE;

/// See the module's documentation. The first repeat needs no savings.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU32);

impl Default for Budget {
    fn default() -> Self {
        Budget(AtomicU32::new(PRICE))
    }
}

impl Budget {
    /// A call was sent for the first time.
    pub(crate) fn earn(&self) {
        if self.0.load(Relaxed) < MOST {
            // A race may save one too much, which is harmless.
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Whether one repeat is to be had; it is spent then.
    pub(crate) fn spend(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |saved| saved.checked_sub(PRICE)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r05_repeats_are_a_tenth_of_the_calls_beyond_the_first() {
        let budget = Budget::default();
        let mut repeats = 0;
        for _ in 0..1000 {
            budget.earn();
            repeats += u32::from(budget.spend());
        }
        assert!((100..=101).contains(&repeats), "{repeats}");
    }

    #[test]
    fn r05_savings_are_bounded() {
        let budget = Budget::default();
        (0..100_000).for_each(|_| budget.earn());
        let repeats = (0..100).filter(|_| budget.spend()).count();
        assert_eq!(repeats, 10);
    }
}
