//! Calls that have ended, for as long as there is room (rule R31).
//!
//! A record's place follows from the call's number, so putting and finding cost one lock and no search;
//! refusals have a smaller room of their own, so that a storm of them does not push out what ran.

use crate::call::{Call, CallId, Ending};
use crate::caller::{CallerId, Lane};
use crate::outcome::{Executed, Outcome};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const RAN: usize = 8192;
const NEVER_RAN: usize = 1024;
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
    pub weight: u32,
    pub bytes: u64,
    pub outcome: Outcome,
}

impl Record {
    pub(super) fn of(call: &Call, ending: &Ending) -> Arc<Self> {
        let (queued, running) = call.times(ending.at);
        Arc::new(Record {
            id: call.id,
            caller_id: call.caller.id,
            caller: call.caller.name.clone(),
            upstream: call.upstream.clone(),
            method: call.request.method.clone(),
            target: shortened(&call.target),
            lane: call.lane(),
            arrived: call.arrived,
            ended: ending.at,
            queued,
            running,
            attempt: call.attempt(),
            weight: call.weight,
            bytes: call.bytes(),
            outcome: ending.outcome,
        })
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
pub struct History {
    ran: Room,
    never_ran: Room,
}

impl Default for History {
    fn default() -> Self {
        History { ran: Room::new(RAN), never_ran: Room::new(NEVER_RAN) }
    }
}

impl History {
    pub fn put(&self, record: Arc<Record>) {
        match record.outcome.executed() {
            Executed::Never => self.never_ran.put(record),
            Executed::Yes | Executed::Unknown => self.ran.put(record),
        }
    }

    pub fn get(&self, id: CallId) -> Option<Arc<Record>> {
        self.ran.get(id).or_else(|| self.never_ran.get(id))
    }
}

/// Places by number, grown as calls come, so that an idle daemon holds none.
struct Room {
    places: Mutex<Vec<Option<Arc<Record>>>>,
    size: usize,
}

impl Room {
    fn new(size: usize) -> Self {
        Room { places: Mutex::default(), size }
    }

    fn put(&self, record: Arc<Record>) {
        let place = record.id.seq() as usize % self.size;
        let mut places = self.places.lock();
        if places.len() <= place {
            places.resize(place + 1, None);
        }
        let old = places[place].replace(record);
        drop(places);
        drop(old);
    }

    fn get(&self, id: CallId) -> Option<Arc<Record>> {
        let places = self.places.lock();
        places.get(id.seq() as usize % self.size)?.as_ref().filter(|record| record.id == id).cloned()
    }
}
