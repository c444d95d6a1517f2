//! Every screen as it is drawn, in each size and palette; and that nothing breaks one.

use super::*;
use crate::connection::Heard;
use crate::input::{Action, Kind, Move};
use crate::sample::{self, NOW, happen};
use crate::update::{Event, update};
use forebay_wire as wire;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Style};
use std::fmt::Write as _;
use std::time::Duration;

const SIZES: [(u16, u16); 3] = [(40, 10), (80, 24), (140, 40)];

/// Draws as the loop does: once more after what is in sight was asked for.
fn drawn(state: &mut State, look: Look, (width, height): (u16, u16), now: Moment) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    for _ in 0..2 {
        let mut drawn = Drawn::default();
        terminal.draw(|frame| drawn = draw(frame, state, look, now)).unwrap();
        state.drawn = drawn;
        happen(state, Event::Tick, now);
    }
    terminal.backend().buffer().clone()
}

/// The text, then the styles: a letter for each that occurs, and the runs of each row.
fn told(buffer: &Buffer) -> String {
    let mut out = print(buffer, false);
    let mut styles: Vec<Style> = Vec::new();
    let mut rows = String::new();
    for y in 0..buffer.area.height {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for x in 0..buffer.area.width {
            let style = buffer[(x, y)].style();
            let at = styles.iter().position(|known| *known == style).unwrap_or_else(|| {
                styles.push(style);
                styles.len() - 1
            });
            match runs.last_mut() {
                Some((last, count)) if *last == at => *count += 1,
                _ => runs.push((at, 1)),
            }
        }
        let letters: Vec<_> = runs.iter().map(|(at, count)| format!("{}{count}", letter(*at))).collect();
        let _ = writeln!(rows, "{y:2} {}", letters.join(" "));
    }
    out.push_str("-- styles\n");
    for (at, style) in styles.iter().enumerate() {
        let _ = writeln!(out, "{} {}", letter(at), named(*style));
    }
    out + &rows
}

fn letter(at: usize) -> char {
    char::from(b'a' + u8::try_from(at).unwrap())
}

fn named(style: Style) -> String {
    let color = |color: Option<Color>| color.map_or("-".into(), |color| color.to_string());
    format!("{} on {} {:?}", color(style.fg), color(style.bg), style.add_modifier)
}

fn open(state: &mut State, actions: &[Action]) {
    for action in actions {
        happen(state, Event::Act(*action), NOW);
        happen(state, Event::Tick, NOW);
    }
}

/// The screens by name, and the keys that lead there.
fn screens() -> Vec<(&'static str, Vec<Action>)> {
    use Action::{CancelCaller, Go, Help, Limits, Open, Stderr};
    vec![
        ("upstreams", vec![]),
        ("requests", vec![Go(Kind::Requests)]),
        ("callers", vec![Go(Kind::Callers)]),
        ("events", vec![Go(Kind::Events)]),
        ("upstream", vec![Open]),
        ("request", vec![Open, Action::Move(Move::Down), Action::Move(Move::Down), Open]),
        ("stderr", vec![Stderr]),
        ("help", vec![Open, Help]),
        ("confirm", vec![Open, Action::Move(Move::Last), CancelCaller]),
        ("limits", vec![Limits]),
    ]
}

#[test]
fn every_screen_in_every_size_and_palette() {
    for (name, keys) in screens() {
        for palette in Palette::ALL {
            let every_palette = matches!(name, "upstreams" | "request" | "confirm");
            if !every_palette && matches!(palette, Palette::Light | Palette::Cvd) {
                continue;
            }
            for size in SIZES {
                let mut state = sample::state();
                let look = Look { ascii: palette == Palette::Mono, palette };
                drawn(&mut state, look, size, NOW);
                open(&mut state, &keys);
                let buffer = drawn(&mut state, look, size, NOW);
                let file = format!("{name}_{}x{}_{}", size.0, size.1, palette.name());
                insta::assert_snapshot!(file, told(&buffer));
            }
        }
    }
}

fn lose(state: &mut State, now: Moment) {
    let lost = Heard::Lost { why: "no daemon answers at /run/forebay.sock".into(), retry_in: Duration::from_secs(3) };
    update(state, Event::Heard(lost), now);
}

const MONO: Look = Look { ascii: true, palette: Palette::Mono };
const DARK: Look = Look { ascii: false, palette: Palette::Dark };

#[test]
fn a_lost_daemon_leaves_the_last_picture_dimmed_with_its_age() {
    let mut state = sample::state();
    lose(&mut state, NOW);
    for (look, size) in [(MONO, (80, 24)), (DARK, (80, 24)), (MONO, (40, 10))] {
        let buffer = drawn(&mut state, look, size, NOW.plus(12_000));
        insta::assert_snapshot!(format!("stale_{}x{}_{}", size.0, size.1, look.palette.name()), told(&buffer));
    }
}

#[test]
fn ages_stop_while_the_daemon_is_lost() {
    let mut state = sample::state();
    let body = |state: &mut State, now| {
        print(&drawn(state, MONO, (80, 24), now), false).lines().skip(3).take(8).collect::<Vec<_>>().join("\n")
    };
    lose(&mut state, NOW);
    assert_eq!(body(&mut state, NOW), body(&mut state, NOW.plus(60_000)));
    let mut live = sample::state();
    assert_ne!(body(&mut live, NOW), body(&mut live, NOW.plus(60_000)));
}

#[test]
fn smaller_than_small_is_one_line_with_the_totals_or_the_question() {
    let mut state = sample::state();
    let line = |state: &mut State, size| print(&drawn(state, MONO, size, NOW), false);
    assert_eq!(line(&mut state, (60, 1)), "forebay LIVE run 10/-  wait 33 shed 4\n".replace("/-  ", " "));
    assert_eq!(line(&mut state, (12, 1)), "forebay LIVE\n");
    open(&mut state, &[Action::Drain]);
    assert_eq!(line(&mut state, (39, 3)), "Drain mysql-prod? y/N\n");
}

#[test]
fn ascii_mode_draws_ascii_only_and_mono_has_no_colour() {
    for (name, keys) in screens() {
        for size in SIZES {
            let mut state = sample::state();
            drawn(&mut state, MONO, size, NOW);
            open(&mut state, &keys);
            for cell in drawn(&mut state, MONO, size, NOW).content() {
                assert!(cell.symbol().is_ascii(), "{name}: {:?}", cell.symbol());
                assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset), "{name}");
            }
        }
    }
}

#[test]
fn colour_never_carries_meaning_alone() {
    for (name, keys) in screens() {
        let mut state = sample::state();
        drawn(&mut state, MONO, (140, 40), NOW);
        open(&mut state, &keys);
        let plain = print(&drawn(&mut state, Look { palette: Palette::Mono, ..DARK }, (140, 40), NOW), false);
        assert_eq!(plain, print(&drawn(&mut state, DARK, (140, 40), NOW), false), "{name}");
    }
}

#[test]
fn cvd_has_no_red_and_no_green() {
    let mut state = sample::state();
    let look = Look { ascii: true, palette: Palette::Cvd };
    let red_or_green = [Color::Red, Color::LightRed, Color::Green, Color::LightGreen];
    assert!(drawn(&mut state, look, (140, 40), NOW).content().iter().all(|cell| !red_or_green.contains(&cell.fg)));
}

/// The names that outsiders chose.
fn hostile(text: &str) -> wire::Snapshot {
    let mut snapshot = sample::snapshot();
    snapshot.version = text.into();
    snapshot.subject = text.into();
    for upstream in &mut snapshot.upstreams {
        upstream.name.push_str(text);
        upstream.fault = Some(text.into());
    }
    for caller in &mut snapshot.callers {
        caller.name.push_str(text);
        caller.identity = text.into();
        caller.client = Some(text.into());
    }
    for event in &mut snapshot.events {
        (event.kind, event.text) = (text.into(), text.into());
        (event.upstream, event.by, event.call, event.caller) =
            (Some(text.into()), Some(text.into()), Some(text.into()), Some(text.into()));
    }
    snapshot
}

fn assert_harmless(buffer: &Buffer) -> Result<(), TestCaseError> {
    for cell in buffer.content() {
        let hidden = |c: char| {
            c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c)
        };
        prop_assert!(!cell.symbol().chars().any(hidden), "{:?}", cell.symbol());
    }
    Ok(())
}

fn any_action() -> impl Strategy<Value = Action> {
    let bound: Vec<Action> = crate::input::BINDINGS.iter().map(|binding| binding.action).collect();
    prop_oneof![
        6 => proptest::sample::select(bound),
        1 => Just(Action::Yes),
        1 => Just(Action::No),
        1 => Just(Action::Accept),
        1 => Just(Action::Save),
        1 => Just(Action::Erase),
        1 => any::<char>().prop_map(Action::Type),
        1 => (0u16..220, 0u16..70).prop_map(|(column, row)| Action::Click { column, row }),
        1 => any::<i8>().prop_map(Action::Wheel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn no_size_and_no_keys_break_a_screen(
        sizes in proptest::collection::vec((0u16..=200, 0u16..=60), 1..4),
        actions in proptest::collection::vec(any_action(), 0..24),
        ascii in any::<bool>(),
    ) {
        let mut state = sample::state();
        let look = Look { ascii, palette: Palette::Dark };
        let mut now = NOW;
        for (at, action) in actions.into_iter().enumerate() {
            let size = sizes[at % sizes.len()];
            assert_harmless(&drawn(&mut state, look, size, now))?;
            happen(&mut state, Event::Act(action), now);
            now = now.plus(700);
            match at % 9 {
                4 => lose(&mut state, now),
                7 => drop(update(&mut state, Event::Heard(Heard::Update(wire::Update::Snapshot(Box::new(sample::snapshot())))), now)),
                _ => {}
            }
        }
        assert_harmless(&drawn(&mut state, look, sizes[0], now))?;
    }

    #[test]
    fn no_name_breaks_a_screen_or_reaches_the_terminal_raw(
        text in "[a-z\u{1b}\u{7}\r\n\u{202e}\u{200b}漢字\u{9b}e\u{301}👩‍👩‍👧]{0,30}|\\PC{0,20}",
        which in 0usize..10,
        size in 0usize..3,
    ) {
        let mut state = sample::state();
        let snapshot = wire::Update::Snapshot(Box::new(hostile(&text)));
        update(&mut state, Event::Heard(Heard::Update(snapshot)), NOW);
        drawn(&mut state, DARK, SIZES[size], NOW);
        open(&mut state, &screens()[which].1);
        assert_harmless(&drawn(&mut state, DARK, SIZES[size], NOW))?;
    }
}
