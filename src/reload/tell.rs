//! A reload in words, for the event log, the commands and the screens.

use crate::config::{Faults, Finding, Place};
use crate::house::Changes;
use forebay_wire as wire;

/// Findings that an answer or the state names.
const NAMED: usize = 50;

pub(super) fn accepted(changes: &Changes, warnings: &[Finding]) -> wire::Reloaded {
    let Changes { added, removed, changed, restarted, callers, tables, needs_restart, .. } = changes;
    let mut text = vec![count("+", added.len(), "upstream"), count("-", removed.len(), "upstream")];
    text.push(match restarted.as_slice() {
        [] => None,
        [one] => Some(format!("{one} restarts")),
        more => Some(format!("{} upstreams restart", more.len())),
    });
    text.push(match changed.as_slice() {
        [] => None,
        [one] => Some(format!("limits of {one} changed")),
        more => Some(format!("limits of {} upstreams changed", more.len())),
    });
    text.push(count("", callers.len(), "caller").map(|callers| format!("{callers} changed")));
    text.push((!tables.is_empty()).then(|| format!("[{}] changed", tables.join("], ["))));
    let mut text: Vec<String> = text.into_iter().flatten().collect();
    if text.is_empty() {
        text.push("nothing has changed".into());
    }
    if !needs_restart.is_empty() {
        text.push(format!("{} only with a restart of the daemon", needs_restart.join(", ")));
    }
    text.extend(count("", warnings.len(), "warning"));
    wire::Reloaded {
        text: format!("ok: {}", text.join(", ")),
        added: added.clone(),
        removed: removed.clone(),
        changed: changed.clone(),
        restarted: restarted.clone(),
        callers: callers.clone(),
        tables: tables.clone(),
        needs_restart: needs_restart.clone(),
        warnings: warnings.iter().take(NAMED).map(finding).collect(),
        faults: Vec::new(),
    }
}

pub(super) fn is_nothing(changes: &Changes) -> bool {
    let Changes { added, removed, changed, restarted, callers, tables, needs_restart: _, .. } = changes;
    [added, removed, changed, restarted, callers, tables].iter().all(|names| names.is_empty())
}

pub(super) fn refused(faults: &Faults) -> wire::Reloaded {
    let first = faults.iter().next().map(ToString::to_string).unwrap_or_default();
    let more = match faults.len() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    wire::Reloaded {
        text: format!("refused, the old config goes on: {first}{more}"),
        faults: faults.iter().take(NAMED).map(finding).collect(),
        ..wire::Reloaded::default()
    }
}

fn finding(finding: &Finding) -> wire::Finding {
    let (file, line, column) = finding.place.parts();
    let variable = match &finding.place {
        Place::Variable(name) => Some(name.clone()),
        Place::File { .. } | Place::WholeFile(_) | Place::Nowhere => None,
    };
    wire::Finding {
        file: file.map(|file| file.display().to_string()),
        line: line.map(|line| line as u64),
        column: column.map(|column| column as u64),
        variable,
        key: finding.key.clone(),
        message: finding.message.clone(),
        hint: finding.hint.clone(),
    }
}

fn count(sign: &str, number: usize, what: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("{sign}1 {what}")),
        more => Some(format!("{sign}{more} {what}s")),
    }
}
