//! One HTTP request: may it be looked at, where does it lead, who sent it, and its body.

use super::answer::{self, Reply};
use super::body::{self, BadBody};
use super::guard::{self, Turned};
use super::mcp::{self, Post};
use super::pipeline::Pipe;
use super::who::{self, Nobody, Peer};
use super::{Ingress, resource, rest};
use crate::caller::Caller;
use crate::config::Auth;
use crate::protocol::error;
use http::header::{ALLOW, CONTENT_ENCODING, HeaderValue, TRANSFER_ENCODING, WWW_AUTHENTICATE};
use http::request::Parts;
use hyper::body::Incoming;
use hyper::{Method, Request};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// The longest request target.
const MOST_URI: usize = 8 << 10;

/// What all requests of one socket share.
pub(crate) struct Socket {
    /// The thread that serves it.
    pub home: usize,
    pub peer: Peer,
    pub local: SocketAddr,
    pub pipe: Arc<Pipe>,
}

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path<'a> {
    /// All upstreams, or one.
    Mcp(Option<&'a str>),
    RestCall,
    RestTools,
    Health,
    /// What a client must know to get a token for this (RFC 9728).
    Metadata,
    Unknown,
}

/// Where that is served, alone or followed by the resource's own path.
pub(super) const METADATA: &str = "/.well-known/oauth-protected-resource";

impl Path<'_> {
    fn of(path: &str) -> Path<'_> {
        match path {
            "/mcp" => Path::Mcp(None),
            "/api/v1/tools/call" => Path::RestCall,
            "/api/v1/tools" => Path::RestTools,
            "/healthz" => Path::Health,
            _ => match path.strip_prefix("/mcp/") {
                Some(name) if !name.is_empty() && !name.contains('/') => Path::Mcp(Some(name)),
                _ => match path.strip_prefix(METADATA).map(Path::of) {
                    Some(Path::Mcp(_)) => Path::Metadata,
                    _ if path == METADATA => Path::Metadata,
                    _ => Path::Unknown,
                },
            },
        }
    }

    /// The methods that are answered.
    fn allow(self) -> &'static str {
        match self {
            Path::Mcp(_) => "POST, DELETE",
            Path::RestCall => "POST",
            Path::RestTools | Path::Health | Path::Metadata => "GET",
            Path::Unknown => "",
        }
    }

    fn is_mcp(self) -> bool {
        matches!(self, Path::Mcp(_))
    }
}

pub(crate) async fn serve(
    ingress: Arc<Ingress>,
    socket: Arc<Socket>,
    request: Request<Incoming>,
) -> Result<Reply, Infallible> {
    let serving = socket.pipe.serving();
    let (parts, body) = request.into_parts();
    let mut reply = answer(&ingress, &socket, &parts, body).await;
    // A stream goes on after its head is out.
    reply.body_mut().hold(serving);
    // A length beside a transfer coding is what smuggling is made of, and the server below has dropped the
    // length by now: nothing behind such a request is read.
    Ok(if parts.headers.contains_key(TRANSFER_ENCODING) { answer::closing(reply) } else { reply })
}

async fn answer(ingress: &Arc<Ingress>, socket: &Arc<Socket>, parts: &Parts, body: Incoming) -> Reply {
    let config = ingress.dispatcher.config.load();
    let path = Path::of(parts.uri.path());
    // No page of a browser reaches a unix socket, and its clients have no name of ours to send.
    if socket.peer.uid.is_none()
        && let Err(turned) = guard::check_source(parts, &ingress.own_hosts, socket.local, &config.listen)
    {
        return turned_away(path, turned);
    }
    let auth = config.auth.clone();
    // Not held while the body arrives: a reload must be able to let the old config go.
    drop(config);
    if parts.uri.path_and_query().is_some_and(|whole| whole.as_str().len() > MOST_URI) {
        return turned_away(path, Turned { status: 414, why: "the request target is longer than 8 KiB" });
    }
    let method = &parts.method;
    match path {
        Path::Unknown => {
            let why = "there is nothing here: use /mcp, /mcp/NAME, /api/v1/tools, /api/v1/tools/call or /healthz";
            return turned_away(path, Turned { status: 404, why });
        }
        Path::Health if method == Method::GET => {
            let state = if ingress.dispatcher.is_draining() { "draining" } else { "ok" };
            return answer::json(200, format!("{{\"status\":\"{state}\"}}"));
        }
        Path::Metadata if method == Method::GET => {
            let nothing = || turned_away(path, Turned { status: 404, why: "callers are not known by tokens here" });
            return resource::metadata(&auth).unwrap_or_else(nothing);
        }
        Path::Mcp(_) if method == Method::POST || method == Method::DELETE => {}
        // Only a session has news of its own; whoever has none learns that there is nothing to get.
        Path::Mcp(_) if method == Method::GET && parts.headers.contains_key(&mcp::SESSION) => {
            if !guard::takes_events(&parts.headers) {
                return turned_away(
                    path,
                    Turned { status: 406, why: "the stream is text/event-stream, which Accept must allow" },
                );
            }
        }
        Path::RestCall if method == Method::POST => {}
        Path::RestTools if method == Method::GET => {}
        Path::Mcp(_) | Path::RestCall | Path::RestTools | Path::Health | Path::Metadata => {
            let mut reply = turned_away(path, Turned { status: 405, why: "this method is not served here" });
            reply.headers_mut().insert(ALLOW, HeaderValue::from_static(path.allow()));
            return reply;
        }
    }
    let callers = &ingress.dispatcher.callers;
    let who = who::who(callers, &auth, &parts.uri, &parts.headers, socket.peer, &ingress.wrong_keys);
    let caller = match who.await {
        Ok(caller) => caller,
        Err(nobody) => return unknown_caller(path, nobody, &auth),
    };
    match (path, method) {
        (Path::Mcp(endpoint), &Method::DELETE) => {
            end_session(&Post { ingress, socket, parts, caller: &caller, endpoint })
        }
        (Path::Mcp(endpoint), &Method::GET) => Post { ingress, socket, parts, caller: &caller, endpoint }.open_stream(),
        (Path::RestTools, _) => rest::tools(ingress, &caller).await,
        _ => posted(ingress, socket, parts, path, &caller, body).await,
    }
}

async fn posted(
    ingress: &Arc<Ingress>,
    socket: &Arc<Socket>,
    parts: &Parts,
    path: Path<'_>,
    caller: &Arc<Caller>,
    body: Incoming,
) -> Reply {
    let headers = &parts.headers;
    if let Err(turned) = guard::check_content_type(headers).and_then(|()| guard::check_accept(headers)) {
        return turned_away(path, turned);
    }
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return turned_away(path, Turned { status: 415, why: "a content coding is not taken: send the body as it is" });
    }
    let body = match body::read(ingress, headers, body).await {
        Ok(body) => body,
        Err(fault) => return bad_body(ingress, path, fault),
    };
    match path {
        Path::Mcp(endpoint) => Post { ingress, socket, parts, caller, endpoint }.answer(body).await,
        Path::RestCall | Path::RestTools | Path::Health | Path::Metadata | Path::Unknown => {
            rest::call(ingress, socket, caller, &body).await
        }
    }
}

fn bad_body(ingress: &Ingress, path: Path<'_>, fault: BadBody) -> Reply {
    match fault {
        BadBody::TooLarge => {
            let most = ingress.dispatcher.config.load().listen.max_body;
            answer::closing(plain(path, 413, &format!("the body is larger than {most} bytes (`listen.max_body`)")))
        }
        BadBody::TooSlow => answer::closing(plain(path, 408, "the body did not arrive in time")),
        BadBody::Broken => answer::closing(plain(path, 400, "the body broke off, or its framing is wrong")),
        BadBody::NoRoom => {
            let reply = plain(path, 503, "the gateway is at its bound on memory; wait a moment, then send it again");
            answer::closing(answer::retry_after(reply, 1000))
        }
    }
}

fn end_session(post: &Post<'_>) -> Reply {
    let text = guard::single(&post.parts.headers, &mcp::SESSION);
    let id = match text {
        Ok(Some(text)) => super::session::SessionId::parse(text),
        Ok(None) | Err(()) => {
            let message = "DELETE ends a session: send its Mcp-Session-Id, once";
            return answer::rpc_error(400, None, error::INVALID_REQUEST, message, None);
        }
    };
    let endpoint = post.endpoint.unwrap_or_default();
    let ended = id.is_some_and(|id| post.ingress.sessions.end(id, post.caller.id, endpoint, Instant::now()));
    if !ended {
        return mcp::no_session(None);
    }
    let mut reply = Reply::default();
    *reply.status_mut() = hyper::StatusCode::NO_CONTENT;
    reply
}

/// An answer in words, in the form of its face.
fn plain(path: Path<'_>, status: u16, why: &str) -> Reply {
    if path.is_mcp() {
        answer::rpc_error(status, None, error::INVALID_REQUEST, why, None)
    } else {
        answer::rest_plain(status, why, "bad_request")
    }
}

/// A request that was not looked at; what it still sends is not read.
fn turned_away(path: Path<'_>, turned: Turned) -> Reply {
    plain(path, turned.status, turned.why)
}

fn unknown_caller(path: Path<'_>, nobody: Nobody, auth: &Auth) -> Reply {
    match nobody {
        Nobody::Unauthorized => {
            let why = match auth {
                Auth::None | Auth::Keys => "a key is needed: send it as `Authorization: Bearer fb_...`",
                Auth::Jwt(_) => "a token is needed: send it as `Authorization: Bearer TOKEN`",
            };
            challenged(plain(path, 401, why), resource::challenge(auth, None))
        }
        Nobody::Scope => {
            let why = "the token is good, but lacks a scope that is needed here";
            challenged(plain(path, 403, why), resource::challenge(auth, Some("insufficient_scope")))
        }
        Nobody::InUrl => {
            let why = "a token does not belong in the URL: send it as `Authorization: Bearer TOKEN`";
            answer::closing(challenged(plain(path, 400, why), resource::challenge(auth, Some("invalid_request"))))
        }
        Nobody::Slowed(wait_ms) => {
            let reply = plain(path, 429, "too many wrong keys came from this address; wait, then try again");
            answer::closing(answer::retry_after(reply, wait_ms))
        }
        Nobody::Unready(wait_ms) => {
            let reply = plain(path, 503, "tokens cannot be checked now: their issuer's keys are not to be had");
            answer::closing(answer::retry_after(reply, wait_ms))
        }
    }
}

fn challenged(mut reply: Reply, challenge: String) -> Reply {
    if let Ok(challenge) = HeaderValue::try_from(challenge) {
        reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_they_say() {
        assert_eq!(Path::of("/mcp"), Path::Mcp(None));
        assert_eq!(Path::of("/mcp/db"), Path::Mcp(Some("db")));
        assert_eq!(Path::of("/api/v1/tools/call"), Path::RestCall);
        for known in ["", "/mcp", "/mcp/db"] {
            assert_eq!(Path::of(&format!("{METADATA}{known}")), Path::Metadata, "{known}");
        }
        for unknown in ["/", "x", "/mcp/a/b", "/healthz"] {
            assert_eq!(Path::of(&format!("{METADATA}{unknown}")), Path::Unknown, "{unknown}");
        }
        for unknown in ["/", "/mcp/", "/mcp/a/b", "/MCP", "/api/v1", "/healthz/", "*", "//mcp"] {
            assert_eq!(Path::of(unknown), Path::Unknown, "{unknown}");
        }
    }
}
