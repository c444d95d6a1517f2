//! Open cursors: what a call leaves open at its server until a follow-up closes it.
//!
//! A call that may open a cursor takes a place before it runs, so the caps are exact however many run at once. Its
//! answer turns the place into a lease of the cursor that it carries, or gives it back. A follow-up must carry a
//! cursor that is open for its own caller: another's, an old or an invented one are alike. Its answer moves the lease
//! to the next cursor, or ends it with the last page; a lease that nobody follows up ends at its `ttl`.
//!
//! Servers may give the same text to several (a page number): then there are as many leases of it, one as good as
//! the other. The cursor before the present one is taken too, for an answer that got lost on its way.
//!
//! What is kept is bounded by the caps: a hash a cursor, never its text.

use super::pointer::Pointer;
use super::shadow::Enforce;
use crate::caller::CallerId;
use crate::protocol::json::unquote;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How a tool's cursors are seen and bounded.
#[derive(Clone, Debug, PartialEq)]
pub struct CursorRule {
    /// Where a result carries the next cursor.
    pub pointer: Pointer,
    /// The argument in which a follow-up gives it back.
    pub argument: String,
    /// How long a cursor stays open without a follow-up.
    pub ttl: Duration,
    /// Open at once for one caller.
    pub per_caller: u32,
    /// Open at once for all of them.
    pub total: u32,
    pub enforce: Enforce,
}

/// What a cursor is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorHash([u8; 32]);

impl CursorHash {
    /// Of a raw JSON value; none if it stands for no cursor. A string means its text, however it is written.
    pub fn of(raw: &str) -> Option<CursorHash> {
        let digest = match unquote(raw) {
            Some(text) if text.is_empty() => return None,
            Some(text) => Sha256::new().chain_update(b"s").chain_update(text.as_bytes()).finalize(),
            None if raw == "null" || raw == "false" => return None,
            None => Sha256::new().chain_update(b"r").chain_update(raw.as_bytes()).finalize(),
        };
        Some(CursorHash(digest.into()))
    }
}

/// A tool of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolName {
    pub upstream: Arc<str>,
    pub tool: Arc<str>,
}

/// All open cursors.
#[derive(Debug, Default)]
pub struct Cursors {
    tools: Mutex<HashMap<ToolName, HashMap<CallerId, Vec<Lease>>>>,
}

#[derive(Debug)]
struct Lease {
    number: u64,
    /// None while the call that may open it has no answer.
    cursor: Option<CursorHash>,
    /// The cursor before it.
    before: Option<CursorHash>,
    /// Calls in flight that use it; meanwhile it does not run out.
    uses: u32,
    until: Instant,
}

/// Why no cursor may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub by: Bound,
    pub open: u32,
    pub limit: u32,
    /// When the first of those counted runs out at the latest; none if all of them are in use.
    pub free_at: Option<Instant>,
}

/// Which bound is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// One caller's cursors of one tool.
    CallerOfTool,
    /// One caller's cursors of all tools.
    Caller,
    /// All callers' cursors of one tool.
    Tool,
}

/// A call's hold on a lease. Given back once, by [`Held::settle`], [`Held::release`] or its drop.
#[derive(Debug)]
pub struct Held {
    cursors: Arc<Cursors>,
    tool: ToolName,
    caller: CallerId,
    number: u64,
    ttl: Duration,
    pointer: Pointer,
    done: Mutex<bool>,
}

impl Cursors {
    /// A place for a call that may open a cursor. `own` is the caller's bound over all tools.
    pub fn open(
        self: &Arc<Self>,
        tool: ToolName,
        caller: CallerId,
        rule: &CursorRule,
        own: Option<u32>,
        now: Instant,
    ) -> Result<Held, Full> {
        let mut tools = self.tools.lock();
        for callers in tools.values_mut() {
            sweep(callers, now);
        }
        let none = HashMap::new();
        let of_tool = tools.get(&tool).unwrap_or(&none);
        let mine = of_tool.get(&caller).map_or(&[][..], Vec::as_slice);
        full(Bound::CallerOfTool, rule.per_caller, mine.iter())?;
        if let Some(own) = own {
            full(Bound::Caller, own, tools.values().filter_map(|callers| callers.get(&caller)).flatten())?;
        }
        full(Bound::Tool, rule.total, of_tool.values().flatten())?;
        let leases = tools.entry(tool.clone()).or_default().entry(caller).or_default();
        // A number is used up within a tool and caller alone, so the highest one there and one is new.
        let number = leases.iter().map(|lease| lease.number + 1).max().unwrap_or(0);
        leases.push(Lease { number, cursor: None, before: None, uses: 1, until: now });
        Ok(self.held(tool, caller, number, rule))
    }

    /// The lease of a cursor that is open for this caller; one that nobody uses, if there are several.
    pub fn follow(
        self: &Arc<Self>,
        tool: ToolName,
        caller: CallerId,
        rule: &CursorRule,
        cursor: CursorHash,
        now: Instant,
    ) -> Option<Held> {
        let mut tools = self.tools.lock();
        let callers = tools.get_mut(&tool)?;
        sweep(callers, now);
        let leases = callers.get_mut(&caller)?;
        let rank = |lease: &Lease| {
            let now = lease.cursor == Some(cursor);
            (now || lease.before == Some(cursor)).then_some((now, std::cmp::Reverse(lease.uses)))
        };
        let lease = leases.iter_mut().filter(|lease| rank(lease).is_some()).max_by_key(|lease| rank(lease))?;
        lease.uses += 1;
        let number = lease.number;
        Some(self.held(tool, caller, number, rule))
    }

    /// Cursors that are open, and places taken by calls that may open one.
    pub fn count(&self) -> usize {
        self.tools.lock().values().flat_map(HashMap::values).map(Vec::len).sum()
    }

    fn held(self: &Arc<Self>, tool: ToolName, caller: CallerId, number: u64, rule: &CursorRule) -> Held {
        let (ttl, pointer) = (rule.ttl, rule.pointer.clone());
        Held { cursors: self.clone(), tool, caller, number, ttl, pointer, done: Mutex::new(false) }
    }

    /// Changes a lease, and forgets it if `change` says so.
    fn change(&self, held: &Held, change: impl FnOnce(&mut Lease) -> bool) {
        let mut tools = self.tools.lock();
        let Some(callers) = tools.get_mut(&held.tool) else { return };
        let Some(leases) = callers.get_mut(&held.caller) else { return };
        let Some(at) = leases.iter().position(|lease| lease.number == held.number) else { return };
        leases[at].uses = leases[at].uses.saturating_sub(1);
        if !change(&mut leases[at]) {
            leases.swap_remove(at);
        }
        if leases.is_empty() {
            callers.remove(&held.caller);
        }
        if callers.is_empty() {
            tools.remove(&held.tool);
        }
    }
}

impl Held {
    /// Where the result carries the next cursor.
    pub fn pointer(&self) -> &Pointer {
        &self.pointer
    }

    /// The answer has come, with the next cursor or none.
    pub fn settle(&self, next: Option<CursorHash>, now: Instant) {
        if std::mem::replace(&mut *self.done.lock(), true) {
            return;
        }
        self.cursors.change(self, |lease| {
            let Some(next) = next else { return false };
            if lease.cursor != Some(next) {
                lease.before = lease.cursor.replace(next);
            }
            lease.until = now + self.ttl;
            true
        });
    }

    /// The call ended without a good answer: a place is given back, a cursor stays open to its time.
    pub fn release(&self) {
        if std::mem::replace(&mut *self.done.lock(), true) {
            return;
        }
        self.cursors.change(self, |lease| lease.cursor.is_some() || lease.uses > 0);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

fn sweep(callers: &mut HashMap<CallerId, Vec<Lease>>, now: Instant) {
    callers.retain(|_, leases| {
        leases.retain(|lease| lease.uses > 0 || lease.until > now);
        !leases.is_empty()
    });
}

fn full<'a>(by: Bound, limit: u32, leases: impl Iterator<Item = &'a Lease>) -> Result<(), Full> {
    let (mut open, mut free_at) = (0, None::<Instant>);
    for lease in leases {
        open += 1;
        if lease.uses == 0 {
            free_at = Some(free_at.map_or(lease.until, |first| first.min(lease.until)));
        }
    }
    if open < limit { Ok(()) } else { Err(Full { by, open, limit, free_at }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANN: CallerId = CallerId(1);
    const BOB: CallerId = CallerId(2);

    fn rule(per_caller: u32, total: u32) -> CursorRule {
        CursorRule {
            pointer: Pointer::parse("/next").unwrap(),
            argument: "cursor".into(),
            ttl: Duration::from_secs(60),
            per_caller,
            total,
            enforce: Enforce::On,
        }
    }

    fn tool() -> ToolName {
        ToolName { upstream: "db".into(), tool: "query".into() }
    }

    fn hash(text: &str) -> CursorHash {
        CursorHash::of(&format!("\"{text}\"")).unwrap()
    }

    struct Table(Arc<Cursors>, CursorRule, Instant);

    impl Table {
        fn of(per_caller: u32, total: u32) -> Table {
            Table(Arc::default(), rule(per_caller, total), Instant::now())
        }

        fn open(&self, caller: CallerId, at: u64) -> Result<Held, Full> {
            self.0.open(tool(), caller, &self.1, None, self.at(at))
        }

        fn follow(&self, caller: CallerId, cursor: &str, at: u64) -> Option<Held> {
            self.0.follow(tool(), caller, &self.1, hash(cursor), self.at(at))
        }

        fn at(&self, seconds: u64) -> Instant {
            self.2 + Duration::from_secs(seconds)
        }

        /// Opens a cursor of this text.
        fn opened(&self, caller: CallerId, cursor: &str, at: u64) {
            self.open(caller, at).unwrap().settle(Some(hash(cursor)), self.at(at));
        }
    }

    #[test]
    fn calls_in_flight_count_so_the_cap_is_exact() {
        let table = Table::of(2, 3);
        let (one, two) = (table.open(ANN, 0).unwrap(), table.open(ANN, 0).unwrap());
        let full = table.open(ANN, 0).unwrap_err();
        assert_eq!((full.by, full.open, full.limit, full.free_at), (Bound::CallerOfTool, 2, 2, None));
        one.settle(None, table.at(0));
        let three = table.open(ANN, 0).unwrap();
        let other = table.open(BOB, 0).unwrap();
        let full = table.open(BOB, 0).unwrap_err();
        assert_eq!((full.by, full.open), (Bound::Tool, 3));
        drop((two, three, other));
        assert_eq!(table.0.count(), 0);
    }

    #[test]
    fn a_lease_ends_with_the_last_page_or_at_its_time() {
        let table = Table::of(1, 1);
        table.opened(ANN, "a", 0);
        assert_eq!(table.open(ANN, 59).unwrap_err().free_at, Some(table.at(60)));
        table.follow(ANN, "a", 50).unwrap().settle(Some(hash("b")), table.at(50));
        assert_eq!(table.open(ANN, 109).unwrap_err().free_at, Some(table.at(110)), "a follow-up renews it");
        table.follow(ANN, "b", 100).unwrap().settle(None, table.at(100));
        assert!(table.follow(ANN, "b", 100).is_none());
        table.opened(ANN, "c", 100);
        assert!(table.follow(ANN, "c", 160).is_none(), "it has run out");
        assert!(table.open(ANN, 160).is_ok(), "served again when it says");
    }

    #[test]
    fn another_callers_cursor_is_like_one_that_never_was() {
        let table = Table::of(5, 10);
        table.opened(ANN, "a", 0);
        assert!(table.follow(BOB, "a", 0).is_none());
        assert!(table.follow(ANN, "A", 0).is_none());
        table.opened(BOB, "a", 0);
        table.follow(BOB, "a", 0).unwrap().settle(None, table.at(0));
        assert!(table.follow(ANN, "a", 0).is_some(), "each has its own of the same text");
    }

    #[test]
    fn a_follow_up_that_fails_leaves_the_cursor_open_and_one_in_flight_keeps_it() {
        let table = Table::of(5, 10);
        table.opened(ANN, "a", 0);
        drop(table.follow(ANN, "a", 0).unwrap());
        let held = table.follow(ANN, "a", 59).unwrap();
        assert!(table.follow(ANN, "a", 1000).is_some(), "not while it is in use");
        held.settle(Some(hash("b")), table.at(1000));
        assert!(table.follow(ANN, "a", 1001).is_some(), "the answer may have got lost");
        table.follow(ANN, "b", 1001).unwrap().settle(Some(hash("c")), table.at(1001));
        assert!(table.follow(ANN, "a", 1002).is_none());
    }

    #[test]
    fn cursors_of_one_text_are_counted_one_by_one() {
        let table = Table::of(5, 10);
        table.opened(ANN, "2", 0);
        table.opened(ANN, "2", 0);
        let (one, two) = (table.follow(ANN, "2", 0).unwrap(), table.follow(ANN, "2", 0).unwrap());
        assert_ne!(one.number, two.number, "one that nobody uses comes first");
        one.settle(None, table.at(0));
        two.settle(Some(hash("3")), table.at(0));
        assert_eq!(table.0.count(), 1);
    }

    #[test]
    fn a_caller_has_one_bound_over_all_tools() {
        let table = Table::of(5, 10);
        table.opened(ANN, "a", 0);
        let other = ToolName { upstream: "web".into(), tool: "search".into() };
        let full = table.0.open(other.clone(), ANN, &table.1, Some(1), table.at(1)).unwrap_err();
        assert_eq!((full.by, full.free_at), (Bound::Caller, Some(table.at(60))));
        assert!(table.0.open(other, BOB, &table.1, Some(1), table.at(1)).is_ok());
    }

    #[test]
    fn what_is_no_cursor_has_no_hash() {
        for none in ["null", "\"\"", "false"] {
            assert_eq!(CursorHash::of(none), None, "{none}");
        }
        assert_eq!(CursorHash::of("\"a\""), CursorHash::of("\"\\u0061\""));
        assert_ne!(CursorHash::of("1"), CursorHash::of("\"1\""));
    }

    proptest! {
        /// However calls come, end and fail, no bound is ever passed and nothing is left at the end.
        #[test]
        fn the_bounds_hold_and_everything_is_given_back(
            steps in prop::collection::vec((0u8..6, 0u32..3, 0usize..8, 0u64..40), 1..150),
        ) {
            let table = Table::of(3, 5);
            let (mut now, mut held) = (0, Vec::new());
            for (what, caller, which, pass) in steps {
                now += pass;
                let caller = CallerId(caller);
                match what {
                    0 | 1 => held.extend(table.open(caller, now).ok()),
                    2 => held.extend(table.follow(caller, &which.to_string(), now)),
                    _ if held.is_empty() => {}
                    3 => held.swap_remove(which % held.len()).settle(Some(hash(&which.to_string())), table.at(now)),
                    4 => held.swap_remove(which % held.len()).settle(None, table.at(now)),
                    _ => drop(held.swap_remove(which % held.len())),
                }
                prop_assert!(table.0.count() <= 5);
                let tools = table.0.tools.lock();
                prop_assert!(tools.values().flat_map(HashMap::values).all(|leases| leases.len() <= 3));
            }
            held.clear();
            drop(table.open(ANN, now + 61).unwrap());
            prop_assert_eq!(table.0.count(), 0);
        }
    }
}
