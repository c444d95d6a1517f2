//! `forebay demo`: the command line of the demo; what it shows is in `crate::demo`.

use super::{CliError, Global};
use std::net::SocketAddr;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What is played
    #[arg(long, value_name = "NAME", default_value = "runaway", value_parser = ["runaway", "burst"])]
    pub(super) scenario: String,
    /// Keep daemon and load running until stopped, and print the admin address
    #[arg(long)]
    pub(super) hold: bool,
}

/// The demo starts this same program as its servers.
#[derive(Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// Which server to be
    #[arg(value_name = "KIND")]
    pub(super) kind: String,
    /// Serve Streamable HTTP here in place of stdio
    #[arg(long, value_name = "ADDR")]
    pub(super) http: Option<SocketAddr>,
}

pub(super) async fn run(args: Args, _global: &Global) -> Result<(), CliError> {
    let Args { scenario: _, hold: _ } = args;
    Err(CliError::not_built("demo"))
}

pub(super) async fn serve(args: ServerArgs, _global: &Global) -> Result<(), CliError> {
    let ServerArgs { kind: _, http: _ } = args;
    Err(CliError::not_built("demo-server"))
}
