//! `forebay upstream`: pauses, resumes or drains one upstream.

use super::{CliError, Global};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    /// Start no more calls; arrivals queue
    Pause(Name),
    /// Start calls again, after a pause or a drain
    Resume(Name),
    /// Refuse arrivals and let the queue run dry
    Drain(Name),
}

#[derive(Debug, clap::Args)]
pub(super) struct Name {
    /// The upstream
    #[arg(value_name = "NAME")]
    pub(super) name: String,
}

pub(super) async fn run(args: Args, _global: &Global) -> Result<(), CliError> {
    let (Action::Pause(Name { name: _ }) | Action::Resume(Name { name: _ }) | Action::Drain(Name { name: _ })) =
        args.action;
    Err(CliError::not_built("upstream"))
}
