//! [`Upstream`]: what the rest of the daemon holds of one server.

mod listing;
mod status;
mod told;

pub use listing::{Found, Page, Row, RowState};
pub use status::{Print, Status, UpstreamState};

use super::actor::UpstreamActor;
use super::actor::control::{Attach, Detach, Edit, FindCall, ListCalls, Refresh, Restart, ShutDown};
use super::connection::{AskError, Connection, Report, ServerInfo};
use super::link::LinkState;
use super::lists;
use super::shared::{Hold, Switch, UpstreamShared};
use super::supervisor::Supervisor;
use super::swap::Swap;
use crate::call::Call;
use crate::caller::Lane;
use crate::config::{Limits, UpstreamConfig};
use crate::outcome::CancelledBy;
use crate::protocol::mirror::Mirror;
use bytes::Bytes;
use kameo::error::SendError;
use kameo::message::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// How long a question to the actor may take in all; it takes microseconds unless the actor is dead.
const CONTROL: Duration = Duration::from_secs(5);

/// One server: its actor, its connection, its cached lists.
pub struct Upstream {
    shared: Arc<UpstreamShared>,
    connection: Arc<Swap>,
    /// Held while the connection is exchanged or closed for good.
    exchanging: tokio::sync::Mutex<()>,
}

/// The lists that are answered from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// One whole list, all pages of the upstream together.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// Raw items, each one JSON object, in the upstream's order.
    pub items: Vec<ListItem>,
    /// Tools of which requests repeat arguments in headers; few have any.
    pub mirrors: HashMap<Arc<str>, Vec<Mirror>>,
}

/// One item of a list.
#[derive(Clone, Debug)]
pub struct ListItem {
    /// The decoded `name` (or `uri`, `uriTemplate`).
    pub name: Arc<str>,
    /// The whole object as the upstream wrote it.
    pub raw: Bytes,
    /// `annotations.readOnlyHint` or `annotations.idempotentHint` is true (rule R5).
    pub safe_to_repeat: bool,
}

/// The actor did not answer in time, or has been removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's actor does not answer")]
pub struct Unavailable;

/// What became of a change to one call (rule R25).
#[derive(Clone, Copy, Debug, PartialEq, Eq, kameo::Reply)]
pub enum Edited {
    Changed,
    AlreadyRunning,
    Unknown,
}

impl Upstream {
    /// Starts the actor under `supervisor`, on its runtime, and, unless it starts on demand, the connection.
    pub fn start(shared: Arc<UpstreamShared>, connection: Arc<dyn Connection>, supervisor: &Supervisor) -> Arc<Self> {
        Upstream::with(shared, Swap::new(connection), supervisor)
    }

    /// The same without a connection yet: calls wait until [`Upstream::exchange`] brings one.
    pub fn start_unconnected(shared: Arc<UpstreamShared>, supervisor: &Supervisor) -> Arc<Self> {
        shared.set_hold(Hold::Between);
        Upstream::with(shared, Swap::default(), supervisor)
    }

    fn with(shared: Arc<UpstreamShared>, swap: Swap, supervisor: &Supervisor) -> Arc<Self> {
        let connection = Arc::new(swap);
        supervisor.adopt(&shared, &(connection.clone() as Arc<dyn Connection>));
        Arc::new(Upstream { shared, connection, exchanging: tokio::sync::Mutex::default() })
    }

    pub fn name(&self) -> &Arc<str> {
        &self.shared.name
    }

    pub fn shared(&self) -> &Arc<UpstreamShared> {
        &self.shared
    }

    /// Puts a call before the actor. Never waits; a call that cannot be taken ends at once.
    pub fn offer(&self, call: Arc<Call>) {
        call.goes_to(&self.shared);
        self.shared.submit(call);
    }

    /// What the server said of itself; connects it first if it sleeps, and waits at most `timeout`.
    pub async fn server(&self, timeout: Duration) -> Result<Arc<ServerInfo>, AskError> {
        let mut link = self.shared.link.subscribe();
        self.shared.wanted.store(true, Relaxed);
        self.shared.wake.notify_one();
        let known = async {
            loop {
                let state = link.borrow_and_update().state.clone();
                match state {
                    LinkState::Up { .. } => {
                        if let Some(server) = self.connection.server() {
                            return Ok(server);
                        }
                    }
                    LinkState::Final { fault } => return Err(AskError::Down(fault.to_string())),
                    LinkState::Asleep | LinkState::Starting | LinkState::Down { .. } => {}
                }
                if link.changed().await.is_err() {
                    return Err(AskError::Down("it has been removed".into()));
                }
            }
        };
        match tokio::time::timeout(timeout, known).await {
            Ok(answer) => answer,
            Err(_) => Err(match self.shared.link.borrow().fault() {
                Some(fault) => AskError::Down(fault.to_string()),
                None => AskError::TimedOut(timeout),
            }),
        }
    }

    /// A whole list from the cache, or fetched once for all who wait. If it cannot be fetched, the list as it
    /// was last known.
    pub async fn list(&self, kind: ListKind) -> Result<Arc<List>, AskError> {
        if let Some(list) = self.shared.lists.fresh(kind) {
            return Ok(list);
        }
        let timeout = self.shared.config.load().connect_timeout;
        if let Err(error) = self.server(timeout).await {
            return self.shared.lists.known(kind).ok_or(error);
        }
        let connection: Arc<dyn Connection> = self.connection.clone();
        lists::get(&self.shared, kind, &connection).await
    }

    /// The list if it is cached and fresh.
    pub fn cached_list(&self, kind: ListKind) -> Option<Arc<List>> {
        self.shared.lists.fresh(kind)
    }

    /// The list as it was last known, fresh or not; for looking a tool up without waiting.
    pub fn known_list(&self, kind: ListKind) -> Option<Arc<List>> {
        self.shared.lists.known(kind)
    }

    /// Rows from `cursor` on (0 is the first), at most `limit` (at most 256).
    pub async fn page(&self, cursor: u64, limit: usize) -> Result<Page, Unavailable> {
        self.ask(ListCalls { cursor, limit }).await
    }

    /// One call's row, without a look at the others.
    pub async fn find(&self, call: &Arc<Call>) -> Result<Found, Unavailable> {
        self.ask(FindCall { call: call.clone() }).await
    }

    /// What the server said of itself, if it is connected.
    pub fn known_server(&self) -> Option<Arc<ServerInfo>> {
        self.connection.server()
    }

    /// Limits as the config file has them; those in force may lie over them (rule R24).
    pub fn file_limits(&self) -> Limits {
        Limits::clone(&self.shared.file_limits.load())
    }

    /// The config file has other limits from now on.
    pub fn set_file_limits(&self, limits: Limits) {
        self.shared.file_limits.store(Arc::new(limits));
    }

    /// Nothing is dispatched any more; arrivals queue.
    pub async fn pause(&self) -> Result<(), Unavailable> {
        self.switch_to(Switch::Paused).await
    }

    /// Ends a pause or a drain.
    pub async fn resume(&self) -> Result<(), Unavailable> {
        self.switch_to(Switch::Open).await
    }

    /// Arrivals are refused, what is queued runs. Ends a pause.
    pub async fn drain(&self) -> Result<(), Unavailable> {
        self.switch_to(Switch::Draining).await
    }

    /// Replaces the children or connections; running calls end lost.
    pub async fn restart(&self) -> Result<(), Unavailable> {
        self.ask(Restart).await
    }

    /// Puts new limits in force. They hold from the moment this returns.
    pub async fn set_limits(&self, limits: Limits) -> Result<(), Unavailable> {
        self.change_limits(|now| *now = limits).await
    }

    /// As [`Upstream::set_limits`], for a change of some of them: concurrent changes lose nothing of each other.
    pub async fn change_limits(&self, change: impl FnOnce(&mut Limits)) -> Result<(), Unavailable> {
        self.shared.reconfigure(|config| change(&mut config.limits));
        self.ask(Refresh).await
    }

    /// Puts a changed config in force, as far as it is the queue's: limits and tools. What concerns the
    /// connection needs a restart.
    pub async fn set_config(&self, config: Arc<UpstreamConfig>) -> Result<(), Unavailable> {
        self.shared.reconfigure(|now| now.clone_from(&config));
        self.ask(Refresh).await
    }

    /// Exchanges the connection for the one that `next` makes, such as to a changed command or address. Nothing
    /// begins meanwhile; what waits goes on waiting. What is in flight may end for `patience`, then it ends lost, so
    /// that the former server and the next one together never hold more calls than the limit. `next` is called once
    /// the former one is closed, with nothing in between that could start it anew. False, and `next` not called, if
    /// the upstream is removed meanwhile. To be called on the runtime of the upstream's actor.
    pub async fn exchange(&self, patience: Duration, next: impl FnOnce() -> Arc<dyn Connection>) -> bool {
        let shared = &self.shared;
        let _one_at_a_time = self.exchanging.lock().await;
        if shared.held() == Hold::Free {
            shared.set_hold(Hold::Finishing);
            // Answered once nothing is dispatched any more. An actor that is not there dispatches nothing either.
            let _ = self.ask(Refresh).await;
            let _ = tokio::time::timeout(patience, self.nothing_in_flight()).await;
        }
        if shared.is_closed() {
            return false;
        }
        if shared.held() == Hold::Finishing {
            let _ = self.ask(Detach).await;
            shared.set_hold(Hold::Between);
        }
        self.connection.close().await;
        if shared.is_closed() {
            return false;
        }
        self.connection.set(next());
        if self.ask(Attach).await.is_err() {
            // The actor's next life opens it.
            shared.set_hold(Hold::Free);
        }
        true
    }

    /// Waits until no call is with the server, or the wait is given up.
    async fn nothing_in_flight(&self) {
        let figures = &self.shared.figures;
        loop {
            let told = self.shared.idle.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            let in_flight = figures.running.load(Relaxed) + figures.lingering.load(Relaxed);
            if in_flight == 0 || self.shared.held() != Hold::Finishing {
                return;
            }
            told.await;
        }
    }

    /// Puts what the config file says of this upstream in force, but for the server itself, which is
    /// [`Upstream::exchange`]'s. Limits that were changed live stay where the file's own value did not change (rule
    /// R24). The actor takes it in by [`Upstream::refresh`].
    pub fn take_over(&self, file: &Arc<UpstreamConfig>) {
        self.shared.reconfigure(|now| {
            let before = self.shared.file_limits.swap(Arc::new(file.limits.clone()));
            let limits = now.limits.rebased(&before, &file.limits);
            let target = now.target.clone();
            *now = UpstreamConfig { limits, target, ..UpstreamConfig::clone(file) };
        });
    }

    /// Has the actor look at limits and switches again; they hold from the moment this returns.
    pub async fn refresh(&self) -> Result<(), Unavailable> {
        self.ask(Refresh).await
    }

    /// Moves a queued call to another lane, or moves its queue expiry by `extend`, at most to its caller's own
    /// deadline or one hour from now (rule R25).
    pub async fn edit(
        &self,
        call: &Arc<Call>,
        lane: Option<Lane>,
        extend: Option<Duration>,
    ) -> Result<Edited, Unavailable> {
        self.ask(Edit { call: call.clone(), lane, extend }).await
    }

    /// Pids, restarts, stderr.
    pub fn report(&self) -> Report {
        self.connection.report()
    }

    /// The report without the lines of stderr, for who looks often.
    pub fn brief(&self) -> Report {
        self.connection.brief()
    }

    /// Lives of the actor after its first.
    pub fn actor_restarts(&self) -> u64 {
        self.shared.figures.restarts.load(Relaxed)
    }

    /// Slots given up although their call had not been ended by the server (`after_cancel = "release"`).
    pub fn released(&self) -> u64 {
        self.shared.figures.released.load(Relaxed)
    }

    /// Takes the upstream out of service (rule R3): drains until `drain_timeout`, answers the rest, closes
    /// the connection, stops the actor.
    pub async fn remove(&self, drain_timeout: Duration) {
        self.shared.close();
        self.shared.set_switch(Switch::Draining);
        // Its calls have to run now, or never.
        self.shared.give_hold_up();
        let dry = async {
            loop {
                let told = self.shared.dry.notified();
                tokio::pin!(told);
                told.as_mut().enable();
                if self.shared.switch() == Switch::Drained {
                    return;
                }
                told.await;
            }
        };
        let _ = tokio::time::timeout(drain_timeout, dry).await;
        // At most one slice of the queue a message, so that the actor stays responsive.
        while let Ok(true) = self.ask(ShutDown).await {}
        {
            let _not_exchanged = self.exchanging.lock().await;
            self.connection.close().await;
        }
        let actor = self.shared.actor.borrow().clone();
        if let Some(actor) = actor {
            let stopped = async {
                let _ = actor.stop_gracefully().await;
                let _ = actor.wait_for_shutdown_result().await;
            };
            let _ = tokio::time::timeout(CONTROL, stopped).await;
        }
        self.shared.actor.send_replace(None);
        // Calls that met the closed door while nobody was there to look.
        while let Some(call) = self.shared.next_submit() {
            let _ = call.cancel(CancelledBy::Shutdown, Instant::now());
        }
    }

    async fn switch_to(&self, switch: Switch) -> Result<(), Unavailable> {
        self.shared.set_switch(switch);
        self.ask(Refresh).await
    }

    /// Asks the actor, within a bound. A message that a restart of the actor swallowed is sent again.
    async fn ask<M, R>(&self, message: M) -> Result<R, Unavailable>
    where
        M: Clone + Send + 'static,
        UpstreamActor: Message<M>,
        <UpstreamActor as Message<M>>::Reply: kameo::Reply<Ok = R>,
    {
        let mut actors = self.shared.actor.subscribe();
        let asked = async {
            loop {
                let actor = match actors.wait_for(Option::is_some).await {
                    Ok(actor) => actor.clone(),
                    Err(_) => None,
                };
                let actor = actor.ok_or(Unavailable)?;
                match actor.ask(message.clone()).send().await {
                    Ok(reply) => return Ok(reply),
                    Err(SendError::ActorRestarting(_) | SendError::ActorStopped) => {
                        tokio::task::yield_now().await;
                    }
                    Err(SendError::ActorNotRunning(_)) if self.shared.is_closed() => return Err(Unavailable),
                    Err(SendError::ActorNotRunning(_)) => {
                        if actors.changed().await.is_err() {
                            return Err(Unavailable);
                        }
                    }
                    Err(SendError::MailboxFull(_) | SendError::HandlerError(_) | SendError::Timeout(_)) => {
                        return Err(Unavailable);
                    }
                }
            }
        };
        tokio::time::timeout(CONTROL, asked).await.unwrap_or(Err(Unavailable))
    }
}
