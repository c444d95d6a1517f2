//! The children of one upstream: which are up, what is open with each, who gets the next call (rule R22).
//!
//! Everything sits behind one short lock that is never held across an await. Runs are ended outside it.
//!
//! ```text
//! idle -> starting -> up (perhaps suspect) -> ending -> backing off -> starting ...
//!             '--------------------------------^           any -> closed
//! ```

use super::book::{Book, Entry, WireId};
use super::fault::{Fault, LastFault};
use super::outbound::Outbound;
use super::probe::Probe;
use super::quiet::Quiet;
use super::stderr::StderrTail;
use super::{Backoff, message};
use crate::protocol::splice;
use crate::protocol::version::Era;
use crate::upstream::connection::{AskError, LinkEvent, Run, ServerInfo};
use crate::upstream::shared::UpstreamShared;
use bytes::Bytes;
use forebay_wire::Level;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

/// What the connection's methods and its tasks share.
pub(super) struct Inner {
    pub(super) shared: Arc<UpstreamShared>,
    pub(super) starts: Arc<Semaphore>,
    pub(super) pool: Mutex<Pool>,
    pub(super) signals: Vec<Signals>,
    pub(super) stderr: StderrTail,
    pub(super) noise: AtomicU64,
    pub(super) noise_log: Quiet,
    pub(super) late: AtomicU64,
    pub(super) restarts: AtomicU64,
    /// Told whenever a member's task has ended.
    pub(super) ended: Notify,
}

/// What is said to one member's task without the lock.
#[derive(Default)]
pub(super) struct Signals {
    /// Something waits to be written.
    pub(super) out: Notify,
    /// An order was given.
    pub(super) order: Notify,
    /// Something changed that the watch looks at: a probe, a suspect, changed lists.
    pub(super) watch: Notify,
    /// Bytes written to this child.
    pub(super) written: AtomicU64,
    /// Reads that brought something from this child.
    pub(super) heard: AtomicU64,
    /// The member is suspect; kept here so that a read need not take the lock to know.
    pub(super) suspect: AtomicBool,
}

pub(super) struct Pool {
    pub(super) members: Vec<Member>,
    /// The server's era, known from an earlier handshake.
    pub(super) era: Option<Era>,
    pub(super) info: Option<Arc<ServerInfo>>,
    /// None once a child is up, and for what was ordered.
    pub(super) fault: Option<LastFault>,
    pub(super) rng: fastrand::Rng,
    pub(super) opened: bool,
    pub(super) closing: bool,
    /// Members whose task has not ended.
    pub(super) alive: usize,
    told: Told,
    ups: u64,
}

/// The link as the actor was last told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Up(u32),
    Down,
    Final,
}

#[derive(Default)]
pub(super) struct Member {
    pub(super) phase: Phase,
    pub(super) book: Book,
    pub(super) out: Outbound,
    pub(super) probe: Option<Probe>,
    pub(super) order: Option<Order>,
    pub(super) pid: Option<u32>,
    /// Only `server/discover` has been sent so far: a child that ends now may have ended of it.
    pub(super) probing_era: bool,
    pub(super) lists_changed: bool,
    /// How long to wait before the next start; none starts at once.
    pub(super) retry: Option<Duration>,
    pub(super) backoff: Backoff,
    suspect: bool,
    starts: u64,
    /// How many lines of standard error there had been before this child's first.
    stderr_from: u64,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Phase {
    #[default]
    Idle,
    Starting,
    Up {
        /// Members that came up earlier have lower numbers.
        order: u64,
        era: Era,
        since: Instant,
    },
    Ending,
    BackingOff,
    Closed,
}

/// What a child's life is ended for from outside. The stronger order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    Recycle,
    Reset,
    Close,
}

impl Member {
    /// The era of a child that takes calls.
    pub(super) fn takes_calls(&self) -> Option<Era> {
        match self.phase {
            Phase::Up { era, .. } if !self.suspect => Some(era),
            _ => None,
        }
    }

    pub(super) fn era(&self) -> Option<Era> {
        match self.phase {
            Phase::Up { era, .. } => Some(era),
            _ => None,
        }
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.suspect
    }

    pub(super) fn give_order(&mut self, order: Order) {
        self.order = self.order.max(Some(order));
    }
}

impl Inner {
    pub(super) fn new(shared: Arc<UpstreamShared>, starts: Arc<Semaphore>, processes: usize, seed: u64) -> Arc<Self> {
        Arc::new(Inner {
            shared,
            starts,
            pool: Mutex::new(Pool {
                members: (0..processes).map(|_| Member::default()).collect(),
                era: None,
                info: None,
                fault: None,
                rng: fastrand::Rng::with_seed(seed),
                opened: false,
                closing: false,
                alive: 0,
                told: Told::Nothing,
                ups: 0,
            }),
            signals: (0..processes).map(|_| Signals::default()).collect(),
            stderr: StderrTail::default(),
            noise: AtomicU64::new(0),
            noise_log: Quiet::default(),
            late: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            ended: Notify::new(),
        })
    }

    /// Gives a call to the least loaded child that is up; hands it back if there is none with room. The latter
    /// is so only while the actor has yet to hear that a child is gone.
    pub(super) fn begin(&self, run: Run) {
        let now = Instant::now();
        let back = {
            let mut pool = self.pool.lock();
            match pool.least_loaded(run.share) {
                None => Some(run),
                Some((index, era)) => {
                    let member = &mut pool.members[index];
                    let (call, left) = (run.call.clone(), run.left_ms(now));
                    match member.book.open_call(run) {
                        Err(run) => Some(run),
                        Ok(id) => {
                            let mut message = Vec::with_capacity(call.request.body.len() + 256);
                            splice::request(&mut message, &call.request, &call.outbound(id.0, left, era));
                            message::flatten(&mut message);
                            message.push(b'\n');
                            if member.out.put_call(id, message) {
                                self.signals[index].out.notify_one();
                            }
                            None
                        }
                    }
                }
            }
        };
        if let Some(run) = back {
            run.no_room();
        }
    }

    /// Sends a request of our own to one child. The guard forgets it when dropped.
    pub(super) fn ask(
        self: &Arc<Self>,
        index: usize,
        method: &str,
        params: Option<&str>,
        era: Era,
    ) -> Result<Asked, AskError> {
        let mut pool = self.pool.lock();
        let member = &mut pool.members[index];
        let (id, answered) = member.book.open_ask()?;
        if member.out.put_request(id, message::request(id, method, params, era)) {
            self.signals[index].out.notify_one();
        }
        Ok(Asked { inner: self.clone(), index, id, answered })
    }

    /// Waits for an order to a member.
    pub(super) async fn ordered(&self, index: usize) -> Order {
        loop {
            if let Some(order) = self.pool.lock().members[index].order.take() {
                return order;
            }
            self.signals[index].order.notified().await;
        }
    }

    /// A child is about to be started.
    pub(super) fn starting(&self, index: usize) {
        let mut pool = self.pool.lock();
        let lines = self.stderr.ever();
        if let Some(fault) = &mut pool.fault {
            fault.stderr.end = fault.stderr.end.min(lines);
        }
        let member = &mut pool.members[index];
        member.phase = Phase::Starting;
        member.retry = None;
        // What was ordered of an earlier child is done; only an order to close stands.
        member.order = member.order.filter(|order| *order == Order::Close);
        member.stderr_from = lines;
        member.starts += 1;
        if member.starts > 1 {
            self.restarts.fetch_add(1, Relaxed);
        }
    }

    /// The child runs; nothing has been said yet.
    pub(super) fn attach(&self, index: usize, pid: Option<u32>) {
        let mut pool = self.pool.lock();
        let member = &mut pool.members[index];
        member.pid = pid;
        member.out.reset();
        member.probe = None;
        self.signals[index].written.store(0, Relaxed);
    }

    /// The handshake is done: the child takes calls.
    pub(super) fn up(&self, index: usize, info: ServerInfo) {
        let mut pool = self.pool.lock();
        let pool = &mut *pool;
        let member = &mut pool.members[index];
        if member.phase != Phase::Starting {
            return;
        }
        pool.ups += 1;
        member.phase = Phase::Up { order: pool.ups, era: info.era, since: Instant::now() };
        pool.fault = None;
        pool.era = Some(info.era);
        pool.info = Some(Arc::new(info));
        pool.announce_up(&self.shared);
    }

    pub(super) fn set_suspect(&self, pool: &mut Pool, index: usize, suspect: bool) {
        pool.members[index].suspect = suspect;
        self.signals[index].suspect.store(suspect, Relaxed);
        if pool.up() > 0 {
            pool.announce_up(&self.shared);
        } else if suspect {
            pool.told = Told::Down;
            pool.fault = None;
            self.shared.tell(LinkEvent::Down { fault: "silent after a cancel".into(), retry_in: Duration::ZERO });
        }
    }

    /// A child's life is ending (or did not begin): no more calls, and the next start is planned.
    pub(super) fn ending(&self, index: usize, fault: &Fault) {
        let mut pool = self.pool.lock();
        let pool = &mut *pool;
        let member = &mut pool.members[index];
        let healthy = match member.phase {
            Phase::Up { since, .. } => since.elapsed(),
            _ => Duration::ZERO,
        };
        if !matches!(member.phase, Phase::Up { .. } | Phase::Ending) && !fault.ordered {
            // Some servers die of a request before `initialize`: next time they are not probed first.
            pool.era = member.probing_era.then_some(Era::Legacy);
        }
        member.probing_era = false;
        member.phase = Phase::Ending;
        member.suspect = false;
        member.probe = None;
        self.signals[index].suspect.store(false, Relaxed);
        let delay = match fault.ordered {
            true => Duration::ZERO,
            false => member.backoff.next(healthy, fault.is_final, &mut pool.rng),
        };
        member.retry = (!delay.is_zero()).then_some(delay);
        if !pool.closing {
            tracing::info!(upstream = %self.shared.name, fault = %fault.detail(), ?delay, "child ended");
            let stderr = member.stderr_from..u64::MAX;
            pool.fault = (!fault.ordered).then(|| LastFault { detail: fault.detail().to_owned(), stderr });
            let level = if fault.ordered { Level::Info } else { Level::Warn };
            self.shared.log(level, "upstream.exit", || {
                format!(
                    "a process of {} ended: {}; the next is started in {:.1} s",
                    self.shared.name,
                    fault.detail(),
                    delay.as_secs_f64()
                )
            });
            pool.announce_end(&self.shared, fault, delay);
        }
    }

    /// The child has been reaped: its number may soon be another's.
    pub(super) fn reaped(&self, index: usize) {
        self.pool.lock().members[index].pid = None;
    }

    /// The child is gone: whatever was open with it ends, or goes back if no byte of it was written.
    pub(super) fn detach(&self, index: usize, note: &str) {
        let (open, written) = {
            let mut pool = self.pool.lock();
            let member = &mut pool.members[index];
            member.pid = None;
            member.out.reset();
            (member.book.close_all(), self.signals[index].written.load(Relaxed))
        };
        end_all(open, written, note);
    }
}

/// Ends entries in such an order that calls that go back to the head of their flow stand there as before:
/// the newest is handed back first.
pub(super) fn end_all(open: Vec<Entry>, written: u64, note: &str) {
    for entry in open.into_iter().rev() {
        match entry {
            Entry::Call(call) => call.end(written, note),
            Entry::Ask(asked) => drop(asked.send(Err(AskError::Down(note.to_owned())))),
            Entry::Probe => {}
        }
    }
}

/// Gives back the slots of calls that were stopped and that the server has ended without an answer.
pub(super) fn release(runs: Vec<Run>) {
    for run in runs {
        run.release(crate::upstream::connection::How::Answered);
    }
}

impl Pool {
    pub(super) fn up(&self) -> u32 {
        self.members.iter().filter(|member| member.takes_calls().is_some()).count() as u32
    }

    /// The child that is up and holds the fewest calls, if they are fewer than its `share`.
    fn least_loaded(&self, share: u32) -> Option<(usize, Era)> {
        let up = self.members.iter().enumerate();
        let up = up.filter_map(|(index, member)| Some((member.book.load(), index, member.takes_calls()?)));
        let with_room = up.filter(|(load, ..)| *load < share as usize);
        with_room.min_by_key(|(load, index, _)| (*load, *index)).map(|(_, index, era)| (index, era))
    }

    /// The child that has been up longest: lists come from it.
    pub(super) fn oldest_up(&self) -> Option<(usize, Era)> {
        let up = self.members.iter().enumerate();
        let up = up.filter_map(|(index, member)| match member.phase {
            Phase::Up { order, era, .. } if !member.suspect => Some((order, index, era)),
            _ => None,
        });
        up.min_by_key(|(order, ..)| *order).map(|(_, index, era)| (index, era))
    }

    pub(super) fn find(&self, run: crate::upstream::connection::RunId) -> Option<(usize, WireId)> {
        self.members.iter().enumerate().find_map(|(index, member)| Some((index, member.book.find(run)?)))
    }

    fn announce_up(&mut self, shared: &UpstreamShared) {
        let processes = self.up();
        if processes > 0 && self.told != Told::Up(processes) {
            self.told = Told::Up(processes);
            shared.tell(LinkEvent::Up { processes });
        }
    }

    fn announce_end(&mut self, shared: &UpstreamShared, fault: &Fault, retry_in: Duration) {
        if self.up() > 0 {
            return self.announce_up(shared);
        }
        let text = fault.text.clone();
        if fault.ordered && self.told == Told::Down {
            // Whoever ordered it has told already.
        } else if !fault.is_final {
            self.told = Told::Down;
            shared.tell(LinkEvent::Down { fault: text, retry_in });
        } else if self.told != Told::Final {
            // It is tried again now and then all the same, which is no news unless it succeeds.
            self.told = Told::Final;
            shared.tell(LinkEvent::Final { fault: text });
        }
    }

    pub(super) fn announce_reset(&mut self, shared: &UpstreamShared, why: &str) {
        self.told = Told::Down;
        self.fault = None;
        shared.tell(LinkEvent::Down { fault: why.into(), retry_in: Duration::ZERO });
    }
}

/// A request of our own that is open.
pub(super) struct Asked {
    inner: Arc<Inner>,
    index: usize,
    id: WireId,
    answered: oneshot::Receiver<Result<Bytes, AskError>>,
}

impl Asked {
    pub(super) async fn answer(&mut self) -> Result<Bytes, AskError> {
        let gone = |_| Err(AskError::Down("the child ended".into()));
        (&mut self.answered).await.unwrap_or_else(gone)
    }
}

impl Drop for Asked {
    /// Nobody waits any more: the place is given up. A request that was not written is withdrawn; of one that
    /// was, a child that is up is told. (The handshake's own requests must not be cancelled.)
    fn drop(&mut self) {
        let mut pool = self.inner.pool.lock();
        let member = &mut pool.members[self.index];
        let up = member.era().is_some();
        if member.book.close(self.id).is_some()
            && !member.out.remove_request(self.id)
            && up
            && member.out.put_first(message::cancelled(self.id, "no answer in time"))
        {
            self.inner.signals[self.index].out.notify_one();
        }
    }
}
