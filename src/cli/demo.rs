//! `forebay demo`: the command line of the demo; what it shows is in `crate::demo`.

use super::{CliError, Global};
use crate::demo::{self, Options, Scenario, server};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What is played
    #[arg(long, value_name = "NAME", default_value = "runaway", value_parser = ["runaway", "burst"])]
    pub(super) scenario: String,
    /// Keep daemon and load running until stopped, and print the admin address
    #[arg(long)]
    pub(super) hold: bool,
    /// How long each phase lasts, such as 6s
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = crate::config::parse_duration)]
    pub(super) phase: Duration,
    /// The same seed gives the same thoughts, choices and failures
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) seed: u64,
    /// Draw with ASCII letters only
    #[arg(long)]
    pub(super) ascii: bool,
}

/// The demo starts this same program as its servers.
#[derive(Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// Which server to be
    #[arg(value_name = "KIND", value_parser = ["fragile", "slow", "flaky"])]
    pub(super) kind: String,
    /// Serve Streamable HTTP here in place of stdio
    #[arg(long, value_name = "ADDR")]
    pub(super) http: Option<SocketAddr>,
    /// Seed of its times and failures
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(super) seed: u64,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let Args { scenario, hold, phase, seed, ascii } = args;
    let scenario = if scenario == "burst" { Scenario::Burst } else { Scenario::Runaway };
    let phase = phase.clamp(Duration::from_millis(200), Duration::from_secs(3600));
    let options = Options { scenario, hold, phase, seed, ascii };
    let stop = CancellationToken::new();
    let failed = |fault| CliError::failed(format!("cannot listen for signals: {fault}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        told.cancel();
    });
    demo::run(&options, global, stop).await
}

pub(super) async fn serve(args: ServerArgs, _global: &Global) -> Result<(), CliError> {
    let kind = server::Kind::from_name(&args.kind)
        .ok_or_else(|| CliError::usage(format!("there is no demo server `{}`", args.kind)))?;
    server::serve(kind, args.http, args.seed)
        .await
        .map_err(|fault| CliError::failed(format!("the demo server stopped: {fault}")))
}
