//! What limits in shadow mode would have refused.

use serde::{Deserialize, Serialize};

/// `GET /v1/shadow`: since the daemon's start, by limit, upstream and caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowReport {
    /// All limits before the queues are in shadow mode, not single ones alone.
    pub global: bool,
    pub uptime_ms: u64,
    pub rows: Vec<ShadowRow>,
}

/// One limit and one caller. The name is hostile text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowRow {
    /// `rate`, `quota`, `cursors` or `gate`.
    pub limit: String,
    /// Absent for a limit that is the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Absent for all that found no row of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Calls that would have been refused. They went on.
    pub calls: u64,
    /// The longest that one of them would have been told to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_wait_ms: Option<u64>,
    /// Since the last of them.
    pub last_ms: u64,
}
