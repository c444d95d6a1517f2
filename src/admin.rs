//! The admin API: HTTP/1.1 and JSON on a unix socket of its own, to see and to steer.
//!
//! It has its own listener and its own task, reads counters that upstreams publish, and cancels through
//! the call's ticket, so it never waits behind calls. `docs/admin-api.md` describes routes and shapes;
//! the types are those of `forebay-wire`.

mod change;
mod fault;
mod list;
mod look;
mod routes;
mod save;
mod socket;
mod stream;
#[cfg(all(test, not(forebay_loom)))]
mod tests;
mod who;
mod why;

pub use socket::{BindError, Socket};

use crate::dispatcher::Dispatcher;
use crate::reload::Reload;
use crate::upstream::Upstream;
use forebay_wire::Role;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use who::Peer;

/// Connections served at once; further ones wait in the listener's backlog. Bounds memory and descriptors.
const CONNECTIONS: usize = 64;
/// How long a connection may take to send a request's head, and may idle between two.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// What the routes work on.
pub struct Admin {
    dispatcher: Arc<Dispatcher>,
    mcp: SocketAddr,
    reload: Option<Reload>,
    hub: stream::Hub,
    /// Held while limits are changed.
    changing: tokio::sync::Mutex<()>,
    /// Nothing more is accepted; streams end.
    ended: CancellationToken,
}

impl Admin {
    /// `mcp` is the address at which calls are served; without `reload` there is no config to be read anew.
    pub fn new(dispatcher: Arc<Dispatcher>, mcp: SocketAddr, reload: Option<Reload>) -> Arc<Self> {
        Arc::new(Admin {
            dispatcher,
            mcp,
            reload,
            hub: stream::Hub::default(),
            changing: tokio::sync::Mutex::default(),
            ended: CancellationToken::new(),
        })
    }

    fn upstream(&self, name: &str) -> Result<Arc<Upstream>, fault::Refusal> {
        self.dispatcher.upstream(name).ok_or_else(|| {
            let known: Vec<_> = self.dispatcher.upstreams().keys().map(ToString::to_string).collect();
            fault::Refusal::unknown_upstream(name, &known)
        })
    }

    /// Serves until `stop`. Requests under way are answered; the socket file is removed at the end.
    pub async fn serve(self: Arc<Self>, socket: Socket, stop: CancellationToken) {
        let listener = match socket.listener() {
            Ok(listener) => listener,
            Err(fault) => {
                tracing::error!(%fault, "the admin socket cannot be listened on");
                return;
            }
        };
        let _ends = self.ended.clone().drop_guard();
        let router = routes::router(self);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let place = tokio::select! {
                () = stop.cancelled() => break,
                place = places.clone().acquire_owned() => place,
            };
            let Ok(place) = place else { break };
            let stream = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(fault) => {
                        // Out of descriptors, most likely: try again when some may have come back.
                        tracing::warn!(%fault, "an admin connection cannot be accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                },
            };
            let Some(uid) = our_uid(&stream) else {
                tracing::warn!("an admin connection of another user was refused");
                continue;
            };
            let peer = Peer { subject: format!("uid:{uid}").into(), role: Role::Operator };
            let service = TowerToHyperService::new(router.clone().layer(axum::Extension(peer)));
            let stop = stop.clone();
            tokio::spawn(async move {
                let _place = place;
                let mut connection = std::pin::pin!(
                    hyper::server::conn::http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(HEAD_TIMEOUT)
                        .serve_connection(TokioIo::new(stream), service)
                );
                tokio::select! {
                    _ = &mut connection => {}
                    () = stop.cancelled() => {
                        connection.as_mut().graceful_shutdown();
                        let _ = connection.await;
                    }
                }
            });
        }
        drop(socket);
    }
}

/// Only this user and root steer the daemon, whatever the modes of the socket file say.
fn our_uid(stream: &UnixStream) -> Option<u32> {
    let uid = stream.peer_cred().ok()?.uid();
    (uid == 0 || uid == rustix::process::geteuid().as_raw()).then_some(uid)
}
