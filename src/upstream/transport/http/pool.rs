//! The workers of one upstream: who runs what, who is idle on which runtime thread, what is held.
//!
//! A worker is a task with a connection of its own. It is spawned when a call finds no idle one on its home
//! thread, and retires after [`IDLE`]. Nothing queues here: the actor hands over no more runs than it has
//! slots, so the number of workers is bounded by the live limit.

use super::Inner;
use super::worker;
use crate::upstream::connection::{Run, RunId, StopReason};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a worker, and its connection, is kept without work.
pub(super) const IDLE: Duration = Duration::from_secs(10);

/// See the module's documentation.
pub(super) struct Pool {
    homes: Vec<Handle>,
    state: Mutex<State>,
    /// Told when no worker has a run any more.
    quiet: Notify,
}

#[derive(Default)]
struct State {
    /// A stack per runtime thread, so that the connection used last is used next.
    idle: Vec<Vec<(Arc<Cell>, Instant)>>,
    runs: HashMap<RunId, Holder>,
    workers: usize,
    busy: usize,
    reaping: bool,
    closed: bool,
}

/// Who has a run.
enum Holder {
    Worker(Arc<Cell>),
    /// Its exchange is over, its slot is kept (`after_cancel = "hold"`).
    Held(Run),
}

/// The place where a worker is given its work. It holds at most one run.
#[derive(Default)]
pub(super) struct Cell {
    inner: Mutex<Inbox>,
    waker: AtomicWaker,
}

#[derive(Default)]
struct Inbox {
    run: Option<Run>,
    /// The run in hand, for which an order is meant.
    current: Option<RunId>,
    order: Option<Order>,
    retire: bool,
    /// Its worker has ended: what is put here now would lie here for ever.
    dead: bool,
}

/// What a worker is told about the run in its hands; a weaker order after a stronger one changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// The call has ended for its caller.
    Stop(Why),
    /// The exchange is to be dropped.
    Recycle,
    /// Everything is given up.
    Reset,
}

/// [`StopReason`], ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    Cancelled,
    TimedOut,
    Shutdown,
}

impl From<StopReason> for Why {
    fn from(reason: StopReason) -> Why {
        match reason {
            StopReason::Cancelled => Why::Cancelled,
            StopReason::TimedOut => Why::TimedOut,
            StopReason::Shutdown => Why::Shutdown,
        }
    }
}

impl From<Why> for StopReason {
    fn from(why: Why) -> StopReason {
        match why {
            Why::Cancelled => StopReason::Cancelled,
            Why::TimedOut => StopReason::TimedOut,
            Why::Shutdown => StopReason::Shutdown,
        }
    }
}

/// What a parked worker does next.
pub(super) enum Next {
    Run(Run),
    Retire,
}

impl Cell {
    /// The next piece of work.
    pub(super) fn poll_next(&self, context: &Context<'_>) -> Poll<Next> {
        self.waker.register(context.waker());
        let mut inbox = self.inner.lock();
        match inbox.run.take() {
            Some(run) => Poll::Ready(Next::Run(run)),
            None if inbox.retire => Poll::Ready(Next::Retire),
            None => Poll::Pending,
        }
    }

    /// An order for the run in hand, given out once.
    pub(super) fn poll_order(&self, context: &Context<'_>) -> Option<Order> {
        self.waker.register(context.waker());
        self.inner.lock().order.take()
    }

    /// Hands the run back if the worker has ended meanwhile.
    fn give(&self, run: Run) -> Result<(), Run> {
        let mut inbox = self.inner.lock();
        if inbox.dead {
            return Err(run);
        }
        inbox.current = Some(run.id);
        inbox.order = None;
        inbox.run = Some(run);
        drop(inbox);
        self.waker.wake();
        Ok(())
    }

    fn order(&self, run: RunId, order: Order) {
        let mut inbox = self.inner.lock();
        if inbox.current != Some(run) {
            return;
        }
        inbox.order = inbox.order.max(Some(order));
        drop(inbox);
        self.waker.wake();
    }

    fn retire(&self) {
        self.inner.lock().retire = true;
        self.waker.wake();
    }

    fn done(&self) {
        let mut inbox = self.inner.lock();
        inbox.current = None;
        inbox.order = None;
    }
}

impl Pool {
    /// `homes` has one handle per runtime thread, at least one.
    pub(super) fn new(homes: Vec<Handle>) -> Pool {
        let idle = homes.iter().map(|_| Vec::new()).collect();
        Pool { homes, state: Mutex::new(State { idle, ..State::default() }), quiet: Notify::new() }
    }

    /// The thread for everything that belongs to no call.
    pub(super) fn home(&self) -> &Handle {
        &self.homes[0]
    }

    /// Hands a run to an idle worker, or to a new one.
    pub(super) fn begin(&self, http: &Arc<Inner>, mut run: Run) {
        // Each turn but the last finds a worker that has just ended, which is idle for nobody any more.
        while let Err(back) = self.try_begin(http, run) {
            run = back;
        }
    }

    fn try_begin(&self, http: &Arc<Inner>, run: Run) -> Result<(), Run> {
        let home = run.call.home % self.homes.len();
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            run.lost(false, "the upstream is closed");
            return Ok(());
        }
        state.busy += 1;
        let idle = match state.idle[home].pop() {
            Some(idle) => Some(idle),
            // A worker on another thread costs a wake-up across threads at every step of the call; a new
            // connection costs once.
            None if state.workers < http.most_workers() => None,
            None => state.idle.iter_mut().find_map(Vec::pop),
        };
        let id = run.id;
        let (cell, is_new) = match idle {
            Some((cell, _)) => (cell, false),
            None => (Arc::new(Cell::default()), true),
        };
        state.runs.insert(id, Holder::Worker(cell.clone()));
        state.workers += usize::from(is_new);
        drop(state);
        if let Err(run) = cell.give(run) {
            let mut state = self.state.lock();
            // A reset may have taken it out already.
            state.runs.remove(&id);
            self.one_less(&mut state);
            return Err(run);
        }
        if is_new {
            let seat = Seat { http: http.clone(), cell, home };
            self.homes[home].spawn(worker::work(seat));
        }
        Ok(())
    }

    /// A worker has no run any more.
    fn one_less(&self, state: &mut State) {
        state.busy -= 1;
        if state.busy == 0 {
            self.quiet.notify_waiters();
        }
    }

    /// Passes an order on to whoever has the run; one that is held is given back.
    pub(super) fn order(&self, run: RunId, order: Order) {
        let mut state = self.state.lock();
        match state.runs.get(&run) {
            None => {}
            Some(Holder::Worker(cell)) => {
                let cell = cell.clone();
                drop(state);
                cell.order(run, order);
            }
            Some(Holder::Held(_)) if matches!(order, Order::Stop(_)) => {}
            Some(Holder::Held(_)) => {
                let held = state.runs.remove(&run);
                drop(state);
                give_back(held);
            }
        }
    }

    /// Gives up every run and every connection. With `close`, no worker ever works again.
    pub(super) fn clear(&self, close: bool) {
        let mut state = self.state.lock();
        state.closed |= close;
        let runs = std::mem::take(&mut state.runs);
        let idle: Vec<_> = state.idle.iter_mut().flat_map(std::mem::take).collect();
        drop(state);
        for (run, holder) in runs {
            match holder {
                Holder::Worker(cell) => cell.order(run, Order::Reset),
                held @ Holder::Held(_) => give_back(Some(held)),
            }
        }
        for (cell, _) in idle {
            cell.retire();
        }
    }

    /// Waits until no worker has a run.
    pub(super) async fn quiet(&self) {
        loop {
            let quiet = self.quiet.notified();
            tokio::pin!(quiet);
            quiet.as_mut().enable();
            if self.state.lock().busy == 0 {
                return;
            }
            quiet.await;
        }
    }

    fn reap(&self, http: &Arc<Inner>) {
        let http = http.clone();
        self.home().spawn(async move {
            loop {
                tokio::time::sleep(IDLE).await;
                let now = Instant::now();
                let mut old = Vec::new();
                let mut state = http.pool.state.lock();
                for idle in &mut state.idle {
                    // Oldest at the bottom.
                    let fresh = idle.iter().take_while(|(_, since)| now.duration_since(*since) >= IDLE).count();
                    old.extend(idle.drain(..fresh));
                }
                let done = state.idle.iter().all(Vec::is_empty);
                state.reaping = !done;
                drop(state);
                for (cell, _) in old {
                    cell.retire();
                }
                if done {
                    return;
                }
            }
        });
    }

    #[cfg(test)]
    pub(super) fn figures(&self) -> (usize, usize, usize) {
        let state = self.state.lock();
        (state.workers, state.idle.iter().map(Vec::len).sum(), state.runs.len())
    }
}

/// A worker's place in the pool; dropping it leaves the pool, a panic included.
pub(super) struct Seat {
    pub(super) http: Arc<Inner>,
    pub(super) cell: Arc<Cell>,
    home: usize,
}

impl Seat {
    /// The run's exchange is over and the worker can take another. False if it shall retire.
    ///
    /// With `hold`, the run's slot is kept until [`Order::Recycle`], a reset, or the given moment.
    pub(super) fn finish(&self, run: RunId, hold: Option<(Run, Option<Instant>)>) -> bool {
        let pool = &self.http.pool;
        self.cell.done();
        let mut state = pool.state.lock();
        pool.one_less(&mut state);
        // A run that is gone from the table was given up by a reset, and so is its worker.
        if state.runs.remove(&run).is_none() {
            drop(state);
            give_back(hold.map(|(held, _)| Holder::Held(held)));
            return false;
        }
        let mut until = None;
        if let Some((held, end)) = hold {
            state.runs.insert(run, Holder::Held(held));
            until = end;
        }
        let keep = !state.closed && state.workers <= self.http.most_workers();
        let mut reap = false;
        if keep {
            state.idle[self.home].push((self.cell.clone(), Instant::now()));
            reap = !std::mem::replace(&mut state.reaping, true);
        }
        drop(state);
        if reap {
            pool.reap(&self.http);
        }
        if let Some(until) = until {
            let http = self.http.clone();
            pool.home().spawn(async move {
                tokio::time::sleep_until(until).await;
                http.pool.order(run, Order::Recycle);
            });
        }
        keep
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let pool = &self.http.pool;
        let mut inbox = self.cell.inner.lock();
        inbox.dead = true;
        let (run, current) = (inbox.run.take(), inbox.current.take());
        drop(inbox);
        let mut state = pool.state.lock();
        state.workers -= 1;
        // One that failed while it answered counts as idle already.
        state.idle[self.home].retain(|(cell, _)| !Arc::ptr_eq(cell, &self.cell));
        if let Some(current) = current {
            state.runs.remove(&current);
            pool.one_less(&mut state);
        }
        drop(state);
        match run {
            None => {}
            // Given to a worker that never came to take it.
            Some(run) if std::thread::panicking() => run.hand_back(),
            Some(run) => run.lost(false, "the runtime thread of the call has ended"),
        }
    }
}

fn give_back(holder: Option<Holder>) {
    if let Some(Holder::Held(run)) = holder {
        run.lost(true, "the exchange was given up");
    }
}
