//! What the sampler saw last, and in which look each part of it changed.
//!
//! An upstream is described anew only if its cheap [`Print`] differs; that a wait or a rest merely grew older is no
//! change. Now and then everything is described, for what changes by the passing of time alone.

use crate::caller::{Caller, CallerCounts};
use crate::dispatcher::Dispatcher;
use crate::snapshot;
use crate::upstream::Print;
use forebay_wire as wire;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often everything is described anew: slot times leave their window, saturation comes by waiting.
const ANEW: Duration = Duration::from_secs(2);
/// A caller that holds nothing is shown for so long after its last call.
const LATELY: Duration = Duration::from_secs(600);
/// What is gone is remembered for longer than any reader goes without a look.
const REMEMBERED: Duration = Duration::from_secs(30);

/// See the module's documentation. Looks are numbered from 1.
#[derive(Default)]
pub(super) struct Model {
    looks: u64,
    anew: Option<Instant>,
    totals: wire::Totals,
    totals_changed: u64,
    upstreams: BTreeMap<Arc<str>, Seen<wire::Upstream, Print>>,
    callers: BTreeMap<Arc<str>, Seen<wire::Caller, CallerPrint>>,
    upstreams_gone: Vec<Gone>,
    callers_gone: Vec<Gone>,
}

struct Seen<T, P> {
    is: T,
    print: P,
    changed: u64,
}

struct Gone {
    name: Arc<str>,
    look: u64,
    at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct CallerPrint {
    counts: CallerCounts,
    config: usize,
    client: usize,
}

impl Model {
    /// Takes a look. With `anew`, everything is described, ages included.
    pub(super) fn look(&mut self, dispatcher: &Dispatcher, now: Instant, anew: bool) {
        self.looks += 1;
        let anew = anew || self.anew.is_none_or(|at| now >= at);
        if anew {
            self.anew = Some(now + ANEW);
        }
        self.look_at_upstreams(dispatcher, now, anew);
        self.look_at_callers(dispatcher, now, anew);
        let lingering = self.upstreams.values().map(|seen| u64::from(seen.is.lingering)).sum();
        let totals = snapshot::all_totals(dispatcher, lingering);
        if totals != self.totals {
            self.totals = totals;
            self.totals_changed = self.looks;
        }
        self.upstreams_gone.retain(|gone| now.saturating_duration_since(gone.at) < REMEMBERED);
        self.callers_gone.retain(|gone| now.saturating_duration_since(gone.at) < REMEMBERED);
    }

    fn look_at_upstreams(&mut self, dispatcher: &Dispatcher, now: Instant, anew: bool) {
        let table = dispatcher.upstreams();
        for (name, upstream) in table.iter() {
            let print = upstream.print();
            match self.upstreams.get_mut(name) {
                Some(seen) if seen.print == print && !anew => {}
                Some(seen) => {
                    let is = snapshot::upstream(upstream);
                    if seen.print.oldest != print.oldest || !same_but_for_ages(&seen.is, &is) {
                        seen.changed = self.looks;
                    }
                    (seen.is, seen.print) = (is, print);
                }
                None => {
                    self.upstreams_gone.retain(|gone| gone.name != *name);
                    let is = snapshot::upstream(upstream);
                    self.upstreams.insert(name.clone(), Seen { is, print, changed: self.looks });
                }
            }
        }
        if self.upstreams.len() > table.len() {
            let look = self.looks;
            let gone = self.upstreams.extract_if(.., |name, _| !table.contains_key(name));
            self.upstreams_gone.extend(gone.map(|(name, _)| Gone { name, look, at: now }));
        }
    }

    fn look_at_callers(&mut self, dispatcher: &Dispatcher, now: Instant, anew: bool) {
        let shown = shown_callers(dispatcher, now);
        for caller in &shown {
            let client = caller.client();
            let print = CallerPrint {
                counts: caller.figures.read(),
                config: Arc::as_ptr(&caller.config.load()) as usize,
                client: client.map_or(0, |client| client.as_ptr() as usize),
            };
            match self.callers.get_mut(&caller.name) {
                Some(seen) if seen.print == print && !anew => {}
                Some(seen) => {
                    if seen.print != print {
                        seen.changed = self.looks;
                    }
                    (seen.is, seen.print) = (snapshot::caller(caller, now), print);
                }
                None => {
                    self.callers_gone.retain(|gone| gone.name != caller.name);
                    let is = snapshot::caller(caller, now);
                    self.callers.insert(caller.name.clone(), Seen { is, print, changed: self.looks });
                }
            }
        }
        if self.callers.len() > shown.len() {
            let kept: HashSet<_> = shown.iter().map(|caller| &caller.name).collect();
            let look = self.looks;
            let gone = self.callers.extract_if(.., |name, _| !kept.contains(name));
            self.callers_gone.extend(gone.map(|(name, _)| Gone { name, look, at: now }));
        }
    }

    /// How many looks were taken.
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    pub(super) fn totals(&self) -> &wire::Totals {
        &self.totals
    }

    /// The look in which the totals changed last.
    pub(super) fn totals_changed(&self) -> u64 {
        self.totals_changed
    }

    /// Upstreams that changed after a look.
    pub(super) fn upstreams_since(&self, look: u64) -> Vec<wire::Upstream> {
        self.upstreams.values().filter(|seen| seen.changed > look).map(|seen| seen.is.clone()).collect()
    }

    /// Callers that changed after a look; since the beginning, those that hold most come first.
    pub(super) fn callers_since(&self, look: u64) -> Vec<wire::Caller> {
        let changed = self.callers.values().filter(|seen| seen.changed > look);
        let mut callers: Vec<_> = changed.map(|seen| seen.is.clone()).collect();
        callers.sort_by_key(|caller| std::cmp::Reverse(u64::from(caller.queued) + u64::from(caller.running)));
        callers
    }

    pub(super) fn upstreams_gone_since(&self, look: u64) -> Vec<String> {
        gone_since(&self.upstreams_gone, look)
    }

    pub(super) fn callers_gone_since(&self, look: u64) -> Vec<String> {
        gone_since(&self.callers_gone, look)
    }
}

fn gone_since(gone: &[Gone], look: u64) -> Vec<String> {
    gone.iter().filter(|gone| gone.look > look).map(|gone| gone.name.to_string()).collect()
}

/// The callers that the stream carries: those that hold most, then those that called last.
fn shown_callers(dispatcher: &Dispatcher, now: Instant) -> Vec<Arc<Caller>> {
    let mut callers = Vec::new();
    dispatcher.callers.each(|caller| {
        let counts = caller.figures.read();
        let held = u64::from(counts.queued) + u64::from(counts.running);
        let rest = caller.last_seen().map(|seen| now.saturating_duration_since(seen));
        if held > 0 || rest.is_some_and(|rest| rest < LATELY) {
            callers.push((std::cmp::Reverse(held), rest.unwrap_or(Duration::MAX), caller.clone()));
        }
    });
    if callers.len() > wire::MOST_CALLERS {
        callers.select_nth_unstable_by_key(wire::MOST_CALLERS, |(held, rest, _)| (*held, *rest));
        callers.truncate(wire::MOST_CALLERS);
    }
    callers.into_iter().map(|(_, _, caller)| caller).collect()
}

/// Every field is named, so that one which is added is thought of here.
fn same_but_for_ages(one: &wire::Upstream, other: &wire::Upstream) -> bool {
    let wire::Upstream {
        name,
        kind,
        state,
        running,
        lingering,
        max_concurrent,
        queued,
        queue_size,
        oldest_wait_ms,
        p50_ms,
        p95_ms,
        refused,
        finished,
        restarts,
        offered,
        failed,
        queue_timeout_ms,
        call_timeout_ms,
        fault,
        retry_in_ms,
        pids,
    } = one;
    *name == other.name
        && *kind == other.kind
        && *state == other.state
        && *running == other.running
        && *lingering == other.lingering
        && *max_concurrent == other.max_concurrent
        && *queued == other.queued
        && *queue_size == other.queue_size
        && (*oldest_wait_ms == 0) == (other.oldest_wait_ms == 0)
        && *oldest_wait_ms <= other.oldest_wait_ms
        && *p50_ms == other.p50_ms
        && *p95_ms == other.p95_ms
        && *refused == other.refused
        && *finished == other.finished
        && *restarts == other.restarts
        && *offered == other.offered
        && *failed == other.failed
        && *queue_timeout_ms == other.queue_timeout_ms
        && *call_timeout_ms == other.call_timeout_ms
        && *fault == other.fault
        && retry_in_ms.is_some() == other.retry_in_ms.is_some()
        && retry_in_ms >= &other.retry_in_ms
        && *pids == other.pids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r30_growing_older_is_no_change_but_a_younger_wait_and_a_new_rest_are() {
        let is = |oldest_wait_ms, retry_in_ms| wire::Upstream { oldest_wait_ms, retry_in_ms, ..Default::default() };
        let same = |one: (u64, Option<u64>), other: (u64, Option<u64>)| {
            same_but_for_ages(&is(one.0, one.1), &is(other.0, other.1))
        };
        assert!(same((5, Some(900)), (300, Some(100))));
        assert!(!same((0, None), (1, None)));
        assert!(!same((9, None), (0, None)));
        assert!(!same((900, None), (300, None)));
        assert!(!same((5, Some(100)), (5, Some(900))));
        assert!(!same((5, Some(100)), (5, None)));
        let other = wire::Upstream { queued: 1, ..Default::default() };
        assert!(!same_but_for_ages(&is(0, None), &other));
    }
}
