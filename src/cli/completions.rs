//! `forebay completions`: what a shell needs to complete forebay's command line.

use super::{CliError, Global, out};
use clap_complete::Shell;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

pub(super) async fn run(args: Args, _global: &Global) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "forebay", &mut script);
    out::print(&String::from_utf8_lossy(&script))
}
