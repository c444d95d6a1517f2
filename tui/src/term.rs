//! The terminal: taken on start, given back on every way out, a panic included.

use crate::state::Overview;
use crate::view::{self, Look};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::DefaultTerminal;
use ratatui::backend::CrosstermBackend;
use std::io::{self, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// The terminal is ours now, and must be given back.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Something panicked while it was ours, in whatever task or thread.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// The terminal in raw mode on its alternate screen. Dropping it gives the terminal back.
#[derive(Debug)]
pub struct Screen {
    terminal: DefaultTerminal,
    look: Look,
    mouse: bool,
}

impl Screen {
    /// Takes the terminal; a hook gives it back before a panic is printed.
    ///
    /// # Errors
    /// Standard output is no terminal.
    pub fn take(look: Look) -> io::Result<Self> {
        Screen::take_with(look, false)
    }

    /// Takes the terminal, and with `mouse` the mouse too.
    ///
    /// # Errors
    /// Standard output is no terminal.
    pub fn take_with(look: Look, mouse: bool) -> io::Result<Self> {
        install_hook();
        PANICKED.store(false, Ordering::SeqCst);
        // Made first: what comes after may fail half-way, and dropping it undoes all of it.
        let terminal = DefaultTerminal::new(CrosstermBackend::new(io::stdout()))?;
        let screen = Screen { terminal, look, mouse };
        enter(mouse)?;
        Ok(screen)
    }

    /// Draws one frame of the demo.
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

    /// What frames are drawn on.
    pub fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.terminal
    }

    /// Takes the terminal again, after somebody else has had it.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn retake(&mut self) -> io::Result<()> {
        enter(self.mouse)?;
        self.terminal.clear()
    }

    /// Gives the terminal back and stops this process, as Ctrl-Z does; returns when it goes on.
    ///
    /// # Errors
    /// The terminal is gone, or the process cannot be stopped.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        self.retake()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Whether something panicked since the terminal was taken. Its message is on the screen by now, so that the
/// only thing left to do is to end.
pub fn has_panicked() -> bool {
    PANICKED.load(Ordering::SeqCst)
}

/// Columns and rows of the terminal.
///
/// # Errors
/// There is none.
pub fn size() -> io::Result<(u16, u16)> {
    crossterm::terminal::size()
}

fn enter(mouse: bool) -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    if mouse {
        execute!(io::stdout(), EnableMouseCapture)?;
    }
    Ok(())
}

/// Everything back as it was. Each step is tried, whatever became of the one before; a terminal that is gone needs
/// none of them.
fn leave() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(io::stdout(), DisableMouseCapture);
    let _ = execute!(io::stdout(), LeaveAlternateScreen, crossterm::cursor::Show);
    let _ = disable_raw_mode();
    let _ = io::stdout().flush();
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if TAKEN.load(Ordering::SeqCst) {
                PANICKED.store(true, Ordering::SeqCst);
            }
            leave();
            before(info);
        }));
    });
}
