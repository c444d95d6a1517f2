//! The socket under one connection: dialling, TLS, and the count of bytes that left.
//!
//! That count is what rule R5 rests on: a call is handed back unsent only if no byte of it was written.

use rustix::net::RecvFlags;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Where and how to connect.
pub(super) struct Dialer {
    /// Without the brackets of an IPv6 address.
    host: Box<str>,
    port: u16,
    tls: Option<(Trust, ServerName<'static>)>,
}

/// Whose certificates are believed.
pub(super) enum Trust {
    /// The roots of this machine. They are read at the first connect that needs them: it takes a good deal of
    /// work, which must not hold up the start of a daemon with many upstreams.
    Machine,
    /// Given ones.
    Given(Arc<ClientConfig>),
}

/// Why there is no connection. No byte of a request has been sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("connect to {to}: {source}")]
    Connect { to: String, source: io::Error },
    #[error("TLS with {to}: {source}")]
    Tls { to: String, source: io::Error },
    #[error("TLS with {to}: {why}")]
    Roots { to: String, why: String },
    #[error("connect to {to}: nothing within {after:?}")]
    TimedOut { to: String, after: Duration },
    #[error("speak HTTP with {to}: {why}")]
    Http { to: String, why: String },
}

impl Dialer {
    /// `tls` is given for https.
    pub(super) fn new(host: &str, port: u16, tls: Option<Trust>) -> Result<Dialer, String> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let tls = match tls {
            Some(trust) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| format!("`{host}` is no name that a certificate can be checked against"))?;
                Some((trust, name))
            }
            None => None,
        };
        Ok(Dialer { host: host.into(), port, tls })
    }

    /// `host:port`, for messages.
    pub(super) fn to(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Connects within `limit`, TLS included.
    pub(super) async fn dial(&self, limit: Duration) -> Result<Stream, DialError> {
        match tokio::time::timeout(limit, self.connect()).await {
            Ok(result) => result,
            Err(_) => Err(DialError::TimedOut { to: self.to(), after: limit }),
        }
    }

    async fn connect(&self) -> Result<Stream, DialError> {
        let connector = match &self.tls {
            None => None,
            Some((Trust::Given(config), name)) => Some((TlsConnector::from(config.clone()), name)),
            Some((Trust::Machine, name)) => {
                let config = native_tls().await.map_err(|why| DialError::Roots { to: self.to(), why })?;
                Some((TlsConnector::from(config), name))
            }
        };
        let connect = |source| DialError::Connect { to: self.to(), source };
        let tcp = TcpStream::connect((&*self.host, self.port)).await.map_err(connect)?;
        tcp.set_nodelay(true).map_err(connect)?;
        let io = match connector {
            None => Io::Plain(tcp),
            Some((connector, name)) => match connector.connect(name.clone(), tcp).await {
                Ok(stream) => Io::Tls(Box::new(stream)),
                Err(source) => return Err(DialError::Tls { to: self.to(), source }),
            },
        };
        Ok(Stream { io, gauge: Arc::new(Gauge::default()) })
    }
}

/// The certificates of this machine, loaded once a process for all who ask; a failure is tried again.
async fn native_tls() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceCell<Arc<ClientConfig>> = OnceCell::const_new();
    let load = || async {
        // Hundreds of files may be read.
        let loaded = tokio::task::spawn_blocking(load_native_tls).await;
        loaded.unwrap_or_else(|_| Err("the root certificates of this machine could not be read".into()))
    };
    CONFIG.get_or_try_init(load).await.cloned()
}

fn load_native_tls() -> Result<Arc<ClientConfig>, String> {
    #[cfg(test)]
    tests::LOADS.fetch_add(1, Relaxed);
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map(|fault| format!(": {fault}")).unwrap_or_default();
        return Err(format!("no root certificates were found on this machine{why}"));
    }
    tls_with(roots)
}

/// A client configuration that trusts `roots`.
pub(super) fn tls_with(roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|fault| format!("TLS cannot be set up: {fault}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// What has gone through one stream; read by its owner while hyper holds the stream itself.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    written: AtomicU64,
    /// Look whether the peer has closed before the next byte is written.
    look: AtomicBool,
}

impl Gauge {
    /// Bytes that the socket (or the TLS session) has taken so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Before the next write, a kept connection is checked for the peer's close: an event that the
    /// runtime has not seen yet must not cost a call.
    pub(super) fn look_before_write(&self) {
        self.look.store(true, Relaxed);
    }
}

/// One connected socket.
pub(super) struct Stream {
    io: Io,
    gauge: Arc<Gauge>,
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) fn gauge(&self) -> Arc<Gauge> {
        self.gauge.clone()
    }

    fn check_peer(&self) -> io::Result<()> {
        if !self.gauge.look.swap(false, Relaxed) {
            return Ok(());
        }
        let (tcp, plain) = match &self.io {
            Io::Plain(tcp) => (tcp, true),
            Io::Tls(stream) => (stream.get_ref().0, false),
        };
        match rustix::net::recv(tcp, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(()),
            Err(fault) => Err(fault.into()),
            Ok((_, 0)) => Err(io::ErrorKind::BrokenPipe.into()),
            // Bytes that nobody asked for; with TLS they may be session tickets.
            Ok(_) if plain => Err(io::ErrorKind::InvalidData.into()),
            Ok(_) => Ok(()),
        }
    }

    fn note(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = result {
            self.gauge.written.fetch_add(count as u64, Relaxed);
        }
        result
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_read(context, into),
            Io::Tls(io) => Pin::new(io).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        stream.check_peer()?;
        let result = match &mut stream.io {
            Io::Plain(io) => Pin::new(io).poll_write(context, bytes),
            Io::Tls(io) => Pin::new(io).poll_write(context, bytes),
        };
        stream.note(result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        stream.check_peer()?;
        let result = match &mut stream.io {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(context, parts),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(context, parts),
        };
        stream.note(result)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_flush(context),
            Io::Tls(io) => Pin::new(io).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(context),
            Io::Tls(io) => Pin::new(io).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    /// How often the machine's certificates were loaded.
    pub(super) static LOADS: AtomicU64 = AtomicU64::new(0);

    /// A thousand upstreams cost no look at the certificates until one connects, and then one look.
    #[tokio::test]
    async fn the_machines_certificates_are_loaded_once_and_not_before_a_connect() {
        let machine = || Dialer::new("localhost", 1, Some(Trust::Machine)).unwrap();
        let dialers: Vec<_> = (0..1000).map(|_| machine()).collect();
        assert_eq!(LOADS.load(Relaxed), 0);
        let dials = dialers.iter().take(20).map(|dialer| dialer.dial(Duration::from_secs(20)));
        for dialled in futures_util::future::join_all(dials).await {
            assert!(dialled.is_err(), "nobody listens there");
        }
        // A machine without any is looked at again each time.
        if native_tls().await.is_ok() {
            assert_eq!(LOADS.load(Relaxed), 1);
        }
    }

    async fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialer = Dialer::new("127.0.0.1", listener.local_addr().unwrap().port(), None).unwrap();
        let (stream, accepted) = tokio::join!(dialer.dial(Duration::from_secs(10)), listener.accept());
        (stream.unwrap(), accepted.unwrap().0)
    }

    /// Waits until the socket has something to read, an end included, without reading it.
    async fn readable(stream: &Stream) {
        let Io::Plain(tcp) = &stream.io else { panic!() };
        tcp.readable().await.unwrap();
    }

    /// R5: a close that has arrived is found before a byte is written.
    #[tokio::test]
    async fn r05_a_kept_connection_is_looked_at_before_it_is_written_to() {
        let (mut stream, mut peer) = pair().await;
        let gauge = stream.gauge();
        stream.write_all(b"first").await.unwrap();
        assert_eq!(gauge.written(), 5);
        gauge.look_before_write();
        stream.write_all(b"second").await.unwrap();
        assert_eq!(gauge.written(), 11);

        peer.write_all(b"unasked").await.unwrap();
        readable(&stream).await;
        gauge.look_before_write();
        assert_eq!(stream.write(b"third").await.unwrap_err().kind(), io::ErrorKind::InvalidData);

        let (mut stream, mut peer) = pair().await;
        peer.shutdown().await.unwrap();
        readable(&stream).await;
        let gauge = stream.gauge();
        gauge.look_before_write();
        assert_eq!(stream.write(b"first").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(gauge.written(), 0);
    }
}
