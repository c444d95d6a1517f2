//! What happens on each event: a pure step from state and event to the state after it and the effects wanted.
//! No clock, no I/O; the loop in `app` has both.

mod act;
mod hear;
mod steer;
#[cfg(test)]
mod tests;

use crate::connection::{Ask, Heard};
use crate::input::Action;
use crate::state::{Folded, Listing, Moment, NOTICE_MS, Notice, Overlay, Screen, State, Which};

/// What has happened.
#[derive(Debug)]
pub enum Event {
    Act(Action),
    Heard(Heard),
    /// An effect has something to say.
    Told {
        text: String,
        bad: bool,
    },
    /// Time has passed.
    Tick,
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Ask(Ask),
    /// Put it on the person's clipboard.
    Copy(String),
    /// Write lines to a new file of that name in the working directory.
    Write {
        name: String,
        text: String,
    },
    /// Begin the stream again.
    Reconnect,
    Redraw,
    Suspend,
    Quit,
}

/// See the module's documentation.
pub fn update(state: &mut State, event: Event, now: Moment) -> Vec<Effect> {
    let mut effects = match event {
        Event::Act(action) => {
            state.changed = true;
            act::act(state, action, now)
        }
        Event::Heard(heard) => hear::hear(state, heard, now),
        Event::Told { text, bad } => {
            tell(state, text, bad, now);
            Vec::new()
        }
        Event::Tick => tick(state, now),
    };
    settle(state, now);
    effects.extend(poll(state, now));
    effects
}

/// Says a sentence at the foot.
fn tell(state: &mut State, text: impl Into<String>, bad: bool, now: Moment) {
    state.notice = Some(Notice { text: text.into(), bad, at: now });
    state.changed = true;
}

fn tick(state: &mut State, now: Moment) -> Vec<Effect> {
    if state.notice.as_ref().is_some_and(|notice| now.since(notice.at) >= NOTICE_MS) {
        state.notice = None;
        state.changed = true;
    }
    if state.is_live() {
        state.model.sample(now);
        state.model.calls.age(now);
    }
    // Ages and countdowns go on, or the time until the next attempt does.
    if state.frozen.is_none() {
        state.changed = true;
    }
    Vec::new()
}

/// Keeps selections on their rows, or on the neighbour of a row that left.
fn settle(state: &mut State, now: Moment) {
    let follow = state.follow && state.screen() == &Screen::Events;
    for which in [state.active(), Which::Upstreams] {
        let rows = state.rows(which, now);
        let list = state.lists.get(which);
        let (count, index) = (rows.len(), rows.index(list));
        let height = state.drawn.height(which);
        let name = index.and_then(|index| rows.name(index)).map(|name| name.into_owned());
        let top = list.first_row(index, count, height);
        let list = state.lists.get_mut(which);
        if which == Which::Events && follow {
            (list.selected, list.at, list.top) = (None, 0, 0);
            continue;
        }
        if let Some(index) = index {
            list.at = index;
            list.top = top;
            if list.selected.is_some() {
                list.selected = name;
            }
        }
    }
}

/// Asks for what is looked at: rows in sight about twice a second, what surrounds them once.
fn poll(state: &mut State, now: Moment) -> Vec<Effect> {
    let mut asks = Vec::new();
    if !state.is_live() || state.frozen.is_some() {
        return Vec::new();
    }
    let listing = state.listing(now);
    if listing != Listing::Keep {
        let query = match listing {
            Listing::Of(query) => Some(query),
            Listing::Nothing | Listing::Keep => None,
        };
        if state.model.calls.query() != query.as_ref() {
            state.model.calls.list(query);
        }
        let which = match state.screen() {
            Screen::Requests => Which::Requests,
            Screen::OfCaller(_) => Which::OfCaller,
            Screen::Upstreams | Screen::Upstream(_) | Screen::Callers | Screen::Events => Which::Queue,
            Screen::Request(_) | Screen::Stderr(_) => Which::Lines,
        };
        let list = state.lists.get(which);
        let height = state.drawn.height(which);
        let scattered = list.sort != crate::state::Sort::Queue
            || list.descending
            || crate::state::Filter::of(&list.filter).has_words();
        let mut last = list.top + height;
        if scattered {
            // What is in sight may come from any page, and what is missing from those not loaded yet.
            let shown = state.rows(which, now).len();
            last = if shown <= last { state.model.calls.loaded() } else { 0 };
        }
        let top = state.lists.get(which).top;
        let wanted = state.model.calls.wanted(if scattered { 0 } else { top }, last, scattered, now);
        asks.extend(wanted.into_iter().map(Ask::Calls));
    }
    let call = match state.screen() {
        Screen::Request(id) => Some((id.clone(), 500)),
        Screen::Upstreams if state.has_panes() => state.call(now).map(|id| (id, 1_000)),
        _ => None,
    };
    if let Some((id, every)) = call {
        if state.polls.call.is_due(&id, every, now) {
            asks.push(Ask::Call(id.clone()));
        }
        if matches!(state.screen(), Screen::Request(_)) && state.polls.call_why.is_due(&id, 1_000, now) {
            asks.push(Ask::CallWhy(id));
        }
    }
    let form = match &state.overlay {
        Some(Overlay::Limits(form)) => Some(form.upstream.clone()),
        _ => None,
    };
    let upstream = match state.screen() {
        Screen::Upstream(name) => Some(name.clone()),
        _ => form,
    };
    if let Some(name) = upstream
        && state.polls.upstream.is_due(&name, 1_000, now)
    {
        asks.push(Ask::Upstream(name));
    }
    let why = match state.screen() {
        Screen::Upstreams => state.selected(Which::Upstreams, now),
        Screen::Upstream(name) => Some(name.clone()),
        _ => None,
    };
    if let Some(name) = why
        && state.polls.upstream_why.is_due(&name, 1_000, now)
    {
        asks.push(Ask::UpstreamWhy(name));
    }
    if let Screen::Stderr(name) = state.screen() {
        let name = name.clone();
        if state.polls.stderr.is_due(&name, 1_000, now) {
            asks.push(Ask::Stderr(name));
        }
    }
    asks.into_iter().map(Effect::Ask).collect()
}

/// What folding found becomes words.
fn folded(state: &mut State, found: Folded, now: Moment) -> Vec<Effect> {
    match found {
        Folded::Fine => Vec::new(),
        Folded::Gap => vec![Effect::Reconnect],
        Folded::Greeted => Vec::new(),
        Folded::Restarted => {
            state.marks.clear();
            state.model.calls.forget();
            state.frozen = None;
            let old = state.screens.len();
            state.screens.retain(|screen| !matches!(screen, Screen::Request(_)));
            if state.screens.len() < old || matches!(state.overlay, Some(Overlay::Confirm(_))) {
                state.overlay = None;
            }
            tell(state, "daemon restarted: its queues were in memory, and the old ids are gone", true, now);
            Vec::new()
        }
    }
}
