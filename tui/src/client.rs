//! The client of the admin API: one short connection a request over the daemon's unix socket.
//!
//! It tells "no daemon" apart from "the daemon said no", and gives up soon: a person waits.

use bytes::Bytes;
use forebay_wire as wire;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// A daemon that is there accepts at once.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(700);
/// The daemon itself gives up earlier on what it waits for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest refusal that is read of an answer that was to go on.
const LARGEST_REFUSAL: usize = 64 << 10;
/// Largest answer that is read.
const LARGEST: usize = 64 << 20;

/// Why a request got no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens: there is no daemon, or it is at another place.
    #[error("no daemon answers at {}", path.display())]
    Unreachable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Somebody listens but does not answer.
    #[error("the daemon at {} does not answer", path.display())]
    Silent { path: PathBuf },
    /// The daemon said no. The body is there for answers that say more than the fault.
    #[error("{}", fault.message)]
    Refused { status: StatusCode, fault: wire::Fault, body: Bytes },
    /// What answers there is not forebay, or is broken.
    #[error("the daemon's answer cannot be read: {0}")]
    Malformed(String),
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    /// What the daemon writes down as the doer, such as `tui`.
    actor: Option<&'static str>,
    read_only: bool,
}

impl Client {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client { socket: socket.into(), actor: None, read_only: false }
    }

    /// Says by what means the person acts; the daemon writes it down beside who it is.
    #[must_use]
    pub fn acting_as(mut self, actor: &'static str) -> Self {
        self.actor = Some(actor);
        self
    }

    /// With `true`, the daemon refuses whatever steers.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The state document.
    pub async fn state(&self) -> Result<wire::State, ClientError> {
        read(&self.get("/v1/state").await?)
    }

    /// Cancels one call. That it is unknown is an answer, not an error.
    pub async fn cancel(&self, id: &str) -> Result<wire::CancelAnswer, ClientError> {
        match self.post(&format!("/v1/calls/{}/cancel", escaped(id))).await {
            Ok(body) => read(&body),
            Err(ClientError::Refused { status: StatusCode::NOT_FOUND, body, .. }) => read(&body),
            Err(other) => Err(other),
        }
    }

    /// Reads a path, with its query.
    pub async fn get(&self, path: &str) -> Result<Bytes, ClientError> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// Does what a path stands for.
    pub async fn post(&self, path: &str) -> Result<Bytes, ClientError> {
        self.send(Method::POST, path, Bytes::new()).await
    }

    /// Sends a request with a body, JSON or empty.
    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientError> {
        let stream = self.connect().await?;
        let request = self.request(method, path, body)?;
        timeout(ANSWER_TIMEOUT, exchange(stream, request)).await.map_err(|_| self.silent())?
    }

    /// Opens an answer that goes on, such as the live stream. Its head must come soon; its body takes its time.
    pub async fn open(&self, path: &str) -> Result<Flow, ClientError> {
        let stream = self.connect().await?;
        let request = self.request(Method::GET, path, Bytes::new())?;
        timeout(ANSWER_TIMEOUT, Flow::open(stream, request)).await.map_err(|_| self.silent())?
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        match timeout(CONNECT_TIMEOUT, UnixStream::connect(&self.socket)).await {
            Ok(connected) => connected.map_err(|source| ClientError::Unreachable { path: self.socket.clone(), source }),
            Err(_) => Err(self.silent()),
        }
    }

    fn silent(&self) -> ClientError {
        ClientError::Silent { path: self.socket.clone() }
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, "forebay");
        if let Some(actor) = self.actor {
            request = request.header("forebay-actor", actor);
        }
        if self.read_only {
            request = request.header("forebay-read-only", "1");
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request.body(Full::new(body)).map_err(|fault| broken(&fault))
    }
}

fn broken(what: &dyn std::fmt::Display) -> ClientError {
    ClientError::Malformed(what.to_string())
}

async fn exchange(stream: UnixStream, request: Request<Full<Bytes>>) -> Result<Bytes, ClientError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|fault| broken(&fault))?;
    let answered = async {
        let answer = sender.send_request(request).await.map_err(|fault| broken(&fault))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST).collect().await.map_err(|fault| broken(&fault))?;
        Ok((status, body.to_bytes()))
    };
    // The connection is driven here, so that nothing of it outlives the request.
    let (status, body) = tokio::select! {
        biased;
        answered = answered => answered?,
        () = async {
            let _ = connection.await;
            // What had arrived is still read by the other arm.
            std::future::pending::<()>().await;
        } => return Err(broken(&"the connection was closed")),
    };
    if status.is_success() { Ok(body) } else { Err(refusal(status, body)) }
}

fn refusal(status: StatusCode, body: Bytes) -> ClientError {
    let fault = serde_json::from_slice(&body).unwrap_or_else(|_| wire::Fault {
        code: status.as_u16().to_string(),
        message: format!("the daemon answered {status}"),
        hint: None,
    });
    ClientError::Refused { status, fault, body }
}

/// An answer whose body goes on. Dropping it ends the connection.
pub struct Flow {
    body: Incoming,
    connection: Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>,
    closed: bool,
}

impl Flow {
    async fn open(stream: UnixStream, request: Request<Full<Bytes>>) -> Result<Self, ClientError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|fault| broken(&fault))?;
        let mut connection: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(connection);
        let mut asked = Box::pin(sender.send_request(request));
        let mut closed = false;
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut asked => break answer.map_err(|fault| broken(&fault))?,
                _ = &mut connection, if !closed => closed = true,
            }
        };
        let status = answer.status();
        let mut flow = Flow { body: answer.into_body(), connection, closed };
        if status.is_success() {
            return Ok(flow);
        }
        let mut body = Vec::new();
        while body.len() < LARGEST_REFUSAL
            && let Some(chunk) = flow.next().await?
        {
            body.extend_from_slice(&chunk);
        }
        Err(refusal(status, body.into()))
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                _ = &mut self.connection, if !self.closed => {
                    self.closed = true;
                    continue;
                }
            };
            match frame {
                None => return Ok(None),
                Some(Err(fault)) => return Err(broken(&fault)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// Reads an answer's body.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|fault| ClientError::Malformed(fault.to_string()))
}

/// Text as a part of a path or a query.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_typed_stays_within_its_part_of_the_path() {
        assert_eq!(escaped("k3f9q-1f9"), "k3f9q-1f9");
        assert_eq!(escaped("a/../b?x=1&y#z é"), "a%2F..%2Fb%3Fx%3D1%26y%23z%20%C3%A9");
    }
}
