//! Shadow mode: what a limit would have refused, counted by limit and caller, while the calls go on.

use crate::caller::Caller;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Rows kept; what finds none is counted in a row of its limit without a caller.
const MOST_ROWS: usize = 4096;

/// Whether a limit holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enforce {
    #[default]
    On,
    /// It only counts what it would have refused.
    Shadow,
}

/// A limit that stands before the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    Rate,
    Quota,
    Cursors,
    Gate,
}

impl Limit {
    pub fn name(self) -> &'static str {
        match self {
            Limit::Rate => "rate",
            Limit::Quota => "quota",
            Limit::Cursors => "cursors",
            Limit::Gate => "gate",
        }
    }
}

/// What one limit would have done to one caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub limit: Limit,
    /// Empty for a limit that is the caller's own.
    pub upstream: Arc<str>,
    /// Empty for the callers that found no row of their own.
    pub caller: Arc<str>,
    /// Calls that would have been refused. They went on.
    pub calls: u64,
    /// The longest that one of them would have been told to wait, in milliseconds.
    pub longest_wait_ms: Option<u64>,
    pub last: Instant,
}

type Key = (Limit, Arc<str>, Arc<str>);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Shadow {
    rows: Mutex<HashMap<Key, Row>>,
}

impl Shadow {
    /// A call goes on that `limit` would have refused.
    pub fn count(&self, limit: Limit, upstream: &Arc<str>, caller: &Caller, wait_ms: Option<u64>, now: Instant) {
        let mut rows = self.rows.lock();
        let mut key = (limit, upstream.clone(), caller.name.clone());
        if rows.len() >= MOST_ROWS && !rows.contains_key(&key) {
            // One a limit at most, so the bound is passed by no more than the limits that there are.
            key = (limit, "".into(), "".into());
        }
        let row = rows.entry(key).or_insert_with_key(|(limit, upstream, caller)| Row {
            limit: *limit,
            upstream: upstream.clone(),
            caller: caller.clone(),
            calls: 0,
            longest_wait_ms: None,
            last: now,
        });
        row.calls += 1;
        row.longest_wait_ms = row.longest_wait_ms.max(wait_ms);
        row.last = row.last.max(now);
    }

    /// All rows: by limit, then by upstream and caller.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<_> = self.rows.lock().values().cloned().collect();
        rows.sort_by(|one, other| {
            (one.limit, &one.upstream, &one.caller).cmp(&(other.limit, &other.upstream, &other.caller))
        });
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::CallerId;

    fn caller(name: &str) -> Caller {
        Caller::new(CallerId(1), name.into(), "key", Arc::default())
    }

    #[test]
    fn calls_are_counted_by_limit_upstream_and_caller() {
        let (shadow, now, db) = (Shadow::default(), Instant::now(), Arc::from("db"));
        for wait in [5, 900, 20] {
            shadow.count(Limit::Rate, &"".into(), &caller("ann"), Some(wait), now);
        }
        shadow.count(Limit::Gate, &db, &caller("ann"), None, now);
        shadow.count(Limit::Gate, &db, &caller("bob"), None, now);
        let rows = shadow.rows();
        let told: Vec<_> = rows.iter().map(|row| (row.limit.name(), &*row.upstream, &*row.caller, row.calls)).collect();
        assert_eq!(told, [("rate", "", "ann", 3), ("gate", "db", "ann", 1), ("gate", "db", "bob", 1)]);
        assert_eq!((rows[0].longest_wait_ms, rows[1].longest_wait_ms), (Some(900), None));
    }

    #[test]
    fn the_rows_are_bounded_and_no_count_is_lost() {
        let (shadow, now) = (Shadow::default(), Instant::now());
        for number in 0..2 * MOST_ROWS {
            shadow.count(Limit::Rate, &"".into(), &caller(&format!("c{number}")), None, now);
        }
        let rows = shadow.rows();
        assert_eq!(rows.len(), MOST_ROWS + 1);
        assert_eq!(rows.iter().map(|row| row.calls).sum::<u64>(), 2 * MOST_ROWS as u64);
    }
}
