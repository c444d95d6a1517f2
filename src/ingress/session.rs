//! Sessions of legacy clients: 128 random bits that belong to one caller and one endpoint.
//!
//! The table is bounded. When it is full, the caller that has the most sessions loses one that it has not
//! used lately, so nobody can push out the sessions of others.

use crate::call::Level;
use crate::caller::CallerId;
use crate::upstream::news::{Kinds, Listener};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Sessions kept at most.
pub(crate) const MOST: usize = 10_000;
/// A session that is not used for so long is over.
pub(crate) const IDLE: Duration = Duration::from_secs(3600);
/// How many recently used sessions are passed over in search of one to drop.
const SECOND_CHANCES: usize = 8;

/// The number behind a session id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionId(u128);

impl SessionId {
    /// The id as its client sends it: 32 hex digits, exactly as given out.
    pub(crate) fn parse(text: &str) -> Option<SessionId> {
        let plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(plain) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(SessionId)
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

struct Session {
    caller: CallerId,
    /// The upstream of its endpoint; empty for all of them.
    endpoint: Arc<str>,
    used: Instant,
    /// The lowest level of log lines that its client wants, once it has said so.
    level: Option<Level>,
    /// What it hears besides its calls, once it wants to.
    listener: Option<Arc<Listener>>,
    /// Used since it was last considered for dropping.
    lately: bool,
}

/// See the module's documentation.
pub(crate) struct Sessions {
    most: usize,
    idle: Duration,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    sessions: HashMap<SessionId, Session>,
    /// Each caller's sessions, oldest first; ids of ended ones may linger here.
    by_caller: HashMap<CallerId, VecDeque<SessionId>>,
}

impl Sessions {
    pub(crate) fn new(most: usize, idle: Duration) -> Self {
        Sessions { most, idle, table: Mutex::default() }
    }

    /// Begins a session with 128 random bits.
    pub(crate) fn begin(&self, randomness: u128, caller: CallerId, endpoint: Arc<str>, now: Instant) -> SessionId {
        let id = SessionId(randomness);
        let mut table = self.table.lock();
        table.drop_idle(caller, self.idle, now);
        if table.sessions.len() >= self.most {
            table.drop_one();
        }
        table.sessions.insert(id, Session { caller, endpoint, used: now, level: None, listener: None, lately: false });
        table.by_caller.entry(caller).or_default().push_back(id);
        id
    }

    /// Whether the session is alive and this caller's, on this endpoint; if so it has been used.
    pub(crate) fn touch(&self, id: SessionId, caller: CallerId, endpoint: &str, now: Instant) -> bool {
        let mut table = self.table.lock();
        let Some(session) = table.sessions.get_mut(&id) else { return false };
        if session.caller != caller || *session.endpoint != *endpoint {
            return false;
        }
        if now.saturating_duration_since(session.used) > self.idle {
            table.end(id, caller);
            return false;
        }
        session.used = now;
        session.lately = true;
        true
    }

    /// Sets the level of log lines of a session that has just been touched.
    pub(crate) fn set_level(&self, id: SessionId, level: Level) {
        if let Some(session) = self.table.lock().sessions.get_mut(&id) {
            session.level = Some(level);
        }
    }

    pub(crate) fn level(&self, id: SessionId) -> Option<Level> {
        self.table.lock().sessions.get(&id)?.level
    }

    /// The listener of a session that has just been touched; made and joined at the first time.
    pub(crate) fn listener(&self, id: SessionId, join: impl FnOnce(&Arc<Listener>)) -> Option<Arc<Listener>> {
        let mut table = self.table.lock();
        let session = table.sessions.get_mut(&id)?;
        if let Some(listener) = &session.listener {
            return Some(listener.clone());
        }
        let listener = Listener::new(Kinds::ALL);
        session.listener = Some(listener.clone());
        drop(table);
        join(&listener);
        Some(listener)
    }

    /// Ends a session. False if there is none of that id for this caller on this endpoint.
    pub(crate) fn end(&self, id: SessionId, caller: CallerId, endpoint: &str, now: Instant) -> bool {
        let known = self.touch(id, caller, endpoint, now);
        if known {
            self.table.lock().end(id, caller);
        }
        known
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.table.lock().sessions.len()
    }
}

impl Drop for Session {
    /// Its stream ends with it.
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.end();
        }
    }
}

impl Table {
    fn end(&mut self, id: SessionId, caller: CallerId) {
        self.sessions.remove(&id);
        if let Some(order) = self.by_caller.get_mut(&caller) {
            order.retain(|known| *known != id);
            if order.is_empty() {
                self.by_caller.remove(&caller);
            }
        }
    }

    /// Drops idle sessions at the head of a caller's order.
    fn drop_idle(&mut self, caller: CallerId, idle: Duration, now: Instant) {
        let Some(order) = self.by_caller.get_mut(&caller) else { return };
        while let Some(id) = order.front().copied() {
            let over = |session: &Session| now.saturating_duration_since(session.used) > idle;
            if self.sessions.get(&id).is_some_and(|session| !over(session)) {
                return;
            }
            order.pop_front();
            self.sessions.remove(&id);
        }
    }

    /// Drops one session of the caller that has the most.
    fn drop_one(&mut self) {
        let Some(order) = self.by_caller.values_mut().max_by_key(|order| order.len()) else { return };
        for chance in 0..=SECOND_CHANCES {
            let Some(id) = order.pop_front() else { return };
            match self.sessions.get_mut(&id) {
                Some(session) if session.lately && chance < SECOND_CHANCES => {
                    session.lately = false;
                    order.push_back(id);
                }
                _ => {
                    self.sessions.remove(&id);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: CallerId = CallerId(1);
    const BOB: CallerId = CallerId(2);

    #[test]
    fn c31_a_session_belongs_to_its_caller_and_endpoint() {
        let sessions = Sessions::new(10, IDLE);
        let now = Instant::now();
        let id = sessions.begin(7, ALICE, "".into(), now);
        assert!(sessions.touch(id, ALICE, "", now));
        assert!(!sessions.touch(id, BOB, "", now));
        assert!(!sessions.touch(id, ALICE, "db", now));
        assert!(!sessions.end(id, BOB, "", now));
        assert!(sessions.touch(id, ALICE, "", now));
        assert!(sessions.end(id, ALICE, "", now));
        assert!(!sessions.touch(id, ALICE, "", now));
        assert!(!sessions.end(id, ALICE, "", now));
    }

    #[test]
    fn a_session_ends_when_it_is_idle() {
        let sessions = Sessions::new(10, IDLE);
        let now = Instant::now();
        let id = sessions.begin(7, ALICE, "".into(), now);
        assert!(sessions.touch(id, ALICE, "", now + IDLE));
        assert!(!sessions.touch(id, ALICE, "", now + IDLE * 3));
        assert_eq!(sessions.len(), 0);
        sessions.begin(8, ALICE, "".into(), now);
        sessions.begin(9, ALICE, "".into(), now + IDLE * 2);
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn a_full_table_costs_the_caller_that_filled_it() {
        let sessions = Sessions::new(4, IDLE);
        let now = Instant::now();
        let bobs = sessions.begin(100, BOB, "".into(), now);
        let mut ids = Vec::new();
        for number in 0..50 {
            ids.push(sessions.begin(number, ALICE, "".into(), now));
            assert!(sessions.touch(ids[0], ALICE, "", now), "a session in use is passed over");
        }
        assert_eq!(sessions.len(), 4);
        assert!(sessions.touch(bobs, BOB, "", now));
        assert!(sessions.touch(ids[49], ALICE, "", now));
    }

    #[test]
    fn ids_are_read_exactly_as_given_out() {
        let id = SessionId(0xabc);
        assert_eq!(SessionId::parse(&id.to_string()), Some(id));
        for bad in ["", "abc", &id.to_string().to_uppercase(), &format!("+{}", &id.to_string()[1..])] {
            assert_eq!(SessionId::parse(bad), None, "{bad}");
        }
    }
}
