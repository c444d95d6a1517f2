//! One MCP message: what kind it is, which era it belongs to, and what is done with its method.

use super::answer::{self, Reply};
use super::builtin::Builtin;
use super::calls::{self, Client, Intent, To, Waited};
use super::era::{self, Breach};
use super::guard::{self, single};
use super::inflight::Owner;
use super::lists::{self, NoList};
use super::service::Socket;
use super::session::SessionId;
use super::{Ingress, hello, listening};
use crate::call::{Level, Notices};
use crate::caller::{Caller, Lane};
use crate::outcome::CancelledBy;
use crate::protocol::envelope::{self, Message, Request};
use crate::protocol::error;
use crate::protocol::json::{members, unquote};
use crate::protocol::method::{self, Route, TargetKey, target_key};
use crate::protocol::splice::ReplyForm;
use crate::protocol::version::Era;
use crate::upstream::news::{Listener, MOST_WATCHED};
use crate::upstream::{ListKind, Upstream};
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, header};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
static TIMEOUT: HeaderName = HeaderName::from_static("forebay-timeout");
static PRIORITY: HeaderName = HeaderName::from_static("forebay-priority");

/// What a newcomer is told that is no call, when the bound on memory is met.
pub(crate) const NO_ROOM: &str = "the gateway is at its bound on memory: wait a moment, then ask again";

/// One POST on an MCP endpoint.
pub(crate) struct Post<'a> {
    pub ingress: &'a Arc<Ingress>,
    pub socket: &'a Arc<Socket>,
    pub parts: &'a Parts,
    pub caller: &'a Arc<Caller>,
    /// The upstream that the path names; none on the aggregate endpoint.
    pub endpoint: Option<&'a str>,
}

impl Post<'_> {
    pub(crate) async fn answer(&self, body: Bytes) -> Reply {
        let message = match envelope::read(body) {
            Ok(message) => message,
            Err(fault) => {
                let id = fault.id.as_deref().map(str::as_bytes);
                return answer::rpc_error(400, id, fault.code, &fault.message, None);
            }
        };
        let one = match self.endpoint {
            None => None,
            Some(name) => match endpoint(self.ingress, self.caller, name) {
                Some(upstream) => Some(upstream),
                None => return no_upstream(id_of(&message), name),
            },
        };
        match message {
            Message::Request(request) => self.request(request, one.as_ref()).await,
            Message::Notification(notice) => self.notification(&notice),
            // Nobody was asked anything, so it answers nothing.
            Message::Response => answer::accepted(),
        }
    }

    async fn request(&self, request: Request, one: Option<&Arc<Upstream>>) -> Reply {
        let headers = &self.parts.headers;
        let era = match era::classify(&request, headers) {
            Ok(era) => era,
            Err(breach) => return refused(&request, &breach),
        };
        let session = match era {
            Era::Modern => match era::check_modern(&request, headers) {
                Ok(()) => None,
                Err(breach) => return refused(&request, &breach),
            },
            Era::Legacy if &*request.method == method::INITIALIZE => {
                return match self.slowed(&request) {
                    Some(reply) => reply,
                    None => self.initialize(&request, one).await,
                };
            }
            Era::Legacy => match self.session() {
                Ok(session) => session,
                Err(()) => return no_session(Some(request.id.of_bytes(&request.body))),
            },
        };
        let id = request.id.of_bytes(&request.body);
        match method::route(&request.method) {
            Route::Own => match (&*request.method, era) {
                (method::PING, _) => answer::rpc_result(id, b"{}"),
                (method::DISCOVER, Era::Modern) => match self.slowed(&request) {
                    Some(reply) => reply,
                    None => answer::rpc_result(id, &hello::hello(self.ingress, self.caller, one).await.discover()),
                },
                _ => no_method(&request, era),
            },
            Route::List => match self.slowed(&request) {
                Some(reply) => reply,
                None => self.list(&request, one, era).await,
            },
            Route::Call if era == Era::Modern && &*request.method == method::LISTEN => {
                listening::listen(self.ingress, self.caller, one, &request)
            }
            Route::Call
                if era == Era::Legacy && matches!(&*request.method, method::SUBSCRIBE | method::UNSUBSCRIBE) =>
            {
                self.watch(&request, one, session).await
            }
            Route::Call if era == Era::Legacy && &*request.method == method::SET_LEVEL && may_log(one) => {
                self.set_level(&request, one, session).await
            }
            Route::Call if method::needs_a_session_of_its_own(&request.method) => no_method(&request, era),
            Route::Call => self.call(request, one, era, session).await,
        }
    }

    /// The answer to one handshake or list too many of this caller.
    fn slowed(&self, request: &Request) -> Option<Reply> {
        let wait_ms = self.ingress.take_ask(self.caller).err()?.max(1);
        let id = request.id.of_bytes(&request.body);
        let message = format!("Not executed: too many handshakes and lists of this caller; wait {wait_ms} ms");
        let data = format!(r#"{{"reason":"caller_rate","retry_after_ms":{wait_ms}}}"#);
        let reply = answer::rpc_error(429, Some(id), self.overload_code(), &message, Some(&data));
        Some(answer::retry_after(reply, wait_ms))
    }

    async fn initialize(&self, request: &Request, one: Option<&Arc<Upstream>>) -> Reply {
        let id = request.id.of_bytes(&request.body);
        let params = request.params_members();
        let Some(wanted) = params.get("protocolVersion").and_then(unquote) else {
            let message = "`params.protocolVersion` is missing or no string";
            return answer::rpc_error(400, Some(id), error::INVALID_PARAMS, message, None);
        };
        if let Some(Ok(info)) = params.get("clientInfo").map(members) {
            let text = |key| info.get(key).and_then(unquote).unwrap_or_default();
            self.caller.claimed(&text("name"), &text("version"));
        }
        let hello = hello::hello(self.ingress, self.caller, one).await;
        let mut randomness = [0; 16];
        if let Err(fault) = getrandom::fill(&mut randomness) {
            tracing::error!(%fault, "the system gives no randomness for a session id");
            return answer::rpc_error(500, Some(id), error::INTERNAL_ERROR, "no session can be begun now", None);
        }
        let endpoint = one.map_or_else(|| "".into(), |upstream| upstream.name().clone());
        let randomness = u128::from_le_bytes(randomness);
        let session = self.ingress.sessions.begin(randomness, self.caller.id, endpoint, Instant::now());
        let mut reply = answer::rpc_result(id, &hello.initialize(hello::agree(&wanted)));
        if let Ok(value) = HeaderValue::try_from(session.to_string()) {
            reply.headers_mut().insert(&SESSION, value);
        }
        reply
    }

    /// The session of a legacy request, if it names one; an error if that is not alive or not its caller's.
    pub(crate) fn session(&self) -> Result<Option<SessionId>, ()> {
        let Some(text) = single(&self.parts.headers, &SESSION)? else { return Ok(None) };
        let id = SessionId::parse(text).ok_or(())?;
        let endpoint = self.endpoint.unwrap_or_default();
        let alive = self.ingress.sessions.touch(id, self.caller.id, endpoint, Instant::now());
        if alive { Ok(Some(id)) } else { Err(()) }
    }

    fn notification(&self, notice: &Request) -> Reply {
        match era::classify(notice, &self.parts.headers) {
            Err(breach) => return refused(notice, &breach),
            // Over HTTP a modern client cancels by closing the stream; nothing else is addressed to us.
            Ok(Era::Modern) => return answer::accepted(),
            Ok(Era::Legacy) => {}
        }
        let Ok(session) = self.session() else { return no_session(None) };
        if &*notice.method == method::CANCELLED {
            cancel(self.ingress, Owner { caller: self.caller.id, session }, notice);
        }
        answer::accepted()
    }

    async fn list(&self, request: &Request, one: Option<&Arc<Upstream>>, era: Era) -> Reply {
        let id = request.id.of_bytes(&request.body);
        let Some(kind) = lists::kind_of(&request.method) else { return no_method(request, era) };
        let params = request.params_members();
        let cursor = match params.get("cursor").map(unquote) {
            None => None,
            Some(Some(cursor)) => Some(cursor),
            Some(None) => {
                return answer::rpc_error(
                    400,
                    Some(id),
                    error::INVALID_PARAMS,
                    "`params.cursor` must be a string",
                    None,
                );
            }
        };
        if self.ingress.dispatcher.is_full() {
            return answer::rpc_error(200, Some(id), self.overload_code(), NO_ROOM, None);
        }
        match lists::result(self.ingress, self.caller, one, kind, cursor.as_deref(), era).await {
            Ok(result) => answer::rpc_result_held(id, &result, self.ingress.dispatcher.memory()),
            Err(NoList::BadCursor) => {
                let message = "Unknown cursor: it is none of this list as it stands; ask for the first page again";
                answer::rpc_error(200, Some(id), error::INVALID_PARAMS, message, None)
            }
            Err(NoList::Upstream(message)) => answer::rpc_error(200, Some(id), self.overload_code(), &message, None),
        }
    }

    fn overload_code(&self) -> i64 {
        self.ingress.dispatcher.config.load().global.overload_error_code
    }

    async fn call(&self, request: Request, one: Option<&Arc<Upstream>>, era: Era, session: Option<SessionId>) -> Reply {
        let ingress = self.ingress;
        let arrived = Instant::now();
        if one.is_none()
            && let Some(own) = Builtin::of(ingress, &request)
        {
            return own.call(ingress, self.caller, &request, era);
        }
        let (timeout, lane) = match wishes(&self.parts.headers, &request) {
            Ok(wishes) => wishes,
            Err(message) => {
                let id = request.id.of_bytes(&request.body);
                return answer::rpc_error(400, Some(id), error::INVALID_PARAMS, &message, None);
            }
        };
        let to = match self.aim(&request, one, era) {
            Ok(to) => to,
            Err(reply) => return *reply,
        };
        let form = ReplyForm::JsonRpc { id: request.id_bytes(), era };
        if let Err(breach) = self.check_mirrors(&request, &to, era) {
            return refused(&request, &breach);
        }
        let notices = self.notices(&request, one, era, session);
        let intent = Intent { caller: self.caller.clone(), to, request, lane, arrived, timeout, form, notices };
        let client = match era {
            Era::Modern => Client::Closes,
            Era::Legacy if self.parts.headers.get(&calls::CLOSING_CANCELS).is_some_and(|value| value == "cancel") => {
                Client::Closes
            }
            Era::Legacy => Client::Legacy {
                owner: Owner { caller: self.caller.id, session },
                headers: Cow::Borrowed(&self.parts.headers),
                path: Cow::Borrowed(self.parts.uri.path()),
            },
        };
        match calls::run(ingress, self.socket, intent, client).await {
            Waited::Ended(call, ending) => {
                let name = call.request.target_name().unwrap_or_default();
                answer::mcp(&call, &ending, &name, &ingress.dispatcher.config.load().global)
            }
            Waited::Streams(stream) => answer::events(stream),
        }
    }

    /// The headers in which a modern client repeats arguments, as far as the tool is known (revision 2026-07-28).
    /// Fronts that take messages from elsewhere make no such headers.
    fn check_mirrors(&self, request: &Request, to: &To, era: Era) -> Result<(), Breach> {
        let To::Upstream { upstream, target } = to else { return Ok(()) };
        if era == Era::Legacy
            || &*request.method != method::TOOLS_CALL
            || self.parts.headers.contains_key(&calls::CLOSING_CANCELS)
        {
            return Ok(());
        }
        let Some(list) = upstream.known_list(ListKind::Tools) else { return Ok(()) };
        let Some(mirrors) = list.mirrors.get(target) else { return Ok(()) };
        let params = request.params_members();
        era::check_mirrors(mirrors, params.get("arguments").unwrap_or("{}"), &self.parts.headers)
    }

    /// What the client of a call wants to hear before the answer, if it takes a stream.
    fn notices(
        &self,
        request: &Request,
        one: Option<&Arc<Upstream>>,
        era: Era,
        session: Option<SessionId>,
    ) -> Option<Notices> {
        let meta = &request.meta;
        let level = match era {
            Era::Modern => meta.log_level.as_deref().and_then(Level::from_name),
            // Without a level the server decides what it sends; it says nothing of a call unless it can log.
            Era::Legacy => match session.and_then(|id| self.ingress.sessions.level(id)) {
                None if one.is_some_and(|upstream| upstream.can_log()) => Some(Level::Debug),
                level => level,
            },
        };
        if meta.token.is_none() && level.is_none() || !guard::takes_events(&self.parts.headers) {
            return None;
        }
        Notices::wanted(meta.token.map(|token| request.body.slice(token.range())), level)
    }

    /// `resources/subscribe` and its opposite, for the session's own stream.
    async fn watch(&self, request: &Request, one: Option<&Arc<Upstream>>, session: Option<SessionId>) -> Reply {
        let id = request.id.of_bytes(&request.body);
        let Some(upstream) = one.filter(|upstream| upstream.can_watch()) else {
            return no_method(request, Era::Legacy);
        };
        let params = request.params_members();
        let Some(uri) = params.get("uri").and_then(unquote) else {
            return answer::rpc_error(
                200,
                Some(id),
                error::INVALID_PARAMS,
                "`params.uri` is missing or no string",
                None,
            );
        };
        let join = |listener: &Arc<Listener>| listening::join(self.ingress, self.caller, one, listener);
        let Some(listener) = session.and_then(|session| self.ingress.sessions.listener(session, join)) else {
            let message = "a subscription belongs to a session: begin one with initialize";
            return answer::rpc_error(200, Some(id), error::INVALID_REQUEST, message, None);
        };
        let asked = if &*request.method == method::UNSUBSCRIBE {
            listener.unwatch(&uri);
            upstream.unwatch(&uri).await
        } else if listener.watch(&uri) {
            upstream.watch(&uri).await
        } else {
            let message = format!("a session may watch {MOST_WATCHED} resources");
            return answer::rpc_error(200, Some(id), self.overload_code(), &message, None);
        };
        match asked {
            Ok(()) => answer::rpc_result(id, b"{}"),
            Err(fault) => {
                listener.unwatch(&uri);
                answer::rpc_error(200, Some(id), self.overload_code(), &fault.to_string(), None)
            }
        }
    }

    /// The stream of news of a legacy session.
    pub(crate) fn open_stream(&self) -> Reply {
        let one = match self.endpoint {
            None => None,
            Some(name) => match endpoint(self.ingress, self.caller, name) {
                Some(upstream) => Some(upstream),
                None => return no_upstream(None, name),
            },
        };
        let Ok(session) = self.session() else { return no_session(None) };
        let join = |listener: &Arc<Listener>| listening::join(self.ingress, self.caller, one.as_ref(), listener);
        match session.and_then(|session| self.ingress.sessions.listener(session, join)) {
            Some(listener) => listening::stream(self.ingress, listener),
            None => no_session(None),
        }
    }

    /// `logging/setLevel`: kept for the session. Its server is asked for the most that any session wants, and each
    /// session gets its part.
    async fn set_level(&self, request: &Request, one: Option<&Arc<Upstream>>, session: Option<SessionId>) -> Reply {
        let id = request.id.of_bytes(&request.body);
        let params = request.params_members();
        let Some(level) = params.get("level").and_then(unquote).and_then(|name| Level::from_name(&name)) else {
            let message =
                "`params.level` must be one of debug, info, notice, warning, error, critical, alert, emergency";
            return answer::rpc_error(200, Some(id), error::INVALID_PARAMS, message, None);
        };
        if let Some(session) = session {
            self.ingress.sessions.set_level(session, level);
        }
        if let Some(upstream) = one {
            // A server that cannot is none of the client's concern: its lines are filtered here anyway.
            if let Err(fault) = upstream.log_from(level).await {
                tracing::debug!(upstream = %upstream.name(), %fault, "the log level was not taken");
            }
        }
        answer::rpc_result(id, b"{}")
    }

    /// Where a call goes.
    fn aim(&self, request: &Request, one: Option<&Arc<Upstream>>, era: Era) -> Result<To, Box<Reply>> {
        let id = request.id.of_bytes(&request.body);
        let name = request.target_name();
        let key = match target_key(&request.method) {
            TargetKey::Name => "name",
            TargetKey::Uri => "uri",
            TargetKey::TaskId => "taskId",
            TargetKey::None => "",
        };
        if !key.is_empty() && name.is_none() {
            let message = format!("`params.{key}` is missing");
            return Err(Box::new(answer::rpc_error(400, Some(id), error::INVALID_PARAMS, &message, None)));
        }
        if let Some(upstream) = one {
            let target = name.map_or_else(|| Arc::from(&*request.method), |name| Arc::from(&*name));
            return Ok(To::Upstream { upstream: upstream.clone(), target });
        }
        match (kind_of_target(&request.method), name) {
            (Some(kind), Some(name)) => Ok(To::Name { kind, name: name.into_owned() }),
            _ => Err(Box::new(no_method(request, era))),
        }
    }
}

/// The upstream of an endpoint, if there is one that this caller may use.
pub(crate) fn endpoint(ingress: &Ingress, caller: &Caller, name: &str) -> Option<Arc<Upstream>> {
    ingress.dispatcher.upstream(name).filter(|_| ingress.dispatcher.allows(caller, name, None))
}

/// The list that tells whose a method's target is, on the aggregate endpoint.
fn kind_of_target(method: &str) -> Option<ListKind> {
    match method {
        method::TOOLS_CALL => Some(ListKind::Tools),
        method::PROMPTS_GET => Some(ListKind::Prompts),
        method::RESOURCES_READ => Some(ListKind::Resources),
        _ => None,
    }
}

/// The deadline and the lane that a caller asks for: in headers, in `_meta`, or both, of which the
/// narrower counts.
fn wishes(headers: &HeaderMap, request: &Request) -> Result<(Option<Duration>, Option<Lane>), String> {
    let twice = |name: &str| format!("the header {name} stands twice or is not plain text");
    let mut timeout = match request.meta.timeout_ms {
        Some(0) => return Err("`_meta[\"forebay/timeout_ms\"]` must be above 0; leave it out for no deadline".into()),
        given => given.map(Duration::from_millis),
    };
    if let Some(text) = single(headers, &TIMEOUT).map_err(|()| twice("Forebay-Timeout"))? {
        let given = duration(text).ok_or_else(|| {
            format!(
                "the header Forebay-Timeout is `{text:.40}`; say a time above 0 with its unit, such as 1500ms or 30s"
            )
        })?;
        timeout = Some(timeout.map_or(given, |other| other.min(given)));
    }
    let mut lane = match &request.meta.priority {
        Some(name) => Some(Lane::from_name(name).ok_or_else(|| bad_priority("`_meta[\"forebay/priority\"]`", name))?),
        None => None,
    };
    if let Some(name) = single(headers, &PRIORITY).map_err(|()| twice("Forebay-Priority"))? {
        let given = Lane::from_name(name).ok_or_else(|| bad_priority("the header Forebay-Priority", name))?;
        lane = Some(lane.map_or(given, |other| other.max(given)));
    }
    Ok((timeout, lane))
}

pub(crate) fn bad_priority(place: &str, name: &str) -> String {
    format!("{place} is `{name:.40}`; say high, normal or low")
}

fn duration(text: &str) -> Option<Duration> {
    crate::config::parse_duration(text).ok().filter(|duration| !duration.is_zero())
}

/// Acts on `notifications/cancelled`: the one live call of this owner under that id, if there is one.
fn cancel(ingress: &Ingress, owner: Owner, notice: &Request) {
    let params = notice.params_members();
    let Some(id) = params.get("requestId") else { return };
    if let Some(call) = ingress.inflight.find(owner, id.as_bytes()) {
        ingress.dispatcher.cancel_call(&call, CancelledBy::Caller);
    }
}

/// Looks for cancels among requests that stand behind a call on its own connection, and acts on them as if
/// they had come on another. Returns how many bytes have been dealt with; they are answered later, in turn.
///
/// Only requests of the same path that carry the same credentials count, so that nothing is skipped that
/// the call itself had to pass.
pub(crate) fn early_cancels(ingress: &Ingress, owner: Owner, call: &HeaderMap, path: &str, bytes: &[u8]) -> usize {
    let mut done = 0;
    loop {
        let rest = &bytes[done..];
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Request::new(&mut headers);
        let Ok(httparse::Status::Complete(head_length)) = head.parse(rest) else { return done };
        let find = |name: &str| {
            let mut found = head.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            (found.next().map(|header| header.value), found.next().is_some())
        };
        let length = match (find("content-length"), find("transfer-encoding")) {
            ((Some(text), false), (None, _)) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
            ((None, _), (None, _)) => Some(0),
            _ => None,
        };
        // A body of unknown length: nothing behind it can be read safely.
        let Some(length) = length.filter(|length: &usize| *length < rest.len()) else { return done };
        let Some(body) = rest.get(head_length..head_length + length) else { return done };
        let same = [header::AUTHORIZATION.as_str(), header::HOST.as_str(), header::ORIGIN.as_str(), SESSION.as_str()];
        let alike = same.iter().all(|name| find(name).0 == call.get(*name).map(HeaderValue::as_bytes) && !find(name).1);
        if head.method == Some("POST")
            && head.path == Some(path)
            && alike
            && let Ok(Message::Notification(notice)) = envelope::read(Bytes::copy_from_slice(body))
            && &*notice.method == method::CANCELLED
        {
            cancel(ingress, owner, &notice);
        }
        done += head_length + length;
    }
}

/// Whether log lines are to be had here: on an upstream's own endpoint only its server can say.
fn may_log(one: Option<&Arc<Upstream>>) -> bool {
    one.is_none_or(|upstream| upstream.can_log())
}

fn id_of(message: &Message) -> Option<&[u8]> {
    match message {
        Message::Request(request) => Some(request.id.of_bytes(&request.body)),
        Message::Notification(_) | Message::Response => None,
    }
}

fn refused(request: &Request, breach: &Breach) -> Reply {
    let id = request.id.of_bytes(&request.body);
    answer::rpc_error(breach.status, Some(id), breach.code, &breach.message, breach.data.as_deref())
}

fn no_method(request: &Request, era: Era) -> Reply {
    let id = request.id.of_bytes(&request.body);
    let status = if era == Era::Modern { 404 } else { 200 };
    let message = format!("method `{:.80}` is not served here", request.method);
    answer::rpc_error(status, Some(id), error::METHOD_NOT_FOUND, &message, None)
}

fn no_upstream(id: Option<&[u8]>, name: &str) -> Reply {
    answer::rpc_error(404, id, error::INVALID_REQUEST, &format!("there is no upstream `{name:.80}` here"), None)
}

/// What a session that is over, unknown or somebody else's gets (C31).
pub(crate) fn no_session(id: Option<&[u8]>) -> Reply {
    let message = "there is no such session: begin one with initialize, or send no Mcp-Session-Id";
    answer::rpc_error(404, id, error::INVALID_REQUEST, message, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(meta: &str) -> Request {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"_meta":{{{meta}}}}}}}"#);
        match envelope::read(Bytes::from(text)).unwrap() {
            Message::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn headers(pairs: &[(&HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append((*name).clone(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn the_narrower_wish_counts() {
        let wish = |pairs: &[(&HeaderName, &str)], meta: &str| wishes(&headers(pairs), &request(meta));
        assert_eq!(wish(&[], ""), Ok((None, None)));
        let timeout = |ms| Some(Duration::from_millis(ms));
        assert_eq!(wish(&[(&TIMEOUT, "1500ms")], ""), Ok((timeout(1500), None)));
        assert_eq!(wish(&[(&TIMEOUT, "2s")], r#""forebay/timeout_ms":900"#), Ok((timeout(900), None)));
        assert_eq!(wish(&[(&TIMEOUT, "1m 30s")], r#""forebay/timeout_ms":99000"#), Ok((timeout(90_000), None)));
        assert_eq!(wish(&[(&PRIORITY, "low")], r#""forebay/priority":"high""#), Ok((None, Some(Lane::Low))));
        assert_eq!(wish(&[], r#""forebay/priority":"high""#), Ok((None, Some(Lane::High))));
    }

    #[test]
    fn c39_a_wish_that_cannot_be_read_is_refused() {
        for text in ["0", "0s", "60", "\"60s\"", "-1s", "1e9", "soon", ""] {
            let fault = wishes(&headers(&[(&TIMEOUT, text)]), &request("")).unwrap_err();
            assert!(fault.contains("Forebay-Timeout"), "{fault}");
        }
        assert!(wishes(&headers(&[(&TIMEOUT, "1s"), (&TIMEOUT, "1s")]), &request("")).is_err());
        assert!(wishes(&headers(&[(&PRIORITY, "urgent")]), &request("")).is_err());
        assert!(wishes(&headers(&[]), &request(r#""forebay/priority":"HIGH""#)).is_err());
        assert!(wishes(&headers(&[]), &request(r#""forebay/timeout_ms":0"#)).is_err());
    }
}
