//! `forebay ps`: the calls that are running, lingering or queued.

use super::out::{self, Paint, Table};
use super::{CliError, Global, daemon};
use forebay_tui::client::{escaped, read};
use forebay_tui::text::time;
use forebay_wire::{Call, CallState, Lane};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::time::Duration;

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
}

/// A page whose calls are kept as they came, so that what a newer daemon adds is printed too.
#[derive(Deserialize)]
struct RawPage {
    calls: Vec<Box<RawValue>>,
    next: Option<String>,
    #[serde(default)]
    missing: Vec<String>,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let client = daemon::client(global)?;
    let filter = args.query();
    let mut calls = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut path = format!("/v1/calls?limit=1000{filter}");
        if let Some(cursor) = &cursor {
            let _ = write!(path, "&cursor={}", escaped(cursor));
        }
        let page: RawPage = read(&client.get(&path).await?)?;
        calls.extend(page.calls);
        for upstream in &page.missing {
            out::note(
                &format!("upstream {} does not answer: its calls are missing here", out::clean(upstream)),
                global,
            );
        }
        match page.next {
            // A cursor that does not move would never end.
            Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
            _ => break,
        }
    }
    if global.json() {
        return out::print(&array(&calls));
    }
    if calls.is_empty() {
        out::note("no calls", global);
        return Ok(());
    }
    let mut table = Table::new(&["ID", "STATE", ">POS", "LANE", "CALLER", "UPSTREAM", "TOOL", ">AGE", ">LEFT"]);
    for raw in &calls {
        let call: Call = read(raw.get().as_bytes())?;
        table.painted_row(row(&call));
    }
    out::print(&table.render(global.color_on_stdout()))
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

/// One call a line, so that the output can be read and cut by lines; still one JSON array.
fn array(calls: &[Box<RawValue>]) -> String {
    let mut text = String::from("[");
    for (at, call) in calls.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { ",\n" });
        text.push_str(call.get());
    }
    text.push_str("]\n");
    text
}

fn row(call: &Call) -> Vec<(String, Option<Paint>)> {
    let tone = match call.state {
        CallState::Running => Some(Paint::Good),
        CallState::Lingering => Some(Paint::Warn),
        CallState::Queued | CallState::Finished | CallState::Unknown => None,
    };
    let lane = match call.lane {
        Lane::High => "high",
        Lane::Normal => "normal",
        Lane::Low => "low",
        Lane::Unknown => "?",
    };
    vec![
        (call.id.clone(), None),
        (call.state.name().into(), tone),
        (call.position.map_or("-".into(), |position| position.to_string()), None),
        (lane.into(), None),
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
        let mut args = Args { upstream: None, caller: None, tool: None, state: None, older_than: None };
        assert_eq!(args.query(), "");
        args.tool = Some("a&state=x".into());
        args.older_than = Some(Duration::from_millis(1500));
        assert_eq!(args.query(), "&tool=a%26state%3Dx&older_than=1500ms");
    }

    #[test]
    fn an_array_has_one_call_a_line() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        assert_eq!(array(&[]), "[]\n");
        assert_eq!(array(&[raw(r#"{"a":1}"#), raw(r#"{"b":2}"#)]), "[{\"a\":1},\n{\"b\":2}]\n");
    }
}
