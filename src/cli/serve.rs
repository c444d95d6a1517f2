//! `forebay serve`: runs the daemon. What it builds is `app`'s.

use super::{CliError, ConfigArgs, Global};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

pub(super) async fn run(args: Args, _global: &Global) -> Result<(), CliError> {
    let Args { config: ConfigArgs { config: _, mcp_config: _ } } = args;
    Err(CliError::not_built("serve"))
}
