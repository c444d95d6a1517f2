//! A quota with debt: so much a minute of something that is known only once it has been used, such as the bytes of
//! results.
//!
//! Nothing is asked before a call but whether something is left; the call is charged after it, all of it, and may
//! leave a debt, which is worked off at the rate of the quota. Calls that run at once may each add to it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long a used-up quota takes to be whole again, in nanoseconds.
const MINUTE: u64 = 60_000_000_000;
/// Bytes that count as one token. An estimate: four letters of English are about one, and every model counts
/// otherwise.
pub const BYTES_PER_TOKEN: u64 = 4;

/// What may be used a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub bytes_per_minute: Option<u64>,
    /// Estimated: [`BYTES_PER_TOKEN`] bytes are one.
    pub tokens_per_minute: Option<u64>,
}

/// What one caller has used of its quota.
#[derive(Debug, Default)]
pub(crate) struct Used {
    bytes: Meter,
    tokens: Meter,
}

/// Which quota is used up, by how much, and how long that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    pub unit: Unit,
    pub per_minute: u64,
    /// How much was used beyond the quota.
    pub over: u64,
    /// Nanoseconds until something is left again.
    pub wait: u64,
}

/// What a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Tokens,
}

impl std::fmt::Display for Debt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = match self.unit {
            Unit::Bytes => "bytes",
            Unit::Tokens => "tokens (estimated)",
        };
        write!(f, "{} {unit} of answers a minute, {} more have been sent", self.per_minute, self.over)
    }
}

impl Used {
    /// Whether something is left; with both used up, what takes longer is told.
    pub(crate) fn check(&self, quota: &Quota, now: u64) -> Result<(), Debt> {
        let debt = |unit, meter: &Meter, per_minute: Option<u64>| {
            let per_minute = per_minute?;
            meter.debt(per_minute, now).map(|(over, wait)| Debt { unit, per_minute, over, wait })
        };
        let bytes = debt(Unit::Bytes, &self.bytes, quota.bytes_per_minute);
        let tokens = debt(Unit::Tokens, &self.tokens, quota.tokens_per_minute);
        match [bytes, tokens].into_iter().flatten().max_by_key(|debt| debt.wait) {
            Some(debt) => Err(debt),
            None => Ok(()),
        }
    }

    /// Charges an answer of so many bytes.
    pub(crate) fn charge(&self, quota: &Quota, bytes: u64, now: u64) {
        if let Some(per_minute) = quota.bytes_per_minute {
            self.bytes.charge(bytes, per_minute, now);
        }
        if let Some(per_minute) = quota.tokens_per_minute {
            self.tokens.charge(bytes.div_ceil(BYTES_PER_TOKEN), per_minute, now);
        }
    }

    /// Whether nothing of it is used at this time.
    pub(crate) fn is_whole(&self, now: u64) -> bool {
        [&self.bytes, &self.tokens].iter().all(|meter| meter.0.load(Relaxed) <= now)
    }

    /// The quota has changed: what was used counts against the new one. A quota that is new begins whole.
    pub(crate) fn carry_over(&self, old: &Quota, new: &Quota, now: u64) {
        self.bytes.carry_over(old.bytes_per_minute, new.bytes_per_minute, now);
        self.tokens.carry_over(old.tokens_per_minute, new.tokens_per_minute, now);
    }
}

/// One quantity, kept as the time at which it would be whole again, in nanoseconds of its owner's clock. What was
/// used is so a stretch of time, and a charge one compare-exchange.
#[derive(Debug, Default)]
struct Meter(AtomicU64);

impl Meter {
    /// How much was used beyond the quota, and for how long nothing is left; none while something is.
    fn debt(&self, per_minute: u64, now: u64) -> Option<(u64, u64)> {
        let used = self.0.load(Relaxed).saturating_sub(now);
        // Something is left one nanosecond's worth before the whole minute is used.
        let over = used.checked_sub(MINUTE)?;
        let units = u128::from(over) * u128::from(per_minute) / u128::from(MINUTE);
        Some((units as u64, over.saturating_add(1)))
    }

    fn charge(&self, units: u64, per_minute: u64, now: u64) {
        let time = (u128::from(units) * u128::from(MINUTE)).div_ceil(u128::from(per_minute.max(1)));
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        // The closure always gives a value, so this cannot fail.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |whole_at| Some(whole_at.max(now).saturating_add(time)));
    }

    fn carry_over(&self, old: Option<u64>, new: Option<u64>, now: u64) {
        if old == new {
            return;
        }
        let _ = self.0.fetch_update(Relaxed, Relaxed, |whole_at| {
            let used = u128::from(whole_at.saturating_sub(now));
            let (Some(old), Some(new)) = (old, new) else { return Some(0) };
            let used = used * u128::from(old) / u128::from(new.max(1));
            Some(now.saturating_add(u64::try_from(used).unwrap_or(u64::MAX)))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn bytes(per_minute: u64) -> Quota {
        Quota { bytes_per_minute: Some(per_minute), tokens_per_minute: None }
    }

    #[test]
    fn a_debt_is_worked_off_at_the_rate_of_the_quota() {
        let (used, quota) = (Used::default(), bytes(600));
        assert_eq!(used.check(&quota, 0), Ok(()));
        used.charge(&quota, 599, 0);
        assert_eq!(used.check(&quota, 0), Ok(()), "one byte is left");
        used.charge(&quota, 301, 0);
        let debt = used.check(&quota, 0).unwrap_err();
        assert_eq!((debt.unit, debt.per_minute, debt.over), (Unit::Bytes, 600, 300));
        assert_eq!(debt.wait, 30 * SECOND + 1);
        assert!(used.check(&quota, debt.wait - 1).is_err());
        assert_eq!(used.check(&quota, debt.wait), Ok(()));
    }

    #[test]
    fn an_idle_caller_saves_up_no_more_than_a_minutes_worth() {
        let (used, quota) = (Used::default(), bytes(60));
        let late = 3600 * SECOND;
        used.charge(&quota, 60, late);
        assert!(used.check(&quota, late).is_err());
    }

    #[test]
    fn tokens_are_bytes_by_four_and_the_longer_debt_is_told() {
        let quota = Quota { bytes_per_minute: Some(4000), tokens_per_minute: Some(10) };
        let used = Used::default();
        used.charge(&quota, 41, 0);
        let debt = used.check(&quota, 0).unwrap_err();
        assert_eq!((debt.unit, debt.over), (Unit::Tokens, 1), "41 bytes are 11 tokens");
        used.charge(&quota, 40_000, 0);
        let debt = used.check(&quota, 0).unwrap_err();
        assert_eq!(debt.unit, Unit::Tokens);
    }

    #[test]
    fn a_raised_quota_shortens_the_debt_and_a_new_one_begins_whole() {
        let (used, small, large) = (Used::default(), bytes(1), bytes(1 << 30));
        used.charge(&small, 16 << 20, 0);
        assert!(used.check(&small, 0).unwrap_err().wait > 1_000_000 * SECOND);
        used.carry_over(&small, &large, 0);
        assert_eq!(used.check(&large, 0), Ok(()));
        used.charge(&large, 2 << 30, 0);
        used.carry_over(&large, &Quota::default(), 0);
        used.carry_over(&Quota::default(), &large, 0);
        assert_eq!(used.check(&large, 0), Ok(()));
    }

    #[test]
    fn nothing_overflows() {
        let (used, quota) = (Used::default(), bytes(1));
        for _ in 0..3 {
            used.charge(&quota, u64::MAX, u64::MAX - 5);
        }
        assert!(used.check(&quota, 0).is_err());
        used.carry_over(&bytes(u64::MAX), &bytes(1), 0);
        assert!(used.check(&quota, 0).is_err());
    }

    proptest! {
        /// Against a leaky bucket kept in exact fractions: sixty thousand million parts a unit.
        #[test]
        fn it_decides_as_an_exact_bucket_does(
            per_minute in 1u64..1 << 40,
            steps in prop::collection::vec((0u64..90 * SECOND, 0u64..1 << 40), 1..60),
        ) {
            let (used, quota) = (Used::default(), bytes(per_minute));
            let (mut now, mut level, mut charges) = (0u64, 0u128, 0u128);
            for (pass, units) in steps {
                now += pass;
                level = level.saturating_sub(u128::from(pass) * u128::from(per_minute));
                // Each charge is rounded up to a whole nanosecond, in the quota's disfavour never.
                let slack = charges * u128::from(per_minute);
                let full = u128::from(per_minute) * u128::from(MINUTE);
                match used.check(&quota, now) {
                    Ok(()) => prop_assert!(level < full, "let through with a debt"),
                    Err(debt) => {
                        prop_assert!(level + slack >= full, "refused with something left");
                        prop_assert!(used.check(&quota, now + debt.wait).is_ok(), "not served when it says");
                        prop_assert!(used.check(&quota, now + debt.wait - 1).is_err(), "said longer than it takes");
                    }
                }
                used.charge(&quota, units, now);
                level += u128::from(units) * u128::from(MINUTE);
                charges += 1;
            }
        }

        /// However charges come, what is let through in a stretch of time is bounded by the quota and one charge.
        #[test]
        fn no_more_than_the_quota_and_one_charge_are_let_through(
            per_minute in 1u64..100_000,
            steps in prop::collection::vec((0u64..5 * SECOND, 1u64..20_000), 1..200),
        ) {
            let (used, quota) = (Used::default(), bytes(per_minute));
            let (mut now, mut let_through, mut largest) = (0u64, 0u128, 0u128);
            for (pass, units) in steps {
                now += pass;
                if used.check(&quota, now).is_ok() {
                    used.charge(&quota, units, now);
                    let_through += u128::from(units);
                    largest = largest.max(u128::from(units));
                }
            }
            let allowed = u128::from(per_minute) + u128::from(now) * u128::from(per_minute) / u128::from(MINUTE);
            prop_assert!(let_through <= allowed + largest);
        }
    }
}
