//! `forebay bridge`: the daemon's MCP endpoint on standard input and output, for clients that speak nothing else.

use super::run::on_signals;
use super::{CliError, Global, call, daemon, out};
use crate::bridge::{self, Bridge, Locate};
use crate::config::check_name;
use crate::ingress::stdio::{self, Ended, Limits};
use crate::telemetry;
use forebay_tui::client::Client;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The one upstream to show, under its tools' own names [default: all, as NAME__TOOL]
    #[arg(value_name = "UPSTREAM")]
    upstream: Option<String>,
    /// A name for this client beside others of the same caller, sent along for display; no right hangs on it, and
    /// daemons of this version take no notice of it
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
    /// A file that holds the caller's key; else the variable FOREBAY_KEY is used
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The caller's key
    #[arg(long, value_name = "KEY", env = "FOREBAY_KEY", hide = true, hide_env_values = true)]
    key: Option<String>,
    /// How long what was asked may go on once the client has closed its end
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = crate::config::parse_duration)]
    grace: Duration,
}

impl std::fmt::Debug for Args {
    /// Leaves out the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Args").field("upstream", &self.upstream).field("caller", &self.caller).finish_non_exhaustive()
    }
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    for (what, name) in [("upstream", &args.upstream), ("caller", &args.caller)] {
        if let Some(Err(why)) = name.as_deref().map(check_name) {
            return Err(CliError::usage(format!("the {what}'s name {why}")));
        }
    }
    let key = match &args.key_file {
        Some(file) => Some(std::fs::read_to_string(file).map_err(|fault| {
            CliError::usage(format!("--key-file {} cannot be read: {fault}", out::clean(&file.display().to_string())))
        })?),
        None => args.key,
    };
    let key = key.as_deref().map(str::trim).filter(|key| !key.is_empty());
    telemetry::start(global.quiet, global.verbose, global.color_on_stderr());
    let daemon = Daemon(daemon::client(global)?);
    let bridge = Bridge::new(daemon, args.upstream.as_deref(), key, args.caller.as_deref())
        .map_err(|what| CliError::usage(format!("{what} holds letters that it cannot have")))?;
    let limits = Limits { longest: bridge::LONGEST, open: bridge::OPEN, grace: args.grace };
    let ended = stdio::serve(bridge, tokio::io::stdin(), tokio::io::stdout(), limits, on_signals()?).await;
    if ended == Ended::GraceOver {
        tracing::warn!(grace = ?args.grace, "calls outlasted the grace and were cancelled");
    }
    Ok(())
}

/// A daemon, found by its admin socket.
struct Daemon(Client);

impl Locate for Daemon {
    async fn locate(&self) -> Result<SocketAddr, String> {
        let state = self.0.state().await.map_err(|fault| fault.to_string())?;
        call::reachable(&state.mcp).map_err(|fault| fault.message)
    }
}
