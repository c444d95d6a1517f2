//! `GET /v1/stream`: what a screen that follows the daemon is sent.
//!
//! Server-sent events, each with one [`Update`] as its data. State travels as whole objects that replace the
//! older one of the same name, so an update that is left out for a slow reader loses nothing but its moment.

use crate::event::is_zero;
use crate::{AuthMode, Caller, Event, Role, Totals, Upstream};
use serde::{Deserialize, Serialize};

/// One message of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Update {
    /// The first message: who speaks, and all of the state. What a reader held before is void.
    Snapshot(Box<Snapshot>),
    /// What has changed since the message before.
    Changes(Box<Changes>),
    /// A message of a newer daemon; pass it over.
    #[serde(other)]
    Unknown,
}

/// All of the state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of this API; a reader that does not know it must not steer.
    pub api: u32,
    pub version: String,
    /// The mark of this run. Another mark than before: the daemon was restarted, its old calls are gone.
    pub instance: String,
    pub pid: u32,
    /// What the reader may do.
    pub role: Role,
    /// By what name the daemon writes down what the reader does: `uid:1000`, `token:ops`.
    pub subject: String,
    pub mcp: String,
    pub auth: AuthMode,
    pub uptime_ms: u64,
    /// The daemon's clock, milliseconds since 1970.
    pub now_unix_ms: u64,
    pub draining: bool,
    pub totals: Totals,
    pub upstreams: Vec<Upstream>,
    /// The callers that hold or lately sent calls, at most [`MOST_CALLERS`], those that hold most first.
    pub callers: Vec<Caller>,
    /// The newest events, oldest first. Their numbers continue in the changes.
    pub events: Vec<Event>,
    /// The number that the next event will have.
    pub next_event: u64,
}

/// What has changed since the message before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Counts up by one from 1 within a stream. A hole means that the reader must start again.
    pub sequence: u64,
    pub uptime_ms: u64,
    pub draining: bool,
    pub totals: Totals,
    /// Each replaces the upstream of its name. One whose waiting calls only grew older is not sent:
    /// readers count `oldest_wait_ms` on from the message that brought it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<Upstream>,
    /// Names of upstreams that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams_gone: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<Caller>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers_gone: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Events that happened but were lost to this reader, since they came faster than it is sent any.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_dropped: u64,
}

/// Callers that the stream carries; the rest is in `GET /v1/callers`.
pub const MOST_CALLERS: usize = 200;
