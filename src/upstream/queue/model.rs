//! A model of the order of service that is plainly right: vectors, searched from the front, nothing cached.
//! It knows lanes, turns, weights, bytes, displacement and expiry; parking is checked by `properties`.

use super::{EntryId, Moment, Offer, Settings};
use crate::config::{Fairness, OnFull};
use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngAlgorithm;

/// No files written, and a generator that costs little without optimisation: most of a case's time would
/// go into the default one.
pub(super) fn plain_config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, rng_algorithm: RngAlgorithm::XorShift, ..ProptestConfig::default() }
}

#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub job: u32,
    pub id: Option<EntryId>,
    pub caller: u32,
    pub seq: u64,
    pub weight: u32,
    pub bytes: u64,
    pub expires: u64,
    pub caller_weight: i64,
}

struct Turn {
    /// The caller, or 0 for everybody with `fairness = "none"`.
    key: u32,
    weight: i64,
    deficit: i64,
    /// By age.
    calls: Vec<Waiting>,
}

#[derive(Default)]
struct Lane {
    credit: i64,
    ring: Vec<Turn>,
}

#[derive(Debug)]
pub(super) enum Decision {
    Run,
    /// Any of these may be displaced: the newest calls of the longest turns. Of several equally long ones
    /// the core looks at one, so it refuses if not all of them would free enough bytes.
    Queue {
        instead_of: Vec<u32>,
        or_refuse: bool,
    },
    Refuse,
}

#[derive(Debug, PartialEq)]
pub(super) enum Served {
    Run(u32),
    Expired(u32),
}

pub(super) struct Model {
    pub settings: Settings,
    lanes: [Lane; 3],
    pub in_flight: Vec<(Waiting, usize, u32)>,
    held: Option<u32>,
    seq: u64,
}

const WEIGHTS: [i64; 3] = [16, 4, 1];

impl Model {
    pub(super) fn new(settings: Settings) -> Self {
        let lanes = WEIGHTS.map(|credit| Lane { credit, ring: Vec::new() });
        Model { settings, lanes, in_flight: Vec::new(), held: None, seq: 0 }
    }

    pub(super) fn queued(&self) -> impl Iterator<Item = (usize, &Waiting)> {
        let lanes = self.lanes.iter().enumerate();
        lanes
            .flat_map(|(lane, state)| state.ring.iter().flat_map(move |turn| turn.calls.iter().map(move |c| (lane, c))))
    }

    pub(super) fn slots(&self) -> u32 {
        self.in_flight.iter().map(|(_, _, took)| took).sum()
    }

    fn fits(&self, weight: u32) -> bool {
        self.slots() + weight.min(self.settings.max_concurrent) <= self.settings.max_concurrent
    }

    fn key(&self, caller: u32) -> u32 {
        if self.settings.fairness == Fairness::None { 0 } else { caller }
    }

    /// What has to become of a newcomer. `took` then tells what became of it.
    pub(super) fn decide(&self, offer: &Offer<u32>, now: Moment) -> Decision {
        let expires = offer.expires.map_or(u64::MAX, |at| at.0);
        if expires <= now.0 {
            return Decision::Refuse;
        }
        if self.queued().count() == 0 && self.fits(offer.weight) {
            return Decision::Run;
        }
        let (count, bytes) = (self.queued().count() as u32, self.queued().map(|(_, c)| c.bytes).sum::<u64>());
        let place = |gone: u32, freed: u64| {
            count - gone < self.settings.queue_size && bytes - freed + offer.bytes <= self.settings.queue_bytes
        };
        if place(0, 0) {
            return Decision::Queue { instead_of: Vec::new(), or_refuse: false };
        }
        if self.settings.on_full == OnFull::Reject {
            return Decision::Refuse;
        }
        let lane = offer.lane as usize;
        let below = (lane + 1..3).rev().find(|&lane| !self.lanes[lane].ring.is_empty());
        let from = below.unwrap_or(lane);
        let longest = self.lanes[from].ring.iter().map(|turn| turn.calls.len()).max().unwrap_or(0);
        let own = self.lanes[lane].ring.iter().find(|turn| turn.key == self.key(offer.caller.0));
        if longest == 0 || below.is_none() && longest < own.map_or(0, |own| own.calls.len()) + 2 {
            return Decision::Refuse;
        }
        let longest = self.lanes[from].ring.iter().filter(|turn| turn.calls.len() == longest);
        let newest: Vec<&Waiting> = longest.filter_map(|turn| turn.calls.last()).collect();
        let instead_of: Vec<u32> = newest.iter().filter(|c| place(1, c.bytes)).map(|c| c.job).collect();
        let or_refuse = instead_of.len() < newest.len();
        if instead_of.is_empty() { Decision::Refuse } else { Decision::Queue { instead_of, or_refuse } }
    }

    pub(super) fn waiting(&mut self, offer: &Offer<u32>, id: EntryId) -> Waiting {
        self.seq += 1;
        Waiting {
            job: offer.job,
            id: Some(id),
            caller: offer.caller.0,
            seq: self.seq,
            weight: offer.weight,
            bytes: offer.bytes,
            expires: offer.expires.map_or(u64::MAX, |at| at.0),
            caller_weight: i64::from(offer.caller_weight),
        }
    }

    pub(super) fn ran(&mut self, call: Waiting, lane: usize) {
        let took = call.weight.min(self.settings.max_concurrent);
        self.in_flight.push((call, lane, took));
    }

    pub(super) fn queue(&mut self, call: Waiting, lane: usize) {
        let key = self.key(call.caller);
        let ring = &mut self.lanes[lane].ring;
        let at = match ring.iter().position(|turn| turn.key == key) {
            Some(at) => at,
            None => {
                let weight = call.caller_weight;
                ring.push(Turn { key, weight, deficit: weight, calls: Vec::new() });
                ring.len() - 1
            }
        };
        let turn = &mut ring[at];
        turn.weight = call.caller_weight;
        // Older than the call that was picked from the same FIFO: it is picked instead.
        if let Some(held) = self.held
            && let Some(of_caller) = turn.calls.iter().find(|c| c.caller == call.caller)
            && of_caller.job == held
            && call.seq < of_caller.seq
        {
            self.held = Some(call.job);
        }
        let at = turn.calls.iter().position(|c| c.seq > call.seq).unwrap_or(turn.calls.len());
        turn.calls.insert(at, call);
    }

    /// Takes a queued call out.
    pub(super) fn remove(&mut self, job: u32) -> Option<(Waiting, usize)> {
        if self.held == Some(job) {
            self.held = None;
        }
        for (lane, state) in self.lanes.iter_mut().enumerate() {
            for at in 0..state.ring.len() {
                let turn = &mut state.ring[at];
                if let Some(index) = turn.calls.iter().position(|c| c.job == job) {
                    let call = turn.calls.remove(index);
                    if turn.calls.is_empty() {
                        state.ring.remove(at);
                    }
                    return Some((call, lane));
                }
            }
        }
        None
    }

    pub(super) fn set_lane(&mut self, job: u32, lane: usize) {
        let (mut call, from) = self.remove(job).expect("queued");
        if lane != from {
            self.seq += 1;
            call.seq = self.seq;
            self.queue(call, lane);
        } else {
            unreachable!("asked only for a change");
        }
    }

    pub(super) fn next(&mut self, now: Moment) -> Option<Served> {
        if self.slots() >= self.settings.max_concurrent {
            return None;
        }
        let (lane, job) = self.pick()?;
        let call = self.lanes[lane].ring.iter().flat_map(|turn| &turn.calls).find(|c| c.job == job)?.clone();
        if call.expires <= now.0 {
            self.remove(job);
            return Some(Served::Expired(job));
        }
        if !self.fits(call.weight) {
            self.held = Some(job);
            return None;
        }
        let cost = i64::from(call.weight.min(self.settings.max_concurrent));
        self.lanes[lane].credit -= cost;
        let ring = &mut self.lanes[lane].ring;
        let at = ring.iter().position(|turn| turn.calls.iter().any(|c| c.job == job))?;
        assert_eq!(at, 0, "the turn at the head of the ring is served");
        ring[0].deficit -= cost;
        if ring[0].deficit <= 0 && ring[0].calls.len() > 1 {
            rotate(ring);
        }
        let (call, lane) = self.remove(job)?;
        self.ran(call, lane);
        Some(Served::Run(job))
    }

    fn pick(&mut self) -> Option<(usize, u32)> {
        if let Some(held) = self.held {
            let lane = self.queued().find(|(_, c)| c.job == held)?.0;
            return Some((lane, held));
        }
        if self.queued().count() == 0 {
            return None;
        }
        loop {
            for lane in &mut self.lanes {
                if lane.credit > 0 && !lane.ring.is_empty() {
                    while lane.ring[0].deficit <= 0 {
                        rotate(&mut lane.ring);
                    }
                    let job = lane.ring[0].calls[0].job;
                    let lane =
                        self.lanes.iter().position(|l| l.ring.iter().any(|t| t.calls.iter().any(|c| c.job == job)));
                    return Some((lane?, job));
                }
            }
            for (lane, weight) in self.lanes.iter_mut().zip(WEIGHTS) {
                lane.credit = (lane.credit + weight).min(weight);
            }
        }
    }
}

fn rotate(ring: &mut Vec<Turn>) {
    if ring.len() == 1 {
        ring[0].deficit = ring[0].weight;
    } else {
        let mut turn = ring.remove(0);
        turn.deficit += turn.weight;
        ring.push(turn);
    }
}
