//! `forebay upstream`: pauses, resumes or drains one upstream.

use super::{CliError, Global, daemon, out};
use forebay_tui::client::{escaped, read};
use forebay_wire::Upstream;

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

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let (word, Name { name }) = match args.action {
        Action::Pause(name) => ("pause", name),
        Action::Resume(name) => ("resume", name),
        Action::Drain(name) => ("drain", name),
    };
    let body = daemon::client(global)?.post(&format!("/v1/upstreams/{}/{word}", escaped(&name))).await?;
    if global.json() {
        return out::line(&String::from_utf8_lossy(&body));
    }
    let now: Upstream = read(&body)?;
    out::line(&format!(
        "{}: {}, {} running, {} queued",
        out::clean(&now.name),
        now.state.name(),
        u64::from(now.running) + u64::from(now.lingering),
        now.queued
    ))
}
