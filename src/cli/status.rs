//! `forebay status`: the upstreams and how they stand.

use super::out::{self, Paint, Table};
use super::{CliError, Exit, Global, daemon};
use forebay_tui::client::read;
use forebay_tui::text::{cut, time};
use forebay_wire::{AuthMode, State, Upstream, UpstreamState};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt::Write as _;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this upstream, with its fault in full
    #[arg(value_name = "NAME")]
    pub(super) name: Option<String>,
}

#[derive(Deserialize)]
struct RawState {
    upstreams: Vec<Box<RawValue>>,
}

/// Columns that a fault may take in the list; `forebay status NAME` shows it whole.
const FAULT_WIDTH: usize = 160;

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let body = daemon::client(global)?.get("/v1/state").await?;
    if let Some(name) = &args.name {
        // Kept as it came, so that what a newer daemon adds is printed too.
        let raw = read::<RawState>(&body)?.upstreams;
        for raw in raw {
            let upstream: Upstream = read(raw.get().as_bytes())?;
            if upstream.name == *name {
                let whole = || one(&upstream, global.color_on_stdout());
                return if global.json() { out::line(raw.get()) } else { out::print(&whole()) };
            }
        }
        let message = format!("there is no upstream {}", out::clean(name));
        return Err(CliError::new(Exit::NotFound, message).hint("see `forebay status` for their names"));
    }
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
    text.push_str(&table(&state.upstreams, color));
    for upstream in &state.upstreams {
        if let Some(fault) = &upstream.fault {
            let (name, whole) = (out::clean(&upstream.name), one_line(fault));
            let shown = cut(&whole, FAULT_WIDTH);
            let more =
                if shown == out::clean(&whole) { String::new() } else { format!(" (all: forebay status {name})") };
            let _ = writeln!(text, "{name}: {shown}{more}{}", retry(upstream));
        }
    }
    text
}

/// One upstream with all of its fault.
fn one(upstream: &Upstream, color: bool) -> String {
    let mut text = table(std::slice::from_ref(upstream), color);
    if let Some(fault) = &upstream.fault {
        let _ = writeln!(text, "\nfault{}:", retry(upstream));
        for line in fault.lines() {
            let _ = writeln!(text, "  {}", out::clean(line));
        }
    }
    text
}

fn retry(upstream: &Upstream) -> String {
    upstream.retry_in_ms.map_or(String::new(), |ms| format!("; tried again in {}", time(ms)))
}

/// A fault of several lines, such as the tail of a child's errors, on one.
fn one_line(fault: &str) -> String {
    fault.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
}

fn table(upstreams: &[Upstream], color: bool) -> String {
    let head =
        ["UPSTREAM", "KIND", "STATE", ">RUN", ">LINGER", ">WAIT", ">OLDEST", ">P50", ">P95", ">REFUSED", ">RESTARTS"];
    let mut table = Table::new(&head);
    for upstream in upstreams {
        table.painted_row(row(upstream));
    }
    table.render(color)
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

    #[test]
    fn a_long_fault_is_cut_in_the_list_and_whole_for_one() {
        let fault = format!("exit code 1\nTraceback:\n  {}\nModuleNotFoundError: mcp", "x".repeat(400));
        let (name, retry_in_ms) = ("db".into(), Some(8000));
        let upstream = Upstream { name, fault: Some(fault), retry_in_ms, ..Upstream::default() };
        let list = page(&State { upstreams: vec![upstream.clone()], ..State::default() }, false);
        let told = list.lines().last().unwrap();
        assert!(told.starts_with("db: exit code 1 | Traceback: | xxx"), "{told}");
        assert!(told.ends_with("x~ (all: forebay status db); tried again in 8.0s"), "{told}");
        let whole = one(&upstream, false);
        assert!(whole.contains("\nfault; tried again in 8.0s:\n  exit code 1\n  Traceback:\n"), "{whole}");
        assert!(whole.ends_with("  ModuleNotFoundError: mcp\n"), "{whole}");
    }
}
