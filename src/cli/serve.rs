//! `forebay serve`: runs the daemon until a signal ends it. What it builds is `app`'s.

use super::{CliError, ConfigArgs, Exit, Global, check};
use crate::app::{App, StartError};
use crate::config::{Loader, ProcessEnv};
use crate::telemetry;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let admin = if global.admin.is_some() { Some(global.admin_socket()?) } else { None };
    let loader = Loader::new(args.config.source(), admin, Arc::new(ProcessEnv));
    let loaded = loader.load();
    let (config, warnings) = loaded.config.map_err(|faults| check::refused(&faults, global))?;
    check::tell_warnings(&warnings, global);
    telemetry::start(global.quiet, global.verbose, global.color_on_stderr());
    let mut end = Ends::new()?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let app = App::start_from(config, Some((loader, loaded.files))).map_err(refused)?;
    loop {
        tokio::select! {
            biased;
            () = end.next() => break,
            _ = hang_up.recv() => if let Some(reload) = &app.reload {
                reload.nudge("SIGHUP");
            },
        }
    }
    app.shut_down(async { end.next().await }).await;
    Ok(())
}

fn listen(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|fault| CliError::failed(format!("cannot listen for signals: {fault}")))
}

/// The signals that end the daemon: the first drains, the second hurries.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> Result<Self, CliError> {
        Ok(Ends { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn refused(fault: StartError) -> CliError {
    let hint = match &fault {
        StartError::Listen { .. } => "see what holds the address, or set another `listen.mcp`",
        StartError::Admin(_) => "give this daemon another socket by `listen.admin` or --admin",
        StartError::Thread(_) | StartError::Randomness(_) => "see the limits of this user and machine",
    };
    let mut message = fault.to_string();
    let mut source = std::error::Error::source(&fault);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    CliError::new(Exit::Failed, message).hint(hint)
}
