//! `forebay serve`: runs the daemon. What it builds is `app`'s.

use super::{CliError, ConfigArgs, Global, check};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let _config = check::load(&args.config.source(), global)?;
    Err(CliError::not_built("serve"))
}
