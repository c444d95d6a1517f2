//! Live state as plain values: reads the counters that upstreams publish and turns them into wire types.
//!
//! Nothing here asks an actor or waits; what needs the actor's own order (listings) is in [`crate::admin`].

use crate::call::{Call, State};
use crate::caller::{Caller, Lane};
use crate::config::{Auth, Limits, Target};
use crate::dispatcher::Dispatcher;
use crate::dispatcher::history::Record;
use crate::ledger::Counts;
use crate::outcome::Outcome;
use crate::upstream::{Row, RowState, Upstream, UpstreamState};
use forebay_wire as wire;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// The daemon as a whole; `mcp` is where calls are served.
pub fn state(dispatcher: &Dispatcher, mcp: SocketAddr, now: Instant) -> wire::State {
    let upstreams: Vec<_> = dispatcher.upstreams().values().map(|up| upstream(up)).collect();
    let lingering = upstreams.iter().map(|up| u64::from(up.lingering)).sum();
    wire::State {
        instance: dispatcher.mark(),
        version: env!("CARGO_PKG_VERSION").into(),
        api: wire::API,
        uptime_ms: millis(now.saturating_duration_since(dispatcher.started())),
        mcp: mcp.to_string(),
        auth: auth(dispatcher),
        draining: dispatcher.is_draining(),
        totals: all_totals(dispatcher, lingering),
        upstreams,
        config: dispatcher.config_state.load().as_deref().cloned(),
    }
}

/// How callers prove who they are.
pub fn auth(dispatcher: &Dispatcher) -> wire::AuthMode {
    match &dispatcher.config.load().auth {
        Auth::None => wire::AuthMode::None,
        Auth::Keys => wire::AuthMode::Keys,
        Auth::Jwt(_) => wire::AuthMode::Jwt,
    }
}

/// The ledger over all upstreams; `lingering` is counted by who has the upstreams' figures.
pub fn all_totals(dispatcher: &Dispatcher, lingering: u64) -> wire::Totals {
    let mut counts = Counts::default();
    for (_, ledger) in dispatcher.ledgers() {
        counts.add(&ledger);
    }
    totals(&counts, lingering)
}

/// How the calls of a ledger ended; endings that did not occur are left out.
pub fn outcomes(counts: &Counts) -> Vec<wire::OutcomeCount> {
    let occurred = counts.outcomes.iter().enumerate().filter(|(_, calls)| **calls > 0);
    occurred
        .map(|(index, calls)| {
            let (outcome, reason) = Outcome::labels(index);
            wire::OutcomeCount {
                outcome: outcome.into(),
                reason: (!reason.is_empty()).then(|| reason.into()),
                calls: *calls,
            }
        })
        .collect()
}

/// One upstream.
pub fn upstream(upstream: &Upstream) -> wire::Upstream {
    let status = upstream.status();
    let report = upstream.brief();
    let shared = upstream.shared();
    let config = shared.config.load();
    let counts = shared.ledger.read();
    wire::Upstream {
        name: upstream.name().to_string(),
        kind: match config.target {
            Target::Stdio(_) => wire::UpstreamKind::Stdio,
            Target::Http(_) => wire::UpstreamKind::Http,
        },
        state: match status.state {
            UpstreamState::Starting => wire::UpstreamState::Starting,
            UpstreamState::Up => wire::UpstreamState::Up,
            UpstreamState::Degraded => wire::UpstreamState::Degraded,
            UpstreamState::Saturated => wire::UpstreamState::Saturated,
            UpstreamState::Paused => wire::UpstreamState::Paused,
            UpstreamState::Draining => wire::UpstreamState::Draining,
            UpstreamState::Drained => wire::UpstreamState::Drained,
            UpstreamState::Down => wire::UpstreamState::Down,
            UpstreamState::Asleep => wire::UpstreamState::Asleep,
        },
        running: status.running,
        lingering: status.lingering,
        max_concurrent: status.max_concurrent,
        queued: status.queued,
        queue_size: status.queue_size,
        oldest_wait_ms: millis(status.oldest_wait),
        p50_ms: status.p50.map(millis),
        p95_ms: status.p95.map(millis),
        refused: status.refused,
        finished: counts.finished(),
        offered: counts.offered,
        failed: failed(&counts),
        restarts: report.restarts,
        queue_timeout_ms: config.limits.queue_timeout.map(millis),
        call_timeout_ms: config.limits.call_timeout.map(millis),
        // What callers are told is only the class of it.
        fault: status.fault.map(|brief| report.fault.unwrap_or_else(|| brief.to_string())),
        retry_in_ms: status.retry_in.map(millis),
        pids: report.pids,
    }
}

/// Limits in force or of the file; 0 where there is none.
pub fn limits(limits: &Limits) -> wire::Limits {
    let time = |limit: Option<Duration>| Some(limit.map_or(0, millis));
    wire::Limits {
        max_concurrent: Some(limits.max_concurrent.shown()),
        queue_size: Some(limits.queue_size),
        queue_timeout_ms: time(limits.queue_timeout),
        call_timeout_ms: time(limits.call_timeout),
        max_queued: Some(limits.max_queued.unwrap_or(0)),
        cancel_grace_ms: Some(millis(limits.cancel_grace)),
    }
}

/// One caller.
pub fn caller(caller: &Caller, now: Instant) -> wire::Caller {
    let counts = caller.figures.read();
    let rights = caller.config.load();
    wire::Caller {
        name: caller.name.to_string(),
        identity: caller.identity.into(),
        client: caller.client().map(|client| client.to_string()),
        queued: counts.queued,
        running: counts.running,
        finished: counts.finished,
        completed: counts.completed,
        shed: counts.shed,
        cancelled: counts.cancelled,
        last_ms: caller.last_seen().map(|seen| millis(now.saturating_duration_since(seen))),
        weight: rights.weight,
        max_concurrent: rights.max_concurrent,
        max_queued: rights.max_queued,
        rate_per_second: rights.rate.map(|rate| rate.per_second),
        max_priority: (rights.max_priority != Lane::High).then(|| lane(rights.max_priority)),
    }
}

/// Calls that ended by their upstream's fault.
fn failed(counts: &Counts) -> u64 {
    let theirs = |index: &usize| matches!(Outcome::labels(*index).0, "upstream_error" | "timed_out" | "lost");
    (0..Outcome::COUNT).filter(theirs).map(|index| counts.outcomes[index]).sum()
}

/// A row of an upstream's listing.
pub fn row(row: &Row, now: Instant) -> wire::Call {
    let mut call = live(&row.call, now);
    call.state = match row.state {
        RowState::Queued => wire::CallState::Queued,
        RowState::Running => wire::CallState::Running,
        RowState::Lingering => wire::CallState::Lingering,
    };
    call.position = row.position;
    call.deadline_ms = row.left.map(millis);
    call
}

/// A call in the live table, as far as its ticket knows: no position, no time left.
pub fn live(call: &Call, now: Instant) -> wire::Call {
    let (queued, running) = call.times(now);
    let mut seen = wire::Call {
        id: call.id.to_string(),
        caller: call.caller.name.to_string(),
        upstream: call.upstream().to_string(),
        method: call.request.method.to_string(),
        tool: (**call.target() != *call.request.method).then(|| call.target().to_string()),
        lane: lane(call.lane()),
        state: match call.ticket.state() {
            // Submitted lasts for microseconds, before the queue has it.
            State::Submitted | State::Queued => wire::CallState::Queued,
            State::Running => wire::CallState::Running,
            State::Finished => wire::CallState::Finished,
        },
        position: None,
        age_ms: millis(now.saturating_duration_since(call.arrived)),
        queued_ms: millis(queued),
        running_ms: millis(running),
        deadline_ms: None,
        weight: call.weight(),
        bytes: call.bytes(),
        attempt: call.attempt(),
        parent: call.parent.map(|parent| parent.to_string()),
        outcome: None,
        reason: None,
        executed: None,
    };
    if let Some(ending) = call.ticket.ending() {
        ended(&mut seen, ending.outcome);
    }
    seen
}

/// A call that has ended.
pub fn record(record: &Record) -> wire::Call {
    let mut call = wire::Call {
        id: record.id.to_string(),
        caller: record.caller.to_string(),
        upstream: record.upstream.to_string(),
        method: record.method.to_string(),
        tool: (*record.target != *record.method).then(|| record.target.to_string()),
        lane: lane(record.lane),
        state: wire::CallState::Finished,
        position: None,
        age_ms: millis(record.ended.saturating_duration_since(record.arrived)),
        queued_ms: millis(record.queued),
        running_ms: millis(record.running),
        deadline_ms: None,
        weight: record.weight,
        bytes: record.bytes,
        attempt: record.attempt,
        parent: record.parent.map(|parent| parent.to_string()),
        outcome: None,
        reason: None,
        executed: None,
    };
    ended(&mut call, record.outcome);
    call
}

/// What limits in shadow mode would have refused.
pub fn shadow(dispatcher: &Dispatcher, now: Instant) -> wire::ShadowReport {
    let named = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
    let row = |row: crate::limits::shadow::Row| wire::ShadowRow {
        limit: row.limit.name().into(),
        upstream: named(&row.upstream),
        caller: named(&row.caller),
        calls: row.calls,
        longest_wait_ms: row.longest_wait_ms,
        last_ms: millis(now.saturating_duration_since(row.last)),
    };
    wire::ShadowReport {
        global: dispatcher.config.load().global.enforce == crate::limits::shadow::Enforce::Shadow,
        uptime_ms: millis(now.saturating_duration_since(dispatcher.started())),
        rows: dispatcher.shadow().rows().into_iter().map(row).collect(),
    }
}

/// A duration as the API writes it.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An outcome's reason, absent where there is none.
pub fn reason(outcome: Outcome) -> Option<String> {
    Some(outcome.reason()).filter(|reason| !reason.is_empty()).map(Into::into)
}

fn ended(call: &mut wire::Call, outcome: Outcome) {
    call.outcome = Some(outcome.name().into());
    call.reason = reason(outcome);
    call.executed = Some(outcome.executed().name().into());
}

fn lane(lane: Lane) -> wire::Lane {
    match lane {
        Lane::High => wire::Lane::High,
        Lane::Normal => wire::Lane::Normal,
        Lane::Low => wire::Lane::Low,
    }
}

fn totals(counts: &Counts, lingering: u64) -> wire::Totals {
    wire::Totals {
        offered: counts.offered,
        submitted: counts.submitted,
        queued: counts.queued,
        running: counts.running,
        lingering,
        finished: counts.finished(),
        unaccounted: counts.unaccounted(),
        outcomes: outcomes(counts),
    }
}
