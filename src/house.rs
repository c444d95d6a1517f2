//! What a config is put in force on: the dispatcher, the upstreams' actors, the gates. Starting is putting a config in
//! force on an empty house; a reload does the same on one that is full.
//!
//! Nothing here can fail half way: whatever may be wrong with a config is found before ([`crate::config`]), and what
//! takes time (ends of calls, of children) is done afterwards, by tasks of its own.

use crate::config::{Config, Listen, Start, Target, UpstreamConfig};
use crate::dispatcher::Dispatcher;
use crate::events::Draft;
use crate::upstream::supervisor::Supervisor;
use crate::upstream::transport::{http::Http, stdio::Stdio};
use crate::upstream::{Connection, Upstream, UpstreamShared};
use forebay_wire::Level;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

/// See the module's documentation.
pub(crate) struct House {
    pub(crate) dispatcher: Arc<Dispatcher>,
    supervisor: Supervisor,
    starts: Starts,
    homes: Vec<Handle>,
    seed: AtomicU64,
    /// `[listen]` as it was when the listeners were bound.
    listen: Listen,
    /// Upstreams whose connection a task is exchanging, by their place in memory: the task keeps them there, and a
    /// name may pass on to another one meanwhile.
    exchanging: Mutex<BTreeSet<usize>>,
    /// Told when an upstream that was taken out is gone.
    gone: Notify,
}

/// What differs from the config before.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<String>,
    pub(crate) restarted: Vec<String>,
    pub(crate) callers: Vec<String>,
    pub(crate) tables: Vec<String>,
    pub(crate) needs_restart: Vec<String>,
    /// Their actors have yet to take the change in.
    unsettled: Vec<Arc<Upstream>>,
}

/// Bounds how many upstreams connect at once; the bound can be moved.
struct Starts {
    places: Arc<Semaphore>,
    bound: AtomicU64,
}

impl House {
    /// An empty house. `dispatcher` has a config without upstreams and callers.
    pub(crate) fn new(
        dispatcher: Arc<Dispatcher>,
        supervisor: Supervisor,
        homes: Vec<Handle>,
        seed: u64,
        listen: Listen,
    ) -> Arc<Self> {
        let bound = places(dispatcher.config.load().global.connect_concurrency);
        Arc::new(House {
            dispatcher,
            supervisor,
            starts: Starts { places: Arc::new(Semaphore::new(bound as usize)), bound: AtomicU64::new(bound) },
            homes,
            seed: AtomicU64::new(seed),
            listen,
            exchanging: Mutex::default(),
            gone: Notify::new(),
        })
    }

    /// Where the listener of MCP was asked to be.
    pub(crate) fn bound_at(&self) -> SocketAddr {
        self.listen.mcp
    }

    /// Puts a config in force. One at a time. When it returns, newcomers are routed and checked by it; actors take
    /// changed limits in by [`House::settle`].
    pub(crate) fn put_in_force(self: &Arc<Self>, next: Config) -> Changes {
        let next = Arc::new(next);
        let before = self.dispatcher.config.swap(next.clone());
        let mut changes = Changes { needs_restart: self.needs_restart(&next.listen), ..Changes::default() };
        tables(&before, &next, &mut changes);
        self.dispatcher.callers.reload(&next);
        self.starts.resize(next.global.connect_concurrency, &self.homes[0]);

        // Tasks of connections live where they are made.
        let _on_the_first_thread = self.homes[0].enter();
        let mut added = Vec::new();
        for (name, upstream) in &next.upstreams {
            match before.upstreams.get(name) {
                None => {
                    changes.added.push(name.clone());
                    added.push(self.build(upstream.clone()));
                }
                Some(old) if old == upstream => {}
                Some(old) => self.change(name, old, upstream, &mut changes),
            }
        }
        changes.removed = before.upstreams.keys().filter(|name| !next.upstreams.contains_key(*name)).cloned().collect();
        let names: Vec<Arc<str>> = changes.removed.iter().map(|name| name.as_str().into()).collect();
        for leaving in self.dispatcher.change_upstreams(added, &names) {
            self.homes[0].spawn(self.clone().see_off(leaving, next.global.drain_timeout));
        }
        // Last, since it hands permits out by what is in force now.
        self.supervisor.gates().configure(&next.global);
        changes
    }

    /// Waits until the actors of changed upstreams hold by the new limits.
    pub(crate) async fn settle(&self, changes: &mut Changes) {
        let all = std::mem::take(&mut changes.unsettled);
        // One that does not answer is failing, and reads the config when it is started anew.
        futures_util::future::join_all(all.iter().map(|upstream| upstream.refresh())).await;
    }

    fn needs_restart(&self, next: &Listen) -> Vec<String> {
        let bound = &self.listen;
        let keys = [
            ("listen.mcp", bound.mcp != next.mcp),
            ("listen.mcp_unix", bound.mcp_unix != next.mcp_unix),
            ("listen.admin", bound.admin != next.admin),
            ("listen.threads", bound.threads != next.threads),
        ];
        keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned()).collect()
    }

    fn change(self: &Arc<Self>, name: &str, old: &UpstreamConfig, new: &Arc<UpstreamConfig>, changes: &mut Changes) {
        let Some(upstream) = self.dispatcher.upstream(name) else { return };
        upstream.take_over(new);
        if new.start == Start::Eager && old.start == Start::OnDemand {
            upstream.shared().wake_connection();
        }
        changes.unsettled.push(upstream.clone());
        if old.target == new.target {
            changes.changed.push(name.to_owned());
            return;
        }
        changes.restarted.push(name.to_owned());
        if self.exchanging.lock().insert(Arc::as_ptr(&upstream) as usize) {
            self.homes[0].spawn(self.clone().exchange(upstream));
        }
    }

    /// One upstream with its actor, and its connection unless the server of a former one of that name may still run.
    fn build(self: &Arc<Self>, config: Arc<UpstreamConfig>) -> Arc<Upstream> {
        let name = config.name.clone();
        let shared = UpstreamShared::new(config);
        // Before the actor starts, so that its first words are heard.
        shared.log_to(self.dispatcher.events());
        if !self.is_leaving(&name) {
            let connection = self.connect(&shared);
            return Upstream::start(shared, connection, &self.supervisor);
        }
        let upstream = Upstream::start_unconnected(shared, &self.supervisor);
        self.exchanging.lock().insert(Arc::as_ptr(&upstream) as usize);
        let (house, waits) = (self.clone(), upstream.clone());
        self.homes[0].spawn(async move {
            loop {
                let told = house.gone.notified();
                tokio::pin!(told);
                told.as_mut().enable();
                if !house.is_leaving(waits.name()) {
                    break;
                }
                told.await;
            }
            house.exchange(waits).await;
        });
        upstream
    }

    fn is_leaving(&self, name: &str) -> bool {
        self.dispatcher.leaving().iter().any(|upstream| **upstream.name() == *name)
    }

    fn connect(&self, shared: &Arc<UpstreamShared>) -> Arc<dyn Connection> {
        let seed = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        connection(shared, &self.starts.places, &self.homes, seed)
    }

    /// Exchanges the connection until it is the one to the server that the config in force names.
    async fn exchange(self: Arc<Self>, upstream: Arc<Upstream>) {
        let (name, shared) = (upstream.name(), upstream.shared());
        let in_force = || self.dispatcher.config.load().upstreams.get(&**name).cloned();
        loop {
            let patience = self.dispatcher.config.load().global.drain_timeout;
            let exchanged = upstream.exchange(patience, || {
                if let Some(config) = in_force() {
                    shared.reconfigure(|now| now.target.clone_from(&config.target));
                }
                self.connect(shared)
            });
            let exchanged = exchanged.await;
            let mut exchanging = self.exchanging.lock();
            let done = in_force().is_none_or(|config| config.target == shared.config.load().target);
            if !exchanged || done {
                exchanging.remove(&(Arc::as_ptr(&upstream) as usize));
                drop(exchanging);
                if exchanged {
                    let words = format!("{name} is started anew with its changed configuration");
                    let draft = Draft::new(Level::Info, "upstream.changed", words);
                    self.dispatcher.events().tell(draft.upstream(name));
                }
                return;
            }
        }
    }

    /// Ends an upstream that was taken out: what it has runs or is answered (rule R3).
    async fn see_off(self: Arc<Self>, upstream: Arc<Upstream>, patience: std::time::Duration) {
        upstream.remove(patience).await;
        self.dispatcher.fold(&upstream);
        self.gone.notify_waiters();
        let words = format!("{} was taken out of the config and has ended", upstream.name());
        self.dispatcher.events().tell(Draft::new(Level::Info, "upstream.removed", words).upstream(upstream.name()));
    }
}

impl Starts {
    fn resize(&self, bound: u32, home: &Handle) {
        let bound = places(bound);
        let before = self.bound.swap(bound, Relaxed);
        if bound > before {
            self.places.add_permits((bound - before) as usize);
        } else if bound < before {
            // Those that connect now keep their places until they are done.
            let (places, fewer) = (self.places.clone(), (before - bound) as u32);
            home.spawn(async move {
                if let Ok(taken) = places.acquire_many_owned(fewer).await {
                    taken.forget();
                }
            });
        }
    }
}

fn places(connect_concurrency: u32) -> u64 {
    u64::from(connect_concurrency.max(1))
}

/// The connection to the server that the config of `shared` names.
pub(crate) fn connection(
    shared: &Arc<UpstreamShared>,
    starts: &Arc<Semaphore>,
    homes: &[Handle],
    seed: u64,
) -> Arc<dyn Connection> {
    match &shared.config.load().target {
        Target::Stdio(_) => Stdio::new(shared.clone(), starts.clone(), seed),
        Target::Http(_) => Http::new(shared.clone(), starts.clone(), homes.to_vec(), seed),
    }
}

/// A config with the same settings for the whole and nothing to serve, from which a start begins.
pub(crate) fn empty(config: &Config) -> Config {
    Config { upstreams: BTreeMap::new(), callers: BTreeMap::new(), ..config.clone() }
}

/// Callers and tables that differ.
fn tables(before: &Config, next: &Config, changes: &mut Changes) {
    let names: BTreeSet<_> = before.callers.keys().chain(next.callers.keys()).collect();
    let differs = |name: &&&String| before.callers.get(**name) != next.callers.get(**name);
    changes.callers = names.iter().filter(differs).map(|name| (*name).clone()).collect();
    let live = |listen: &Listen| (listen.hosts.clone(), listen.origins.clone(), listen.max_body);
    let tables = [
        ("listen", live(&before.listen) != live(&next.listen)),
        ("auth", before.auth != next.auth),
        ("global", before.global != next.global),
    ];
    changes.tables = tables.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_owned()).collect();
}
