//! The whole story of one call or one upstream, and why it waits.

use crate::{Call, Limits, OutcomeCount, Upstream};
use serde::{Deserialize, Serialize};

/// `GET /v1/calls/{id}`: the call's own fields, and what only this answer has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallDetail {
    #[serde(flatten)]
    pub call: Call,
    /// When it arrived, milliseconds since 1970.
    #[serde(default)]
    pub arrived_unix_ms: u64,
    /// What the client said of itself, `name/version`. A claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The client's protocol revision, and that spoken with the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_protocol: Option<String>,
    /// How many wait on its upstream, this one included, while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Step>,
}

/// One step of a call's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Since it arrived.
    pub at_ms: u64,
    /// `accepted`, `queued`, `dispatched`, `handed_back`, `edited`, `progress`, `asked_to_stop`, `finished`, `released`.
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// `GET /v1/upstreams/{name}`: the upstream's own fields, and what only this answer has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpstreamDetail {
    #[serde(flatten)]
    pub upstream: Upstream,
    /// Limits in force, and those of the config file.
    #[serde(default)]
    pub now: Limits,
    #[serde(default)]
    pub file: Limits,
    #[serde(default)]
    pub on_full: String,
    #[serde(default)]
    pub after_cancel: String,
    #[serde(default)]
    pub processes: u32,
    /// The protocol revision spoken with it, and what it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// How its calls ended since the start.
    #[serde(default)]
    pub outcomes: Vec<OutcomeCount>,
    /// The newest lines of its error output, oldest first. Hostile text.
    #[serde(default)]
    pub stderr: Vec<String>,
}

/// `GET /v1/upstreams/{name}/stderr`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stderr {
    pub upstream: String,
    /// The newest lines of its error output, oldest first. Hostile text.
    pub stderr: Vec<String>,
}

/// `GET /v1/calls/{id}/why` and `GET /v1/upstreams/{name}/why`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// One plain sentence or two.
    pub sentence: String,
    /// What can be done about it: a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Where a call's time went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// Who holds the slots, longest first, at most 16.
    #[serde(default)]
    pub holders: Vec<Call>,
    /// Who holds the queue: callers with the most waiting calls first, at most 8.
    #[serde(default)]
    pub waiting: Vec<Share>,
}

/// Where a call's time went. The parts add up to its age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// From its arrival to its place in the queue.
    pub admission_ms: u64,
    pub queue_ms: u64,
    pub upstream_ms: u64,
    /// From the upstream's answer until it was written to the caller.
    pub delivery_ms: u64,
}

/// How much of a queue one caller holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub caller: String,
    pub calls: u32,
}
