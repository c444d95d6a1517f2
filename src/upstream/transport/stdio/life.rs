//! The lives of one member's children, one after another: started, greeted, served, ended, waited for.
//!
//! All that concerns one child runs in one task, so when a life is over nothing of it is left that could
//! still end a call. The slots of its calls come back when the child is gone, not before: what may still be
//! at work counts.

use super::command::{self, SpawnError};
use super::fault::Fault;
use super::message;
use super::pool::{Inner, Order, Phase};
use super::process::{Manner, Process};
use super::reader::ReadEnd;
use crate::config::Target;
use crate::protocol::method;
use crate::protocol::version::Era;
use futures_util::FutureExt as _;
use futures_util::future::FusedFuture;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// How long the pipes of a child that is gone are read for its last words.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// A batch that grew beyond this is given back after it was written.
const KEEP: usize = 256 << 10;

/// Keeps one member's child alive until the connection closes.
pub(super) async fn keep(inner: Arc<Inner>, index: usize) {
    while !inner.pool.lock().closing {
        let permit = tokio::select! {
            permit = inner.starts.clone().acquire_owned() => permit,
            _ = inner.ordered(index) => continue,
        };
        let Ok(permit) = permit else { break };
        // A task of its own, so that a panic in it ends one life and not the keeping.
        if tokio::spawn(live(inner.clone(), index, permit)).await.is_err() {
            tracing::error!(upstream = %inner.shared.name, "the task of a child failed");
            inner.ending(index, &Fault::new("an internal fault"));
            inner.detach(index, "an internal fault");
        }
        let retry = {
            let mut pool = inner.pool.lock();
            let member = &mut pool.members[index];
            member.phase = Phase::BackingOff;
            member.retry.take()
        };
        if let Some(wait) = retry {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = inner.ordered(index) => {}
            }
        }
    }
    let mut pool = inner.pool.lock();
    pool.members[index].phase = Phase::Closed;
    pool.alive -= 1;
    drop(pool);
    inner.ended.notify_waiters();
}

/// One life.
async fn live(inner: Arc<Inner>, index: usize, permit: OwnedSemaphorePermit) {
    inner.starting(index);
    let mut process = match start(&inner).await {
        Ok(process) => process,
        Err(fault) => {
            let fault = Fault { is_final: fault.is_final(), ..Fault::with_detail(fault.brief(), fault.to_string()) };
            return inner.ending(index, &fault);
        }
    };
    let Some((stdin, stdout, stderr)) = process.pipes() else {
        return inner.ending(index, &Fault::new("the child has no pipes"));
    };
    inner.attach(index, process.pid());

    let mut writer = Box::pin(write(&inner, index, stdin));
    let mut reader = Box::pin(inner.read(index, stdout).fuse());
    let mut errors = Box::pin(inner.stderr.drain(stderr, &inner.shared.name).fuse());
    let mut talk = Box::pin(talk(&inner, index, permit));
    let mut exit = None;
    let (mut fault, manner) = loop {
        tokio::select! {
            // Orders and ends first: what they have undone must not look like a fault of another kind.
            biased;
            order = inner.ordered(index) => break match order {
                Order::Recycle => (Fault::ordered("replaced after a cancel"), Manner::PROMPT),
                Order::Reset => (Fault::ordered("restarted"), Manner::AT_ONCE),
                Order::Close => (Fault::ordered("closed"), Manner::GRACEFUL),
            },
            how = process.exited() => {
                exit = Some(how.clone());
                break (Fault::new(how), Manner::AT_ONCE);
            }
            fault = &mut talk => break (fault, Manner::PROMPT),
            () = &mut writer => break (Fault::new("closed its standard input"), Manner::LEAVING),
            end = &mut reader => break match end {
                ReadEnd::Closed => (Fault::new("closed its standard output"), Manner::LEAVING),
                ReadEnd::Flooded => (Fault::new("flooded its standard output"), Manner::AT_ONCE),
            },
            () = &mut errors, if !errors.is_terminated() => {}
        }
    };
    if manner.leave == Manner::LEAVING.leave && exit.is_none() {
        // Most often it is exiting; its exit code says more than a closed pipe. No call can begin to
        // succeed meanwhile, so the link is only told down once.
        exit = timeout(manner.leave, with(process.exited(), last_words(&mut reader, &mut errors))).await.ok();
        if let Some(how) = &exit {
            fault = Fault::new(how.as_str());
        }
    }
    inner.ending(index, &fault);
    drop(talk);
    drop(writer); // closes standard input
    let manner = if exit.is_some() { Manner::AT_ONCE } else { manner };
    with(process.end(manner), last_words(&mut reader, &mut errors)).await;
    inner.reaped(index);
    let _ = timeout(LAST_WORDS, last_words(&mut reader, &mut errors)).await;
    drop((reader, errors));
    inner.detach(index, &fault.text);
}

async fn start(inner: &Inner) -> Result<Process, SpawnError> {
    let config = inner.shared.config.load_full();
    // Files are looked at and a process is forked: not on a thread that serves sockets.
    let spawned = tokio::task::spawn_blocking(move || match &config.target {
        Target::Stdio(target) => command::spawn(target, std::env::vars_os()),
        Target::Http(_) => Err(SpawnError::NotStdio),
    });
    spawned.await.unwrap_or(Err(SpawnError::Task)).map(Process::new)
}

/// How long a child that takes calls otherwise may take to say that it tells of changes, or that it does not.
const LISTEN_PATIENCE: Duration = Duration::from_millis(250);

/// The handshake within its time, then the watch. Returns why the child has to be given up.
async fn talk(inner: &Arc<Inner>, index: usize, permit: OwnedSemaphorePermit) -> Fault {
    let patience = inner.shared.config.load().connect_timeout;
    let info = match timeout(patience, inner.greet(index)).await {
        Ok(Ok(info)) => info,
        Ok(Err(fault)) => return Fault::with_detail(fault.brief(), fault.to_string()),
        Err(_) => return Fault::new(format!("no answer to the handshake within {patience:?}")),
    };
    // Open for as long as the child lives; what it brings is read like any other notice.
    let listens = info.era == Era::Modern && info.capabilities.contains("\"listChanged\"");
    let mut listening = listens
        .then(|| inner.ask(index, method::LISTEN, Some(message::LISTEN_PARAMS), Era::Modern))
        .and_then(Result::ok);
    if let Some(listening) = &mut listening {
        // Heard before there are calls, so that it is not taken for a sign of life behind one of them (rule R9).
        tokio::select! {
            _ = listening.answer() => {}
            () = inner.signals[index].watch.notified() => {}
            () = tokio::time::sleep(LISTEN_PATIENCE) => {}
        }
    }
    inner.up(index, info);
    drop(permit);
    Fault::new(inner.watch(index).await)
}

/// Writes what waits, whenever something does. Returns when the child has closed its standard input.
async fn write(inner: &Inner, index: usize, mut to: impl AsyncWrite + Unpin) {
    let signals = &inner.signals[index];
    let mut batch = Vec::new();
    loop {
        {
            let mut pool = inner.pool.lock();
            let member = &mut pool.members[index];
            member.out.take(&mut batch, &mut member.book);
        }
        if batch.is_empty() {
            signals.out.notified().await;
            continue;
        }
        let mut rest = &batch[..];
        while !rest.is_empty() {
            match to.write(rest).await {
                Ok(0) | Err(_) => return,
                Ok(written) => {
                    signals.written.fetch_add(written as u64, Relaxed);
                    rest = &rest[written..];
                }
            }
        }
        batch.clear();
        if batch.capacity() > KEEP {
            batch = Vec::new();
        }
    }
}

/// Reads both pipes to their ends.
async fn last_words(
    mut reader: impl FusedFuture<Output = ReadEnd> + Unpin,
    mut errors: impl FusedFuture<Output = ()> + Unpin,
) {
    while !(reader.is_terminated() && errors.is_terminated()) {
        tokio::select! {
            _ = &mut reader, if !reader.is_terminated() => {}
            () = &mut errors, if !errors.is_terminated() => {}
        }
    }
}

/// Runs `main` to its end with `beside` beside it.
async fn with<T>(main: impl Future<Output = T>, beside: impl Future<Output = ()>) -> T {
    let beside = beside.fuse();
    tokio::pin!(main, beside);
    loop {
        tokio::select! {
            done = &mut main => return done,
            () = &mut beside, if !beside.is_terminated() => {}
        }
    }
}
