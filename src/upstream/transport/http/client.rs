//! One HTTP/1.1 connection, polled by whoever uses it.
//!
//! The seam behind which hyper can be replaced: what crosses it are `http`'s types and bytes. A client that
//! is dropped, or whose future is dropped in mid-exchange, closes its connection; one with unread bytes is
//! never used again.

use super::wire::{DialError, Dialer, Gauge, Stream};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// Most bytes of a response's head, and the largest single read.
const HEAD_LIMIT: usize = 128 << 10;
/// A connection unused for so long is looked at before it is used again.
const IDLE: Duration = Duration::from_millis(5);

/// One connection. It is kept between exchanges as long as it is alive.
pub(super) struct Client {
    send: SendRequest<Full<Bytes>>,
    /// None once it has ended. It must be dropped at once then: a request that hyper had not picked up would
    /// wait for ever in a channel that the ended connection still holds.
    connection: Option<Moving>,
    gauge: Arc<Gauge>,
    /// When the head of the last answer came.
    used: Instant,
}

type Moving = Pin<Box<Connection<TokioIo<Stream>, Full<Bytes>>>>;

/// The head of an answer, and its body still to be read.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

/// A body that is still on the wire.
pub(super) struct Body(Incoming);

/// The exchange broke.
#[derive(Debug)]
pub(super) struct Broken {
    /// Whether any byte of the request had been written.
    pub(super) sent: bool,
    pub(super) why: String,
}

/// A body could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the connection broke in the body: {0}")]
    Broken(String),
}

impl Client {
    /// Connects within `limit`.
    pub(super) async fn dial(dialer: &Dialer, limit: Duration) -> Result<Client, DialError> {
        let stream = dialer.dial(limit).await?;
        let gauge = stream.gauge();
        let (send, connection) = Builder::new()
            .max_buf_size(HEAD_LIMIT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|fault| DialError::Http { to: dialer.to(), why: reason(&fault) })?;
        Ok(Client { send, connection: Some(Box::pin(connection)), gauge, used: Instant::now() })
    }

    /// Whether nothing has been sent on it yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.gauge.written() == 0
    }

    /// Ready once the server has closed the connection; polled while it is idle.
    pub(super) fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        turn(&mut self.connection, context);
        if self.connection.is_none() || self.send.is_closed() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, Broken> {
        let before = self.gauge.written();
        let broken = |client: &Client, fault: &hyper::Error| Broken {
            sent: client.gauge.written() != before,
            why: reason(fault),
        };
        // A connection that was busy a moment ago is not looked at: it costs a system call, and the close
        // of an idle one is what it is for.
        if before > 0 && self.used.elapsed() >= IDLE {
            self.gauge.look_before_write();
        }
        if let Err(fault) = drive(&mut self.connection, self.send.ready()).await {
            return Err(broken(self, &fault));
        }
        let response = self.send.send_request(request);
        match drive(&mut self.connection, response).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                self.used = Instant::now();
                Ok(Answer { status: head.status, headers: head.headers, body: Body(body) })
            }
            Err(fault) => Err(broken(self, &fault)),
        }
    }

    /// The next bytes of a body; none at its end.
    pub(super) async fn chunk(&mut self, body: &mut Body) -> Result<Option<Bytes>, BodyError> {
        poll_fn(|context| self.poll_chunk(body, context)).await
    }

    pub(super) fn poll_chunk(
        &mut self,
        body: &mut Body,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            let mut frame = Pin::new(&mut body.0).poll_frame(context);
            if frame.is_pending() {
                turn(&mut self.connection, context);
                frame = Pin::new(&mut body.0).poll_frame(context);
            }
            match frame {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(fault))) => return Poll::Ready(Err(BodyError::Broken(reason(&fault)))),
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Ok(Some(data)));
                    }
                }
            }
        }
    }

    /// A whole body of at most `limit` bytes. One that came in one piece is not copied.
    pub(super) async fn collect(&mut self, body: &mut Body, limit: usize) -> Result<Bytes, BodyError> {
        let expected = body.0.size_hint();
        if expected.lower() > limit as u64 {
            return Err(BodyError::TooLarge(limit));
        }
        let Some(first) = self.chunk(body).await? else { return Ok(Bytes::new()) };
        if first.len() > limit {
            return Err(BodyError::TooLarge(limit));
        }
        let Some(second) = self.chunk(body).await? else { return Ok(first) };
        let mut whole = BytesMut::with_capacity(expected.exact().map_or(first.len() * 4, |length| length as usize));
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(chunk) = next {
            if whole.len() + chunk.len() > limit {
                return Err(BodyError::TooLarge(limit));
            }
            whole.extend_from_slice(&chunk);
            next = self.chunk(body).await?;
        }
        Ok(whole.freeze())
    }

    /// Whether another request may be sent on this connection, its last body having been read to the end.
    pub(super) async fn reusable(&mut self) -> bool {
        // One turn lets hyper see the end of the exchange, and the server's close if it is already there.
        poll_fn(|context| Poll::Ready(self.poll_gone(context).is_pending())).await
    }
}

/// Polls `future` with the connection that moves it. Polled before as well as behind: before, because an
/// answer may be there already; behind, because the connection may have brought it.
async fn drive<F: Future>(connection: &mut Option<Moving>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(output);
        }
        turn(connection, context);
        future.as_mut().poll(context)
    })
    .await
}

/// Polls a connection, and drops one that has ended.
fn turn(connection: &mut Option<Moving>, context: &mut Context<'_>) {
    if connection.as_mut().is_some_and(|connection| connection.as_mut().poll(context).is_ready()) {
        *connection = None;
    }
}

/// hyper's words with their causes, on one line.
fn reason(fault: &hyper::Error) -> String {
    use std::error::Error as _;
    let mut text = fault.to_string();
    let mut source = fault.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
