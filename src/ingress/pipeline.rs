//! What a client sends behind a request that is still being served.
//!
//! HTTP/1.1 serves one request at a time, so a cancel sent on the same connection right behind its call
//! would wait until the call has ended. [`Piped`] holds such bytes back from the HTTP server until the
//! request in hand is answered, and lets [`super::calls`] look at them meanwhile ([`Pipe::look`]). They
//! are only looked at: afterwards the server reads and answers them as if nothing had happened.
//!
//! Where a request ends is told from a head that came in one piece with one `Content-Length`. With
//! anything else nothing is held back, which is no more than missing an early look.
//!
//! Since this knows whether a request is being served, it is also where a silent client is given up: between
//! requests and inside a head, never while an answer is being made, however long that takes (C06).

use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes held back at most; when it is full, nothing more is read from the socket until the answer is out.
const MOST_HELD: usize = 64 << 10;

/// Shared by a socket and the requests served on it.
#[derive(Default)]
pub(crate) struct Pipe(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    reading: Reading,
    held: Vec<u8>,
    /// `held` up to here has been looked at.
    looked: usize,
    /// The request's task, told of new bytes in `held`.
    watcher: Option<Waker>,
    /// The HTTP server, told when `held` may be read.
    reader: Option<Waker>,
    phase: Phase,
    /// Since when. None before the first byte.
    since: Option<Instant>,
}

/// What the client is waited for to do.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// To send another request.
    #[default]
    Idle,
    /// To finish a head.
    Head,
    /// Nothing: it waits for us.
    Serving,
}

/// How long a client is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Between two requests.
    pub idle: Duration,
    /// From the first byte of a head to its last.
    pub head: Duration,
}

/// Where in a request the server's next bytes stand.
#[derive(Clone, Copy, Default)]
enum Reading {
    #[default]
    Head,
    /// So many bytes of the body are still to come. With 0 the request is whole: the next byte begins another
    /// one, and is held until this one is answered.
    Body(u64),
    /// Not known: all is passed on.
    Unknown,
}

impl Pipe {
    /// A request is being served. It is answered when the guard goes, so an answer that is made bit by bit takes
    /// the guard along.
    pub(crate) fn serving(self: &Arc<Self>) -> Serving {
        self.0.lock().turn_to(Phase::Serving);
        Serving(self.clone())
    }

    /// An answer on its way out is no silence of the client's.
    fn wrote(&self, written: &Poll<io::Result<usize>>) {
        let mut inner = self.0.lock();
        if inner.phase == Phase::Idle && matches!(written, Poll::Ready(Ok(_))) {
            inner.since = Some(Instant::now());
        }
    }

    /// Shows `look` what has come since it last looked. It returns how many bytes it has done with.
    pub(crate) fn look(&self, context: &Context<'_>, look: impl FnOnce(&[u8]) -> usize) {
        let mut inner = self.0.lock();
        if inner.held.len() > inner.looked {
            let done = look(&inner.held[inner.looked..]);
            inner.looked = (inner.looked + done).min(inner.held.len());
        }
        match &inner.watcher {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => inner.watcher = Some(context.waker().clone()),
        }
    }
}

/// While it lives, what comes behind the request is held back.
pub(crate) struct Serving(Arc<Pipe>);

impl Drop for Serving {
    fn drop(&mut self) {
        let mut inner = self.0.0.lock();
        inner.turn_to(Phase::Idle);
        inner.reading = Reading::Head;
        inner.looked = 0;
        inner.watcher = None;
        // The server believes the socket to be exhausted, so it must be told of what is held.
        let reader = if inner.held.is_empty() { None } else { inner.reader.take() };
        drop(inner);
        if let Some(waker) = reader {
            waker.wake();
        }
    }
}

impl Inner {
    fn turn_to(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Some(Instant::now());
    }

    /// How many of these bytes, the next from the socket, belong to the request in hand.
    fn belonging(&mut self, bytes: &[u8]) -> usize {
        if let Reading::Head = self.reading {
            match head(bytes) {
                Some((head, body)) => {
                    let whole = head as u64 + body;
                    let here = whole.min(bytes.len() as u64);
                    self.reading = Reading::Body(whole - here);
                    return here as usize;
                }
                None => self.reading = Reading::Unknown,
            }
        }
        match &mut self.reading {
            Reading::Body(left) => {
                let here = (*left).min(bytes.len() as u64);
                *left -= here;
                here as usize
            }
            Reading::Head | Reading::Unknown => bytes.len(),
        }
    }
}

/// The lengths of a request's head and body, if the head is all here and has one plain length at most.
fn head(bytes: &[u8]) -> Option<(usize, u64)> {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
    let mut length = None;
    let mut from = 0;
    for newline in memchr::memchr_iter(b'\n', &bytes[..end]) {
        let line = &bytes[from..newline];
        from = newline + 1;
        // Only these two names count; the request's own line begins with neither or has no colon behind it.
        if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
            continue;
        }
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let name = &line[..colon];
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return None;
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            let value = std::str::from_utf8(&line[colon + 1..]).ok()?.trim();
            if length.is_some() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            length = Some(value.parse().ok()?);
        }
    }
    Some((end, length.unwrap_or(0)))
}

/// A socket whose later requests are held back; see the module's documentation.
pub(crate) struct Piped<S> {
    socket: S,
    pipe: Arc<Pipe>,
    patience: Patience,
    /// Made at the first wait, and used again.
    timer: Option<Pin<Box<Sleep>>>,
    /// When the timer fires.
    armed: Option<Instant>,
}

impl<S> Piped<S> {
    pub(crate) fn new(socket: S, pipe: Arc<Pipe>, patience: Patience) -> Self {
        Piped { socket, pipe, patience, timer: None, armed: None }
    }

    /// Ready when a client that is waited for has been silent too long.
    ///
    /// The timer runs while a request is served too, without meaning anything: the server does not ask for
    /// bytes again after an answer if it is still waiting for some, so nobody would set it then.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (phase, since) = {
            let mut inner = self.pipe.0.lock();
            (inner.phase, *inner.since.get_or_insert_with(Instant::now))
        };
        let due = match phase {
            Phase::Idle => since + self.patience.idle,
            Phase::Head => since + self.patience.head,
            Phase::Serving => Instant::now() + self.patience.idle,
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if self.armed.is_none_or(|armed| armed > due) {
            self.armed = Some(due);
            timer.as_mut().reset(due);
        }
        loop {
            ready!(timer.as_mut().poll(context));
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            // What it was set for is past.
            self.armed = Some(due);
            timer.as_mut().reset(due);
        }
    }
}

impl<S: AsyncRead + Unpin> Piped<S> {
    fn poll_bytes(&mut self, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Piped { socket, pipe, .. } = self;
        let mut inner = pipe.0.lock();
        if let Reading::Body(0) = inner.reading {
            return poll_holding(socket, &mut inner, context, buf);
        }
        if !inner.held.is_empty() {
            let most = inner.held.len().min(buf.remaining());
            let held = std::mem::take(&mut inner.held);
            let here = inner.belonging(&held[..most]);
            if inner.phase == Phase::Idle && here > 0 {
                inner.turn_to(Phase::Head);
            }
            buf.put_slice(&held[..here]);
            inner.held = held;
            inner.held.drain(..here);
            if inner.held.is_empty() {
                inner.held = Vec::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(socket).poll_read(context, buf))?;
        if inner.phase == Phase::Idle && buf.filled().len() > before {
            inner.turn_to(Phase::Head);
        }
        let here = inner.belonging(&buf.filled()[before..]);
        if before + here < buf.filled().len() {
            let rest = buf.filled()[before + here..].to_vec();
            inner.held = rest;
            inner.looked = 0;
            buf.set_filled(before + here);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Piped<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let piped = self.get_mut();
        match piped.poll_bytes(context, buf) {
            Poll::Ready(read) => Poll::Ready(read),
            // The end of the connection, as if the client had made it.
            Poll::Pending => piped.poll_patience(context).map(Ok),
        }
    }
}

/// The server watches for the end of the connection; whatever else comes is held.
fn poll_holding<S: AsyncRead + Unpin>(
    socket: &mut S,
    inner: &mut Inner,
    context: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    match &inner.reader {
        Some(waker) if waker.will_wake(context.waker()) => {}
        _ => inner.reader = Some(context.waker().clone()),
    }
    let before = buf.filled().len();
    while inner.held.len() < MOST_HELD {
        ready!(Pin::new(&mut *socket).poll_read(context, buf))?;
        if buf.filled().len() == before {
            return Poll::Ready(Ok(()));
        }
        inner.held.extend_from_slice(&buf.filled()[before..]);
        buf.set_filled(before);
        if let Some(waker) = inner.watcher.take() {
            waker.wake();
        }
    }
    Poll::Pending
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Piped<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.pipe.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.pipe.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const PATIENCE: Patience = Patience { idle: Duration::from_secs(120), head: Duration::from_secs(10) };
    const CALL: &[u8] = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody";
    const NEXT: &[u8] = b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi";

    async fn read(piped: &mut Piped<tokio::io::DuplexStream>) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        let read = piped.read(&mut bytes).await.unwrap();
        bytes.truncate(read);
        bytes
    }

    #[tokio::test]
    async fn what_comes_in_the_same_packet_is_held_and_shown() {
        let (mut client, server) = tokio::io::duplex(65536);
        let pipe = Arc::new(Pipe::default());
        let mut piped = Piped::new(server, pipe.clone(), PATIENCE);
        client.write_all(&[CALL, NEXT].concat()).await.unwrap();
        assert_eq!(read(&mut piped).await, CALL);
        let serving = pipe.serving();
        let mut seen = Vec::new();
        std::future::poll_fn(|context| {
            pipe.look(context, |bytes| {
                seen.extend_from_slice(bytes);
                bytes.len()
            });
            Poll::Ready(())
        })
        .await;
        assert_eq!(seen, NEXT);
        drop(serving);
        assert_eq!(read(&mut piped).await, NEXT);
        // The request behind is cut like any other, and nothing of the next passes before it is answered.
        drop(pipe.serving());
        client.write_all(&[CALL, NEXT].concat()).await.unwrap();
        assert_eq!(read(&mut piped).await, CALL);
        let early = tokio::time::timeout(std::time::Duration::from_millis(20), read(&mut piped)).await;
        assert!(early.is_err());
    }

    #[tokio::test]
    async fn what_comes_later_wakes_the_watcher_and_the_end_is_seen() {
        let (mut client, server) = tokio::io::duplex(65536);
        let pipe = Arc::new(Pipe::default());
        let mut piped = Piped::new(server, pipe.clone(), PATIENCE);
        client.write_all(CALL).await.unwrap();
        assert_eq!(read(&mut piped).await, CALL);
        let serving = pipe.serving();
        let reader = tokio::spawn(async move {
            let last = read(&mut piped).await;
            (piped, last)
        });
        let seen = std::future::poll_fn(|context| {
            let mut seen = 0;
            pipe.look(context, |bytes| {
                seen = bytes.len();
                bytes.len()
            });
            if seen > 0 { Poll::Ready(seen) } else { Poll::Pending }
        });
        let write = async {
            client.write_all(NEXT).await.unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            seen = seen => assert_eq!(seen, NEXT.len()),
            () = write => {}
        }
        drop(serving);
        let (mut piped, last) = reader.await.unwrap();
        assert_eq!(last, NEXT);
        drop(pipe.serving());
        drop(client);
        assert_eq!(read(&mut piped).await, b"");
    }

    #[tokio::test(start_paused = true)]
    async fn c06_a_client_is_given_up_between_requests_and_inside_a_head_and_never_while_it_is_served() {
        let (mut client, server) = tokio::io::duplex(65536);
        let pipe = Arc::new(Pipe::default());
        let mut piped = Piped::new(server, pipe.clone(), PATIENCE);
        client.write_all(CALL).await.unwrap();
        assert_eq!(read(&mut piped).await, CALL);
        let serving = pipe.serving();
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, read(&mut piped)).await.is_err(), "served for an hour");
        drop(serving);
        let began = Instant::now();
        let (end, written) = tokio::join!(read(&mut piped), async {
            tokio::time::sleep(PATIENCE.idle - Duration::from_secs(1)).await;
            client.write_all(b"POST /").await
        });
        assert_eq!((end, written.is_ok()), (b"POST /".to_vec(), true));
        // A byte now and then does not help.
        let (end, ()) = tokio::join!(read(&mut piped), async {
            tokio::time::sleep(PATIENCE.head / 2).await;
            client.write_all(b"m").await.unwrap();
        });
        assert_eq!((end, read(&mut piped).await), (b"m".to_vec(), Vec::new()));
        assert_eq!(began.elapsed(), PATIENCE.idle - Duration::from_secs(1) + PATIENCE.head);
    }

    #[test]
    fn only_plain_heads_are_cut() {
        assert_eq!(head(CALL), Some((CALL.len() - 4, 4)));
        assert_eq!(head(b"GET / HTTP/1.1\r\n\r\n"), Some((18, 0)));
        assert_eq!(head(b"POST / HTTP/1.1\r\ncontent-length: 4\r\n"), None);
        assert_eq!(head(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"), None);
        assert_eq!(head(b"POST / HTTP/1.1\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\n"), None);
        assert_eq!(head(b"POST / HTTP/1.1\r\ncontent-length: +4\r\n\r\n"), None);
    }
}
