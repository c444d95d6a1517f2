//! Keys. What each means is decided here, so that screens know actions and not key codes.

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io;
use std::time::Duration;

/// What a person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `q` or Esc.
    Quit,
    /// Ctrl-C: in raw mode it is a key and no signal.
    Interrupt,
    /// The window has another size, or a key asks for a fresh picture.
    Redraw,
}

/// The next action that is waiting, if any. Never waits itself.
///
/// # Errors
/// The terminal is gone.
pub fn next() -> io::Result<Option<Action>> {
    while crossterm::event::poll(Duration::ZERO)? {
        if let Some(action) = meaning(&crossterm::event::read()?) {
            return Ok(Some(action));
        }
    }
    Ok(None)
}

fn meaning(event: &Event) -> Option<Action> {
    match event {
        Event::Resize(..) => Some(Action::Redraw),
        Event::Key(key) if key.kind == KeyEventKind::Press => match (key.code, key.modifiers) {
            (KeyCode::Char('c'), KeyModifiers::CONTROL) => Some(Action::Interrupt),
            (KeyCode::Char('q') | KeyCode::Esc, _) => Some(Action::Quit),
            (KeyCode::Char('l'), KeyModifiers::CONTROL) => Some(Action::Redraw),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::KeyEvent;

    #[test]
    fn q_quits_ctrl_c_interrupts_and_typing_does_neither() {
        let press = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Interrupt));
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::NONE), Some(Action::Quit));
        assert_eq!(press(KeyCode::Esc, KeyModifiers::NONE), Some(Action::Quit));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(meaning(&Event::Resize(80, 24)), Some(Action::Redraw));
    }
}
