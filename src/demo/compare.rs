//! The main scenario's table: both phases side by side, with the difference in words. The words come from the
//! figures, so they say nothing that was not measured.

use super::house::Limits;
use super::report::{Figures, Phase, Report, said_to_the_refused, wrapped};
use super::server::Kind;
use crate::cli::out::{Paint, Table, clean};
use forebay_tui::text::time;

pub(super) const WITHOUT: &str = "without limits";
pub(super) const WITH: &str = "with limits";

/// A phase's cell and its meaning.
type Cell = (String, Option<Paint>);

/// The table and what explains it, for a terminal of 80 columns.
pub(super) fn table(report: &Report, color: bool) -> String {
    let Some(first) = report.phases.first() else { return String::new() };
    let mut text = headline(report);
    let mut head = vec![""];
    head.extend(report.phases.iter().map(|phase| if phase.name == WITH { ">WITH LIMITS" } else { ">WITHOUT LIMITS" }));
    if report.phases.len() == 2 {
        head.push("CHANGE");
    }
    let mut table = Table::new(&head);
    for (number, of_first) in first.groups.iter().enumerate() {
        let figures: Vec<&Figures> = report.phases.iter().filter_map(|phase| phase.groups.get(number)).collect();
        group(&mut table, of_first, &figures);
    }
    servers(&mut table, &report.phases);
    text.push_str(&table.render(color));
    text.push('\n');
    explain(report, &mut text);
    text
}

/// The one figure that matters, first.
fn headline(report: &Report) -> String {
    let ok = |phase: &Phase| share(phase.groups.first()?.ok, phase.groups.first()?.calls);
    let mut text = String::new();
    if report.stopped {
        text.push_str("Stopped early: these are the figures until then.\n");
    }
    if let [without, with] = report.phases.as_slice()
        && let (Some(without), Some(with)) = (ok(without), ok(with))
    {
        text.push_str(&wrapped(&format!(
            "With limits {with}% of the careful callers' calls succeeded, without limits {without}%."
        )));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn group(table: &mut Table, of: &Figures, figures: &[&Figures]) {
    let title = match of.callers {
        1 => format!("{}, 16 loops", of.group),
        callers => format!("{callers} {} callers", of.group),
    };
    table.row([title]);
    let row = |table: &mut Table, name: &str, cell: &dyn Fn(&Figures) -> Cell, change: String| {
        let mut cells: Vec<Cell> = vec![(format!("  {name}"), None)];
        cells.extend(figures.iter().map(|figures| cell(figures)));
        if !change.is_empty() {
            cells.push((change, None));
        }
        table.painted_row(cells);
    };
    let failed = |figures: &Figures| figures.failed + figures.broken;
    let refused = |figures: &Figures| figures.refused.values().sum::<u64>();
    let counted = |some: u64, figures: &Figures| match share(some, figures.calls) {
        Some(share) if some > 0 => format!("{some} ({share}%)"),
        _ => some.to_string(),
    };
    let change = |of: &dyn Fn(&Figures) -> Option<u64>, words: [&str; 2]| match figures {
        [without, with] => words_for(of(without), of(with), words),
        _ => String::new(),
    };
    let ms = |ms: Option<u64>| (ms.map_or("-".into(), time), None);
    row(table, "calls", &|figures| (figures.calls.to_string(), None), String::new());
    let more = change(&|figures| share(figures.ok, figures.calls), ["fewer succeed", "more succeed"]);
    row(table, "ok", &|figures| (counted(figures.ok, figures), None), more);
    let fewer = change(&|figures| share(failed(figures), figures.calls), ["fewer fail", "more fail"]);
    let bad = |figures: &Figures| (counted(failed(figures), figures), (failed(figures) > 0).then_some(Paint::Bad));
    row(table, "failed", &bad, fewer);
    let told = match figures {
        [_, with] if refused(with) > 0 => "told at once when to retry".into(),
        _ => String::new(),
    };
    row(table, "refused", &|figures| (counted(refused(figures), figures), None), told);
    let speed = ["faster", "slower: calls wait their turn"];
    row(table, "p50 of ok", &|figures| ms(figures.p50_ms), change(&|figures| figures.p50_ms, speed));
    row(table, "p95 of ok", &|figures| ms(figures.p95_ms), change(&|figures| figures.p95_ms, speed));
}

/// What each server itself counted.
fn servers(table: &mut Table, phases: &[Phase]) {
    table.row(["most in flight"]);
    for kind in Kind::ALL {
        let name = match kind {
            Kind::Fragile => format!("  {}, takes {}", kind.name(), Kind::FRAGILE_TAKES),
            Kind::Slow | Kind::Flaky => format!("  {}", kind.name()),
        };
        let peaks: Vec<Option<u32>> =
            phases.iter().map(|phase| phase.peaks.get(kind.name()).copied().flatten()).collect();
        let mut cells: Vec<Cell> = vec![(name, None)];
        cells.extend(peaks.iter().map(|peak| match peak {
            Some(peak) => {
                (peak.to_string(), (kind == Kind::Fragile && *peak > Kind::FRAGILE_TAKES).then_some(Paint::Bad))
            }
            None => ("not told".into(), None),
        }));
        if let [_, with] = peaks.as_slice() {
            let kept = match (with, Limits::Fitting.of(kind)) {
                (Some(peak), Some((limit, _))) if *peak <= limit => format!("never above its limit, {limit}"),
                _ => String::new(),
            };
            cells.extend((!kept.is_empty()).then_some((kept, None)));
        }
        table.painted_row(cells);
    }
}

fn explain(report: &Report, text: &mut String) {
    if let [without, with] = report.phases.as_slice()
        && let (Some(without), Some(with)) = (without.groups.first(), with.groups.first())
        && with.p95_ms > without.p95_ms
        && share(with.ok, with.calls) > share(without.ok, without.calls)
    {
        // What failed is in no percentile: the calls that limits save are those that have to wait.
        text.push_str("Limits trade failures for waits: good calls wait for a slot, so p95 rises.\n");
    }
    text.push_str(&wrapped(
        "failed: the server answered with an error. refused: forebay answered, the server never saw the call. \
         most in flight: as each server counted.",
    ));
    for phase in &report.phases {
        for figures in phase.groups.iter().filter(|figures| !figures.refused.is_empty()) {
            let reasons: Vec<_> = figures.refused.iter().map(|(reason, calls)| format!("{reason} {calls}")).collect();
            text.push_str(&wrapped(&format!("Refused {}, {}: {}.", phase.name, figures.group, reasons.join(", "))));
        }
    }
    if let Some(said) = report.phases.iter().rev().find_map(|phase| phase.refusal_text.as_ref()) {
        text.push_str(&said_to_the_refused(said));
    }
    for fault in report.phases.iter().flat_map(|phase| &phase.groups).filter_map(|figures| figures.fault.as_ref()) {
        text.push_str(&wrapped(&format!("Calls broke: {}", clean(fault))));
    }
}

/// Percent of the calls; none of no calls.
fn share(some: u64, calls: u64) -> Option<u64> {
    (some * 100 + calls / 2).checked_div(calls)
}

/// Less, more, or about the same: what differs by a tenth or less is no difference.
fn words_for(without: Option<u64>, with: Option<u64>, [less, more]: [&str; 2]) -> String {
    match (without, with) {
        (Some(without), Some(with)) if with * 10 < without * 9 => less.into(),
        (Some(without), Some(with)) if with * 10 > without * 11 => more.into(),
        (Some(_), Some(_)) => "about the same".into(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn figures(group: &'static str, callers: usize, [ok, failed, refused]: [u64; 3], p95: u64) -> Figures {
        Figures {
            group,
            callers,
            calls: ok + failed + refused,
            ok,
            failed,
            broken: 0,
            refused: (refused > 0).then(|| ("queue_full".into(), refused)).into_iter().collect(),
            p50_ms: Some(100),
            p95_ms: Some(p95),
            refused_p50_ms: None,
            refused_max_ms: None,
            fault: None,
        }
    }

    fn phase(name: &str, groups: Vec<Figures>, fragile: u32) -> Phase {
        let peaks = BTreeMap::from([("fragile", Some(fragile)), ("slow", Some(4)), ("flaky", None)]);
        let refusal_text = Some("Not executed: the queue is full. ".repeat(6));
        Phase { name: name.into(), elapsed_ms: 6000, groups, peaks, refusal_text }
    }

    fn report(stopped: bool, phases: Vec<Phase>) -> String {
        table(&Report { scenario: "runaway", seed: 1, stopped, phases }, false)
    }

    fn both() -> Vec<Phase> {
        let large = figures("runaway", 1, [1_234_567, 1_234_567, 0], 2_000_000);
        let without = vec![figures("careful", 10, [19, 27, 0], 395), large];
        let with = vec![figures("careful", 10, [37, 5, 0], 606), figures("runaway", 1, [169, 13, 22], 795)];
        vec![phase(WITHOUT, without, 10), phase(WITH, with, 2)]
    }

    #[test]
    fn both_phases_stand_side_by_side_within_80_columns() {
        let text = report(false, both());
        assert!(text.lines().all(|line| line.len() <= 80 && line.trim_end() == line), "{text}");
        assert!(
            text.starts_with("With limits 88% of the careful callers' calls succeeded, without limits 41%."),
            "{text}"
        );
        for row in [
            "ok 19 (41%) 37 (88%) more succeed",
            "failed 27 (59%) 5 (12%) fewer fail",
            "p95 of ok 395ms 606ms slower: calls wait their turn",
            "refused 0 22 (11%) told at once when to retry",
            "fragile, takes 2 10 2 never above its limit, 2",
            "flaky not told not told",
        ] {
            assert!(text.lines().any(|line| line.split_whitespace().eq(row.split(' '))), "{row}: {text}");
        }
        assert!(text.contains("Limits trade failures for waits"), "{text}");
    }

    #[test]
    fn a_demo_that_was_stopped_tells_what_there_is() {
        let mut phases = both();
        phases.truncate(1);
        let text = report(true, phases);
        assert!(text.starts_with("Stopped early"), "{text}");
        assert!(text.contains("WITHOUT LIMITS\n") && !text.contains("CHANGE"), "{text}");
        let none = figures("careful", 10, [0; 3], 0);
        assert!(report(true, vec![phase(WITHOUT, vec![none], 0)]).contains("calls"), "no calls divide nothing");
    }

    #[test]
    fn a_change_is_told_only_where_there_is_one() {
        let words = ["less", "more"];
        assert_eq!(words_for(Some(100), Some(80), words), "less");
        assert_eq!(words_for(Some(100), Some(120), words), "more");
        assert_eq!(words_for(Some(100), Some(105), words), "about the same");
        assert_eq!(words_for(None, Some(1), words), "");
    }
}
