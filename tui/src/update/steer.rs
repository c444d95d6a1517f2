//! What changes something in the daemon: who may, what is asked before, in which words.

use super::{Effect, tell};
use crate::connection::{Ask, Steer};
use crate::input::Action;
use crate::state::{Confirm, Form, Moment, Overlay, Rows, Screen, State, Which, shell_word};
use forebay_wire::{CallState, Edit, Lane, Limits, Selector, UpstreamState};

/// What one press of `t` adds.
const EXTEND_MS: u64 = 30_000;
/// Ids that are written out in a command; more are counted.
const IDS_WRITTEN: usize = 4;

pub(super) fn steer(state: &mut State, action: Action, now: Moment) -> Vec<Effect> {
    if let Some(why) = state.hindrance() {
        tell(state, why, true, now);
        return Vec::new();
    }
    let in_pane = state.active() == Which::Queue;
    match (action, state.screen()) {
        (Action::Cancel, Screen::Upstreams) if !in_pane => match state.upstream(now) {
            Some(name) => cancel_many(state, Selector { upstream: Some(name), ..Selector::default() }),
            None => nothing_here(state, now),
        },
        (Action::Cancel, _) => cancel_calls(state, now),
        (Action::CancelCaller, screen) => {
            let (caller, upstream) = match screen {
                Screen::Callers => (state.selected(Which::Callers, now), None),
                Screen::OfCaller(name) => (Some(name.clone()), None),
                _ => state
                    .call(now)
                    .and_then(|id| find(state, &id))
                    .map_or((None, None), |call| (Some(call.caller), Some(call.upstream))),
            };
            match caller {
                Some(caller) => cancel_many(state, Selector { caller: Some(caller), upstream, ..Selector::default() }),
                None => nothing_here(state, now),
            }
        }
        (Action::Raise | Action::Lower | Action::Extend, _) => edit(state, action, now),
        (Action::Pause | Action::Drain | Action::Restart | Action::Limits, _) => upstream(state, action, now),
        _ => Vec::new(),
    }
}

/// The little that steering needs to know of a call.
struct Found {
    id: String,
    caller: String,
    upstream: String,
    state: CallState,
    lane: Lane,
}

fn find(state: &State, id: &str) -> Option<Found> {
    let of = |call: &forebay_wire::Call| Found {
        id: call.id.clone(),
        caller: call.caller.clone(),
        upstream: call.upstream.clone(),
        state: call.state,
        lane: call.lane,
    };
    let told = state.model.call.as_ref().filter(|told| told.about == id).map(|told| &told.what.call);
    let rows = state.model.calls.rows();
    let row = rows.iter().find(|row| row.call.id == id && !row.gone).map(|row| row.call);
    // On a call's own screen, its own story is the newer one.
    let first = if matches!(state.screen(), Screen::Request(_)) { told.or(row) } else { row.or(told) };
    first.map(of)
}

/// The calls that an action is about: those that are marked, or the one that is selected.
fn meant(state: &State, now: Moment) -> Vec<Found> {
    let on_list = !matches!(state.screen(), Screen::Request(_));
    if on_list && !state.marks.is_empty() {
        // One that is not loaded any more is sent all the same: the daemon knows.
        let unseen = |id: &String| Found {
            id: id.clone(),
            caller: String::new(),
            upstream: String::new(),
            state: CallState::Unknown,
            lane: Lane::Unknown,
        };
        return state.marks.iter().map(|id| find(state, id).unwrap_or_else(|| unseen(id))).collect();
    }
    state.call(now).and_then(|id| find(state, &id)).into_iter().collect()
}

fn nothing_here(state: &mut State, now: Moment) -> Vec<Effect> {
    let words = match state.screen() {
        Screen::Upstreams => "select a call first: Enter opens an upstream's queue",
        _ => "nothing is selected here",
    };
    tell(state, words, true, now);
    Vec::new()
}

fn ask(state: &mut State, confirm: Confirm) {
    state.overlay = Some(Overlay::Confirm(Box::new(confirm)));
}

fn cancel_calls(state: &mut State, now: Moment) -> Vec<Effect> {
    let calls = meant(state, now);
    let is_over = |call: &&Found| matches!(call.state, CallState::Lingering | CallState::Finished);
    if calls.is_empty() {
        return nothing_here(state, now);
    }
    let live: Vec<&Found> = calls.iter().filter(|call| !is_over(call)).collect();
    if live.is_empty() {
        let words = match &calls[..] {
            [one] if one.state == CallState::Lingering => format!(
                "{} is over for its caller already; the server still holds its slot, r restarts the server",
                one.id
            ),
            [one] => format!("{} is over already", one.id),
            _ => "all of these are over already".into(),
        };
        tell(state, words, false, now);
        return Vec::new();
    }
    let running: Vec<&str> =
        live.iter().filter(|call| call.state == CallState::Running).map(|call| &*call.id).collect();
    let title = match &live[..] {
        [one] if one.upstream.is_empty() => format!("Cancel {}?", one.id),
        [one] => format!("Cancel {} of {} on {}?", one.id, one.caller, one.upstream),
        many => format!("Cancel {} calls?", many.len()),
    };
    let ids: Vec<String> = live.iter().map(|call| call.id.clone()).collect();
    let mut command = format!("forebay cancel {}", ids[..ids.len().min(IDS_WRITTEN)].join(" "));
    if ids.len() > IDS_WRITTEN {
        command.push_str(&format!(" ... ({} more)", ids.len() - IDS_WRITTEN));
    }
    let lines = consequence((live.len() - running.len()) as u64, running.len() as u64, running.first().copied());
    ask(state, Confirm { title, lines, command, ask: Ask::Cancel(ids), counting: false });
    Vec::new()
}

/// What cancelling so many does, in words.
pub(super) fn consequence(queued: u64, running: u64, first_running: Option<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    if queued > 0 {
        lines.push(format!("{queued} queued: removed now, the caller gets a 'cancelled' answer."));
    }
    if running > 0 {
        let id = match first_running {
            Some(id) if running == 1 => format!(" ({id})"),
            _ => String::new(),
        };
        lines.push(format!("{running} running{id}: the server is asked to stop; the slot"));
        lines.push("lingers until it answers or cancel_grace ends (CXL?).".into());
    }
    lines
}

pub(super) fn many_title(selector: &Selector, count: Option<u64>) -> String {
    let count = match count {
        None => "all calls".into(),
        Some(1) => "1 call".into(),
        Some(count) => format!("{count} calls"),
    };
    let of = selector.caller.as_ref().map_or(String::new(), |caller| format!(" of {caller}"));
    let on = selector.upstream.as_ref().map_or(String::new(), |upstream| format!(" on {upstream}"));
    format!("Cancel {count}{of}{on}?")
}

/// Asks the daemon to count first; the question is complete once it has.
fn cancel_many(state: &mut State, selector: Selector) -> Vec<Effect> {
    let mut command = String::from("forebay cancel");
    for (option, value) in [("--caller", &selector.caller), ("--upstream", &selector.upstream)] {
        if let Some(value) = value {
            command.push_str(&format!(" {option} {}", shell_word(value)));
        }
    }
    let confirm = Confirm {
        title: many_title(&selector, None),
        lines: vec!["counting what is queued and running ...".into()],
        command,
        ask: Ask::CancelMany(selector.clone()),
        counting: true,
    };
    ask(state, confirm);
    vec![Effect::Ask(Ask::CancelMany(Selector { dry_run: true, ..selector }))]
}

fn edit(state: &mut State, action: Action, now: Moment) -> Vec<Effect> {
    let calls = meant(state, now);
    if calls.is_empty() {
        return nothing_here(state, now);
    }
    let mut effects = Vec::new();
    let mut said = None;
    let lane = |lane| Edit { priority: Some(lane), extend_ms: None };
    for call in calls {
        if !matches!(call.state, CallState::Queued | CallState::Unknown) {
            said = Some(format!("{} does not wait: only what waits can be changed", call.id));
            continue;
        }
        let edit = match (action, call.lane) {
            (Action::Extend, _) => Edit { priority: None, extend_ms: Some(EXTEND_MS) },
            (Action::Raise, Lane::Low) | (Action::Lower, Lane::High) => lane(Lane::Normal),
            (Action::Raise, Lane::Normal | Lane::Unknown) => lane(Lane::High),
            (Action::Lower, Lane::Normal | Lane::Unknown) => lane(Lane::Low),
            (_, Lane::High | Lane::Normal | Lane::Low | Lane::Unknown) => {
                said = Some(format!("{} is in that lane already", call.id));
                continue;
            }
        };
        effects.push(Effect::Ask(Ask::Edit { id: call.id, edit }));
    }
    if let Some(words) = said {
        tell(state, words, effects.is_empty(), now);
    }
    effects
}

fn upstream(state: &mut State, action: Action, now: Moment) -> Vec<Effect> {
    let found = state.upstream(now).and_then(|name| state.model.upstreams.get(&name));
    let Some(up) = found.map(|row| row.now.clone()) else {
        tell(state, "there is no upstream here", true, now);
        return Vec::new();
    };
    let name = up.name.clone();
    let drains = matches!(up.state, UpstreamState::Draining | UpstreamState::Drained);
    let taken = crate::state::taken(&up);
    let (question, lines, steer) = match action {
        Action::Pause if drains || up.state == UpstreamState::Paused => {
            return vec![Effect::Ask(Ask::Steer(Steer::Resume, name))];
        }
        Action::Pause => return vec![Effect::Ask(Ask::Steer(Steer::Pause, name))],
        Action::Drain if drains => {
            tell(state, format!("{name} is draining already; p resumes it"), false, now);
            return Vec::new();
        }
        Action::Drain => {
            let lines = vec![
                "New calls are refused from now on.".into(),
                format!("{} queued and {taken} running finish as they would.", up.queued),
                "p ends the drain.".into(),
            ];
            ("Drain", lines, Steer::Drain)
        }
        Action::Restart => {
            let lines = vec![
                format!("{taken} running end as 'lost': the server may have done them."),
                format!("{} queued wait for the new process or connection.", up.queued),
            ];
            ("Restart", lines, Steer::Restart)
        }
        _ => {
            state.overlay = Some(Overlay::Limits(Box::new(Form::new(&up))));
            state.polls.upstream.hurry();
            return Vec::new();
        }
    };
    let command = format!("forebay upstream {} {}", steer.word(), shell_word(&name));
    let title = format!("{question} {name}?");
    ask(state, Confirm { title, lines, command, ask: Ask::Steer(steer, name), counting: false });
    Vec::new()
}

/// The form was accepted.
pub(super) fn limits(state: &mut State, save: bool, now: Moment) -> Vec<Effect> {
    if let Some(why) = state.hindrance() {
        tell(state, why, true, now);
        return Vec::new();
    }
    let Some(Overlay::Limits(form)) = &mut state.overlay else { return Vec::new() };
    match form.change() {
        Err(fault) => {
            form.fault = Some(fault);
            Vec::new()
        }
        Ok(change) if change == Limits::default() => {
            state.overlay = None;
            tell(state, "nothing was changed", false, now);
            Vec::new()
        }
        Ok(change) => {
            let upstream = form.upstream.clone();
            state.overlay = None;
            vec![Effect::Ask(Ask::Limits { upstream, change, save })]
        }
    }
}

/// Yes was said to a question.
pub(super) fn confirmed(state: &mut State, now: Moment) -> Vec<Effect> {
    if let Some(why) = state.hindrance() {
        state.overlay = None;
        tell(state, why, true, now);
        return Vec::new();
    }
    match state.overlay.take() {
        Some(Overlay::Confirm(confirm)) if !confirm.counting => vec![Effect::Ask(confirm.ask)],
        // Not before it is known what it hits.
        other => {
            state.overlay = other;
            Vec::new()
        }
    }
}

/// Marks or unmarks the selected call.
pub(super) fn mark(state: &mut State, now: Moment) {
    let which = state.active();
    let is_call = matches!(state.rows(which, now), Rows::Calls(_));
    if is_call
        && let Some(id) = state.selected(which, now)
        && !state.marks.remove(&id)
    {
        state.marks.insert(id);
    }
}
