//! One upstream as listings show it.

use serde::{Deserialize, Serialize};

/// Figures of one upstream at one moment. The fault is hostile text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    pub name: String,
    pub kind: UpstreamKind,
    pub state: UpstreamState,
    /// Slots in use by calls that their callers wait for.
    pub running: u32,
    /// Slots in use by calls that are over for their callers.
    pub lingering: u32,
    /// The limit in force; 0 is unlimited. `running + lingering` never exceeds it, unless it was just lowered.
    pub max_concurrent: u32,
    pub queued: u32,
    pub queue_size: u32,
    pub oldest_wait_ms: u64,
    /// Of the time that a slot was held, lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    /// Calls refused, displaced or expired since the start.
    pub refused: u64,
    /// Calls finished in any way since the start.
    #[serde(default)]
    pub finished: u64,
    /// How often its process or connection was replaced.
    pub restarts: u64,
    /// Calls that arrived since the start; readers take the difference of two moments for a rate.
    #[serde(default)]
    pub offered: u64,
    /// Calls that ended with an error of the upstream, were lost or timed out since the start.
    #[serde(default)]
    pub failed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_timeout_ms: Option<u64>,
    /// Why it is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in_ms: Option<u64>,
    /// Its processes, for a stdio upstream.
    #[serde(default)]
    pub pids: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamKind {
    #[default]
    Stdio,
    Http,
    #[serde(other)]
    Unknown,
}

impl UpstreamKind {
    pub fn name(self) -> &'static str {
        match self {
            UpstreamKind::Stdio => "stdio",
            UpstreamKind::Http => "http",
            UpstreamKind::Unknown => "unknown",
        }
    }
}

/// What an upstream is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamState {
    #[default]
    Starting,
    Up,
    /// Some of its processes are down.
    Degraded,
    /// Its queue is nearly full, or calls are being refused.
    Saturated,
    /// Nothing is dispatched; arrivals queue.
    Paused,
    /// Arrivals are refused; what is queued runs.
    Draining,
    /// Drained dry; refuses until it is resumed.
    Drained,
    Down,
    /// Starts with the first call.
    Asleep,
    #[serde(other)]
    Unknown,
}

impl UpstreamState {
    pub fn name(self) -> &'static str {
        match self {
            UpstreamState::Starting => "starting",
            UpstreamState::Up => "up",
            UpstreamState::Degraded => "degraded",
            UpstreamState::Saturated => "saturated",
            UpstreamState::Paused => "paused",
            UpstreamState::Draining => "draining",
            UpstreamState::Drained => "drained",
            UpstreamState::Down => "down",
            UpstreamState::Asleep => "asleep",
            UpstreamState::Unknown => "unknown",
        }
    }

    /// Something is wrong here that nobody asked for.
    pub fn is_degraded(self) -> bool {
        match self {
            UpstreamState::Degraded | UpstreamState::Saturated | UpstreamState::Down => true,
            UpstreamState::Starting
            | UpstreamState::Up
            | UpstreamState::Paused
            | UpstreamState::Draining
            | UpstreamState::Drained
            | UpstreamState::Asleep
            | UpstreamState::Unknown => false,
        }
    }
}
