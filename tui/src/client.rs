//! The client of the admin API: one short connection a request over the daemon's unix socket.
//!
//! It tells "no daemon" apart from "the daemon said no", and gives up soon: a person waits.

use bytes::Bytes;
use forebay_wire as wire;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// A daemon that is there accepts at once.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(700);
/// The daemon itself gives up earlier on what it waits for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
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
}

impl Client {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Client { socket: socket.into() }
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
        self.ask(Method::GET, path).await
    }

    /// Does what a path stands for.
    pub async fn post(&self, path: &str) -> Result<Bytes, ClientError> {
        self.ask(Method::POST, path).await
    }

    async fn ask(&self, method: Method, path: &str) -> Result<Bytes, ClientError> {
        let silent = || ClientError::Silent { path: self.socket.clone() };
        let stream = match timeout(CONNECT_TIMEOUT, UnixStream::connect(&self.socket)).await {
            Ok(connected) => {
                connected.map_err(|source| ClientError::Unreachable { path: self.socket.clone(), source })?
            }
            Err(_) => return Err(silent()),
        };
        timeout(ANSWER_TIMEOUT, exchange(stream, method, path)).await.map_err(|_| silent())?
    }
}

async fn exchange(stream: UnixStream, method: Method, path: &str) -> Result<Bytes, ClientError> {
    let broken = |what: &dyn std::fmt::Display| ClientError::Malformed(what.to_string());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "forebay")
        .body(Empty::<Bytes>::new())
        .map_err(|fault| broken(&fault))?;
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
    if status.is_success() {
        return Ok(body);
    }
    let fault = serde_json::from_slice(&body).unwrap_or_else(|_| wire::Fault {
        code: status.as_u16().to_string(),
        message: format!("the daemon answered {status}"),
        hint: None,
    });
    Err(ClientError::Refused { status, fault, body })
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
