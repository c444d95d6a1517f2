//! One request and its answer over one connection, whoever asks: a worker, the handshake, a list fetch.
//!
//! The future owns the connection while it runs: dropping it closes the connection, which is how a modern
//! call is cancelled.

use super::Inner;
use super::answer::{self, Form, Rejected};
use super::client::{Answer, Body, BodyError, Client};
use super::link::Session;
use crate::call::Call;
use crate::protocol::incoming::{self, Incoming};
use crate::protocol::method;
use crate::protocol::sse::Splitter;
use crate::upstream::news::Kinds;
use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::error::Elapsed;

/// Redirects followed for one request, all on its own origin (C36).
const MOST_REDIRECTS: u32 = 3;
/// Bytes of an error's body that are looked at.
const ERROR_BODY: usize = 64 << 10;
/// How long whoever needs the connection next awaits the end of an event stream whose answer is there. Most
/// servers end it at once, and a new connection costs more; the caller of the answer does not wait for it.
const STREAM_END: Duration = Duration::from_millis(20);
/// What may still come on it: comments, a last event.
const TAIL_BYTES: usize = 4 << 10;
/// After a wait in vain, so many connections are given up without one.
const NO_WAITS: u32 = 7;

/// One request to be sent.
pub(super) struct Outgoing<'a> {
    pub(super) verb: Method,
    pub(super) path: Uri,
    /// Asked for at each sending, so that the usual one sending copies nothing.
    pub(super) headers: &'a (dyn Fn() -> HeaderMap + Sync),
    pub(super) body: Bytes,
    /// The id of a request; none for a notification.
    pub(super) id: Option<u64>,
    /// The call it is, which hears what comes before the answer.
    pub(super) call: Option<&'a Arc<Call>>,
}

/// How an exchange ended.
pub(super) enum Verdict {
    /// The message that answers the request. The connection may be kept once the tail is read.
    Answered { message: Bytes, headers: HeaderMap, tail: Option<Tail> },
    /// A notification was taken.
    Accepted,
    /// An HTTP error, with whatever its body says; the body has our id where `ours` is set.
    Rejected { rejected: Rejected, body: Bytes },
    /// No byte was written: there is no connection to be had.
    Unsent { fault: String },
    /// Bytes were written, and no answer can be had.
    Failed { note: String },
}

/// The rest of an event stream whose answer is there.
pub(super) struct Tail {
    client: Client,
    body: Body,
    /// Bytes that may still come.
    left: usize,
}

impl Tail {
    /// Ready at the end of the stream with the connection if it can be used again, and with none if more than
    /// a little comes before.
    pub(super) fn poll_end(mut self, context: &mut Context<'_>) -> Result<Option<Client>, Tail> {
        loop {
            match self.client.poll_chunk(&mut self.body, context) {
                Poll::Pending => return Err(self),
                Poll::Ready(Ok(None)) => {
                    let gone = self.client.poll_gone(context).is_ready();
                    return Ok((!gone).then_some(self.client));
                }
                Poll::Ready(Ok(Some(chunk))) if chunk.len() <= self.left => self.left -= chunk.len(),
                Poll::Ready(Ok(Some(_)) | Err(_)) => return Ok(None),
            }
        }
    }

    /// Waits a little for the end.
    pub(super) async fn settle(self) -> Option<Client> {
        self.settled().await.unwrap_or_default()
    }

    /// As [`Tail::settle`]; an error if the end did not come.
    async fn settled(self) -> Result<Option<Client>, Elapsed> {
        let mut tail = Some(self);
        let end = poll_fn(|context| match tail.take().map(|tail| tail.poll_end(context)) {
            Some(Err(open)) => {
                tail = Some(open);
                Poll::Pending
            }
            Some(Ok(client)) => Poll::Ready(client),
            None => Poll::Ready(None),
        });
        tokio::time::timeout(STREAM_END, end).await
    }
}

impl Inner {
    /// The connection of the last exchange for the next one, if its stream ends soon. A server whose streams
    /// stay open is not waited for each time.
    pub(super) async fn settle(&self, tail: Tail) -> Option<Client> {
        if self.no_waits.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return None;
        }
        tail.settled().await.unwrap_or_else(|_| {
            self.no_waits.store(NO_WAITS, Relaxed);
            None
        })
    }
}

impl Inner {
    /// Sends `out` on `kept`, or on a new connection, and reads its answer. What can be used again is put
    /// back into `kept`. `begun` is set before the first byte may be written, and `out.path` follows
    /// permanent redirects.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        kept: &mut Option<Client>,
        out: &mut Outgoing<'_>,
        session: Option<&Arc<Session>>,
        begun: &AtomicBool,
    ) -> Verdict {
        let mut client = kept.take();
        let mut path = out.path.clone();
        let mut redirects = 0;
        let mut permanent = true;
        loop {
            let mut connection = match client.take() {
                Some(client) => client,
                None => match self.dial().await {
                    Ok(client) => client,
                    Err(fault) => return Verdict::Unsent { fault },
                },
            };
            begun.store(true, Relaxed);
            let mut answer = match connection.send(out.request(&path)).await {
                Ok(answer) => answer,
                // A kept connection had died. A new one cannot be found dead, so this ends.
                Err(broken) if !broken.sent && !connection.is_fresh() => continue,
                Err(broken) if !broken.sent => return Verdict::Unsent { fault: broken.why },
                Err(broken) => return Verdict::Failed { note: broken.why },
            };
            let status = answer.status;
            if status.is_success() {
                return self.read(kept, connection, answer, out, session).await;
            }
            let body = match connection.collect(&mut answer.body, ERROR_BODY).await {
                Ok(body) => {
                    client = connection.reusable().await.then_some(connection);
                    body
                }
                Err(_) => Bytes::new(),
            };
            let follows = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            if let Some(to) = answer.headers.get(LOCATION).filter(|_| follows).and_then(|to| to.to_str().ok()) {
                redirects += 1;
                let target = match self.endpoint.redirect(&path, to) {
                    Ok(target) if redirects <= MOST_REDIRECTS => target,
                    Ok(_) => return redirected(status, format!("more than {MOST_REDIRECTS} redirects")),
                    Err(why) => return redirected(status, why),
                };
                permanent &= status == StatusCode::PERMANENT_REDIRECT;
                if permanent {
                    out.path = target.clone();
                }
                path = target;
                continue;
            }
            *kept = client;
            let rejected = answer::rejected(status, &answer.headers, &body, out.id, &self.endpoint.secrets);
            return Verdict::Rejected { rejected, body };
        }
    }

    async fn dial(&self) -> Result<Client, String> {
        let limit = self.shared.config.load().connect_timeout;
        Client::dial(&self.dialer, limit).await.map_err(|fault| fault.to_string())
    }

    /// Reads the answer to a request that was taken.
    async fn read(
        self: &Arc<Self>,
        kept: &mut Option<Client>,
        mut client: Client,
        mut answer: Answer,
        out: &Outgoing<'_>,
        session: Option<&Arc<Session>>,
    ) -> Verdict {
        let limit = self.shared.config.load().max_message;
        let failed = |note: String| Verdict::Failed { note: self.blame(&note) };
        let Some(id) = out.id else {
            // Whatever a notification is answered with, it was taken (C19). An endless body is cut off.
            if client.collect(&mut answer.body, ERROR_BODY).await.is_ok() && client.reusable().await {
                *kept = Some(client);
            }
            return Verdict::Accepted;
        };
        match answer::form(&answer.headers, &self.endpoint.secrets) {
            Err(why) => failed(why),
            Ok(Form::Json) => {
                let message = match client.collect(&mut answer.body, limit).await {
                    Ok(message) => message,
                    Err(fault @ BodyError::TooLarge(_)) => return failed(fault.to_string()),
                    Err(fault @ BodyError::Broken(_)) => return failed(fault.to_string()),
                };
                if client.reusable().await {
                    *kept = Some(client);
                }
                if answer::answers(&message, id) || answer::is_error_without_id(&message) {
                    return Verdict::Answered { message, headers: answer.headers, tail: None };
                }
                if answer::is_nothing(&message) {
                    return failed(format!(
                        "it answered a request with HTTP {} and no message",
                        answer.status.as_u16()
                    ));
                }
                failed("its answer is no JSON-RPC message with the request's id".into())
            }
            Ok(Form::Events) => {
                let mut splitter = Splitter::new(limit);
                let mut events = Vec::new();
                loop {
                    match client.chunk(&mut answer.body).await {
                        Ok(Some(chunk)) => {
                            if let Err(fault) = splitter.push(&chunk, &mut events) {
                                return failed(fault.to_string());
                            }
                        }
                        Ok(None) => return failed("its event stream ended without an answer".into()),
                        Err(fault) => return failed(fault.to_string()),
                    }
                    for event in events.drain(..) {
                        if answer::answers(&event, id) {
                            let tail = Some(Tail { client, body: answer.body, left: TAIL_BYTES });
                            return Verdict::Answered { message: event, headers: answer.headers, tail };
                        }
                        self.look_at(&event, out.call, session);
                    }
                }
            }
        }
    }

    /// What else comes on an event stream: notices and questions of the server's own.
    fn look_at(self: &Arc<Self>, event: &[u8], call: Option<&Arc<Call>>, session: Option<&Arc<Session>>) {
        match incoming::read(event) {
            Incoming::Notification { method, params } => match &*method {
                method::TOOLS_CHANGED | method::PROMPTS_CHANGED | method::RESOURCES_CHANGED => {
                    self.shared.note_changed(Kinds::of_method(&method));
                    self.lists_changed();
                }
                method::RESOURCE_UPDATED => self.shared.note_updated(params),
                // Its stream is the call's own, so whatever stands in it is too.
                method::PROGRESS | method::MESSAGE => {
                    if let Some(notices) = call.and_then(|call| call.notices.as_ref()) {
                        notices.take(event, &method, params);
                    }
                }
                _ => {}
            },
            // We declare no capability that a server could ask for, but it may ping, and it may be wrong.
            Incoming::Request { id, method } => self.side.answer(self, session, id, &method),
            Incoming::Response { .. } | Incoming::Noise => {
                self.noise.fetch_add(1, Relaxed);
            }
        }
    }

    /// A fault with the name of the upstream whose it is.
    fn blame(&self, what: &str) -> String {
        format!("{}: {}", self.shared.name, self.endpoint.secrets.clean(what, 300))
    }
}

impl Outgoing<'_> {
    fn request(&self, path: &Uri) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.verb.clone();
        *request.uri_mut() = path.clone();
        *request.headers_mut() = (self.headers)();
        request
    }
}

fn redirected(status: StatusCode, why: String) -> Verdict {
    let rejected = Rejected {
        fault: format!("HTTP {}: {why}", status.as_u16()),
        ours: false,
        code: None,
        supported: Vec::new(),
        retry_after: None,
        status,
    };
    Verdict::Rejected { rejected, body: Bytes::new() }
}
