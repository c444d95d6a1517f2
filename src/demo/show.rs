//! How a running demo is shown: live screens on a terminal, a line a second elsewhere.

use super::load::{Group, Measured, of_group};
use super::server::Kind;
use crate::cli::out;
use crate::cli::{CliError, Global};
use forebay_tui::input::{self, Action};
use forebay_tui::state::{CallerRow, Overview};
use forebay_tui::term::Screen;
use forebay_tui::view::{Look, Palette};
use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a running demo is shown.
pub enum Show {
    Live(Screen),
    /// On standard output, or beside it when the data there is JSON.
    Lines {
        beside: bool,
        quiet: bool,
    },
}

impl Show {
    /// Takes the terminal if there is one to take.
    pub fn open(global: &Global, ascii: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        if terminal && !dumb && !global.json() && !global.quiet {
            let palette = if global.color_on_stdout() { Palette::Dark } else { Palette::Mono };
            let look = Look { ascii, palette };
            if let Ok(screen) = Screen::take(look) {
                return Show::Live(screen);
            }
        }
        Show::Lines { beside: global.json(), quiet: global.quiet }
    }

    /// Time between two frames.
    pub fn pace(&self) -> Duration {
        match self {
            Show::Live(_) => Duration::from_millis(100),
            Show::Lines { .. } => Duration::from_secs(1),
        }
    }

    /// Shows one frame.
    pub fn frame(&mut self, overview: &Overview) -> Result<(), CliError> {
        match self {
            Show::Live(screen) => {
                screen.draw(overview).map_err(|fault| CliError::failed(format!("cannot draw: {fault}")))
            }
            Show::Lines { .. } => self.say(&line(overview)),
        }
    }

    /// Says a sentence between frames; a live screen has it in its foot already.
    pub fn say(&mut self, text: &str) -> Result<(), CliError> {
        match self {
            Show::Live(_) => Ok(()),
            Show::Lines { quiet: true, .. } => Ok(()),
            Show::Lines { beside: true, .. } => {
                out::talk(&format!("{text}\n"));
                Ok(())
            }
            Show::Lines { beside: false, .. } => out::line(text),
        }
    }

    /// Which key that ends the demo was pressed, if any.
    pub fn ends(&mut self) -> Option<End> {
        let Show::Live(screen) = self else { return None };
        loop {
            match input::next() {
                Ok(Some(Action::Quit)) => return Some(End::Quit),
                Ok(Some(Action::Interrupt)) | Err(_) => return Some(End::Interrupt),
                Ok(Some(Action::Redraw)) => {
                    let _ = screen.clear();
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
            }
        }
    }
}

/// How a person ends a demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// They have seen enough.
    Quit,
    /// They want out; scripts are told by the exit code.
    Interrupt,
}

/// What the columns of [`line()`] are. All of it fits into 80 columns for an hour's load.
pub const HEAD: &str = "  TIME   FRAGILE      SLOW     FLAKY     CAREFUL       RUNAWAY   FAILED  REFUSED";
/// What [`HEAD`]'s words mean.
pub const LEGEND: &str = "servers: calls running+waiting; callers: calls ok/made";

/// The overview as one line under [`HEAD`].
fn line(overview: &Overview) -> String {
    let elapsed = overview.progress.map_or(0.0, |(elapsed, _)| elapsed.as_secs_f64());
    let server = |kind: Kind| {
        let up = overview.state.upstreams.iter().find(|up| up.name == kind.name());
        up.map_or("-".into(), |up| format!("{}+{}", u64::from(up.running) + u64::from(up.lingering), up.queued))
    };
    let sum = |of: fn(&CallerRow) -> u64, runaway: Option<bool>| -> u64 {
        let is_runaway = |row: &&CallerRow| row.name == Group::Runaway.name();
        let rows = overview.callers.iter();
        rows.filter(|row| runaway.is_none_or(|wanted| is_runaway(row) == wanted)).map(of).sum()
    };
    let made = |runaway| format!("{}/{}", sum(|row| row.ok, Some(runaway)), sum(|row| row.calls, Some(runaway)));
    format!(
        "{elapsed:>5.1}s {:>9} {:>9} {:>9} {:>11} {:>13} {:>8} {:>8}",
        server(Kind::Fragile),
        server(Kind::Slow),
        server(Kind::Flaky),
        made(false),
        made(true),
        sum(|row| row.failed, None),
        sum(|row| row.refused, None)
    )
}

/// Turns what callers measured into rows, and remembers a second of it for the rates.
#[derive(Default)]
pub struct Rows {
    past: VecDeque<(Instant, Vec<u64>)>,
}

impl Rows {
    pub fn of(&mut self, callers: &[Arc<Measured>], now: Instant) -> Vec<CallerRow> {
        let mut rows: Vec<CallerRow> = callers
            .iter()
            .map(|caller| {
                let tally = caller.tally.lock();
                let ms = |percent| tally.ok_times.percentile(percent).map(|took| took.as_millis() as u64);
                CallerRow {
                    name: caller.name.into(),
                    calls: tally.calls,
                    ok: tally.ok,
                    failed: tally.failed + tally.broken,
                    refused: tally.all_refused(),
                    per_second: 0.0,
                    p50_ms: ms(50),
                    p95_ms: ms(95),
                }
            })
            .collect();
        // The oldest reading that is kept is the first that is at least a second old.
        while self.past.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= Duration::from_secs(1)) {
            self.past.pop_front();
        }
        if let Some((at, counts)) = self.past.front() {
            let seconds = now.duration_since(*at).as_secs_f64().max(0.001);
            for (row, before) in rows.iter_mut().zip(counts) {
                row.per_second = row.calls.saturating_sub(*before) as f64 / seconds;
            }
        }
        self.past.push_back((now, rows.iter().map(|row| row.calls).collect()));
        rows
    }
}

/// What the foot says of a group, from its own figures.
pub fn share_ok(callers: &[Arc<Measured>], group: Group) -> String {
    let tally = of_group(callers, group);
    match tally.calls {
        0 => "no calls yet".into(),
        calls => format!("{} of {calls} ok", tally.ok),
    }
}
