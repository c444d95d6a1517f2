//! `forebay call`: tries a tool through its queue.

use super::{CliError, Global};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The upstream
    pub(super) upstream: String,
    /// Its tool, as the upstream names it
    pub(super) tool: String,
    /// The tool's arguments: a JSON object, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}")]
    pub(super) args: String,
    /// The lane to wait in
    #[arg(long, value_name = "LANE", value_parser = ["high", "normal", "low"])]
    pub(super) priority: Option<String>,
    /// Longest time for waiting and running together, such as 30s
    #[arg(long, value_name = "TIME", value_parser = crate::config::parse_duration)]
    pub(super) timeout: Option<Duration>,
}

pub(super) async fn run(args: Args, _global: &Global) -> Result<(), CliError> {
    let Args { upstream: _, tool: _, args: _, priority: _, timeout: _ } = args;
    Err(CliError::not_built("call"))
}
