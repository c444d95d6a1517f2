//! Everything at once, seeded: a server that delays, fails, ignores cancels and dies, callers that flood and
//! cancel, operators that steer, an actor that panics. After each step the invariants hold that can be seen
//! from outside (I1 to I4, I7 to I9, I11, I13, I14), and at the end every call has ended once.

use super::rig::*;
use crate::call::{Answer, Call, State};
use crate::caller::{Caller, Lane};
use crate::config::{AfterCancel, CallerConfig, Concurrency, Global, Limits, OnFull, ToolConfig};
use crate::outcome::{CancelledBy, Executed};
use crate::upstream::connection::LinkEvent;
use crate::upstream::scripted::OnStop;
use fastrand::Rng;
use std::sync::Arc;
use tokio::time::Instant;

const STEPS: usize = 250;

/// What a run of the test is like.
struct Setting {
    cap: u32,
    queue_size: u32,
    /// Weights, tool caps, caller caps and a global cap are in play.
    gated: bool,
    /// The connection hands calls back, so that the queue may hold more than its size for a while.
    hands_back: bool,
    /// The server never works on more calls than the cap: nothing is released early.
    exact: bool,
}

struct Chaos {
    rig: Rig,
    rng: Rng,
    setting: Setting,
    callers: Vec<Arc<Caller>>,
    /// Live, or ended since the last check.
    calls: Vec<Arc<Call>>,
    up: bool,
    open: bool,
    rests_until: Instant,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let after_cancel = [AfterCancel::Release, AfterCancel::Hold, AfterCancel::Recycle][rng.usize(0..3)];
        let setting = Setting {
            cap: rng.u32(1..5),
            queue_size: rng.u32(0..13),
            gated: rng.bool(),
            hands_back: rng.bool(),
            exact: after_cancel != AfterCancel::Release,
        };
        let limits = Limits {
            max_concurrent: Concurrency::Fixed(setting.cap),
            queue_size: setting.queue_size,
            queue_timeout: Some(secs(rng.u64(1..10))),
            // Under `hold` a slot is given up at the call's own limit; without one it is exact.
            call_timeout: (after_cancel != AfterCancel::Hold).then(|| secs(rng.u64(1..10))),
            cancel_grace: ms(rng.u64(10..3000)),
            after_cancel,
            on_full: if rng.bool() { OnFull::Displace } else { OnFull::Reject },
            ..Limits::built_in(true)
        };
        let tool = ToolConfig { max_concurrent: Some(1), ..ToolConfig::default() };
        let global = Global { max_concurrent: setting.gated.then(|| rng.u32(1..5)), ..Global::default() };
        let config = if setting.gated { with_tool(config("up", limits), "capped", tool) } else { config("up", limits) };
        let rig = Rig::start(config, supervisor(&global), |_| {});
        rig.server.on_stop(if rng.bool() { OnStop::Ignore } else { OnStop::Honour });
        let callers = (0..4).map(|id| {
            let most = (setting.gated && rng.bool()).then(|| rng.u32(1..4));
            caller_with(id, CallerConfig { max_concurrent: most, weight: rng.u32(1..4), ..CallerConfig::default() })
        });
        let callers = callers.collect();
        Chaos { callers, rig, rng, setting, calls: Vec::new(), up: true, open: true, rests_until: Instant::now() }
    }

    async fn step(&mut self) {
        let rig = &self.rig;
        let rng = &mut self.rng;
        let live = |state: State| self.calls.iter().filter(move |call| call.ticket.state() == state);
        match rng.u32(0..100) {
            0..45 => {
                for _ in 0..rng.usize(1..6) {
                    let like = Like {
                        lane: Some(Lane::ALL[rng.usize(0..3)]),
                        deadline: rng.bool().then(|| ms(rng.u64(1..6000))),
                        tool: (self.setting.gated && rng.bool()).then_some("capped"),
                        weight: if self.setting.gated { rng.u32(1..3) } else { 1 },
                    };
                    self.calls.push(rig.call(&self.callers[rng.usize(0..4)], like));
                }
            }
            45..60 => {
                let at_server = rig.server.at_server();
                if !at_server.is_empty() {
                    rig.server.answer(at_server[rng.usize(0..at_server.len())]);
                }
            }
            60..68 => {
                let state = if rng.bool() { State::Queued } else { State::Running };
                let some: Vec<_> = live(state).cloned().collect();
                if !some.is_empty() {
                    rig.cancel(&some[rng.usize(0..some.len())], CancelledBy::Caller);
                }
            }
            68..72 => {
                let at_server = rig.server.at_server();
                if let Some(call) = at_server.first() {
                    match rng.u32(0..3) {
                        0 => rig.server.lose(*call, true),
                        1 => rig.server.drop_run(*call),
                        _ if self.setting.hands_back => rig.server.hand_back(*call),
                        _ => {}
                    }
                }
            }
            72..74 => {
                rig.server.die(ms(rng.u64(1..3000)));
                self.up = false;
            }
            74..80 => {
                rig.server.tell(LinkEvent::Up { processes: 1 });
                // A link that comes up anew has forgotten the rest it was asked for.
                if !self.up {
                    self.rests_until = Instant::now();
                }
                self.up = true;
            }
            80 => {
                let retry_in = ms(rng.u64(1..1000));
                rig.server.tell(LinkEvent::Busy { retry_in });
                self.rests_until = self.rests_until.max(Instant::now() + retry_in);
            }
            81 => {
                rig.upstream.pause().await.unwrap();
                self.open = false;
            }
            82..85 => {
                rig.upstream.resume().await.unwrap();
                self.open = true;
            }
            85 => {
                rig.upstream.drain().await.unwrap();
                self.open = false;
            }
            86 if rng.bool() => {
                rig.fail().await;
                self.up = true;
                self.rests_until = Instant::now();
            }
            87 => {
                rig.upstream.restart().await.unwrap();
                self.up = true;
                self.rests_until = Instant::now();
            }
            88 => drop(rig.upstream.page(0, 5).await.unwrap()),
            _ => rig.pass(ms(rng.u64(1..400))).await,
        }
        rig.settle().await;
    }

    fn check(&self) {
        let (rig, setting) = (&self.rig, &self.setting);
        rig.check(&self.calls);
        let status = rig.upstream.status();
        let ledger = rig.upstream.shared().ledger.read();
        assert_eq!((ledger.queued, ledger.submitted), (u64::from(status.queued), 0), "I4, I12");
        assert_eq!(ledger.running, u64::from(status.running), "I4, I12");
        assert!(status.running + status.lingering <= setting.cap, "I1");
        if setting.exact {
            assert!(rig.server.peak() <= setting.cap as usize, "I1 as the server sees it");
        }
        if !setting.hands_back {
            assert!(status.queued <= setting.queue_size, "I2");
        }
        let rests = !self.up || !self.open || self.rests_until > Instant::now();
        if !setting.gated && !rests && status.queued > 0 {
            assert_eq!(status.running + status.lingering, setting.cap, "I9");
        }
        let now = Instant::now();
        for call in &self.calls {
            let began = rig.server.began(call.id);
            match call.ticket.ending() {
                None => {
                    let late = call.deadline.is_some_and(|deadline| deadline + ms(33) < now);
                    assert!(!late, "I7: {call:?} is alive beyond its deadline");
                }
                Some(ending) => {
                    if ending.outcome.executed() == Executed::Never && call.attempt() == 1 {
                        assert_eq!(began, 0, "I13: {call:?} was {:?}", ending.outcome);
                    }
                    if let Answer::Own(refusal) = &ending.answer
                        && let Some(wait) = refusal.retry_after_ms
                    {
                        assert!((100..=78_000).contains(&wait), "I14: {wait}");
                    }
                }
            }
            assert!(began <= call.attempt() as usize, "{call:?} was sent again");
        }
    }

    /// Lets everything come to rest, and looks at what is left.
    async fn end(mut self) {
        self.rig.upstream.resume().await.unwrap();
        self.rig.server.tell(LinkEvent::Up { processes: 1 });
        self.open = true;
        for _ in 0..200 {
            while self.rig.server.answer_next().is_some() {
                self.rig.settle().await;
            }
            if in_state(&self.calls, State::Finished) == self.calls.len() {
                break;
            }
            self.rig.pass(ms(100)).await;
        }
        self.rig.settle().await;
        assert_eq!(in_state(&self.calls, State::Finished), self.calls.len(), "I3");
        let status = self.rig.upstream.status();
        assert_eq!((status.running, status.lingering, status.queued), (0, 0, 0));
        assert_eq!(self.rig.supervisor.gates().in_flight(), 0);
        let counts = self.rig.upstream.shared().ledger.read();
        assert_eq!((counts.offered, counts.unaccounted()), (counts.finished(), 0), "I3, I4");
        self.rig.check(&self.calls);
    }
}

#[tokio::test(start_paused = true)]
async fn invariants_hold_whatever_happens() {
    for seed in 0..30 {
        let mut chaos = Chaos::new(seed);
        settle().await;
        for step in 0..STEPS {
            chaos.step().await;
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| chaos.check()));
            assert!(checked.is_ok(), "seed {seed}, step {step}");
            chaos.calls.retain(|call| call.ticket.state() != State::Finished);
        }
        chaos.end().await;
    }
}
