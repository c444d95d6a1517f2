//! What an upstream is doing at this moment, read without asking its actor.

use super::Upstream;
use crate::config::UpstreamConfig;
use crate::outcome::Outcome;
use crate::upstream::actor::configured_processes;
use crate::upstream::link::{Link, LinkState};
use crate::upstream::shared::Switch;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

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

/// See [`Upstream::print`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Print {
    turns: u64,
    /// When the oldest queued call arrived.
    pub oldest: u64,
    offered: u64,
    config: usize,
    restarts: u64,
    switch: u64,
    link: (u8, u64),
    held: [u64; 2],
}

impl Upstream {
    /// Figures of this moment.
    pub fn status(&self) -> Status {
        let shared = &self.shared;
        let now = Instant::now();
        let link = shared.link.borrow().clone();
        let failed = shared.failed.load(Relaxed);
        let config = shared.config.load();
        let figures = &shared.figures;
        let queued = figures.queued.load(Relaxed);
        let latency = shared.latency.lock().figures(now);
        let oldest = match figures.oldest.load(Relaxed) {
            0 => Duration::ZERO,
            micros => now.saturating_duration_since(shared.instant(micros)),
        };
        let fault: Option<Arc<str>> =
            if failed { Some("its actor keeps failing".into()) } else { link.fault().cloned() };
        let held = link.held(now).filter(|_| link.state.is_up());
        let fault = fault.or_else(|| held.map(|(why, _)| why.into()));
        let outcomes = shared.ledger.read().outcomes;
        let refused = (0..Outcome::COUNT)
            .filter(|index| matches!(Outcome::labels(*index).0, "refused" | "displaced" | "expired"));
        Status {
            state: self.state(&link, failed, &config, now),
            fault,
            retry_in: if failed { Some(shared.revives_at()) } else { link.retry_at().or(held.map(|(_, until)| until)) }
                .map(|at| at.saturating_duration_since(now)),
            running: figures.running.load(Relaxed),
            lingering: figures.lingering.load(Relaxed),
            max_concurrent: figures.limit.load(Relaxed),
            queued,
            queue_size: config.limits.queue_size,
            oldest_wait: oldest,
            p50: latency.map(|(p50, _)| p50),
            p95: latency.map(|(_, p95)| p95),
            refused: refused.map(|index| outcomes[index]).sum(),
        }
    }

    fn state(&self, link: &Link, failed: bool, config: &UpstreamConfig, now: Instant) -> UpstreamState {
        if self.shared.is_closed() {
            return UpstreamState::Draining;
        }
        match self.shared.switch() {
            Switch::Draining => return UpstreamState::Draining,
            Switch::Drained => return UpstreamState::Drained,
            Switch::Paused => return UpstreamState::Paused,
            Switch::Open => {}
        }
        match &link.state {
            _ if failed => UpstreamState::Down,
            LinkState::Down { .. } | LinkState::Final { .. } => UpstreamState::Down,
            LinkState::Starting => UpstreamState::Starting,
            LinkState::Asleep => UpstreamState::Asleep,
            LinkState::Up { .. } if link.open_until.is_some() => UpstreamState::Down,
            LinkState::Up { .. } if link.resting(now).is_some() => UpstreamState::Degraded,
            LinkState::Up { .. } if self.shared.saturation.is_on(self.shared.micros(now)) => UpstreamState::Saturated,
            LinkState::Up { processes } if *processes < configured_processes(config) => UpstreamState::Degraded,
            LinkState::Up { .. } => UpstreamState::Up,
        }
    }

    /// Numbers that differ once anything that [`Upstream::status`] tells has changed by anything but the passing
    /// of time. Cheap: no lock of the actor's, no allocation.
    pub fn print(&self) -> Print {
        let shared = &self.shared;
        let figures = &shared.figures;
        let (link, held) = {
            let link = shared.link.borrow();
            let held = [link.open_until, link.busy_until].map(|at| at.map_or(0, |at| shared.micros(at)));
            let state = match &link.state {
                LinkState::Asleep => (0, 0),
                LinkState::Starting => (1, 0),
                LinkState::Up { processes } => (2, u64::from(*processes)),
                LinkState::Down { fault, retry_at } => (3, shared.micros(*retry_at) ^ fault.as_ptr() as u64),
                LinkState::Final { fault } => (4, fault.as_ptr() as u64),
            };
            (state, held)
        };
        let switch = u64::from(shared.switch() as u8)
            | u64::from(shared.failed.load(Relaxed)) << 8
            | u64::from(shared.is_closed()) << 9;
        Print {
            turns: figures.turns.load(Relaxed),
            oldest: figures.oldest.load(Relaxed),
            offered: shared.ledger.offered_so_far(),
            config: Arc::as_ptr(&shared.config.load()) as usize,
            restarts: figures.restarts.load(Relaxed),
            switch,
            link,
            held,
        }
    }
}
