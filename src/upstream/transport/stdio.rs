//! stdio upstreams: a pool of child processes that speak JSON-RPC, a line a message.
//!
//! A running call is a record in its child's book, not a task (rule R21): [`begin`](Stdio::begin) appends the
//! message to what waits for the child, the task of that child writes it, and the same task ends the call
//! when its answer is read. `docs/design/stdio.md` tells the whole of it: environment, handshake, ends.
//!
//! - `frame`: bytes to lines; `reader`: lines to answers; `outbound`: what waits to be written
//! - `book`: what is open with a child; `pool`: all children and who gets a call; `probe`: is it alive
//! - `command`, `process`, `life`, `handshake`, `backoff`: how a child starts, lives, ends and comes back
//! - `stderr`, `fault`, `quiet`, `message`: its last words, what is told of its end, bounded logs, our own messages

mod backoff;
mod book;
mod command;
mod fault;
mod frame;
mod handshake;
mod life;
mod message;
mod outbound;
mod pool;
mod probe;
mod process;
mod quiet;
mod reader;
mod stderr;
#[cfg(test)]
mod tests;

pub(crate) use command::locate;

use crate::config::Target;
use crate::upstream::connection::{AskError, Connection, How, Report, Run, RunId, ServerInfo, StopReason};
use crate::upstream::shared::UpstreamShared;
use backoff::Backoff;
use book::Entry;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use pool::{Inner, Order};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// `close` waits at most this long: the graceful end, the reaping and some slack.
const CLOSE: Duration = Duration::from_millis(5500);

/// A pool of children of one upstream. See the module's documentation.
pub struct Stdio {
    inner: Arc<Inner>,
}

impl Stdio {
    /// `starts` bounds how many upstreams connect at once, over the whole daemon; `seed` is the randomness of
    /// the restarts' jitter. Nothing is started before `open`, whose runtime then runs the children's tasks.
    #[expect(clippy::new_ret_no_self, reason = "the daemon only ever holds a connection of either kind")]
    pub fn new(shared: Arc<UpstreamShared>, starts: Arc<Semaphore>, seed: u64) -> Arc<dyn Connection> {
        let processes = match &shared.config.load().target {
            Target::Stdio(target) => target.processes.max(1) as usize,
            Target::Http(_) => 1,
        };
        Arc::new(Stdio { inner: Inner::new(shared, starts, processes, seed) })
    }
}

impl Connection for Stdio {
    fn open(&self) {
        let members = {
            let mut pool = self.inner.pool.lock();
            if pool.opened || pool.closing {
                return;
            }
            pool.opened = true;
            pool.alive = pool.members.len();
            pool.members.len()
        };
        for index in 0..members {
            tokio::spawn(life::keep(self.inner.clone(), index));
        }
    }

    fn begin(&self, run: Run) {
        self.inner.begin(run);
    }

    fn stop(&self, run: RunId, why: StopReason) {
        let now = Instant::now();
        let config = self.inner.shared.config.load();
        let unsent = {
            let mut pool = self.inner.pool.lock();
            let Some((index, id)) = pool.find(run) else { return };
            let signals = &self.inner.signals[index];
            let member = &mut pool.members[index];
            if member.out.remove_call(id) {
                // Not a byte of it was written: there is nothing to cancel, and the slot is free.
                member.book.close(id)
            } else if let Some(call) = member.book.call(id) {
                let stopped = call.run.call.clone();
                member.book.stop(id);
                if member.out.put_first(message::cancelled(id, why.text())) {
                    signals.out.notify_one();
                }
                self.inner.probe(&mut pool, index, probe::probe_due(&config, &stopped, now));
                signals.watch.notify_one();
                None
            } else {
                None
            }
        };
        if let Some(Entry::Call(call)) = unsent {
            let unsent = How::Unsent(call.run.call.clone());
            call.run.release(unsent);
        }
    }

    fn forget(&self, run: RunId) {
        let forgotten = {
            let mut pool = self.inner.pool.lock();
            pool.find(run).and_then(|(index, id)| pool.members[index].book.close(id))
        };
        if let Some(Entry::Call(call)) = forgotten {
            // The actor has this slot already, so it is no news for it.
            call.run.release(How::Answered);
        }
    }

    fn recycle(&self, run: RunId) {
        let mut pool = self.inner.pool.lock();
        if let Some((index, _)) = pool.find(run) {
            pool.members[index].give_order(Order::Recycle);
            self.inner.signals[index].order.notify_one();
        }
    }

    fn reset(&self, why: &str) {
        let mut open = Vec::new();
        {
            let mut pool = self.inner.pool.lock();
            if !pool.opened || pool.closing {
                return;
            }
            for (member, signals) in pool.members.iter_mut().zip(&self.inner.signals) {
                // Killed here and now: nothing of the old life may run beside the first call of the new one.
                process::signal_group(member.pid, Signal::KILL);
                open.push((member.book.close_all(), signals.written.load(Relaxed)));
                member.out.reset();
                member.phase = pool::Phase::Ending;
                member.give_order(Order::Reset);
                signals.order.notify_one();
            }
            pool.announce_reset(&self.inner.shared, why);
        }
        for (entries, written) in open {
            pool::end_all(entries, written, why);
        }
    }

    fn ask(
        &self,
        method: &str,
        params: Option<&str>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Bytes, AskError>> {
        let oldest = self.inner.pool.lock().oldest_up();
        let asked = match oldest {
            Some((index, era)) => self.inner.ask(index, method, params, era),
            None => Err(AskError::Down("no child of it is up".into())),
        };
        Box::pin(async move {
            let mut asked = asked?;
            tokio::time::timeout(timeout, asked.answer()).await.unwrap_or(Err(AskError::TimedOut(timeout)))
        })
    }

    fn server(&self) -> Option<Arc<ServerInfo>> {
        let pool = self.inner.pool.lock();
        pool.info.clone().filter(|_| pool.up() > 0)
    }

    fn report(&self) -> Report {
        Report { stderr: self.inner.stderr.lines(), ..self.brief() }
    }

    fn brief(&self) -> Report {
        let config = self.inner.shared.config.load();
        let target = match &config.target {
            Target::Stdio(target) => Some(target),
            Target::Http(_) => None,
        };
        let pool = self.inner.pool.lock();
        Report {
            pids: pool.members.iter().filter_map(|member| member.pid).collect(),
            fault: pool.fault.as_ref().map(|fault| fault.told(&self.inner.stderr.of(&fault.stderr), target)),
            restarts: self.inner.restarts.load(Relaxed),
            stderr: Vec::new(),
            noise: self.inner.noise.load(Relaxed),
            late: self.inner.late.load(Relaxed),
        }
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let inner = self.inner.clone();
        {
            let mut pool = inner.pool.lock();
            pool.closing = true;
            for (member, signals) in pool.members.iter_mut().zip(&inner.signals) {
                member.give_order(Order::Close);
                signals.order.notify_one();
            }
        }
        Box::pin(async move {
            let all_ended = async {
                loop {
                    let ended = inner.ended.notified();
                    tokio::pin!(ended);
                    ended.as_mut().enable();
                    if inner.pool.lock().alive == 0 {
                        return;
                    }
                    ended.await;
                }
            };
            if tokio::time::timeout(CLOSE, all_ended).await.is_err() {
                let pids: Vec<_> = inner.pool.lock().members.iter().map(|member| member.pid).collect();
                pids.into_iter().for_each(|pid| process::signal_group(pid, Signal::KILL));
            }
        })
    }
}
