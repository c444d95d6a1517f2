//! One caller as listings show it.

use serde::{Deserialize, Serialize};

/// Figures of one caller at one moment. Its name is hostile text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Caller {
    pub name: String,
    /// How it proved who it is: `none`, `key`, `peer_uid`, `jwt`, `proxy`.
    pub identity: String,
    /// What its client last said of itself, `name/version`. A claim; nothing hangs on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    pub queued: u32,
    /// Slots in use by calls that it waits for.
    pub running: u32,
    /// Calls that ended in any way since the start.
    pub finished: u64,
    /// Of those, answered by an upstream with a result.
    pub completed: u64,
    /// Of those, refused, displaced or expired.
    pub shed: u64,
    /// Of those, cancelled by anybody.
    pub cancelled: u64,
    /// Since its last call arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<u64>,
    /// Its share when callers compete.
    pub weight: u32,
    /// Its limits; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queued: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<crate::Lane>,
}

/// `GET /v1/callers`: by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallersPage {
    pub callers: Vec<Caller>,
    /// Passed back as `cursor` for the part that follows; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
