//! What the demo shows of itself: the daemon's last state document and what was measured beside it.

use forebay_wire as wire;
use std::time::Duration;

/// What the overview shows.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// What this is a view of.
    pub title: String,
    /// How far a bounded run has come: elapsed, whole.
    pub progress: Option<(Duration, Duration)>,
    pub state: wire::State,
    /// How old `state` is, once the daemon does not answer any more.
    pub stale: Option<Duration>,
    pub callers: Vec<CallerRow>,
    /// A sentence at the foot.
    pub note: String,
}

/// One caller as measured from its own side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallerRow {
    pub name: String,
    pub calls: u64,
    pub ok: u64,
    /// Answered by the upstream with an error.
    pub failed: u64,
    /// Answered by forebay.
    pub refused: u64,
    /// Finished calls in the last second.
    pub per_second: f64,
    pub p50_ms: Option<u64>,
    pub p95_ms: Option<u64>,
}
