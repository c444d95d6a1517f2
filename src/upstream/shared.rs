//! What outlives an incarnation of an upstream's actor (rule R2): rings, ledger, live limits, switches.

use super::connection::{Completion, LinkEvent};
use crate::call::Call;
use crate::config::UpstreamConfig;
use crate::ledger::Ledger;
use arc_swap::ArcSwap;
use crossbeam_queue::{ArrayQueue, SegQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use tokio::sync::Notify;

/// Shared by the handle, the actor, the connection and its workers.
pub struct UpstreamShared {
    pub name: Arc<str>,
    pub config: ArcSwap<UpstreamConfig>,
    pub ledger: Arc<Ledger>,
    /// Calls on their way into the queue. Large enough that full means the queue is full too (rule R21).
    pub(crate) submits: ArcSwap<ArrayQueue<Arc<Call>>>,
    /// Slots given back. Pushed from `Drop`, so a push must not be able to fail.
    pub(crate) completions: SegQueue<Completion>,
    /// Calls that ended while queued or running and have to be unlinked or stopped.
    pub(crate) withdrawals: SegQueue<Arc<Call>>,
    pub(crate) link_events: SegQueue<LinkEvent>,
    /// One permit is kept, so a push right before the actor waits is not missed.
    pub(crate) wake: Notify,
    pub(crate) closed: AtomicBool,
    pub(crate) incarnation: AtomicU32,
}

impl UpstreamShared {
    pub fn new(config: Arc<UpstreamConfig>) -> Arc<Self> {
        let places = places(&config);
        Arc::new(UpstreamShared {
            name: config.name.clone(),
            config: ArcSwap::new(config),
            ledger: Arc::new(Ledger::default()),
            submits: ArcSwap::from_pointee(ArrayQueue::new(places)),
            completions: SegQueue::new(),
            withdrawals: SegQueue::new(),
            link_events: SegQueue::new(),
            wake: Notify::new(),
            closed: AtomicBool::new(false),
            incarnation: AtomicU32::new(0),
        })
    }

    /// A slot came back.
    pub(crate) fn complete(&self, completion: Completion) {
        self.completions.push(completion);
        self.wake.notify_one();
    }

    /// The connection tells of its link.
    pub fn tell(&self, event: LinkEvent) {
        self.link_events.push(event);
        self.wake.notify_one();
    }

    /// A call ended that the actor may hold: it is unlinked from the queue, or its run is stopped.
    pub fn withdraw(&self, call: Arc<Call>) {
        self.withdrawals.push(call);
        self.wake.notify_one();
    }

    /// Whether the upstream takes no calls any more.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }
}

/// Places of the submit ring for these limits (rule R21).
fn places(config: &UpstreamConfig) -> usize {
    let wanted = u64::from(config.limits.queue_size) + u64::from(config.limits.max_concurrent.ceiling());
    wanted.clamp(64, 65_536) as usize
}
