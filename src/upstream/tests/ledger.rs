//! The ledger as a scrape finds it: read from another thread, in real time, while everything goes on (rule R6).

use super::rig::*;
use crate::call::{Call, State};
use crate::config::Limits;
use crate::ledger::{Counts, Ledger};
use crate::outcome::CancelledBy;
use crate::upstream::scripted::OnStop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const SCRAPES: u64 = 5_000;
const ROUNDS: usize = 300;

/// Reads the ledger over and over until it is told to stop; what it saw in all of them together.
fn scrape(ledger: &Ledger, scrapes: &AtomicU64, stop: &AtomicBool) -> Counts {
    let (mut before, mut most) = (Counts::default(), Counts::default());
    while !stop.load(Relaxed) {
        let now = ledger.read();
        let ended: u64 = now.outcomes.iter().sum();
        assert_eq!(now.offered, ended + now.submitted + now.queued + now.running, "{now:?}");
        assert!(now.offered >= before.offered, "{now:?} after {before:?}");
        for (now, before) in now.outcomes.iter().zip(before.outcomes) {
            assert!(*now >= before, "an outcome was taken back");
        }
        most.submitted = most.submitted.max(now.submitted);
        most.queued = most.queued.max(now.queued);
        most.running = most.running.max(now.running);
        before = now;
        scrapes.fetch_add(1, Relaxed);
        std::thread::yield_now();
    }
    most
}

/// Offers, cancels, answers, broken connections; five times the actor panics.
async fn storm(rig: &Rig, scrapes: &AtomicU64) -> Vec<Arc<Call>> {
    let mut rng = fastrand::Rng::with_seed(6);
    let callers: Vec<_> = (0..4).map(caller).collect();
    let mut all = Vec::new();
    let mut round = 0;
    while round < ROUNDS || scrapes.load(Relaxed) < SCRAPES {
        assert!(round < 100 * ROUNDS, "the scraper does not get on");
        let calls: Vec<_> = (0..rng.usize(1..40))
            .map(|_| {
                let deadline = rng.bool().then(|| ms(rng.u64(1..50)));
                rig.call(&callers[rng.usize(0..4)], Like { deadline, ..Like::default() })
            })
            .collect();
        tokio::task::yield_now().await;
        for call in calls.iter().filter(|_| rng.u8(0..3) == 0) {
            rig.cancel(call, CancelledBy::Caller);
        }
        for call in rig.server.at_server() {
            match rng.u8(0..8) {
                0 => rig.server.lose(call, true),
                1 => rig.server.hand_back(call),
                2 => rig.server.drop_run(call),
                _ => drop(rig.server.answer(call)),
            }
        }
        if round % 50 == 25 && round < 250 {
            rig.fail().await;
        }

        all.extend(calls);
        round += 1;
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r06_the_ledger_adds_up_at_every_scrape_of_a_storm() {
    let rig = Rig::up(Limits { queue_timeout: Some(ms(200)), ..limits(4, 30) }).await;
    rig.server.on_stop(OnStop::Honour);
    let (scrapes, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let scraper = std::thread::spawn({
        let (ledger, scrapes, stop) = (rig.upstream.shared().ledger.clone(), scrapes.clone(), stop.clone());
        move || scrape(&ledger, &scrapes, &stop)
    });
    let calls = storm(&rig, &scrapes).await;
    rig.server.answer_instantly(true);
    let over = async {
        while in_state(&calls, State::Finished) < calls.len() {
            while rig.server.answer_next().is_some() {}
            tokio::time::sleep(ms(1)).await;
        }
    };
    tokio::time::timeout(secs(30), over).await.expect("every call ends");
    stop.store(true, Relaxed);
    let most = scraper.join().expect("the ledger added up at every scrape");
    assert!(scrapes.load(Relaxed) >= SCRAPES);
    assert!(most.queued > 0 && most.running > 0, "the scrapes met calls on their way: {most:?}");
    assert!(rig.upstream.actor_restarts() >= 1);
    let counts = rig.upstream.shared().ledger.read();
    assert_eq!((counts.offered, counts.finished()), (calls.len() as u64, calls.len() as u64));
    rig.check(&calls);
}
