//! The daemon as a whole: the state document, and health.

use crate::{ConfigState, Upstream};
use serde::{Deserialize, Serialize};

/// `GET /v1/state`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The mark of this run, as it stands in its call ids. Another mark means another run.
    pub instance: String,
    /// The program's version.
    pub version: String,
    /// The version of this API.
    pub api: u32,
    pub uptime_ms: u64,
    /// Where MCP and REST are served.
    pub mcp: String,
    pub auth: AuthMode,
    /// Calls are no longer taken in: the daemon is stopping.
    #[serde(default)]
    pub draining: bool,
    pub totals: Totals,
    pub upstreams: Vec<Upstream>,
    /// Missing if the daemon is older, or runs without a config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigState>,
}

/// How callers prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthMode {
    #[default]
    None,
    Keys,
    Jwt,
    #[serde(other)]
    Unknown,
}

/// The ledger over all upstreams, those that are gone and calls that met none included:
/// `offered == submitted + queued + running + finished`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub offered: u64,
    pub submitted: u64,
    pub queued: u64,
    pub running: u64,
    /// Slots still held by calls that are over for their callers; no term of the ledger.
    pub lingering: u64,
    pub finished: u64,
    /// Calls that the ledger has lost sight of; always 0.
    pub unaccounted: i64,
    /// How the finished calls ended. Endings that did not occur are left out.
    pub outcomes: Vec<OutcomeCount>,
}

/// One way of ending, and how often it occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeCount {
    pub outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub calls: u64,
}

/// `GET /healthz` and `GET /readyz`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`, `ready`, `starting` or `draining`.
    pub status: String,
}
