//! `forebay health`: tells by its exit code whether the daemon is well.

use super::{CliError, Exit, Global, daemon, out};
use forebay_wire::State;
use serde::Serialize;

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

#[derive(Serialize)]
struct Verdict {
    status: &'static str,
    reasons: Vec<String>,
}

pub(super) async fn run(_args: Args, global: &Global) -> Result<(), CliError> {
    let state = daemon::client(global)?.state().await?;
    let reasons = faults(&state);
    let healthy = reasons.is_empty();
    let verdict = Verdict { status: if healthy { "healthy" } else { "degraded" }, reasons };
    if global.json() {
        out::json(&verdict)?;
    } else if healthy {
        out::line("healthy")?;
    } else {
        out::line(&format!("degraded: {}", out::clean(&verdict.reasons.join("; "))))?;
    }
    if healthy { Ok(()) } else { Err(CliError::silent(Exit::Failed)) }
}

/// What is wrong that nobody asked for: a paused or drained upstream is somebody's will.
fn faults(state: &State) -> Vec<String> {
    let mut faults = Vec::new();
    if state.draining {
        faults.push("the daemon is draining".into());
    }
    if state.totals.unaccounted != 0 {
        faults.push(format!("{} calls are unaccounted for", state.totals.unaccounted));
    }
    for upstream in state.upstreams.iter().filter(|upstream| upstream.state.is_degraded()) {
        let why = upstream.fault.as_deref().map_or(String::new(), |fault| format!(" ({fault})"));
        faults.push(format!("{} is {}{why}", upstream.name, upstream.state.name()));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::{Upstream, UpstreamState};

    #[test]
    fn what_an_operator_did_is_no_fault() {
        let with = |state| State {
            upstreams: vec![Upstream { name: "db".into(), state, ..Upstream::default() }],
            ..State::default()
        };
        for fine in [UpstreamState::Up, UpstreamState::Paused, UpstreamState::Drained, UpstreamState::Asleep] {
            assert!(faults(&with(fine)).is_empty(), "{fine:?}");
        }
        assert_eq!(faults(&with(UpstreamState::Saturated)), ["db is saturated"]);
        assert_eq!(faults(&State { draining: true, ..State::default() }).len(), 1);
    }
}
