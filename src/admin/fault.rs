//! How the admin API says no: a status and a [`wire::Fault`].

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use forebay_wire as wire;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    fault: wire::Fault,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        Refusal { status, fault: wire::Fault { code: code.into(), message: message.into(), hint } }
    }

    pub(super) fn bad(code: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Refusal::new(StatusCode::BAD_REQUEST, code, message, hint)
    }

    pub(super) fn unknown_id(id: &str, other_run: bool, mark: &str) -> Self {
        let (message, hint) = if other_run {
            (
                format!("{id} is a call of another run of the daemon; this run is {mark}"),
                "queues are in memory: calls of an earlier run have ended with it",
            )
        } else {
            (
                format!("no call {id} is known"),
                "see `forebay ps`; finished calls are remembered until newer ones need the room",
            )
        };
        Refusal::new(StatusCode::NOT_FOUND, "unknown_id", message, hint)
    }

    pub(super) fn unknown_upstream(name: &str, known: &[String]) -> Self {
        let hint = if known.is_empty() { "there are none".into() } else { format!("there are: {}", known.join(", ")) };
        Refusal::new(StatusCode::NOT_FOUND, "unknown_upstream", format!("no upstream is named `{name}`"), hint)
    }

    pub(super) fn unavailable(name: &str) -> Self {
        Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            format!("upstream `{name}` does not answer; it may be restarting"),
            "try again in a moment",
        )
    }

    pub(super) fn into_fault(self) -> (StatusCode, wire::Fault) {
        (self.status, self.fault)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(self.fault)).into_response()
    }
}
