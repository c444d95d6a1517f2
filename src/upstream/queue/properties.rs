//! The invariants under everything at once: gates that park, tool caps, lingering, hand-backs, changes of
//! all settings, listings. The model here does not foretell the order; it keeps what every call is doing and
//! judges each step (I1 to I5, I7 to I13; I6 and I10 are in `order`, I14 below).

use super::model::plain_config;
use super::*;
use crate::caller::{CallerId, Lane};
use crate::config::{Fairness, OnFull};
use crate::upstream::{Edited, RowState};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const TICK: u64 = super::wheel::TICK;

#[derive(Clone, Debug)]
enum Op {
    Offer {
        lane: usize,
        caller: u32,
        tool: Option<u32>,
        weight: u32,
        ttl: Option<u64>,
        deadline: Option<u64>,
    },
    Next,
    NextAll,
    Complete(usize),
    Linger(usize, Option<u64>),
    RunUntil(usize, u64),
    HandBack(usize),
    /// Finishes a queued call behind the core's back, as a cancel does until the actor is told.
    Finish(usize),
    Withdraw(usize),
    SetLane(usize, usize),
    SetExpiry(usize, u64),
    Pass(u64),
    Due(usize),
    Permits(u32, u32),
    Pause(bool),
    Limits {
        max_concurrent: u32,
        queue_size: u32,
        cap: u32,
        one_turn: bool,
        reject: bool,
    },
    Rekey(u32),
    Page(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let weight = || prop_oneof![4 => Just(1u32), 1 => 2u32..6];
    let tool = || prop_oneof![2 => Just(None), 2 => (0u32..2).prop_map(Some)];
    let time =
        || prop_oneof![2 => Just(None), 1 => (0u64..90_000).prop_map(Some), 1 => (0u64..40_000_000).prop_map(Some)];
    prop_oneof![
        16 => (0usize..3, 0u32..4, tool(), weight(), time(), time())
            .prop_map(|(lane, caller, tool, weight, ttl, deadline)| Op::Offer { lane, caller, tool, weight, ttl, deadline }),
        6 => Just(Op::Next),
        4 => Just(Op::NextAll),
        6 => any::<usize>().prop_map(Op::Complete),
        2 => (any::<usize>(), time()).prop_map(|(at, grace)| Op::Linger(at, grace)),
        1 => (any::<usize>(), 0u64..60_000).prop_map(|(at, until)| Op::RunUntil(at, until)),
        1 => any::<usize>().prop_map(Op::HandBack),
        1 => any::<usize>().prop_map(Op::Finish),
        2 => any::<usize>().prop_map(Op::Withdraw),
        1 => (any::<usize>(), 0usize..3).prop_map(|(at, lane)| Op::SetLane(at, lane)),
        1 => (any::<usize>(), 0u64..90_000).prop_map(|(at, time)| Op::SetExpiry(at, time)),
        2 => prop_oneof![3 => 0u64..40_000, 1 => 0u64..40_000_000].prop_map(Op::Pass),
        2 => (1usize..8).prop_map(Op::Due),
        2 => (0u32..4, 0u32..4).prop_map(|(caller, permits)| Op::Permits(caller, permits)),
        1 => prop::bool::weighted(0.3).prop_map(Op::Pause),
        1 => (1u32..6, 0u32..16, 0u32..3, prop::bool::weighted(0.2), any::<bool>()).prop_map(
            |(max_concurrent, queue_size, cap, one_turn, reject)|
                Op::Limits { max_concurrent, queue_size, cap, one_turn, reject }),
        1 => (0u32..3).prop_map(Op::Rekey),
        1 => (1usize..9).prop_map(Op::Page),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Queued,
    Running,
    Lingering,
    Finished(&'static str),
}

#[derive(Clone, Debug)]
struct Told {
    id: Option<EntryId>,
    flow: FlowKey,
    /// Order in its FIFO.
    order: u64,
    weight: u32,
    took: u32,
    expires: u64,
    deadline: u64,
    /// The time that the wheel tells next; one that had passed when it was set counts from then.
    due: u64,
    doing: Doing,
    ticket_finished: bool,
}

/// What the world outside the core looks like: permits of callers, finished tickets.
struct World {
    calls: BTreeMap<u32, Told>,
    permits: BTreeMap<u32, u32>,
    parked: BTreeSet<FlowKey>,
    /// Who waits for a permit: parked, and not withdrawn since.
    waiting: BTreeSet<FlowKey>,
    asked: Vec<u32>,
}

impl World {
    fn in_flight_of(&self, caller: u32) -> u32 {
        let of = |told: &&Told| told.flow.caller.0 == caller && matches!(told.doing, Doing::Running | Doing::Lingering);
        self.calls.values().filter(of).count() as u32
    }

    fn has_permit(&self, caller: u32) -> bool {
        self.in_flight_of(caller) < self.permits.get(&caller).copied().unwrap_or(u32::MAX)
    }

    fn all(&self, doing: Doing) -> Vec<(u32, Told)> {
        self.calls.iter().filter(|(_, told)| told.doing == doing).map(|(job, told)| (*job, told.clone())).collect()
    }

    fn end(&mut self, job: u32, how: &'static str) -> Result<(), TestCaseError> {
        let told = self.calls.get_mut(&job).unwrap();
        prop_assert!(!matches!(told.doing, Doing::Finished(_)), "I3: {job} ends twice");
        told.doing = Doing::Finished(how);
        let flow = told.flow;
        self.forget_empty(flow);
        Ok(())
    }

    /// A FIFO that is empty is no more, and with it that it was parked.
    fn forget_empty(&mut self, flow: FlowKey) {
        if !self.calls.values().any(|told| told.doing == Doing::Queued && told.flow == flow) {
            self.parked.remove(&flow);
        }
    }
}

impl Gate<u32> for World {
    fn take(&mut self, job: &u32, flow: FlowKey) -> Pass {
        self.asked.push(*job);
        if self.calls[job].ticket_finished {
            Pass::Gone
        } else if self.has_permit(flow.caller.0) {
            Pass::Go
        } else {
            self.parked.insert(flow);
            self.waiting.insert(flow);
            Pass::Park
        }
    }
}

struct Run {
    core: Core<u32>,
    world: World,
    settings: Settings,
    now: Moment,
    paused: bool,
    order: u64,
}

impl Run {
    fn slots(&self) -> u32 {
        self.world.calls.values().map(|told| told.took).sum()
    }

    fn tool_in_flight(&self, tool: ToolKey) -> u32 {
        let of = |told: &&Told| told.flow.tool == Some(tool) && matches!(told.doing, Doing::Running | Doing::Lingering);
        self.world.calls.values().filter(of).count() as u32
    }

    fn tool_full(&self, tool: Option<ToolKey>) -> bool {
        tool.is_some_and(|tool| {
            let cap = self.settings.tool_caps.get(tool.0 as usize).copied().flatten().filter(|&cap| cap > 0);
            cap.is_some_and(|cap| self.tool_in_flight(tool) >= cap)
        })
    }

    /// Checks that `job` may run now, and counts it as running.
    fn ran(&mut self, id: EntryId, job: u32) -> Result<(), TestCaseError> {
        let told = self.world.calls[&job].clone();
        let took = told.weight.min(self.settings.max_concurrent);
        prop_assert!(!self.paused, "runs while paused");
        prop_assert!(self.slots() + took <= self.settings.max_concurrent, "I1: too many in flight");
        prop_assert!(told.expires > self.now.0, "I7: runs after its deadline");
        prop_assert!(!self.tool_full(told.flow.tool), "its tool is at its cap");
        prop_assert!(!told.ticket_finished, "I13: a finished call runs");
        prop_assert_eq!(self.world.asked.last(), Some(&job), "runs without its permits");
        prop_assert!(!matches!(told.doing, Doing::Finished(_)), "I13: {:?} runs", told.doing);
        for other in self.world.calls.values() {
            let older = other.doing == Doing::Queued && other.flow == told.flow && other.order < told.order;
            prop_assert!(!older, "I5: not the oldest of its FIFO");
        }
        let told = self.world.calls.get_mut(&job).unwrap();
        (told.id, told.took, told.doing, told.due) = (Some(id), took, Doing::Running, u64::MAX);
        let flow = told.flow;
        self.world.forget_empty(flow);
        Ok(())
    }

    fn next(&mut self) -> Result<bool, TestCaseError> {
        self.world.asked.clear();
        match self.core.next(self.now, &mut self.world) {
            Some(Next::Run(id, job)) => self.ran(id, job)?,
            Some(Next::Expired(_, job)) => {
                prop_assert!(self.world.calls[&job].expires <= self.now.0, "expired before its time");
                prop_assert_eq!(self.world.calls[&job].doing, Doing::Queued);
                self.world.end(job, "expired")?;
            }
            Some(Next::Shed(..)) => unreachable!("waits are left alone"),
            Some(Next::Gone(_, job)) => {
                prop_assert!(self.world.calls[&job].ticket_finished);
                self.world.end(job, "gone")?;
            }
            None => {
                self.nothing_fits()?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// I9: nothing rests that could run, unless a pick that does not fit holds the slots.
    fn nothing_fits(&self) -> Result<(), TestCaseError> {
        if self.paused || self.slots() >= self.settings.max_concurrent {
            return Ok(());
        }
        let free = self.settings.max_concurrent - self.slots();
        let queued = self.world.all(Doing::Queued);
        let servable: Vec<_> = queued
            .iter()
            .filter(|(_, told)| !self.world.parked.contains(&told.flow) && !self.tool_full(told.flow.tool))
            .collect();
        let holds = servable.iter().any(|(_, told)| told.weight.min(self.settings.max_concurrent) > free);
        prop_assert!(servable.is_empty() || holds, "I9: {free} free, {servable:?} at rest");
        Ok(())
    }

    /// Works off all that is due, in slices.
    fn due(&mut self, slice: usize) -> Result<(), TestCaseError> {
        let mut out = Vec::new();
        for _ in 0..10_000 {
            out.clear();
            let more = self.core.due(self.now, &mut out, slice);
            prop_assert!(out.len() <= slice, "R20: more than a slice");
            for due in out.drain(..) {
                let (job, doing) = match due {
                    Due::QueueExpired(_, job) => (job, Doing::Queued),
                    Due::RunTimedOut(_, job) => (job, Doing::Running),
                    Due::GraceOver(_, job) => (job, Doing::Lingering),
                };
                prop_assert_eq!(self.world.calls[&job].doing, doing);
                prop_assert!(self.world.calls[&job].due <= self.now.0, "told before its time");
                if doing == Doing::Queued {
                    self.world.end(job, "expired")?;
                } else {
                    self.world.calls.get_mut(&job).unwrap().due = u64::MAX;
                }
            }
            if !more {
                break;
            }
        }
        let edge = self.now.0 / TICK * TICK;
        for told in self.world.calls.values().filter(|told| !matches!(told.doing, Doing::Finished(_))) {
            prop_assert!(told.due >= edge, "I7: overdue by more than a tick: {told:?}");
        }
        Ok(())
    }

    fn step(&mut self, job: u32, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Offer { lane, caller, tool, weight, ttl, deadline } => {
                let expires = ttl.map(|ttl| Moment(self.now.0 + ttl));
                let deadline = deadline.map(|deadline| Moment(self.now.0 + deadline));
                let offer = Offer {
                    job,
                    lane: Lane::ALL[lane],
                    caller: CallerId(caller),
                    caller_weight: 1 + caller % 2,
                    caller_limit: None,
                    tool: tool.map(ToolKey),
                    weight,
                    bytes: u64::from(job % 7),
                    expires,
                    deadline,
                    max_queued: None,
                    others_seen: false,
                };
                self.order += 1;
                let flow = FlowKey { lane: offer.lane, caller: offer.caller, tool: offer.tool };
                let latest = deadline.map_or(u64::MAX, |at| at.0);
                let expires = expires.map_or(u64::MAX, |at| at.0).min(latest);
                let told = Told {
                    id: None,
                    flow,
                    order: self.order,
                    weight,
                    took: 0,
                    expires,
                    deadline: latest,
                    due: expires,
                    doing: Doing::Finished("undecided"),
                    ticket_finished: job.is_multiple_of(11),
                };
                let queued = self.world.all(Doing::Queued);
                self.world.calls.insert(job, told);
                self.world.asked.clear();
                match self.core.offer(offer, self.now, &mut self.world) {
                    Admitted::Run(id, ran) => {
                        prop_assert_eq!(ran, job);
                        let waits =
                            |told: &Told| !self.world.parked.contains(&told.flow) && !self.tool_full(told.flow.tool);
                        prop_assert!(!queued.iter().any(|(_, told)| waits(told)), "overtakes by the fast path");
                        self.world.calls.get_mut(&job).unwrap().doing = Doing::Queued;
                        self.ran(id, job)?;
                    }
                    Admitted::Queued { id, displaced } => {
                        if let Some((_, victim)) = displaced {
                            prop_assert_eq!(self.settings.on_full, OnFull::Displace);
                            prop_assert!(
                                self.world.calls[&victim].flow.lane >= flow.lane,
                                "I10: displaces a higher lane"
                            );
                            self.world.end(victim, "displaced")?;
                        }
                        let told = self.world.calls.get_mut(&job).unwrap();
                        (told.id, told.doing) = (Some(id), Doing::Queued);
                        let queued = self.world.all(Doing::Queued).len() as u32;
                        prop_assert!(queued <= self.settings.queue_size, "I2: beyond queue_size");
                    }
                    Admitted::Refused { job: back, .. } => {
                        prop_assert_eq!(back, job);
                        self.world.calls.get_mut(&job).unwrap().doing = Doing::Finished("refused");
                        self.world.forget_empty(flow);
                    }
                    Admitted::Gone(back) => {
                        prop_assert!(self.world.calls[&back].ticket_finished);
                        self.world.calls.get_mut(&job).unwrap().doing = Doing::Finished("gone");
                    }
                }
            }
            Op::Next => {
                self.next()?;
            }
            Op::NextAll => while self.next()? {},
            Op::Complete(at) => {
                let mut held = self.world.all(Doing::Running);
                held.extend(self.world.all(Doing::Lingering));
                if let Some((job, told)) = held.get(at % held.len().max(1)) {
                    prop_assert_eq!(self.core.complete(told.id.unwrap(), Duration::from_millis(3)), Some(*job));
                    prop_assert_eq!(self.core.complete(told.id.unwrap(), Duration::ZERO), None, "I11");
                    self.world.calls.get_mut(job).unwrap().took = 0;
                    self.world.end(*job, "completed")?;
                }
            }
            Op::Linger(at, grace) => {
                let running = self.world.all(Doing::Running);
                if let Some((job, told)) = running.get(at % running.len().max(1)) {
                    let grace = grace.map(|grace| Moment(self.now.0 + grace));
                    prop_assert!(self.core.linger(told.id.unwrap(), grace));
                    prop_assert!(!self.core.linger(told.id.unwrap(), grace));
                    prop_assert!(!self.core.hand_back(told.id.unwrap()), "a finished call is handed back");
                    let told = self.world.calls.get_mut(job).unwrap();
                    (told.doing, told.due) = (Doing::Lingering, grace.map_or(u64::MAX, |at| at.0));
                }
            }
            Op::RunUntil(at, until) => {
                let running = self.world.all(Doing::Running);
                if let Some((job, told)) = running.get(at % running.len().max(1)) {
                    let until = Moment(self.now.0 + until);
                    prop_assert!(self.core.run_until(told.id.unwrap(), until));
                    self.world.calls.get_mut(job).unwrap().due = until.0;
                }
            }
            Op::HandBack(at) => {
                let running = self.world.all(Doing::Running);
                if let Some((job, told)) = running.get(at % running.len().max(1)) {
                    prop_assert!(self.core.hand_back(told.id.unwrap()));
                    let (now, told) = (self.now.0, self.world.calls.get_mut(job).unwrap());
                    (told.doing, told.took, told.due) = (Doing::Queued, 0, told.expires.max(now));
                }
            }
            Op::Finish(at) => {
                let queued = self.world.all(Doing::Queued);
                if let Some((job, _)) = queued.get(at % queued.len().max(1)) {
                    self.world.calls.get_mut(job).unwrap().ticket_finished = true;
                }
            }
            Op::Withdraw(at) => {
                let told: Vec<_> = self.world.calls.iter().filter(|(_, told)| told.id.is_some()).collect();
                if let Some((job, told)) = told.get(at % told.len().max(1)) {
                    let (job, id, doing) = (**job, told.id.unwrap(), told.doing);
                    let before = self.core.figures().queued;
                    match (self.core.withdraw(id), doing) {
                        (Withdrawn::Queued(gone), Doing::Queued) => {
                            prop_assert_eq!(gone, job);
                            prop_assert_eq!(self.core.figures().queued, before - 1, "I8");
                            prop_assert_eq!(self.core.withdraw(id), Withdrawn::Unknown, "I8");
                            self.world.end(job, "withdrawn")?;
                        }
                        (Withdrawn::Running, Doing::Running) | (Withdrawn::Lingering, Doing::Lingering) => {}
                        (Withdrawn::Unknown, Doing::Finished(_)) => {}
                        (core, world) => prop_assert!(false, "I8: core {core:?}, world {world:?}"),
                    }
                }
            }
            Op::SetLane(at, lane) => {
                let queued = self.world.all(Doing::Queued);
                if let Some((job, told)) = queued.get(at % queued.len().max(1)) {
                    prop_assert_eq!(self.core.set_lane(told.id.unwrap(), Lane::ALL[lane]), Edited::Changed);
                    let from = told.flow;
                    if from.lane != Lane::ALL[lane] {
                        self.order += 1;
                        let told = self.world.calls.get_mut(job).unwrap();
                        (told.flow.lane, told.order) = (Lane::ALL[lane], self.order);
                        self.world.forget_empty(from);
                    }
                }
            }
            Op::SetExpiry(at, time) => {
                let told: Vec<_> = self.world.calls.iter().filter(|(_, told)| told.id.is_some()).collect();
                if let Some((job, told)) = told.get(at % told.len().max(1)) {
                    let (job, wish) = (**job, self.now.0 + time);
                    let edited = self.core.set_expiry(told.id.unwrap(), Moment(wish));
                    match told.doing {
                        Doing::Queued => {
                            prop_assert_eq!(edited, Edited::Changed);
                            let told = self.world.calls.get_mut(&job).unwrap();
                            told.expires = wish.min(told.deadline);
                            told.due = told.expires.max(self.now.0);
                        }
                        Doing::Running | Doing::Lingering => prop_assert_eq!(edited, Edited::AlreadyRunning),
                        Doing::Finished(_) => prop_assert_eq!(edited, Edited::Unknown),
                    }
                }
            }
            Op::Pass(time) => self.now.0 += time,
            Op::Due(slice) => self.due(slice)?,
            Op::Permits(caller, permits) => {
                self.world.permits.insert(caller, permits);
                let parked: Vec<_> = self.world.parked.iter().copied().filter(|f| f.caller.0 == caller).collect();
                let free = self.world.has_permit(caller);
                for flow in parked.into_iter().filter(|_| free) {
                    self.world.parked.remove(&flow);
                    self.world.waiting.remove(&flow);
                    self.core.unpark(flow);
                }
            }
            Op::Pause(paused) => {
                self.paused = paused;
                self.core.pause(paused);
            }
            Op::Limits { max_concurrent, queue_size, cap, one_turn, reject } => {
                self.settings = Settings {
                    max_concurrent,
                    queue_size,
                    tool_caps: vec![Some(cap), None],
                    fairness: if one_turn { Fairness::None } else { Fairness::Callers },
                    on_full: if reject { OnFull::Reject } else { OnFull::Displace },
                    ..self.settings.clone()
                };
                self.core.reconfigure(self.settings.clone(), self.now);
            }
            Op::Rekey(shift) => {
                let key = |job: &u32| ((!job.is_multiple_of(3)).then_some(ToolKey((job + shift) % 2)), 1 + job % 3);
                self.core.rekey(key);
                let parked: Vec<_> = self.world.parked.iter().copied().collect();
                for (job, told) in &mut self.world.calls {
                    let (tool, weight) = key(job);
                    if !matches!(told.doing, Doing::Finished(_)) {
                        (told.flow.tool, told.weight) = (tool, weight);
                    }
                }
                for flow in parked {
                    self.world.forget_empty(flow);
                }
            }
            Op::Page(limit) => self.list(limit)?,
        }
        while let Some(flow) = self.core.abandoned() {
            self.world.waiting.remove(&flow);
        }
        prop_assert_eq!(&self.world.waiting, &self.world.parked, "R11: only a flow that is parked waits");
        self.figures_add_up()
    }

    /// I12: pages together show every live call once, FIFOs in order.
    fn list(&mut self, limit: usize) -> Result<(), TestCaseError> {
        let (mut cursor, mut seen) = (0, Vec::new());
        loop {
            let page = self.core.page(cursor, limit);
            prop_assert!(!page.stale && page.rows.len() <= limit);
            seen.extend(page.rows);
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let mut last: BTreeMap<FlowKey, u64> = BTreeMap::new();
        let mut lane = 0;
        for row in &seen {
            let told = &self.world.calls[&row.job];
            let state = match told.doing {
                Doing::Queued => RowState::Queued,
                Doing::Running => RowState::Running,
                Doing::Lingering => RowState::Lingering,
                Doing::Finished(_) => return Err(TestCaseError::fail("a finished call is listed")),
            };
            prop_assert_eq!(row.state, state);
            prop_assert_eq!(Some(row.id), told.id);
            if row.state == RowState::Queued {
                let before = last.insert(told.flow, told.order);
                prop_assert!(before.is_none_or(|before| before < told.order), "a FIFO is listed out of order");
                prop_assert!(row.lane as usize >= lane, "lanes are listed out of order");
                lane = row.lane as usize;
                let position = row.position.unwrap();
                prop_assert!(position >= 1 && position <= self.core.figures().queued);
                if self.world.parked.contains(&told.flow) {
                    prop_assert!(row.parked);
                }
            }
        }
        let ids: BTreeSet<_> = seen.iter().map(|row| row.id).collect();
        prop_assert_eq!(ids.len(), seen.len(), "a call is listed twice");
        let figures = self.core.figures();
        prop_assert_eq!(ids.len() as u32, figures.running + figures.lingering + figures.queued);
        Ok(())
    }

    fn figures_add_up(&self) -> Result<(), TestCaseError> {
        let figures = self.core.figures();
        let count = |doing| self.world.calls.values().filter(|told| told.doing == doing).count() as u32;
        prop_assert_eq!(figures.running, count(Doing::Running), "I4");
        prop_assert_eq!(figures.lingering, count(Doing::Lingering), "I4");
        prop_assert_eq!(figures.queued, count(Doing::Queued), "I4");
        prop_assert_eq!(figures.lanes.iter().sum::<u32>(), figures.queued, "I12");
        prop_assert_eq!(figures.slots, self.slots(), "I1");
        let due =
            self.world.calls.values().filter(|told| !matches!(told.doing, Doing::Finished(_))).map(|told| told.due);
        let due = due.min().filter(|&due| due != u64::MAX);
        prop_assert_eq!(self.core.next_due().is_some(), due.is_some());
        if let (Some(next), Some(due)) = (self.core.next_due(), due) {
            prop_assert!(next.0 <= due.max(self.now.0) + TICK, "the timer is armed too late");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, ..plain_config() })]

    #[test]
    fn i01_to_i13_hold_after_every_step(
        ops in prop::collection::vec(op(), 1..64),
        max_concurrent in 1u32..5,
        queue_size in 0u32..16,
        one_turn in prop::bool::weighted(0.2),
    ) {
        let settings = Settings {
            max_concurrent,
            queue_size,
            queue_bytes: u64::MAX,
            on_full: OnFull::Displace,
            fairness: if one_turn { Fairness::None } else { Fairness::Callers },
            max_queued: None,
            sojourn: None,
            tool_caps: vec![Some(1), None],
        };
        let now = Moment(7_000_000);
        let world = World { calls: BTreeMap::new(), permits: BTreeMap::new(), parked: BTreeSet::new(), waiting: BTreeSet::new(), asked: Vec::new() };
        let mut run = Run { core: Core::new(settings.clone(), now), world, settings, now, paused: false, order: 0 };
        for (job, op) in (1u32..).zip(ops) {
            run.step(job, op)?;
        }
        // In the end everything can be brought to an end: nothing is stuck, nothing is left behind.
        run.core.pause(false);
        run.paused = false;
        for caller in 0..4 {
            run.step(0, Op::Permits(caller, u32::MAX))?;
        }
        for _ in 0..200 {
            run.step(0, Op::NextAll)?;
            run.step(0, Op::Complete(0))?;
            let figures = run.core.figures();
            if figures.running + figures.lingering + figures.queued == 0 {
                break;
            }
        }
        let figures = run.core.figures();
        prop_assert_eq!((figures.running, figures.lingering, figures.queued, figures.bytes, figures.slots), (0, 0, 0, 0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..plain_config() })]

    /// I14: before the spread, `retry_after` lies within the clamp and does not shrink as the queue grows.
    #[test]
    fn i14_retry_after_grows_with_the_queue(slot_ms in 1u64..100_000, limit in 1u32..64, size in 1u32..60) {
        let settings = Settings {
            max_concurrent: limit,
            queue_size: size,
            queue_bytes: u64::MAX,
            on_full: OnFull::Reject,
            fairness: Fairness::Callers,
            max_queued: Some(u32::MAX),
            sojourn: None,
            tool_caps: Vec::new(),
        };
        let mut core: Core<u32> = Core::new(settings, Moment(0));
        let offer = |job| Offer {
            job,
            lane: Lane::Normal,
            caller: CallerId(0),
            caller_weight: 1,
            caller_limit: None,
            tool: None,
            weight: 1,
            bytes: 1,
            expires: None,
            deadline: None,
            max_queued: None,
            others_seen: false,
        };
        let guess = core.retry_after(Retry::Full, 0.0).expect("a second a call is assumed before one has ended");
        prop_assert!((100..=60_000).contains(&guess.as_millis()));
        let Admitted::Run(id, _) = core.offer(offer(0), Moment(0), &mut Open) else { unreachable!() };
        core.complete(id, Duration::from_millis(slot_ms));
        for job in 0..limit {
            prop_assert!(matches!(core.offer(offer(job), Moment(0), &mut Open), Admitted::Run(..)));
        }
        let mut last = (Duration::ZERO, Duration::ZERO);
        for job in 0..size {
            let full = core.retry_after(Retry::Full, 0.0).unwrap();
            let share = core.retry_after(Retry::Share(CallerId(0)), 0.0).unwrap();
            prop_assert!(full >= last.0 && share >= last.1);
            for time in [full, share] {
                prop_assert!((Duration::from_millis(100)..=Duration::from_secs(60)).contains(&time));
            }
            let spread = core.retry_after(Retry::Full, 1.0).unwrap();
            prop_assert!(spread >= full && spread <= full.mul_f64(1.31));
            last = (full, share);
            let queued = core.offer(offer(job), Moment(0), &mut Open);
            prop_assert!(matches!(queued, Admitted::Queued { .. }), "there is a place");
        }
    }
}
