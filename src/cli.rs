//! The command line: what can be typed, and how it ends. One file a subcommand.
//!
//! Data goes to standard output, talk to standard error, both through [`out`] alone. Every failure is a
//! [`CliError`] with an [`Exit`] code that scripts can rely on.

mod bridge;
mod call;
mod callers;
mod cancel;
mod check;
mod completions;
mod config;
mod daemon;
mod demo;
mod doctor;
mod edit;
mod error;
mod events;
mod global;
mod health;
mod key;
mod man;
pub mod out;
mod ps;
mod reload;
mod run;
mod serve;
mod status;
mod tui;
mod upstream;
mod why;

pub use error::{CliError, Exit};
pub use global::{ColorChoice, Global, Output};

use crate::config::Source;
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// What stands below the options; `docs/cli.md` has all of it.
const AFTER_HELP: &str = "\
Environment:
  FOREBAY_ADMIN  as --admin, for the daemon and the commands alike
  FOREBAY_LOG    what `serve` logs, in place of -q and -v: such as debug or warn,forebay=trace
  FOREBAY_KEY    the caller's key for `call` and `bridge`
  FOREBAY_LISTEN_..., FOREBAY_GLOBAL_..., FOREBAY_DEFAULTS_...  settings over the config's

Exit codes:
  0 done  1 failed  2 usage  3 config invalid  4 daemon unreachable  5 not found
  6 not allowed  7 partly done  8 timed out  130 interrupted";

/// A queueing daemon between MCP clients and MCP servers.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, max_term_width = 100, disable_help_subcommand = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    Serve(serve::Args),
    /// Watch and steer on live screens: upstreams, requests, callers, events
    Tui(tui::Args),
    /// List calls: running, lingering and queued
    Ps(ps::Args),
    /// Show the upstreams and how they stand
    Status(status::Args),
    /// Tell why a call waits or an upstream is full, and who holds the slots
    Why(why::Args),
    /// End calls, queued or running: by id, or all that a selector takes
    Cancel(cancel::Args),
    /// Steer one upstream
    Upstream(upstream::Args),
    /// Change a queued call: its lane, the end of its wait
    Edit(edit::Args),
    /// Show who calls, what they hold, and their limits
    Callers(callers::Args),
    /// Show what has happened, and with -f what happens
    Events(events::Args),
    /// Call a tool through its queue
    Call(call::Args),
    /// Check a config: every fault at once, with file, line, key and hint
    Check(check::Args),
    /// Have the daemon read its config anew: whole or not at all
    Reload(reload::Args),
    /// The config in force with the origin of each value, and its JSON Schema
    Config(config::Args),
    /// Look for what is wrong around forebay: commands, sockets, ports, servers, zombies
    Doctor(doctor::Args),
    /// Tell by the exit code whether the daemon is well: 0 healthy, 1 degraded, 4 unreachable
    Health(health::Args),
    /// Put a queue around one stdio server: a drop-in command for a client's JSON, no daemon
    Run(run::Args),
    /// A running daemon's MCP on standard input and output, for clients that cannot speak HTTP
    Bridge(bridge::Args),
    /// Keys of callers
    Key(key::Args),
    /// Completions for a shell, on standard output
    Completions(completions::Args),
    /// The manual pages
    Man(man::Args),
    /// See it work with nothing to set up: demo servers, simulated callers, live queues, a table at the end
    Demo(demo::Args),
    /// One of the demo's own servers
    #[command(hide = true)]
    DemoServer(demo::ServerArgs),
}

/// Which config a command is about.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigArgs {
    /// The config file [default: $XDG_CONFIG_HOME/forebay/config.toml, then /etc/forebay/config.toml]
    #[arg(long, value_name = "FILE", conflicts_with = "mcp_config")]
    pub config: Option<PathBuf>,
    /// Take the servers from an `mcpServers` file as clients have it, such as .mcp.json
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
}

impl ConfigArgs {
    pub fn source(&self) -> Source {
        match (&self.config, &self.mcp_config) {
            (Some(file), _) => Source::File(file.clone()),
            (None, Some(file)) => Source::McpFile(file.clone()),
            (None, None) => Source::Discover,
        }
    }
}

/// Runs the command line of this process to its end.
pub fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&typed) {
        Ok(cli) => cli,
        Err(error) => return refuse_usage(&error, &typed),
    };
    let global = cli.global.clone();
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(format!("cannot start the runtime: {error}")))
        .and_then(|runtime| {
            let result = runtime.block_on(run(cli));
            // A read of standard input may still block a thread; the process must not wait for it.
            runtime.shutdown_background();
            result
        });
    match result {
        Ok(()) => Exit::Ok.into(),
        Err(error) => {
            out::error(&error, &global);
            error.code.into()
        }
    }
}

async fn run(cli: Cli) -> Result<(), CliError> {
    let global = &cli.global;
    // What runs on, and a call, which has its deadline from the daemon, are not cut short.
    let limit = match &cli.command {
        Command::Serve(_) | Command::Run(_) | Command::Bridge(_) | Command::Demo(_) | Command::DemoServer(_) => None,
        Command::Call(_) => None,
        _ => global.timeout,
    };
    match limit {
        None => dispatch(cli.command, global).await,
        Some(limit) => tokio::time::timeout(limit, dispatch(cli.command, global)).await.unwrap_or_else(|_| {
            let limit = crate::config::show_duration(Some(limit));
            Err(CliError::new(Exit::TimedOut, format!("not done within {limit} (--timeout)")))
        }),
    }
}

async fn dispatch(command: Command, global: &Global) -> Result<(), CliError> {
    match command {
        Command::Serve(args) => serve::run(args, global).await,
        Command::Tui(args) => tui::run(args, global).await,
        Command::Ps(args) => ps::run(args, global).await,
        Command::Status(args) => status::run(args, global).await,
        Command::Why(args) => why::run(args, global).await,
        Command::Cancel(args) => cancel::run(args, global).await,
        Command::Upstream(args) => upstream::run(args, global).await,
        Command::Edit(args) => edit::run(args, global).await,
        Command::Callers(args) => callers::run(args, global).await,
        Command::Events(args) => events::run(args, global).await,
        Command::Call(args) => call::run(args, global).await,
        Command::Check(args) => check::run(args, global).await,
        Command::Reload(args) => reload::run(args, global).await,
        Command::Config(args) => config::run(args, global).await,
        Command::Doctor(args) => doctor::run(args, global).await,
        Command::Health(args) => health::run(args, global).await,
        Command::Run(args) => run::run(args, global).await,
        Command::Bridge(args) => bridge::run(args, global).await,
        Command::Key(args) => key::run(args, global).await,
        Command::Completions(args) => completions::run(args, global).await,
        Command::Man(args) => man::run(args, global).await,
        Command::Demo(args) => demo::run(args, global).await,
        Command::DemoServer(args) => demo::serve(args, global).await,
    }
}

/// Prints help or a usage error. The options were not understood, so the few that say how to print are
/// looked for by hand.
fn refuse_usage(error: &clap::Error, typed: &[OsString]) -> ExitCode {
    let global = Global::guess(typed);
    let styled = error.render();
    if !error.use_stderr() {
        let text = if global.color_on_stdout() { styled.ansi().to_string() } else { styled.to_string() };
        return match out::print(&text) {
            Ok(()) => Exit::Ok.into(),
            Err(failure) => {
                out::error(&failure, &global);
                failure.code.into()
            }
        };
    }
    if global.output == Output::Json {
        let text = styled.to_string();
        let told = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        let message = told.split_whitespace().collect::<Vec<_>>().join(" ");
        out::error(&CliError::usage(message).hint("see forebay --help"), &global);
    } else {
        let text = if global.color_on_stderr() { styled.ansi().to_string() } else { styled.to_string() };
        out::talk(&text);
    }
    Exit::Usage.into()
}

/// The tree of commands, for generated documents and tests.
pub fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_commands_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_and_behind_the_command() {
        for line in ["forebay --output json ps", "forebay ps --output json", "forebay ps --output=json -q -vv"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.global.output, Output::Json, "{line}");
        }
    }

    #[test]
    fn two_configs_at_once_are_a_usage_error() {
        let error = Cli::try_parse_from("forebay check --config a --mcp-config b".split(' ')).unwrap_err();
        assert_eq!(error.exit_code(), i32::from(Exit::Usage as u8));
    }
}
