//! One call as listings show it, and what a cancel answers.

use serde::{Deserialize, Serialize};

/// One call. Names are hostile text: escape them before they are drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub id: String,
    pub caller: String,
    pub upstream: String,
    pub method: String,
    /// What the call is aimed at: a tool, a prompt or a resource. Absent for a method that aims at nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub lane: Lane,
    pub state: CallState,
    /// Among those that wait, 1 is served next. An estimate, which may grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// Since it arrived; for a finished call, from arrival to end.
    pub age_ms: u64,
    pub queued_ms: u64,
    pub running_ms: u64,
    /// Time left: of `queue_timeout` or the caller's deadline while queued, of `call_timeout` while running,
    /// of the grace while lingering. Absent where nothing bounds the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Slots that it takes.
    pub weight: u32,
    /// Size of the request.
    pub bytes: u64,
    /// How often it was handed to the upstream, from 1.
    pub attempt: u32,
    /// The call for which this one asks a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How it ended, for its caller. Present once it has finished, lingering included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `yes`, `never` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<String>,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    #[default]
    Queued,
    Running,
    /// Finished for its caller, while its slot is still held because the upstream has not ended it.
    Lingering,
    Finished,
    #[serde(other)]
    Unknown,
}

impl CallState {
    /// The states that a listing can be narrowed to.
    pub const LISTED: [CallState; 3] = [CallState::Queued, CallState::Running, CallState::Lingering];

    pub fn name(self) -> &'static str {
        match self {
            CallState::Queued => "queued",
            CallState::Running => "running",
            CallState::Lingering => "lingering",
            CallState::Finished => "finished",
            CallState::Unknown => "unknown",
        }
    }
}

/// Priority class inside a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    High,
    #[default]
    Normal,
    Low,
    #[serde(other)]
    Unknown,
}

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallsPage {
    pub calls: Vec<Call>,
    /// Passed back as `cursor` for the part that follows; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Upstreams whose actor did not answer in time, so that their calls are missing here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// What a cancel did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelAnswer {
    /// As it was asked for.
    pub id: String,
    pub answer: Cancelled,
    /// How the call had ended, with `already_finished`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// See [`CancelAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancelled {
    /// It left the queue; the upstream never saw it.
    CancelledQueued,
    /// Its caller was answered and the upstream was asked to stop; the slot lingers until it has.
    CancelledRunning,
    AlreadyFinished,
    UnknownId,
    #[serde(other)]
    Unknown,
}
