//! `GET /v1/stream`: a snapshot and what changes after it, as server-sent events (rule R30).
//!
//! One sampler serves all readers and exists only while there is one. It reads published figures, never asks an
//! actor, and never waits for a reader: one whose buffer is full is dropped, and starts again with a snapshot.

mod model;

use super::Admin;
use super::fault::Refusal;
use super::who::Who;
use crate::events::{self, EventLog};
use crate::snapshot;
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_wire as wire;
use model::Model;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

/// Readers at once. Each holds a connection, so there are always some left for commands.
const MOST_READERS: usize = 32;
/// Messages that wait for one reader; with more, it is dropped.
const BUFFERED: usize = 8;
const EVERY: Duration = Duration::from_millis(250);
const OFTENEST: u64 = 100;
const SELDOMEST: u64 = 5000;
/// A comment is sent when nothing else was for so long, so that a dead peer is noticed on both sides.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Readers that are due within so short a time are served by one look.
const TOGETHER: Duration = Duration::from_millis(10);
/// Events of one message; the newest, with the count of the others.
const MOST_EVENTS: usize = 200;

/// The readers that are there, and those that the sampler has not seen yet.
#[derive(Default)]
pub(super) struct Hub {
    inner: Mutex<Inner>,
    joined: Notify,
}

#[derive(Default)]
struct Inner {
    joining: Vec<Reader>,
    reading: usize,
    sampling: bool,
}

struct Reader {
    out: mpsc::Sender<Bytes>,
    who: Who,
    every: Duration,
    due: Instant,
    /// The look up to which it knows everything; 0 before its snapshot.
    knows: u64,
    draining: bool,
    sequence: u64,
    next_event: u64,
    sent: Instant,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamQuery {
    every_ms: Option<u64>,
    /// Looked at by [`Who`], where it takes the right to steer away.
    #[serde(default, rename = "read_only")]
    _read_only: Option<bool>,
}

/// The route.
pub(super) async fn stream(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Who>,
    query: Result<Query<StreamQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let known = format!("every_ms takes {OFTENEST} to {SELDOMEST}, read_only takes true or false");
    let Query(query) = query.map_err(|fault| Refusal::bad("bad_query", fault.body_text(), known.clone()))?;
    let every = match query.every_ms {
        None => EVERY,
        Some(every @ OFTENEST..=SELDOMEST) => Duration::from_millis(every),
        Some(other) => return Err(Refusal::bad("bad_query", format!("every_ms is {other}"), known)),
    };
    let (out, mut frames) = mpsc::channel(BUFFERED);
    let now = Instant::now();
    let reader = Reader { out, who, every, due: now, knows: 0, draining: false, sequence: 0, next_event: 0, sent: now };
    if !admin.hub.join(reader) {
        let message = format!("{MOST_READERS} readers follow the daemon already");
        let hint = "end one, or read /v1/state now and then";
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_readers", message, hint));
    }
    if admin.hub.starts_sampling() {
        tokio::spawn(sample(admin));
    }
    let frames = futures_util::stream::poll_fn(move |context| {
        frames.poll_recv(context).map(|frame| frame.map(Ok::<Bytes, Infallible>))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(frames)).into_response())
}

impl Hub {
    fn join(&self, reader: Reader) -> bool {
        let mut inner = self.inner.lock();
        if inner.reading + inner.joining.len() >= MOST_READERS {
            return false;
        }
        inner.joining.push(reader);
        drop(inner);
        self.joined.notify_one();
        true
    }

    /// Whether the caller is to start the sampler.
    fn starts_sampling(&self) -> bool {
        !std::mem::replace(&mut self.inner.lock().sampling, true)
    }

    /// Takes newcomers in and lets go of who is gone. False once nobody reads: the sampler is over.
    fn settle(&self, readers: &mut Vec<Reader>) -> bool {
        let mut inner = self.inner.lock();
        readers.append(&mut inner.joining);
        readers.retain(|reader| !reader.out.is_closed());
        inner.reading = readers.len();
        inner.sampling = !readers.is_empty();
        inner.sampling
    }
}

/// Serves the readers until there is none.
async fn sample(admin: Arc<Admin>) {
    let mut model = Model::default();
    let mut readers = Vec::new();
    while admin.hub.settle(&mut readers) {
        let now = Instant::now();
        let due = |reader: &Reader| reader.due <= now + TOGETHER;
        if readers.iter().any(due) {
            model.look(&admin.dispatcher, now, readers.iter().any(|reader| reader.knows == 0));
            readers.retain_mut(|reader| !due(reader) || reader.serve(&admin, &model, now));
        }
        let next = readers.iter().map(|reader| reader.due).min().unwrap_or(now);
        tokio::select! {
            () = sleep_until(next) => {}
            () = admin.hub.joined.notified() => {}
            () = admin.ended.cancelled() => {
                readers.clear();
                admin.hub.inner.lock().joining.clear();
            }
        }
    }
}

impl Reader {
    /// Sends what is new. False if the reader has fallen behind, and is dropped for it.
    fn serve(&mut self, admin: &Admin, model: &Model, now: Instant) -> bool {
        // A look that came late does not make the next one come early.
        self.due = now + self.every;
        let frame = if self.knows == 0 {
            Some(frame(&wire::Update::Snapshot(Box::new(self.snapshot(admin, model, now)))))
        } else {
            self.changes(admin, model, now).map(|changes| frame(&wire::Update::Changes(Box::new(changes))))
        };
        let frame = match frame {
            Some(frame) => frame,
            None if now.saturating_duration_since(self.sent) >= KEEP_ALIVE => Bytes::from_static(b":\n\n"),
            None => return true,
        };
        self.sent = now;
        self.out.try_send(frame).is_ok()
    }

    fn snapshot(&mut self, admin: &Admin, model: &Model, now: Instant) -> wire::Snapshot {
        let events = admin.dispatcher.events().newest(MOST_EVENTS);
        self.knows = model.looks();
        self.draining = admin.dispatcher.is_draining();
        self.next_event = events.next;
        wire::Snapshot {
            api: wire::API,
            version: env!("CARGO_PKG_VERSION").into(),
            instance: admin.dispatcher.mark(),
            pid: std::process::id(),
            role: self.who.role,
            subject: self.who.subject.to_string(),
            mcp: admin.mcp.to_string(),
            auth: snapshot::auth(&admin.dispatcher),
            uptime_ms: snapshot::millis(now.saturating_duration_since(admin.dispatcher.started())),
            now_unix_ms: events::unix_ms(),
            draining: self.draining,
            totals: model.totals().clone(),
            upstreams: model.upstreams_since(0),
            callers: model.callers_since(0),
            events: owned(events.events),
            next_event: events.next,
        }
    }

    /// What the reader does not know yet, if there is anything.
    fn changes(&mut self, admin: &Admin, model: &Model, now: Instant) -> Option<wire::Changes> {
        let knows = std::mem::replace(&mut self.knows, model.looks());
        let draining = admin.dispatcher.is_draining();
        let (events, events_dropped) = self.new_events(admin.dispatcher.events());
        let upstreams = model.upstreams_since(knows);
        let upstreams_gone = model.upstreams_gone_since(knows);
        let callers = model.callers_since(knows);
        let callers_gone = model.callers_gone_since(knows);
        let anything = !(upstreams.is_empty()
            && upstreams_gone.is_empty()
            && callers.is_empty()
            && callers_gone.is_empty()
            && events.is_empty())
            || events_dropped > 0
            || model.totals_changed() > knows
            || std::mem::replace(&mut self.draining, draining) != draining;
        if !anything {
            return None;
        }
        self.sequence += 1;
        Some(wire::Changes {
            sequence: self.sequence,
            uptime_ms: snapshot::millis(now.saturating_duration_since(admin.dispatcher.started())),
            draining,
            totals: model.totals().clone(),
            upstreams,
            upstreams_gone,
            callers,
            callers_gone,
            events: owned(events),
            events_dropped,
        })
    }

    fn new_events(&mut self, log: &EventLog) -> (Vec<Arc<wire::Event>>, u64) {
        let mut part = log.read(self.next_event, usize::MAX, |_| true);
        let over = part.events.len().saturating_sub(MOST_EVENTS);
        part.events.drain(..over);
        self.next_event = part.next;
        (part.events, part.dropped + over as u64)
    }
}

fn owned(events: Vec<Arc<wire::Event>>) -> Vec<wire::Event> {
    events.into_iter().map(|event| wire::Event::clone(&event)).collect()
}

/// One server-sent event. JSON has no raw line breaks, so the data is one line.
fn frame(update: &impl Serialize) -> Bytes {
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(b"data: ");
    if let Err(fault) = serde_json::to_writer(&mut out, update) {
        // Cannot happen with these types; a reader that misses one message starts again.
        tracing::error!(%fault, "an update could not be written");
    }
    out.extend_from_slice(b"\n\n");
    out.into()
}
