//! The demo's results: the figures, their form as JSON, and the words of the burst. The main scenario's table is
//! `compare`'s.

use super::load::{Group, Measured, of_group};
use super::tally::{Tally, Times};
use forebay_tui::text::time;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a demo ends with.
#[derive(Debug, Serialize)]
pub struct Report {
    pub scenario: &'static str,
    pub seed: u64,
    /// It was ended before its time, so phases are short or missing.
    pub stopped: bool,
    pub phases: Vec<Phase>,
}

/// One stretch of the same load.
#[derive(Debug, Serialize)]
pub struct Phase {
    pub name: String,
    pub elapsed_ms: u64,
    pub groups: Vec<Figures>,
    /// The most calls that each server itself saw at once.
    pub peaks: BTreeMap<&'static str, Option<u32>>,
    /// What a refused caller reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal_text: Option<String>,
}

/// The calls of one group of callers.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub group: &'static str,
    pub callers: usize,
    pub calls: u64,
    pub ok: u64,
    pub failed: u64,
    pub broken: u64,
    pub refused: BTreeMap<String, u64>,
    /// Of the calls that were ok.
    pub p50_ms: Option<u64>,
    pub p95_ms: Option<u64>,
    /// How soon the refused ones were told.
    pub refused_p50_ms: Option<u64>,
    pub refused_max_ms: Option<u64>,
    /// Why the last broken call broke.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl Figures {
    pub fn of(group: &'static str, callers: usize, tally: &Tally) -> Self {
        let ms = |times: &Times, percent| times.percentile(percent).map(|took| took.as_millis() as u64);
        Figures {
            group,
            callers,
            calls: tally.calls,
            ok: tally.ok,
            failed: tally.failed,
            broken: tally.broken,
            refused: tally.refused.clone(),
            p50_ms: ms(&tally.ok_times, 50),
            p95_ms: ms(&tally.ok_times, 95),
            refused_p50_ms: ms(&tally.refused_times, 50),
            refused_max_ms: ms(&tally.refused_times, 100),
            fault: tally.fault.clone(),
        }
    }
}

impl Phase {
    pub fn of(
        name: impl Into<String>,
        elapsed: Duration,
        callers: &[Arc<Measured>],
        peaks: BTreeMap<&'static str, Option<u32>>,
    ) -> Self {
        let groups = Group::ALL.into_iter().map(|group| {
            let members = callers.iter().filter(|caller| caller.group == group).count();
            Figures::of(group.name(), members, &of_group(callers, group))
        });
        Phase {
            name: name.into(),
            elapsed_ms: elapsed.as_millis() as u64,
            groups: groups.collect(),
            peaks,
            refusal_text: of_group(callers, Group::Runaway).said,
        }
    }
}

/// The words of the burst scenario.
pub fn burst(report: &Report) -> String {
    let Some((phase, figures)) = report.phases.first().and_then(|phase| Some((phase, phase.groups.first()?))) else {
        return String::new();
    };
    let ms = |ms: Option<u64>| ms.map_or("-".into(), time);
    let mut text = format!("{}:\n", phase.name);
    text.push_str(&format!(
        "  {} ok, half of them within {}, all within {}\n",
        figures.ok,
        ms(figures.p50_ms),
        time(phase.elapsed_ms)
    ));
    for (reason, calls) in &figures.refused {
        text.push_str(&format!(
            "  {calls} refused {reason}: half of them told within {}, all within {}\n",
            ms(figures.refused_p50_ms),
            ms(figures.refused_max_ms)
        ));
    }
    if figures.failed + figures.broken > 0 {
        text.push_str(&format!("  {} failed, {} broke\n", figures.failed, figures.broken));
    }
    text.push_str(&format!("  most in flight at once, as the server counted: {}\n", peaks(phase)));
    if let Some(said) = &phase.refusal_text {
        text.push_str(&said_to_the_refused(said));
    }
    text
}

/// What a refused caller read, for a terminal of 80 columns.
pub(super) fn said_to_the_refused(said: &str) -> String {
    wrapped(&format!("A refused caller reads: {}", crate::cli::out::clean(said)))
}

/// Lines of at most 80 columns, those behind the first indented; a longer word has a line of its own.
pub(super) fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = forebay_tui::text::width(word);
        match column {
            0 => {}
            _ if column + 1 + width > 80 => {
                lines.push_str("\n  ");
                column = 2;
            }
            _ => {
                lines.push(' ');
                column += 1;
            }
        }
        lines.push_str(word);
        column += width;
    }
    lines.push('\n');
    lines
}

fn peaks(phase: &Phase) -> String {
    let told = phase.peaks.iter().map(|(name, peak)| match peak {
        Some(peak) => format!("{name} {peak}"),
        None => format!("{name} did not tell"),
    });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let text = wrapped(&"four ".repeat(60));
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(text.split_whitespace().count(), 60);
        let long = "x".repeat(100);
        assert_eq!(wrapped(&format!("a {long} b")), format!("a\n  {long}\n  b\n"));
    }
}
