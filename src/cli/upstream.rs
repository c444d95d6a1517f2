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
    out::line(&told(&now))
}

fn told(now: &Upstream) -> String {
    // A lingering slot is taken though nobody waits for its call any more: it is no running one.
    let lingering = match now.lingering {
        0 => String::new(),
        slots => format!(", {slots} lingering"),
    };
    let (name, state) = (out::clean(&now.name), now.state.name());
    format!("{name}: {state}, {} running{lingering}, {} queued", now.running, now.queued)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lingering_slots_are_no_running_calls() {
        let mut now = Upstream { name: "db".into(), running: 2, lingering: 1, queued: 3, ..Upstream::default() };
        now.state = forebay_wire::UpstreamState::Paused;
        assert_eq!(told(&now), "db: paused, 2 running, 1 lingering, 3 queued");
        now.lingering = 0;
        assert_eq!(told(&now), "db: paused, 2 running, 3 queued");
    }
}
