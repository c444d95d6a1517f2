//! Whether a child still lives (rule R9): after a cancel it is probed; silence past the grace makes it
//! suspect, or ends it if nobody else waits for it. Also passes on, at a bounded rate, that its lists changed.

use super::book::WireId;
use super::message;
use super::pool::{Inner, Pool};
use crate::call::Call;
use crate::config::{AfterCancel, UpstreamConfig};
use crate::upstream::connection::{LinkEvent, Run};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// Changed lists are told at most this often: the actor's ring of link events stays short.
const LISTS_EVERY: Duration = Duration::from_millis(100);
/// What is said of a child that does not answer.
pub(super) const SILENT: &str = "no answer to a probe after a cancel";

/// A probe that is under way.
pub(super) struct Probe {
    /// None with `count_everything`: nothing is sent, silence alone counts.
    id: Option<WireId>,
    /// When silence becomes a fault; none never.
    due: Option<Instant>,
    heard: u64,
    /// Another call was stopped meanwhile, so another probe follows; when its silence becomes a fault.
    again: Option<Option<Instant>>,
}

impl Inner {
    /// Probes a child, right after a call on it was asked to stop.
    pub(super) fn probe(&self, pool: &mut Pool, index: usize, due: Option<Instant>) {
        let member = &mut pool.members[index];
        let Some(era) = member.era() else { return };
        if let Some(probe) = &mut member.probe {
            probe.again = Some(due);
            return;
        }
        let mut id = None;
        if !self.shared.config.load().limits.count_everything {
            id = member.book.open_probe();
            if let Some(id) = id
                && member.out.put_request(id, message::probe(id, era))
            {
                self.signals[index].out.notify_one();
            }
        }
        let heard = self.signals[index].heard.load(Relaxed);
        member.probe = Some(Probe { id, due, heard, again: None });
        self.signals[index].watch.notify_one();
    }

    /// The child answered a probe. A serial server has then ended the call that was stopped before it (rule
    /// R7); with `hold` only the answer itself counts, because a server that is merely limited to one call
    /// may answer a probe while it works.
    pub(super) fn probe_answered(&self, pool: &mut Pool, index: usize, id: WireId, ended: &mut Vec<Run>) {
        let serial = {
            let config = self.shared.config.load();
            config.limits.max_concurrent.ceiling() == 1
                && pool.members.len() == 1
                && config.limits.after_cancel == AfterCancel::Release
        };
        let member = &mut pool.members[index];
        let Some(probe) = member.probe.take_if(|probe| probe.id == Some(id)) else { return };
        if let Some(due) = probe.again {
            self.probe_again(pool, index, due);
        } else if serial {
            member.book.take_stopped(ended);
        }
    }

    /// The probe for calls that were stopped while the last one was under way; it has its own whole grace.
    fn probe_again(&self, pool: &mut Pool, index: usize, due: Option<Instant>) {
        let grace = Instant::now() + self.shared.config.load().limits.cancel_grace;
        self.probe(pool, index, due.map(|due| due.max(grace)));
    }

    /// Something came from a suspect child after all.
    pub(super) fn lift_suspicion(&self, index: usize) {
        let mut pool = self.pool.lock();
        if pool.members[index].is_suspect() {
            self.set_suspect(&mut pool, index, false);
        }
    }

    /// Watches a child that is up, until it has to be given up.
    pub(super) async fn watch(&self, index: usize) -> &'static str {
        let mut lists_told: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let (mut wake, lists) = {
                let mut pool = self.pool.lock();
                if self.is_silent(&mut pool, index, now) {
                    return SILENT;
                }
                let member = &mut pool.members[index];
                let wake = member.probe.as_ref().and_then(|probe| probe.due);
                let may_tell = lists_told.is_none_or(|at| now >= at + LISTS_EVERY);
                let tell = member.lists_changed && may_tell;
                if tell {
                    member.lists_changed = false;
                }
                let later = (member.lists_changed).then(|| lists_told.map(|at| at + LISTS_EVERY)).flatten();
                (wake.into_iter().chain(later).min(), tell)
            };
            if lists {
                lists_told = Some(now);
                self.shared.tell(LinkEvent::ListsChanged);
            }
            let watch = &self.signals[index].watch;
            match wake.take() {
                Some(at) => tokio::select! {
                    () = watch.notified() => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => watch.notified().await,
            }
        }
    }

    /// Whether the child has to be given up for silence; makes it suspect if others still wait for it.
    fn is_silent(&self, pool: &mut Pool, index: usize, now: Instant) -> bool {
        let member = &mut pool.members[index];
        let due = member.probe.take_if(|probe| probe.due.is_some_and(|due| due <= now));
        if let Some(probe) = due {
            if let Some(id) = probe.id {
                member.book.close(id);
                member.out.remove_request(id);
            }
            if self.signals[index].heard.load(Relaxed) == probe.heard {
                self.set_suspect(pool, index, true);
            } else if let Some(due) = probe.again {
                self.probe_again(pool, index, due);
            }
        }
        let member = &pool.members[index];
        member.is_suspect() && member.book.running() == 0
    }
}

/// When silence after a stop becomes a fault: after the grace; with `hold` not before the call's own time
/// limit, because that call is meant to be waited for.
pub(super) fn probe_due(config: &UpstreamConfig, call: &Call, now: Instant) -> Option<Instant> {
    match config.limits.after_cancel {
        AfterCancel::Release | AfterCancel::Recycle => Some(now + config.limits.cancel_grace),
        AfterCancel::Hold => held_until(config, call, now),
    }
}

/// Until when `hold` holds a slot: `call_timeout` from the call's start, and the grace at least.
fn held_until(config: &UpstreamConfig, call: &Call, now: Instant) -> Option<Instant> {
    let own = call.tool().and_then(|tool| config.tools.get(&**tool)?.call_timeout);
    let started = call.ticket.started().unwrap_or(now);
    let limit = own.or(config.limits.call_timeout)?;
    Some((started + limit).max(now + config.limits.cancel_grace))
}
