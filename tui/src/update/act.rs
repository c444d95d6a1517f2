//! What a person does: moving, opening, sorting, filtering, and answering questions.

use super::steer::{confirmed, limits, mark, steer};
use super::{Effect, tell};
use crate::input::{Action, Move};
use crate::state::{Link, List, Moment, OF_CALLERS, OF_CALLS, OF_UPSTREAMS, Overlay, Rows, Screen, Sort, State, Which};
use forebay_wire::Level;
use ratatui::layout::Position;

/// Screens that lie on each other at most; a further one takes the place of the topmost.
const DEEPEST: usize = 8;
/// Bytes of a filter.
const LONGEST_FILTER: usize = 120;

pub(super) fn act(state: &mut State, action: Action, now: Moment) -> Vec<Effect> {
    if let Some(effects) = on_overlay(state, action, now) {
        return effects;
    }
    let which = state.active();
    if needs_selection(action) {
        for which in [which, Which::Upstreams] {
            pin(state, which, now);
        }
    }
    match action {
        Action::Quit | Action::Interrupt => return vec![Effect::Quit],
        Action::Suspend => return vec![Effect::Suspend],
        Action::Redraw => return vec![Effect::Redraw],
        Action::Retry => {
            if let Link::Lost { retry_at, .. } = &mut state.link {
                *retry_at = now;
            }
            return vec![Effect::Reconnect];
        }
        Action::Help => state.overlay = Some(Overlay::Help { top: 0 }),
        Action::Back => back(state),
        Action::Open => open(state, now),
        Action::Go(kind) => {
            state.screens = vec![Screen::tab(kind)];
            state.in_queue = false;
            state.marks.clear();
        }
        Action::NextPane => {
            if state.has_panes() {
                state.in_queue = !state.in_queue;
            } else {
                tell(state, "there is one pane: Enter opens it, a larger terminal shows more", false, now);
            }
        }
        Action::Zoom => state.zoomed = !state.zoomed,
        Action::Move(way) => step(state, way, now),
        Action::Wheel(rows) => select(state, which, now, |at, _| at.saturating_add_signed(isize::from(rows))),
        Action::SortLeft | Action::SortRight => {
            if let Some(sorts) = sorts(which) {
                state.lists.get_mut(which).sort_by(sorts, action == Action::SortRight);
            }
        }
        Action::Invert => {
            let list = state.lists.get_mut(which);
            list.descending = !list.descending;
        }
        Action::Filter => {
            state.overlay = Some(Overlay::Filter { before: state.lists.get(which).filter.clone() });
        }
        Action::Mark => {
            mark(state, now);
            step(state, Move::Down, now);
        }
        Action::Freeze => {
            state.frozen = match state.frozen.take() {
                Some(_) => None,
                None => Some(Box::new((state.model.clone(), state.clock(now)))),
            };
        }
        Action::Copy => return copy(state, now),
        Action::Cancel
        | Action::CancelCaller
        | Action::Raise
        | Action::Lower
        | Action::Extend
        | Action::Pause
        | Action::Drain
        | Action::Restart
        | Action::Limits => return steer(state, action, now),
        Action::Stderr => {
            if let Some(name) = state.upstream(now) {
                push(state, Screen::Stderr(name));
                // The newest lines are the ones wanted.
                state.lists.lines.at = usize::MAX;
            }
        }
        Action::Next | Action::Previous => neighbour(state, action == Action::Next, now),
        Action::Level => {
            state.level = match state.level {
                Level::Info => Level::Warn,
                Level::Warn => Level::Error,
                Level::Error | Level::Unknown => Level::Info,
            };
        }
        Action::Follow => state.follow = !state.follow,
        Action::Write => return write(state, now),
        Action::Click { column, row } => click(state, Position::new(column, row), now),
        Action::Yes | Action::No | Action::Type(_) | Action::Erase | Action::Accept | Action::Save => {}
    }
    Vec::new()
}

/// Whether an action is about what is selected.
fn needs_selection(action: Action) -> bool {
    matches!(
        action,
        Action::Open
            | Action::Mark
            | Action::Copy
            | Action::Stderr
            | Action::Cancel
            | Action::CancelCaller
            | Action::Raise
            | Action::Lower
            | Action::Extend
            | Action::Pause
            | Action::Drain
            | Action::Restart
            | Action::Limits
    )
}

/// Selects by name what stands first, where nothing was selected: the next key is about the same thing, whatever
/// stands first by then.
fn pin(state: &mut State, which: Which, now: Moment) {
    if state.lists.get(which).selected.is_none() && which != Which::Events {
        let name = state.selected(which, now);
        state.lists.get_mut(which).selected = name;
    }
}

/// What an overlay takes for itself. `None`: it does not take this.
fn on_overlay(state: &mut State, action: Action, now: Moment) -> Option<Vec<Effect>> {
    if matches!(action, Action::Quit | Action::Interrupt | Action::Suspend | Action::Redraw | Action::Retry) {
        return None;
    }
    let which = state.active();
    match &mut state.overlay {
        None => return None,
        Some(Overlay::Help { top }) => match action {
            Action::Move(Move::Down) => *top = top.saturating_add(1),
            Action::Move(Move::Up) => *top = top.saturating_sub(1),
            Action::Move(Move::PageDown) => *top = top.saturating_add(10),
            Action::Move(Move::PageUp) => *top = top.saturating_sub(10),
            Action::Wheel(rows) => *top = top.saturating_add_signed(isize::from(rows)),
            _ => state.overlay = None,
        },
        Some(Overlay::Confirm(_)) => match action {
            Action::Yes => return Some(confirmed(state, now)),
            Action::No => {
                state.overlay = None;
                tell(state, "nothing was done", false, now);
            }
            _ => {}
        },
        Some(Overlay::Limits(form)) => match action {
            Action::Type(c) => form.put(c),
            Action::Erase => form.erase(),
            Action::Move(Move::Up) => form.step(false),
            Action::Move(Move::Down) => form.step(true),
            Action::Accept => return Some(limits(state, false, now)),
            Action::Save => return Some(limits(state, true, now)),
            Action::No => state.overlay = None,
            _ => {}
        },
        Some(Overlay::Filter { before }) => {
            let before = before.clone();
            let list = state.lists.get_mut(which);
            match action {
                Action::Type(c) if !c.is_control() && list.filter.len() < LONGEST_FILTER => list.filter.push(c),
                Action::Erase => {
                    list.filter.pop();
                }
                Action::Accept => state.overlay = None,
                Action::No => {
                    list.filter = before;
                    state.overlay = None;
                }
                _ => {}
            }
        }
    }
    Some(Vec::new())
}

/// Esc: ends the filter, then the marks, then leaves the screen.
fn back(state: &mut State) {
    let which = state.active();
    let list = state.lists.get_mut(which);
    if !list.filter.is_empty() {
        list.filter.clear();
    } else if !state.marks.is_empty() {
        state.marks.clear();
    } else if state.screens.len() > 1 {
        state.screens.pop();
    } else if which == Which::Queue {
        state.in_queue = false;
    } else if state.screen() != &Screen::Upstreams {
        state.screens = vec![Screen::Upstreams];
    }
}

/// The same order, from the top.
fn fresh(list: &List) -> List {
    List { descending: list.descending, ..List::new(list.sort) }
}

fn push(state: &mut State, screen: Screen) {
    match &screen {
        // The queue's list belongs to one upstream at a time; beside the overview it may be this one's already.
        Screen::Upstream(_) if state.has_panes() && state.screens.len() == 1 => {}
        Screen::Upstream(_) => state.lists.queue = fresh(&state.lists.queue),
        Screen::OfCaller(_) => state.lists.of_caller = fresh(&state.lists.of_caller),
        Screen::Request(_) | Screen::Stderr(_) => state.lists.lines = List::new(Sort::Queue),
        Screen::Upstreams | Screen::Requests | Screen::Callers | Screen::Events => {}
    }
    if state.screens.last() == Some(&screen) {
        return;
    }
    if state.screens.len() >= DEEPEST {
        state.screens.pop();
    }
    state.screens.push(screen);
}

fn open(state: &mut State, now: Moment) {
    let which = state.active();
    let Some(name) = state.selected(which, now) else { return };
    let screen = match which {
        Which::Upstreams => Screen::Upstream(name),
        Which::Queue | Which::Requests | Which::OfCaller => Screen::Request(name),
        Which::Callers => Screen::OfCaller(name),
        Which::Events => match event_target(state, &name) {
            Some(screen) => screen,
            None => {
                tell(state, "that event is about no call and no upstream that is here", false, now);
                return;
            }
        },
        Which::Lines => return,
    };
    push(state, screen);
}

fn event_target(state: &State, number: &str) -> Option<Screen> {
    let number: u64 = number.parse().ok()?;
    let event = state.shown().events.iter().find(|event| event.number == number)?;
    if let Some(call) = &event.call {
        return Some(Screen::Request(call.clone()));
    }
    let upstream = event.upstream.as_ref().filter(|name| state.shown().upstreams.contains_key(*name))?;
    Some(Screen::Upstream(upstream.clone()))
}

fn sorts(which: Which) -> Option<&'static [Sort]> {
    match which {
        Which::Upstreams => Some(OF_UPSTREAMS),
        Which::Requests | Which::Queue | Which::OfCaller => Some(OF_CALLS),
        Which::Callers => Some(OF_CALLERS),
        Which::Events | Which::Lines => None,
    }
}

fn step(state: &mut State, way: Move, now: Moment) {
    let which = state.active();
    let page = state.drawn.height(which).max(1);
    select(state, which, now, |at, last| match way {
        Move::Up => at.saturating_sub(1),
        Move::Down => at.saturating_add(1),
        Move::HalfUp => at.saturating_sub(page.div_ceil(2)),
        Move::HalfDown => at.saturating_add(page.div_ceil(2)),
        Move::PageUp => at.saturating_sub(page),
        Move::PageDown => at.saturating_add(page),
        Move::First => 0,
        Move::Last => last,
    });
}

/// Selects another row of a list: from where it stands and the last there is, to where it is to stand.
fn select(state: &mut State, which: Which, now: Moment, to: impl Fn(usize, usize) -> usize) {
    let rows = state.rows(which, now);
    let list = state.lists.get(which);
    let Some(at) = rows.index(list) else { return };
    let last = rows.len() - 1;
    let index = to(at, last).min(last);
    let name = rows.name(index).map(|name| name.into_owned());
    let top = list.first_row(Some(index), last + 1, state.drawn.height(which));
    if which == Which::Events {
        state.follow = index == 0;
    }
    let list = state.lists.get_mut(which);
    (list.selected, list.at, list.top) = (name, index, top);
    if which == Which::Upstreams && state.has_panes() && index != at {
        // Another queue is shown beside it, from its top.
        state.lists.queue = fresh(&state.lists.queue);
    }
}

/// The next or previous call of the list from which a request was opened.
fn neighbour(state: &mut State, next: bool, now: Moment) {
    let Some(below) = state.screens.len().checked_sub(2).and_then(|at| state.screens.get(at)) else { return };
    let which = match below {
        Screen::Requests => Which::Requests,
        Screen::OfCaller(_) => Which::OfCaller,
        Screen::Upstreams | Screen::Upstream(_) => Which::Queue,
        Screen::Callers | Screen::Events | Screen::Request(_) | Screen::Stderr(_) => return,
    };
    select(state, which, now, |at, _| if next { at.saturating_add(1) } else { at.saturating_sub(1) });
    if let Some(id) = state.selected(which, now)
        && let Some(top) = state.screens.last_mut()
    {
        *top = Screen::Request(id);
        state.lists.lines = List::new(Sort::Queue);
    }
}

fn copy(state: &mut State, now: Moment) -> Vec<Effect> {
    let text = match state.screen() {
        Screen::Request(id) => Some(id.clone()),
        Screen::Stderr(name) => Some(name.clone()),
        _ => {
            let which = state.active();
            let rows = state.rows(which, now);
            let index = rows.index(state.lists.get(which));
            match (&rows, index) {
                (Rows::Events(events), Some(index)) => events.get(index).map(|event| event_line(event)),
                (rows, Some(index)) => rows.name(index).map(|name| name.into_owned()),
                (_, None) => None,
            }
        }
    };
    let Some(text) = text else { return Vec::new() };
    tell(state, format!("copied {text}"), false, now);
    vec![Effect::Copy(text)]
}

/// An event as one line of a file.
fn event_line(event: &forebay_wire::Event) -> String {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let line = format!(
        "{} {} {} {} {} {} {}",
        event.at_unix_ms,
        event.level.name(),
        event.kind,
        or_dash(&event.upstream),
        or_dash(&event.caller),
        or_dash(&event.call),
        event.text
    );
    crate::text::shown(&line).into_owned()
}

fn write(state: &mut State, now: Moment) -> Vec<Effect> {
    let rows = state.rows(state.active(), now);
    let (what, lines): (&str, Vec<String>) = match (&rows, state.screen()) {
        (Rows::Events(events), _) => ("events", events.iter().rev().map(|event| event_line(event)).collect()),
        (_, Screen::Stderr(_)) => {
            let lines = state.shown().stderr.as_ref().map_or(&[][..], |told| &told.what);
            ("stderr", lines.iter().map(|line| crate::text::shown(line).into_owned()).collect())
        }
        _ => return Vec::new(),
    };
    if lines.is_empty() {
        tell(state, "there is nothing to write", false, now);
        return Vec::new();
    }
    let at = state.shown().unix_ms(now).unwrap_or_default();
    let instance = state.shown().daemon.as_ref().map_or("none", |daemon| &daemon.instance);
    let plain: String = instance.chars().filter(char::is_ascii_alphanumeric).collect();
    vec![Effect::Write { name: format!("forebay-{what}-{plain}-{at}.log"), text: lines.join("\n") + "\n" }]
}

fn click(state: &mut State, at: Position, now: Moment) {
    if let Some((_, kind)) = state.drawn.tabs.iter().find(|(area, _)| area.contains(at)).copied() {
        act(state, Action::Go(kind), now);
    } else if let Some((_, which, sort)) = state.drawn.heads.iter().find(|(area, ..)| area.contains(at)).copied() {
        state.lists.get_mut(which).sort_on(sort);
    } else if let Some((area, which, top)) = state.drawn.lists.iter().find(|(area, ..)| area.contains(at)).copied() {
        let index = top + usize::from(at.y - area.y);
        if state.screen() == &Screen::Upstreams {
            state.in_queue = which == Which::Queue;
        }
        let rows = state.rows(which, now);
        if index < rows.len() {
            let list = state.lists.get(which);
            let again = list.selected.is_some() && rows.index(list) == Some(index);
            select(state, which, now, |_, _| index);
            // A second click on the selected row opens it.
            if again {
                open(state, now);
            }
        }
    }
}
