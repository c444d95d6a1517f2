//! Steering: what is sent to change something, and what is answered.

use crate::{Call, CallState, Lane};
use serde::{Deserialize, Serialize};

/// What a reader of the admin API may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads and steers.
    #[default]
    Operator,
    #[serde(other)]
    Unknown,
}

/// The body of `POST /v1/cancel`: every field given narrows. At least one must be given, or `all`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// `queued` or `running`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<CallState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// Every live call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Counts what would be cancelled, and cancels nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What a cancel by selector did, or with `dry_run` would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledMany {
    pub dry_run: bool,
    /// Calls that the selector took: the sum of the three below.
    pub matched: u64,
    pub cancelled_queued: u64,
    pub cancelled_running: u64,
    /// Ended by themselves between being found and being cancelled.
    pub already_finished: u64,
    /// The first few ids, at most 20.
    pub ids: Vec<String>,
}

/// The body of `POST /v1/calls/{id}`: changes a queued call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Lane>,
    /// Moves the end of its wait by so much, at most to its caller's own deadline or one hour from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extend_ms: Option<u64>,
}

/// What became of an [`Edit`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditAnswer {
    pub id: String,
    pub answer: Edited,
    /// The call as it now is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Call>,
}

/// See [`EditAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edited {
    Changed,
    AlreadyRunning,
    AlreadyFinished,
    UnknownId,
    #[serde(other)]
    Unknown,
}

/// Limits of one upstream. As the body of `PATCH /v1/upstreams/{name}`, what is absent stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// 0 is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_size: Option<u32>,
    /// 0 is without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<u64>,
    /// 0 is without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_timeout_ms: Option<u64>,
    /// Most of the queue that one caller may hold; 0 is no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queued: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_grace_ms: Option<u64>,
}

/// The answer of `PATCH /v1/upstreams/{name}`, with `?save=true` also written into the config file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsAnswer {
    /// In force from now on.
    pub now: Limits,
    /// As the config file has them.
    pub file: Limits,
    /// What the change means, such as that nothing running is killed by a lower limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The file that was written, with `save`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_to: Option<String>,
}
