//! `forebay health`: tells by its exit code whether the daemon is well.

use super::{CliError, Global};

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) async fn run(_args: Args, _global: &Global) -> Result<(), CliError> {
    Err(CliError::not_built("health"))
}
