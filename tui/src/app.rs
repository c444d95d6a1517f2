//! The loop: what is heard and typed goes through `update`, what comes out is done, what changed is drawn.
//! Generic over the ratatui backend and over where events come from, so that a test runs it without a terminal.

use crate::connection::{Connection, Heard};
use crate::input::{Action, meaning};
use crate::state::{Moment, Options, State};
use crate::update::{Effect, Event, update};
use crate::view::{self, Look};
use base64::Engine as _;
use futures_util::{Stream, StreamExt as _};
use ratatui::Terminal;
use ratatui::backend::Backend;
use std::io::{self, Write as _};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// Time between two frames at the least.
const FRAME: Duration = Duration::from_millis(100);
/// Time goes on so often even if nothing else happens: ages, countdowns, polls.
const TICK: Duration = Duration::from_millis(250);
/// Longest text that is put on a clipboard; terminals cut or refuse longer ones.
const LONGEST_COPY: usize = 4_096;

/// What the loop does with the terminal beside drawing.
pub trait Desk {
    /// Sends bytes to the terminal beside the frames.
    ///
    /// # Errors
    /// The terminal is gone.
    fn send(&mut self, bytes: &str) -> io::Result<()>;

    /// Stops this process, and takes the terminal again when it goes on.
    ///
    /// # Errors
    /// The terminal is gone.
    fn suspend(&mut self) -> io::Result<()>;

    /// Takes the terminal again after somebody else has had it.
    ///
    /// # Errors
    /// The terminal is gone.
    fn retake(&mut self) -> io::Result<()>;

    /// A frame was drawn.
    fn drawn(&mut self) {}
}

/// What comes from outside beside keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End: asked to by a signal.
    End,
    /// Give the terminal back and stop.
    Stop,
    /// Going on after having been stopped.
    Continue,
}

/// How the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The person quit.
    Quit,
    /// A signal ended it.
    Signal,
    /// The keyboard is gone: the terminal was closed.
    Closed,
    /// Something panicked; its message has been printed.
    Panicked,
}

/// What the loop runs on.
pub struct App<K, S> {
    pub options: Options,
    pub look: Look,
    pub connection: Connection,
    pub heard: mpsc::Receiver<Heard>,
    pub keys: K,
    pub signals: S,
}

/// Runs until the person quits.
///
/// # Errors
/// The terminal is gone.
pub async fn run<B, K, S>(app: App<K, S>, desk: &mut impl DeskWith<B>) -> io::Result<Ended>
where
    B: Backend,
    B::Error: Send + Sync + 'static,
    K: Stream<Item = io::Result<crossterm::event::Event>> + Unpin,
    S: Stream<Item = Signal> + Unpin,
{
    let App { options, look, mut connection, mut heard, mut keys, mut signals } = app;
    let started = Instant::now();
    let now = || Moment(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mut state = State::new(options);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut drawn_at: Option<Instant> = None;
    loop {
        let due = drawn_at.map_or_else(Instant::now, |at| at + FRAME);
        let event = tokio::select! {
            biased;
            Some(signal) = signals.next() => match signal {
                Signal::End => return Ok(Ended::Signal),
                Signal::Stop => Event::Act(Action::Suspend),
                Signal::Continue => {
                    desk.retake()?;
                    Event::Act(Action::Redraw)
                }
            },
            key = keys.next() => match key {
                None => return Ok(Ended::Closed),
                Some(key) => match meaning(&key?, state.mode()) {
                    Some(action) => Event::Act(action),
                    None => continue,
                },
            },
            // Before what is heard, so that a flood of it cannot keep a frame from being drawn.
            () = sleep_until(due), if state.changed => {
                state.changed = false;
                let at = now();
                let mut drawn = None;
                desk.terminal()
                    .draw(|frame| drawn = Some(view::draw(frame, &state, look, at)))
                    .map_err(io::Error::other)?;
                if let Some(drawn) = drawn {
                    // What is in sight decides what is asked for.
                    if state.drawn != drawn {
                        state.drawn = drawn;
                        ticks.reset_immediately();
                    }
                }
                desk.drawn();
                drawn_at = Some(Instant::now());
                continue;
            }
            Some(heard) = heard.recv() => Event::Heard(heard),
            _ = ticks.tick() => Event::Tick,
        };
        if crate::term::has_panicked() || connection.is_broken() {
            return Ok(Ended::Panicked);
        }
        for effect in update(&mut state, event, now()) {
            match effect {
                Effect::Quit => return Ok(Ended::Quit),
                Effect::Ask(ask) => {
                    connection.ask(ask);
                }
                Effect::Reconnect => connection.again(),
                Effect::Redraw => {
                    desk.terminal().clear().map_err(io::Error::other)?;
                    state.changed = true;
                }
                Effect::Suspend => {
                    desk.suspend()?;
                    state.changed = true;
                }
                Effect::Copy(text) => desk.send(&osc52(&text))?,
                Effect::Write { name, text } => {
                    let (text, bad) = match write(&name, &text) {
                        Ok(()) => (format!("written to {name}"), false),
                        Err(fault) => (format!("cannot write {name}: {fault}"), true),
                    };
                    update(&mut state, Event::Told { text, bad }, now());
                }
            }
        }
    }
}

/// A [`Desk`] together with the terminal that frames are drawn on.
pub trait DeskWith<B: Backend>: Desk {
    fn terminal(&mut self) -> &mut Terminal<B>;
}

/// The sequence that puts text on the clipboard of the person's own terminal, also through ssh.
fn osc52(text: &str) -> String {
    let mut end = text.len().min(LONGEST_COPY);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("\x1b]52;c;{}\x07", base64::engine::general_purpose::STANDARD.encode(&text[..end]))
}

fn write(name: &str, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // Never over a file that is there; what was called may be no one else's business.
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(name)?;
    file.write_all(text.as_bytes())
}

impl Desk for crate::term::Screen {
    fn send(&mut self, bytes: &str) -> io::Result<()> {
        let mut out = io::stdout();
        out.write_all(bytes.as_bytes())?;
        out.flush()
    }

    fn suspend(&mut self) -> io::Result<()> {
        crate::term::Screen::suspend(self)
    }

    fn retake(&mut self) -> io::Result<()> {
        crate::term::Screen::retake(self)
    }
}

impl DeskWith<ratatui::backend::CrosstermBackend<io::Stdout>> for crate::term::Screen {
    fn terminal(&mut self) -> &mut ratatui::DefaultTerminal {
        crate::term::Screen::terminal(self)
    }
}

/// One frame of the overview as text, for a terminal that is not taken. `None`: the daemon was not heard in time.
pub async fn once(
    options: Options,
    look: Look,
    (width, height): (u16, u16),
    mut connection: Connection,
    mut heard: mpsc::Receiver<Heard>,
    patience: Duration,
) -> Result<ratatui::buffer::Buffer, String> {
    let started = Instant::now();
    let now = || Moment(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mut state = State::new(options);
    let mut terminal =
        Terminal::new(ratatui::backend::TestBackend::new(width, height)).map_err(|fault| fault.to_string())?;
    let mut waits = 0;
    // What stands beside the overview is asked for in turn: the queue, then the call that is selected in it.
    for rounds in 0.. {
        let mut drawn = state.drawn.clone();
        terminal.draw(|frame| drawn = view::draw(frame, &state, look, now())).map_err(|fault| fault.to_string())?;
        state.drawn = drawn;
        if state.is_live() {
            for effect in update(&mut state, Event::Tick, now()) {
                if let Effect::Ask(ask) = effect
                    && connection.ask(ask)
                {
                    waits += 1;
                }
            }
            if waits == 0 || rounds > 40 {
                break;
            }
        }
        let left = patience.saturating_sub(started.elapsed());
        let event = match tokio::time::timeout(left, heard.recv()).await {
            Ok(Some(event)) => event,
            Ok(None) => return Err("the connection has ended".into()),
            // What came by now is shown; without any word there is nothing to show.
            Err(_) if state.is_live() => break,
            Err(_) => return Err("the daemon does not answer".into()),
        };
        match &event {
            Heard::Lost { why, .. } => return Err(why.clone()),
            Heard::Answer(_) => waits -= 1,
            Heard::Update(_) | Heard::Connecting => {}
        }
        for effect in update(&mut state, Event::Heard(event), now()) {
            if let Effect::Ask(ask) = effect
                && connection.ask(ask)
            {
                waits += 1;
            }
        }
    }
    Ok(terminal.backend().buffer().clone())
}
