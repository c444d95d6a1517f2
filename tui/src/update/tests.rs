//! Keys to state, without a terminal.

use super::*;
use crate::connection::{Answer, Steer};
use crate::input::{Kind, Mode, Move, meaning};
use crate::sample::{self, NOW, happen};
use crate::state::{Drawn, Field, Link, Options, Room, Sort};
use crossterm::event::{Event as Key, KeyCode, KeyEvent, KeyModifiers};
use forebay_wire as wire;
use forebay_wire::{CallState, Limits, Role, Selector, UpstreamState};
use std::time::Duration;

/// Presses keys as they are written; `^` before a letter is Ctrl, `\n` is Enter, `\x1b` is Esc.
fn press(state: &mut State, keys: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut control = false;
    for c in keys.chars() {
        let code = match c {
            '^' => {
                control = true;
                continue;
            }
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            c => KeyCode::Char(c),
        };
        let modifiers = if std::mem::take(&mut control) { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
        if let Some(action) = meaning(&Key::Key(KeyEvent::new(code, modifiers)), state.mode()) {
            effects.extend(happen(state, Event::Act(action), NOW));
        }
    }
    effects
}

fn asked(effects: &[Effect]) -> Vec<&Ask> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Ask(ask) => Some(ask),
            _ => None,
        })
        .collect()
}

fn said(state: &State) -> &str {
    state.notice.as_ref().map_or("", |notice| &notice.text)
}

fn question(state: &State) -> &crate::state::Confirm {
    match &state.overlay {
        Some(Overlay::Confirm(confirm)) => confirm,
        other => panic!("no question: {other:?}"),
    }
}

#[test]
fn it_hangs_becomes_a_name_in_three_keys() {
    let mut state = sample::state();
    press(&mut state, "\n");
    assert_eq!(state.screen(), &Screen::Upstream("mysql-prod".into()), "the worst comes first");
    let Some(id) = state.call(NOW) else { panic!("no call is selected") };
    assert_eq!(id, "k3f9q-7e9", "the longest holder comes first");
    press(&mut state, "\n");
    assert_eq!(state.screen(), &Screen::Request("k3f9q-7e9".into()));
    assert_eq!(state.model.call.as_ref().unwrap().what.call.caller, "ci-bot");
    press(&mut state, "C");
    assert_eq!(question(&state).command, "forebay cancel --caller ci-bot --upstream mysql-prod");
}

#[test]
fn a_cancel_of_many_is_counted_first_and_done_only_on_yes() {
    let mut state = sample::state();
    press(&mut state, "3");
    // The count is not there yet: yes does nothing.
    let effects = update(&mut state, Event::Act(Action::CancelCaller), NOW);
    let dry = Selector { caller: Some("ci-bot".into()), dry_run: true, ..Selector::default() };
    assert_eq!(asked(&effects), [&Ask::CancelMany(dry.clone())]);
    assert!(asked(&update(&mut state, Event::Act(Action::Yes), NOW)).is_empty());
    let counted = sample::answer(&Ask::CancelMany(dry.clone())).unwrap();
    update(&mut state, Event::Heard(Heard::Answer(counted)), NOW);
    assert_eq!(question(&state).title, "Cancel 13 calls of ci-bot?");
    assert!(question(&state).lines[0].starts_with("12 queued"));
    // Enter is no.
    assert!(press(&mut state, "\n").is_empty());
    assert_eq!(state.overlay, None);
    press(&mut state, "C");
    let effects = update(&mut state, Event::Act(Action::Yes), NOW);
    assert_eq!(asked(&effects), [&Ask::CancelMany(Selector { dry_run: false, ..dry })]);
}

#[test]
fn a_selector_that_matches_nothing_asks_nothing() {
    let mut state = sample::state();
    let selector = Selector { upstream: Some("mysql-prod".into()), dry_run: true, ..Selector::default() };
    update(&mut state, Event::Act(Action::Cancel), NOW);
    let answer =
        Answer::CancelledMany(selector, wire::CancelledMany { dry_run: true, ..wire::CancelledMany::default() });
    update(&mut state, Event::Heard(Heard::Answer(answer)), NOW);
    assert_eq!(state.overlay, None);
    assert!(said(&state).contains("nothing to cancel"));
}

#[test]
fn marked_calls_are_cancelled_together_with_their_counts() {
    let mut state = sample::state();
    press(&mut state, "\nj  ");
    assert_eq!(state.marks.len(), 2);
    press(&mut state, "c");
    assert_eq!(question(&state).title, "Cancel 2 calls?");
    assert_eq!(question(&state).lines.len(), 3, "{:?}", question(&state).lines);
    let effects = press(&mut state, "y");
    assert_eq!(asked(&effects), [&Ask::Cancel(vec!["k3f9q-7f3".into(), "k3f9q-801".into()])]);
}

#[test]
fn a_lingering_call_is_over_already() {
    let mut state = sample::state();
    press(&mut state, "\nc");
    assert_eq!(state.overlay, None);
    assert!(said(&state).contains("over for its caller already"));
}

#[test]
fn pausing_asks_nothing_and_the_same_key_resumes() {
    let mut state = sample::state();
    assert_eq!(asked(&press(&mut state, "p")), [&Ask::Steer(Steer::Pause, "mysql-prod".into())]);
    state.model.upstreams.get_mut("mysql-prod").unwrap().now.state = UpstreamState::Paused;
    assert_eq!(asked(&press(&mut state, "p")), [&Ask::Steer(Steer::Resume, "mysql-prod".into())]);
}

#[test]
fn what_was_steered_stays_selected_when_another_comes_to_the_top() {
    let mut state = sample::state();
    press(&mut state, "p");
    let worse = wire::Upstream { queued: 64, oldest_wait_ms: 99_000, ..sample::upstreams()[1].clone() };
    let changes = wire::Changes { sequence: 1, upstreams: vec![worse], ..wire::Changes::default() };
    update(&mut state, Event::Heard(Heard::Update(wire::Update::Changes(Box::new(changes)))), NOW);
    assert_eq!(asked(&press(&mut state, "p")), [&Ask::Steer(Steer::Pause, "mysql-prod".into())]);
}

#[test]
fn drain_and_restart_ask_first() {
    let mut state = sample::state();
    for (key, steer) in [("d", Steer::Drain), ("r", Steer::Restart)] {
        assert!(asked(&press(&mut state, key)).is_empty());
        assert_eq!(question(&state).command, format!("forebay upstream {} mysql-prod", steer.word()));
        assert_eq!(asked(&press(&mut state, "y")), [&Ask::Steer(steer, "mysql-prod".into())]);
    }
}

#[test]
fn limits_are_typed_checked_and_sent() {
    let mut state = sample::state();
    press(&mut state, "l");
    assert_eq!(state.mode(), Mode::Form);
    press(&mut state, "x\n");
    let Some(Overlay::Limits(form)) = &state.overlay else { panic!("the form is gone") };
    assert!(form.fault.as_ref().unwrap().contains("max_concurrent"));
    assert_eq!(form.typed[Field::ALL.len() - 1], "5s", "the daemon told the rest");
    press(&mut state, "\x1bl");
    let change = Limits { max_concurrent: Some(3), ..Limits::default() };
    let expected = |save| Ask::Limits { upstream: "mysql-prod".into(), change, save };
    assert_eq!(asked(&press(&mut state, "3\n")), [&expected(false)]);
    assert_eq!(asked(&press(&mut state, "l3^s")), [&expected(true)]);
}

#[test]
fn r25_priority_and_deadline_are_for_what_waits() {
    let mut state = sample::state();
    press(&mut state, "\n+");
    assert!(said(&state).contains("only what waits can be changed"));
    let edit = |state: &mut State, keys: &str| match asked(&press(state, keys))[..] {
        [Ask::Edit { id, edit }] => (id.clone(), *edit),
        ref other => panic!("{other:?}"),
    };
    let (id, lowered) = edit(&mut state, "jj-");
    assert_eq!((&*id, lowered.priority), ("k3f9q-801", Some(wire::Lane::Normal)));
    assert_eq!(edit(&mut state, "j+").1.priority, Some(wire::Lane::High));
    assert_eq!(edit(&mut state, "t").1.extend_ms, Some(30_000));
}

#[test]
fn who_may_only_look_steers_nothing() {
    let viewer = |state: &mut State| state.model.daemon.as_mut().unwrap().role = Role::Viewer;
    let newer = |state: &mut State| state.model.daemon.as_mut().unwrap().api = 99;
    let flag = |state: &mut State| state.options = Options { read_only: true, ..Options::default() };
    let lost = |state: &mut State| {
        state.link = Link::Lost { since: NOW, retry_at: NOW.plus(500), why: "gone".into() };
    };
    type Make<'a> = &'a dyn Fn(&mut State);
    let cases: [(&str, Make<'_>); 4] =
        [("only look", &viewer), ("API version 99", &newer), ("--read-only", &flag), ("not connected", &lost)];
    for (words, make) in cases {
        for key in ["c", "C", "p", "d", "r", "l", "+", "-", "t"] {
            for opened in ["", "\n", "2", "3"] {
                let mut state = sample::state();
                press(&mut state, opened);
                make(&mut state);
                let effects = press(&mut state, key);
                assert!(asked(&effects).iter().all(|ask| ask.only_reads()), "{words} {opened:?} {key}: {effects:?}");
                assert_eq!(state.overlay, None, "{words} {opened:?} {key}");
            }
        }
        let mut state = sample::state();
        make(&mut state);
        press(&mut state, "p");
        assert!(said(&state).contains(words), "{}", said(&state));
    }
}

#[test]
fn a_question_that_was_open_when_the_daemon_was_lost_does_nothing() {
    let mut state = sample::state();
    press(&mut state, "d");
    let lost = Heard::Lost { why: "gone".into(), retry_in: Duration::from_secs(1) };
    update(&mut state, Event::Heard(lost), NOW);
    assert!(press(&mut state, "y").is_empty());
    assert_eq!(said(&state), "not connected");
}

#[test]
fn c43_a_restarted_daemon_is_told_and_old_ids_are_left() {
    let mut state = sample::state();
    press(&mut state, "\n\n");
    assert!(matches!(state.screen(), Screen::Request(_)));
    let lost = Heard::Lost { why: "no daemon answers".into(), retry_in: Duration::from_millis(500) };
    update(&mut state, Event::Heard(lost), NOW);
    assert!(!state.is_live());
    let again = wire::Snapshot { instance: "m9x2a".into(), ..sample::snapshot() };
    let again = wire::Update::Snapshot(Box::new(again));
    update(&mut state, Event::Heard(Heard::Update(again)), NOW.plus(900));
    assert!(state.is_live());
    assert!(said(&state).starts_with("daemon restarted"));
    assert_eq!(state.screen(), &Screen::Upstream("mysql-prod".into()), "the upstream is there still");
}

#[test]
fn reconnecting_keeps_selection_sort_filter_and_screen() {
    let mut state = sample::state();
    press(&mut state, ">j/s\nj");
    let before = (state.screen().clone(), state.lists.upstreams.clone());
    assert_eq!(before.1.filter, "s");
    let lost = Heard::Lost { why: "gone".into(), retry_in: Duration::from_millis(500) };
    update(&mut state, Event::Heard(lost), NOW);
    let again = wire::Update::Snapshot(Box::new(sample::snapshot()));
    update(&mut state, Event::Heard(Heard::Update(again)), NOW.plus(900));
    let after = &state.lists.upstreams;
    assert_eq!((&before.1.selected, before.1.sort, &before.1.filter), (&after.selected, after.sort, &after.filter));
}

#[test]
fn a_retry_connects_at_once() {
    let mut state = sample::state();
    assert_eq!(press(&mut state, "^r"), [Effect::Reconnect]);
}

#[test]
fn r30_a_gap_in_the_stream_begins_it_again() {
    let mut state = sample::state();
    let changes = wire::Update::Changes(Box::new(wire::Changes { sequence: 7, ..wire::Changes::default() }));
    let effects = update(&mut state, Event::Heard(Heard::Update(changes)), NOW);
    assert!(effects.contains(&Effect::Reconnect));
}

#[test]
fn escape_ends_the_filter_then_the_marks_then_leaves() {
    let mut state = sample::state();
    press(&mut state, "\n ");
    press(&mut state, "/ci\n");
    assert_eq!(state.lists.queue.filter, "ci");
    press(&mut state, "\x1b");
    assert_eq!((state.lists.queue.filter.as_str(), state.marks.len()), ("", 1));
    press(&mut state, "\x1b");
    assert_eq!(state.marks.len(), 0);
    press(&mut state, "\x1b");
    assert_eq!(state.screen(), &Screen::Upstreams);
    assert!(!press(&mut state, "\x1b").contains(&Effect::Quit), "only q quits");
    assert_eq!(press(&mut state, "q"), [Effect::Quit]);
}

#[test]
fn a_filter_narrows_as_it_is_typed_and_escape_brings_back_the_old_one() {
    let mut state = sample::state();
    let shown = |state: &State| state.rows(Which::Upstreams, NOW).len();
    press(&mut state, "/my");
    assert_eq!((state.mode(), shown(&state)), (Mode::Line, 1));
    press(&mut state, "\x1b");
    assert_eq!(shown(&state), 7);
    press(&mut state, "/!my\n");
    assert_eq!(shown(&state), 6);
}

#[test]
fn fields_of_a_filter_are_the_daemons_to_look_after() {
    let mut state = sample::state();
    press(&mut state, "2");
    press(&mut state, "/state:queued caller:bob/cursor\n");
    let query = state.model.calls.query().unwrap();
    assert_eq!((query.state, query.caller.as_deref()), (Some(CallState::Queued), Some("bob/cursor")));
    assert_eq!(state.rows(Which::Requests, NOW).len(), 1);
}

#[test]
fn a_frozen_picture_stands_still_and_asks_for_nothing_while_the_model_goes_on() {
    let mut state = sample::state();
    press(&mut state, "f");
    let totals = wire::Totals { queued: 1, ..wire::Totals::default() };
    let changes = wire::Changes { sequence: 1, totals, ..wire::Changes::default() };
    let effects =
        update(&mut state, Event::Heard(Heard::Update(wire::Update::Changes(Box::new(changes)))), NOW.plus(5_000));
    assert!(effects.is_empty(), "{effects:?}");
    assert_eq!((state.shown().totals.queued, state.model.totals.queued), (33, 1));
    assert_eq!(state.clock(NOW.plus(9_000)), NOW);
    press(&mut state, "f");
    assert_eq!(state.shown().totals.queued, 1);
}

#[test]
fn the_selection_stays_on_its_name_when_the_order_changes() {
    let mut state = sample::state();
    press(&mut state, "jj");
    let name = state.selected(Which::Upstreams, NOW).unwrap();
    press(&mut state, "i");
    assert_eq!(state.selected(Which::Upstreams, NOW), Some(name.clone()));
    let changes = wire::Changes { sequence: 1, upstreams_gone: vec![name.clone()], ..wire::Changes::default() };
    update(&mut state, Event::Heard(Heard::Update(wire::Update::Changes(Box::new(changes)))), NOW);
    assert_ne!(state.selected(Which::Upstreams, NOW), Some(name), "its neighbour has taken over");
}

#[test]
fn the_mouse_selects_sorts_opens_and_changes_screens() {
    let mut state = sample::state();
    let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(80, 24)).unwrap();
    let look = crate::view::Look { ascii: true, palette: crate::view::Palette::Mono };
    let draw = |state: &mut State, terminal: &mut ratatui::Terminal<_>| {
        let mut drawn = Drawn::default();
        terminal.draw(|frame| drawn = crate::view::draw(frame, state, look, NOW)).unwrap();
        state.drawn = drawn;
    };
    draw(&mut state, &mut terminal);
    let click = |state: &mut State, column, row| happen(state, Event::Act(Action::Click { column, row }), NOW);
    click(&mut state, 5, 6);
    assert_eq!(state.selected(Which::Upstreams, NOW).as_deref(), Some("browser"));
    click(&mut state, 5, 6);
    assert_eq!(state.screen(), &Screen::Upstream("browser".into()));
    press(&mut state, "\x1b");
    click(&mut state, 3, 3);
    assert_eq!(state.lists.upstreams.sort, Sort::Name);
    click(&mut state, 18, 1);
    assert_eq!(state.screen(), &Screen::Requests);
    happen(&mut state, Event::Act(Action::Wheel(3)), NOW);
    assert_eq!(state.lists.requests.at, 3);
    click(&mut state, 79, 23);
    click(&mut state, 500, 500);
}

#[test]
fn only_what_is_in_sight_is_asked_for_and_not_too_often() {
    let mut state = sample::state();
    state.drawn.room = Room::Full;
    press(&mut state, "4");
    let effects = update(&mut state, Event::Tick, NOW.plus(5_000));
    assert!(asked(&effects).is_empty(), "the event log comes by the stream: {effects:?}");
    press(&mut state, "2");
    let mut pages = 0;
    for step in 1..=40u64 {
        let now = NOW.plus(5_000 + step * 100);
        for effect in update(&mut state, Event::Tick, now) {
            if let Effect::Ask(ask @ Ask::Calls(_)) = effect {
                pages += 1;
                let answer = sample::answer(&ask).unwrap();
                update(&mut state, Event::Heard(Heard::Answer(answer)), now);
            }
        }
    }
    assert!((7..=9).contains(&pages), "{pages} pages in four seconds");
}

#[test]
fn what_is_copied_and_written_is_safe_text() {
    let mut state = sample::state();
    assert!(press(&mut state, "y").contains(&Effect::Copy("mysql-prod".into())));
    press(&mut state, "4");
    let [Effect::Write { name, text }] = &press(&mut state, "w")[..] else { panic!("nothing is written") };
    assert!(name.starts_with("forebay-events-k3f9q-") && !name.contains('/'), "{name}");
    assert_eq!(text.lines().count(), 5);
    press(&mut state, "1");
    press(&mut state, "e");
    let [Effect::Write { text, .. }] = &press(&mut state, "w")[..] else { panic!("nothing is written") };
    assert!(!text.contains('\x1b') && text.contains("\\x1b"), "{text}");
}

#[test]
fn an_event_leads_to_its_call_or_its_upstream() {
    let mut state = sample::state();
    press(&mut state, "4\n");
    assert_eq!(state.screen(), &Screen::Request("k3f9q-804".into()));
    press(&mut state, "\x1bjj\n");
    assert_eq!(state.screen(), &Screen::Upstream("slack".into()));
    press(&mut state, "\x1bG\n");
    assert_eq!(state.screen(), &Screen::Events);
    assert!(said(&state).contains("no upstream"));
}

#[test]
fn levels_and_following() {
    let mut state = sample::state();
    press(&mut state, "4L");
    assert_eq!(state.rows(Which::Events, NOW).len(), 2);
    assert!(state.follow);
    press(&mut state, "j");
    assert!(!state.follow, "who moves away from the newest is not carried along");
    press(&mut state, "F");
    assert!(state.follow);
}

#[test]
fn next_and_previous_go_through_the_list_below() {
    let mut state = sample::state();
    press(&mut state, "\n\nn");
    assert_eq!(state.screen(), &Screen::Request("k3f9q-7f3".into()));
    press(&mut state, "N");
    assert_eq!(state.screen(), &Screen::Request("k3f9q-7e9".into()));
}

#[test]
fn help_is_left_by_the_next_key_and_shows_what_is_valid_here() {
    let mut state = sample::state();
    press(&mut state, "?");
    assert_eq!(state.mode(), Mode::Help);
    press(&mut state, "?");
    assert_eq!(state.mode(), Mode::Screen(Kind::Upstreams));
}

#[test]
fn moving_stays_within_the_list() {
    let mut state = sample::state();
    for way in
        [Move::Last, Move::Down, Move::PageDown, Move::HalfDown, Move::First, Move::Up, Move::PageUp, Move::HalfUp]
    {
        happen(&mut state, Event::Act(Action::Move(way)), NOW);
        assert!(state.selected(Which::Upstreams, NOW).is_some(), "{way:?}");
    }
    assert_eq!(state.lists.upstreams.at, 0);
    assert_eq!(Sort::Pressure, state.lists.upstreams.sort);
}

#[test]
fn a_refusal_of_the_daemon_is_said_in_its_words() {
    let mut state = sample::state();
    let ask = Ask::Steer(Steer::Pause, "mysql-prod".into());
    let answer = Answer::Failed(ask, "a viewer may not steer: ask for the role operator".into());
    update(&mut state, Event::Heard(Heard::Answer(answer)), NOW);
    assert!(said(&state).contains("role operator"));
    assert!(state.notice.as_ref().unwrap().bad);
    update(&mut state, Event::Tick, NOW.plus(NOTICE_MS));
    assert_eq!(state.notice, None);
}
