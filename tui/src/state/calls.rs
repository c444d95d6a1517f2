//! The rows of calls that are on the screen: loaded in pages as far as the person has scrolled, the pages in
//! sight read again while they are looked at. Never a copy of the whole queue.

use super::Moment;
use forebay_wire::{Call, CallState, CallsPage};
use std::collections::HashSet;
use std::fmt::Write as _;

/// Rows of one page.
pub(super) const PAGE: usize = 250;
/// Pages that are kept at most; further down, only a filter helps.
pub(super) const MOST_PAGES: usize = 64;
/// How old a page in sight may grow.
const FRESH_MS: u64 = 450;
/// How long an answer is waited for before the page is asked for again.
const LOST_MS: u64 = 12_000;
/// How long a row that has left stays to be seen.
pub(super) const FADES_MS: u64 = 3_000;
/// A row that was there for less is let go at once: what comes and goes by the hundred is only noise.
const WORTH_SEEING_MS: u64 = 2_000;
/// Rows that have left and are shown at most.
const MOST_FADING: usize = 12;

/// Which calls are listed. What is absent does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pub upstream: Option<String>,
    pub caller: Option<String>,
    pub tool: Option<String>,
    pub state: Option<CallState>,
    pub older_than_ms: Option<u64>,
}

impl Query {
    /// As the query part of a path.
    pub fn path(&self, cursor: Option<&str>) -> String {
        let mut path = format!("/v1/calls?limit={PAGE}");
        let older = self.older_than_ms.map(|ms| format!("{ms}ms"));
        let filters = [
            ("upstream", self.upstream.as_deref()),
            ("caller", self.caller.as_deref()),
            ("tool", self.tool.as_deref()),
            ("state", self.state.map(CallState::name)),
            ("older_than", older.as_deref()),
            ("cursor", cursor),
        ];
        for (name, value) in filters {
            if let Some(value) = value {
                let _ = write!(path, "&{name}={}", crate::client::escaped(value));
            }
        }
        path
    }
}

/// A page that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Of the listing that it belongs to; an answer to an older one is passed over.
    pub generation: u64,
    pub index: usize,
    pub query: Query,
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Page {
    cursor: Option<String>,
    rows: Vec<Call>,
    /// When it was read. `None`: not yet.
    at: Option<Moment>,
    /// Since when an answer is waited for.
    asked: Option<Moment>,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    query: Option<Query>,
    generation: u64,
    pages: Vec<Page>,
    /// Upstreams whose calls are missing in the page read last.
    pub missing: Vec<String>,
    /// Rows that have left, and when.
    fading: Vec<(Call, Moment)>,
}

/// A row and the moment of its figures.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub call: &'a Call,
    pub at: Moment,
    /// It is no longer listed.
    pub gone: bool,
}

impl Row<'_> {
    /// How much time has passed since its figures were true.
    fn passed(&self, now: Moment) -> u64 {
        if self.gone { 0 } else { now.since(self.at) }
    }

    pub fn age_ms(&self, now: Moment) -> u64 {
        self.call.age_ms + self.passed(now)
    }

    pub fn queued_ms(&self, now: Moment) -> u64 {
        self.call.queued_ms + if self.call.state == CallState::Queued { self.passed(now) } else { 0 }
    }

    pub fn running_ms(&self, now: Moment) -> u64 {
        let runs = matches!(self.call.state, CallState::Running | CallState::Lingering);
        self.call.running_ms + if runs { self.passed(now) } else { 0 }
    }

    /// Time left, and the whole of which it is left.
    pub fn left_ms(&self, now: Moment) -> Option<(u64, u64)> {
        let then = self.call.deadline_ms?;
        let whole = match self.call.state {
            CallState::Queued => self.call.queued_ms + then,
            CallState::Running => self.call.running_ms + then,
            // Of the grace only what is left is told.
            CallState::Lingering => then.max(5_000),
            CallState::Finished | CallState::Unknown => return None,
        };
        Some((then.saturating_sub(self.passed(now)), whole))
    }
}

impl Calls {
    pub fn query(&self) -> Option<&Query> {
        self.query.as_ref()
    }

    /// Lists something else from now on.
    pub fn list(&mut self, query: Option<Query>) {
        if self.query != query {
            self.query = query;
            self.forget();
        }
    }

    /// Starts from nothing, since what was listed is void.
    pub fn forget(&mut self) {
        self.generation += 1;
        self.pages.clear();
        self.fading.clear();
        self.missing.clear();
        if self.query.is_some() {
            self.pages.push(Page::default());
        }
    }

    /// The pages that should be read now. `first..last` are the rows in sight, counted as they were loaded;
    /// with `scattered`, rows in sight come from anywhere, since they are sorted or filtered here.
    pub fn wanted(&mut self, first: usize, last: usize, scattered: bool, now: Moment) -> Vec<Wanted> {
        let Some(query) = self.query.clone() else { return Vec::new() };
        let mut wanted = Vec::new();
        let mut start = 0;
        let oldest = (0..self.pages.len()).min_by_key(|index| self.pages[*index].at);
        for (index, page) in self.pages.iter_mut().enumerate() {
            let end = start + page.rows.len();
            let in_sight = start <= last && end > first;
            let stale = page.at.is_some_and(|at| now.since(at) >= FRESH_MS);
            let asks = match page.at {
                // The next page is read before its first row is in sight.
                None => start <= last + PAGE / 4,
                Some(_) if scattered => stale && oldest == Some(index),
                Some(_) => stale && (in_sight || (index == 0 && page.rows.is_empty())),
            };
            let waits = page.asked.is_some_and(|since| now.since(since) < LOST_MS);
            if asks && !waits {
                page.asked = Some(now);
                let (cursor, generation) = (page.cursor.clone(), self.generation);
                wanted.push(Wanted { generation, index, query: query.clone(), cursor });
            }
            start = end;
        }
        wanted
    }

    /// Takes in a page that was read.
    pub fn fold(&mut self, wanted: &Wanted, page: CallsPage, now: Moment) {
        if wanted.generation != self.generation || wanted.index >= self.pages.len() {
            return;
        }
        let CallsPage { calls, next, missing } = page;
        let old = std::mem::take(&mut self.pages[wanted.index].rows);
        self.pages[wanted.index].rows = calls;
        self.pages[wanted.index].at = Some(now);
        self.pages[wanted.index].asked = None;
        self.missing = missing;
        let following = wanted.index + 1;
        match next.filter(|next| Some(next) != wanted.cursor.as_ref()) {
            None => self.pages.truncate(following),
            Some(cursor) if following < self.pages.len() => self.pages[following].cursor = Some(cursor),
            Some(cursor) if following < MOST_PAGES => {
                self.pages.push(Page { cursor: Some(cursor), ..Page::default() });
            }
            Some(_) => {}
        }
        self.fade(old, now);
    }

    /// Rows that are in no page any more stay for a moment, so that one sees them leave.
    fn fade(&mut self, old: Vec<Call>, now: Moment) {
        let here: HashSet<&str> = self.pages.iter().flat_map(|page| &page.rows).map(|call| &*call.id).collect();
        self.fading.retain(|(call, since)| now.since(*since) < FADES_MS && !here.contains(&*call.id));
        // A call that moved past the end of what is loaded has not left.
        let complete = self.is_complete();
        let left: Vec<Call> = old
            .into_iter()
            .filter(|call| {
                call.age_ms >= WORTH_SEEING_MS
                    && !here.contains(&*call.id)
                    && (complete || call.state != CallState::Queued)
            })
            .collect();
        for call in left {
            if self.fading.len() < MOST_FADING && !self.fading.iter().any(|(there, _)| there.id == call.id) {
                self.fading.push((call, now));
            }
        }
    }

    /// Takes rows away whose time to be seen is over.
    pub fn age(&mut self, now: Moment) {
        self.fading.retain(|(_, since)| now.since(*since) < FADES_MS);
    }

    /// An answer did not come; the page is asked for again.
    pub fn failed(&mut self, wanted: &Wanted) {
        if wanted.generation == self.generation
            && let Some(page) = self.pages.get_mut(wanted.index)
        {
            page.asked = None;
        }
    }

    /// Every row that is loaded, in the daemon's order, each id once; behind them those that have left.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let mut seen = HashSet::with_capacity(self.loaded());
        let loaded = self.pages.iter().flat_map(|page| {
            let at = page.at.unwrap_or_default();
            page.rows.iter().map(move |call| Row { call, at, gone: false })
        });
        let gone = self.fading.iter().map(|(call, since)| Row { call, at: *since, gone: true });
        loaded.chain(gone).filter(|row| seen.insert(&*row.call.id)).collect()
    }

    pub fn loaded(&self) -> usize {
        self.pages.iter().map(|page| page.rows.len()).sum()
    }

    /// The first page has been read.
    pub fn has_answer(&self) -> bool {
        self.pages.first().is_some_and(|page| page.at.is_some())
    }

    /// Nothing follows what is loaded.
    pub fn is_complete(&self) -> bool {
        self.pages.iter().all(|page| page.at.is_some()) && self.pages.len() < MOST_PAGES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(ids: std::ops::Range<usize>, next: Option<&str>) -> CallsPage {
        let calls = ids.map(|id| Call { id: format!("k-{id}"), age_ms: 3_000, ..Call::default() }).collect();
        CallsPage { calls, next: next.map(Into::into), missing: Vec::new() }
    }

    fn listing() -> Calls {
        let mut calls = Calls::default();
        calls.list(Some(Query::default()));
        calls
    }

    #[test]
    fn the_first_page_is_read_at_once_and_no_other_until_it_is_scrolled_to() {
        let mut calls = listing();
        let first = calls.wanted(0, 20, false, Moment(0));
        assert_eq!(first.iter().map(|wanted| wanted.index).collect::<Vec<_>>(), [0]);
        assert!(calls.wanted(0, 20, false, Moment(100)).is_empty(), "asked twice");
        calls.fold(&first[0], page(0..PAGE, Some("250.a")), Moment(120));
        assert!(calls.wanted(0, 20, false, Moment(200)).is_empty(), "the next page is not in sight");
        let second = calls.wanted(180, 200, false, Moment(300));
        assert_eq!(second[0].cursor.as_deref(), Some("250.a"));
        calls.fold(&second[0], page(PAGE..PAGE + 10, None), Moment(320));
        assert_eq!(calls.loaded(), PAGE + 10);
        assert!(calls.is_complete());
    }

    #[test]
    fn only_pages_in_sight_are_read_again() {
        let mut calls = listing();
        for index in 0..3 {
            let wanted = calls.wanted(index * PAGE, index * PAGE + 20, false, Moment(index as u64)).pop().unwrap();
            calls.fold(&wanted, page(index * PAGE..(index + 1) * PAGE, Some(&format!("c{index}"))), Moment(1));
        }
        let again = calls.wanted(PAGE + 5, PAGE + 25, false, Moment(1000));
        assert_eq!(again.iter().map(|wanted| wanted.index).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn an_answer_to_another_listing_is_passed_over() {
        let mut calls = listing();
        let old = calls.wanted(0, 20, false, Moment(0)).remove(0);
        calls.list(Some(Query { caller: Some("ann".into()), ..Query::default() }));
        calls.fold(&old, page(0..5, None), Moment(10));
        assert_eq!(calls.loaded(), 0);
    }

    #[test]
    fn a_row_that_left_is_seen_for_three_seconds() {
        let mut calls = listing();
        let wanted = calls.wanted(0, 20, false, Moment(0)).remove(0);
        calls.fold(&wanted, page(0..3, None), Moment(10));
        calls.fold(&wanted, page(1..3, None), Moment(500));
        let gone: Vec<_> = calls.rows().iter().filter(|row| row.gone).map(|row| row.call.id.clone()).collect();
        assert_eq!(gone, ["k-0"]);
        calls.age(Moment(500 + FADES_MS));
        assert!(calls.rows().iter().all(|row| !row.gone));
    }

    #[test]
    fn a_call_that_is_listed_twice_is_one_row() {
        let mut calls = listing();
        let wanted = calls.wanted(0, 20, false, Moment(0)).remove(0);
        calls.fold(&wanted, page(0..PAGE, Some("n")), Moment(10));
        let wanted = calls.wanted(PAGE, PAGE + 1, false, Moment(20)).remove(0);
        calls.fold(&wanted, page(PAGE - 5..PAGE + 5, None), Moment(30));
        assert_eq!(calls.rows().len(), PAGE + 5);
    }

    #[test]
    fn a_cursor_that_stands_still_is_the_end() {
        let mut calls = listing();
        let wanted = calls.wanted(0, 20, false, Moment(0)).remove(0);
        calls.fold(&wanted, page(0..PAGE, Some("n")), Moment(10));
        let wanted = calls.wanted(PAGE, PAGE + 1, false, Moment(20)).remove(0);
        calls.fold(&wanted, page(PAGE..PAGE + 1, Some("n")), Moment(30));
        assert!(calls.is_complete());
    }

    #[test]
    fn time_goes_on_between_two_readings() {
        let call =
            Call { state: CallState::Queued, age_ms: 1000, queued_ms: 1000, deadline_ms: Some(500), ..Call::default() };
        let row = Row { call: &call, at: Moment(100), gone: false };
        assert_eq!(row.age_ms(Moment(400)), 1300);
        assert_eq!(row.left_ms(Moment(400)), Some((200, 1500)));
        assert_eq!(row.left_ms(Moment(9000)), Some((0, 1500)));
    }

    #[test]
    fn filters_are_escaped() {
        let query = Query {
            caller: Some("a&b".into()),
            state: Some(CallState::Queued),
            older_than_ms: Some(1500),
            ..Query::default()
        };
        assert_eq!(
            query.path(Some("250.x y")),
            "/v1/calls?limit=250&caller=a%26b&state=queued&older_than=1500ms&cursor=250.x%20y"
        );
    }
}
