//! [`Upstream`]: what the rest of the daemon holds of one server.

use super::connection::{AskError, Connection, Report, ServerInfo};
use super::shared::UpstreamShared;
use crate::call::Call;
use crate::caller::Lane;
use crate::config::Limits;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// One server: its actor, its connection, its cached lists.
pub struct Upstream {
    shared: Arc<UpstreamShared>,
    connection: Arc<dyn Connection>,
}

/// The lists that are answered from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// One whole list, all pages of the upstream together.
#[derive(Clone, Debug)]
pub struct List {
    /// Raw items, each one JSON object, in the upstream's order.
    pub items: Vec<ListItem>,
}

/// One item of a list.
#[derive(Clone, Debug)]
pub struct ListItem {
    /// The decoded `name` (or `uri`, `uriTemplate`).
    pub name: Arc<str>,
    /// The whole object as the upstream wrote it.
    pub raw: Bytes,
    /// `annotations.readOnlyHint` or `annotations.idempotentHint` is true (rule R5).
    pub safe_to_repeat: bool,
}

/// What an upstream is doing, as listings name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamState {
    Starting,
    Up,
    Degraded,
    Saturated,
    Paused,
    Draining,
    Drained,
    Down,
    Asleep,
}

/// Figures of this moment, read without asking the actor.
#[derive(Clone, Debug)]
pub struct Status {
    pub state: UpstreamState,
    /// Why it is down, in a short phrase.
    pub fault: Option<Arc<str>>,
    pub retry_in: Option<Duration>,
    pub running: u32,
    pub lingering: u32,
    /// The limit in force; 0 is unlimited.
    pub max_concurrent: u32,
    pub queued: u32,
    pub queue_size: u32,
    pub oldest_wait: Duration,
    pub p50: Option<Duration>,
    pub p95: Option<Duration>,
    /// Calls refused, displaced or expired so far.
    pub refused: u64,
}

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
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub rows: Vec<Row>,
    pub next: Option<u64>,
}

/// The actor did not answer in time, or has been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's actor does not answer")]
pub struct Unavailable;

/// What became of a change to one call (rule R25).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    Changed,
    AlreadyRunning,
    Unknown,
}

impl Upstream {
    /// Starts the actor and, unless it starts on demand, the connection.
    pub fn start(shared: Arc<UpstreamShared>, connection: Arc<dyn Connection>) -> Arc<Self> {
        Arc::new(Upstream { shared, connection })
    }

    pub fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    pub fn shared(&self) -> &Arc<UpstreamShared> {
        &self.shared
    }

    /// Puts a call before the actor. Never waits; a call that cannot be taken ends at once.
    pub fn offer(&self, _call: Arc<Call>) {
        todo!()
    }

    /// Figures of this moment.
    pub fn status(&self) -> Status {
        todo!()
    }

    /// What the server said of itself; connects it first if it sleeps, and waits at most `timeout`.
    pub async fn server(&self, _timeout: Duration) -> Result<Arc<ServerInfo>, AskError> {
        todo!()
    }

    /// A whole list from the cache, or fetched once for all who wait.
    pub async fn list(&self, _kind: ListKind) -> Result<Arc<List>, AskError> {
        todo!()
    }

    /// The list if it is cached and fresh.
    pub fn cached_list(&self, _kind: ListKind) -> Option<Arc<List>> {
        todo!()
    }

    /// Rows from `cursor` on (0 is the first), at most `limit` (at most 256).
    pub async fn page(&self, _cursor: u64, _limit: usize) -> Result<Page, Unavailable> {
        todo!()
    }

    /// Nothing is dispatched any more; arrivals queue.
    pub async fn pause(&self) -> Result<(), Unavailable> {
        todo!()
    }

    /// Ends a pause or a drain.
    pub async fn resume(&self) -> Result<(), Unavailable> {
        todo!()
    }

    /// Arrivals are refused, what is queued runs.
    pub async fn drain(&self) -> Result<(), Unavailable> {
        todo!()
    }

    /// Replaces the children or connections; running calls end lost.
    pub async fn restart(&self) -> Result<(), Unavailable> {
        todo!()
    }

    /// Puts new limits in force. They hold from the moment this returns.
    pub async fn set_limits(&self, _limits: Limits) -> Result<(), Unavailable> {
        todo!()
    }

    /// Moves a queued call to another lane, or moves its queue expiry by `extend`.
    pub async fn edit(
        &self,
        _call: &Arc<Call>,
        _lane: Option<Lane>,
        _extend: Option<Duration>,
    ) -> Result<Edited, Unavailable> {
        todo!()
    }

    /// Pids, restarts, stderr.
    pub fn report(&self) -> Report {
        self.connection.report()
    }

    /// Takes the upstream out of service (rule R3): drains until `drain_timeout`, answers the rest, closes
    /// the connection, stops the actor.
    pub async fn remove(&self, _drain_timeout: Duration) {
        todo!()
    }
}
