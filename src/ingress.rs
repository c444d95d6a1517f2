//! The callers' front: bytes to a [`crate::call::Call`], and its ending back to bytes.
//!
//! A socket is dealt to the thread with the fewest open ones ([`listen`](fn@listen), [`serve`]); each request then
//! passes, in this order: Host and Origin ([`guard`]), path and method ([`service`]), who calls ([`who`]),
//! media types and size ([`body`]), the era and its header rules ([`era`]), and the method ([`mcp`], or
//! [`rest`]). What is forwarded goes through [`crate::dispatcher::Dispatcher::submit`] and is awaited in
//! [`calls`]; [`answer`] turns every ending into its answer. Queues, limits and upstreams are not known here.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod builtin;
pub(crate) mod calls;
pub(crate) mod era;
pub(crate) mod face;
pub(crate) mod guard;
pub(crate) mod hello;
pub(crate) mod inflight;
pub(crate) mod limiter;
mod listen;
pub(crate) mod listening;
pub(crate) mod lists;
pub(crate) mod mcp;
pub(crate) mod payload;
pub(crate) mod pipeline;
mod resource;
pub(crate) mod rest;
pub(crate) mod service;
pub(crate) mod session;
mod stall;
pub(crate) mod stdio;
mod stream;
pub(crate) mod who;

pub use listen::{bind, listen, listen_unix, serve, serve_socket};

use crate::caller::Caller;
use crate::config::Rate;
use crate::dispatcher::Dispatcher;
use crate::dispatcher::route::Routes;
use inflight::Inflight;
use limiter::{Crowd, Limiter};
use listen::Inlet;
use pipeline::Patience;
use session::Sessions;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What a client may take up by doing nothing. Only tests have others than the default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How long an answer may wait for its client to read on; then the socket is closed (rule R16).
    pub write_stall: Duration,
    /// How long a client that is not being served may be silent.
    pub patience: Patience,
    /// Open sockets of one address at most; further ones are closed at once.
    pub per_address: u32,
    /// Loopback is free of that bound: all local clients have the one address.
    pub loopback_is_free: bool,
    /// Handshakes and lists of one caller, which are no calls and meet no queue.
    pub asks: Rate,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            write_stall: Duration::from_secs(30),
            patience: Patience { idle: Duration::from_secs(120), head: Duration::from_secs(10) },
            per_address: 1024,
            loopback_is_free: true,
            asks: Rate { per_second: 200.0, burst: 2000 },
        }
    }
}

/// What all sockets share.
pub struct Ingress {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) routes: Routes,
    pub(crate) sessions: Sessions,
    pub(crate) inflight: Inflight,
    pub(crate) wrong_keys: Limiter,
    crowd: Crowd,
    /// Where the listener is bound; its port is part of the Host check.
    local: SocketAddr,
    own_hosts: Vec<String>,
    inlets: Vec<Inlet>,
    open: AtomicUsize,
    /// Told whenever a socket closes.
    freed: Notify,
    closing: CancellationToken,
    bounds: Bounds,
}

impl Ingress {
    /// The front of a listener bound to `local`, served by `threads` threads (see [`serve`]).
    pub fn new(dispatcher: Arc<Dispatcher>, local: SocketAddr, threads: usize) -> Arc<Ingress> {
        Ingress::within(Bounds::default(), dispatcher, local, threads)
    }

    pub(crate) fn within(
        bounds: Bounds,
        dispatcher: Arc<Dispatcher>,
        local: SocketAddr,
        threads: usize,
    ) -> Arc<Ingress> {
        Arc::new(Ingress {
            routes: Routes::default(),
            sessions: Sessions::new(session::MOST, session::IDLE),
            inflight: Inflight::default(),
            wrong_keys: Limiter::new(dispatcher.started()),
            crowd: Crowd::default(),
            local,
            own_hosts: guard::own_hosts(local),
            inlets: (0..threads.max(1)).map(|_| Inlet::new()).collect(),
            open: AtomicUsize::new(0),
            freed: Notify::new(),
            closing: CancellationToken::new(),
            bounds,
            dispatcher,
        })
    }

    /// Takes one handshake or list off the caller's allowance, or says in how many milliseconds one is to be had.
    pub(crate) fn take_ask(&self, caller: &Caller) -> Result<(), u64> {
        caller.take_ask(self.bounds.asks, self.dispatcher.started().elapsed().as_nanos() as u64)
    }

    /// Whether a socket of this address may be opened; if so it counts until [`Ingress::gone`].
    fn comes(&self, peer: IpAddr) -> bool {
        self.is_free(peer) || self.crowd.enter(peer, self.bounds.per_address)
    }

    fn gone(&self, peer: IpAddr) {
        if !self.is_free(peer) {
            self.crowd.leave(peer);
        }
    }

    fn is_free(&self, peer: IpAddr) -> bool {
        self.bounds.loopback_is_free && peer.to_canonical().is_loopback()
    }

    /// The address that callers reach.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// How many sockets are open.
    pub fn open_sockets(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Stops accepting, closes idle sockets; what is in flight is finished and then its socket closed.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Waits until the last socket is closed. The caller bounds the wait.
    pub async fn closed(&self) {
        loop {
            let freed = self.freed.notified();
            if self.open.load(Relaxed) == 0 {
                return;
            }
            freed.await;
        }
    }
}

#[cfg(test)]
#[cfg(not(forebay_loom))]
mod tests;
