//! `forebay demo`: nothing to set up. The program starts itself as three MCP servers, runs the daemon in
//! this process, and lets ten careful callers and one runaway loose on it: first without limits, then with.
//!
//! [`server`] is what is called, [`load`] calls and measures, [`house`] holds what both stand on, [`show`],
//! [`report`] and `compare` tell what was measured. No figure is made up: each comes from a call that was made.

pub mod client;
mod compare;
mod daemon;
pub mod house;
pub mod load;
pub mod report;
pub mod server;
pub mod show;
pub mod tally;

use crate::cli::{CliError, Exit, Global, out};
use client::{Answer, Client};
use forebay_tui::state::Overview;
use forebay_wire as wire;
use house::{CAREFUL, House, Limits};
use load::{Group, Load};
use report::{Figures, Phase, Report};
use server::Kind;
use show::{End, Rows, Show};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The calls of the burst.
const BURST: usize = 30;
/// How long the daemon may take for a state document before the picture is called stale.
const FRESH: Duration = Duration::from_millis(300);

/// What is to be played, and how.
#[derive(Clone, Debug)]
pub struct Options {
    pub scenario: Scenario,
    /// Keep daemon and load running until stopped.
    pub hold: bool,
    /// Length of each phase.
    pub phase: Duration,
    pub seed: u64,
    pub ascii: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    Runaway,
    Burst,
}

/// Why a demo could not be played.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("cannot {0}: {1}")]
    Start(&'static str, #[source] std::io::Error),
    #[error("the system gives no random bytes: {0}")]
    Random(String),
    #[error("the demo's own config is refused: {0}")]
    Config(String),
    #[error("the daemon does not start: {0}")]
    Daemon(String),
    #[error("the demo servers are not up in time: {0}")]
    NotReady(String),
}

impl From<DemoError> for CliError {
    fn from(error: DemoError) -> Self {
        CliError::failed(out::clean(&error.to_string()))
    }
}

/// Plays a demo to its end, or until it is `interrupted`. One that is ended early tells what it has measured.
///
/// # Errors
/// A server or the daemon does not start, or nobody can be shown anything; or it was interrupted and not held.
pub async fn run(options: &Options, global: &Global, interrupted: CancellationToken) -> Result<(), CliError> {
    // A person who quits cancels this alone.
    let stop = interrupted.child_token();
    let mut report = Report { scenario: "runaway", seed: options.seed, stopped: false, phases: Vec::new() };
    let runaway: &[_] = match options.hold {
        false => &[(compare::WITHOUT, Limits::None), (compare::WITH, Limits::Fitting)],
        true => &[(compare::WITH, Limits::Fitting)],
    };
    match options.scenario {
        Scenario::Burst => {
            report.scenario = "burst";
            report.phases.extend(burst(options, global, &stop).await?);
        }
        Scenario::Runaway => {
            for (name, limits) in runaway {
                report.phases.extend(phase(name, *limits, options, global, &stop, &interrupted).await?);
                if stop.is_cancelled() {
                    break;
                }
            }
        }
    }
    // To be stopped is the ordinary end of a demo that is held.
    report.stopped = stop.is_cancelled() && !options.hold;
    if !report.phases.is_empty() {
        tell(options, global, &report)?;
    }
    let measured = options.hold && !report.phases.is_empty();
    if interrupted.is_cancelled() && !measured { Err(CliError::silent(Exit::Interrupted)) } else { Ok(()) }
}

fn tell(options: &Options, global: &Global, report: &Report) -> Result<(), CliError> {
    if global.json() {
        return out::json(report);
    }
    match options.scenario {
        Scenario::Burst => out::print(&report::burst(report)),
        Scenario::Runaway => out::print(&format!("\n{}", compare::table(report, global.color_on_stdout()))),
    }
}

/// One phase, from starting its servers to ending them. None if it was stopped before its callers had begun.
async fn phase(
    name: &str,
    limits: Limits,
    options: &Options,
    global: &Global,
    stop: &CancellationToken,
    interrupted: &CancellationToken,
) -> Result<Option<Phase>, CliError> {
    let house = tokio::select! {
        house = House::open(limits, options.seed) => house?,
        () = stop.cancelled() => return Ok(None),
    };
    let played = play(name, &house, options, global, stop, interrupted).await;
    house.close().await;
    played.map(Some)
}

async fn play(
    name: &str,
    house: &House,
    options: &Options,
    global: &Global,
    stop: &CancellationToken,
    interrupted: &CancellationToken,
) -> Result<Phase, CliError> {
    if options.hold && !global.json() {
        out::print(&commands(house))?;
    }
    let load = Load::start(house.mcp(), house.personas(), options.seed)
        .map_err(|fault| DemoError::Start("start the callers", fault))?;
    let started = Instant::now();
    // The screen is given back at the end of this block, before anything else is printed.
    let shown = {
        let mut show = Show::open(global, options.ascii);
        show.say(&format!("-- {name}: {} careful callers and a runaway with 16 loops", CAREFUL.len()))?;
        show.say(&format!("   {}\n{}", show::LEGEND, show::HEAD))?;
        watch(name, house, &load, &mut show, options, stop, interrupted).await
    };
    let measured = load.finish().await;
    let elapsed = started.elapsed();
    shown?;
    let peaks = peaks(house).await;
    Ok(Phase::of(name, elapsed, &measured, peaks))
}

/// Shows the phase until its time is over or somebody stops it.
async fn watch(
    name: &str,
    house: &House,
    load: &Load,
    show: &mut Show,
    options: &Options,
    stop: &CancellationToken,
    interrupted: &CancellationToken,
) -> Result<(), CliError> {
    let started = Instant::now();
    let mut rows = Rows::default();
    let mut overview = Overview { title: format!("demo: {name}"), ..Overview::default() };
    let mut fresh = started;
    let mut tick = tokio::time::interval(show.pace());
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let elapsed = started.elapsed();
        if !options.hold && elapsed >= options.phase {
            return Ok(());
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = tick.tick() => {}
        }
        match show.ends() {
            Some(End::Quit) => stop.cancel(),
            Some(End::Interrupt) => interrupted.cancel(),
            None => {}
        }
        if stop.is_cancelled() {
            return Ok(());
        }
        match timeout(FRESH, house.admin().state()).await {
            Ok(Ok(state)) => {
                overview.state = state;
                overview.stale = None;
                fresh = Instant::now();
            }
            _ => overview.stale = Some(fresh.elapsed()),
        }
        overview.progress = Some((started.elapsed(), if options.hold { started.elapsed() } else { options.phase }));
        overview.callers = rows.of(load.callers(), Instant::now());
        overview.note = note(house, load, &overview.state, options.hold);
        show.frame(&overview)?;
    }
}

fn note(house: &House, load: &Load, state: &wire::State, hold: bool) -> String {
    if hold {
        return format!("{} ps --admin unix:{}   q stops", program(), house.admin().socket().display());
    }
    let of = |group| show::share_ok(load.callers(), group);
    let worst = state.upstreams.iter().map(|up| up.running + up.lingering).max().unwrap_or(0);
    format!(
        "careful {}, runaway {}, busiest server {worst} in flight   q stops",
        of(Group::Careful),
        of(Group::Runaway)
    )
}

/// What each server itself counted, asked through its queue once the load is over.
async fn peaks(house: &House) -> BTreeMap<&'static str, Option<u32>> {
    let mut client = Client::new(house.mcp(), house.guest().expose());
    let mut peaks = BTreeMap::new();
    for kind in Kind::ALL {
        let asked = timeout(Duration::from_secs(5), client.call(kind.name(), "peak", "{}")).await;
        let peak = match asked {
            Ok((Answer::Ok(text), _)) => text.parse().ok(),
            _ => None,
        };
        peaks.insert(kind.name(), peak);
    }
    peaks
}

async fn burst(options: &Options, global: &Global, stop: &CancellationToken) -> Result<Option<Phase>, CliError> {
    let house = tokio::select! {
        house = House::open(Limits::FiveAndTen, options.seed) => house?,
        () = stop.cancelled() => return Ok(None),
    };
    let kind = Kind::Slow;
    let key = house.guest().expose().to_owned();
    let started = Instant::now();
    // Long enough that none is answered before all have arrived.
    let fired = tokio::select! {
        tally = load::burst(house.mcp(), &key, BURST, kind, r#"{"ms":600}"#) => Some(tally),
        () = stop.cancelled() => None,
    };
    let elapsed = started.elapsed();
    let phase = match fired {
        None => None,
        Some(tally) => {
            let peaks = peaks(&house).await.into_iter().filter(|(name, _)| *name == kind.name()).collect();
            Some(Phase {
                name: format!("{BURST} calls at once against 5 running + 10 queued"),
                elapsed_ms: elapsed.as_millis() as u64,
                groups: vec![Figures::of("burst", 1, &tally)],
                peaks,
                refusal_text: tally.said.clone(),
            })
        }
    };
    if options.hold && phase.is_some() && !stop.is_cancelled() {
        if !global.json() {
            out::print(&commands(&house))?;
        }
        stop.cancelled().await;
    }
    house.close().await;
    Ok(phase)
}

/// What a person can try against a demo that is held.
fn commands(house: &House) -> String {
    let admin = format!("unix:{}", quoted(&house.admin().socket().to_string_lossy()));
    let forebay = program();
    format!(
        "admin address: {admin}\nMCP: http://{}/mcp\n\nIn another terminal, for example:\n  \
         export FOREBAY_ADMIN={admin}\n  {forebay} status\n  {forebay} ps --state queued\n  {forebay} cancel ID\n  \
         {forebay} upstream pause fragile\n  {forebay} upstream resume fragile\n  \
         FOREBAY_KEY={} {forebay} call slow report\n\n",
        house.mcp(),
        house.guest().expose()
    )
}

/// How a person starts this very program: by its name if the shell would find it, else by its path.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "forebay".into() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("forebay")).find(|file| file.is_file());
    // Another version under that name may not speak to this daemon.
    let same = found.and_then(|found| found.canonicalize().ok()) == own.canonicalize().ok();
    if same { "forebay".into() } else { quoted(&own.to_string_lossy()) }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    if word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_split_it() {
        assert_eq!(quoted("/usr/bin/forebay"), "/usr/bin/forebay");
        assert_eq!(quoted("/a b/it's"), r"'/a b/it'\''s'");
        assert_eq!(quoted("$HOME"), "'$HOME'");
    }
}
