//! Who asks, and what they may do: the peer of the connection, narrowed by what the request says of itself.
//!
//! A claim can only add words to the event log or take rights away, never give any.

use super::Admin;
use super::fault::Refusal;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use forebay_wire as wire;
use std::sync::Arc;

/// What the client is, such as `cli` or `tui`. A claim.
const ACTOR: &str = "forebay-actor";
/// `1`: this client wants to be kept from steering.
const READ_ONLY: &str = "forebay-read-only";
const LONGEST_ACTOR: usize = 16;

/// How a connection, or a token on it, is known.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// `uid:1000`, `token:ops`.
    pub(super) subject: Arc<str>,
    pub(super) role: wire::Role,
}

/// Who made one request.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) subject: Arc<str>,
    pub(super) role: wire::Role,
    /// As it stands in the event log: `uid:1000 tui`.
    pub(super) by: Arc<str>,
}

impl Who {
    fn of(peer: &Peer, headers: &HeaderMap, query: Option<&str>) -> Self {
        let actor = headers.get(ACTOR).and_then(|value| value.to_str().ok()).filter(|actor| {
            (1..=LONGEST_ACTOR).contains(&actor.len())
                && actor.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        });
        let asked = headers.get(READ_ONLY).is_some_and(|value| !matches!(value.as_bytes(), b"0" | b"false" | b""));
        let read_only = asked || query.is_some_and(|query| query.split('&').any(|pair| pair == "read_only=true"));
        Who {
            subject: peer.subject.clone(),
            role: if read_only { wire::Role::Viewer } else { peer.role },
            by: actor.map_or_else(|| peer.subject.clone(), |actor| format!("{} {actor}", peer.subject).into()),
        }
    }

    fn may(&self, method: &Method) -> bool {
        match self.role {
            wire::Role::Operator => true,
            wire::Role::Viewer | wire::Role::Unknown => matches!(*method, Method::GET | Method::HEAD),
        }
    }
}

/// Lets a request through if whoever made it may make it, and tells the routes who that is.
pub(super) async fn guard(State(_admin): State<Arc<Admin>>, mut request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>() else {
        return Refusal::not_allowed("nobody is known to be asking").into_response();
    };
    let who = Who::of(peer, request.headers(), request.uri().query());
    if !who.may(request.method()) {
        let message = format!("{} may look, but not steer", who.subject);
        return Refusal::not_allowed(&message).into_response();
    }
    request.extensions_mut().insert(who);
    next.run(request).await
}

impl Refusal {
    pub(super) fn not_allowed(message: &str) -> Self {
        Refusal::new(
            StatusCode::FORBIDDEN,
            "not_allowed",
            message,
            "steering needs the role operator, and no --read-only",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn who(headers: &[(&'static str, &'static str)], query: Option<&str>) -> Who {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        Who::of(&Peer { subject: "uid:7".into(), role: wire::Role::Operator }, &map, query)
    }

    #[test]
    fn a_claim_adds_a_word_and_never_a_right() {
        assert_eq!(&*who(&[(ACTOR, "tui")], None).by, "uid:7 tui");
        for hostile in ["", "a b", "uid:0", "xxxxxxxxxxxxxxxxx"] {
            assert_eq!(&*who(&[(ACTOR, hostile)], None).by, "uid:7");
        }
    }

    #[test]
    fn who_asks_to_be_kept_from_steering_is_a_viewer() {
        assert_eq!(who(&[], None).role, wire::Role::Operator);
        assert_eq!(who(&[(READ_ONLY, "0")], Some("every_ms=100")).role, wire::Role::Operator);
        for viewer in [who(&[(READ_ONLY, "1")], None), who(&[], Some("every_ms=100&read_only=true"))] {
            assert_eq!(viewer.role, wire::Role::Viewer);
            assert!(viewer.may(&Method::GET) && !viewer.may(&Method::POST) && !viewer.may(&Method::PATCH));
        }
    }
}
