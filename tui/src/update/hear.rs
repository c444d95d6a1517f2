//! What the daemon says: folded into the model, or told in a sentence.

use super::{Effect, folded, tell};
use crate::connection::{Answer, Ask, Heard};
use crate::state::{Link, Moment, Overlay, State, Told};
use forebay_wire as wire;
use forebay_wire::{Cancelled, Edited};

pub(super) fn hear(state: &mut State, heard: Heard, now: Moment) -> Vec<Effect> {
    match heard {
        // A picture that was there stays, marked as old, until the daemon has spoken.
        Heard::Connecting => Vec::new(),
        Heard::Lost { why, retry_in } => {
            let retry_at = now.plus(u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX));
            let since = match &state.link {
                Link::Lost { since, .. } => *since,
                Link::Connecting | Link::Live => now,
            };
            state.link = Link::Lost { since, retry_at, why };
            state.changed = true;
            Vec::new()
        }
        Heard::Update(update) => {
            let was_lost = matches!(state.link, Link::Lost { .. });
            let greets = matches!(update, wire::Update::Snapshot(_));
            let found = state.model.fold(update, now);
            if greets {
                state.link = Link::Live;
                state.polls = Default::default();
                let api = state.model.daemon.as_ref().map_or(0, |daemon| daemon.api);
                if api != wire::API
                    && let Some(why) = state.hindrance()
                {
                    tell(state, why, true, now);
                } else if was_lost {
                    tell(state, "connected again", false, now);
                }
            }
            state.changed = true;
            folded(state, found, now)
        }
        Heard::Answer(answer) => {
            state.changed = true;
            answered(state, answer, now)
        }
    }
}

fn answered(state: &mut State, answer: Answer, now: Moment) -> Vec<Effect> {
    let model = &mut state.model;
    match answer {
        Answer::Calls(wanted, page) => model.calls.fold(&wanted, page, now),
        Answer::Call(about, what) => {
            state.polls.call.answered();
            model.call = Some(Told { about, what: *what, at: now });
        }
        Answer::CallWhy(about, what) => {
            state.polls.call_why.answered();
            model.call_why = Some(Told { about, what: *what, at: now });
        }
        Answer::Upstream(about, what) => {
            state.polls.upstream.answered();
            if let Some(Overlay::Limits(form)) = &mut state.overlay
                && form.upstream == about
            {
                form.told(&what);
            }
            model.upstream = Some(Told { about, what: *what, at: now });
        }
        Answer::UpstreamWhy(about, what) => {
            state.polls.upstream_why.answered();
            model.upstream_why = Some(Told { about, what: *what, at: now });
        }
        Answer::Stderr(about, what) => {
            state.polls.stderr.answered();
            model.stderr = Some(Told { about, what, at: now });
        }
        Answer::Cancelled(answers) => {
            state.marks.clear();
            tell(state, cancelled(&answers), answers.iter().any(|it| it.answer == Cancelled::UnknownId), now);
            state.polls.call.hurry();
        }
        Answer::CancelledMany(selector, counted) if selector.dry_run => count(state, &selector, &counted, now),
        Answer::CancelledMany(_, done) => {
            let words = format!(
                "cancelled {}: {} queued, {} running; {} had ended by themselves",
                done.cancelled_queued + done.cancelled_running,
                done.cancelled_queued,
                done.cancelled_running,
                done.already_finished
            );
            tell(state, words, false, now);
        }
        Answer::Steered(steer, name) => tell(state, format!("{name}: {} done", steer.word()), false, now),
        Answer::Limits(name, answer) => {
            let mut words = format!("{name}: limits changed");
            match &answer.saved_to {
                Some(path) => words.push_str(&format!(" and saved to {path}")),
                None => words.push_str(" until the daemon restarts"),
            }
            for note in &answer.notes {
                words.push_str(&format!("; {note}"));
            }
            state.polls.upstream.hurry();
            tell(state, words, false, now);
        }
        Answer::Edited(answer) => {
            let words = match answer.answer {
                Edited::Changed => match &answer.call {
                    Some(call) => format!(
                        "{}: lane {}, {} left",
                        answer.id,
                        crate::view::lane_word(call.lane),
                        call.deadline_ms.map_or("no limit of time".into(), crate::text::time)
                    ),
                    None => format!("{}: changed", answer.id),
                },
                Edited::AlreadyRunning => format!("{} runs already: only what waits can be changed", answer.id),
                Edited::AlreadyFinished => format!("{} is over already", answer.id),
                Edited::UnknownId => format!("{} is not known any more", answer.id),
                Edited::Unknown => format!("{}: answered in words of a newer daemon", answer.id),
            };
            state.polls.call.hurry();
            tell(state, words, answer.answer != Edited::Changed, now);
        }
        Answer::Failed(ask, why) => failed(state, &ask, &why, now),
    }
    Vec::new()
}

fn cancelled(answers: &[wire::CancelAnswer]) -> String {
    let of = |answer: Cancelled| answers.iter().filter(|it| it.answer == answer).count();
    if let [one] = answers {
        let id = &one.id;
        return match one.answer {
            Cancelled::CancelledQueued => format!("{id} cancelled: the upstream never saw it"),
            Cancelled::CancelledRunning => {
                format!("{id} cancelled: the upstream was asked to stop, its slot lingers until it has (CXL?)")
            }
            Cancelled::AlreadyFinished => {
                format!("{id} had ended already: {}", one.outcome.as_deref().unwrap_or("finished"))
            }
            Cancelled::UnknownId => format!("{id} is not known any more"),
            Cancelled::Unknown => format!("{id}: answered in words of a newer daemon"),
        };
    }
    format!(
        "cancelled {} queued and {} running; {} had ended already, {} unknown",
        of(Cancelled::CancelledQueued),
        of(Cancelled::CancelledRunning),
        of(Cancelled::AlreadyFinished),
        of(Cancelled::UnknownId)
    )
}

/// The daemon has counted what a question is about.
fn count(state: &mut State, selector: &wire::Selector, counted: &wire::CancelledMany, now: Moment) {
    let Some(Overlay::Confirm(confirm)) = &mut state.overlay else { return };
    let Ask::CancelMany(asked) = &confirm.ask else { return };
    if *asked != (wire::Selector { dry_run: false, ..selector.clone() }) {
        return;
    }
    if counted.matched == 0 {
        state.overlay = None;
        tell(state, "there is nothing to cancel: no call is queued or running there", false, now);
        return;
    }
    confirm.counting = false;
    confirm.title = super::steer::many_title(selector, Some(counted.matched));
    confirm.lines = super::steer::consequence(counted.cancelled_queued, counted.cancelled_running, None);
}

fn failed(state: &mut State, ask: &Ask, why: &str, now: Moment) {
    let beside = match ask {
        Ask::Calls(wanted) => {
            state.model.calls.failed(wanted);
            false
        }
        Ask::Call(_) => {
            state.polls.call.answered();
            !matches!(state.mode(), crate::input::Mode::Screen(crate::input::Kind::Request))
        }
        Ask::Stderr(_) => {
            state.polls.stderr.answered();
            false
        }
        Ask::CallWhy(_) => {
            state.polls.call_why.answered();
            true
        }
        Ask::Upstream(_) => {
            state.polls.upstream.answered();
            true
        }
        Ask::UpstreamWhy(_) => {
            state.polls.upstream_why.answered();
            true
        }
        Ask::CancelMany(selector) if selector.dry_run => {
            if matches!(state.overlay, Some(Overlay::Confirm(_))) {
                state.overlay = None;
            }
            false
        }
        Ask::Cancel(_) | Ask::CancelMany(_) | Ask::Steer(..) | Ask::Limits { .. } | Ask::Edit { .. } => false,
    };
    // What surrounds a list is missed silently; the stream says by itself when the daemon is lost.
    if !beside && state.is_live() {
        tell(state, why, true, now);
    }
}
