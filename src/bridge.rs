//! A daemon's MCP endpoint for a client that speaks only standard input and output.
//!
//! Every message is one POST on a connection of its own, so answers cannot cross, and a cancel is the closing of that
//! connection. A modern client says everything in each message. For a legacy one the handshake is kept: a daemon that
//! was restarted knows its session no more, so a new one is begun with the client's own `initialize` and the message,
//! which was refused unseen, is sent once more. Each request of a daemon that is away is answered with a clear error.

use crate::ingress::face;
use crate::ingress::stdio::{Backend, Out};
use crate::protocol::envelope::Request;
use crate::protocol::json::{members, unquote};
use crate::protocol::{error, method};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// Messages worked on at once; each has a connection.
pub const OPEN: usize = 256;
/// Bytes of one message in either direction.
pub const LONGEST: usize = 64 << 20;
/// A daemon that is there accepts at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// How a bridge names itself, for display; no right hangs on it (rule R33).
static LABEL: HeaderName = HeaderName::from_static("forebay-caller");

/// Why a message got no answer of the daemon's.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// It was not sent.
    #[error("no daemon can be reached: {0}")]
    Away(String),
    /// It was sent, and the connection broke.
    #[error("the daemon went away before it answered: {0}")]
    Lost(String),
}

/// Finds the daemon: where it listens, asked anew for every connection, since a restart may move it.
pub trait Locate: Send + Sync + 'static {
    fn locate(&self) -> impl Future<Output = Result<SocketAddr, String>> + Send;
}

/// See the module's documentation.
pub struct Bridge<L> {
    daemon: L,
    /// `/mcp` or `/mcp/NAME`.
    path: String,
    /// `Bearer KEY`.
    authorization: Option<HeaderValue>,
    label: Option<HeaderValue>,
    session: Mutex<Session>,
    /// One at a time begins a session anew; the others wait and take it.
    renewing: tokio::sync::Mutex<()>,
}

/// What a legacy client has agreed upon.
#[derive(Clone, Default)]
struct Session {
    /// Its `initialize`, to begin anew with.
    hello: Option<Bytes>,
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

impl<L: Locate> Bridge<L> {
    /// # Errors
    /// The key or the label holds letters that no header may have; the error says which.
    pub fn new(
        daemon: L,
        upstream: Option<&str>,
        key: Option<&str>,
        label: Option<&str>,
    ) -> Result<Arc<Self>, &'static str> {
        let secret = |key: &str| {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| "the key")?;
            value.set_sensitive(true);
            Ok::<_, &'static str>(value)
        };
        Ok(Arc::new(Bridge {
            daemon,
            path: upstream.map_or_else(|| "/mcp".into(), |name| format!("/mcp/{name}")),
            authorization: key.map(secret).transpose()?,
            label: label.map(|label| HeaderValue::from_str(label).map_err(|_| "the caller's name")).transpose()?,
            session: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
        }))
    }

    async fn exchange(&self, request: &Request, out: &Out) -> Result<(), BridgeError> {
        let begins = &*request.method == method::INITIALIZE;
        let used = if begins { Session::default() } else { self.session.lock().clone() };
        let (reply, open) = self.post(request.body.clone(), request, &used).await?;
        if begins {
            return self.begun(request, reply, out).await;
        }
        // A session that is over: nothing was looked at but its id.
        if reply.status() == 404 && used.id.is_some() && used.hello.is_some() {
            drop(open);
            self.renew(&used).await?;
            let renewed = self.session.lock().clone();
            let (reply, _open) = self.post(request.body.clone(), request, &renewed).await?;
            return passed(reply, request, out).await;
        }
        passed(reply, request, out).await
    }

    /// Passes on the answer to an `initialize`, and keeps what it agreed upon.
    async fn begun(&self, request: &Request, reply: Response<Incoming>, out: &Out) -> Result<(), BridgeError> {
        let id = reply.headers().get(&SESSION).cloned();
        let body = whole(reply).await?;
        *self.session.lock() = Session { hello: Some(request.body.clone()), id, version: agreed(&body) };
        if !body.is_empty() {
            out.line(body).await;
        }
        Ok(())
    }

    /// Begins a new session in the place of `old`, unless another has done so already.
    async fn renew(&self, old: &Session) -> Result<(), BridgeError> {
        let _one_at_a_time = self.renewing.lock().await;
        if self.session.lock().id != old.id {
            return Ok(());
        }
        let Some(hello) = old.hello.clone() else { return Ok(()) };
        let (reply, _open) = self.send(hello.clone(), Vec::new()).await?;
        let id = reply.headers().get(&SESSION).cloned();
        let body = whole(reply).await?;
        if id.is_some() {
            tracing::info!("the daemon knew the session no more; a new one was begun");
            *self.session.lock() = Session { hello: Some(hello), id, version: agreed(&body) };
        }
        Ok(())
    }

    async fn post(
        &self,
        body: Bytes,
        request: &Request,
        session: &Session,
    ) -> Result<(Response<Incoming>, Connected), BridgeError> {
        let mut headers = Vec::new();
        // What a modern message says in its body, its head says too.
        if let Some(parts) = face::parts(request) {
            headers.extend(parts.headers.into_iter().filter_map(|(name, value)| Some((name?, value))));
        }
        if !headers.iter().any(|(name, _)| *name == VERSION) {
            headers.extend(session.id.clone().map(|id| (SESSION.clone(), id)));
            headers.extend(session.version.clone().map(|version| (VERSION.clone(), version)));
        }
        self.send(body, headers).await
    }

    async fn send(
        &self,
        body: Bytes,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(Response<Incoming>, Connected), BridgeError> {
        let address = self.daemon.locate().await.map_err(BridgeError::Away)?;
        let away = |fault: &dyn std::fmt::Display| BridgeError::Away(format!("{address}: {fault}"));
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address))
            .await
            .map_err(|_| away(&"it does not accept"))?
            .map_err(|fault| away(&fault))?;
        let _ = stream.set_nodelay(true);
        let mut post = http::Request::post(&self.path)
            .header(HOST, address.to_string())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        for (name, value) in headers {
            post = post.header(name, value);
        }
        if let Some(authorization) = &self.authorization {
            post = post.header(AUTHORIZATION, authorization);
        }
        if let Some(label) = &self.label {
            post = post.header(&LABEL, label);
        }
        let post = post.body(Full::new(body)).map_err(|fault| away(&fault))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|fault| away(&fault))?;
        let open = CancellationToken::new();
        let closed = open.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = closed.cancelled() => {}
                _ = connection => {}
            }
        });
        // Dropped with its client's request, which closes the connection.
        let open = Connected(open);
        let reply = sender.send_request(post).await.map_err(|fault| BridgeError::Lost(fault.to_string()))?;
        Ok((reply, open))
    }
}

/// An open connection; closed when this goes.
struct Connected(CancellationToken);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl<L: Locate> Backend for Bridge<L> {
    async fn answer(self: Arc<Self>, request: Request, out: Out) {
        if let Err(fault) = self.exchange(&request, &out).await {
            tracing::warn!(%fault, "a message could not be passed on");
            let text = match fault {
                BridgeError::Away(_) => {
                    format!("{fault}. Not executed: the call was not sent. Try again once forebay runs")
                }
                BridgeError::Lost(_) => format!("{fault}. The call may have been executed: look before you repeat it"),
            };
            out.error(&request.id_bytes(), error::INTERNAL_ERROR, &text).await;
        }
    }
}

/// Passes an answer on as it comes. What was turned away before it was read, such as for a wrong key, is answered without
/// an id: it is given the one that it answers.
async fn passed(reply: Response<Incoming>, request: &Request, out: &Out) -> Result<(), BridgeError> {
    let status = reply.status();
    if !status.is_client_error() && !status.is_server_error() {
        return out.reply(reply, LONGEST).await.map_err(BridgeError::Lost);
    }
    let body = whole(reply).await?;
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let message = members(text).ok();
    if message.as_ref().is_some_and(|message| message.get("id").is_some_and(|id| id != "null")) {
        out.line(body.clone()).await;
        return Ok(());
    }
    let error = message.and_then(|message| members(message.get("error")?).ok());
    let code = error.as_ref().and_then(|error| error.get("code")?.parse().ok()).unwrap_or(error::INTERNAL_ERROR);
    let words = error.and_then(|error| unquote(error.get("message")?).map(|words| words.into_owned()));
    let words = words.unwrap_or_else(|| format!("the daemon answered HTTP {}", status.as_u16()));
    out.error(&request.id_bytes(), code, &words).await;
    Ok(())
}

async fn whole(reply: Response<Incoming>) -> Result<Bytes, BridgeError> {
    use http_body_util::{BodyExt as _, Limited};
    let body = Limited::new(reply.into_body(), LONGEST).collect().await;
    body.map(|body| body.to_bytes()).map_err(|fault| BridgeError::Lost(fault.to_string()))
}

/// The revision that an answer to `initialize` agrees upon.
fn agreed(answer: &[u8]) -> Option<HeaderValue> {
    let answer = members(std::str::from_utf8(answer).ok()?).ok()?;
    let result = members(answer.get("result")?).ok()?;
    HeaderValue::try_from(&*unquote(result.get("protocolVersion")?)?).ok()
}
