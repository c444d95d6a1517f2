//! Streamable HTTP upstreams: workers with a connection each, sessions of both eras, one reconnect for all.
//!
//! The design is in `docs/design/http-upstream.md`. What is left to others: slots, deadlines and the order
//! of calls are the actor's; what a message means is `protocol`'s.

mod answer;
mod client;
mod endpoint;
mod exchange;
mod get;
mod handshake;
mod link;
mod listen;
mod pool;
mod post;
mod redact;
mod side;
mod stale;
mod unusable;
mod wire;
mod worker;

#[cfg(test)]
mod tests;

pub(crate) use self::get::get;
pub(crate) use self::post::post;

use self::endpoint::Endpoint;
use self::link::{Backoff, Link};
use self::pool::{Order, Pool};
use self::side::Side;
use self::stale::Stale;
use self::unusable::Unusable;
use self::wire::{Dialer, Trust};
use super::super::connection::{AskError, Connection, Report, Run, RunId, ServerInfo, StopReason};
use super::super::shared::UpstreamShared;
use crate::call::Call;
use crate::config::{AfterCancel, HttpTarget, Target};
use crate::protocol::version::Era;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::rustls::ClientConfig;

/// Ids of forebay's own requests begin here: apart from those of calls, and exact in a double.
const FIRST_OWN_ID: u64 = 1 << 52;
/// See [`Inner::lingers_until`].
const LINGER_SLACK: Duration = Duration::from_millis(250);
/// How long the end of a session may take when the upstream is closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// A server reached over Streamable HTTP.
pub struct Http {
    inner: Arc<Inner>,
}

/// Shared by the handle, the workers and the opener.
struct Inner {
    shared: Arc<UpstreamShared>,
    endpoint: Endpoint,
    dialer: Dialer,
    link: Link,
    pool: Pool,
    side: Side,
    stale: Stale,
    /// Handshakes under way over all upstreams.
    starts: Arc<Semaphore>,
    ids: AtomicU64,
    /// The session in force is not known to serve calls.
    doubt: AtomicBool,
    handshakes: AtomicU64,
    /// How often the end of a stream is not waited for; see [`Inner::settle`].
    no_waits: AtomicU32,
    noise: AtomicU64,
    late: AtomicU64,
}

impl Http {
    /// A connection to the server that the configuration of `shared` names. Nothing is sent before
    /// [`Connection::open`]; an address or a header that cannot be used is told there as a final fault.
    ///
    /// `starts` bounds handshakes over all upstreams, `homes` has a handle per runtime thread (calls name
    /// theirs by its place; empty means the current one), `seed` feeds the jitter.
    #[expect(clippy::new_ret_no_self, reason = "a bad address gives another kind of connection")]
    pub fn new(
        shared: Arc<UpstreamShared>,
        starts: Arc<Semaphore>,
        homes: Vec<Handle>,
        seed: u64,
    ) -> Arc<dyn Connection> {
        match Http::with(shared.clone(), starts, homes, seed, Backoff::default(), None) {
            Ok(http) => Arc::new(http),
            Err(fault) => Arc::new(Unusable { shared, fault: fault.into() }),
        }
    }

    fn with(
        shared: Arc<UpstreamShared>,
        starts: Arc<Semaphore>,
        homes: Vec<Handle>,
        seed: u64,
        backoff: Backoff,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Http, String> {
        let config = shared.config.load_full();
        let (endpoint, dialer) = match &config.target {
            Target::Http(target) => place(target, tls)?,
            Target::Stdio(_) => return Err("it is configured with a command, not with a url".into()),
        };
        let homes = if homes.is_empty() { vec![Handle::current()] } else { homes };
        let inner = Inner {
            shared,
            endpoint,
            dialer,
            link: Link::new(seed, backoff),
            pool: Pool::new(homes),
            side: Side::new(),
            stale: Stale::default(),
            starts,
            ids: AtomicU64::new(FIRST_OWN_ID),
            doubt: AtomicBool::new(false),
            handshakes: AtomicU64::new(0),
            no_waits: AtomicU32::new(0),
            noise: AtomicU64::new(0),
            late: AtomicU64::new(0),
        };
        Ok(Http { inner: Arc::new(inner) })
    }
}

fn place(target: &HttpTarget, tls: Option<Arc<ClientConfig>>) -> Result<(Endpoint, Dialer), String> {
    let endpoint = Endpoint::new(target).map_err(|fault| fault.to_string())?;
    let tls = endpoint.https.then(|| tls.map_or(Trust::Machine, Trust::Given));
    let dialer = Dialer::new(&endpoint.host, endpoint.port, tls)?;
    Ok((endpoint, dialer))
}

impl Inner {
    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    fn after_cancel(&self) -> AfterCancel {
        self.shared.config.load().limits.after_cancel
    }

    /// Until when a call that was told to stop is kept here if nothing ends it before: a little longer than
    /// the actor keeps its slot (rule R7), so that the slot's end is the actor's to count.
    fn lingers_until(&self, call: &Call) -> Option<Instant> {
        let config = self.shared.config.load();
        let now = Instant::now();
        let grace = now + config.limits.cancel_grace;
        let until = match config.limits.after_cancel {
            AfterCancel::Release => Some(grace),
            // The actor says when.
            AfterCancel::Recycle => None,
            AfterCancel::Hold => {
                let own = call.tool().and_then(|tool| config.tools.get(&**tool)?.call_timeout);
                let started = call.ticket.started().unwrap_or(now);
                own.or(config.limits.call_timeout).map(|limit| (started + limit).max(grace))
            }
        };
        until.map(|until| until + LINGER_SLACK)
    }

    /// Workers, and connections, kept at most.
    fn most_workers(&self) -> usize {
        self.shared.config.load().limits.max_concurrent.ceiling() as usize
    }

    /// Ends a run with the server's message.
    fn answered(&self, run: Run, message: &[u8], era: Era) {
        if !run.answer(message, era) {
            self.late.fetch_add(1, Relaxed);
        }
    }
}

impl Connection for Http {
    fn open(&self) {
        self.inner.open();
    }

    fn begin(&self, run: Run) {
        self.inner.pool.begin(&self.inner, run);
    }

    fn stop(&self, run: RunId, why: StopReason) {
        self.inner.pool.order(run, Order::Stop(why.into()));
    }

    fn recycle(&self, run: RunId) {
        self.inner.pool.order(run, Order::Recycle);
    }

    fn reset(&self, why: &str) {
        self.inner.reset(why);
    }

    fn ask(
        &self,
        method: &str,
        params: Option<&str>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Bytes, AskError>> {
        let ask = self.inner.clone().ask(method.to_owned(), params.map(str::to_owned));
        Box::pin(async move {
            match tokio::time::timeout(timeout, ask).await {
                Ok(result) => result,
                Err(_) => Err(AskError::TimedOut(timeout)),
            }
        })
    }

    fn server(&self) -> Option<Arc<ServerInfo>> {
        self.inner.link.session.load().as_ref().map(|session| session.info.clone())
    }

    /// Every handshake but the first counts as a restart.
    fn report(&self) -> Report {
        Report {
            restarts: self.inner.handshakes.load(Relaxed).saturating_sub(1),
            noise: self.inner.noise.load(Relaxed),
            late: self.inner.late.load(Relaxed),
            ..Report::default()
        }
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        let inner = self.inner.clone();
        Box::pin(async move {
            if let Some(session) = inner.shut() {
                let _ = tokio::time::timeout(CLOSE_LIMIT, inner.end_session(&session)).await;
            }
        })
    }
}

impl Drop for Http {
    /// Nobody can ask any more: workers retire, and the opener must not try for ever.
    fn drop(&mut self) {
        self.inner.shut();
    }
}
