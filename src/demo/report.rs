//! The demo's results: what is printed at the end, for people and as JSON.

use super::load::{Group, Measured, of_group};
use super::server::Kind;
use super::tally::{Tally, Times};
use crate::cli::out::{Paint, Table};
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

/// The table of the main scenario.
pub fn table(report: &Report, color: bool) -> String {
    let mut table = Table::new(&["PHASE", "CALLERS", ">CALLS", ">OK", ">FAILED", ">REFUSED", ">P50", ">P95"]);
    for phase in &report.phases {
        for figures in &phase.groups {
            table.painted_row(row(&phase.name, figures));
        }
    }
    let mut text = table.render(color);
    for phase in &report.phases {
        for figures in phase.groups.iter().filter(|figures| !figures.refused.is_empty()) {
            let reasons: Vec<_> = figures.refused.iter().map(|(reason, calls)| format!("{reason} {calls}")).collect();
            text.push_str(&format!("{}, {}: refused {}\n", phase.name, who(figures), reasons.join(", ")));
        }
    }
    text.push_str("\nMost calls in flight at once, as each server counted them\n");
    text.push_str(&format!("(fragile breaks above {}):\n", Kind::FRAGILE_TAKES));
    for phase in &report.phases {
        text.push_str(&format!("  {}: {}\n", phase.name, peaks(phase)));
    }
    text.push_str(
        "\nFAILED: the server's own answer was an error. REFUSED: answered by forebay, never sent to the server.\n",
    );
    text.push_str("P50, P95: of the calls that were ok, waiting included.\n");
    if let Some(said) = report.phases.iter().rev().find_map(|phase| phase.refusal_text.as_ref()) {
        text.push_str(&format!("A refused caller reads: {}\n", crate::cli::out::clean(said)));
    }
    for fault in report.phases.iter().flat_map(|phase| &phase.groups).filter_map(|figures| figures.fault.as_ref()) {
        text.push_str(&format!("Calls broke: {}\n", crate::cli::out::clean(fault)));
    }
    text
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
        text.push_str(&format!("A refused caller reads: {}\n", crate::cli::out::clean(said)));
    }
    text
}

fn row(phase: &str, figures: &Figures) -> Vec<(String, Option<Paint>)> {
    let bad_if = |some: u64| (some > 0).then_some(Paint::Bad);
    let refused: u64 = figures.refused.values().sum();
    let ms = |ms: Option<u64>| ms.map_or("-".into(), time);
    let failed = figures.failed + figures.broken;
    vec![
        (phase.into(), None),
        (who(figures), None),
        (figures.calls.to_string(), None),
        (figures.ok.to_string(), None),
        (failed.to_string(), bad_if(failed)),
        (refused.to_string(), None),
        (ms(figures.p50_ms), None),
        (ms(figures.p95_ms), None),
    ]
}

fn who(figures: &Figures) -> String {
    if figures.callers == 1 { figures.group.into() } else { format!("{} {}", figures.callers, figures.group) }
}

fn peaks(phase: &Phase) -> String {
    let told = phase.peaks.iter().map(|(name, peak)| match peak {
        Some(peak) => format!("{name} {peak}"),
        None => format!("{name} did not tell"),
    });
    told.collect::<Vec<_>>().join(", ")
}
