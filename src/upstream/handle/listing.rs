//! Rows of an upstream's listing, as its actor gives them.

use crate::call::Call;
use std::sync::Arc;
use std::time::Duration;

/// One row of a listing, in lane, ring, FIFO order after the running ones (rule R18).
#[derive(Clone, Debug)]
pub struct Row {
    pub call: Arc<Call>,
    pub state: RowState,
    /// 1 for the call that is served next; an estimate that may grow.
    pub position: Option<u32>,
    /// Time left: of `queue_timeout` or the caller's deadline while queued, of `call_timeout` while
    /// running, of the grace while lingering.
    pub left: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    Queued,
    Running,
    Lingering,
}

/// A part of a listing, and where the next part begins.
#[derive(Clone, Debug, Default, kameo::Reply)]
pub struct Page {
    pub rows: Vec<Row>,
    pub next: Option<u64>,
}

/// One call as its upstream's queue has it.
#[derive(Clone, Debug, Default, kameo::Reply)]
pub struct Found {
    /// None if the queue does not hold it.
    pub row: Option<Row>,
    /// How long it will still wait, as far as that can be told.
    pub wait: Option<Duration>,
}
