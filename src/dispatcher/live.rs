//! Every live call by its number, and what is written down when one ends.

use super::history::{History, Record};
use crate::call::{Call, CallId, Ending, OnFinish};
use crate::events::EventLog;
use crate::hooks::Overload;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Many, so that one of them is looked through in tens of microseconds with 100,000 live calls.
pub const SHARDS: usize = 128;

/// Live calls, found by their number.
pub struct Live {
    shards: Vec<Mutex<HashMap<u64, Arc<Call>>>>,
}

impl Default for Live {
    fn default() -> Self {
        Live { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Live {
    pub fn insert(&self, call: &Arc<Call>) {
        self.shard(call.id.seq()).lock().insert(call.id.seq(), call.clone());
    }

    pub fn get(&self, id: CallId) -> Option<Arc<Call>> {
        self.shard(id.seq()).lock().get(&id.seq()).cloned()
    }

    /// Every live call, in the order of their numbers.
    pub fn all(&self) -> Vec<Arc<Call>> {
        let mut all: Vec<_> =
            self.shards.iter().flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>()).collect();
        all.sort_unstable_by_key(|call| call.id);
        all
    }

    /// Calls of one shard that `takes` wants.
    pub fn shard_calls(&self, shard: usize, takes: impl Fn(&Call) -> bool, found: &mut Vec<Arc<Call>>) {
        if let Some(shard) = self.shards.get(shard) {
            found.extend(shard.lock().values().filter(|call| takes(call)).cloned());
        }
    }

    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn remove(&self, id: CallId) {
        self.shard(id.seq()).lock().remove(&id.seq());
    }

    fn shard(&self, seq: u64) -> &Mutex<HashMap<u64, Arc<Call>>> {
        &self.shards[seq as usize % SHARDS]
    }
}

/// What the end of a call is written into.
#[derive(Default)]
pub struct Books {
    pub live: Live,
    pub history: History,
    pub events: Arc<EventLog>,
    pub overload: Arc<Overload>,
}

impl OnFinish for Books {
    fn finished(&self, call: &Call, ending: &Arc<Ending>) {
        // History first, so that a call is always found in one of the two.
        self.history.put(Record::of(call, ending));
        self.live.remove(call.id);
        self.events.ended(call, ending.outcome, ending.at);
        self.overload.note(call.upstream(), &call.caller.name, ending.outcome);
        let (queued, running) = call.times(ending.at);
        let event = |message: &str| {
            tracing::debug!(
                call = %call.id, upstream = %call.upstream(), caller = %call.caller.name, target = %call.target(),
                outcome = ending.outcome.name(), reason = ending.outcome.reason(),
                queued_ms = queued.as_millis() as u64, running_ms = running.as_millis() as u64, "{message}"
            );
        };
        if tracing::enabled!(tracing::Level::DEBUG) {
            event("call finished");
        }
    }
}
