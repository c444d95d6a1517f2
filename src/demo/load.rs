//! The demo's callers: real MCP clients over loopback, on a thread of their own, so that no drawing can
//! slow them. It only measures; what is shown of it is decided elsewhere.

use super::client::{Answer, Client};
use super::server::Kind;
use super::tally::Tally;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long calls under way are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the runaway waits after a refusal. It does not heed the advice.
const RUNAWAY_PAUSE: Duration = Duration::from_millis(25);
/// After a broken connection, so that a daemon that is gone is not hammered.
const BROKEN_PAUSE: Duration = Duration::from_millis(200);

/// Which side of the table a caller stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Careful,
    Runaway,
}

impl Group {
    pub const ALL: [Group; 2] = [Group::Careful, Group::Runaway];

    pub fn name(self) -> &'static str {
        match self {
            Group::Careful => "careful",
            Group::Runaway => "runaway",
        }
    }

    /// Milliseconds between two calls of one loop.
    fn think(self) -> RangeInclusive<u64> {
        match self {
            Group::Careful => 300..=700,
            Group::Runaway => 0..=0,
        }
    }

    fn loops(self) -> usize {
        match self {
            Group::Careful => 1,
            Group::Runaway => 16,
        }
    }
}

/// A caller that is to be simulated.
#[derive(Clone)]
pub struct Persona {
    pub name: &'static str,
    pub group: Group,
    pub key: String,
}

/// A caller that is being simulated, and what it has measured.
pub struct Measured {
    pub name: &'static str,
    pub group: Group,
    pub tally: Mutex<Tally>,
}

/// The load, running until it is told to finish.
pub struct Load {
    callers: Vec<Arc<Measured>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts every caller. The same `seed` gives the same thoughts and choices.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(mcp: SocketAddr, personas: &[Persona], seed: u64) -> io::Result<Self> {
        let measured =
            |persona: &Persona| Measured { name: persona.name, group: persona.group, tally: Mutex::default() };
        let callers: Vec<_> = personas.iter().map(|persona| Arc::new(measured(persona))).collect();
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut loops = Vec::new();
        for (persona, caller) in personas.iter().zip(&callers) {
            for _ in 0..persona.group.loops() {
                let randomness = fastrand::Rng::with_seed(seed.wrapping_add(loops.len() as u64));
                let client = Client::new(mcp, &persona.key);
                loops.push(call_on(client, caller.clone(), randomness, stop.clone()));
            }
        }
        let until = stop.clone();
        let thread = std::thread::Builder::new().name("demo-load".into()).spawn(move || {
            runtime.block_on(async move {
                let mut running: JoinSet<()> = JoinSet::new();
                for one in loops {
                    running.spawn(one);
                }
                until.cancelled().await;
                // What is under way is still measured; what takes too long is dropped unmeasured.
                let _ = timeout(PATIENCE, async { while running.join_next().await.is_some() {} }).await;
            });
        })?;
        Ok(Load { callers, stop, thread: Some(thread) })
    }

    pub fn callers(&self) -> &[Arc<Measured>] {
        &self.callers
    }

    /// Lets calls under way end, then gives what was measured.
    pub async fn finish(mut self) -> Vec<Arc<Measured>> {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        std::mem::take(&mut self.callers)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// All that a group measured, together.
pub fn of_group(callers: &[Arc<Measured>], group: Group) -> Tally {
    let mut all = Tally::default();
    for caller in callers.iter().filter(|caller| caller.group == group) {
        all.merge(&caller.tally.lock());
    }
    all
}

async fn call_on(mut client: Client, caller: Arc<Measured>, mut randomness: fastrand::Rng, stop: CancellationToken) {
    let mut pause = Duration::from_millis(randomness.u64(caller.group.think()));
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = sleep(pause) => {}
        }
        let kind = match randomness.u32(0..10) {
            0..5 => Kind::Fragile,
            5..7 => Kind::Slow,
            _ => Kind::Flaky,
        };
        let (answer, took) = client.call(kind.name(), kind.tool(), "{}").await;
        caller.tally.lock().add(&answer, took);
        pause = match (&answer, caller.group) {
            (Answer::Broken(_), _) => BROKEN_PAUSE,
            (Answer::Refused { .. }, Group::Runaway) => RUNAWAY_PAUSE,
            (_, group) => Duration::from_millis(randomness.u64(group.think())),
        };
    }
}

/// Sends `count` calls of one caller at the same moment, each on a connection that stands already.
pub async fn burst(mcp: SocketAddr, key: &str, count: usize, kind: Kind, arguments: &'static str) -> Tally {
    let mut clients = Vec::with_capacity(count);
    let mut tally = Tally::default();
    for _ in 0..count {
        let mut client = Client::new(mcp, key);
        match client.connect().await {
            Ok(()) => clients.push(client),
            Err(fault) => tally.add(&Answer::Broken(fault), Duration::ZERO),
        }
    }
    let mut calls = JoinSet::new();
    for mut client in clients {
        calls.spawn(async move { client.call(kind.name(), kind.tool(), arguments).await });
    }
    while let Some(done) = calls.join_next().await {
        match done {
            Ok((answer, took)) => tally.add(&answer, took),
            Err(fault) => tally.add(&Answer::Broken(fault.to_string()), Duration::ZERO),
        }
    }
    tally
}
