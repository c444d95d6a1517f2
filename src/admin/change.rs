//! Routes that change something: cancel by selector, edits of single calls, live limits, restart.
//!
//! Each is written into the event log with who asked for it.

use super::Admin;
use super::fault::Refusal;
use super::routes::{bad_path, reference};
use super::save;
use super::who::Who;
use crate::call::{Call, State as Stage};
use crate::caller::Lane;
use crate::config::{self, Concurrency, MAX_CONCURRENT_CEILING};
use crate::dispatcher::{CancelAnswer, Dispatcher, Found};
use crate::events::Draft;
use crate::outcome::CancelledBy;
use crate::snapshot;
use crate::upstream::{self, Upstream};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use forebay_wire as wire;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Calls that are cancelled before others get their turn.
const SLICE: usize = 256;
/// Ids that an answer names.
const NAMED: usize = 20;
/// An actor's answer is waited for so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time limit that may be set.
const LONGEST_MS: u64 = 30 * 86_400_000;

/// Reads a body. No content type is asked for, so that `curl -d` does.
fn body<T: DeserializeOwned>(bytes: &[u8], known: &str) -> Result<T, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|fault| Refusal::bad("bad_body", format!("the body cannot be used: {fault}"), known))
}

/// `POST /v1/cancel`.
pub(super) async fn cancel_many(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Who>,
    bytes: Bytes,
) -> Result<Json<wire::CancelledMany>, Refusal> {
    let known = "known are caller, upstream, tool, state, older_than_ms, all, dry_run";
    let selector: wire::Selector = body(&bytes, known)?;
    check(&admin, &selector)?;
    let found = select(&admin.dispatcher, &selector).await;
    let mut answer =
        wire::CancelledMany { dry_run: selector.dry_run, matched: found.len() as u64, ..Default::default() };
    answer.ids = found.iter().take(NAMED).map(|call| call.id.to_string()).collect();
    for (number, call) in found.iter().enumerate() {
        if number % SLICE == SLICE - 1 {
            tokio::task::yield_now().await;
        }
        let did =
            if selector.dry_run { would_do(call) } else { admin.dispatcher.cancel_call(call, CancelledBy::Operator) };
        match did {
            CancelAnswer::CancelledQueued => answer.cancelled_queued += 1,
            CancelAnswer::CancelledRunning => answer.cancelled_running += 1,
            CancelAnswer::AlreadyFinished(_) | CancelAnswer::UnknownId { .. } => answer.already_finished += 1,
        }
    }
    let cancelled = answer.cancelled_queued + answer.cancelled_running;
    if !selector.dry_run && cancelled > 0 {
        let text = format!(
            "cancelled {cancelled} calls ({}): {} queued, {} running",
            said(&selector),
            answer.cancelled_queued,
            answer.cancelled_running
        );
        let mut draft = Draft::new(wire::Level::Info, "cancelled", text).by(&who.by).times(cancelled);
        if let Some(upstream) = &selector.upstream {
            draft = draft.upstream(upstream);
        }
        if let Some(caller) = &selector.caller {
            draft = draft.caller(caller);
        }
        admin.dispatcher.events().tell(draft);
    }
    Ok(Json(answer))
}

/// A selector that would mean everything by mistake is refused, and so is one that names nothing there is.
fn check(admin: &Admin, selector: &wire::Selector) -> Result<(), Refusal> {
    let wire::Selector { caller, upstream, tool, state, older_than_ms, all, dry_run: _ } = selector;
    let narrowed =
        caller.is_some() || upstream.is_some() || tool.is_some() || state.is_some() || older_than_ms.is_some();
    if !narrowed && !all {
        let hint = "give caller, upstream, tool, state or older_than_ms, or \"all\": true for every call";
        return Err(Refusal::bad("empty_selector", "nothing says which calls are meant", hint));
    }
    if let Some(name) = upstream {
        admin.upstream(name)?;
    }
    match state {
        None | Some(wire::CallState::Queued | wire::CallState::Running) => Ok(()),
        Some(other) => {
            let message = format!("a call that is {} cannot be cancelled", other.name());
            Err(Refusal::bad("bad_state", message, "known are queued, running"))
        }
    }
}

/// Live calls that the selector takes, those that wait first: ending one that runs may free its slot, and nothing
/// that is about to be cancelled may start in it. One shard of the table at a time is held, for as long as looking takes.
async fn select(dispatcher: &Dispatcher, selector: &wire::Selector) -> Vec<Arc<Call>> {
    let now = Instant::now();
    let older_than = selector.older_than_ms.map(Duration::from_millis);
    let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| *wanted == *name);
    let takes = |call: &Call| {
        let state = match call.ticket.state() {
            Stage::Submitted | Stage::Queued => wire::CallState::Queued,
            Stage::Running => wire::CallState::Running,
            Stage::Finished => return false,
        };
        selector.state.is_none_or(|wanted| wanted == state)
            && older_than.is_none_or(|age| now.saturating_duration_since(call.arrived) >= age)
            && is(&selector.caller, &call.caller.name)
            && is(&selector.upstream, call.upstream())
            && is(&selector.tool, call.target())
    };
    let mut found = Vec::new();
    for shard in 0..dispatcher.live_shards() {
        dispatcher.live_in_shard(shard, takes, &mut found);
        tokio::task::yield_now().await;
    }
    // Cached, since states move on meanwhile.
    found.sort_by_cached_key(|call| (call.ticket.state() == Stage::Running, call.id));
    found
}

fn would_do(call: &Call) -> CancelAnswer {
    match call.ticket.state() {
        Stage::Submitted | Stage::Queued => CancelAnswer::CancelledQueued,
        Stage::Running => CancelAnswer::CancelledRunning,
        Stage::Finished => CancelAnswer::UnknownId { other_run: false },
    }
}

/// A selector in words, for the event log.
fn said(selector: &wire::Selector) -> String {
    let word = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} {value}"));
    let parts: Vec<String> = [
        word("caller", &selector.caller),
        word("upstream", &selector.upstream),
        word("tool", &selector.tool),
        selector.state.map(|state| state.name().to_owned()),
        selector.older_than_ms.map(|age| format!("older than {age} ms")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() { "all".into() } else { parts.join(", ") }
}

/// `POST /v1/calls/{id}`: rule R25.
pub(super) async fn edit(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Who>,
    id: Result<Path<String>, PathRejection>,
    bytes: Bytes,
) -> Result<Response, Refusal> {
    let Path(text) = id.map_err(bad_path)?;
    let reference = reference(&text)?;
    let known = "known are priority (high, normal, low) and extend_ms";
    let edit: wire::Edit = body(&bytes, known)?;
    let lane = match edit.priority {
        None => None,
        Some(wire::Lane::High) => Some(Lane::High),
        Some(wire::Lane::Normal) => Some(Lane::Normal),
        Some(wire::Lane::Low) => Some(Lane::Low),
        Some(wire::Lane::Unknown) => return Err(Refusal::bad("bad_body", "that is no priority", known)),
    };
    if lane.is_none() && edit.extend_ms.is_none() {
        return Err(Refusal::bad("bad_body", "nothing says what to change", known));
    }
    let plain = |answer| wire::EditAnswer { id: text.clone(), answer, call: None };
    let dispatcher = &admin.dispatcher;
    let call = match dispatcher.find(reference) {
        Found::Live(call) => call,
        Found::Finished(_) => return Ok(Json(plain(wire::Edited::AlreadyFinished)).into_response()),
        Found::Unknown { other_run } => {
            let (status, fault) = Refusal::unknown_id(&text, other_run, &dispatcher.mark()).into_fault();
            return Ok((status, Json(UnknownEdit { answer: plain(wire::Edited::UnknownId), fault })).into_response());
        }
    };
    let upstream = admin.upstream(call.upstream())?;
    let extend = edit.extend_ms.map(|ms| Duration::from_millis(ms.min(LONGEST_MS)));
    let edited = match timeout(PATIENCE, upstream.edit(&call, lane, extend)).await {
        Ok(Ok(edited)) => edited,
        Ok(Err(upstream::Unavailable)) | Err(_) => return Err(Refusal::unavailable(upstream.name())),
    };
    let answer = match (edited, call.ticket.state()) {
        (upstream::Edited::Changed, _) => wire::Edited::Changed,
        (upstream::Edited::AlreadyRunning, _) => wire::Edited::AlreadyRunning,
        (upstream::Edited::Unknown, Stage::Finished) => wire::Edited::AlreadyFinished,
        // On its way into the queue, or out of it: it is about to run.
        (upstream::Edited::Unknown, _) => wire::Edited::AlreadyRunning,
    };
    let mut shown = snapshot::live(&call, Instant::now());
    if let Ok(Ok(found)) = timeout(PATIENCE, upstream.find(&call)).await
        && let Some(row) = &found.row
    {
        shown = snapshot::row(row, Instant::now());
    }
    if answer == wire::Edited::Changed {
        let lane = lane.map(|lane| format!("priority {}", lane.name()));
        let wait = edit.extend_ms.map(|ms| format!("deadline +{ms} ms"));
        let what: Vec<_> = lane.into_iter().chain(wait).collect();
        let draft = Draft::new(wire::Level::Info, "call.edited", format!("{}: {}", call.id, what.join(", ")));
        dispatcher.events().tell(draft.call(call.id).upstream(upstream.name()).caller(&call.caller.name).by(&who.by));
    }
    Ok(Json(wire::EditAnswer { call: Some(shown), ..plain(answer) }).into_response())
}

/// An edit of a call that is not known answers with both, so that every reader finds what it looks for.
#[derive(serde::Serialize)]
struct UnknownEdit {
    #[serde(flatten)]
    answer: wire::EditAnswer,
    #[serde(flatten)]
    fault: wire::Fault,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsQuery {
    #[serde(default)]
    save: bool,
}

/// `PATCH /v1/upstreams/{name}`: rule R24.
pub(super) async fn limits(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Who>,
    name: Result<Path<String>, PathRejection>,
    query: Result<Query<LimitsQuery>, QueryRejection>,
    bytes: Bytes,
) -> Result<Json<wire::LimitsAnswer>, Refusal> {
    let Path(name) = name.map_err(bad_path)?;
    let Query(query) = query.map_err(|fault| Refusal::bad("bad_query", fault.body_text(), "known is save"))?;
    let known = "known are max_concurrent, queue_size, queue_timeout_ms, call_timeout_ms, max_queued, cancel_grace_ms";
    let wanted: wire::Limits = body(&bytes, known)?;
    if wanted == wire::Limits::default() && !query.save {
        return Err(Refusal::bad("bad_body", "nothing says what to change", known));
    }
    let upstream = admin.upstream(&name)?;
    // One change at a time: each is made from what is in force.
    let _turn = admin.changing.lock().await;
    let before = upstream.shared().config.load().limits.clone();
    let after = changed(&before, &wanted)?;
    // Without a value named, what is in force is what is saved.
    let now = snapshot::limits(&after);
    let saved = match query.save {
        false => None,
        true => {
            let from_file = snapshot::limits(&upstream.file_limits());
            let to_save = if wanted == wire::Limits::default() { differences(&now, &from_file) } else { wanted };
            Some((save::save(&admin.dispatcher, &name, to_save).await?, to_save))
        }
    };
    if after != before {
        match timeout(PATIENCE, upstream.set_limits(after.clone())).await {
            Ok(Ok(())) => {}
            Ok(Err(upstream::Unavailable)) | Err(_) => return Err(Refusal::unavailable(&name)),
        }
    }
    if let Some((_, values)) = &saved {
        upstream.set_file_limits(changed(&upstream.file_limits(), values)?);
    }
    let notes = notes(&upstream, &wanted);
    let words = limits_said(&wanted);
    if !words.is_empty() || saved.is_some() {
        let saved = if saved.is_some() { " (saved to the config file)" } else { "" };
        let draft = Draft::new(wire::Level::Info, "limit.changed", format!("{name}: {words}{saved}"));
        admin.dispatcher.events().tell(draft.upstream(&name).by(&who.by));
    }
    tracing::info!(upstream = %name, by = %who.by, limits = %words, save = query.save, "limits changed by an operator");
    Ok(Json(wire::LimitsAnswer {
        now,
        file: snapshot::limits(&upstream.file_limits()),
        notes,
        saved_to: saved.map(|(path, _)| path.display().to_string()),
    }))
}

/// The limits with what is wanted, if that is within bounds.
fn changed(limits: &config::Limits, wanted: &wire::Limits) -> Result<config::Limits, Refusal> {
    let wire::Limits { max_concurrent, queue_size, queue_timeout_ms, call_timeout_ms, max_queued, cancel_grace_ms } =
        *wanted;
    let within = |name: &str, value: u64, most: u64| {
        if value <= most {
            return Ok(());
        }
        Err(Refusal::bad("bad_limit", format!("{name} is {value}"), format!("at most {most} is allowed")))
    };
    let limit = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
    let mut limits = limits.clone();
    if let Some(value) = max_concurrent {
        within("max_concurrent", value.into(), MAX_CONCURRENT_CEILING.into())?;
        limits.max_concurrent = if value == 0 { Concurrency::Unlimited } else { Concurrency::Fixed(value) };
    }
    if let Some(value) = queue_size {
        within("queue_size", value.into(), config::LONGEST_QUEUE.into())?;
        limits.queue_size = value;
    }
    if let Some(value) = queue_timeout_ms {
        within("queue_timeout_ms", value, LONGEST_MS)?;
        limits.queue_timeout = limit(value);
    }
    if let Some(value) = call_timeout_ms {
        within("call_timeout_ms", value, LONGEST_MS)?;
        limits.call_timeout = limit(value);
    }
    if let Some(value) = max_queued {
        within("max_queued", value.into(), config::LONGEST_QUEUE.into())?;
        limits.max_queued = (value > 0).then_some(value);
    }
    if let Some(value) = cancel_grace_ms {
        within("cancel_grace_ms", value, LONGEST_MS)?;
        let hint = "1 is the least; after_cancel = \"hold\" in the config waits as long as the call may run";
        limits.cancel_grace = limit(value).ok_or_else(|| Refusal::bad("bad_limit", "cancel_grace_ms is 0", hint))?;
    }
    Ok(limits)
}

/// What of `one` is not so in `other`.
fn differences(one: &wire::Limits, other: &wire::Limits) -> wire::Limits {
    fn unlike<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<T> {
        one.filter(|value| other.as_ref() != Some(value))
    }
    wire::Limits {
        max_concurrent: unlike(one.max_concurrent, other.max_concurrent),
        queue_size: unlike(one.queue_size, other.queue_size),
        queue_timeout_ms: unlike(one.queue_timeout_ms, other.queue_timeout_ms),
        call_timeout_ms: unlike(one.call_timeout_ms, other.call_timeout_ms),
        max_queued: unlike(one.max_queued, other.max_queued),
        cancel_grace_ms: unlike(one.cancel_grace_ms, other.cancel_grace_ms),
    }
}

/// What a change means for what is there already.
fn notes(upstream: &Upstream, wanted: &wire::Limits) -> Vec<String> {
    let status = upstream.status();
    let taken = status.running + status.lingering;
    let mut notes = Vec::new();
    match wanted.max_concurrent {
        Some(0) => notes.push("without a limit nothing waits, and nothing protects the upstream".into()),
        Some(limit) if taken > limit => {
            notes.push(format!("{taken} calls are in flight: none is ended, and the limit is kept as they end"));
        }
        Some(_) | None => {}
    }
    if let Some(size) = wanted.queue_size.filter(|size| status.queued > *size) {
        let queued = status.queued;
        notes.push(format!(
            "{queued} calls wait: they keep their places, and newcomers are refused until fewer than {size} wait"
        ));
    }
    if wanted.queue_timeout_ms.is_some() && status.queued > 0 {
        notes.push("calls that wait already keep the end of their wait".into());
    }
    notes
}

fn limits_said(limits: &wire::Limits) -> String {
    let ms = |name: &str, value: Option<u64>| value.map(|value| format!("{name} = {value}"));
    let count = |name: &str, value: Option<u32>| ms(name, value.map(u64::from));
    let parts = [
        count("max_concurrent", limits.max_concurrent),
        count("queue_size", limits.queue_size),
        ms("queue_timeout_ms", limits.queue_timeout_ms),
        ms("call_timeout_ms", limits.call_timeout_ms),
        count("max_queued", limits.max_queued),
        ms("cancel_grace_ms", limits.cancel_grace_ms),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
