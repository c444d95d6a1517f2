//! The state of the link to one upstream, and the one task that opens it.
//!
//! ```text
//! idle -> opening -> up -> renewing -> up        (a session was dropped: the actor is not told)
//!            |        |        |
//!            v        v        v
//!           down <----+--------+   told once, with the time of the next try; then opening again
//!            |
//!            v
//!          final                   a handshake answered 401 or 403, a bad address: until a restart
//! ```
//!
//! A call that is refused for its credential has a handshake tried beside the session; see
//! [`Inner::try_credential`].
//!
//! Whoever finds the link broken tells [`Inner::broke`]; the first starts the opener, the others find it
//! started, so that many waiting calls share one reconnect.

use super::Inner;
use super::endpoint::Headers;
use super::handshake::Fault;
use crate::protocol::version::Era;
use crate::upstream::connection::{LinkEvent, ServerInfo};
use http::{HeaderValue, Uri};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How long after a call was refused for its credential another such call does not have it tried again.
const TRIAL_EVERY: Duration = Duration::from_secs(30);
/// How long a server that rejects a request for its form is not probed again for it.
const REPROBE_EVERY: Duration = Duration::from_secs(30);
/// The longest wait for exchanges of an earlier life to end before a new one connects.
const QUIET_FOR: Duration = Duration::from_secs(1);

/// What was agreed in one handshake. Replaced whole.
pub(super) struct Session {
    /// Counts handshakes, so that a fault of an old session does not end a new one.
    pub(super) generation: u64,
    pub(super) era: Era,
    pub(super) id: Option<HeaderValue>,
    pub(super) headers: Headers,
    /// The request target, as permanent redirects have left it.
    pub(super) path: Uri,
    pub(super) info: Arc<ServerInfo>,
}

/// What those who wait for the link see.
#[derive(Clone)]
pub(super) enum View {
    Waiting,
    Up(Arc<Session>),
    Down(Arc<str>),
}

/// See the module's documentation.
pub(super) struct Link {
    state: Mutex<State>,
    view: watch::Sender<View>,
    /// The session of [`View::Up`], for the path of a call.
    pub(super) session: arc_swap::ArcSwapOption<Session>,
    backoff: Backoff,
}

struct State {
    phase: Phase,
    /// Of the session in force.
    generation: u64,
    /// The last one given out: a handshake may be for a trial only.
    minted: u64,
    /// Failures in a row, for the backoff.
    failures: u32,
    /// The last handshake worked, but calls failed on it: its success proves nothing.
    doubtful: bool,
    opener: Option<AbortHandle>,
    /// Numbers the openers: one that was replaced must not tell anything.
    opening: u64,
    /// The era found last, tried first.
    pub(super) era: Option<Era>,
    reprobed: Option<Instant>,
    /// When the credential was last tried.
    tried: Option<Instant>,
    random: fastrand::Rng,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Opening,
    Up,
    Renewing,
    Down,
    Final(Arc<str>),
    Closed,
}

/// Doubling waits with a ceiling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) ceiling: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { first: Duration::from_millis(500), ceiling: Duration::from_secs(60) }
    }
}

impl Backoff {
    /// The wait after the `failures`th failure in a row (from 1). `random` in 0..1 takes off up to a half,
    /// so that gateways that lost one server together do not come back together.
    pub(super) fn after(self, failures: u32, random: f64) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(20));
        doubled.min(self.ceiling).mul_f64(1.0 - random / 2.0)
    }
}

impl Link {
    pub(super) fn new(seed: u64, backoff: Backoff) -> Link {
        Link {
            state: Mutex::new(State {
                phase: Phase::Idle,
                generation: 0,
                minted: 0,
                failures: 0,
                doubtful: false,
                opener: None,
                opening: 0,
                era: None,
                reprobed: None,
                tried: None,
                random: fastrand::Rng::with_seed(seed),
            }),
            view: watch::Sender::new(View::Down("not connected".into())),
            session: arc_swap::ArcSwapOption::empty(),
            backoff,
        }
    }

    /// The session in force; waits while one is being agreed. The fault if there will be none soon.
    pub(super) async fn session(&self) -> Result<Arc<Session>, Arc<str>> {
        if let Some(session) = self.session.load_full() {
            return Ok(session);
        }
        let mut view = self.view.subscribe();
        loop {
            match &*view.borrow_and_update() {
                View::Up(session) => return Ok(session.clone()),
                View::Down(fault) => return Err(fault.clone()),
                View::Waiting => {}
            }
            if view.changed().await.is_err() {
                return Err("the upstream is closed".into());
            }
        }
    }

    pub(super) fn era(&self) -> Option<Era> {
        self.state.lock().era
    }

    pub(super) fn forget_era(&self) {
        self.state.lock().era = None;
    }

    /// The credential may be tried again at once.
    #[cfg(test)]
    pub(super) fn forget_trial(&self) {
        self.state.lock().tried = None;
    }

    pub(super) fn next_generation(&self) -> u64 {
        let mut state = self.state.lock();
        state.minted += 1;
        state.minted
    }

    fn show(&self, view: View) {
        self.session.store(match &view {
            View::Up(session) => Some(session.clone()),
            View::Waiting | View::Down(_) => None,
        });
        self.view.send_replace(view);
    }
}

impl Inner {
    /// Idle -> opening. Anything else is connecting already, or may not.
    pub(super) fn open(self: &Arc<Self>) {
        let mut state = self.link.state.lock();
        if state.phase == Phase::Idle {
            self.link.show(View::Waiting);
            self.start_opener(&mut state, Phase::Opening, Duration::ZERO, false);
        }
    }

    /// Any -> opening, unless closed: every run, session and connection is given up first (rule R2).
    pub(super) fn reset(self: &Arc<Self>, why: &str) {
        let mut state = self.link.state.lock();
        if state.phase == Phase::Closed {
            return;
        }
        let was_idle = state.phase == Phase::Idle;
        self.link.show(View::Waiting);
        self.pool.clear(false);
        self.side.clear();
        state.failures = 0;
        state.doubtful = false;
        if was_idle {
            self.link.show(View::Down("not connected".into()));
            return;
        }
        self.shared.tell(LinkEvent::Down { fault: why.into(), retry_in: Duration::ZERO });
        self.start_opener(&mut state, Phase::Opening, Duration::ZERO, true);
    }

    /// Any -> closed. Gives the session that ought to be ended.
    pub(super) fn shut(&self) -> Option<Arc<Session>> {
        let mut state = self.link.state.lock();
        state.phase = Phase::Closed;
        state.opening += 1;
        if let Some(opener) = state.opener.take() {
            opener.abort();
        }
        let session = self.link.session.load_full();
        self.link.show(View::Down("the upstream is closed".into()));
        self.pool.clear(true);
        self.side.clear();
        session
    }

    /// Up -> down: no connection can be had, or calls fail on a fresh session. Told by whoever found it
    /// first, on the session it used.
    pub(super) fn broke(self: &Arc<Self>, session: &Session, fault: &str, doubtful: bool) {
        let mut state = self.link.state.lock();
        if state.phase != Phase::Up || state.generation != session.generation {
            return;
        }
        state.doubtful = doubtful;
        let wait = self.fail(&mut state, fault, None);
        self.start_opener(&mut state, Phase::Down, wait, false);
    }

    /// Up -> renewing -> up, shared by all that ask about the same session; the new session, or why there
    /// is none. The server never executed what is about to be sent again.
    pub(super) async fn renew(self: &Arc<Self>, stale: &Session) -> Result<Arc<Session>, Arc<str>> {
        self.renew_soon(stale);
        self.link.session().await
    }

    /// As [`Inner::renew`], without waiting for the new session.
    pub(super) fn renew_soon(self: &Arc<Self>, stale: &Session) {
        let mut state = self.link.state.lock();
        if state.phase == Phase::Up && state.generation == stale.generation {
            self.link.show(View::Waiting);
            self.start_opener(&mut state, Phase::Renewing, Duration::ZERO, false);
        }
    }

    /// Whether a server that finds fault with a request's form shall be probed anew; not at every call.
    pub(super) fn may_reprobe(&self) -> bool {
        let now = Instant::now();
        let mut state = self.link.state.lock();
        let may = state.reprobed.is_none_or(|last| now.duration_since(last) >= REPROBE_EVERY);
        if may {
            state.reprobed = Some(now);
            state.era = None;
        }
        may
    }

    /// A call was refused for its credential: whether the server still lets us in at all, a handshake beside the
    /// session tells, at most one in [`TRIAL_EVERY`] (C07). Only if that is refused too, up -> final.
    pub(super) fn try_credential(self: &Arc<Self>, session: &Session) {
        let now = Instant::now();
        {
            let mut state = self.link.state.lock();
            let due = state.tried.is_none_or(|last| now.duration_since(last) >= TRIAL_EVERY);
            if !due || state.phase != Phase::Up || state.generation != session.generation {
                return;
            }
            state.tried = Some(now);
        }
        let (http, generation) = (self.clone(), session.generation);
        self.pool.home().spawn(async move {
            let result = {
                let _turn = http.starts.acquire().await;
                let limit = http.shared.config.load().connect_timeout;
                tokio::time::timeout(limit, http.handshake(limit)).await
            };
            match result {
                Ok(Ok(trial)) => http.end_session(&trial).await,
                Ok(Err(Fault::Final(fault))) => {
                    let mut state = http.link.state.lock();
                    if state.phase == Phase::Up && state.generation == generation {
                        http.finally(&mut state, &fault);
                    }
                }
                // Anything else is for the calls to find out.
                Ok(Err(Fault::Down { .. })) | Err(_) => {}
            }
        });
    }

    /// An exchange worked: a session that was doubtful is good.
    pub(super) fn worked(&self) {
        if self.doubt.load(Relaxed) && self.doubt.swap(false, Relaxed) {
            let mut state = self.link.state.lock();
            state.doubtful = false;
            state.failures = 0;
        }
    }

    fn finally(&self, state: &mut State, fault: &str) {
        let fault: Arc<str> = fault.into();
        state.phase = Phase::Final(fault.clone());
        self.link.show(View::Down(fault.clone()));
        self.shared.tell(LinkEvent::Final { fault });
    }

    fn fail(&self, state: &mut State, fault: &str, asked: Option<Duration>) -> Duration {
        state.failures = state.failures.saturating_add(1);
        let random = state.random.f64();
        let wait = self.link.backoff.after(state.failures, random).max(asked.unwrap_or_default());
        let fault: Arc<str> = fault.into();
        state.phase = Phase::Down;
        self.link.show(View::Down(fault.clone()));
        self.shared.tell(LinkEvent::Down { fault, retry_in: wait });
        wait
    }

    fn start_opener(self: &Arc<Self>, state: &mut State, phase: Phase, wait: Duration, after_quiet: bool) {
        if let Some(old) = state.opener.take() {
            old.abort();
        }
        state.phase = phase;
        state.opening += 1;
        let opener = opener(self.clone(), state.opening, wait, after_quiet);
        state.opener = Some(self.pool.home().spawn(opener).abort_handle());
    }
}

/// Tries until the link is up, or never will be. One at a time.
async fn opener(http: Arc<Inner>, number: u64, mut wait: Duration, after_quiet: bool) {
    if after_quiet {
        // The old exchanges must be gone before the server sees new ones. A thread that is stuck for this
        // long is not waited for.
        let _ = tokio::time::timeout(QUIET_FOR, http.pool.quiet()).await;
    }
    loop {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let result = {
            // Upstreams that all start at once take turns (`connect_concurrency`).
            let _turn = http.starts.acquire().await;
            let limit = http.shared.config.load().connect_timeout;
            match tokio::time::timeout(limit, http.handshake(limit)).await {
                Ok(result) => result,
                Err(_) => Err(Fault::Down { fault: format!("no handshake within {limit:?}"), rest: None }),
            }
        };
        let mut state = http.link.state.lock();
        if state.opening != number {
            return;
        }
        match result {
            Ok(session) => {
                if !state.doubtful {
                    state.failures = 0;
                }
                http.doubt.store(state.doubtful, Relaxed);
                state.era = Some(session.era);
                // The handshake took its number before the state could change under it.
                state.generation = session.generation;
                let renewed = state.phase == Phase::Renewing;
                state.phase = Phase::Up;
                state.opener = None;
                http.handshakes.fetch_add(1, Relaxed);
                let session = Arc::new(session);
                http.link.show(View::Up(session.clone()));
                http.listen(&session);
                // A server that forgot its sessions may well be another one by now.
                http.shared.tell(if renewed { LinkEvent::ListsChanged } else { LinkEvent::Up { processes: 1 } });
                return;
            }
            Err(Fault::Final(fault)) => {
                state.opener = None;
                return http.finally(&mut state, &fault);
            }
            Err(Fault::Down { fault, rest }) => wait = http.fail(&mut state, &fault, rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C07: backoff with jitter and a ceiling; a dead server is dialled a bounded number of times an hour.
    #[test]
    fn c07_waits_double_up_to_a_ceiling_with_jitter() {
        let backoff = Backoff::default();
        assert_eq!(backoff.after(1, 0.0), Duration::from_millis(500));
        assert_eq!(backoff.after(2, 0.0), Duration::from_secs(1));
        assert_eq!(backoff.after(7, 0.0), Duration::from_secs(32));
        assert_eq!(backoff.after(8, 0.0), Duration::from_secs(60));
        assert_eq!(backoff.after(u32::MAX, 0.999), Duration::from_secs(60).mul_f64(1.0 - 0.999 / 2.0));
        let mut random = fastrand::Rng::with_seed(3);
        let (mut passed, mut tries) = (Duration::ZERO, 0);
        while passed < Duration::from_secs(3600) {
            tries += 1;
            passed += backoff.after(tries, random.f64());
        }
        assert!((60..=130).contains(&tries), "{tries} tries");
    }
}
