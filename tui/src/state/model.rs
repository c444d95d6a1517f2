//! What is known of the daemon: snapshots and changes of the stream folded together, and what was asked for beside.

use super::{Calls, History, Moment, Sample};
use forebay_wire as wire;
use std::collections::{BTreeMap, VecDeque};

/// Events that are kept; the oldest leaves for the newest.
pub(super) const MOST_EVENTS: usize = 2_000;
/// Time between two samples of the past.
const SAMPLE_MS: u64 = 1_000;
/// Samples that are made up for a pause, such as a suspended screen; older ones would be off the edge anyway.
const MOST_CAUGHT_UP: u64 = 300;

/// A thing that the stream keeps up to date, when it was last told, and what it was before.
#[derive(Clone, Debug, Default)]
pub struct Followed<T> {
    pub now: T,
    pub at: Moment,
    pub past: History,
}

/// Who speaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Daemon {
    pub api: u32,
    pub version: String,
    pub instance: String,
    pub role: wire::Role,
    pub subject: String,
    pub mcp: String,
}

/// An answer that is about one thing, and when it came.
#[derive(Clone, Debug)]
pub struct Told<T> {
    /// What was asked about: a name or an id.
    pub about: String,
    pub what: T,
    pub at: Moment,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub daemon: Option<Daemon>,
    pub draining: bool,
    pub totals: wire::Totals,
    pub upstreams: BTreeMap<String, Followed<wire::Upstream>>,
    pub callers: BTreeMap<String, Followed<wire::Caller>>,
    pub events: VecDeque<wire::Event>,
    /// Events that happened and were not told.
    pub events_missed: u64,
    pub past: History,
    pub calls: Calls,
    pub call: Option<Told<wire::CallDetail>>,
    pub call_why: Option<Told<wire::Why>>,
    pub upstream: Option<Told<wire::UpstreamDetail>>,
    pub upstream_why: Option<Told<wire::Why>>,
    pub stderr: Option<Told<Vec<String>>>,
    /// The daemon's age and clock, and when they were told.
    uptime_ms: u64,
    now_unix_ms: u64,
    told_at: Moment,
    clock_at: Moment,
    sampled_at: Option<Moment>,
    /// The number of the stream's message before.
    sequence: u64,
}

/// What folding a message found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    Fine,
    /// The first snapshot, or one of the same run.
    Greeted,
    /// A snapshot of another run: what was known is void.
    Restarted,
    /// A message is missing, so that the stream must begin again.
    Gap,
}

impl Model {
    /// Takes in a message of the stream.
    pub fn fold(&mut self, update: wire::Update, now: Moment) -> Folded {
        match update {
            wire::Update::Snapshot(snapshot) => self.begin(*snapshot, now),
            wire::Update::Changes(changes) => self.change(*changes, now),
            wire::Update::Unknown => Folded::Fine,
        }
    }

    fn begin(&mut self, snapshot: wire::Snapshot, now: Moment) -> Folded {
        let restarted = self.daemon.as_ref().is_some_and(|daemon| daemon.instance != snapshot.instance);
        let mut old = if restarted { Model::default() } else { std::mem::take(self) };
        if restarted {
            old.calls.list(self.calls.query().cloned());
        }
        let mut model = Model {
            daemon: Some(Daemon {
                api: snapshot.api,
                version: snapshot.version,
                instance: snapshot.instance,
                role: snapshot.role,
                subject: snapshot.subject,
                mcp: snapshot.mcp,
            }),
            draining: snapshot.draining,
            totals: snapshot.totals,
            events: snapshot.events.into(),
            events_missed: old.events_missed,
            past: old.past,
            calls: old.calls,
            call: old.call,
            call_why: old.call_why,
            upstream: old.upstream,
            upstream_why: old.upstream_why,
            stderr: old.stderr,
            uptime_ms: snapshot.uptime_ms,
            now_unix_ms: snapshot.now_unix_ms,
            told_at: now,
            clock_at: now,
            sampled_at: old.sampled_at.or(Some(now)),
            sequence: 0,
            ..Model::default()
        };
        let first = model.past.is_empty();
        for upstream in snapshot.upstreams {
            let past = old.upstreams.remove(&upstream.name).map(|upstream| upstream.past).unwrap_or_default();
            model.upstreams.insert(upstream.name.clone(), Followed { now: upstream, at: now, past });
        }
        for caller in snapshot.callers {
            let past = old.callers.remove(&caller.name).map(|caller| caller.past).unwrap_or_default();
            model.callers.insert(caller.name.clone(), Followed { now: caller, at: now, past });
        }
        *self = model;
        if first {
            self.sample_once();
        }
        if restarted { Folded::Restarted } else { Folded::Greeted }
    }

    fn change(&mut self, changes: wire::Changes, now: Moment) -> Folded {
        if self.daemon.is_none() || changes.sequence != self.sequence + 1 {
            return Folded::Gap;
        }
        self.sequence = changes.sequence;
        self.draining = changes.draining;
        self.totals = changes.totals;
        self.uptime_ms = changes.uptime_ms;
        self.told_at = now;
        for upstream in changes.upstreams {
            let row = self.upstreams.entry(upstream.name.clone()).or_default();
            (row.now, row.at) = (upstream, now);
        }
        for name in &changes.upstreams_gone {
            self.upstreams.remove(name);
        }
        for caller in changes.callers {
            let row = self.callers.entry(caller.name.clone()).or_default();
            (row.now, row.at) = (caller, now);
        }
        for name in &changes.callers_gone {
            self.callers.remove(name);
        }
        self.events_missed += changes.events_dropped;
        self.events.extend(changes.events);
        let surplus = self.events.len().saturating_sub(MOST_EVENTS);
        self.events.drain(..surplus);
        Folded::Fine
    }

    /// Takes the samples that are due. True if there was one.
    pub fn sample(&mut self, now: Moment) -> bool {
        let Some(mut at) = self.sampled_at else { return false };
        let mut due = now.since(at) / SAMPLE_MS;
        if due > MOST_CAUGHT_UP {
            at = at.plus((due - MOST_CAUGHT_UP) * SAMPLE_MS);
            due = MOST_CAUGHT_UP;
        }
        for _ in 0..due {
            self.sample_once();
        }
        self.sampled_at = Some(at.plus(due * SAMPLE_MS));
        due > 0
    }

    fn sample_once(&mut self) {
        let mut sum = Sample::default();
        for row in self.upstreams.values_mut() {
            let sample = of_upstream(&row.now);
            sum.shed = sum.shed.wrapping_add(sample.shed);
            sum.failed = sum.failed.wrapping_add(sample.failed);
            row.past.push(sample);
        }
        for row in self.callers.values_mut() {
            row.past.push(of_caller(&row.now));
        }
        sum.queued = low(self.totals.queued);
        sum.offered = low(self.totals.offered);
        sum.finished = low(self.totals.finished);
        sum.shed = low(shed(&self.totals));
        self.past.push(sum);
    }

    /// How long the daemon has run.
    pub fn uptime_ms(&self, now: Moment) -> u64 {
        self.uptime_ms + now.since(self.told_at)
    }

    /// The daemon's clock.
    pub fn unix_ms(&self, now: Moment) -> Option<u64> {
        self.daemon.as_ref().map(|_| self.now_unix_ms + now.since(self.clock_at))
    }

    /// How long the oldest waiting call of an upstream has waited.
    pub fn oldest_ms(row: &Followed<wire::Upstream>, now: Moment) -> Option<u64> {
        (row.now.queued > 0).then(|| row.now.oldest_wait_ms + now.since(row.at))
    }

    /// How near an upstream is to its limits, in thousandths: the larger of how full its queue is, and how much of
    /// `queue_timeout` its oldest call has waited.
    pub fn pressure(row: &Followed<wire::Upstream>, now: Moment) -> u64 {
        let up = &row.now;
        let full = match up.queue_size {
            0 => 0,
            size => u64::from(up.queued) * 1000 / u64::from(size),
        };
        let waited = match (Model::oldest_ms(row, now), up.queue_timeout_ms) {
            (Some(oldest), Some(limit)) if limit > 0 => oldest.saturating_mul(1000) / limit,
            _ => 0,
        };
        full.max(waited)
    }

    /// Slots in use and slots there are; `None` where one is unlimited.
    pub fn slots(&self) -> (u64, Option<u64>) {
        let taken = self.upstreams.values().map(|row| taken(&row.now)).sum();
        let caps = self.upstreams.values().map(|row| cap(&row.now));
        (taken, caps.sum())
    }

    /// Places that all queues have.
    pub fn places(&self) -> u64 {
        self.upstreams.values().map(|row| u64::from(row.now.queue_size)).sum()
    }
}

/// Slots in use, those of lingering calls included.
pub fn taken(upstream: &wire::Upstream) -> u64 {
    u64::from(upstream.running) + u64::from(upstream.lingering)
}

/// The slots that there are. "Unlimited" is 0 on the wire; in force it is the hard ceiling.
pub fn cap(upstream: &wire::Upstream) -> Option<u64> {
    match upstream.max_concurrent {
        0 | 4096.. => None,
        cap => Some(u64::from(cap)),
    }
}

fn shed(totals: &wire::Totals) -> u64 {
    let of = |count: &&wire::OutcomeCount| matches!(&*count.outcome, "refused" | "displaced" | "expired");
    totals.outcomes.iter().filter(of).map(|count| count.calls).sum()
}

#[expect(clippy::cast_possible_truncation, reason = "only differences of samples are read, and they wrap")]
fn low(counter: u64) -> u32 {
    counter as u32
}

fn of_upstream(up: &wire::Upstream) -> Sample {
    Sample {
        queued: up.queued,
        offered: low(up.offered),
        shed: low(up.refused),
        failed: low(up.failed),
        finished: low(up.finished),
    }
}

fn of_caller(caller: &wire::Caller) -> Sample {
    let failed = caller.finished.saturating_sub(caller.completed + caller.shed + caller.cancelled);
    Sample {
        queued: caller.queued,
        // Its arrivals are not told; what ended and what is here add up to them.
        offered: low(caller.finished + u64::from(caller.queued) + u64::from(caller.running)),
        shed: low(caller.shed),
        failed: low(failed),
        finished: low(caller.finished),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Changes, Snapshot, Update, Upstream};

    fn upstream(name: &str, queued: u32) -> Upstream {
        Upstream { name: name.into(), queued, queue_size: 16, ..Upstream::default() }
    }

    fn snapshot(instance: &str, names: &[&str]) -> Update {
        let upstreams = names.iter().map(|name| upstream(name, 1)).collect();
        Update::Snapshot(Box::new(Snapshot { api: 1, instance: instance.into(), upstreams, ..Snapshot::default() }))
    }

    fn changes(sequence: u64, upstreams: Vec<Upstream>, gone: &[&str]) -> Update {
        let upstreams_gone = gone.iter().map(|name| (*name).into()).collect();
        Update::Changes(Box::new(Changes { sequence, upstreams, upstreams_gone, ..Changes::default() }))
    }

    #[test]
    fn changes_replace_add_and_remove() {
        let mut model = Model::default();
        assert_eq!(model.fold(snapshot("k1", &["a", "b"]), Moment(0)), Folded::Greeted);
        assert_eq!(model.fold(changes(1, vec![upstream("a", 7), upstream("c", 2)], &["b"]), Moment(5)), Folded::Fine);
        let queued: Vec<_> = model.upstreams.iter().map(|(name, row)| (name.as_str(), row.now.queued)).collect();
        assert_eq!(queued, [("a", 7), ("c", 2)]);
    }

    #[test]
    fn r30_a_hole_in_the_numbers_asks_for_a_new_beginning() {
        let mut model = Model::default();
        assert_eq!(model.fold(changes(1, Vec::new(), &[]), Moment(0)), Folded::Gap, "before any snapshot");
        model.fold(snapshot("k1", &["a"]), Moment(0));
        assert_eq!(model.fold(changes(1, Vec::new(), &[]), Moment(1)), Folded::Fine);
        assert_eq!(model.fold(changes(3, Vec::new(), &[]), Moment(2)), Folded::Gap);
        assert_eq!(model.fold(snapshot("k1", &["a"]), Moment(3)), Folded::Greeted);
        assert_eq!(model.fold(changes(1, Vec::new(), &[]), Moment(4)), Folded::Fine);
    }

    #[test]
    fn another_instance_voids_what_was_known_and_the_same_keeps_its_past() {
        let mut model = Model::default();
        model.fold(snapshot("k1", &["a"]), Moment(0));
        model.sample(Moment(5_000));
        model.fold(snapshot("k1", &["a"]), Moment(5_100));
        assert_eq!(model.upstreams["a"].past.len(), 6);
        assert_eq!(model.fold(snapshot("k2", &["a"]), Moment(6_000)), Folded::Restarted);
        assert_eq!(model.upstreams["a"].past.len(), 1);
    }

    #[test]
    fn a_message_of_a_newer_daemon_is_passed_over() {
        let mut model = Model::default();
        model.fold(snapshot("k1", &["a"]), Moment(0));
        assert_eq!(model.fold(Update::Unknown, Moment(1)), Folded::Fine);
        assert_eq!(model.fold(changes(1, Vec::new(), &[]), Moment(1)), Folded::Fine);
    }

    #[test]
    fn events_are_bounded() {
        let mut model = Model::default();
        model.fold(snapshot("k1", &[]), Moment(0));
        for sequence in 1..=3 {
            let events = vec![wire::Event { number: sequence, ..wire::Event::default() }; 1_500];
            let update = Changes { sequence, events, events_dropped: 2, ..Changes::default() };
            model.fold(Update::Changes(Box::new(update)), Moment(sequence));
        }
        assert_eq!(model.events.len(), MOST_EVENTS);
        assert_eq!(model.events.back().unwrap().number, 3);
        assert_eq!(model.events_missed, 6);
    }

    #[test]
    fn waiting_calls_grow_older_between_two_messages() {
        let up = Upstream {
            queued: 1,
            oldest_wait_ms: 400,
            queue_size: 10,
            queue_timeout_ms: Some(1_000),
            ..Upstream::default()
        };
        let row = Followed { now: up, at: Moment(100), past: History::default() };
        assert_eq!(Model::oldest_ms(&row, Moment(600)), Some(900));
        assert_eq!(Model::pressure(&row, Moment(600)), 900);
        assert_eq!(Model::pressure(&row, Moment(100)), 400);
    }

    #[test]
    fn after_a_long_pause_the_past_is_caught_up_with_bounded_work() {
        let mut model = Model::default();
        model.fold(snapshot("k1", &["a"]), Moment(0));
        assert!(model.sample(Moment(86_400_000 * 365)));
        assert_eq!(model.past.len(), super::super::history::KEPT);
        assert!(!model.sample(Moment(86_400_000 * 365 + 999)));
    }
}
