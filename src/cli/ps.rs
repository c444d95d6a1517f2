//! `forebay ps`: the calls that are running, lingering or queued.

use super::{CliError, Global};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only calls of this upstream
    #[arg(long, value_name = "NAME")]
    pub(super) upstream: Option<String>,
    /// Only calls of this caller
    #[arg(long, value_name = "NAME")]
    pub(super) caller: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    pub(super) tool: Option<String>,
    /// Only calls in this state
    #[arg(long, value_name = "STATE", value_parser = ["queued", "running", "lingering"])]
    pub(super) state: Option<String>,
    /// Only calls that are older than this, such as 30s
    #[arg(long, value_name = "TIME", value_parser = crate::config::parse_duration)]
    pub(super) older_than: Option<Duration>,
}

pub(super) async fn run(args: Args, _global: &Global) -> Result<(), CliError> {
    let Args { upstream: _, caller: _, tool: _, state: _, older_than: _ } = args;
    Err(CliError::not_built("ps"))
}
