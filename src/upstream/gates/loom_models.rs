//! Every order in which parking, releasing and stopping can meet at the gates (rule R11).
//!
//! `RUSTFLAGS="--cfg forebay_loom" cargo test --lib loom_models`

use super::*;
use crate::caller::Lane;
use crate::config::CallerConfig;
use loom::thread;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

/// Held only for a push or a pop, in which loom does not switch.
#[derive(Default)]
struct Mail(parking_lot::Mutex<Vec<Grant>>);

impl Sink for Mail {
    fn grant(&self, grant: Grant) {
        self.0.lock().push(grant);
    }
}

impl Mail {
    fn take(&self) -> Option<Grant> {
        self.0.lock().pop()
    }
}

fn flow(caller: &Caller) -> FlowKey {
    FlowKey { lane: Lane::Normal, caller: caller.id, tool: None }
}

fn caller(id: u32, limit: Option<u32>) -> Arc<Caller> {
    let config = CallerConfig { max_concurrent: limit, ..CallerConfig::default() };
    Arc::new(Caller::new(CallerId(id), "c".into(), "key", Arc::new(config)))
}

/// One global permit, held by the first of two upstreams.
fn taken() -> (Arc<Gates>, Door, Door, Arc<Mail>, Arc<Caller>, Permits) {
    let gates = Gates::new(&Global { max_concurrent: Some(1), max_share: 1.0, ..Global::default() });
    let mail = Arc::new(Mail::default());
    let (one, two) = (gates.enter(Arc::new(Mail::default())), gates.enter(mail.clone()));
    let ann = caller(1, Some(1));
    let held = gates.take(one, &ann, flow(&ann)).ok().unwrap();
    (gates, one, two, mail, ann, held)
}

#[test]
fn r11_whoever_parks_while_a_permit_is_released_gets_it() {
    model(|| {
        let (gates, _, two, mail, _, held) = taken();
        let release = thread::spawn(move || drop(held));
        let bob = caller(2, None);
        let got = gates.take(two, &bob, flow(&bob));
        release.join().unwrap();
        match got {
            Ok(permits) => {
                assert!(mail.take().is_none());
                drop(permits);
            }
            Err(Parked) => drop(mail.take().expect("parked, and the permit was released")),
        }
        assert_eq!(gates.in_flight(), 0);
    });
}

#[test]
fn r11_a_busy_upstream_does_not_overtake_the_one_that_is_parked() {
    model(|| {
        let (gates, one, two, mail, ann, held) = taken();
        let bob = caller(2, None);
        assert!(gates.take(two, &bob, flow(&bob)).is_err());
        // The busy upstream releases and comes back for more; another thread tries its luck too.
        let other = thread::spawn({
            let (gates, cid) = (gates.clone(), caller(3, None));
            move || gates.take(one, &cid, flow(&cid)).is_ok()
        });
        drop(held);
        let again = gates.take(one, &ann, flow(&ann)).is_ok();
        let lucky = other.join().unwrap();
        assert!(!again && !lucky);
        drop(mail.take().expect("handed to the one that waited"));
    });
}

#[test]
fn r11_a_stop_loses_no_permit_to_an_upstream_that_is_gone() {
    model(|| {
        let (gates, _, two, mail, _, held) = taken();
        let third = Arc::new(Mail::default());
        let three = gates.enter(third.clone());
        let (bob, cid) = (caller(2, None), caller(3, None));
        assert!(gates.take(two, &bob, flow(&bob)).is_err());
        assert!(gates.take(three, &cid, flow(&cid)).is_err());
        let release = thread::spawn(move || drop(held));
        // As an actor ends: leave, then let go of what had come before.
        gates.leave(two);
        while let Some(grant) = mail.take() {
            drop(grant);
        }
        release.join().unwrap();
        assert!(mail.take().is_none(), "granted to one that had left");
        drop(third.take().expect("the permit went on to the next"));
        assert_eq!(gates.in_flight(), 0);
    });
}

#[test]
fn r11_a_flow_withdrawn_while_a_permit_is_released_strands_none() {
    model(|| {
        let (gates, _, two, mail, _, held) = taken();
        let third = Arc::new(Mail::default());
        let three = gates.enter(third.clone());
        let (bob, cid) = (caller(2, None), caller(3, None));
        assert!(gates.take(two, &bob, flow(&bob)).is_err());
        assert!(gates.take(three, &cid, flow(&cid)).is_err());
        let release = thread::spawn(move || drop(held));
        gates.withdraw(two, flow(&bob));
        release.join().unwrap();
        // Granted before it was withdrawn, it lets go of the permit at the end of its turn.
        drop(mail.take());
        drop(third.take().expect("the permit went on to the next"));
        assert!(mail.take().is_none());
        assert_eq!((gates.in_flight(), gates.waiting()), (0, 0));
    });
}
