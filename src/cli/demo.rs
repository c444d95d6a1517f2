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
    /// How long each phase lasts, from 200ms to 1h
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = phase)]
    pub(super) phase: Duration,
    /// Fixes what the callers choose and how long they pause, not how calls meet in time: figures still differ
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

/// Shorter phases would measure nothing, and longer ones are what `--hold` is for.
fn phase(text: &str) -> Result<Duration, String> {
    match crate::config::parse_duration(text)? {
        short if short < Duration::from_millis(200) => Err("is too short: the smallest phase is 200ms".into()),
        long if long > Duration::from_secs(3600) => {
            Err("is too long: the longest phase is 1h; --hold runs until stopped".into())
        }
        fine => Ok(fine),
    }
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let Args { scenario, hold, phase, seed, ascii } = args;
    let scenario = if scenario == "burst" { Scenario::Burst } else { Scenario::Runaway };
    let options = Options { scenario, hold, phase, seed, ascii };
    let interrupted = CancellationToken::new();
    let failed = |fault| CliError::failed(format!("cannot listen for signals: {fault}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let told = interrupted.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        told.cancel();
    });
    demo::run(&options, global, interrupted).await
}

pub(super) async fn serve(args: ServerArgs, _global: &Global) -> Result<(), CliError> {
    let kind = server::Kind::from_name(&args.kind)
        .ok_or_else(|| CliError::usage(format!("there is no demo server `{}`", args.kind)))?;
    server::serve(kind, args.http, args.seed)
        .await
        .map_err(|fault| CliError::failed(format!("the demo server stopped: {fault}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_a_smallest_and_a_largest_length() {
        assert_eq!(phase("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(phase("1h"), Ok(Duration::from_secs(3600)));
        for text in ["0", "0s", "199ms"] {
            assert!(phase(text).unwrap_err().contains("200ms"), "{text}");
        }
        assert!(phase("61m").unwrap_err().contains("--hold"));
    }
}
