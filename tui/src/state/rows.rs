//! The rows of a list as they are looked at: filtered, in their order.

use super::{Filter, Followed, History, List, Model, Moment, Row, Sort, State, Which, taken};
use forebay_wire::{Call, CallState, Caller, Event, Lane, Upstream};
use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};

/// See the module's documentation.
#[derive(Clone, Debug)]
pub enum Rows<'a> {
    Upstreams(Vec<&'a Followed<Upstream>>),
    Calls(Vec<Row<'a>>),
    Callers(Vec<&'a Followed<Caller>>),
    /// Newest first.
    Events(Vec<&'a Event>),
    /// So many lines, which have no names.
    Lines(usize),
}

impl Rows<'_> {
    pub fn len(&self) -> usize {
        match self {
            Rows::Upstreams(rows) => rows.len(),
            Rows::Calls(rows) => rows.len(),
            Rows::Callers(rows) => rows.len(),
            Rows::Events(rows) => rows.len(),
            Rows::Lines(count) => *count,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name by which a row is selected.
    pub fn name(&self, index: usize) -> Option<Cow<'_, str>> {
        match self {
            Rows::Upstreams(rows) => rows.get(index).map(|row| row.now.name.as_str().into()),
            Rows::Calls(rows) => rows.get(index).map(|row| row.call.id.as_str().into()),
            Rows::Callers(rows) => rows.get(index).map(|row| row.now.name.as_str().into()),
            Rows::Events(rows) => rows.get(index).map(|event| event.number.to_string().into()),
            Rows::Lines(count) => (index < *count).then(|| index.to_string().into()),
        }
    }

    /// Where the selection stands.
    pub fn index(&self, list: &List) -> Option<usize> {
        match self {
            Rows::Upstreams(rows) => list.index(rows.iter().map(|row| &*row.now.name)),
            Rows::Calls(rows) => list.index(rows.iter().map(|row| &*row.call.id)),
            Rows::Callers(rows) => list.index(rows.iter().map(|row| &*row.now.name)),
            Rows::Events(rows) => {
                let wanted: Option<u64> = list.selected.as_deref().and_then(|number| number.parse().ok());
                let found = wanted.and_then(|wanted| rows.iter().position(|event| event.number == wanted));
                found.or_else(|| {
                    let at = if list.selected.is_some() { list.at } else { 0 };
                    rows.len().checked_sub(1).map(|last| at.min(last))
                })
            }
            Rows::Lines(count) => count.checked_sub(1).map(|last| list.at.min(last)),
        }
    }
}

impl State {
    /// The rows of a list, as they are to be drawn.
    pub fn rows(&self, which: Which, now: Moment) -> Rows<'_> {
        let model = self.shown();
        let clock = self.clock(now);
        let list = self.lists.get(which);
        match which {
            Which::Upstreams => Rows::Upstreams(upstreams(model, list, clock)),
            Which::Callers => Rows::Callers(callers(model, list, clock)),
            Which::Events => Rows::Events(self.events(model, list)),
            Which::Requests | Which::Queue | Which::OfCaller => Rows::Calls(calls(model, list, clock)),
            Which::Lines => Rows::Lines(self.line_count(model)),
        }
    }

    fn events<'a>(&self, model: &'a Model, list: &List) -> Vec<&'a Event> {
        let filter = Filter::of(&list.filter);
        let takes = |event: &&Event| {
            let or_none = |text: &Option<String>| text.clone().unwrap_or_default();
            event.level >= self.level
                && (!filter.has_words()
                    || filter.takes([
                        &event.kind,
                        &event.text,
                        &or_none(&event.upstream),
                        &or_none(&event.caller),
                        &or_none(&event.call),
                        &or_none(&event.by),
                    ]))
        };
        model.events.iter().rev().filter(takes).collect()
    }

    fn line_count(&self, model: &Model) -> usize {
        match self.screen() {
            super::Screen::Stderr(name) => {
                model.stderr.as_ref().filter(|told| told.about == *name).map_or(0, |told| told.what.len())
            }
            super::Screen::Request(id) => {
                model.call.as_ref().filter(|told| told.about == *id).map_or(0, |told| told.what.timeline.len())
            }
            _ => 0,
        }
    }
}

fn upstreams<'a>(model: &'a Model, list: &List, clock: Moment) -> Vec<&'a Followed<Upstream>> {
    let filter = Filter::of(&list.filter);
    let takes = |row: &&Followed<Upstream>| filter.takes([&row.now.name, row.now.state.name(), row.now.kind.name()]);
    let rows = model.upstreams.values().filter(takes);
    let errors = |row: &Followed<Upstream>| error_rate(&row.past);
    match list.sort {
        Sort::Name => ordered(rows, list, |_| 0),
        Sort::State => ordered(rows, list, |row| u64::from(!row.now.state.is_degraded())),
        Sort::Run => ordered(rows, list, |row| taken(&row.now)),
        Sort::Wait => ordered(rows, list, |row| u64::from(row.now.queued)),
        Sort::Oldest => ordered(rows, list, |row| Model::oldest_ms(row, clock).unwrap_or(0)),
        Sort::P50 => ordered(rows, list, |row| row.now.p50_ms.unwrap_or(0)),
        Sort::P95 => ordered(rows, list, |row| row.now.p95_ms.unwrap_or(0)),
        Sort::Rate => ordered(rows, list, |row| row.past.per_minute(|sample| sample.offered)),
        Sort::Errors => ordered(rows, list, errors),
        Sort::Shed => ordered(rows, list, |row| row.past.gain(|sample| sample.shed, 60)),
        // Where none waits, what refuses, what is down and what is busy come before what rests.
        _ => ordered(rows, list, |row| {
            (
                Model::pressure(row, clock),
                row.past.gain(|sample| sample.shed, 60) > 0,
                row.now.state.is_degraded(),
                taken(&row.now),
            )
        }),
    }
}

fn callers<'a>(model: &'a Model, list: &List, _clock: Moment) -> Vec<&'a Followed<Caller>> {
    let filter = Filter::of(&list.filter);
    let takes = |row: &&Followed<Caller>| filter.takes([&row.now.name, &row.now.identity]);
    let rows = model.callers.values().filter(takes);
    match list.sort {
        Sort::Name => ordered(rows, list, |_| 0),
        Sort::Run => ordered(rows, list, |row| u64::from(row.now.running)),
        Sort::Rate => ordered(rows, list, |row| row.past.per_minute(|sample| sample.offered)),
        Sort::Errors => ordered(rows, list, |row| error_rate(&row.past)),
        Sort::Shed => ordered(rows, list, |row| row.past.gain(|sample| sample.shed, 60)),
        Sort::Cancelled => ordered(rows, list, |row| row.now.cancelled),
        Sort::Last => ordered(rows, list, |row| row.now.last_ms.unwrap_or(u64::MAX)),
        _ => ordered(rows, list, |row| (row.now.queued, row.now.running)),
    }
}

/// Orders by a key, then by name; the direction is that of the key.
fn ordered<'a, T: Named + 'a, K: Ord>(
    rows: impl Iterator<Item = &'a Followed<T>>,
    list: &List,
    key: impl Fn(&Followed<T>) -> K,
) -> Vec<&'a Followed<T>> {
    let mut keyed: Vec<(K, &Followed<T>)> = rows.map(|row| (key(row), row)).collect();
    let by_name = list.sort == Sort::Name;
    keyed.sort_by(|(a, row), (b, other)| {
        let names = row.now.name().cmp(other.now.name());
        match (list.descending, by_name) {
            (false, _) => a.cmp(b).then(names),
            (true, false) => b.cmp(a).then(names),
            (true, true) => names.reverse(),
        }
    });
    keyed.into_iter().map(|(_, row)| row).collect()
}

trait Named {
    fn name(&self) -> &str;
}

impl Named for Upstream {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Named for Caller {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Of the calls that ended in the last five minutes, how many in ten thousand failed.
pub(crate) fn error_rate(past: &History) -> u64 {
    rate(past, |sample| sample.failed)
}

fn rate(past: &History, counter: fn(&super::Sample) -> u32) -> u64 {
    let finished = past.gain(|sample| sample.finished, 300);
    (past.gain(counter, 300) * 10_000).checked_div(finished).unwrap_or(0)
}

type Order = Box<dyn Fn(&Row<'_>, &Row<'_>) -> Ordering>;

fn calls<'a>(model: &'a Model, list: &List, clock: Moment) -> Vec<Row<'a>> {
    let filter = Filter::of(&list.filter);
    let mut rows = model.calls.rows();
    if filter.has_words() {
        rows.retain(|row| {
            let call = row.call;
            filter.takes([&call.id, &call.caller, &call.upstream, &call.method, call.tool.as_deref().unwrap_or("")])
        });
    }
    let by = |order: fn(&Row<'_>, &Row<'_>) -> Ordering| order;
    let order: Order = match list.sort {
        Sort::State => Box::new(by(|a, b| rank(a.call.state).cmp(&rank(b.call.state)))),
        Sort::Lane => Box::new(by(|a, b| lane(a.call.lane).cmp(&lane(b.call.lane)))),
        Sort::Caller => Box::new(by(|a, b| a.call.caller.cmp(&b.call.caller))),
        Sort::Upstream => Box::new(by(|a, b| a.call.upstream.cmp(&b.call.upstream))),
        Sort::Tool => Box::new(by(|a, b| aim(a.call).cmp(aim(b.call)))),
        Sort::Age => Box::new(move |a, b| a.age_ms(clock).cmp(&b.age_ms(clock))),
        Sort::Waited => Box::new(move |a, b| a.queued_ms(clock).cmp(&b.queued_ms(clock))),
        Sort::Left => Box::new(move |a, b| left(a, clock).cmp(&left(b, clock))),
        // Holders of slots first, the longest first; then the queue as the daemon has it.
        _ => Box::new(move |a, b| {
            let key = |row: &Row<'_>| match row.call.state {
                _ if row.gone => (2, Reverse(0)),
                CallState::Running | CallState::Lingering => (0, Reverse(row.running_ms(clock))),
                CallState::Queued | CallState::Finished | CallState::Unknown => (1, Reverse(0)),
            };
            key(a).cmp(&key(b))
        }),
    };
    rows.sort_by(|a, b| if list.descending { order(b, a) } else { order(a, b) });
    rows
}

/// What a call is aimed at.
pub(crate) fn aim(call: &Call) -> &str {
    call.tool.as_deref().unwrap_or(&call.method)
}

fn left(row: &Row<'_>, clock: Moment) -> u64 {
    row.left_ms(clock).map_or(u64::MAX, |(left, _)| left)
}

fn rank(state: CallState) -> u8 {
    match state {
        CallState::Running => 0,
        CallState::Lingering => 1,
        CallState::Queued => 2,
        CallState::Finished => 3,
        CallState::Unknown => 4,
    }
}

fn lane(lane: Lane) -> u8 {
    match lane {
        Lane::High => 0,
        Lane::Normal => 1,
        Lane::Low => 2,
        Lane::Unknown => 3,
    }
}
