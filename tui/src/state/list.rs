//! How a list is looked at: what is selected (by name or id, never by place), its order, its filter.

use crate::state::Query;
use forebay_wire::CallState;

/// By what rows are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sort {
    /// As the daemon lists them: holders of slots first, then the queue in its own order.
    Queue,
    Pressure,
    Name,
    State,
    Run,
    Wait,
    Oldest,
    P50,
    P95,
    Rate,
    Errors,
    Shed,
    Caller,
    Upstream,
    Tool,
    Lane,
    Age,
    Waited,
    Left,
    Share,
    Cancelled,
    Last,
}

impl Sort {
    pub fn name(self) -> &'static str {
        match self {
            Sort::Queue => "queue",
            Sort::Pressure => "PRESSURE",
            Sort::Name => "NAME",
            Sort::State => "STATE",
            Sort::Run => "RUN",
            Sort::Wait => "WAIT",
            Sort::Oldest => "OLDEST",
            Sort::P50 => "P50",
            Sort::P95 => "P95",
            Sort::Rate => "REQ/M",
            Sort::Errors => "ERR",
            Sort::Shed => "SHED",
            Sort::Caller => "CALLER",
            Sort::Upstream => "UPSTREAM",
            Sort::Tool => "TOOL",
            Sort::Lane => "PRI",
            Sort::Age => "AGE",
            Sort::Waited => "WAITED",
            Sort::Left => "DEADLINE",
            Sort::Share => "SHARE",
            Sort::Cancelled => "CXL",
            Sort::Last => "LAST",
        }
    }

    /// Whether the larger comes first when one starts to sort by it.
    pub fn starts_descending(self) -> bool {
        match self {
            Sort::Queue
            | Sort::Name
            | Sort::State
            | Sort::Caller
            | Sort::Upstream
            | Sort::Tool
            | Sort::Lane
            | Sort::Left
            | Sort::Last => false,
            Sort::Pressure
            | Sort::Run
            | Sort::Wait
            | Sort::Oldest
            | Sort::P50
            | Sort::P95
            | Sort::Rate
            | Sort::Errors
            | Sort::Shed
            | Sort::Age
            | Sort::Waited
            | Sort::Share
            | Sort::Cancelled => true,
        }
    }
}

/// The orders of the overview, as `<` and `>` go through them.
pub const OF_UPSTREAMS: &[Sort] = &[
    Sort::Pressure,
    Sort::Name,
    Sort::State,
    Sort::Run,
    Sort::Wait,
    Sort::Oldest,
    Sort::P50,
    Sort::P95,
    Sort::Rate,
    Sort::Errors,
    Sort::Shed,
];
pub const OF_CALLS: &[Sort] = &[
    Sort::Queue,
    Sort::State,
    Sort::Lane,
    Sort::Caller,
    Sort::Upstream,
    Sort::Tool,
    Sort::Age,
    Sort::Waited,
    Sort::Left,
];
pub const OF_CALLERS: &[Sort] = &[
    Sort::Wait,
    Sort::Name,
    Sort::Run,
    Sort::Share,
    Sort::Rate,
    Sort::Errors,
    Sort::Shed,
    Sort::Cancelled,
    Sort::Last,
];

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct List {
    /// The name or id that is selected. `None`: whatever comes first.
    pub selected: Option<String>,
    /// Where it was last seen; its neighbour there takes over when it leaves.
    pub at: usize,
    /// The first row that is drawn.
    pub top: usize,
    pub sort: Sort,
    pub descending: bool,
    pub filter: String,
}

impl List {
    pub fn new(sort: Sort) -> Self {
        List { selected: None, at: 0, top: 0, sort, descending: sort.starts_descending(), filter: String::new() }
    }

    /// Where the selection stands among rows of these names.
    pub fn index<'a>(&self, names: impl ExactSizeIterator<Item = &'a str> + Clone) -> Option<usize> {
        let count = names.len();
        if count == 0 {
            return None;
        }
        let found = self.selected.as_deref().and_then(|selected| names.clone().position(|name| name == selected));
        Some(match (found, &self.selected) {
            (Some(index), _) => index,
            (None, Some(_)) => self.at.min(count - 1),
            (None, None) => 0,
        })
    }

    /// The first row to draw, so that the selected one is in sight.
    pub fn first_row(&self, index: Option<usize>, count: usize, height: usize) -> usize {
        let top = self.top.min(count.saturating_sub(height));
        match index {
            Some(index) if index < top => index,
            Some(index) if height > 0 && index >= top + height => index + 1 - height,
            _ => top,
        }
    }

    /// Sorts by another column: the next of `sorts` in a direction.
    pub fn sort_by(&mut self, sorts: &[Sort], forward: bool) {
        let at = sorts.iter().position(|sort| *sort == self.sort).unwrap_or(0);
        let step = if forward { 1 } else { sorts.len() - 1 };
        self.sort_on(sorts[(at + step) % sorts.len()]);
    }

    /// Sorts by a column, or the other way round if it is that already.
    pub fn sort_on(&mut self, sort: Sort) {
        self.descending = if self.sort == sort { !self.descending } else { sort.starts_descending() };
        self.sort = sort;
    }
}

/// A filter as it is typed: words that must occur (`!word`: must not), and for calls `caller:X`, `upstream:X`,
/// `tool:X`, `state:X`, `older:30s`, which the daemon looks after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    words: Vec<(bool, String)>,
    pub query: Query,
}

impl Filter {
    pub fn of(text: &str) -> Self {
        let mut filter = Filter::default();
        for word in text.split_whitespace() {
            let value = |name: &str| word.strip_prefix(name).filter(|rest| !rest.is_empty());
            if let Some(caller) = value("caller:") {
                filter.query.caller = Some(caller.into());
            } else if let Some(upstream) = value("upstream:") {
                filter.query.upstream = Some(upstream.into());
            } else if let Some(tool) = value("tool:") {
                filter.query.tool = Some(tool.into());
            } else if let Some(state) =
                value("state:").and_then(|name| CallState::LISTED.into_iter().find(|state| state.name() == name))
            {
                filter.query.state = Some(state);
            } else if let Some(older) = value("older:").and_then(super::form::duration_ms) {
                filter.query.older_than_ms = Some(older);
            } else {
                let (unwanted, word) = word.strip_prefix('!').map_or((false, word), |word| (true, word));
                if !word.is_empty() {
                    filter.words.push((unwanted, word.to_lowercase()));
                }
            }
        }
        filter
    }

    /// Whether rows are narrowed here, beyond what the daemon does.
    pub fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// Whether a row with these texts stays.
    pub fn takes<const N: usize>(&self, texts: [&str; N]) -> bool {
        self.words.iter().all(|(unwanted, word)| {
            let found = texts.iter().any(|text| contains(text, word));
            found != *unwanted
        })
    }
}

fn contains(text: &str, lower_word: &str) -> bool {
    text.contains(lower_word) || text.to_lowercase().contains(lower_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_follows_its_row_and_its_neighbour_takes_over() {
        let mut list = List::new(Sort::Name);
        let index = |list: &List, names: &[&str]| list.index(names.iter().copied());
        assert_eq!(index(&list, &["a", "b"]), Some(0));
        list.selected = Some("b".into());
        list.at = 1;
        assert_eq!(index(&list, &["b", "a"]), Some(0));
        assert_eq!(index(&list, &["a", "c"]), Some(1));
        assert_eq!(index(&list, &["a"]), Some(0));
        assert_eq!(index(&list, &[]), None);
    }

    #[test]
    fn the_selected_row_is_always_in_sight() {
        let list = List { top: 10, ..List::new(Sort::Name) };
        assert_eq!(list.first_row(Some(3), 100, 5), 3);
        assert_eq!(list.first_row(Some(20), 100, 5), 16);
        assert_eq!(list.first_row(Some(12), 100, 5), 10);
        assert_eq!(list.first_row(Some(2), 3, 5), 0);
        assert_eq!(list.first_row(Some(0), 1, 0), 0);
        assert_eq!(list.first_row(None, 0, 0), 0);
    }

    #[test]
    fn sorting_goes_round_and_starts_with_the_worst() {
        let mut list = List::new(Sort::Pressure);
        assert!(list.descending);
        list.sort_by(OF_UPSTREAMS, false);
        assert_eq!(list.sort, Sort::Shed);
        list.sort_by(OF_UPSTREAMS, true);
        assert_eq!((list.sort, list.descending), (Sort::Pressure, true));
        list.sort_on(Sort::Pressure);
        assert!(!list.descending);
    }

    #[test]
    fn a_filter_has_words_for_here_and_fields_for_the_daemon() {
        let filter = Filter::of("caller:ci-bot Query !export state:queued older:30s");
        assert_eq!(filter.query.caller.as_deref(), Some("ci-bot"));
        assert_eq!(filter.query.state, Some(CallState::Queued));
        assert_eq!(filter.query.older_than_ms, Some(30_000));
        assert!(filter.takes(["k-1", "QUERY"]));
        assert!(!filter.takes(["k-1", "query_export"]));
        assert!(!filter.takes(["k-1", "list"]));
        assert!(Filter::of("state:nonsense").has_words(), "what is no field is a word, so that a typing error shows");
        assert!(Filter::of(" ! ").takes([""]));
    }
}
