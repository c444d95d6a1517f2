//! The handshake in both eras: `server/discover` first, `initialize` where that is not understood.

use super::Inner;
use super::client::Client;
use super::endpoint::SESSION_ID;
use super::exchange::{Outgoing, Verdict};
use super::link::Session;
use super::redact::Redactor;
use crate::protocol::json::{members, unquote};
use crate::protocol::method;
use crate::protocol::version::{Era, LATEST_LEGACY, MODERN, SUPPORTED, meta_key};
use crate::upstream::connection::ServerInfo;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The handshake failed.
#[derive(Debug)]
pub(super) enum Fault {
    /// Trying again may help, after the rest that the server asked for.
    Down { fault: String, rest: Option<Duration> },
    /// It will not (401, 403).
    Final(String),
}

/// What the probe of a modern server found.
enum Probe {
    Modern(Session),
    /// No modern server, as far as can be told: `initialize` decides. With what the probe was answered.
    Legacy,
    Fault(Fault),
}

impl Inner {
    /// Agrees on a session with the server. `limit` is the time that the caller allows for it all.
    pub(super) async fn handshake(self: &Arc<Self>, limit: Duration) -> Result<Session, Fault> {
        let mut client = None;
        if self.link.era() == Some(Era::Legacy) {
            let result = self.initialize(&mut client).await;
            if !matches!(result, Ok(_) | Err(Fault::Final(_))) {
                // It may have become modern; the next try finds out.
                self.link.forget_era();
            }
            return result;
        }
        // A legacy server may leave a request that it does not know unanswered.
        let probe = tokio::time::timeout(limit / 2, self.discover(&mut client)).await;
        match probe {
            Ok(Probe::Modern(session)) => Ok(session),
            Ok(Probe::Fault(fault)) => Err(fault),
            Ok(Probe::Legacy) => self.initialize(&mut client).await,
            Err(_) => self.initialize(&mut None).await,
        }
    }

    async fn discover(self: &Arc<Self>, client: &mut Option<Client>) -> Probe {
        let id = self.next_id();
        let version = HeaderValue::from_static(MODERN);
        let headers = self.endpoint.headers(Era::Modern, &version, None);
        let body = request(id, method::DISCOVER, &format!("{{{}}}", modern_meta()));
        let headers = || headers.request(method::DISCOVER, None, None);
        let mut out = Outgoing::post(self.endpoint.path.clone(), &headers, body);
        out.id = Some(id);
        let message = match self.exchange(client, &mut out, None, &AtomicBool::new(false)).await {
            Verdict::Answered { message, tail, .. } => {
                if let Some(tail) = tail {
                    *client = tail.settle().await;
                }
                message
            }
            Verdict::Unsent { fault } => return Probe::Fault(Fault::Down { fault, rest: None }),
            Verdict::Rejected { rejected, .. } => {
                return match rejected.status {
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Probe::Fault(Fault::Final(rejected.fault)),
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                        Probe::Fault(Fault::Down { fault: rejected.fault, rest: rejected.retry_after })
                    }
                    status if status.is_redirection() => {
                        Probe::Fault(Fault::Down { fault: rejected.fault, rest: None })
                    }
                    // A modern server that speaks none of ours says so, and what it speaks.
                    _ if rejected.code == Some(crate::protocol::error::UNSUPPORTED_VERSION)
                        && !rejected.supported.iter().any(|known| Era::of(known) == Some(Era::Legacy)) =>
                    {
                        Probe::Fault(Fault::Down {
                            fault: no_version(&rejected.supported, &self.endpoint.secrets),
                            rest: None,
                        })
                    }
                    _ => Probe::Legacy,
                };
            }
            // What broke over an unknown request may still know `initialize`.
            Verdict::Failed { .. } | Verdict::Accepted => return Probe::Legacy,
        };
        let text = String::from_utf8_lossy(&message);
        let read = members(&text).ok();
        let result = read.as_ref().and_then(|read| read.get("result")).and_then(|raw| members(raw).ok());
        let Some(result) = result else { return Probe::Legacy };
        let versions: Vec<String> =
            result.get("supportedVersions").and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
        if !versions.iter().any(|known| known == MODERN) {
            // There are old servers that answer anything with an empty result.
            if versions.is_empty() || versions.iter().any(|known| Era::of(known).is_some()) {
                return Probe::Legacy;
            }
            return Probe::Fault(Fault::Down { fault: no_version(&versions, &self.endpoint.secrets), rest: None });
        }
        let meta = result.get("_meta").and_then(|raw| members(raw).ok());
        let named = meta.as_ref().and_then(|meta| meta.get(meta_key::SERVER_INFO));
        let info = ServerInfo {
            era: Era::Modern,
            version: MODERN.into(),
            capabilities: result.get("capabilities").unwrap_or("{}").into(),
            server_info: named.or(result.get("serverInfo")).unwrap_or("{}").into(),
            instructions: result.get("instructions").filter(|raw| unquote(raw).is_some()).map(Into::into),
        };
        Probe::Modern(self.session(info, None, out.path, &version))
    }

    async fn initialize(self: &Arc<Self>, client: &mut Option<Client>) -> Result<Session, Fault> {
        let down = |fault: String| Fault::Down { fault, rest: None };
        let id = self.next_id();
        let params =
            format!(r#"{{"protocolVersion":"{LATEST_LEGACY}","capabilities":{{}},"clientInfo":{}}}"#, client_info());
        let body = request(id, method::INITIALIZE, &params);
        let headers = || self.endpoint.bare();
        let mut out = Outgoing::post(self.endpoint.path.clone(), &headers, body);
        out.id = Some(id);
        let (message, headers) = match self.exchange(client, &mut out, None, &AtomicBool::new(false)).await {
            Verdict::Answered { message, headers, tail } => {
                if let Some(tail) = tail {
                    *client = tail.settle().await;
                }
                (message, headers)
            }
            Verdict::Rejected { rejected, .. } => return Err(fault(rejected)),
            Verdict::Unsent { fault } => return Err(down(fault)),
            Verdict::Failed { note } => return Err(down(note)),
            Verdict::Accepted => return Err(down("initialize was answered like a notification".into())),
        };
        let text = String::from_utf8_lossy(&message);
        let read = members(&text).map_err(|why| {
            let why = self.endpoint.secrets.redact(&why.to_string());
            down(format!("the answer to initialize cannot be read: {why}"))
        })?;
        let Some(result) = read.get("result").and_then(|raw| members(raw).ok()) else {
            let error = read.get("error").unwrap_or("no result");
            return Err(down(format!("initialize was refused: {}", self.endpoint.secrets.clean(error, 200))));
        };
        let version = result.get("protocolVersion").and_then(unquote).unwrap_or_default();
        if Era::of(&version) != Some(Era::Legacy) {
            return Err(down(no_version(&[version.into_owned()], &self.endpoint.secrets)));
        }
        let value = HeaderValue::from_str(&version).map_err(|_| down("unreadable protocolVersion".into()))?;
        let session_id = headers.get(SESSION_ID).cloned().map(|mut id| {
            id.set_sensitive(true);
            id
        });
        let info = ServerInfo {
            era: Era::Legacy,
            version: version.into_owned(),
            capabilities: result.get("capabilities").unwrap_or("{}").into(),
            server_info: result.get("serverInfo").unwrap_or("{}").into(),
            instructions: result.get("instructions").filter(|raw| unquote(raw).is_some()).map(Into::into),
        };
        let session = self.session(info, session_id, out.path, &value);
        let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, method::INITIALIZED));
        let headers = || session.headers.plain();
        let mut note = Outgoing::post(session.path.clone(), &headers, body);
        match self.exchange(client, &mut note, None, &AtomicBool::new(false)).await {
            Verdict::Accepted | Verdict::Answered { .. } => {}
            Verdict::Rejected { rejected, .. } => {
                return Err(match fault(rejected) {
                    Fault::Down { fault, rest } => {
                        Fault::Down { fault: format!("{}: {fault}", method::INITIALIZED), rest }
                    }
                    last @ Fault::Final(_) => last,
                });
            }
            Verdict::Unsent { fault } => return Err(down(fault)),
            Verdict::Failed { note } => return Err(down(note)),
        }
        if let Some(client) = client.take() {
            self.side.keep(self, client);
        }
        Ok(session)
    }

    fn session(&self, info: ServerInfo, id: Option<HeaderValue>, path: Uri, version: &HeaderValue) -> Session {
        Session {
            generation: self.link.next_generation(),
            era: info.era,
            headers: self.endpoint.headers(info.era, version, id.as_ref()),
            id,
            path,
            info: Arc::new(info),
        }
    }
}

impl<'a> Outgoing<'a> {
    /// A notification; a request if `id` is set afterwards.
    pub(super) fn post(path: Uri, headers: &'a (dyn Fn() -> HeaderMap + Sync), body: Bytes) -> Self {
        Outgoing { verb: Method::POST, path, headers, body, id: None, call: None }
    }
}

/// One request of forebay's own.
pub(super) fn request(id: u64, method: &str, params: &str) -> Bytes {
    let method = serde_json::Value::from(method);
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#))
}

/// The `_meta` member that every modern request of forebay's own carries.
pub(super) fn modern_meta() -> String {
    format!(
        r#""_meta":{{"{}":"{MODERN}","{}":{{}},"{}":{}}}"#,
        meta_key::PROTOCOL_VERSION,
        meta_key::CLIENT_CAPABILITIES,
        meta_key::CLIENT_INFO,
        client_info()
    )
}

fn client_info() -> String {
    format!(r#"{{"name":"forebay","version":"{}"}}"#, env!("CARGO_PKG_VERSION"))
}

fn fault(rejected: super::answer::Rejected) -> Fault {
    match rejected.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Fault::Final(rejected.fault),
        _ => Fault::Down { fault: rejected.fault, rest: rejected.retry_after },
    }
}

fn no_version(theirs: &[String], secrets: &Redactor) -> String {
    format!(
        "no common protocol version: it speaks {}, forebay {}",
        secrets.clean(&theirs.join(", "), 100),
        SUPPORTED.join(", ")
    )
}
