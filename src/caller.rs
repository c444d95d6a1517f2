//! Who makes calls: the authenticated subject, never a name that a client merely claims.

mod figures;
pub mod key;
pub mod registry;
pub mod token;

pub use figures::{CallerCounts, CallerFigures};

use crate::config::{CallerConfig, Rate};
use crate::limits::quota::{Debt, Used};
use crate::outcome::Refusal;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::time::Instant;

/// Priority class inside a queue. The smaller number is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Lane {
    High = 0,
    #[default]
    Normal = 1,
    Low = 2,
}

impl Lane {
    pub const ALL: [Lane; 3] = [Lane::High, Lane::Normal, Lane::Low];

    pub fn name(self) -> &'static str {
        match self {
            Lane::High => "high",
            Lane::Normal => "normal",
            Lane::Low => "low",
        }
    }

    pub fn from_name(name: &str) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| lane.name() == name)
    }
}

/// A dense number for a caller; the key of its flows in every queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallerId(pub u32);

/// One subject with its limits. Shared by all its calls; it outlives a change of the config.
#[derive(Debug)]
pub struct Caller {
    pub id: CallerId,
    pub name: Arc<str>,
    /// How the subject was known: `none`, `key`, `peer-uid`.
    pub identity: &'static str,
    pub config: arc_swap::ArcSwap<CallerConfig>,
    /// The rate limit's theoretical arrival time, in nanoseconds since `origin`.
    pub(crate) rate: AtomicU64,
    /// The same of what is answered without a call: handshakes and lists.
    asks: AtomicU64,
    /// What it has used of its quota.
    used: Used,
    /// Where the clock of its limits begins.
    origin: Instant,
    /// When it was last seen, for rule R15's "another caller is present".
    /// Nanoseconds since `origin`, and one, so that 0 can stand for never.
    seen: AtomicU64,
    /// Where its calls stand; moved by their tickets.
    pub figures: Arc<CallerFigures>,
    /// What its client last said of itself, `name/version`. A claim.
    client: Mutex<Option<Arc<str>>>,
}

/// Characters of a client's claimed name that are kept.
const LONGEST_CLIENT: usize = 80;

impl Caller {
    pub fn new(id: CallerId, name: Arc<str>, identity: &'static str, config: Arc<CallerConfig>) -> Self {
        Caller {
            id,
            name,
            identity,
            config: arc_swap::ArcSwap::new(config),
            rate: AtomicU64::new(0),
            asks: AtomicU64::new(0),
            used: Used::default(),
            origin: Instant::now(),
            seen: AtomicU64::new(0),
            figures: Arc::default(),
            client: Mutex::new(None),
        }
    }

    /// Notes what a client says of itself, bounded and without anything that is not plain text.
    pub fn claimed(&self, name: &str, version: &str) {
        let plain = |letter: &char| !letter.is_control() && !letter.is_whitespace() && !is_invisible(*letter);
        let version: String = version.chars().filter(plain).take(LONGEST_CLIENT / 2).collect();
        let name: String = name.chars().filter(plain).take(LONGEST_CLIENT / 2).collect();
        let claim = match (&*name, &*version) {
            ("", _) => return,
            (_, "") => name,
            _ => format!("{name}/{version}"),
        };
        let mut client = self.client.lock();
        if client.as_deref() != Some(&*claim) {
            *client = Some(claim.into());
        }
    }

    /// What its client last said of itself, `name/version`.
    pub fn client(&self) -> Option<Arc<str>> {
        self.client.lock().clone()
    }

    pub fn saw(&self, now: Instant) {
        self.seen.store(self.since(now).saturating_add(1), Relaxed);
    }

    pub fn last_seen(&self) -> Option<Instant> {
        let seen = self.seen.load(Relaxed).checked_sub(1)?;
        Some(self.origin + std::time::Duration::from_nanos(seen))
    }

    /// Whether nothing would be forgotten with this record: its limits are whole, and it was not seen for `idle`.
    pub(crate) fn is_idle(&self, idle: std::time::Duration, now: Instant) -> bool {
        let clock = self.since(now);
        let whole =
            [&self.rate, &self.asks].iter().all(|full_at| full_at.load(Relaxed) <= clock) && self.used.is_whole(clock);
        whole && self.last_seen().unwrap_or(self.origin) + idle <= now
    }

    /// Puts other limits in force. What was used of a quota counts against the new one.
    pub fn set_config(&self, config: Arc<CallerConfig>, now: Instant) {
        let old = self.config.swap(config.clone());
        if old.quota != config.quota {
            self.used.carry_over(&old.quota.unwrap_or_default(), &config.quota.unwrap_or_default(), self.since(now));
        }
    }

    /// Whether something is left of its quota.
    pub fn check_quota(&self, now: Instant) -> Result<(), Debt> {
        match &self.config.load().quota {
            Some(quota) => self.used.check(quota, self.since(now)),
            None => Ok(()),
        }
    }

    /// Charges an answer of so many bytes to its quota.
    pub fn charge_quota(&self, bytes: u64, now: Instant) {
        if let Some(quota) = &self.config.load().quota {
            self.used.charge(quota, bytes, self.since(now));
        }
    }

    fn since(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes one call off the rate limit, or says what that is and in how many milliseconds one is to be had.
    ///
    /// A token bucket kept as one number (the time at which the bucket would be full again), so that it
    /// costs a single compare-exchange.
    pub fn take_rate(&self, now: Instant) -> Result<(), (Rate, u64)> {
        let config = self.config.load();
        let Some(rate) = config.rate else { return Ok(()) };
        take(&self.rate, rate, self.since(now)).map_err(|wait_ms| (rate, wait_ms.max(1)))
    }

    /// The same for a handshake or a list, which are no calls and have a limit of their own.
    pub(crate) fn take_ask(&self, rate: Rate, since_start: u64) -> Result<(), u64> {
        take(&self.asks, rate, since_start)
    }
}

fn take(bucket: &AtomicU64, rate: Rate, since_start: u64) -> Result<(), u64> {
    let step = (1e9 / rate.per_second) as u64;
    let allowance = step.saturating_mul(u64::from(rate.burst.max(1)));
    let mut full_at = bucket.load(Relaxed);
    loop {
        let next = full_at.max(since_start).saturating_add(step);
        let most = since_start.saturating_add(allowance);
        if next > most {
            return Err((next - most).div_ceil(1_000_000));
        }
        match bucket.compare_exchange_weak(full_at, next, Relaxed, Relaxed) {
            Ok(_) => return Ok(()),
            Err(now) => full_at = now,
        }
    }
}

/// Letters that change how others are read, and are not seen themselves.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
}

/// What a limit check says no with; boxed because it is rare and large.
pub type Refused = Box<Refusal>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_name_is_bounded_and_plain() {
        let caller = Caller::new(CallerId(1), "a".into(), "key", Arc::default());
        assert_eq!(caller.client(), None);
        caller.claimed("", "1.0");
        assert_eq!(caller.client(), None);
        caller.claimed("cla\u{1b}[31mude\r\n\u{202e}x", "1.0\u{feff}");
        assert_eq!(caller.client().as_deref(), Some("cla[31mudex/1.0"));
        caller.claimed(&"n".repeat(10_000), &"9".repeat(10_000));
        assert_eq!(caller.client().unwrap().len(), LONGEST_CLIENT + 1);
    }
}
