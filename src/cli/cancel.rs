//! `forebay cancel`: ends calls by id.

use super::{CliError, Global};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Ids as `forebay ps` shows them; the part behind the dash is enough
    #[arg(required = true, value_name = "ID")]
    pub(super) ids: Vec<String>,
}

pub(super) async fn run(args: Args, _global: &Global) -> Result<(), CliError> {
    let Args { ids: _ } = args;
    Err(CliError::not_built("cancel"))
}
