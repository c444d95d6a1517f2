//! The event log: what happened in the daemon, numbered, bounded, and never in the way of those who tell it.
//!
//! Tellers push into a ring that overwrites its oldest entry (rule R30); readers move what it holds into the kept
//! log. An entry that was overwritten or dropped leaves a hole in the numbers, which readers are told as a count.
//! How single calls end comes by the thousand, so that is summed up: one entry a caller, ending and second.

use crate::call::{Call, CallId};
use crate::caller::CallerId;
use crate::outcome::Outcome;
use crossbeam_queue::ArrayQueue;
use forebay_wire as wire;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Entries that nobody has read yet; with more, the oldest are overwritten.
const RING: usize = 4096;
/// Entries kept, and their bytes; with more, the oldest are dropped.
const KEPT: usize = 4096;
const KEPT_BYTES: usize = 2 << 20;
/// Sums under way in one part; with more, those of past seconds are told, and what finds no room is told alone.
const SUMS: usize = 1024;
const PARTS: usize = 8;
/// Characters of a text from outside that an entry keeps.
const LONGEST_TEXT: usize = 300;

/// One event as its teller knows it.
#[derive(Debug)]
pub struct Draft {
    event: wire::Event,
}

impl Draft {
    pub fn new(level: wire::Level, kind: &'static str, text: impl Into<String>) -> Self {
        let text = shortened(text.into());
        Draft { event: wire::Event { level, kind: kind.into(), text, times: 1, ..wire::Event::default() } }
    }

    #[must_use]
    pub fn upstream(mut self, name: &str) -> Self {
        self.event.upstream = Some(name.into());
        self
    }

    #[must_use]
    pub fn call(mut self, id: CallId) -> Self {
        self.event.call = Some(id.to_string());
        self
    }

    #[must_use]
    pub fn caller(mut self, name: &str) -> Self {
        self.event.caller = Some(shortened(name.into()));
        self
    }

    /// Who did it.
    #[must_use]
    pub fn by(mut self, who: &str) -> Self {
        self.event.by = Some(who.into());
        self
    }

    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.event.times = times;
        self
    }
}

/// A part of the log.
#[derive(Debug, Default)]
pub struct Part {
    pub events: Vec<Arc<wire::Event>>,
    /// The number that the next event will have, or at which to read on.
    pub next: u64,
    /// Numbers from the one asked for up to the first one given that are no longer kept.
    pub dropped: u64,
}

/// See the module's documentation.
pub struct EventLog {
    /// Held while one entry is numbered and pushed, so that the ring is in the order of the numbers.
    next: Mutex<u64>,
    ring: ArrayQueue<Arc<wire::Event>>,
    kept: Mutex<Kept>,
    sums: [Mutex<Sums>; PARTS],
    origin: Instant,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Arc<wire::Event>>,
    bytes: usize,
}

#[derive(Default)]
struct Sums {
    under_way: HashMap<(CallerId, usize), Sum>,
    /// The second in which the past ones were last cleared away.
    cleared: u64,
}

impl Sums {
    /// Takes out what is of another second.
    fn over(&mut self, second: u64) -> Vec<Sum> {
        self.cleared = second;
        self.under_way.extract_if(|_, sum| sum.second != second).map(|(_, sum)| sum).collect()
    }
}

/// Calls of one caller that ended alike within one second.
struct Sum {
    second: u64,
    at_unix_ms: u64,
    times: u64,
    first: CallId,
    caller: Arc<str>,
    /// None once a second one is met.
    upstream: Option<Arc<str>>,
    target: Arc<str>,
    outcome: Outcome,
}

impl Default for EventLog {
    fn default() -> Self {
        EventLog {
            next: Mutex::new(1),
            ring: ArrayQueue::new(RING),
            kept: Mutex::default(),
            sums: std::array::from_fn(|_| Mutex::default()),
            origin: Instant::now(),
        }
    }
}

impl EventLog {
    /// Writes an event down. Never waits for a reader.
    pub fn tell(&self, draft: Draft) {
        self.push(draft, unix_ms());
    }

    /// A call ended otherwise than by its upstream's answer. What operators cancel is told by whom they asked.
    pub fn ended(&self, call: &Call, outcome: Outcome, now: Instant) {
        self.sum(&call.caller.name, call.caller.id, call.upstream(), call.target(), call.id, outcome, now);
    }

    /// As [`EventLog::ended`], for what was refused before there was a call.
    #[expect(clippy::too_many_arguments, reason = "there is no call yet that would hold them together")]
    pub fn sum(
        &self,
        caller: &Arc<str>,
        caller_id: CallerId,
        upstream: &Arc<str>,
        target: &Arc<str>,
        call: CallId,
        outcome: Outcome,
        now: Instant,
    ) {
        let Some(_) = kind(outcome) else { return };
        let second = self.second(now);
        let mut sums = self.sums[caller_id.0 as usize % PARTS].lock();
        let key = (caller_id, outcome.index());
        if let Some(sum) = sums.under_way.get_mut(&key)
            && sum.second == second
        {
            sum.times += 1;
            if sum.upstream.as_ref().is_some_and(|known| known != upstream) {
                sum.upstream = None;
            }
            return;
        }
        let fresh = Sum {
            second,
            at_unix_ms: unix_ms(),
            times: 1,
            first: call,
            caller: caller.clone(),
            upstream: Some(upstream.clone()),
            target: target.clone(),
            outcome,
        };
        let mut told = if sums.cleared == second { Vec::new() } else { sums.over(second) };
        if sums.under_way.len() < SUMS {
            sums.under_way.insert(key, fresh);
        } else {
            told.push(fresh);
        }
        drop(sums);
        for sum in told {
            self.push_sum(sum);
        }
    }

    /// The number that the next event will have.
    pub fn next(&self) -> u64 {
        *self.next.lock()
    }

    /// At most `limit` events from number `from` on, oldest first, that `takes` lets through.
    pub fn read(&self, from: u64, limit: usize, takes: impl Fn(&wire::Event) -> bool) -> Part {
        let kept = self.collect();
        let next = self.next();
        let oldest = kept.events.front().map_or(next, |event| event.number);
        let mut part = Part { next, dropped: oldest.saturating_sub(from.max(1)), ..Part::default() };
        let start = kept.events.partition_point(|event| event.number < from);
        for event in kept.events.range(start..).filter(|event| takes(event)) {
            if part.events.len() == limit {
                part.next = event.number;
                break;
            }
            part.events.push(event.clone());
        }
        // One that was told since the ring was emptied is read next time.
        part.next = part.next.min(kept.events.back().map_or(next, |event| event.number + 1).max(from));
        part
    }

    /// The newest `most` events, oldest first.
    pub fn newest(&self, most: usize) -> Part {
        let kept = self.collect();
        let start = kept.events.len().saturating_sub(most);
        let events: Vec<_> = kept.events.range(start..).cloned().collect();
        let next = events.last().map_or_else(|| self.next(), |event: &Arc<wire::Event>| event.number + 1);
        Part { events, next, dropped: 0 }
    }

    /// Tells the sums of seconds that are over, and moves what the ring holds into the kept log.
    fn collect(&self) -> parking_lot::MutexGuard<'_, Kept> {
        let second = self.second(Instant::now());
        for part in &self.sums {
            let told = part.lock().over(second);
            for sum in told {
                self.push_sum(sum);
            }
        }
        let mut kept = self.kept.lock();
        while let Some(event) = self.ring.pop() {
            kept.bytes += bytes(&event);
            kept.events.push_back(event);
            while kept.events.len() > KEPT || kept.bytes > KEPT_BYTES {
                let Some(old) = kept.events.pop_front() else { break };
                kept.bytes -= bytes(&old);
            }
        }
        kept
    }

    fn push_sum(&self, sum: Sum) {
        let Some((kind, level)) = kind(sum.outcome) else { return };
        let reason = sum.outcome.reason();
        let because = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let whose = shortened(sum.caller.to_string());
        let what = sum.outcome.name().replace('_', " ");
        let at = match sum.upstream.as_deref() {
            Some("") => String::new(),
            Some(name) => format!(" at {name}"),
            None => " at several upstreams".into(),
        };
        let text = if sum.times == 1 {
            format!("{}'s call of {}{at}: {what}{because}", whose, shortened(sum.target.to_string()))
        } else {
            format!("{} calls of {whose}{at}: {what}{because}", sum.times)
        };
        let mut draft = Draft::new(level, kind, text).caller(&whose).times(sum.times);
        if let Some(upstream) = sum.upstream.filter(|name| !name.is_empty()) {
            draft = draft.upstream(&upstream);
        }
        if sum.times == 1 {
            draft = draft.call(sum.first);
        }
        self.push(draft, sum.at_unix_ms);
    }

    fn push(&self, draft: Draft, at_unix_ms: u64) {
        let mut event = draft.event;
        event.at_unix_ms = at_unix_ms;
        let mut next = self.next.lock();
        event.number = *next;
        *next += 1;
        let pushed_out = self.ring.force_push(Arc::new(event));
        drop(next);
        drop(pushed_out);
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.origin).as_secs()
    }
}

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The kind and level under which an ending is told; none for what the upstream itself answered, and for what
/// an operator ended, which is told with the operator's name where it is asked for.
fn kind(outcome: Outcome) -> Option<(&'static str, wire::Level)> {
    use crate::outcome::CancelledBy;
    Some(match outcome {
        Outcome::Completed { .. } | Outcome::UpstreamError => return None,
        Outcome::Cancelled { by: CancelledBy::Operator, .. } => return None,
        Outcome::Refused(_) => ("refused", wire::Level::Warn),
        Outcome::Displaced => ("displaced", wire::Level::Warn),
        Outcome::Expired(_) => ("expired", wire::Level::Warn),
        Outcome::TimedOut(_) => ("timed_out", wire::Level::Warn),
        Outcome::Cancelled { .. } => ("cancelled", wire::Level::Info),
        Outcome::Lost { .. } => ("lost", wire::Level::Error),
    })
}

/// A rough size of an entry in memory.
fn bytes(event: &wire::Event) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    256 + event.text.len()
        + optional(&event.upstream)
        + optional(&event.caller)
        + optional(&event.call)
        + optional(&event.by)
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::IdMint;
    use crate::outcome::{CancelledBy, Phase, Reason};
    use std::time::Duration;

    fn note(log: &EventLog, text: &str) {
        log.tell(Draft::new(wire::Level::Info, "test", text));
    }

    fn refused(log: &EventLog, mint: &IdMint, caller: u32, upstream: &str, reason: Reason) {
        let name: Arc<str> = format!("caller-{caller}").into();
        let now = Instant::now();
        log.sum(&name, CallerId(caller), &upstream.into(), &"t".into(), mint.mint(), Outcome::Refused(reason), now);
    }

    #[test]
    fn r30_numbers_count_up_and_what_was_pushed_out_is_a_hole() {
        let log = EventLog::default();
        for number in 0..RING + 10 {
            note(&log, &number.to_string());
        }
        let part = log.read(1, 5, |_| true);
        assert_eq!(part.dropped, 10);
        assert_eq!(part.events.iter().map(|event| event.number).collect::<Vec<_>>(), [11, 12, 13, 14, 15]);
        assert_eq!(part.next, 16);
        let rest = log.read(part.next, usize::MAX, |_| true);
        assert_eq!((rest.dropped, rest.events.len()), (0, RING - 5));
        assert_eq!(rest.next, RING as u64 + 11);
        assert_eq!(log.read(rest.next, 5, |_| true).events.len(), 0);
    }

    #[test]
    fn the_log_is_bounded_by_bytes_too() {
        let log = EventLog::default();
        let long = "ü".repeat(10_000);
        for _ in 0..4096 {
            note(&log, &long);
        }
        let part = log.newest(usize::MAX);
        assert!(part.events.len() < 4000, "{}", part.events.len());
        assert!(part.events.iter().all(|event| event.text.chars().count() <= LONGEST_TEXT + 3));
    }

    #[tokio::test(start_paused = true)]
    async fn r31_refusals_are_one_a_caller_reason_and_second() {
        let log = EventLog::default();
        let mint = IdMint::new(1);
        for _ in 0..1000 {
            refused(&log, &mint, 1, "db", Reason::QueueFull);
            refused(&log, &mint, 1, "web", Reason::CallerRate);
            refused(&log, &mint, 2, "db", Reason::QueueFull);
        }
        refused(&log, &mint, 1, "web", Reason::CallerRate);
        refused(&log, &mint, 2, "web", Reason::QueueFull);
        assert_eq!(log.read(1, 10, |_| true).events.len(), 0, "the second is not over");
        tokio::time::advance(Duration::from_secs(1)).await;
        let part = log.read(1, 10, |_| true);
        let mut seen: Vec<_> =
            part.events.iter().map(|event| (event.caller.as_deref(), event.upstream.as_deref(), event.times)).collect();
        seen.sort_unstable();
        assert_eq!(
            seen,
            [
                (Some("caller-1"), Some("db"), 1000),
                (Some("caller-1"), Some("web"), 1001),
                (Some("caller-2"), None, 1001)
            ]
        );
        refused(&log, &mint, 1, "db", Reason::QueueFull);
        tokio::time::advance(Duration::from_secs(1)).await;
        let one = log.read(part.next, 10, |_| true);
        assert_eq!(one.events[0].times, 1);
        assert!(one.events[0].call.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_callers_stays_within_bounds() {
        let log = EventLog::default();
        let mint = IdMint::new(1);
        for second in 0..10 {
            for caller in 0..10_000 {
                refused(&log, &mint, second * 10_000 + caller, "db", Reason::QueueFull);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let held: usize = log.sums.iter().map(|part| part.lock().under_way.len()).sum();
        assert!(held <= PARTS * SUMS, "{held}");
        assert!(log.newest(usize::MAX).events.len() <= KEPT);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_of_upstreams_and_cancels_of_operators_are_not_summed() {
        let log = EventLog::default();
        let mint = IdMint::new(1);
        for outcome in [
            Outcome::Completed { is_error: true },
            Outcome::UpstreamError,
            Outcome::Cancelled { by: CancelledBy::Operator, phase: Phase::Queued },
        ] {
            log.sum(&"a".into(), CallerId(1), &"b".into(), &"c".into(), mint.mint(), outcome, Instant::now());
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(log.newest(10).events.len(), 0);
    }
}
