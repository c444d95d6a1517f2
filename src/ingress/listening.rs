//! Streams of news that belong to no call: a legacy session's GET, and a modern client's `subscriptions/listen`.
//!
//! Both hold a [`Listener`] at the upstreams of their endpoint, which keeps what is to be told, bounded, however slow
//! the client reads. They end with their client, their session, or the daemon.

use super::payload::{Events, KEEP_ALIVE, put_event};
use super::stream::KEEP_ALIVE_EVERY;
use super::{Ingress, answer};
use crate::caller::Caller;
use crate::ingress::answer::Reply;
use crate::protocol::envelope::Request;
use crate::protocol::error;
use crate::protocol::json::{members, unquote};
use crate::protocol::method;
use crate::protocol::version::meta_key;
use crate::upstream::Upstream;
use crate::upstream::news::{Kinds, Listener, MOST_WATCHED, News};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Has a listener hear an endpoint's upstreams: the one that is named, or all that the caller may use by now.
pub(crate) fn join(ingress: &Ingress, caller: &Caller, one: Option<&Arc<Upstream>>, listener: &Arc<Listener>) {
    match one {
        Some(upstream) => upstream.shared().news.join(listener),
        None => {
            let upstreams = ingress.dispatcher.upstreams();
            let mine = upstreams.values().filter(|upstream| ingress.dispatcher.allows(caller, upstream.name(), None));
            mine.for_each(|upstream| upstream.shared().news.join(listener));
        }
    }
}

/// The stream of a legacy session.
pub(crate) fn stream(ingress: &Ingress, listener: Arc<Listener>) -> Reply {
    answer::events(Listening::new(ingress, listener, None, KEEP_ALIVE.to_vec()))
}

/// Answers `subscriptions/listen`.
pub(crate) fn listen(ingress: &Ingress, caller: &Caller, one: Option<&Arc<Upstream>>, request: &Request) -> Reply {
    let id = request.id_bytes();
    let params = request.params_members();
    let Some(asked) = params.get("notifications").and_then(|raw| members(raw).ok()) else {
        let message = "`params.notifications` must be an object that says what to listen to";
        return answer::rpc_error(400, Some(&id), error::INVALID_PARAMS, message, None);
    };
    let may = one.map_or(Kinds::ALL, |upstream| upstream.tells_changes());
    let mut kinds = Kinds::NONE;
    let mut honoured = String::new();
    for (name, kind) in [
        ("toolsListChanged", Kinds::TOOLS),
        ("promptsListChanged", Kinds::PROMPTS),
        ("resourcesListChanged", Kinds::RESOURCES),
    ] {
        if asked.get(name) == Some("true") && may.has(kind) {
            kinds = kinds.or(kind);
            honoured.push_str(if honoured.is_empty() { "" } else { "," });
            honoured.push_str(&format!("\"{name}\":true"));
        }
    }
    let listener = Listener::new(kinds);
    if let (Some(upstream), Some(raw)) = (one, asked.get("resourceSubscriptions"))
        && upstream.can_watch()
    {
        let uris: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
        let mut watched = Vec::new();
        for uri in uris.iter().filter_map(|raw| unquote(raw.get())).take(MOST_WATCHED) {
            listener.watch(&uri);
            upstream.watch_soon(&uri);
            watched.push(uri.into_owned());
        }
        honoured.push_str(if honoured.is_empty() { "" } else { "," });
        honoured.push_str(&format!("\"resourceSubscriptions\":{}", serde_json::json!(watched)));
    }
    join(ingress, caller, one, &listener);
    let tag = tag(&id);
    let first = format!(
        r#"{{"jsonrpc":"2.0","method":"{}","params":{{"notifications":{{{honoured}}},"_meta":{{{tag}}}}}}}"#,
        method::ACKNOWLEDGED
    );
    let mut out = Vec::with_capacity(first.len() + 32);
    put_event(first.as_bytes(), &mut out);
    answer::events(Listening::new(ingress, listener, Some(id), out))
}

/// What every message of a subscription carries.
fn tag(id: &[u8]) -> String {
    format!("\"{}\":{}", meta_key::SUBSCRIPTION_ID, String::from_utf8_lossy(id))
}

/// See the module's documentation.
struct Listening {
    listener: Arc<Listener>,
    /// The id of the request that listens; none for a session's stream.
    id: Option<Bytes>,
    /// What is said first, so that the client knows that it is heard.
    first: Vec<u8>,
    idle: Pin<Box<Sleep>>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    ended: bool,
}

impl Listening {
    fn new(ingress: &Ingress, listener: Arc<Listener>, id: Option<Bytes>, first: Vec<u8>) -> Self {
        Listening {
            listener,
            id,
            first,
            idle: Box::pin(tokio::time::sleep(KEEP_ALIVE_EVERY)),
            closing: Box::pin(ingress.closing.clone().cancelled_owned()),
            ended: false,
        }
    }

    fn put(&self, news: &News, out: &mut Vec<u8>) {
        let (name, params) = match news {
            News::Changed(kind) => {
                let name = match *kind {
                    Kinds::TOOLS => method::TOOLS_CHANGED,
                    Kinds::PROMPTS => method::PROMPTS_CHANGED,
                    _ => method::RESOURCES_CHANGED,
                };
                (name, None)
            }
            News::Updated(params) => (method::RESOURCE_UPDATED, Some(String::from_utf8_lossy(params))),
        };
        let params = match (&self.id, params) {
            (None, None) => String::new(),
            (None, Some(params)) => format!(",\"params\":{params}"),
            (Some(id), params) => {
                let rest = params.as_deref().and_then(|params| {
                    members(params).ok().map(|read| {
                        let keep = read.0.iter().filter(|(key, _)| key != "_meta");
                        keep.map(|(key, value)| format!("{}:{value},", serde_json::json!(key))).collect::<String>()
                    })
                });
                format!(",\"params\":{{{}\"_meta\":{{{}}}}}", rest.unwrap_or_default(), tag(id))
            }
        };
        put_event(format!(r#"{{"jsonrpc":"2.0","method":"{name}"{params}}}"#).as_bytes(), out);
    }
}

impl Events for Listening {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut out = std::mem::take(&mut self.first);
        let mut over = self.closing.as_mut().poll(context).is_ready();
        while !over && out.len() < 64 << 10 {
            match self.listener.poll_next(context) {
                Poll::Ready(Some(news)) => self.put(&news, &mut out),
                Poll::Ready(None) => over = true,
                Poll::Pending => break,
            }
        }
        if over {
            self.ended = true;
            if let Some(id) = &self.id {
                let id_text = String::from_utf8_lossy(id);
                let tag = tag(id);
                let end = format!(
                    r#"{{"jsonrpc":"2.0","id":{id_text},"result":{{"resultType":"complete","_meta":{{{tag}}}}}}}"#
                );
                put_event(end.as_bytes(), &mut out);
            }
            return Poll::Ready((!out.is_empty()).then(|| out.into()));
        }
        if out.is_empty() && self.idle.as_mut().poll(context).is_ready() {
            out.extend_from_slice(KEEP_ALIVE);
        }
        if out.is_empty() {
            return Poll::Pending;
        }
        self.idle.as_mut().reset(Instant::now() + KEEP_ALIVE_EVERY);
        let _ = self.idle.as_mut().poll(context);
        Poll::Ready(Some(out.into()))
    }
}
