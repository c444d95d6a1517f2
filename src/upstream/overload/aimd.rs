//! A limit on calls in flight that moves with the load, between two bounds (rule R17): up by one while calls
//! stay as quick as they were, down by a tenth when the server shows that it is too much.
//!
//! It judges by windows of at least a second and twenty calls that began under the present limit, so that what
//! an earlier limit has caused is not blamed on this one. A raise that made calls slower by a fifth is taken back;
//! after that, and after each decrease, the next raise waits for twice as many windows, up to 64, and for four
//! again once one has gone well. It begins at `min`: only a server that is not overloaded shows its pace.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest window.
const WINDOW: Duration = Duration::from_secs(1);
/// Calls that have to end in one.
const CALLS: u32 = 20;
/// Slot times kept of one window, for its median; the newest.
const KEPT: usize = 256;
/// What is left of the limit after a sign of overload.
const DECREASE: f64 = 0.9;
/// The median of slot times against their tools' pace above which a server is overloaded.
const TOO_SLOW: f64 = 2.0;
/// A raise that makes the median grow by more than this is taken back.
const WORTH: f64 = 1.2;
/// Windows before the next raise after one that went wrong.
const FIRST_WAIT: u32 = 4;
const LONGEST_WAIT: u32 = 64;
/// Tools whose pace is kept apart; the others share one.
const TOOLS: usize = 64;

/// See the module's documentation. Weights count: in flight are slots, lingering ones too.
#[derive(Debug)]
pub(crate) struct Aimd {
    min: u32,
    max: u32,
    limit: f64,
    window: Window,
    /// When the limit last moved: calls from before say nothing of it.
    moved: Instant,
    /// The median before the raise that is on trial.
    before_raise: Option<f64>,
    /// Windows to pass before the next raise, and after the next one that goes wrong.
    wait: u32,
    next_wait: u32,
    paces: HashMap<Option<Arc<str>>, Pace>,
    origin: Instant,
    rng: fastrand::Rng,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    dispatched: bool,
    overloaded: bool,
    ended: u32,
    /// The fewest slots in flight at any moment of it.
    least: u32,
    times: Vec<(Option<Arc<str>>, u32)>,
    next: usize,
}

impl Window {
    fn new(now: Instant) -> Self {
        Window {
            since: now,
            dispatched: false,
            overloaded: false,
            ended: 0,
            least: u32::MAX,
            times: Vec::new(),
            next: 0,
        }
    }

    fn keep(&mut self, tool: Option<Arc<str>>, time: u32) {
        if self.times.len() < KEPT {
            self.times.push((tool, time));
        } else {
            self.times[self.next] = (tool, time);
            self.next = (self.next + 1) % KEPT;
        }
    }
}

impl Aimd {
    /// Begins at `min`, or at `limit` where one was in force before. `seed` chooses which slot times are kept.
    pub(crate) fn new(min: u32, max: u32, limit: Option<u32>, seed: u64, now: Instant) -> Self {
        let (min, max) = (min.max(1), max.max(1));
        Aimd {
            min,
            max,
            limit: f64::from(limit.unwrap_or(min).clamp(min.min(max), max)),
            window: Window::new(now),
            moved: now,
            before_raise: None,
            wait: 0,
            next_wait: FIRST_WAIT,
            paces: HashMap::new(),
            origin: now,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Other bounds; the limit stays where it is as far as they let it.
    pub(crate) fn bound(&mut self, min: u32, max: u32) {
        (self.min, self.max) = (min.max(1), max.max(1));
        self.limit = self.limit.clamp(f64::from(self.min.min(self.max)), f64::from(self.max));
    }

    /// The limit in force.
    pub(crate) fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// A call was handed over.
    pub(crate) fn began(&mut self) {
        self.window.dispatched = true;
    }

    /// So many slots are in flight at the end of a turn.
    pub(crate) fn in_flight(&mut self, slots: u32) {
        self.window.least = self.window.least.min(slots);
    }

    /// A call that began then was answered. `well` is whether with a result that is no error: how long a
    /// failure takes says nothing of the server's pace.
    pub(crate) fn answered(&mut self, tool: Option<&Arc<str>>, began: Instant, well: bool, now: Instant) {
        let time = u32::try_from(now.saturating_duration_since(began).as_micros()).unwrap_or(u32::MAX);
        let minute = self.minute(now);
        let mut tool = tool.cloned();
        if well {
            if !self.paces.contains_key(&tool) && self.paces.len() >= TOOLS {
                self.paces.retain(|_, pace| pace.is_known(minute));
                if self.paces.len() >= TOOLS {
                    tool = None;
                }
            }
            self.paces.entry(tool.clone()).or_default().add(time, minute, &mut self.rng);
        }
        if began >= self.moved {
            self.window.ended += 1;
            if well {
                self.window.keep(tool, time);
            }
        }
    }

    /// A call that began then ended in a way that shows overload: timed out by `call_timeout`, its link broken, or
    /// answered that the server is busy.
    pub(crate) fn overloaded(&mut self, began: Instant) {
        if began >= self.moved {
            self.window.overloaded = true;
        }
    }

    /// Closes a window that is over; whether the limit is another now.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        let window = &self.window;
        let over = now.saturating_duration_since(window.since) >= WINDOW;
        if !over || window.ended < CALLS && !window.overloaded {
            return false;
        }
        let minute = self.minute(now);
        let window = std::mem::replace(&mut self.window, Window::new(now));
        if !window.dispatched {
            return false;
        }
        let median = self.median(&window, minute);
        let before = self.limit();
        self.judge(&window, median);
        let moved = self.limit() != before;
        if moved {
            self.moved = now;
        }
        moved
    }

    fn judge(&mut self, window: &Window, median: Option<f64>) {
        let before_raise = self.before_raise.take();
        if window.overloaded || median.is_some_and(|median| median > TOO_SLOW) {
            self.limit = (self.limit * DECREASE).max(f64::from(self.min));
            return self.back_off();
        }
        let Some(median) = median else { return };
        if let Some(before) = before_raise {
            if median > before * WORTH {
                self.limit = (self.limit - 1.0).max(f64::from(self.min));
                return self.back_off();
            }
            self.next_wait = FIRST_WAIT;
        }
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        // A limit that is not used says nothing of whether more would do.
        let is_used = f64::from(window.least) * 2.0 >= f64::from(self.limit());
        if is_used && self.limit() < self.max {
            self.limit = (self.limit + 1.0).min(f64::from(self.max));
            self.before_raise = Some(median);
        }
    }

    fn back_off(&mut self) {
        self.wait = self.next_wait;
        self.next_wait = (self.next_wait * 2).min(LONGEST_WAIT);
    }

    /// The median over a window of slot time against the tool's pace.
    fn median(&mut self, window: &Window, minute: u64) -> Option<f64> {
        let mut paces: HashMap<&Option<Arc<str>>, Option<u32>> = HashMap::new();
        let mut ratios = Vec::with_capacity(window.times.len());
        for (tool, time) in &window.times {
            let pace = *paces.entry(tool).or_insert_with(|| self.paces.get(tool)?.tenth(minute));
            ratios.extend(pace.map(|pace| f64::from(*time) / f64::from(pace.max(1))));
        }
        let middle = ratios.len() / 2;
        (!ratios.is_empty()).then(|| *ratios.select_nth_unstable_by(middle, f64::total_cmp).1)
    }

    fn minute(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.origin).as_secs() / 60
    }
}

/// How quick a tool can be: the tenth percentile of five minutes, from so many samples of each.
#[derive(Debug, Default)]
struct Pace([Minute; 5]);

#[derive(Debug, Default)]
struct Minute {
    number: u64,
    seen: u32,
    kept: Vec<u32>,
}

const SAMPLES: usize = 64;

impl Pace {
    fn add(&mut self, time: u32, minute: u64, rng: &mut fastrand::Rng) {
        let at = &mut self.0[(minute % 5) as usize];
        if at.number != minute {
            (at.number, at.seen) = (minute, 0);
            at.kept.clear();
        }
        at.seen = at.seen.saturating_add(1);
        if at.kept.len() < SAMPLES {
            at.kept.push(time);
        } else if let Some(kept) = at.kept.get_mut(rng.u32(..at.seen) as usize) {
            *kept = time;
        }
    }

    fn fresh(&self, minute: u64) -> impl Iterator<Item = &Minute> {
        self.0.iter().filter(move |at| at.seen > 0 && at.number + 5 > minute)
    }

    fn is_known(&self, minute: u64) -> bool {
        self.fresh(minute).next().is_some()
    }

    fn tenth(&self, minute: u64) -> Option<u32> {
        let mut times: Vec<u32> = self.fresh(minute).flat_map(|at| at.kept.iter().copied()).collect();
        let tenth = times.len() / 10;
        (!times.is_empty()).then(|| *times.select_nth_unstable(tenth).1)
    }
}

#[cfg(test)]
mod tests;
