//! Gates by themselves: who gets a permit, who waits, who is next.

use super::*;
use crate::caller::Lane;
use crate::config::CallerConfig;
use parking_lot::Mutex as Lock;

/// Where a test's grants land.
#[derive(Default)]
struct Mail(Lock<Vec<Grant>>);

impl Sink for Mail {
    fn grant(&self, grant: Grant) {
        self.0.lock().push(grant);
    }
}

impl Mail {
    fn take(&self) -> Option<Grant> {
        let mut mail = self.0.lock();
        (!mail.is_empty()).then(|| mail.remove(0))
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

fn caller(id: u32, limit: Option<u32>) -> Arc<Caller> {
    let config = CallerConfig { max_concurrent: limit, ..CallerConfig::default() };
    Arc::new(Caller::new(CallerId(id), format!("c{id}").into(), "key", Arc::new(config)))
}

fn flow(caller: &Caller) -> FlowKey {
    FlowKey { lane: Lane::Normal, caller: caller.id, tool: None }
}

fn gates(max_concurrent: Option<u32>, max_share: f64) -> Arc<Gates> {
    Gates::new(&Global { max_concurrent, max_share, ..Global::default() })
}

fn upstream(gates: &Arc<Gates>) -> (Door, Arc<Mail>) {
    let mail = Arc::new(Mail::default());
    (gates.enter(mail.clone()), mail)
}

#[test]
fn without_limits_the_gates_are_skipped() {
    let gates = gates(None, 0.75);
    let (door, _mail) = upstream(&gates);
    let ann = caller(1, None);
    let permits: Vec<_> = (0..1000).map(|_| gates.take(door, &ann, flow(&ann)).unwrap()).collect();
    assert!(permits.iter().all(|permits| permits.held.is_none()));
    assert!(gates.state.lock().callers.is_empty());
}

#[test]
fn r11_a_released_permit_is_handed_on_before_anybody_can_take_it() {
    let gates = gates(None, 0.75);
    let ((one, _), (two, mail)) = (upstream(&gates), upstream(&gates));
    let ann = caller(1, Some(1));
    let held = gates.take(one, &ann, flow(&ann)).unwrap();
    assert!(gates.take(two, &ann, flow(&ann)).is_err());
    drop(held);
    // The busy upstream comes back at once, and finds the gate closed.
    assert!(gates.take(one, &ann, flow(&ann)).is_err());
    let grant = mail.take().unwrap();
    assert_eq!(grant.flow, flow(&ann));
    drop(grant);
    assert!(mail.is_empty());
}

#[test]
fn r11_an_unused_grant_goes_to_the_next_and_at_last_to_nobody() {
    let gates = gates(Some(1), 1.0);
    let ((one, _), (two, mail_two), (three, mail_three)) = (upstream(&gates), upstream(&gates), upstream(&gates));
    let callers: Vec<_> = (0..3).map(|id| caller(id, None)).collect();
    let held = gates.take(one, &callers[0], flow(&callers[0])).unwrap();
    assert!(gates.take(two, &callers[1], flow(&callers[1])).is_err());
    assert!(gates.take(three, &callers[2], flow(&callers[2])).is_err());
    drop(held);
    assert!(mail_three.is_empty());
    drop(mail_two.take().unwrap());
    drop(mail_three.take().unwrap());
    assert_eq!(gates.in_flight(), 0);
    assert!(gates.take(one, &callers[0], flow(&callers[0])).is_ok());
}

#[test]
fn r11_a_busy_and_a_parked_upstream_share_the_global_permits() {
    let gates = gates(Some(2), 0.5);
    let ((busy, busy_mail), (quiet, quiet_mail)) = (upstream(&gates), upstream(&gates));
    let (ann, bob) = (caller(1, None), caller(2, None));
    // The quiet one holds its share; the busy one its own. Each release serves the one that waits.
    let mut running =
        [Some(gates.take(busy, &ann, flow(&ann)).unwrap()), Some(gates.take(quiet, &bob, flow(&bob)).unwrap())];
    assert!(gates.take(busy, &ann, flow(&ann)).is_err());
    assert!(gates.take(quiet, &bob, flow(&bob)).is_err());
    let mut served = [0, 0];
    for round in 0..1000 {
        running[round % 2] = None;
        for (at, (door, mail, who)) in [(busy, &busy_mail, &ann), (quiet, &quiet_mail, &bob)].into_iter().enumerate() {
            while let Some(grant) = mail.take() {
                served[at] += 1;
                running[at] = Some(grant.permits);
                assert!(gates.take(door, who, flow(who)).is_err());
            }
        }
        assert!(gates.in_flight() <= 2);
    }
    assert_eq!(served, [500, 500]);
}

#[test]
fn r11_flows_of_a_caller_are_served_in_the_order_they_came() {
    let gates = gates(None, 0.75);
    let ((one, _), (two, mail)) = (upstream(&gates), upstream(&gates));
    let ann = caller(1, Some(1));
    let held = gates.take(one, &ann, flow(&ann)).unwrap();
    for lane in [Lane::Low, Lane::High, Lane::Normal] {
        assert!(gates.take(two, &ann, FlowKey { lane, ..flow(&ann) }).is_err());
    }
    drop(held);
    let lanes: Vec<_> = std::iter::from_fn(|| mail.take().map(|grant| grant.flow.lane)).collect();
    assert_eq!(lanes, [Lane::Low, Lane::High, Lane::Normal]);
}

#[test]
fn r11_both_permits_or_none() {
    let gates = gates(Some(1), 1.0);
    let ((one, _), (two, mail)) = (upstream(&gates), upstream(&gates));
    let (ann, bob) = (caller(1, Some(1)), caller(2, None));
    let held = gates.take(one, &bob, flow(&bob)).unwrap();
    // Waits for the global permit and does not sit on its own caller's meanwhile.
    assert!(gates.take(two, &ann, flow(&ann)).is_err());
    assert!(!gates.state.lock().callers.contains_key(&ann.id));
    drop(held);
    let grant = mail.take().unwrap();
    assert_eq!(gates.in_flight(), 1);
    drop(grant);
    assert_eq!(gates.in_flight(), 0);
    assert!(gates.state.lock().callers.is_empty());
}

#[test]
fn r12_one_upstream_cannot_hold_all_global_permits() {
    let gates = gates(Some(4), 0.75);
    let (hung, _hung_mail) = upstream(&gates);
    let (other, _) = upstream(&gates);
    let ann = caller(1, None);
    let held: Vec<_> = (0..3).map(|_| gates.take(hung, &ann, flow(&ann)).unwrap()).collect();
    assert!(gates.take(hung, &ann, flow(&ann)).is_err());
    let last = gates.take(other, &ann, flow(&ann)).unwrap();
    assert!(gates.take(other, &ann, flow(&ann)).is_err());
    drop((held, last));
}

#[test]
fn r12_an_upstream_alone_may_hold_its_share_and_at_least_one() {
    let gates = gates(Some(1), 0.1);
    let (alone, _) = upstream(&gates);
    let ann = caller(1, None);
    let held = gates.take(alone, &ann, flow(&ann)).unwrap();
    assert!(gates.take(alone, &ann, flow(&ann)).is_err());
    drop(held);
}

#[test]
fn an_upstream_that_leaves_is_granted_nothing() {
    let gates = gates(Some(1), 1.0);
    let ((one, _), (two, mail)) = (upstream(&gates), upstream(&gates));
    let ann = caller(1, Some(1));
    let held = gates.take(one, &ann, flow(&ann)).unwrap();
    assert!(gates.take(two, &ann, flow(&ann)).is_err());
    gates.leave(two);
    gates.leave(one);
    drop(held);
    assert!(mail.is_empty());
    assert_eq!(gates.in_flight(), 0);
    assert!(gates.state.lock().callers.is_empty());
}

#[test]
fn a_raised_limit_wakes_those_who_wait() {
    let gates = gates(Some(1), 1.0);
    let (one, mail) = upstream(&gates);
    let ann = caller(1, Some(1));
    let held = gates.take(one, &ann, flow(&ann)).unwrap();
    assert!(gates.take(one, &ann, flow(&ann)).is_err());
    ann.config.store(Arc::new(CallerConfig { max_concurrent: Some(2), ..CallerConfig::default() }));
    gates.configure(&Global { max_concurrent: Some(1), max_share: 1.0, ..Global::default() });
    assert!(mail.is_empty());
    gates.configure(&Global { max_concurrent: Some(2), max_share: 1.0, ..Global::default() });
    assert!(mail.take().is_some());
    drop(held);
}

#[test]
fn r11_a_flow_waits_once_and_keeps_its_place() {
    let gates = gates(Some(1), 1.0);
    let ((one, _), (two, mail)) = (upstream(&gates), upstream(&gates));
    let (ann, bob) = (caller(1, Some(1)), caller(2, None));
    let held = gates.take(one, &ann, flow(&ann)).unwrap();
    // One waits at its caller's gate, the other at the global one.
    for _ in 0..10_000 {
        assert!(gates.take(two, &ann, flow(&ann)).is_err());
        assert!(gates.take(two, &bob, flow(&bob)).is_err());
    }
    assert_eq!(gates.waiting(), 2);
    drop(held);
    assert_eq!(mail.take().unwrap().flow, flow(&ann), "the first to park is the first to be served");
    assert_eq!(mail.take().unwrap().flow, flow(&bob));
    assert!(mail.is_empty());
    assert_eq!((gates.waiting(), gates.in_flight()), (0, 0));
}

#[test]
fn r11_a_flow_that_is_withdrawn_leaves_nothing_and_holds_up_nobody() {
    let gates = gates(Some(1), 1.0);
    let ((one, _), (two, mail)) = (upstream(&gates), upstream(&gates));
    let (ann, bob, cid) = (caller(1, Some(1)), caller(2, None), caller(3, None));
    let held = gates.take(one, &ann, flow(&ann)).unwrap();
    for who in [&ann, &bob, &cid] {
        assert!(gates.take(two, who, flow(who)).is_err());
    }
    gates.withdraw(two, flow(&ann));
    gates.withdraw(two, flow(&bob));
    gates.withdraw(two, flow(&bob));
    gates.withdraw(one, flow(&cid));
    assert_eq!(gates.waiting(), 1);
    drop(held);
    let grant = mail.take().unwrap();
    assert_eq!(grant.flow, flow(&cid));
    // On its way already: withdrawing changes nothing, and the grant goes on by being dropped.
    gates.withdraw(two, flow(&cid));
    drop(grant);
    assert!(mail.is_empty() && gates.state.lock().ring.is_empty() && gates.state.lock().callers.is_empty());
    assert_eq!(gates.in_flight(), 0);
}

/// Whatever is taken, released, granted and dropped in whatever order: the limits hold at every step, and at
/// rest nobody waits who could be served.
#[test]
fn r11_limits_hold_and_nobody_is_forgotten_in_any_order() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limit = rng.u32(1..5);
        let gates = gates(Some(limit), 0.75);
        let doors: Vec<_> = (0..3).map(|_| upstream(&gates)).collect();
        let callers: Vec<_> = (0..3).map(|id| caller(id, Some(rng.u32(1..3)))).collect();
        let mut held: Vec<(usize, Permits)> = Vec::new();
        let mut parked: Vec<(usize, FlowKey, usize)> = Vec::new();
        for _ in 0..400 {
            match rng.u32(0..4) {
                3 if !parked.is_empty() => {
                    // Emptied by a cancel; a grant may be on its way all the same.
                    let (at, key, _) = parked.swap_remove(rng.usize(0..parked.len()));
                    gates.withdraw(doors[at].0, key);
                }
                0 => {
                    let (at, who) = (rng.usize(0..3), rng.usize(0..3));
                    let key = flow(&callers[who]);
                    if !parked.iter().any(|(door, flow, _)| (*door, *flow) == (at, key)) {
                        match gates.take(doors[at].0, &callers[who], key) {
                            Ok(permits) => held.push((who, permits)),
                            Err(Parked) => parked.push((at, key, who)),
                        }
                    }
                }
                1 if !held.is_empty() => drop(held.swap_remove(rng.usize(0..held.len()))),
                _ => {
                    for (at, (_, mail)) in doors.iter().enumerate() {
                        while let Some(grant) = mail.take() {
                            let place = parked.iter().position(|(door, flow, _)| (*door, *flow) == (at, grant.flow));
                            // None for a flow that was withdrawn when its grant was on its way.
                            if let Some((_, _, who)) = place.map(|place| parked.remove(place))
                                && rng.bool()
                            {
                                held.push((who, grant.permits));
                            }
                        }
                    }
                }
            }
            assert!(gates.in_flight() <= limit);
            assert!(gates.waiting() <= doors.len() * callers.len(), "a flow waits once");
            for (who, caller) in callers.iter().enumerate() {
                let most = caller.config.load().max_concurrent.unwrap() as usize;
                assert!(held.iter().filter(|(holder, _)| *holder == who).count() <= most);
            }
        }
        held.clear();
        while doors.iter().any(|(_, mail)| !mail.is_empty()) {
            for (at, (_, mail)) in doors.iter().enumerate() {
                while let Some(grant) = mail.take() {
                    parked.retain(|(door, flow, _)| (*door, *flow) != (at, grant.flow));
                }
            }
        }
        assert!(parked.is_empty(), "seed {seed}: {} flows were forgotten", parked.len());
        assert_eq!((gates.in_flight(), gates.waiting()), (0, 0));
    }
}
