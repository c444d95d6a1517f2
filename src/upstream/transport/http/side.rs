//! What is sent beside the calls: list fetches, cancels, answers to a server's questions, the session's end.
//!
//! None of it holds a slot, and each kind has a lane of its own, so that none waits behind another. At most
//! [`ASKS`] requests are under way at once; one beyond that waits within its own time limit. Of answers to the
//! server's questions, [`ANSWERS`]; one beyond is dropped. Of cancels, [`CANCELS`], which is one for each call
//! that may run: only where the server leaves cancels unanswered for longer than their calls keep their slots
//! does one wait. Whatever is not sent within [`NOTE_LIMIT`] is given up.

use super::Inner;
use super::client::Client;
use super::endpoint::text_value;
use super::exchange::{Outgoing, Verdict};
use super::handshake::{modern_meta, request};
use super::link::Session;
use super::pool::IDLE;
use super::redact::Redactor;
use crate::protocol::error::METHOD_NOT_FOUND;
use crate::protocol::json::{members, quote_into, unquote};
use crate::protocol::method::{self, TargetKey, target_key};
use crate::protocol::version::Era;
use crate::upstream::connection::{AskError, StopReason};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Semaphore;

const ASKS: usize = 4;
const ANSWERS: usize = 4;
/// The hard ceiling on running calls (rule R21).
const CANCELS: usize = 4096;
/// Connections kept between requests.
const KEPT: usize = 2;
/// How long a notice may take, its wait for a turn included.
const NOTE_LIMIT: Duration = Duration::from_secs(5);

/// See the module's documentation.
pub(super) struct Side {
    asks: Semaphore,
    answers: Arc<Semaphore>,
    cancels: Arc<Semaphore>,
    kept: Mutex<Vec<Client>>,
    reaping: AtomicBool,
}

impl Side {
    pub(super) fn new() -> Side {
        Side {
            asks: Semaphore::new(ASKS),
            answers: Arc::new(Semaphore::new(ANSWERS)),
            cancels: Arc::new(Semaphore::new(CANCELS)),
            kept: Mutex::new(Vec::with_capacity(KEPT)),
            reaping: AtomicBool::new(false),
        }
    }

    /// Keeps a connection for the next request, for a while.
    pub(super) fn keep(&self, http: &Arc<Inner>, client: Client) {
        let mut kept = self.kept.lock();
        if kept.len() < KEPT {
            kept.push(client);
        }
        drop(kept);
        if !self.reaping.swap(true, Relaxed) {
            let http = http.clone();
            http.clone().pool.home().spawn(async move {
                tokio::time::sleep(IDLE).await;
                http.side.reaping.store(false, Relaxed);
                http.side.clear();
            });
        }
    }

    pub(super) fn clear(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        drop(kept);
    }

    /// Tells a legacy server that a call is not wanted any more; its exchange goes on elsewhere.
    pub(super) fn cancel(&self, http: &Arc<Inner>, session: &Arc<Session>, id: u64, why: StopReason) {
        let mut body =
            format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{{"requestId":{id},"reason":"#, method::CANCELLED)
                .into_bytes();
        quote_into(why.text(), &mut body);
        body.extend_from_slice(b"}}");
        let cancels = self.cancels.clone();
        let (http, session) = (http.clone(), session.clone());
        http.clone().pool.home().spawn(tokio::time::timeout(NOTE_LIMIT, async move {
            let _turn = cancels.acquire_owned().await;
            http.post(&session, body.into()).await;
        }));
    }

    /// Answers a server's own request: a ping kindly, anything else with an error. `id` is raw.
    pub(super) fn answer(&self, http: &Arc<Inner>, session: Option<&Arc<Session>>, id: &str, method: &str) {
        // Modern servers ask nothing, and an answer outside a session has nowhere to go.
        let Some(session) = session.filter(|session| session.era == Era::Legacy).cloned() else { return };
        let Ok(turn) = self.answers.clone().try_acquire_owned() else { return };
        let body = match method {
            method::PING => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
            _ => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{METHOD_NOT_FOUND},"message":"not offered by this client"}}}}"#
            ),
        };
        let http = http.clone();
        http.clone().pool.home().spawn(tokio::time::timeout(NOTE_LIMIT, async move {
            http.post(&session, body.into()).await;
            drop(turn);
        }));
    }
}

impl Inner {
    /// A message to which no answer is awaited. Its failure changes nothing: the exchange it is about tells.
    async fn post(self: &Arc<Self>, session: &Arc<Session>, body: Bytes) {
        let headers = || session.headers.plain();
        let mut out = Outgoing::post(session.path.clone(), &headers, body);
        let mut client = self.side.kept.lock().pop();
        let _ = self.exchange(&mut client, &mut out, Some(session), &AtomicBool::new(false)).await;
        if let Some(client) = client {
            self.side.keep(self, client);
        }
    }

    /// Ends a session on the server's side. Many servers answer 405: they end it themselves.
    pub(super) async fn end_session(self: &Arc<Self>, session: &Session) {
        if session.id.is_none() {
            return;
        }
        let headers = || {
            let mut headers = session.headers.plain();
            headers.remove(http::header::CONTENT_TYPE);
            headers
        };
        let mut out = Outgoing::post(session.path.clone(), &headers, Bytes::new());
        out.verb = Method::DELETE;
        let _ = self.exchange(&mut None, &mut out, None, &AtomicBool::new(false)).await;
    }

    /// See [`crate::upstream::Connection::ask`]. `params` is a raw object.
    pub(super) async fn ask(self: Arc<Self>, method: String, params: Option<String>) -> Result<Bytes, AskError> {
        let _turn = self.side.asks.acquire().await;
        let down = |fault: String| AskError::Down(fault);
        let mut session = self.link.session().await.map_err(|fault| down(fault.to_string()))?;
        let mut again = true;
        loop {
            let id = self.next_id();
            let params = own_params(session.era, params.as_deref());
            let headers = || session.headers.request(&method, target_of(&method, &params), None);
            let mut out = Outgoing::post(session.path.clone(), &headers, request(id, &method, &params));
            out.id = Some(id);
            let mut client = self.side.kept.lock().pop();
            let verdict = self.exchange(&mut client, &mut out, Some(&session), &AtomicBool::new(false)).await;
            if let Some(client) = client {
                self.side.keep(&self, client);
            }
            match verdict {
                Verdict::Answered { message, .. } => {
                    self.worked();
                    return result_of(&message, &self.endpoint.secrets);
                }
                Verdict::Rejected { rejected, body } => {
                    if rejected.status == StatusCode::NOT_FOUND && session.id.is_some() && !rejected.ours && again {
                        again = false;
                        session = self.renew(&session).await.map_err(|fault| down(fault.to_string()))?;
                        continue;
                    }
                    if rejected.ours {
                        return result_of(&body, &self.endpoint.secrets);
                    }
                    if rejected.status.is_server_error() {
                        return Err(down(rejected.fault));
                    }
                    return Err(AskError::Rejected(rejected.fault));
                }
                Verdict::Unsent { fault } => {
                    self.broke(&session, &fault, false);
                    return Err(down(fault));
                }
                Verdict::Failed { note } => return Err(AskError::Malformed(note)),
                Verdict::Accepted => return Err(AskError::Malformed("answered like a notification".into())),
            }
        }
    }
}

fn own_params(era: Era, params: Option<&str>) -> String {
    let params = params.map_or("{}", str::trim);
    let inner = params.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or("").trim();
    match era {
        Era::Legacy => format!("{{{inner}}}"),
        Era::Modern if inner.is_empty() => format!("{{{}}}", modern_meta()),
        Era::Modern => format!("{{{},{inner}}}", modern_meta()),
    }
}

fn target_of(method: &str, params: &str) -> Option<HeaderValue> {
    let key = match target_key(method) {
        TargetKey::Name => "name",
        TargetKey::Uri => "uri",
        TargetKey::TaskId => "taskId",
        TargetKey::None => return None,
    };
    members(params).ok()?.get(key).and_then(unquote).map(|text| text_value(&text))
}

fn result_of(message: &Bytes, secrets: &Redactor) -> Result<Bytes, AskError> {
    let malformed = |why: String| AskError::Malformed(secrets.redact(&why));
    let text = std::str::from_utf8(message).map_err(|_| malformed("it is not UTF-8".into()))?;
    let read = members(text).map_err(|why| malformed(why.to_string()))?;
    if let Some(error) = read.get("error") {
        return Err(AskError::Rpc(secrets.redact(error)));
    }
    let result = read.get("result").ok_or_else(|| malformed("it has neither result nor error".into()))?;
    Ok(message.slice_ref(result.as_bytes()))
}
