//! Accepting sockets and dealing them to threads. What is said on them belongs to [`super::service`].
//!
//! One accept loop gives each socket to the thread that has the fewest open ones: with few callers a
//! kernel's hash over `SO_REUSEPORT` sockets leaves threads idle.

use super::Ingress;
use super::pipeline::{Pipe, Piped};
use super::service::{self, Socket};
use super::stall::Stall;
use super::who::Peer;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;

/// Open sockets at most; further ones wait in the kernel's backlog.
const MOST_SOCKETS: usize = 16_384;
/// File descriptors kept free for children, upstream connections and the admin API.
const RESERVED_FDS: usize = 256;
const MOST_HEADERS: usize = 100;
const MOST_HEAD_BYTES: usize = 40 << 10;
/// The pause after a failed accept (no file descriptors left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A socket and the address under which it is counted.
type Dealt = (std::net::TcpStream, IpAddr);

/// Sockets on their way to one thread. No more are in it than may be open in all ([`MOST_SOCKETS`]).
pub(super) struct Inlet {
    open: AtomicUsize,
    sender: mpsc::UnboundedSender<Dealt>,
    receiver: Mutex<Option<mpsc::UnboundedReceiver<Dealt>>>,
}

impl Inlet {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Inlet { open: AtomicUsize::new(0), sender, receiver: Mutex::new(Some(receiver)) }
    }
}

/// Binds a listener for [`listen`]; port 0 takes any free port.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts sockets and deals them to the threads, until [`Ingress::close`]. Runs inside a tokio runtime.
pub async fn listen(ingress: Arc<Ingress>, listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let most = most_sockets();
    loop {
        let freed = ingress.freed.notified();
        if ingress.open.load(Relaxed) >= most {
            tokio::select! {
                () = ingress.closing.cancelled() => return Ok(()),
                () = freed => continue,
            }
        }
        let accepted = tokio::select! {
            () = ingress.closing.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(fault) => {
                // The socket stays in the backlog when descriptors run out: trying again at once would spin.
                if !matches!(fault.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                    tracing::warn!(%fault, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        // A socket that died right after its accept closes itself when it is dropped.
        let Ok(socket) = socket.into_std() else { continue };
        let peer = peer.ip();
        if !ingress.comes(peer) {
            tracing::debug!(%peer, "a connection was closed: its address has too many open");
            continue;
        }
        let Some(inlet) = ingress.inlets.iter().min_by_key(|inlet| inlet.open.load(Relaxed)) else { continue };
        inlet.open.fetch_add(1, Relaxed);
        ingress.open.fetch_add(1, Relaxed);
        if inlet.sender.send((socket, peer)).is_err() {
            ingress.gone(peer);
            inlet.open.fetch_sub(1, Relaxed);
            ingress.open.fetch_sub(1, Relaxed);
        }
    }
}

/// Serves the sockets dealt to thread `home`, until [`Ingress::close`]; sockets still busy then go on in
/// tasks of their own, and [`Ingress::closed`] tells when they are done. Runs on that thread's runtime.
pub async fn serve(ingress: Arc<Ingress>, home: usize) {
    let Some(mut sockets) = ingress.inlets.get(home).and_then(|inlet| inlet.receiver.lock().take()) else { return };
    loop {
        let (socket, peer) = tokio::select! {
            () = ingress.closing.cancelled() => {
                // The accept loop may have dealt one more; it is answered like any other.
                match sockets.try_recv() {
                    Ok(dealt) => dealt,
                    Err(_) => return,
                }
            }
            socket = sockets.recv() => match socket {
                Some(dealt) => dealt,
                None => return,
            },
        };
        let counted = Counted { ingress: ingress.clone(), home, peer };
        match TcpStream::from_std(socket) {
            Ok(socket) => {
                tokio::spawn(async move {
                    serve_socket(counted.ingress.clone(), home, socket).await;
                    drop(counted);
                });
            }
            Err(fault) => tracing::warn!(%fault, "a connection could not be taken over"),
        }
    }
}

/// Accepts sockets of users of this machine and serves them where this runs, on thread `home`, until
/// [`Ingress::close`].
pub async fn listen_unix(ingress: Arc<Ingress>, home: usize, listener: UnixListener) {
    let most = most_sockets();
    loop {
        let freed = ingress.freed.notified();
        if ingress.open.load(Relaxed) >= most {
            tokio::select! {
                () = ingress.closing.cancelled() => return,
                () = freed => continue,
            }
        }
        let accepted = tokio::select! {
            () = ingress.closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(fault) => {
                tracing::warn!(%fault, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Who cannot be told is not served.
        let Ok(uid) = socket.peer_cred().map(|peer| peer.uid()) else { continue };
        let peer = Peer { address: Ipv4Addr::LOCALHOST.into(), uid: Some(uid) };
        if !ingress.comes(peer.address) {
            continue;
        }
        ingress.inlets[home].open.fetch_add(1, Relaxed);
        ingress.open.fetch_add(1, Relaxed);
        let counted = Counted { ingress: ingress.clone(), home, peer: peer.address };
        let local = ingress.local;
        tokio::spawn(async move {
            serve_stream(counted.ingress.clone(), home, socket, peer, local).await;
            drop(counted);
        });
    }
}

/// Serves one socket until it closes.
pub async fn serve_socket(ingress: Arc<Ingress>, home: usize, socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let (Ok(peer), Ok(local)) = (socket.peer_addr(), socket.local_addr()) else { return };
    serve_stream(ingress, home, socket, Peer { address: peer.ip(), uid: None }, local).await;
}

async fn serve_stream<S>(ingress: Arc<Ingress>, home: usize, socket: S, peer: Peer, local: SocketAddr)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let pipe = Arc::new(Pipe::default());
    let about = Arc::new(Socket { home, peer, local, pipe: pipe.clone() });
    let mut http = http1::Builder::new();
    // How long a head may take is [`Piped`]'s to say: the server's own limit counts the time between requests too.
    http.header_read_timeout(None).max_headers(MOST_HEADERS).max_header_size(MOST_HEAD_BYTES);
    let closing = ingress.closing.clone();
    let socket = Stall::new(socket, ingress.bounds.write_stall);
    let patience = ingress.bounds.patience;
    let service = service_fn(move |request| service::serve(ingress.clone(), about.clone(), request));
    let mut connection = pin!(http.serve_connection(TokioIo::new(Piped::new(socket, pipe, patience)), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        () = closing.cancelled() => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(fault) = ended {
        tracing::trace!(%fault, "a connection ended early");
    }
}

/// One open socket in the counts.
struct Counted {
    ingress: Arc<Ingress>,
    home: usize,
    peer: IpAddr,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.ingress.gone(self.peer);
        self.ingress.inlets[self.home].open.fetch_sub(1, Relaxed);
        self.ingress.open.fetch_sub(1, Relaxed);
        self.ingress.freed.notify_waiters();
    }
}

fn most_sockets() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let fds = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MOST_SOCKETS + RESERVED_FDS);
    fds.saturating_sub(RESERVED_FDS).clamp(64, MOST_SOCKETS)
}
