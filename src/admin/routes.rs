//! The routes of the admin API. Each handler reads, or does one thing, and answers at once.

use super::fault::Refusal;
use super::list::{self, Cursor, Filter};
use super::who::Who;
use super::{Admin, change, look, stream, who};
use crate::call::CallRef;
use crate::dispatcher::{CancelAnswer, Found};
use crate::events::Draft;
use crate::outcome::CancelledBy;
use crate::snapshot;
use crate::upstream::{RowState, Unavailable};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use forebay_wire as wire;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long a steering command waits for the upstream's actor.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/v1/state", get(state))
        .route("/v1/shadow", get(shadow))
        .route("/v1/stream", get(stream::stream))
        .route("/v1/calls", get(calls))
        .route("/v1/calls/{id}", get(look::call).post(change::edit))
        .route("/v1/calls/{id}/why", get(look::why_call))
        .route("/v1/calls/{id}/cancel", post(cancel))
        .route("/v1/cancel", post(change::cancel_many))
        .route("/v1/callers", get(look::callers))
        .route("/v1/events", get(look::events))
        .route("/v1/upstreams/{name}", get(look::upstream).patch(change::limits))
        .route("/v1/upstreams/{name}/why", get(look::why_upstream))
        .route("/v1/upstreams/{name}/stderr", get(look::stderr))
        .route("/v1/upstreams/{name}/{action}", post(steer))
        .route("/v1/reload", post(reload))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn_with_state(admin.clone(), who::guard))
        .with_state(admin)
}

async fn state(State(admin): State<Arc<Admin>>) -> Json<wire::State> {
    Json(snapshot::state(&admin.dispatcher, admin.mcp, Instant::now()))
}

/// What limits in shadow mode would have refused.
async fn shadow(State(admin): State<Arc<Admin>>) -> Json<wire::ShadowReport> {
    Json(snapshot::shadow(&admin.dispatcher, Instant::now()))
}

/// A misspelt filter must not silently list everything, so unknown ones are refused.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallsQuery {
    upstream: Option<String>,
    caller: Option<String>,
    tool: Option<String>,
    state: Option<String>,
    older_than: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

async fn calls(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<CallsQuery>, QueryRejection>,
) -> Result<Json<wire::CallsPage>, Refusal> {
    let Query(query) = query.map_err(|fault| {
        let known = "known are upstream, caller, tool, state, older_than, cursor, limit";
        Refusal::bad("bad_query", fault.body_text(), known)
    })?;
    let cursor = match query.cursor.as_deref() {
        Some(text) => Some(
            Cursor::parse(text)
                .ok_or_else(|| Refusal::bad("bad_cursor", "this is no cursor", "pass `next` of the last page"))?,
        ),
        None => None,
    };
    let filter = Filter {
        state: query.state.as_deref().map(row_state).transpose()?,
        older_than: query.older_than.as_deref().map(duration).transpose()?,
        upstream: query.upstream,
        caller: query.caller,
        tool: query.tool,
    };
    let limit = query.limit.unwrap_or(list::DEFAULT_LIMIT);
    Ok(Json(list::page(&admin.dispatcher, &filter, cursor, limit).await?))
}

/// A cancel of a call that is not known answers with both, so that every reader finds what it looks for.
#[derive(Serialize)]
struct UnknownCancel {
    #[serde(flatten)]
    answer: wire::CancelAnswer,
    #[serde(flatten)]
    fault: wire::Fault,
}

async fn cancel(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Who>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(text) = id.map_err(bad_path)?;
    let reference = reference(&text)?;
    let answered = admin.dispatcher.cancel(reference, CancelledBy::Operator, None);
    let plain = |answer| wire::CancelAnswer { id: text.clone(), answer, outcome: None, reason: None };
    let answer = match answered {
        CancelAnswer::CancelledQueued => plain(wire::Cancelled::CancelledQueued),
        CancelAnswer::CancelledRunning => plain(wire::Cancelled::CancelledRunning),
        CancelAnswer::AlreadyFinished(outcome) => wire::CancelAnswer {
            outcome: Some(outcome.name().into()),
            reason: snapshot::reason(outcome),
            ..plain(wire::Cancelled::AlreadyFinished)
        },
        CancelAnswer::UnknownId { other_run } => {
            let (status, fault) = Refusal::unknown_id(&text, other_run, &admin.dispatcher.mark()).into_fault();
            let answer = plain(wire::Cancelled::UnknownId);
            return Ok((status, Json(UnknownCancel { answer, fault })).into_response());
        }
    };
    tracing::info!(call = %text, by = %who.by, answer = ?answer.answer, "cancel asked for by an operator");
    let did = match answer.answer {
        wire::Cancelled::CancelledQueued => "queued",
        wire::Cancelled::CancelledRunning => "running",
        wire::Cancelled::AlreadyFinished | wire::Cancelled::UnknownId | wire::Cancelled::Unknown => {
            return Ok(Json(answer).into_response());
        }
    };
    let words = format!("cancelled {text}, which was {did}");
    let mut draft = Draft::new(wire::Level::Info, "cancelled", words).by(&who.by);
    if let Found::Finished(record) = admin.dispatcher.find(reference) {
        draft = draft.call(record.id).caller(&record.caller).upstream(&record.upstream);
    }
    admin.dispatcher.events().tell(draft);
    Ok(Json(answer).into_response())
}

async fn steer(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Who>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<wire::Upstream>, Refusal> {
    let Path((name, action)) = path.map_err(bad_path)?;
    let upstream = admin.upstream(&name)?;
    let (done, kind) = match &*action {
        "pause" => (timeout(PATIENCE, upstream.pause()).await, "upstream.paused"),
        "resume" => (timeout(PATIENCE, upstream.resume()).await, "upstream.resumed"),
        "drain" => (timeout(PATIENCE, upstream.drain()).await, "upstream.draining"),
        "restart" => (timeout(PATIENCE, upstream.restart()).await, "upstream.restarted"),
        other => {
            let message = format!("an upstream cannot be told to `{other}`");
            return Err(Refusal::new(
                StatusCode::NOT_FOUND,
                "unknown_action",
                message,
                "known are pause, resume, drain, restart",
            ));
        }
    };
    match done {
        Ok(Ok(())) => {
            tracing::info!(upstream = %name, action, by = %who.by, "steered by an operator");
            let draft = Draft::new(wire::Level::Info, kind, format!("{name}: {action}"));
            admin.dispatcher.events().tell(draft.upstream(&name).by(&who.by));
            Ok(Json(snapshot::upstream(&upstream)))
        }
        Ok(Err(Unavailable)) | Err(_) => Err(Refusal::unavailable(&name)),
    }
}

/// Reads the config anew.
async fn reload(State(admin): State<Arc<Admin>>, Extension(who): Extension<who::Who>) -> Result<Response, Refusal> {
    let Some(reload) = &admin.reload else {
        let hint = "start it with `forebay serve` and a config file";
        let message = "this daemon was started without a config file";
        return Err(Refusal::new(StatusCode::CONFLICT, "no_config", message, hint));
    };
    let stopping = |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the daemon is stopping", "");
    let reloaded = reload.ask(&who.by).await.map_err(stopping)?;
    let Some(first) = reloaded.faults.first() else { return Ok(Json(&*reloaded).into_response()) };
    let hint = first.hint.clone();
    let fault = wire::Fault { code: "bad_config".into(), message: reloaded.text.clone(), hint };
    Ok((StatusCode::UNPROCESSABLE_ENTITY, Json(RefusedReload { fault, reloaded: &reloaded })).into_response())
}

/// A config that was refused answers with both, so that every reader finds what it looks for.
#[derive(Serialize)]
struct RefusedReload<'a> {
    #[serde(flatten)]
    fault: wire::Fault,
    #[serde(flatten)]
    reloaded: &'a wire::Reloaded,
}

/// The loop answers.
async fn healthz() -> Json<wire::Health> {
    Json(wire::Health { status: "ok".into() })
}

/// Calls are taken in. A server that is down does not make the daemon unready.
async fn readyz(State(admin): State<Arc<Admin>>) -> (StatusCode, Json<wire::Health>) {
    let (code, status) = if admin.dispatcher.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else {
        (StatusCode::OK, "ready")
    };
    (code, Json(wire::Health { status: status.into() }))
}

async fn unknown_route() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "unknown_route", "there is no such route", "docs/admin-api.md lists them")
}

async fn wrong_method() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "wrong_method",
        "this route does not take this method",
        "reading is GET, steering is POST",
    )
}

pub(super) fn bad_path(fault: PathRejection) -> Refusal {
    Refusal::bad("bad_path", fault.body_text(), "")
}

pub(super) fn reference(text: &str) -> Result<CallRef, Refusal> {
    text.parse().map_err(|fault: crate::call::BadCallId| Refusal::bad("bad_id", fault.to_string(), "see `forebay ps`"))
}

fn row_state(text: &str) -> Result<RowState, Refusal> {
    match text {
        "queued" => Ok(RowState::Queued),
        "running" => Ok(RowState::Running),
        "lingering" => Ok(RowState::Lingering),
        other => Err(Refusal::bad(
            "bad_state",
            format!("`{other}` is not a state that can be listed"),
            "known are queued, running, lingering",
        )),
    }
}

fn duration(text: &str) -> Result<Duration, Refusal> {
    crate::config::parse_duration(text)
        .map_err(|fault| Refusal::bad("bad_duration", format!("`{text}` {fault}"), "write it as 30s or 2m"))
}
