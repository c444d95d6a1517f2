//! The terminal: taken on start, given back on every way out, a panic included.

use crate::state::Overview;
use crate::view::{self, Look};
use ratatui::DefaultTerminal;
use std::io;

/// The terminal in raw mode on its alternate screen. Dropping it gives the terminal back.
#[derive(Debug)]
pub struct Screen {
    terminal: DefaultTerminal,
    look: Look,
}

impl Screen {
    /// Takes the terminal; a hook gives it back before a panic is printed.
    ///
    /// # Errors
    /// Standard output is no terminal.
    pub fn take(look: Look) -> io::Result<Self> {
        Ok(Screen { terminal: ratatui::try_init()?, look })
    }

    /// Draws one frame.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, overview: &Overview) -> io::Result<()> {
        let look = self.look;
        self.terminal.draw(|frame| view::overview(frame, overview, look)).map(drop)
    }

    /// Forgets what is on the screen, so that the next frame draws all of it.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn clear(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
    }
}
