//! Calls that have ended, for as long as there is room (rule R31): the last 10,000, or fewer if they take more
//! than 8 MiB, in the order in which they ended.
//!
//! Refusals have a smaller room of their own, so that a storm of them does not push out what was taken in; of
//! those alike (one caller, reason and second) only the newest is kept, with how many it stands for. Putting
//! costs one lock and no search; finding, which only people ask for, looks through the numbers.

use crate::call::{Call, CallId, Ending, Steps};
use crate::caller::{CallerId, Lane};
use crate::outcome::{Executed, Outcome, Reason};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Calls that were taken in.
const CALLS: usize = 10_000;
/// What their records may take, in bytes.
const BYTES: usize = 8 << 20;
const REFUSALS: usize = 1_000;
/// Characters of a target that are kept.
const LONGEST_TARGET: usize = 200;

/// What is kept of a finished call.
#[derive(Debug)]
pub struct Record {
    pub id: CallId,
    pub caller_id: CallerId,
    pub caller: Arc<str>,
    pub upstream: Arc<str>,
    pub method: Cow<'static, str>,
    pub target: Arc<str>,
    pub lane: Lane,
    pub arrived: Instant,
    pub ended: Instant,
    pub queued: Duration,
    pub running: Duration,
    pub attempt: u32,
    /// The call for which this one asked a price.
    pub parent: Option<CallId>,
    pub weight: u32,
    pub bytes: u64,
    pub outcome: Outcome,
    /// How many refusals this one stands for; 1 for any other call.
    pub times: u32,
    /// When it was put into its queue, and when it began to run, if it did.
    pub queued_at: Option<Instant>,
    pub started: Option<Instant>,
    /// The rare steps of its life; some may come after its end.
    pub steps: Option<Arc<Steps>>,
    /// What the steps are counted as: those there were, and room for those that follow an end.
    steps_size: usize,
}

/// Bytes for the steps that may follow an end: asked to stop, and released.
const LATE_STEPS: usize = 300;

impl Record {
    pub(super) fn of(call: &Call, ending: &Ending) -> Self {
        let (queued, running) = call.times(ending.at);
        // What may still run at its server goes on to have a story.
        let steps = match ending.outcome.executed() {
            Executed::Unknown => Some(call.ticket.shared_steps()),
            Executed::Yes | Executed::Never => call.ticket.steps(),
        };
        Record {
            id: call.id,
            caller_id: call.caller.id,
            caller: call.caller.name.clone(),
            upstream: call.upstream().clone(),
            method: call.request.method.clone(),
            target: shortened(call.target()),
            lane: call.lane(),
            arrived: call.arrived,
            ended: ending.at,
            queued,
            running,
            attempt: call.attempt(),
            parent: call.parent,
            weight: call.weight(),
            bytes: call.bytes(),
            outcome: ending.outcome,
            times: 1,
            queued_at: call.ticket.queued(),
            started: call.ticket.started(),
            steps_size: steps.as_ref().map_or(0, |steps| steps.bytes() + LATE_STEPS),
            steps,
        }
    }
}

impl Record {
    /// What it takes in memory, names that many share left out.
    fn size(&self) -> usize {
        let method = match &self.method {
            Cow::Borrowed(_) => 0,
            Cow::Owned(method) => method.len(),
        };
        // The counts of both allocations, and the place in the room.
        size_of::<Record>() + self.target.len() + method + 48 + self.steps_size
    }
}

/// A caller may name anything, at any length; what is kept is bounded.
fn shortened(target: &Arc<str>) -> Arc<str> {
    match target.char_indices().nth(LONGEST_TARGET) {
        Some((end, _)) => format!("{}...", &target[..end]).into(),
        None => target.clone(),
    }
}

/// See the module's documentation.
#[derive(Default)]
pub struct History {
    calls: Mutex<Calls>,
    refusals: Mutex<Refusals>,
}

impl History {
    pub fn put(&self, record: Record) {
        match record.outcome {
            Outcome::Refused(reason) => {
                let gone = self.refusals.lock().put(record, reason);
                drop(gone);
            }
            _ => {
                let mut gone = Vec::new();
                self.calls.lock().put(Arc::new(record), &mut gone);
                drop(gone);
            }
        }
    }

    /// A record by its call; of refusals alike, the newest alone is found.
    pub fn get(&self, id: CallId) -> Option<Arc<Record>> {
        let call =
            self.calls.lock().records.iter().rev().find(|(known, _)| *known == id).map(|(_, record)| record.clone());
        call.or_else(|| self.refusals.lock().get(id))
    }
}

/// What was taken in, oldest end first. The number stands beside its record, so that a search reads one array.
#[derive(Default)]
struct Calls {
    records: VecDeque<(CallId, Arc<Record>)>,
    bytes: usize,
}

impl Calls {
    /// Keeps a record; what had to go for it is handed out, to be dropped outside the lock.
    fn put(&mut self, record: Arc<Record>, gone: &mut Vec<Arc<Record>>) {
        self.bytes += record.size();
        self.records.push_back((record.id, record));
        while self.records.len() > CALLS || self.bytes > BYTES {
            let Some((_, oldest)) = self.records.pop_front() else { break };
            self.bytes -= oldest.size();
            gone.push(oldest);
        }
    }
}

/// Refusals, oldest first; those of the present second are found by who was refused and why.
#[derive(Default)]
struct Refusals {
    records: VecDeque<Arc<Record>>,
    /// How many have gone from the front, so that a place keeps its number.
    gone: u64,
    /// The end of the present second; records that end before it are of that second.
    second_ends: Option<Instant>,
    now: HashMap<(CallerId, Reason), u64>,
}

impl Refusals {
    /// Keeps a refusal, in the place of one alike or of the oldest, which is handed out.
    fn put(&mut self, mut record: Record, reason: Reason) -> Option<Arc<Record>> {
        if self.second_ends.is_none_or(|end| record.ended >= end) {
            self.second_ends = record.ended.checked_add(Duration::from_secs(1));
            self.now.clear();
        }
        let key = (record.caller_id, reason);
        let alike = self.now.get(&key).and_then(|number| number.checked_sub(self.gone));
        if let Some(place) = alike.and_then(|place| self.records.get_mut(place as usize)) {
            record.times = place.times.saturating_add(1);
            return Some(std::mem::replace(place, Arc::new(record)));
        }
        // Bounded as the records are: of more, the oldest are not found any more anyway.
        if self.now.len() >= REFUSALS {
            self.now.clear();
        }
        self.now.insert(key, self.gone + self.records.len() as u64);
        self.records.push_back(Arc::new(record));
        if self.records.len() <= REFUSALS {
            return None;
        }
        self.gone += 1;
        self.records.pop_front()
    }

    fn get(&self, id: CallId) -> Option<Arc<Record>> {
        self.records.iter().rev().find(|record| record.id == id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::IdMint;
    use crate::outcome::{CancelledBy, Phase};

    const COMPLETED: Outcome = Outcome::Completed { is_error: false };
    const FULL: Outcome = Outcome::Refused(Reason::QueueFull);
    const RATE: Outcome = Outcome::Refused(Reason::CallerRate);

    fn record(mint: &IdMint, caller: u32, outcome: Outcome, ended: Instant) -> Record {
        Record {
            id: mint.mint(),
            caller_id: CallerId(caller),
            caller: "ann".into(),
            upstream: "db".into(),
            method: "tools/call".into(),
            target: "query".into(),
            lane: Lane::Normal,
            arrived: ended,
            ended,
            queued: Duration::ZERO,
            running: Duration::ZERO,
            attempt: 1,
            parent: None,
            weight: 1,
            bytes: 100,
            outcome,
            times: 1,
            queued_at: None,
            started: None,
            steps: None,
            steps_size: 0,
        }
    }

    fn put(history: &History, record: Record) -> CallId {
        let id = record.id;
        history.put(record);
        id
    }

    #[test]
    fn r31_the_last_ten_thousand_calls_are_kept_whatever_their_numbers() {
        let (history, mint, now) = (History::default(), IdMint::new(1), Instant::now());
        // Older by number, and the last to end.
        let slow = record(&mint, 1, COMPLETED, now);
        let queued = Outcome::Cancelled { by: CancelledBy::Caller, phase: Phase::Queued };
        let ids: Vec<_> = (0..CALLS)
            .map(|at| {
                // Numbers go by for refusals too.
                history.put(record(&mint, 2, FULL, now));
                put(&history, record(&mint, 1, if at % 2 == 0 { COMPLETED } else { queued }, now))
            })
            .collect();
        assert!(ids.iter().step_by(100).all(|id| history.get(*id).is_some()));
        let slow = put(&history, slow);
        assert_eq!(history.get(slow).unwrap().id, slow);
        assert!(history.get(ids[0]).is_none() && history.get(ids[1]).is_some());
    }

    #[test]
    fn r31_long_names_keep_the_history_within_its_bytes() {
        let (history, mint, now) = (History::default(), IdMint::new(1), Instant::now());
        let long: String = "é".repeat(2_000);
        let mut last = None;
        for _ in 0..CALLS {
            last = Some(put(&history, Record { target: long.as_str().into(), ..record(&mint, 1, COMPLETED, now) }));
        }
        let calls = history.calls.lock();
        let sum: usize = calls.records.iter().map(|(_, record)| record.size()).sum();
        assert_eq!(calls.bytes, sum);
        assert!(sum <= BYTES && sum > BYTES - 5_000, "{sum}");
        drop(calls);
        assert!(history.get(last.unwrap()).is_some());
    }

    #[test]
    fn r31_refusals_alike_are_one_and_say_how_many() {
        let (history, mint, start) = (History::default(), IdMint::new(1), Instant::now());
        let ms = Duration::from_millis;
        let first = put(&history, record(&mint, 1, FULL, start));
        let other_caller = put(&history, record(&mint, 2, FULL, start + ms(1)));
        let other_reason = put(&history, record(&mint, 1, RATE, start + ms(2)));
        let last = put(&history, record(&mint, 1, FULL, start + ms(999)));
        assert!(history.get(first).is_none());
        assert_eq!(history.get(last).unwrap().times, 2);
        assert_eq!(history.get(other_caller).unwrap().times, 1);
        assert_eq!(history.get(other_reason).unwrap().times, 1);
        let next_second = put(&history, record(&mint, 1, FULL, start + ms(1000)));
        assert_eq!((history.get(last).unwrap().times, history.get(next_second).unwrap().times), (2, 1));
        assert_eq!(history.refusals.lock().records.len(), 4);
    }

    #[test]
    fn r31_a_storm_of_refusals_is_bounded_and_pushes_out_no_call() {
        let (history, mint, start) = (History::default(), IdMint::new(1), Instant::now());
        let ran = put(&history, record(&mint, 1, COMPLETED, start));
        let mut last = None;
        // Of a thousand and a half callers, so that they are not all alike, over ten seconds.
        for at in 0..60_000u32 {
            let ended = start + Duration::from_micros(u64::from(at) * 166);
            last = Some(put(&history, record(&mint, at % 1_500, FULL, ended)));
        }
        let refusals = history.refusals.lock();
        assert_eq!(refusals.records.len(), REFUSALS);
        assert!(refusals.now.len() <= REFUSALS);
        drop(refusals);
        assert!(history.get(ran).is_some() && history.get(last.unwrap()).is_some());
    }
}
