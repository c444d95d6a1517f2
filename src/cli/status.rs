//! `forebay status`: the upstreams and how they stand.

use super::out::{self, Paint, Table};
use super::{CliError, Exit, Global, daemon, events};
use forebay_tui::client::{ClientError, escaped, read};
use forebay_tui::text::{cut, time};
use forebay_wire::{AuthMode, ConfigState, Finding, OutcomeCount, State, Upstream, UpstreamDetail, UpstreamState};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt::Write as _;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this upstream: its fault in full, its limits, its server's last words
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
    let client = daemon::client(global)?;
    if let Some(name) = &args.name {
        match client.get(&format!("/v1/upstreams/{}", escaped(name))).await {
            Ok(body) if global.json() => return out::line(&String::from_utf8_lossy(&body)),
            Ok(body) => return out::print(&detail(&read(&body)?, global.color_on_stdout())),
            // An older daemon tells of one only what it tells of all.
            Err(ClientError::Refused { fault, .. })
                if fault.code == "unknown_route" || fault.code == "wrong_method" => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    let body = client.get("/v1/state").await?;
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
        AuthMode::Jwt => "jwt",
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
    if let Some(config) = &state.config {
        text.push_str(&config_line(config, color));
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
    if !totals.outcomes.is_empty() {
        let _ = writeln!(text, "ended: {}", out::clean(&outcomes(&totals.outcomes)));
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

/// Whether the config file is in force, and if not, since when and why.
fn config_line(config: &ConfigState, color: bool) -> String {
    let file = out::clean(config.file.as_deref().unwrap_or_default());
    let since = events::clock(config.since_unix_ms);
    let mut text = if config.ok {
        format!("config: {file} ok, in force since {since}")
    } else {
        let when = config.refused_unix_ms.map_or(String::new(), |at| format!(" at {}", events::clock(at)));
        format!("config: {file} {}", out::paint(&format!("refused{when}; that of {since} goes on"), Paint::Bad, color))
    };
    if !config.watched {
        text.push_str(" (not watched: use `forebay reload`)");
    }
    text.push('\n');
    for fault in &config.faults {
        let _ = writeln!(text, "  {}", out::clean(&told(fault)));
    }
    if !config.needs_restart.is_empty() {
        let keys = config.needs_restart.join(", ");
        let words = format!("the file has another {keys}: it needs a restart of the daemon");
        let _ = writeln!(text, "  {}", out::paint(&out::clean(&words), Paint::Warn, color));
    }
    text
}

/// A fault of the config on one line.
fn told(fault: &Finding) -> String {
    let place = match (&fault.file, fault.line, fault.column, &fault.variable) {
        (Some(file), Some(line), Some(column), _) => format!("{file}:{line}:{column}: "),
        (Some(file), _, _, _) => format!("{file}: "),
        (None, _, _, Some(variable)) => format!("environment variable {variable}: "),
        (None, _, _, None) => String::new(),
    };
    let key = if fault.key.is_empty() { String::new() } else { format!("`{}` ", fault.key) };
    let hint = fault.hint.as_ref().map_or(String::new(), |hint| format!(" (hint: {hint})"));
    format!("{place}{key}{}{hint}", fault.message)
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

/// All that the daemon tells of one upstream.
fn detail(detail: &UpstreamDetail, color: bool) -> String {
    let mut text = one(&detail.upstream, color);
    let mut line = |word: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{} {}", out::paint(&format!("{word}:"), Paint::Dim, color), out::clean(value));
        }
    };
    line("server", detail.server.as_deref().unwrap_or_default());
    line("protocol", detail.protocol.as_deref().unwrap_or_default());
    let pids: Vec<_> = detail.upstream.pids.iter().map(ToString::to_string).collect();
    if !pids.is_empty() {
        line("processes", &format!("{} (pid {})", detail.processes, pids.join(", ")));
    }
    line("on_full", &detail.on_full);
    line("after_cancel", &detail.after_cancel);
    line("ended", &outcomes(&detail.outcomes));
    text.push('\n');
    text.push_str(&super::upstream::limits_table(&detail.now, &detail.file).render(color));
    if !detail.stderr.is_empty() {
        text.push_str("\nits last words on standard error:\n");
        for words in &detail.stderr {
            let _ = writeln!(text, "  {}", out::clean(words));
        }
    }
    text
}

/// How calls ended, each ending with its count.
fn outcomes(counts: &[OutcomeCount]) -> String {
    let shown = counts.iter().map(|count| match &count.reason {
        Some(reason) => format!("{} ({reason}) {}", count.outcome, count.calls),
        None => format!("{} {}", count.outcome, count.calls),
    });
    shown.collect::<Vec<_>>().join(", ")
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
    fn one_upstream_is_told_in_full_and_steers_no_terminal() {
        let text = detail(
            &UpstreamDetail {
                upstream: Upstream { name: "db".into(), pids: vec![7], ..Upstream::default() },
                processes: 1,
                server: Some("evil\u{1b}[2J/1".into()),
                stderr: vec!["last\u{9b}words".into()],
                outcomes: vec![OutcomeCount { outcome: "lost".into(), reason: None, calls: 2 }],
                ..UpstreamDetail::default()
            },
            false,
        );
        for part in ["(pid 7)", "evil\\x1b[2J/1", "ended: lost 2", "max_concurrent", "last\\"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }

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
