//! Routes that only read: events, callers, the whole story of a call or an upstream, and why something waits.

use super::fault::Refusal;
use super::routes::{bad_path, reference};
use super::{Admin, list, why};
use crate::call::{Call, CallRef, Step};
use crate::dispatcher::Found;
use crate::dispatcher::history::Record;
use crate::outcome::Outcome;
use crate::snapshot::{self, millis};
use crate::upstream::{RowState, Upstream};
use crate::{config, events};
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use forebay_wire as wire;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const EVENTS: usize = 200;
const MOST_EVENTS: usize = 1000;
const CALLERS: usize = 256;
const MOST_CALLERS: usize = 4096;
/// Rows of a queue that `why` looks at.
const LOOKED_AT: usize = 4096;
const HOLDERS: usize = 16;
const SHARES: usize = 8;
const PATIENCE: Duration = Duration::from_secs(1);
/// Characters that are shown of what a server calls itself.
const LONGEST_NAME: usize = 80;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    from: Option<u64>,
    level: Option<String>,
    upstream: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn events(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Json<wire::EventsPage>, Refusal> {
    let known = "known are from, level, upstream, limit";
    let Query(query) = query.map_err(|fault| Refusal::bad("bad_query", fault.body_text(), known))?;
    let level = match query.level.as_deref() {
        None | Some("info") => wire::Level::Info,
        Some("warn") => wire::Level::Warn,
        Some("error") => wire::Level::Error,
        Some(other) => {
            let message = format!("`{other}` is not a level");
            return Err(Refusal::bad("bad_query", message, "known are info, warn, error"));
        }
    };
    let takes = |event: &wire::Event| {
        event.level >= level && query.upstream.as_ref().is_none_or(|name| event.upstream.as_ref() == Some(name))
    };
    let limit = query.limit.unwrap_or(EVENTS).clamp(1, MOST_EVENTS);
    let log = admin.dispatcher.events();
    let part = match query.from {
        Some(from) => log.read(from, limit, takes),
        // Without a place to begin, the newest are meant.
        None => {
            let mut part = log.read(1, usize::MAX, takes);
            let over = part.events.len().saturating_sub(limit);
            part.events.drain(..over);
            events::Part { dropped: 0, ..part }
        }
    };
    let owned = part.events.iter().map(|event| wire::Event::clone(event)).collect();
    Ok(Json(wire::EventsPage { events: owned, next: part.next, dropped: part.dropped }))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallersQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn callers(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<CallersQuery>, QueryRejection>,
) -> Result<Json<wire::CallersPage>, Refusal> {
    let Query(query) =
        query.map_err(|fault| Refusal::bad("bad_query", fault.body_text(), "known are cursor, limit"))?;
    let limit = query.limit.unwrap_or(CALLERS).clamp(1, MOST_CALLERS);
    let mut rest = Vec::new();
    admin.dispatcher.callers.each(|caller| {
        if query.cursor.as_deref().is_none_or(|last| *caller.name > *last) {
            rest.push(caller.clone());
        }
    });
    rest.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let more = rest.len() > limit;
    rest.truncate(limit);
    let now = Instant::now();
    Ok(Json(wire::CallersPage {
        next: rest.last().filter(|_| more).map(|caller| caller.name.to_string()),
        callers: rest.iter().map(|caller| snapshot::caller(caller, now)).collect(),
    }))
}

/// What is known of one call, with what else the answers need.
struct Story {
    shown: wire::Call,
    arrived: Instant,
    queued: Option<Instant>,
    started: Option<Instant>,
    ended: Option<(Instant, Outcome)>,
    steps: Vec<Step>,
    upstream: Option<Arc<Upstream>>,
    /// How long until it runs, as far as that can be told.
    wait: Option<Duration>,
}

async fn story(admin: &Admin, text: &str) -> Result<Story, Refusal> {
    let reference: CallRef = reference(text)?;
    let dispatcher = &admin.dispatcher;
    match dispatcher.find(reference) {
        Found::Live(call) => Ok(live(dispatcher.upstream(call.upstream()), &call).await),
        Found::Finished(record) => Ok(finished(dispatcher.upstream(&record.upstream), &record).await),
        Found::Unknown { other_run } => Err(Refusal::unknown_id(text, other_run, &dispatcher.mark())),
    }
}

async fn live(upstream: Option<Arc<Upstream>>, call: &Arc<Call>) -> Story {
    let mut shown = snapshot::live(call, Instant::now());
    let mut wait = None;
    // The queue knows position, time left, and whether a finished call still holds its slot.
    if let Some(upstream) = &upstream
        && let Ok(Ok(found)) = timeout(PATIENCE, upstream.find(call)).await
    {
        wait = found.wait;
        if let Some(row) = &found.row {
            shown = snapshot::row(row, Instant::now());
        }
    }
    let ending = call.ticket.ending();
    Story {
        shown,
        arrived: call.arrived,
        queued: call.ticket.queued(),
        started: call.ticket.started(),
        ended: ending.map(|ending| (ending.at, ending.outcome)),
        steps: call.ticket.steps().map(|steps| steps.all()).unwrap_or_default(),
        upstream,
        wait,
    }
}

async fn finished(upstream: Option<Arc<Upstream>>, record: &Record) -> Story {
    let mut shown = snapshot::record(record);
    // Only what was ended while it ran can hold a slot after its end.
    if shown.executed.as_deref() == Some("unknown")
        && let Some(upstream) = &upstream
        && let Some(row) = list::row_of(upstream, record.id).await
    {
        shown = snapshot::row(&row, Instant::now());
    }
    Story {
        shown,
        arrived: record.arrived,
        queued: record.queued_at,
        started: record.started,
        ended: Some((record.ended, record.outcome)),
        steps: record.steps.as_ref().map(|steps| steps.all()).unwrap_or_default(),
        upstream,
        wait: None,
    }
}

impl Story {
    fn timeline(&self) -> Vec<wire::Step> {
        let at = |at: Instant| millis(at.saturating_duration_since(self.arrived));
        let step = |when: Instant, what: &str, detail: Option<String>| {
            (when, wire::Step { at_ms: at(when), what: what.into(), detail })
        };
        let mut steps = vec![step(self.arrived, "accepted", None)];
        steps.extend(self.queued.map(|when| step(when, "queued", None)));
        let attempt = (self.shown.attempt > 1).then(|| format!("attempt {}", self.shown.attempt));
        steps.extend(self.started.map(|when| step(when, "dispatched", attempt)));
        steps.extend(self.steps.iter().map(|one| step(one.at, one.what.name(), one.detail.as_deref().map(Into::into))));
        steps.extend(self.ended.map(|(when, outcome)| {
            let reason = snapshot::reason(outcome).map(|reason| format!(" ({reason})")).unwrap_or_default();
            step(when, "finished", Some(format!("{}{reason}", outcome.name().replace('_', " "))))
        }));
        steps.sort_by_key(|(when, _)| *when);
        steps.into_iter().map(|(_, step)| step).collect()
    }

    fn split(&self, now: Instant) -> wire::Split {
        let end = self.ended.map_or(now, |(at, _)| at);
        let placed = self.queued.or(self.started).unwrap_or(end).min(end);
        let started = self.started.unwrap_or(end).min(end);
        let arrived = self.arrived;
        // Differences of whole milliseconds, so that the parts add up to the age.
        let [placed, started, end] = [placed, started, end].map(|at| millis(at.saturating_duration_since(arrived)));
        wire::Split {
            admission_ms: placed,
            queue_ms: started.saturating_sub(placed),
            upstream_ms: end.saturating_sub(started.max(placed)),
            delivery_ms: 0,
        }
    }
}

pub(super) async fn call(
    State(admin): State<Arc<Admin>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<wire::CallDetail>, Refusal> {
    let Path(text) = id.map_err(bad_path)?;
    let story = story(&admin, &text).await?;
    let age = Instant::now().saturating_duration_since(story.arrived);
    let timeline = story.timeline();
    let queued = story.shown.state == wire::CallState::Queued;
    let caller = admin.dispatcher.callers.by_name(&story.shown.caller);
    Ok(Json(wire::CallDetail {
        arrived_unix_ms: events::unix_ms().saturating_sub(millis(age)),
        client: caller.and_then(|caller| caller.client()).map(|client| client.to_string()),
        protocol: None,
        upstream_protocol: story
            .upstream
            .as_ref()
            .and_then(|up| up.known_server())
            .map(|server| server.version.clone()),
        waiting: story.upstream.as_ref().filter(|_| queued).map(|upstream| upstream.status().queued),
        timeline,
        call: story.shown,
    }))
}

pub(super) async fn why_call(
    State(admin): State<Arc<Admin>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<wire::Why>, Refusal> {
    let Path(text) = id.map_err(bad_path)?;
    let story = story(&admin, &text).await?;
    let split = story.split(Instant::now());
    let queue = match (&story.upstream, story.shown.state) {
        (Some(upstream), wire::CallState::Queued) => Some(queue(upstream).await),
        _ => None,
    };
    let upstream = story.upstream.as_ref().map(|upstream| snapshot::upstream(upstream));
    let facts = why::CallFacts {
        call: &story.shown,
        upstream: upstream.as_ref(),
        holders: queue.as_ref().map_or(&[], |queue| &queue.holders),
        wait_ms: story.wait.map(millis),
    };
    let (sentence, hint) = why::call(&facts);
    let queue = queue.unwrap_or_default();
    Ok(Json(wire::Why { sentence, hint, split: Some(split), holders: queue.holders, waiting: queue.waiting }))
}

pub(super) async fn why_upstream(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<wire::Why>, Refusal> {
    let Path(name) = name.map_err(bad_path)?;
    let upstream = admin.upstream(&name)?;
    let queue = queue(&upstream).await;
    let shown = snapshot::upstream(&upstream);
    let (sentence, hint) = why::upstream(&shown, &queue.holders, &queue.waiting);
    Ok(Json(wire::Why { sentence, hint, split: None, holders: queue.holders, waiting: queue.waiting }))
}

#[derive(Default)]
struct Queue {
    holders: Vec<wire::Call>,
    waiting: Vec<wire::Share>,
}

/// Who holds slots and queue of an upstream, as far as one look goes.
async fn queue(upstream: &Upstream) -> Queue {
    let mut queue = Queue::default();
    let mut shares: HashMap<Arc<str>, u32> = HashMap::new();
    let (mut cursor, mut looked_at) = (0, 0);
    while looked_at < LOOKED_AT {
        let Ok(Ok(page)) = timeout(PATIENCE, upstream.page(cursor, 256)).await else { break };
        let now = Instant::now();
        looked_at += page.rows.len().max(1);
        for row in &page.rows {
            match row.state {
                RowState::Queued => *shares.entry(row.call.caller.name.clone()).or_default() += 1,
                RowState::Running | RowState::Lingering => queue.holders.push(snapshot::row(row, now)),
            }
        }
        match page.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    queue.holders.sort_by_key(|call| std::cmp::Reverse(call.running_ms));
    queue.holders.truncate(HOLDERS);
    let mut shares: Vec<_> = shares.into_iter().collect();
    shares.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
    shares.truncate(SHARES);
    queue.waiting =
        shares.into_iter().map(|(caller, calls)| wire::Share { caller: caller.to_string(), calls }).collect();
    queue
}

pub(super) async fn upstream(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<wire::UpstreamDetail>, Refusal> {
    let Path(name) = name.map_err(bad_path)?;
    let upstream = admin.upstream(&name)?;
    let config = upstream.shared().config.load_full();
    let server = upstream.known_server();
    Ok(Json(wire::UpstreamDetail {
        upstream: snapshot::upstream(&upstream),
        now: snapshot::limits(&config.limits),
        file: snapshot::limits(&upstream.file_limits()),
        on_full: match config.limits.on_full {
            config::OnFull::Displace => "displace",
            config::OnFull::Reject => "reject",
        }
        .into(),
        after_cancel: match config.limits.after_cancel {
            config::AfterCancel::Release => "release",
            config::AfterCancel::Hold => "hold",
            config::AfterCancel::Recycle => "recycle",
        }
        .into(),
        processes: match &config.target {
            config::Target::Stdio(stdio) => stdio.processes,
            config::Target::Http(_) => 0,
        },
        protocol: server.as_ref().map(|server| server.version.clone()),
        server: server.and_then(|server| called(&server.server_info)),
        outcomes: snapshot::outcomes(&upstream.shared().ledger.read()),
        stderr: upstream.report().stderr,
    }))
}

/// `name version`, of what a server said of itself.
fn called(server_info: &str) -> Option<String> {
    let info: serde_json::Value = serde_json::from_str(server_info).ok()?;
    let text = |key| info.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
    let whole = format!("{} {}", text("name"), text("version"));
    let whole: String = whole.trim().chars().take(LONGEST_NAME).collect();
    (!whole.is_empty()).then_some(whole)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StderrQuery {
    lines: Option<usize>,
}

pub(super) async fn stderr(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    query: Result<Query<StderrQuery>, QueryRejection>,
) -> Result<Json<wire::Stderr>, Refusal> {
    let Path(name) = name.map_err(bad_path)?;
    let Query(query) = query.map_err(|fault| Refusal::bad("bad_query", fault.body_text(), "known is lines"))?;
    let mut lines = admin.upstream(&name)?.report().stderr;
    let over = lines.len().saturating_sub(query.lines.unwrap_or(usize::MAX));
    lines.drain(..over);
    Ok(Json(wire::Stderr { upstream: name, stderr: lines }))
}
