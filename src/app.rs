//! Builds everything from one [`Config`]: threads, upstreams, listeners; and takes it down again.
//!
//! The shape is the measured one: a few threads with a current-thread runtime each, on which sockets and
//! workers stay where they are. Upstream actors and the accept loop live on the first of them; the admin
//! API has a thread of its own, so that watching and steering never wait behind calls.

use crate::admin::{self, Admin};
use crate::config::{Config, Loader, UpstreamConfig};
use crate::dispatcher::Dispatcher;
use crate::events::{Draft, EventLog};
use crate::hooks;
use crate::house::{self, House};
use crate::ingress::{self, Ingress};
use crate::reload::{self, Reload};
use crate::shutdown;
use crate::upstream::gates::Gates;
use crate::upstream::supervisor::Supervisor;
use crate::upstream::{Upstream, UpstreamShared};
use forebay_wire::Level;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Why the daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot start a runtime thread")]
    Thread(#[source] std::io::Error),
    #[error("cannot listen for MCP on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Admin(#[from] admin::BindError),
    #[error("cannot read randomness for call ids: {0}")]
    Randomness(getrandom::Error),
}

/// A daemon that runs. [`App::shut_down`] ends it in order; a dropped one ends at once, calls unanswered.
pub struct App {
    pub dispatcher: Arc<Dispatcher>,
    /// Where MCP and REST are served, with the port that was taken.
    pub mcp: SocketAddr,
    /// The admin API's unix socket.
    pub admin: PathBuf,
    /// None if there is nothing to reload from.
    pub reload: Option<Reload>,
    ingress: Arc<Ingress>,
    stop_admin: CancellationToken,
    /// Its file goes with it.
    _mcp_unix: Option<admin::Socket>,
    /// The root actor ends with its last handle, and with it every upstream's actor.
    _house: Arc<House>,
    threads: Vec<Thread>,
}

/// A thread with a runtime of its own, which lives until `stop` or until this is dropped.
struct Thread {
    handle: Handle,
    stop: CancellationToken,
    /// None once it was joined.
    join: Option<JoinHandle<()>>,
}

impl Drop for Thread {
    /// A start that fails half way leaves no thread behind.
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}

impl App {
    /// Starts the daemon. Both listeners are bound when it returns; upstreams connect on their own.
    ///
    /// # Errors
    /// Nothing is left running when it fails.
    pub fn start(config: Config) -> Result<App, StartError> {
        App::start_from(config, None)
    }

    /// The same with what the config was read with and from, so that it can be read again.
    ///
    /// # Errors
    /// Nothing is left running when it fails.
    pub fn start_from(config: Config, origin: Option<(Loader, Vec<PathBuf>)>) -> Result<App, StartError> {
        let randomness = || getrandom::u32().map_err(StartError::Randomness);
        let (mark, seed) = (randomness()?, u64::from(randomness()?));
        let address = config.listen.mcp;
        let listen_error = |source| StartError::Listen { address, source };
        let listener = ingress::bind(config.listen.mcp).map_err(listen_error)?;
        let mcp = listener.local_addr().map_err(listen_error)?;
        let socket = admin::Socket::bind(&config.listen.admin)?;
        let mcp_unix = config.listen.mcp_unix.as_deref().map(admin::Socket::bind_open).transpose()?;

        let workers = config.listen.threads.max(1);
        let mut threads =
            (0..workers).map(|number| Thread::start(format!("forebay-{number}"))).collect::<Result<Vec<_>, _>>()?;
        let homes: Vec<Handle> = threads.iter().map(|thread| thread.handle.clone()).collect();
        let control = Thread::start("forebay-admin".into())?;

        let dispatcher = Dispatcher::new(Arc::new(house::empty(&config)), mark);
        let supervisor = Supervisor::start(&homes[0], Gates::new(&config.global), seed);
        let (admin, upstreams) = (config.listen.admin.clone(), config.upstreams.len());
        let listen = config.listen.clone();
        let house = House::new(dispatcher.clone(), supervisor, homes.clone(), seed.rotate_left(32), listen);
        house.put_in_force(config);

        let front = Ingress::new(dispatcher.clone(), mcp, workers);
        for (home, handle) in homes.iter().enumerate() {
            handle.spawn(ingress::serve(front.clone(), home));
        }
        let accepting = front.clone();
        homes[0].spawn(async move {
            if let Err(fault) = ingress::listen(accepting, listener).await {
                tracing::error!(%fault, "the listener ended");
            }
        });
        if let Some(socket) = &mcp_unix {
            let _on_the_first_thread = homes[0].enter();
            let listener = socket.listener().map_err(listen_error)?;
            homes[0].spawn(ingress::listen_unix(front.clone(), 0, listener));
        }
        let stop_admin = CancellationToken::new();
        let reload = origin.map(|(loader, files)| reload::start(house.clone(), loader, files, &control.handle));
        control.handle.spawn(Admin::new(dispatcher.clone(), mcp, reload.clone()).serve(socket, stop_admin.clone()));
        control.handle.spawn(hooks::run(dispatcher.clone()));
        threads.push(control);
        tracing::info!(%mcp, admin = %admin.display(), upstreams, "forebay is ready");
        let words = format!("forebay {} serves {upstreams} upstreams", env!("CARGO_PKG_VERSION"));
        dispatcher.events().tell(Draft::new(Level::Info, "daemon.started", words));
        Ok(App {
            dispatcher,
            mcp,
            admin,
            reload,
            ingress: front,
            stop_admin,
            _mcp_unix: mcp_unix,
            _house: house,
            threads,
        })
    }

    /// Ends the daemon in order: no new calls, run dry until the drain timeout or `hurry`, answer the rest,
    /// close the upstreams, end the threads.
    pub async fn shut_down(self, hurry: impl Future<Output = ()>) {
        shutdown::run(&self.dispatcher, &self.ingress, hurry).await;
        self.stop_admin.cancel();
        let threads = self.threads;
        for thread in &threads {
            thread.stop.cancel();
        }
        // Joining blocks, so it is done off the runtime.
        let joined = tokio::task::spawn_blocking(move || {
            drop(threads);
        });
        let _ = joined.await;
    }
}

impl Thread {
    fn start(name: String) -> Result<Thread, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let join = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                runtime.block_on(stopped.cancelled());
                runtime.shutdown_background();
            })
            .map_err(StartError::Thread)?;
        Ok(Thread { handle, stop, join: Some(join) })
    }
}

/// One upstream with its connection and its actor, alone.
pub(crate) fn build(
    config: Arc<UpstreamConfig>,
    events: &Arc<EventLog>,
    supervisor: &Supervisor,
    starts: &Arc<Semaphore>,
    homes: &[Handle],
    seed: u64,
) -> Arc<Upstream> {
    let shared = UpstreamShared::new(config);
    // Before the actor starts, so that its first words are heard.
    shared.log_to(events);
    let connection = house::connection(&shared, starts, homes, seed);
    Upstream::start(shared, connection, supervisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_thread_has_ended_with_all_that_ran_on_it() {
        let held = Arc::new(());
        let thread = Thread::start("forebay-test".into()).unwrap();
        let on_it = held.clone();
        thread.handle.spawn(async move {
            std::future::pending::<()>().await;
            drop(on_it);
        });
        drop(thread);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
