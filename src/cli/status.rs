//! `forebay status`: the upstreams and how they stand.

use super::out::{self, Paint, Table};
use super::{CliError, Global, daemon};
use forebay_tui::client::read;
use forebay_tui::text::time;
use forebay_wire::{AuthMode, State, Upstream, UpstreamState};
use std::fmt::Write as _;

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) async fn run(_args: Args, global: &Global) -> Result<(), CliError> {
    let body = daemon::client(global)?.get("/v1/state").await?;
    if global.json() {
        return out::line(&String::from_utf8_lossy(&body));
    }
    out::print(&page(&read(&body)?, global.color_on_stdout()))
}

fn page(state: &State, color: bool) -> String {
    let auth = match state.auth {
        AuthMode::None => "none",
        AuthMode::Keys => "keys",
        AuthMode::Unknown => "?",
    };
    let mut text = format!(
        "forebay {}, run {}, up {}, MCP at http://{}/mcp (auth: {auth})\n",
        out::clean(&state.version),
        out::clean(&state.instance),
        time(state.uptime_ms),
        out::clean(&state.mcp)
    );
    if state.draining {
        let _ = writeln!(text, "{}", out::paint("draining: no more calls are taken in", Paint::Warn, color));
    }
    let totals = &state.totals;
    let _ = writeln!(
        text,
        "calls: {} offered = {} finished + {} running + {} queued; {} slots lingering",
        totals.offered,
        totals.finished,
        totals.running,
        totals.queued + totals.submitted,
        totals.lingering
    );
    if totals.unaccounted != 0 {
        let lost = format!("{} calls are unaccounted for; please report this", totals.unaccounted);
        let _ = writeln!(text, "{}", out::paint(&lost, Paint::Bad, color));
    }
    let ended: Vec<_> = totals
        .outcomes
        .iter()
        .map(|count| match &count.reason {
            Some(reason) => format!("{} ({}) {}", out::clean(&count.outcome), out::clean(reason), count.calls),
            None => format!("{} {}", out::clean(&count.outcome), count.calls),
        })
        .collect();
    if !ended.is_empty() {
        let _ = writeln!(text, "ended: {}", ended.join(", "));
    }
    if state.upstreams.is_empty() {
        text.push_str("no upstreams\n");
        return text;
    }
    text.push('\n');
    let head =
        ["UPSTREAM", "KIND", "STATE", ">RUN", ">LINGER", ">WAIT", ">OLDEST", ">P50", ">P95", ">REFUSED", ">RESTARTS"];
    let mut table = Table::new(&head);
    for upstream in &state.upstreams {
        table.painted_row(row(upstream));
    }
    text.push_str(&table.render(color));
    for upstream in &state.upstreams {
        if let Some(fault) = &upstream.fault {
            let retry = upstream.retry_in_ms.map_or(String::new(), |ms| format!("; tried again in {}", time(ms)));
            let _ = writeln!(text, "{}: {}{retry}", out::clean(&upstream.name), out::clean(fault));
        }
    }
    text
}

fn row(upstream: &Upstream) -> Vec<(String, Option<Paint>)> {
    let tone = match upstream.state {
        UpstreamState::Up | UpstreamState::Asleep => Some(Paint::Good),
        UpstreamState::Down => Some(Paint::Bad),
        UpstreamState::Starting
        | UpstreamState::Degraded
        | UpstreamState::Saturated
        | UpstreamState::Paused
        | UpstreamState::Draining
        | UpstreamState::Drained
        | UpstreamState::Unknown => Some(Paint::Warn),
    };
    let cap = if upstream.max_concurrent == 0 { "-".into() } else { upstream.max_concurrent.to_string() };
    let some = |ms: Option<u64>| ms.map_or("-".into(), time);
    vec![
        (upstream.name.clone(), None),
        (upstream.kind.name().into(), None),
        (upstream.state.name().into(), tone),
        (format!("{}/{cap}", upstream.running), None),
        (upstream.lingering.to_string(), None),
        (format!("{}/{}", upstream.queued, upstream.queue_size), None),
        (some((upstream.queued > 0).then_some(upstream.oldest_wait_ms)), None),
        (some(upstream.p50_ms), None),
        (some(upstream.p95_ms), None),
        (upstream.refused.to_string(), None),
        (upstream.restarts.to_string(), None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_and_steers_no_terminal() {
        let state = State {
            instance: "k3f9q".into(),
            upstreams: vec![Upstream {
                name: "db\u{1b}[2J".into(),
                state: UpstreamState::Down,
                fault: Some("exit code 1\u{7}".into()),
                retry_in_ms: Some(8000),
                ..Upstream::default()
            }],
            ..State::default()
        };
        let text = page(&state, false);
        assert!(text.contains("db\\x1b[2J: exit code 1\\x07; tried again in 8.0s\n"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
