//! The limit on its own, and with a simulated server behind it: events in a heap, a clock of numbers, a seed.

use super::*;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A server whose calls take `pace`, and longer with so many at once.
struct Simulation {
    slowdown: fn(u32) -> f64,
    callers: u32,
    limit: Option<u32>,
    seed: u64,
}

#[derive(Debug)]
struct Seen {
    /// Of the calls of the second half, queued time included, in milliseconds.
    p95: f64,
    /// The limits in force over the second half, by the time that each was.
    limits: Vec<(u32, Duration)>,
}

impl Seen {
    fn mean_limit(&self) -> f64 {
        let total: f64 = self.limits.iter().map(|(_, time)| time.as_secs_f64()).sum();
        self.limits.iter().map(|(limit, time)| f64::from(*limit) * time.as_secs_f64()).sum::<f64>() / total
    }
}

impl Simulation {
    /// Ten minutes of callers who each call again as soon as they are answered. Each call's time is fixed by how
    /// many run when it begins.
    fn run(&self) -> Seen {
        let start = Instant::now();
        let (half, end) = (ms(300_000), ms(600_000));
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut aimd = Aimd::new(2, 20, None, self.seed, start);
        let mut waiting: VecDeque<Duration> = (0..self.callers).map(|_| Duration::ZERO).collect();
        let mut running: BinaryHeap<Reverse<(Duration, Duration, Duration)>> = BinaryHeap::new();
        let (mut waits, mut limits) = (Vec::new(), Vec::new());
        let mut now = Duration::ZERO;
        while now < end {
            let limit = self.limit.unwrap_or(aimd.limit());
            while running.len() < limit as usize
                && let Some(arrived) = waiting.pop_front()
            {
                aimd.began();
                let busy = running.len() as u32 + 1;
                let time = ms(100).mul_f64((self.slowdown)(busy) * (0.9 + 0.2 * rng.f64()));
                running.push(Reverse((now + time, now, arrived)));
            }
            aimd.in_flight(running.len() as u32);
            let Some(Reverse((ends, began, arrived))) = running.pop() else { break };
            if now >= half {
                limits.push((limit, ends - now));
                waits.push((ends - arrived).as_secs_f64() * 1000.0);
            }
            now = ends;
            aimd.answered(None, start + began, true, start + now);
            aimd.turn(start + now);
            waiting.push_back(now);
        }
        waits.sort_by(f64::total_cmp);
        Seen { p95: waits[waits.len() * 95 / 100], limits }
    }
}

/// As memory that no longer fits: each call more costs all of them.
fn thrashes(busy: u32) -> f64 {
    1.0 + f64::from(busy.saturating_sub(8))
}

/// Grows with the square.
fn degrades(busy: u32) -> f64 {
    (f64::from(busy) / 8.0).powi(2).max(1.0)
}

/// Falls off a cliff.
fn breaks(busy: u32) -> f64 {
    if busy > 8 { 12.0 } else { 1.0 }
}

#[test]
fn r17_it_settles_near_eight_on_servers_that_degrade_above_eight() {
    for (name, slowdown) in [("thrashes", thrashes as fn(u32) -> f64), ("degrades", degrades), ("breaks", breaks)] {
        for seed in 0..5 {
            let run = |limit| Simulation { slowdown, callers: 16, limit, seed }.run();
            let best = (2..=20).map(|limit| run(Some(limit)).p95).fold(f64::INFINITY, f64::min);
            let seen = run(None);
            let mean = seen.mean_limit();
            assert!((6.0..=10.0).contains(&mean), "{name}: {mean:.1} on average");
            assert!(seen.limits.iter().all(|(limit, _)| (6..=10).contains(limit)), "{name}: {mean:.1} on average");
            assert!(seen.p95 <= best * 1.5, "{name}: p95 {:.0} ms, at best {best:.0} ms", seen.p95);
        }
    }
}

#[test]
fn r17_it_grows_to_max_where_nothing_speaks_against_it() {
    let seen = Simulation { slowdown: |_| 1.0, callers: 40, limit: None, seed: 1 }.run();
    assert!(seen.limits.iter().all(|(limit, _)| *limit == 20), "{:.1}", seen.mean_limit());
}

#[test]
fn r17_a_limit_that_is_not_used_does_not_grow() {
    let seen = Simulation { slowdown: |_| 1.0, callers: 3, limit: None, seed: 1 }.run();
    let most = seen.limits.iter().map(|(limit, _)| *limit).max().unwrap();
    assert!((3..=7).contains(&most), "{most} for three callers");
}

/// Time passes in steps; a call began at each.
struct Bench {
    aimd: Aimd,
    now: Instant,
}

impl Bench {
    fn new(limit: u32) -> Self {
        let now = Instant::now();
        Bench { aimd: Aimd::new(1, 20, Some(limit), 7, now), now }
    }

    /// A second in which so many calls begin and are answered after `time`.
    fn second(&mut self, calls: u32, time: Duration) {
        let limit = self.aimd.limit();
        for _ in 0..calls {
            self.aimd.began();
            self.aimd.in_flight(limit);
            self.aimd.answered(None, self.now, true, self.now + time);
        }
        self.now += ms(1000).max(time);
        self.aimd.turn(self.now);
    }
}

#[test]
fn r17_one_decrease_a_window_however_many_signs_there_are() {
    let mut bench = Bench::new(10);
    let began = bench.now;
    bench.aimd.began();
    (0..10).for_each(|_| bench.aimd.overloaded(began));
    bench.now += ms(2000);
    assert!(bench.aimd.turn(bench.now));
    assert_eq!(bench.aimd.limit(), 9);
    // More of the same burst: calls that began under the old limit.
    (0..10).for_each(|_| bench.aimd.overloaded(began));
    bench.aimd.began();
    bench.now += ms(2000);
    assert!(!bench.aimd.turn(bench.now));
    // And of the new one.
    bench.aimd.overloaded(bench.now);
    bench.now += ms(500);
    bench.aimd.turn(bench.now);
    assert_eq!(bench.aimd.limit(), 8, "8.1, floored");
}

#[test]
fn r17_a_window_without_dispatch_changes_nothing() {
    let mut bench = Bench::new(10);
    bench.aimd.overloaded(bench.now);
    bench.now += ms(5000);
    assert!(!bench.aimd.turn(bench.now));
    assert_eq!(bench.aimd.limit(), 10);
}

#[test]
fn r17_slow_calls_of_one_tool_are_measured_by_its_own_pace() {
    let mut aimd = Aimd::new(1, 20, Some(10), 7, Instant::now());
    let mut now = aimd.moved;
    let (quick, slow): (Arc<str>, Arc<str>) = ("quick".into(), "slow".into());
    for _ in 0..10 {
        for _ in 0..20 {
            aimd.began();
            aimd.answered(Some(&quick), now, true, now + ms(10));
            aimd.answered(Some(&slow), now, true, now + ms(900));
        }
        aimd.in_flight(4);
        now += ms(1000);
        aimd.turn(now);
    }
    assert_eq!(aimd.limit(), 10, "900 ms are the slow tool's pace");
}

#[test]
fn r17_twice_the_pace_is_overload() {
    let mut bench = Bench::new(10);
    bench.second(100, ms(100));
    let before = bench.aimd.limit();
    bench.second(20, ms(250));
    assert!(bench.aimd.limit() < before, "{} of {before}", bench.aimd.limit());
}

#[test]
fn other_bounds_hold_at_once() {
    let mut bench = Bench::new(10);
    bench.aimd.bound(2, 6);
    assert_eq!(bench.aimd.limit(), 6);
    bench.aimd.bound(8, 9);
    assert_eq!(bench.aimd.limit(), 8);
}

proptest! {
    #[test]
    fn r17_the_limit_never_leaves_its_bounds(
        (min, more) in (1u32..10, 0u32..10),
        steps in prop::collection::vec((0u8..4, 0u64..3000), 1..300),
    ) {
        let max = min + more;
        let mut now = Instant::now();
        let mut aimd = Aimd::new(min, max, None, 3, now);
        for (step, time) in steps {
            let before = aimd.limit();
            match step {
                0 => aimd.began(),
                1 => (0..25).for_each(|_| aimd.answered(None, now, true, now + ms(time))),
                2 => aimd.overloaded(now),
                _ => aimd.in_flight(time as u32 % 20),
            }
            now += ms(time);
            aimd.turn(now);
            prop_assert!((min..=max).contains(&aimd.limit()));
            prop_assert!(aimd.limit() <= before + 1);
        }
    }
}
