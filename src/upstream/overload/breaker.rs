//! Whether an upstream whose exchanges keep failing is left alone for a while (rules R8 to R10).
//!
//! ```text
//!           5 failures in a row, or half of 20 within 10 s
//!  closed ------------------------------------------------> open(until)
//!    ^ ^                                                      |     ^
//!    | '--- a call is answered ---  on trial <--- answered ---|     | unanswered: twice as long
//!    '------------------------------  |   '-- fails ----------|-----|
//!                                                        probing ---'
//! ```
//! A probe of forebay's own, not a caller's call, finds out whether it is back. Timeouts and cancels are no
//! failures: they cause a probe, and a probe without an answer is one.

use std::time::Duration;
use tokio::time::Instant;

/// So many failures in a row open it.
const IN_A_ROW: u32 = 5;
/// Or half of at least so many calls within [`SPAN`].
const AT_LEAST: u32 = 20;
/// Seconds that are looked back.
const SPAN: u64 = 10;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    in_a_row: u32,
    /// Answers and failures by second.
    seconds: [Second; SPAN as usize],
    /// How often it was opened without an answered call in between.
    openings: u32,
    origin: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { until: Instant },
    Probing,
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    number: u64,
    answered: u32,
    failed: u32,
}

impl Breaker {
    pub(crate) fn new(now: Instant) -> Self {
        Breaker { state: State::Closed, in_a_row: 0, seconds: Default::default(), openings: 0, origin: now }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// When it is to be probed; none while it is closed or a probe is under way.
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::Probing => None,
        }
    }

    /// A call was answered, whatever the answer.
    pub(crate) fn answered(&mut self, now: Instant) {
        self.second(now).answered += 1;
        match self.state {
            State::Closed => (self.in_a_row, self.openings) = (0, 0),
            // A call from before it opened: a sign of life that is worth a probe.
            State::Open { .. } => self.state = State::Open { until: now },
            State::Probing => {}
        }
    }

    /// An exchange broke, or a probe was not answered. Whether it opens by that. `random` in 0..1 spreads the
    /// tries of several gateways.
    pub(crate) fn failed(&mut self, now: Instant, random: f64) -> bool {
        self.second(now).failed += 1;
        if self.state != State::Closed {
            return false;
        }
        self.in_a_row += 1;
        let number = self.number(now);
        let recent = self.seconds.iter().filter(|second| second.number + SPAN > number);
        let (answered, failed) =
            recent.fold((0, 0), |(answered, failed), second| (answered + second.answered, failed + second.failed));
        let too_many = answered + failed >= AT_LEAST && failed * 2 >= answered + failed;
        if self.in_a_row >= IN_A_ROW || too_many {
            self.open(now, random);
            return true;
        }
        false
    }

    /// A probe begins.
    pub(crate) fn probing(&mut self) {
        if !self.is_closed() {
            self.state = State::Probing;
        }
    }

    /// The server answered a probe, or a handshake: calls run again, on trial, so that the next failure opens it
    /// at once and for longer. Whether it was not closed before.
    pub(crate) fn probe_answered(&mut self) -> bool {
        let was_open = !self.is_closed();
        if was_open {
            self.state = State::Closed;
            self.in_a_row = IN_A_ROW - 1;
            self.seconds = Default::default();
        }
        was_open
    }

    /// The server did not answer the probe that was to close it.
    pub(crate) fn probe_unanswered(&mut self, now: Instant, random: f64) {
        if self.state == State::Probing {
            self.open(now, random);
        }
    }

    fn open(&mut self, now: Instant, random: f64) {
        let wait = FIRST.saturating_mul(1 << self.openings.min(6)).min(LONGEST);
        self.openings = self.openings.saturating_add(1);
        self.state = State::Open { until: now + wait.mul_f64(1.0 - random.clamp(0.0, 1.0) / 2.0) };
    }

    /// Seconds since it was made, and [`SPAN`], so that a second of no number is long past.
    fn number(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.origin).as_secs() + SPAN
    }

    fn second(&mut self, now: Instant) -> &mut Second {
        let number = self.number(now);
        let second = &mut self.seconds[(number % SPAN) as usize];
        if second.number != number {
            *second = Second { number, ..Second::default() };
        }
        second
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn r10_five_failures_in_a_row_open_it_and_an_answer_in_between_does_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        for _ in 0..4 {
            assert!(!breaker.failed(now, 0.0));
        }
        breaker.answered(now);
        for _ in 0..4 {
            assert!(!breaker.failed(now, 0.0));
        }
        assert!(breaker.failed(now, 0.0));
        assert_eq!(breaker.probe_at(), Some(now + FIRST));
    }

    #[test]
    fn r10_half_of_twenty_within_ten_seconds_open_it() {
        let start = Instant::now();
        let mut breaker = Breaker::new(start);
        let opened = (0..20).map(|n| {
            let now = start + ms(400 * n);
            match n % 2 {
                0 => {
                    breaker.answered(now);
                    false
                }
                _ => breaker.failed(now, 0.0),
            }
        });
        assert_eq!(opened.collect::<Vec<_>>().iter().position(|opened| *opened), Some(19));
        // The same over twenty seconds opens nothing.
        let mut slow = Breaker::new(start);
        for n in 0..40 {
            let now = start + ms(1500 * n);
            slow.answered(now);
            assert!(!slow.failed(now, 0.0));
        }
    }

    #[test]
    fn r10_a_trial_that_fails_opens_it_for_twice_as_long_up_to_a_minute() {
        let mut now = Instant::now();
        let mut breaker = Breaker::new(now);
        assert_eq!((0..5).filter(|_| breaker.failed(now, 0.0)).count(), 1);
        for wait in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(breaker.probe_at(), Some(now + Duration::from_secs(wait)));
            now = breaker.probe_at().unwrap();
            breaker.probing();
            assert!(!breaker.is_closed() && breaker.probe_at().is_none(), "one probe at a time");
            assert!(breaker.probe_answered() && breaker.is_closed());
            assert!(breaker.failed(now, 0.0), "on trial, one failure is enough");
        }
        breaker.probing();
        breaker.probe_unanswered(now, 1.0);
        assert_eq!(breaker.probe_at(), Some(now + Duration::from_secs(30)), "jitter takes off up to a half");
        breaker.probing();
        breaker.probe_answered();
        breaker.answered(now);
        assert!(!breaker.failed(now, 0.0), "an answered call ends the trial");
    }

    #[test]
    fn a_late_answer_while_it_is_open_is_worth_a_probe_at_once() {
        let now = Instant::now();
        let mut breaker = Breaker::new(now);
        assert_eq!((0..5).filter(|_| breaker.failed(now, 0.0)).count(), 1);
        breaker.answered(now + ms(10));
        assert_eq!(breaker.probe_at(), Some(now + ms(10)));
    }

    proptest! {
        /// Whatever happens, an open breaker is probed within a minute, and never while it is closed.
        #[test]
        fn an_open_breaker_is_always_about_to_be_probed(steps in prop::collection::vec((0u8..5, 0u64..3000), 1..200)) {
            let mut now = Instant::now();
            let mut breaker = Breaker::new(now);
            let mut probing = false;
            for (step, wait) in steps {
                now += ms(wait);
                match step {
                    0 => breaker.answered(now),
                    1 => {
                        let _ = breaker.failed(now, 0.5);
                    }
                    2 if breaker.probe_at().is_some_and(|at| at <= now) => {
                        breaker.probing();
                        probing = true;
                    }
                    3 if probing => {
                        probing = false;
                        breaker.probe_answered();
                    }
                    4 if probing => {
                        probing = false;
                        breaker.probe_unanswered(now, 0.5);
                    }
                    _ => {}
                }
                prop_assert_eq!(breaker.is_closed(), breaker.probe_at().is_none() && !probing);
                if let Some(at) = breaker.probe_at() {
                    prop_assert!(at <= now + LONGEST);
                }
            }
        }
    }
}
