//! The core against the plain model: the same decision on every newcomer and the same call served next,
//! with weights, bytes, expiry, cancels, hand-backs and changed limits. And the bounds on overtaking (I6).

use super::model::{Decision, Model, Served, plain_config};
use super::*;
use crate::caller::{CallerId, Lane};
use crate::config::{Fairness, OnFull};
use crate::upstream::Edited;
use proptest::prelude::*;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Clone, Debug)]
enum Op {
    Offer { lane: usize, caller: u32, weight: u32, bytes: u64, ttl: Option<u64> },
    Next,
    Complete(usize),
    HandBack(usize),
    Withdraw(usize),
    SetLane(usize, usize),
    Pass(u64),
    Limits { max_concurrent: u32, queue_size: u32, queue_bytes: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let weight = prop_oneof![4 => Just(1u32), 1 => 2u32..9];
    let ttl = prop_oneof![2 => Just(None), 1 => (0u64..60_000).prop_map(Some)];
    prop_oneof![
        10 => (0usize..3, 0u32..5, weight, 1u64..20, ttl)
            .prop_map(|(lane, caller, weight, bytes, ttl)| Op::Offer { lane, caller, weight, bytes, ttl }),
        8 => Just(Op::Next),
        5 => any::<usize>().prop_map(Op::Complete),
        1 => any::<usize>().prop_map(Op::HandBack),
        2 => any::<usize>().prop_map(Op::Withdraw),
        1 => (any::<usize>(), 0usize..3).prop_map(|(at, lane)| Op::SetLane(at, lane)),
        1 => (0u64..40_000).prop_map(Op::Pass),
        1 => (1u32..7, 0u32..24, 20u64..300)
            .prop_map(|(max_concurrent, queue_size, queue_bytes)| Op::Limits { max_concurrent, queue_size, queue_bytes }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..plain_config() })]

    #[test]
    fn the_core_decides_and_serves_as_the_model(
        ops in prop::collection::vec(op(), 1..90),
        max_concurrent in 1u32..5,
        queue_size in 0u32..20,
        weights in prop::array::uniform5(1u32..4),
        one_turn in prop::bool::weighted(0.25),
        reject in prop::bool::weighted(0.25),
    ) {
        let settings = Settings {
            max_concurrent,
            queue_size,
            queue_bytes: 150,
            on_full: if reject { OnFull::Reject } else { OnFull::Displace },
            fairness: if one_turn { Fairness::None } else { Fairness::Callers },
            max_queued: Some(u32::MAX),
            sojourn: None,
            tool_caps: Vec::new(),
        };
        let mut now = Moment(5_000_000);
        let mut core: Core<u32> = Core::new(settings.clone(), now);
        let mut model = Model::new(settings);
        for (job, op) in (0u32..).zip(ops) {
            match op {
                Op::Offer { lane, caller, weight, bytes, ttl } => {
                    let offer = Offer {
                        job,
                        lane: Lane::ALL[lane],
                        caller: CallerId(caller),
                        caller_weight: weights[caller as usize],
                        caller_limit: None,
                        tool: None,
                        weight,
                        bytes,
                        expires: ttl.map(|ttl| Moment(now.0 + ttl)),
                        deadline: None,
                        max_queued: None,
                        others_seen: false,
                    };
                    let decision = model.decide(&offer, now);
                    match (core.offer(offer.clone(), now, &mut Open), decision) {
                        (Admitted::Run(id, ran), Decision::Run) => {
                            prop_assert_eq!(ran, job);
                            let call = model.waiting(&offer, id);
                            model.ran(call, lane);
                        }
                        (Admitted::Queued { id, displaced }, Decision::Queue { instead_of, .. }) => {
                            match displaced {
                                None => prop_assert!(instead_of.is_empty()),
                                Some((_, victim)) => {
                                    prop_assert!(instead_of.contains(&victim), "I10: {victim} of {instead_of:?}");
                                    model.remove(victim);
                                }
                            }
                            let call = model.waiting(&offer, id);
                            model.queue(call, lane);
                        }
                        (Admitted::Refused { .. }, Decision::Refuse | Decision::Queue { or_refuse: true, .. }) => {}
                        (core, model) => prop_assert!(false, "core {core:?}, model {model:?}"),
                    }
                }
                Op::Next => {
                    let served = match core.next(now, &mut Open) {
                        None => None,
                        Some(Next::Run(_, job)) => Some(Served::Run(job)),
                        Some(Next::Expired(_, job)) => Some(Served::Expired(job)),
                        Some(Next::Shed(..)) => unreachable!("waits are left alone"),
                        Some(Next::Gone(..)) => unreachable!("nothing is gone"),
                    };
                    prop_assert_eq!(served, model.next(now));
                }
                Op::Complete(at) => if !model.in_flight.is_empty() {
                    let (call, ..) = model.in_flight.remove(at % model.in_flight.len());
                    let id = call.id.unwrap();
                    prop_assert_eq!(core.complete(id, Duration::ZERO), Some(call.job));
                    prop_assert_eq!(core.complete(id, Duration::ZERO), None);
                },
                Op::HandBack(at) => if !model.in_flight.is_empty() {
                    let (call, lane, _) = model.in_flight.remove(at % model.in_flight.len());
                    prop_assert!(core.hand_back(call.id.unwrap()));
                    model.queue(call, lane);
                },
                Op::Withdraw(at) => {
                    let ids: Vec<_> = model.queued().map(|(_, c)| (c.job, c.id.unwrap())).collect();
                    if !ids.is_empty() {
                        let (job, id) = ids[at % ids.len()];
                        prop_assert_eq!(core.withdraw(id), Withdrawn::Queued(job));
                        prop_assert_eq!(core.withdraw(id), Withdrawn::Unknown);
                        model.remove(job);
                    }
                }
                Op::SetLane(at, lane) => {
                    let ids: Vec<_> = model.queued().map(|(lane, c)| (lane, c.job, c.id.unwrap())).collect();
                    if !ids.is_empty() {
                        let (from, job, id) = ids[at % ids.len()];
                        prop_assert_eq!(core.set_lane(id, Lane::ALL[lane]), Edited::Changed);
                        if from != lane {
                            model.set_lane(job, lane);
                        }
                    }
                }
                Op::Pass(time) => now.0 += time,
                Op::Limits { max_concurrent, queue_size, queue_bytes } => {
                    let settings = Settings { max_concurrent, queue_size, queue_bytes, ..model.settings.clone() };
                    core.reconfigure(settings.clone(), now);
                    model.settings = settings;
                }
            }
            let figures = core.figures();
            prop_assert_eq!(figures.slots, model.slots());
            prop_assert_eq!(figures.running as usize, model.in_flight.len());
            prop_assert_eq!(figures.queued as usize, model.queued().count());
            prop_assert_eq!(figures.bytes, model.queued().map(|(_, c)| c.bytes).sum::<u64>());
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..plain_config() })]

    /// I6: a waiting lane sees at most 2 x (21 - its weight) dispatches of others in a row; a waiting caller
    /// is overtaken at most once by each other caller of its lane.
    #[test]
    fn i06_nobody_is_overtaken_beyond_the_bounds(
        arrivals in prop::collection::vec((0u8..3, 0u32..5), 50..300),
        burst in 1usize..20,
    ) {
        let settings = Settings {
            max_concurrent: 1,
            queue_size: 10_000,
            queue_bytes: u64::MAX,
            on_full: OnFull::Displace,
            fairness: Fairness::Callers,
            max_queued: None,
            sojourn: None,
            tool_caps: Vec::new(),
        };
        let now = Moment(0);
        let mut core: Core<(u8, u32)> = Core::new(settings, now);
        let offer = |lane: u8, caller: u32| Offer {
            job: (lane, caller),
            lane: Lane::ALL[usize::from(lane)],
            caller: CallerId(caller),
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
        let Admitted::Run(mut running, _) = core.offer(offer(0, 0), now, &mut Open) else { unreachable!() };
        let mut gap = [0u32; 3];
        let mut overtaken: HashMap<(u8, u32), HashMap<u32, u32>> = HashMap::new();
        let mut queued: HashMap<(u8, u32), u32> = HashMap::new();
        let mut arrivals = arrivals.into_iter();
        'dry: loop {
            for (lane, caller) in arrivals.by_ref().take(burst) {
                let admitted = core.offer(offer(lane, caller), now, &mut Open);
                prop_assert!(matches!(admitted, Admitted::Queued { .. }), "there is a place");
                *queued.entry((lane, caller)).or_default() += 1;
            }
            for _ in 0..burst / 2 + 1 {
                core.complete(running, Duration::ZERO);
                let (lane, caller) = match core.next(now, &mut Open) {
                    None => break 'dry,
                    Some(Next::Run(id, job)) => {
                        running = id;
                        job
                    }
                    Some(other) => unreachable!("{other:?}"),
                };
                *queued.get_mut(&(lane, caller)).unwrap() -= 1;
                for (other, gap) in (0u8..).zip(&mut gap) {
                    let waits = queued.iter().any(|(flow, waiting)| flow.0 == other && *waiting > 0);
                    *gap = if other == lane || !waits { 0 } else { *gap + 1 };
                    prop_assert!(*gap <= 2 * (21 - [16, 4, 1][usize::from(other)]), "lane {other} starves");
                }
                overtaken.remove(&(lane, caller));
                for (flow, waiting) in &queued {
                    if flow.0 == lane && flow.1 != caller && *waiting > 0 {
                        let times = overtaken.entry(*flow).or_default().entry(caller).or_default();
                        *times += 1;
                        prop_assert!(*times <= 1, "a caller is overtaken twice");
                    }
                }
            }
        }
    }
}
