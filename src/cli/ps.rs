//! `forebay ps`: the calls that are running, lingering or queued.

use super::out::{self, Paint, Table};
use super::{CliError, Global, daemon};
use forebay_tui::client::{Client, escaped, read};
use forebay_tui::text::time;
use forebay_wire::{Call, CallState, Lane};
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::Duration;

/// How often `--watch` looks.
const LOOK: Duration = Duration::from_secs(1);
/// Rows that are drawn on a terminal whose height is not known.
const SOME_ROWS: usize = 40;

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
    /// Look every second until interrupted: drawn anew on a terminal, one JSON array a line with --output json
    #[arg(short, long)]
    pub(super) watch: bool,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let client = daemon::client(global)?;
    let path = format!("/v1/calls?limit=1000{}", args.query());
    if args.watch {
        return watch(&client, &path, global).await;
    }
    let calls = daemon::pages(&client, &path, "calls", global).await?;
    if global.json() {
        return out::print(&daemon::array(&calls));
    }
    if calls.is_empty() {
        out::note("no calls", global);
        return Ok(());
    }
    out::print(&table(&known(&calls)?).render(global.color_on_stdout()))
}

/// Ends with an error, or when nobody reads any more.
async fn watch(client: &Client, path: &str, global: &Global) -> Result<(), CliError> {
    let terminal = std::io::stdout().is_terminal() && !global.json();
    loop {
        let calls = daemon::pages(client, path, "calls", global).await?;
        if global.json() {
            out::line(daemon::array(&calls).replace(",\n", ",").trim_end())?;
        } else {
            let text = if calls.is_empty() {
                "no calls\n".to_owned()
            } else {
                table(&known(&calls)?).render(global.color_on_stdout())
            };
            out::print(&if terminal { redrawn(&text, rows()) } else { format!("{text}\n") })?;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn known(calls: &[Box<RawValue>]) -> Result<Vec<Call>, CliError> {
    Ok(calls.iter().map(|raw| read(raw.get().as_bytes())).collect::<Result<_, _>>()?)
}

fn rows() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(SOME_ROWS, |size| usize::from(size.ws_row)).max(2)
}

/// The text over what was there, cut to the terminal's height so that it does not scroll.
fn redrawn(text: &str, rows: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    // Home first, the rest of each line cleared, and all below: less flicker than clearing it all at once.
    let mut drawn = String::from("\x1b[H");
    let fits = lines.len() < rows;
    let shown = if fits { lines.len() } else { rows - 2 };
    for line in &lines[..shown] {
        let _ = writeln!(drawn, "{line}\x1b[K");
    }
    if !fits {
        let _ = writeln!(drawn, "... {} more\x1b[K", lines.len() - shown);
    }
    drawn.push_str("\x1b[J");
    drawn
}

impl Args {
    /// The filters as the rest of a query, each with its `&`.
    fn query(&self) -> String {
        let older_than = self.older_than.map(|age| format!("{}ms", age.as_millis()));
        let filters = [
            ("upstream", &self.upstream),
            ("caller", &self.caller),
            ("tool", &self.tool),
            ("state", &self.state),
            ("older_than", &older_than),
        ];
        let given = filters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given.fold(String::new(), |mut query, (name, value)| {
            let _ = write!(query, "&{name}={}", escaped(value));
            query
        })
    }
}

/// The calls as a table.
pub(super) fn table(calls: &[Call]) -> Table {
    let mut table = Table::new(&["ID", "STATE", ">POS", "LANE", "CALLER", "UPSTREAM", "TOOL", ">AGE", ">LEFT"]);
    for call in calls {
        table.painted_row(row(call));
    }
    table
}

pub(super) fn lane(lane: Lane) -> &'static str {
    match lane {
        Lane::High => "high",
        Lane::Normal => "normal",
        Lane::Low => "low",
        Lane::Unknown => "?",
    }
}

fn row(call: &Call) -> Vec<(String, Option<Paint>)> {
    let tone = match call.state {
        CallState::Running => Some(Paint::Good),
        CallState::Lingering => Some(Paint::Warn),
        CallState::Queued | CallState::Finished | CallState::Unknown => None,
    };
    vec![
        (call.id.clone(), None),
        (call.state.name().into(), tone),
        (call.position.map_or("-".into(), |position| position.to_string()), None),
        (lane(call.lane).into(), None),
        (call.caller.clone(), None),
        (call.upstream.clone(), None),
        (call.tool.clone().unwrap_or_else(|| call.method.clone()), None),
        (time(call.age_ms), None),
        (call.deadline_ms.map_or("-".into(), time), None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_escaped_and_no_filter_is_nothing() {
        let mut args = Args { upstream: None, caller: None, tool: None, state: None, older_than: None, watch: false };
        assert_eq!(args.query(), "");
        args.tool = Some("a&state=x".into());
        args.older_than = Some(Duration::from_millis(1500));
        assert_eq!(args.query(), "&tool=a%26state%3Dx&older_than=1500ms");
    }

    #[test]
    fn a_watch_never_scrolls_the_terminal() {
        assert_eq!(redrawn("a\nb\n", 3), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        let cut = redrawn(&"x\n".repeat(50), 10);
        assert_eq!(cut.matches('\n').count(), 9);
        assert!(cut.contains("... 42 more"));
        // The smallest terminal there is.
        assert!(redrawn("a\nb\nc\n", 2).matches('\n').count() < 2);
    }
}
