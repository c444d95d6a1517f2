//! The line to the daemon: follows its stream, comes back when it is lost, and carries questions and answers.
//!
//! [`Ask`] and [`Sse`](sse::Sse) and [`Backoff`] know no socket and no clock; the tasks here only move bytes
//! between them and the loop.

mod ask;
mod backoff;
mod sse;

pub use ask::{Answer, Ask, Steer};
pub use backoff::Backoff;

use crate::client::{Client, ClientError};
use forebay_wire as wire;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Words to the loop that wait to be read. When it is full, the stream is read no further and the daemon leaves
/// updates out, so that nothing piles up here.
const WORDS: usize = 64;
/// Questions under way at once. Further ones are dropped: they are asked again by and by.
const AT_ONCE: usize = 16;
/// The daemon says something at least this often, or it is taken for lost.
const SILENCE: Duration = Duration::from_secs(20);

/// What the line has to say.
#[derive(Debug)]
pub enum Heard {
    Connecting,
    Update(wire::Update),
    Lost { why: String, retry_in: Duration },
    Answer(Answer),
}

/// See the module's documentation. Dropping it ends its tasks.
pub struct Connection {
    client: Client,
    words: mpsc::Sender<Heard>,
    again: Arc<Notify>,
    tasks: JoinSet<()>,
    follower: JoinSet<()>,
}

impl Connection {
    /// Starts to follow the daemon. `seed` is for the jitter of the waits.
    pub fn open(client: Client, seed: u64) -> (Self, mpsc::Receiver<Heard>) {
        let (words, heard) = mpsc::channel(WORDS);
        let again = Arc::new(Notify::new());
        let mut follower = JoinSet::new();
        follower.spawn(follow(client.clone(), words.clone(), again.clone(), fastrand::Rng::with_seed(seed)));
        (Connection { client, words, again, tasks: JoinSet::new(), follower }, heard)
    }

    /// Asks; the answer comes as [`Heard::Answer`]. False: too much is under way.
    pub fn ask(&mut self, ask: Ask) -> bool {
        while self.tasks.try_join_next().is_some() {}
        // What steers is never dropped.
        if self.tasks.len() >= AT_ONCE && ask.only_reads() {
            return false;
        }
        let (client, words) = (self.client.clone(), self.words.clone());
        self.tasks.spawn(async move {
            let answer = ask.put(&client).await;
            // The loop is gone: nobody wants to know.
            let _ = words.send(Heard::Answer(answer)).await;
        });
        true
    }

    /// Begins the stream again: at once when it is lost, from the start when it runs.
    pub fn again(&self) {
        self.again.notify_one();
    }

    /// The follower has ended, which it never does by itself.
    pub fn is_broken(&mut self) -> bool {
        self.follower.try_join_next().is_some()
    }
}

async fn follow(client: Client, words: mpsc::Sender<Heard>, again: Arc<Notify>, mut random: fastrand::Rng) {
    let mut backoff = Backoff::default();
    loop {
        if words.send(Heard::Connecting).await.is_err() {
            return;
        }
        let why = tokio::select! {
            why = listen(&client, &words, &mut backoff) => why,
            // Asked to begin anew.
            () = again.notified() => continue,
        };
        let Some(why) = why else { return };
        let retry_in = backoff.next(random.f64());
        if words.send(Heard::Lost { why, retry_in }).await.is_err() {
            return;
        }
        tokio::select! {
            () = sleep(retry_in) => {}
            () = again.notified() => {}
        }
    }
}

/// Follows one stream to its end, and says why it ended. `None`: the loop is gone.
async fn listen(client: &Client, words: &mpsc::Sender<Heard>, backoff: &mut Backoff) -> Option<String> {
    let mut flow = match client.open("/v1/stream").await {
        Ok(flow) => flow,
        Err(ClientError::Refused { status, .. }) if status.as_u16() == 404 => {
            return Some("that daemon is older than this screen and has no live stream".into());
        }
        Err(error) => return Some(ask::words(&error)),
    };
    let mut sse = sse::Sse::default();
    loop {
        let bytes = match timeout(SILENCE, flow.next()).await {
            Err(_) => return Some("the daemon has gone silent".into()),
            Ok(Ok(None)) => return Some("the daemon ended the stream".into()),
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Err(error)) => return Some(ask::words(&error)),
        };
        let events = match sse.feed(&bytes) {
            Ok(events) => events,
            Err(error) => return Some(error.to_string()),
        };
        for event in events {
            let update: wire::Update = match serde_json::from_str(&event) {
                Ok(update) => update,
                Err(fault) => return Some(format!("the daemon's stream cannot be read: {fault}")),
            };
            backoff.reset();
            if words.send(Heard::Update(update)).await.is_err() {
                return None;
            }
        }
    }
}
