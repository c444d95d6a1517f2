//! `forebay run`: puts the queue around one stdio server. What is put together is `crate::run`'s.

use super::{CliError, Exit, Global};
use crate::config::{AfterCancel, Concurrency, Limits, OnFull};
use crate::run::{self, Options, RunError};
use crate::telemetry;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Calls that the server has at once; 0 or `unlimited` for no limit
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = concurrency)]
    max_concurrent: Concurrency,
    /// Calls that wait at most; 0 for none
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(..=100_000))]
    queue_size: u32,
    /// Longest wait, then the call is answered `expired`; 0 for no end
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = crate::config::parse_duration)]
    queue_timeout: Duration,
    /// Longest run, then the call is answered `timed_out`; 0 for no end
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = crate::config::parse_duration)]
    call_timeout: Duration,
    /// How long the server may take to stop a cancelled call before its slot is taken for free
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = crate::config::parse_duration)]
    cancel_grace: Duration,
    /// What becomes of the slot then
    #[arg(long, value_name = "WHAT", default_value = "release", value_parser = ["release", "hold", "recycle"])]
    after_cancel: String,
    /// Who is refused by a full queue: the least deserving call or the newcomer
    #[arg(long, value_name = "WHO", default_value = "displace", value_parser = ["displace", "reject"])]
    on_full: String,
    /// How long what was asked may go on once the client has closed its end
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = crate::config::parse_duration)]
    grace: Duration,
    /// The server and its arguments, as the client would start it
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl std::fmt::Debug for Args {
    /// Leaves out the arguments, which may hold a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Args").field("command", &self.command.first()).finish_non_exhaustive()
    }
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let mut command = args.command.into_iter();
    let limit = |time: Duration| Some(time).filter(|time| !time.is_zero());
    let options = Options {
        command: command.next().unwrap_or_default(),
        args: command.collect(),
        limits: Limits {
            max_concurrent: args.max_concurrent,
            queue_size: args.queue_size,
            queue_timeout: limit(args.queue_timeout),
            call_timeout: limit(args.call_timeout),
            cancel_grace: args.cancel_grace,
            after_cancel: match &*args.after_cancel {
                "hold" => AfterCancel::Hold,
                "recycle" => AfterCancel::Recycle,
                _ => AfterCancel::Release,
            },
            on_full: if args.on_full == "reject" { OnFull::Reject } else { OnFull::Displace },
            ..Limits::built_in(true)
        },
        grace: args.grace,
    };
    telemetry::start(global.quiet, global.verbose, global.color_on_stderr());
    run::run(options, tokio::io::stdin(), tokio::io::stdout(), on_signals()?).await.map_err(|fault| match fault {
        RunError::Command(why) => CliError::new(Exit::NotFound, super::out::clean(&why))
            .hint("name the server as you would start it: forebay run -- npx -y some-mcp-server"),
        RunError::Randomness(_) => CliError::failed(fault.to_string()),
    })
}

/// A token that the signals which end a process cancel.
pub(super) fn on_signals() -> Result<CancellationToken, CliError> {
    let failed = |fault| CliError::failed(format!("cannot listen for signals: {fault}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        told.cancel();
    });
    Ok(stop)
}

fn concurrency(text: &str) -> Result<Concurrency, String> {
    match text {
        "0" | "unlimited" => Ok(Concurrency::Unlimited),
        number => match number.parse() {
            Ok(limit) if limit <= crate::config::MAX_CONCURRENT_CEILING => Ok(Concurrency::Fixed(limit)),
            _ => Err(format!(
                "must be a whole number up to {}, or 0 or `unlimited` for no limit",
                crate::config::MAX_CONCURRENT_CEILING
            )),
        },
    }
}
