//! Keys and the mouse: what each means where. Pure but for [`next`]; what an action does is decided in `update`.

mod bindings;

pub use bindings::{BINDINGS, Binding, Key, LABELS};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind};
use std::io;
use std::time::Duration;

/// What a person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Quit,
    /// Ctrl-C in a picture that can only be left: in raw mode it is a key and no signal.
    Interrupt,
    /// Ctrl-Z, for the same reason.
    Suspend,
    /// The window has another size, or a key asks for a fresh picture.
    Redraw,
    /// Connect again without waiting.
    Retry,
    Help,
    Back,
    Open,
    Go(Kind),
    NextPane,
    Zoom,
    Move(Move),
    SortLeft,
    SortRight,
    Invert,
    Filter,
    Mark,
    Freeze,
    Copy,
    Cancel,
    CancelCaller,
    Raise,
    Lower,
    Extend,
    Pause,
    Drain,
    Restart,
    Limits,
    Stderr,
    Next,
    Previous,
    Level,
    Follow,
    Write,
    /// To a question.
    Yes,
    No,
    /// Into a line of text.
    Type(char),
    Erase,
    Accept,
    Save,
    Click {
        column: u16,
        row: u16,
    },
    /// The wheel, by so many rows.
    Wheel(i8),
}

/// A way through a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Up,
    Down,
    HalfUp,
    HalfDown,
    PageUp,
    PageDown,
    First,
    Last,
}

/// The screens, by what they are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Upstreams,
    Requests,
    Callers,
    Events,
    Upstream,
    Request,
    Stderr,
}

impl Kind {
    pub const ALL: [Kind; 7] =
        [Kind::Upstreams, Kind::Requests, Kind::Callers, Kind::Events, Kind::Upstream, Kind::Request, Kind::Stderr];
    /// Those that have a number.
    pub const TABS: [Kind; 4] = [Kind::Upstreams, Kind::Requests, Kind::Callers, Kind::Events];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Upstreams => "Upstreams",
            Kind::Requests => "Requests",
            Kind::Callers => "Callers",
            Kind::Events => "Events",
            Kind::Upstream => "Upstream",
            Kind::Request => "Request",
            Kind::Stderr => "Stderr",
        }
    }
}

/// What keys go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Screen(Kind),
    Help,
    /// A question that is answered with yes or no.
    Question,
    /// One line of text.
    Line,
    /// Several lines of text, of which one is edited.
    Form,
    /// A picture that can only be left.
    Watch,
}

/// What an event means, if anything.
pub fn meaning(event: &Event, mode: Mode) -> Option<Action> {
    match event {
        Event::Resize(..) => Some(Action::Redraw),
        Event::Key(key) if key.kind != KeyEventKind::Release => of_key(*key, mode),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => Some(Action::Click { column: mouse.column, row: mouse.row }),
            MouseEventKind::ScrollDown => Some(Action::Wheel(3)),
            MouseEventKind::ScrollUp => Some(Action::Wheel(-3)),
            _ => None,
        },
        _ => None,
    }
}

fn of_key(event: KeyEvent, mode: Mode) -> Option<Action> {
    let key = pressed(event)?;
    // Whatever has the keyboard, these work.
    match key {
        Key::Ctrl('c') => {
            return Some(match mode {
                Mode::Line => Action::No,
                Mode::Watch => Action::Interrupt,
                Mode::Screen(_) | Mode::Help | Mode::Question | Mode::Form => Action::Quit,
            });
        }
        Key::Ctrl('z') => return Some(Action::Suspend),
        Key::Ctrl('l') => return Some(Action::Redraw),
        _ => {}
    }
    match mode {
        Mode::Screen(kind) => BINDINGS
            .iter()
            .find(|binding| binding.on.contains(&kind) && binding.keys.contains(&key))
            .map(|binding| match (binding.action, key) {
                // One row stands for both directions.
                (Action::SortRight, Key::Char('<' | ',')) => Action::SortLeft,
                (action, _) => action,
            })
            .or(match key {
                Key::Code(KeyCode::Left) => Some(Action::Back),
                Key::Code(KeyCode::Right) => Some(Action::Open),
                _ => None,
            }),
        Mode::Help => match key {
            Key::Char('j') | Key::Code(KeyCode::Down) => Some(Action::Move(Move::Down)),
            Key::Char('k') | Key::Code(KeyCode::Up) => Some(Action::Move(Move::Up)),
            Key::Char(' ') | Key::Code(KeyCode::PageDown) => Some(Action::Move(Move::PageDown)),
            Key::Code(KeyCode::PageUp) => Some(Action::Move(Move::PageUp)),
            Key::Char('q') => Some(Action::Quit),
            Key::Code(_) | Key::Char('?') => Some(Action::Back),
            Key::Char(_) | Key::Ctrl(_) => None,
        },
        // No is the default: only one key says yes, and Enter is not it.
        Mode::Question => match key {
            Key::Char('y' | 'Y') => Some(Action::Yes),
            Key::Char('n' | 'N' | 'q') | Key::Code(KeyCode::Esc | KeyCode::Enter) => Some(Action::No),
            Key::Char(_) | Key::Ctrl(_) | Key::Code(_) => None,
        },
        Mode::Line | Mode::Form => match key {
            Key::Char(c) => Some(Action::Type(c)),
            Key::Code(KeyCode::Backspace) | Key::Ctrl('h') => Some(Action::Erase),
            Key::Code(KeyCode::Enter) => Some(Action::Accept),
            Key::Code(KeyCode::Esc) => Some(Action::No),
            Key::Ctrl('s') => Some(Action::Save),
            Key::Code(KeyCode::Up | KeyCode::BackTab) => Some(Action::Move(Move::Up)),
            Key::Code(KeyCode::Down | KeyCode::Tab) => Some(Action::Move(Move::Down)),
            Key::Ctrl(_) | Key::Code(_) => None,
        },
        Mode::Watch => match key {
            Key::Char('q') | Key::Code(KeyCode::Esc) => Some(Action::Quit),
            Key::Char(_) | Key::Ctrl(_) | Key::Code(_) => None,
        },
    }
}

fn pressed(event: KeyEvent) -> Option<Key> {
    match event.code {
        KeyCode::Char(c) if event.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Ctrl(c.to_ascii_lowercase())),
        KeyCode::Char(_) if event.modifiers.contains(KeyModifiers::ALT) => None,
        KeyCode::Char(c) => Some(Key::Char(c)),
        code => Some(Key::Code(code)),
    }
}

/// The keys that are valid on a screen, in the order of the table.
pub fn valid_on(kind: Kind) -> impl Iterator<Item = &'static Binding> {
    BINDINGS.iter().filter(move |binding| binding.on.contains(&kind))
}

/// The next action that is waiting for a picture that can only be left. Never waits itself.
///
/// # Errors
/// The terminal is gone.
pub fn next() -> io::Result<Option<Action>> {
    while crossterm::event::poll(Duration::ZERO)? {
        if let Some(action) = meaning(&crossterm::event::read()?, Mode::Watch) {
            return Ok(Some(action));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(code: KeyCode, modifiers: KeyModifiers, mode: Mode) -> Option<Action> {
        meaning(&Event::Key(KeyEvent::new(code, modifiers)), mode)
    }

    fn typed(c: char, mode: Mode) -> Option<Action> {
        press(KeyCode::Char(c), KeyModifiers::NONE, mode)
    }

    #[test]
    fn q_leaves_a_picture_ctrl_c_interrupts_and_typing_does_neither() {
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL, Mode::Watch), Some(Action::Interrupt));
        assert_eq!(typed('q', Mode::Watch), Some(Action::Quit));
        assert_eq!(press(KeyCode::Esc, KeyModifiers::NONE, Mode::Watch), Some(Action::Quit));
        assert_eq!(typed('c', Mode::Watch), None);
        assert_eq!(meaning(&Event::Resize(80, 24), Mode::Watch), Some(Action::Redraw));
    }

    #[test]
    fn no_key_means_two_things_on_one_screen() {
        for kind in Kind::ALL {
            let mut seen: Vec<Key> = Vec::new();
            for key in valid_on(kind).flat_map(|binding| binding.keys) {
                assert!(!seen.contains(key), "{key:?} on {kind:?}");
                seen.push(*key);
            }
        }
    }

    #[test]
    fn every_key_of_the_table_does_what_its_row_says() {
        for kind in Kind::ALL {
            for binding in valid_on(kind) {
                for key in binding.keys {
                    let (code, modifiers) = match *key {
                        Key::Char(c) => (KeyCode::Char(c), KeyModifiers::NONE),
                        Key::Ctrl(c) => (KeyCode::Char(c), KeyModifiers::CONTROL),
                        Key::Code(code) => (code, KeyModifiers::NONE),
                    };
                    assert_eq!(press(code, modifiers, Mode::Screen(kind)), Some(binding.action), "{}", binding.shown);
                }
            }
        }
    }

    #[test]
    fn every_screen_has_a_way_out_and_help() {
        for kind in Kind::ALL {
            for action in [Action::Quit, Action::Back, Action::Help] {
                assert!(valid_on(kind).any(|binding| binding.action == action), "{action:?} on {kind:?}");
            }
        }
    }

    #[test]
    fn a_question_is_answered_with_no_by_whatever_is_pressed_without_thought() {
        for code in [KeyCode::Enter, KeyCode::Esc, KeyCode::Char('n'), KeyCode::Char('q')] {
            assert_eq!(press(code, KeyModifiers::NONE, Mode::Question), Some(Action::No));
        }
        assert_eq!(typed('c', Mode::Question), None);
        assert_eq!(typed('y', Mode::Question), Some(Action::Yes));
    }

    #[test]
    fn letters_go_into_a_line_and_do_nothing_else() {
        for c in "qcdyn?/ ".chars() {
            assert_eq!(typed(c, Mode::Line), Some(Action::Type(c)));
            assert_eq!(typed(c, Mode::Form), Some(Action::Type(c)));
        }
    }

    #[test]
    fn every_steering_key_has_a_command_that_does_the_same() {
        for binding in BINDINGS.iter().filter(|binding| binding.steers) {
            assert!(binding.twin.is_some(), "{}", binding.shown);
        }
    }
}
