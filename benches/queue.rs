//! The queue core by itself: what an operation costs at several depths, and that none of the hot ones
//! allocates. The whole path of a call is measured elsewhere.
//!
//! `cargo bench --bench queue`. Times wander on a shared machine; the allocation count does not, so it is the
//! one that is asserted (before the timing starts).

use divan::{Bencher, black_box};
use forebay::caller::{CallerId, Lane};
use forebay::config::{Fairness, OnFull};
use forebay::upstream::queue::{
    Admitted, Core, Due, EntryId, FlowKey, Gate, Moment, Next, Offer, Open, Pass, Settings, ToolKey, Withdrawn,
};
use std::sync::Arc;
use std::time::Duration;

type Job = Arc<u64>;

/// Entries queued and the callers they are spread over.
const DEPTHS: [(u32, u32); 4] = [(0, 1), (1_000, 64), (100_000, 256), (100_000, 10_000)];

fn main() {
    nothing_allocates();
    divan::main();
}

/// A core with `depth` entries queued, and what keeps it moving.
struct Load {
    core: Core<Job>,
    running: EntryId,
    callers: u32,
    now: Moment,
    turn: u32,
    job: Job,
}

impl Load {
    fn new((depth, callers): (u32, u32)) -> Self {
        Load::with(Settings {
            max_concurrent: 1,
            queue_size: depth + 16,
            queue_bytes: u64::MAX,
            on_full: OnFull::Displace,
            fairness: Fairness::Callers,
            max_queued: None,
            sojourn: None,
            tool_caps: vec![Some(4)],
        })
        .fill(depth, callers)
    }

    fn with(settings: Settings) -> Self {
        let now = Moment(1_000_000);
        let mut core = Core::new(settings, now);
        let job = Arc::new(0);
        let offer = offer(job.clone(), 0, 0, now, None);
        let Admitted::Run(running, _) = core.offer(offer, now, &mut Open) else { panic!("the first runs") };
        Load { core, running, callers: 1, now, turn: 0, job }
    }

    fn fill(mut self, depth: u32, callers: u32) -> Self {
        self.callers = callers;
        for _ in 0..depth {
            self.admit(None);
        }
        self
    }

    fn admit(&mut self, tool: Option<ToolKey>) -> Option<EntryId> {
        self.turn = self.turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let caller = (self.turn >> 8) % self.callers;
        let offer = offer(self.job.clone(), caller, self.turn >> 30, self.now, tool);
        match self.core.offer(offer, self.now, &mut Open) {
            Admitted::Queued { id, .. } => Some(id),
            Admitted::Run(id, _) => {
                self.running = id;
                None
            }
            Admitted::Refused { .. } | Admitted::Gone(_) => None,
        }
    }

    /// One call comes, one ends, one is served: the depth stays.
    fn cycle(&mut self, gate: &mut impl Gate<Job>) {
        self.now.0 += 7;
        self.admit(None);
        self.core.complete(self.running, Duration::from_micros(50));
        if let Some(Next::Run(id, job)) = self.core.next(self.now, gate) {
            self.core.run_until(id, self.now.after(Duration::from_secs(120)));
            self.running = id;
            black_box(job);
        }
    }
}

fn offer(job: Job, caller: u32, lane: u32, now: Moment, tool: Option<ToolKey>) -> Offer<Job> {
    Offer {
        job,
        lane: Lane::ALL[lane as usize % 3],
        caller: CallerId(caller),
        caller_weight: 1,
        caller_limit: None,
        tool,
        weight: 1,
        bytes: 100,
        expires: Some(now.after(Duration::from_secs(3600))),
        deadline: None,
        max_queued: None,
        others_seen: false,
    }
}

#[divan::bench(args = DEPTHS, sample_size = 2_000)]
fn admit_complete_dispatch(bencher: Bencher, depth: (u32, u32)) {
    let mut load = Load::new(depth);
    bencher.bench_local(|| load.cycle(&mut Open));
}

#[divan::bench(args = DEPTHS, sample_size = 2_000)]
fn admit_and_cancel(bencher: Bencher, depth: (u32, u32)) {
    let mut load = Load::new(depth);
    bencher.bench_local(|| {
        if let Some(id) = load.admit(None) {
            assert!(matches!(load.core.withdraw(id), Withdrawn::Queued(_)));
        }
    });
}

#[divan::bench(args = DEPTHS, sample_size = 2_000)]
fn admit_complete_dispatch_of_4096_slots(bencher: Bencher, (depth, callers): (u32, u32)) {
    let mut load = Load::with(Settings {
        max_concurrent: 4096,
        queue_size: depth + 16,
        queue_bytes: u64::MAX,
        on_full: OnFull::Displace,
        fairness: Fairness::Callers,
        max_queued: None,
        sojourn: None,
        tool_caps: Vec::new(),
    });
    load.callers = callers;
    for _ in 0..4095 {
        load.admit(None);
    }
    let mut load = load.fill(depth, callers);
    bencher.bench_local(|| load.cycle(&mut Open));
}

#[divan::bench(args = DEPTHS, sample_size = 2_000)]
fn refuse_for_want_of_a_place(bencher: Bencher, depth: (u32, u32)) {
    let mut load = Load::new(depth);
    let full = Settings { queue_size: depth.0, on_full: OnFull::Reject, ..load.core.settings().clone() };
    load.core.reconfigure(full, load.now);
    bencher.bench_local(|| load.admit(None));
}

#[divan::bench(args = DEPTHS, sample_size = 100)]
fn page_of_64(bencher: Bencher, depth: (u32, u32)) {
    let mut load = Load::new(depth);
    bencher.bench_local(|| load.core.page(0, 64));
}

#[divan::bench(args = [1_000, 100_000], sample_count = 20)]
fn mass_expiry(bencher: Bencher, depth: u32) {
    bencher.with_inputs(|| (Load::new((depth, 64)), Vec::with_capacity(depth as usize))).bench_local_values(
        |(mut load, mut out): (Load, Vec<Due<Job>>)| {
            let later = load.now.after(Duration::from_secs(3700));
            while load.core.due(later, &mut out, 1024) {}
            assert_eq!(out.len() as u32, depth);
            (load, out)
        },
    );
}

/// Once the high-water mark is reached, nothing on a call's way allocates.
fn nothing_allocates() {
    for depth in DEPTHS {
        let mut load = Load::new(depth);
        // Every turn that could be needed at once has been made when each has been through its lanes.
        for _ in 0..20_000 {
            load.cycle(&mut Open);
        }
        let tool = Some(ToolKey(0));
        let mut parks = |_: &Job, flow: FlowKey| if flow.caller.0 == 1 { Pass::Park } else { Pass::Go };
        let mut out: Vec<Due<Job>> = Vec::with_capacity(1024);
        let mut round = |load: &mut Load| {
            for turn in 0..1_000 {
                load.cycle(&mut Open);
                if let Some(id) = load.admit(tool) {
                    let _ = load.core.withdraw(id);
                }
                if let Some(id) = load.admit(None) {
                    let edited = load.core.set_lane(id, Lane::High);
                    black_box(edited);
                    let _ = load.core.withdraw(id);
                }
                if turn % 100 == 0 {
                    load.cycle(&mut parks);
                    for lane in Lane::ALL {
                        load.core.unpark(FlowKey { lane, caller: CallerId(1), tool: None });
                    }
                    load.core.hand_back(load.running);
                    if let Some(Next::Run(id, _)) = load.core.next(load.now, &mut Open) {
                        load.core.linger(id, None);
                        load.running = id;
                    }
                }
                while load.core.abandoned().is_some() {}
                load.core.due(load.now, &mut out, 1024);
                black_box((load.core.figures(), load.core.next_due()));
            }
        };
        round(&mut load);
        // Full, so that newcomers displace: the chains of lengths are made here and then kept.
        for _ in 0..64 {
            load.admit(None);
        }
        round(&mut load);
        let counted = allocation_counter::measure(|| round(&mut load));
        assert_eq!(counted.count_total, 0, "allocations at depth {depth:?}");
    }
}
