//! `forebay tui`: the terminal screens; what they show is in the package `forebay-tui`.

use super::{CliError, Exit, Global, daemon, out};
use forebay_tui::app::{self, App, Ended, Signal};
use forebay_tui::connection::Connection;
use forebay_tui::state::Options;
use forebay_tui::term::Screen;
use forebay_tui::view::{self, Look, Palette};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use std::io::IsTerminal as _;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long `--once` waits for the daemon's figures.
const PATIENCE: Duration = Duration::from_secs(5);
/// The size of a frame that is printed to no terminal.
const PRINTED: (u16, u16) = (80, 24);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only look; the daemon refuses what steers, too
    #[arg(long)]
    pub(super) read_only: bool,
    /// Draw with ASCII letters only
    #[arg(long)]
    pub(super) ascii: bool,
    /// The colours; NO_COLOR and TERM=dumb mean mono
    #[arg(long, value_enum, value_name = "THEME", default_value_t = Theme::Dark)]
    pub(super) theme: Theme,
    /// Print one frame and exit; needs no terminal
    #[arg(long)]
    pub(super) once: bool,
    /// Leave the mouse to the terminal, for selecting text
    #[arg(long)]
    pub(super) no_mouse: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Theme {
    /// For a dark ground
    Dark,
    /// For a light ground
    Light,
    /// Blue and orange, no red against green
    Cvd,
    /// No colours
    Mono,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let look = look(&args, global);
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !args.once && !is_terminal {
        return Err(CliError::usage("tui needs a terminal on standard input and output")
            .hint("forebay tui --once prints one frame; forebay status and forebay ps print tables and JSON"));
    }
    let client = daemon::client(global)?.acting_as("tui").read_only(args.read_only);
    // Whether there is a daemon is found out before the terminal is taken, so that it is told like everywhere.
    client.state().await?;
    let options = Options {
        read_only: args.read_only,
        target: target(client.socket()),
        utc_offset_s: time::UtcOffset::current_local_offset().map_or(0, time::UtcOffset::whole_seconds),
    };
    let seed = std::process::id().into();
    let (connection, heard) = Connection::open(client, seed);
    if args.once {
        let size = if is_terminal { forebay_tui::term::size().unwrap_or(PRINTED) } else { PRINTED };
        let frame = app::once(options, look, size, connection, heard, PATIENCE)
            .await
            .map_err(|why| CliError::new(Exit::Unreachable, out::clean(&why)))?;
        return out::print(&view::print(&frame, look.palette != Palette::Mono));
    }
    let failed = |fault: std::io::Error| CliError::failed(format!("the terminal cannot be used: {fault}"));
    let signals = signals().map_err(|fault| CliError::failed(format!("cannot listen for signals: {fault}")))?;
    let ended = {
        let mut screen = Screen::take_with(look, !args.no_mouse).map_err(failed)?;
        let keys = crossterm::event::EventStream::new();
        let app = App { options, look, connection, heard, keys, signals };
        // The screen is given back at the end of this block, before anything is printed.
        app::run(app, &mut screen).await
    };
    match ended.map_err(failed)? {
        Ended::Quit => Ok(()),
        Ended::Signal => Err(CliError::silent(Exit::Interrupted)),
        Ended::Closed => Err(CliError::failed("the terminal was closed")),
        // The panic's own message was printed once the terminal was given back.
        Ended::Panicked => Err(CliError::silent(Exit::Failed)),
    }
}

fn look(args: &Args, global: &Global) -> Look {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    let palette = match args.theme {
        _ if !global.color_on_stdout() => Palette::Mono,
        Theme::Dark => Palette::Dark,
        Theme::Light => Palette::Light,
        Theme::Cvd => Palette::Cvd,
        Theme::Mono => Palette::Mono,
    };
    // What is printed to a file or a pipe is read by who knows what.
    let plain = dumb || !std::io::stdout().is_terminal();
    Look { ascii: args.ascii || plain, palette }
}

/// The daemon's address as the header shows it: what tells it from others, and no more.
fn target(socket: &std::path::Path) -> String {
    if crate::config::default_admin(&crate::config::ProcessEnv) == socket {
        return "local".into();
    }
    let name = socket.file_name().map_or_else(|| socket.to_string_lossy(), |name| name.to_string_lossy());
    format!("unix:{}", out::clean(&name))
}

/// The signals that end, stop or go on.
fn signals() -> std::io::Result<BoxStream<'static, Signal>> {
    let of = |kind: SignalKind, means: Signal| -> std::io::Result<BoxStream<'static, Signal>> {
        let signal = signal(kind)?;
        Ok(stream::unfold(signal, move |mut signal| async move { signal.recv().await.map(|()| (means, signal)) })
            .boxed())
    };
    Ok(stream::select_all([
        of(SignalKind::interrupt(), Signal::End)?,
        of(SignalKind::terminate(), Signal::End)?,
        of(SignalKind::hangup(), Signal::End)?,
        of(SignalKind::quit(), Signal::End)?,
        of(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()), Signal::Stop)?,
        of(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()), Signal::Continue)?,
    ])
    .boxed())
}

#[cfg(test)]
mod tests {
    use crate::cli::command;
    use forebay_tui::input::BINDINGS;

    /// The table of keys, as it stands in the guide.
    fn table() -> String {
        let mut table = String::from("| Key | On | Does | The same as |\n|---|---|---|---|\n");
        for binding in BINDINGS.iter().filter(|binding| binding.twin.is_some()) {
            let on: Vec<_> = match binding.on.len() {
                len if len == forebay_tui::input::Kind::ALL.len() => vec!["any"],
                _ => binding.on.iter().map(|kind| kind.name()).collect(),
            };
            let twin = binding.twin.unwrap_or_default();
            table.push_str(&format!("| `{}` | {} | {} | `{twin}` |\n", binding.shown, on.join(", "), binding.words));
        }
        table
    }

    #[test]
    fn every_action_has_a_command_that_the_command_line_takes() {
        for binding in BINDINGS {
            assert!(binding.twin.is_some() || !binding.steers, "{} steers and has no command", binding.shown);
            let Some(twin) = binding.twin else { continue };
            let line = twin.replace("ID", "k3f9q-1f9").replace("UPSTREAM", "mysql").replace("CALLER", "ci-bot");
            if let Err(error) = command().try_get_matches_from(line.split(' ')) {
                panic!("{} says `{line}`, and the command line says {error}", binding.shown);
            }
        }
    }

    #[test]
    fn the_guide_has_the_table_of_keys_and_commands() {
        let guide = include_str!("../../docs/guide.md");
        assert!(guide.contains(&table()), "docs/guide.md should hold:\n{}", table());
    }
}
