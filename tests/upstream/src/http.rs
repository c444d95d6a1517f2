//! The Streamable HTTP face, strict in both eras: header checks, sessions, cancels as each era has them.
//!
//! Serves any path. `POST /forget` drops all sessions; it is for tests, not part of the protocol.

use crate::Eras;
use crate::tools::{self, Incoming, MODERN, Reply, Server};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

type Answer = Response<BoxBody<Bytes, Infallible>>;

struct Face {
    server: Arc<Server>,
    sessions: Mutex<BTreeSet<String>>,
    minted: AtomicU64,
    /// Held over a whole request by `--serial`.
    turn: tokio::sync::Mutex<()>,
}

/// Serves until the process is ended; prints the address it listens on, as a URL, on a line of its own.
pub(crate) async fn serve(server: Arc<Server>, address: &str) -> ExitCode {
    let bound = match TcpListener::bind(address).await {
        Ok(listener) => listener.local_addr().map(|address| (listener, address)),
        Err(fault) => Err(fault),
    };
    let (listener, address) = match bound {
        Ok(bound) => bound,
        Err(fault) => {
            tools::complain(&format!("cannot listen on {address}: {fault}\n"));
            return ExitCode::from(2);
        }
    };
    tools::announce(&format!("http://{address}/mcp\n"));
    let face = Arc::new(Face {
        server,
        sessions: Mutex::default(),
        minted: AtomicU64::new(1),
        turn: tokio::sync::Mutex::default(),
    });
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let _ = socket.set_nodelay(true);
        let face = face.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| face.clone().take(request));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

impl Face {
    async fn take(self: Arc<Self>, request: Request<hyper::body::Incoming>) -> io::Result<Answer> {
        let (head, body) = request.into_parts();
        if let Some(file) = &self.server.options.log_headers {
            let mut lines = format!("{} {}", head.method, head.uri);
            for (name, value) in &head.headers {
                lines.push_str(&format!("\n{name}: {}", String::from_utf8_lossy(value.as_bytes())));
            }
            tools::append_line(file, lines.as_bytes());
        }
        let session = text(&head.headers, "mcp-session-id");
        match head.method {
            Method::DELETE => {
                let known = session.is_some_and(|id| self.sessions().remove(&id));
                return Ok(empty(if known { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND }));
            }
            Method::POST if head.uri.path() == "/forget" => {
                self.sessions().clear();
                return Ok(empty(StatusCode::NO_CONTENT));
            }
            Method::POST => {}
            _ => return Ok(empty(StatusCode::METHOD_NOT_ALLOWED)),
        }
        if text(&head.headers, "content-type").as_deref() != Some("application/json") {
            return Ok(empty(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let Some(message) = outline(&body) else {
            return Ok(refuse(StatusCode::BAD_REQUEST, "null", -32700, "no JSON"));
        };
        let id = message.get("id").map_or("null".to_owned(), Value::to_string);
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
        let version = text(&head.headers, "mcp-protocol-version");
        let modern = version.as_deref() == Some(MODERN) || method == "server/discover";
        if modern {
            if self.server.options.eras == Eras::Legacy {
                return Ok(refuse(
                    StatusCode::BAD_REQUEST,
                    "null",
                    -32000,
                    "Bad Request: no valid session ID provided",
                ));
            }
            if let Err(fault) = check_headers(&head.headers, &message) {
                return Ok(refuse(StatusCode::BAD_REQUEST, &id, -32020, &fault));
            }
        } else if self.server.options.eras == Eras::Modern {
            let message = "unsupported protocol version";
            let data = format!(r#","data":{{"supported":["{MODERN}"]}}"#);
            return Ok(refuse_with(StatusCode::BAD_REQUEST, &id, -32022, message, &data));
        } else if method != "initialize" && !self.server.options.no_session {
            match &session {
                None => return Ok(refuse(StatusCode::BAD_REQUEST, "null", -32000, "no session id")),
                Some(session) if !self.sessions().contains(session) => {
                    return Ok(refuse(StatusCode::NOT_FOUND, "null", -32001, "Session not found"));
                }
                Some(_) => {}
            }
        }
        let new_session = (method == "initialize" && !self.server.options.no_session).then(|| {
            let id = format!("s{}", self.minted.fetch_add(1, Relaxed));
            self.sessions().insert(id.clone());
            id
        });
        let Some(request) = self.server.receive(&body) else { return Ok(empty(StatusCode::ACCEPTED)) };
        let mut answer = self.answer(request, modern).await?;
        if let Some(value) = new_session.and_then(|id| HeaderValue::from_str(&id).ok()) {
            answer.headers_mut().insert("mcp-session-id", value);
        }
        Ok(answer)
    }

    async fn answer(self: &Arc<Self>, request: Incoming, modern: bool) -> io::Result<Answer> {
        let id = request.id.clone();
        let face = self.clone();
        let (done, answer) = oneshot::channel();
        // A task of its own: a closed stream ends no call by itself. What is deaf to cancels goes on.
        tokio::spawn(async move {
            let _turn = if face.server.options.serial { Some(face.turn.lock().await) } else { None };
            let _ = done.send(face.server.reply(request).await);
        });
        // hyper drops this future when the client closes.
        let mut closed = Closed { server: &self.server, id: modern.then_some(id) };
        let reply = answer.await.unwrap_or(Reply::Silence);
        let events = self.server.options.sse;
        let answer = match reply {
            Reply::Message(text) if events => stream(vec![event(&text)]),
            Reply::Message(text) => json(StatusCode::OK, text.into()),
            Reply::After { before, message } => {
                let before = String::from_utf8_lossy(&before);
                let lines =
                    before.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok_and(|v| v.is_object()));
                let mut parts = vec![Bytes::from_static(b": noise\r\n\r\ndata:\n\n")];
                parts.extend(lines.map(event));
                parts.push(event(&message));
                stream(parts)
            }
            Reply::Bytes(bytes) => json(StatusCode::OK, bytes.into()),
            Reply::Bytewise(text) if events => stream(event(&text).chunks(1).map(Bytes::copy_from_slice).collect()),
            Reply::Bytewise(text) => {
                let mut answer = stream(text.bytes().map(|byte| Bytes::copy_from_slice(&[byte])).collect());
                answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                answer
            }
            Reply::Silence => std::future::pending().await,
            Reply::Close => {
                closed.id = None;
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        };
        closed.id = None;
        Ok(answer)
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A modern client that closes its stream has cancelled.
struct Closed<'a> {
    server: &'a Server,
    id: Option<String>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.server.cancel(&id);
        }
    }
}

/// The message without `params.arguments`, which may hold numbers that a `Value` cannot.
fn outline(body: &[u8]) -> Option<Value> {
    type Members = BTreeMap<String, Box<RawValue>>;
    let shown = |(name, raw): (String, Box<RawValue>)| Some((name, serde_json::from_str::<Value>(raw.get()).ok()?));
    let mut message: Members = serde_json::from_slice(body).ok()?;
    let params = message.remove("params").and_then(|raw| serde_json::from_str::<Members>(raw.get()).ok());
    let mut outline: serde_json::Map<_, _> = message.into_iter().filter_map(shown).collect();
    if let Some(params) = params {
        let params = params.into_iter().filter(|(name, _)| name != "arguments").filter_map(shown).collect();
        outline.insert("params".to_owned(), Value::Object(params));
    }
    Some(Value::Object(outline))
}

fn check_headers(headers: &HeaderMap, message: &Value) -> Result<(), String> {
    let same = |name: &str, wanted: Option<&str>| match (text(headers, name), wanted) {
        (Some(found), Some(wanted)) if decode(&found) == wanted => Ok(()),
        (None, None) => Ok(()),
        (found, _) => Err(format!("{name} is {found:?} and the body says {wanted:?}")),
    };
    let params = &message["params"];
    same("mcp-method", message["method"].as_str())?;
    same("mcp-protocol-version", params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str())?;
    let name = match message["method"].as_str() {
        Some("tools/call" | "prompts/get") => params["name"].as_str(),
        Some("resources/read") => params["uri"].as_str(),
        _ => None,
    };
    same("mcp-name", name)
}

/// The base64 form of a header's value undone.
fn decode(value: &str) -> String {
    let Some(coded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return value.to_owned();
    };
    let mut bits = 0u32;
    let mut held = 0;
    let mut bytes = Vec::new();
    for letter in coded.bytes().filter(|letter| *letter != b'=') {
        let digit = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn refuse(status: StatusCode, id: &str, code: i64, message: &str) -> Answer {
    refuse_with(status, id, code, message, "")
}

fn refuse_with(status: StatusCode, id: &str, code: i64, message: &str, data: &str) -> Answer {
    let message = Value::from(message);
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#);
    json(status, body.into())
}

fn json(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::new()).boxed());
    *answer.status_mut() = status;
    answer
}

fn event(message: &str) -> Bytes {
    format!("event: message\r\ndata: {message}\r\n\r\n").into()
}

fn stream(parts: Vec<Bytes>) -> Answer {
    let mut answer = Response::new(Parts(parts.into()).boxed());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer
}

/// A body in chunks, its length untold.
struct Parts(VecDeque<Bytes>);

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
