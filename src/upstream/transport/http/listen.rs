//! The one stream on which a server tells what belongs to no call: a modern server's `subscriptions/listen`, a legacy
//! session's GET.
//!
//! Held only where the server says that it tells of changes. It holds no slot. A server that does not serve it is
//! not asked again; a stream that ends is opened anew, after a pause, for as long as its session is in force.

use super::Inner;
use super::exchange::{Outgoing, Verdict};
use super::handshake::{modern_meta, request};
use super::link::Session;
use crate::protocol::method;
use crate::protocol::version::Era;
use bytes::Bytes;
use http::Method;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Between the end of one stream and the next.
const PAUSE: Duration = Duration::from_secs(5);

impl Inner {
    /// Listens on a session that has just been agreed, until it is another's turn.
    pub(super) fn listen(self: &Arc<Self>, session: &Arc<Session>) {
        let tells = ["\"listChanged\"", "\"subscribe\""].iter().any(|it| session.info.capabilities.contains(it));
        // Without a session of its own a legacy server cannot tell whose stream it is.
        if !tells || session.era == Era::Legacy && session.id.is_none() {
            return;
        }
        // Weak, so that an upstream that is given up is not kept by its stream.
        let (http, session) = (Arc::downgrade(self), session.clone());
        self.pool.home().spawn(async move {
            loop {
                let Some(http) = http.upgrade() else { return };
                let mut ended = std::pin::pin!(http.one_stream(&session));
                let served = loop {
                    tokio::select! {
                        served = &mut ended => break served,
                        () = tokio::time::sleep(PAUSE) => {}
                    }
                    if !http.is_current(&session) {
                        return;
                    }
                };
                if !served || !http.is_current(&session) {
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    fn is_current(&self, session: &Session) -> bool {
        self.link.session.load().as_ref().is_some_and(|current| current.generation == session.generation)
    }

    /// One stream to its end. False if the server serves none.
    async fn one_stream(self: &Arc<Self>, session: &Arc<Session>) -> bool {
        let id = self.next_id();
        let modern = session.era == Era::Modern;
        let body = match modern {
            true => {
                let kinds = r#""toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true"#;
                request(id, method::LISTEN, &format!("{{\"notifications\":{{{kinds}}},{}}}", modern_meta()))
            }
            false => Bytes::new(),
        };
        let headers = || match modern {
            true => session.headers.request(method::LISTEN, None, None),
            false => {
                let mut headers = session.headers.plain();
                headers.remove(http::header::CONTENT_TYPE);
                headers.insert(http::header::ACCEPT, http::HeaderValue::from_static("text/event-stream"));
                headers
            }
        };
        let mut out = Outgoing::post(session.path.clone(), &headers, body);
        if !modern {
            out.verb = Method::GET;
        }
        // Nothing answers a GET, so it is read to its end like a request whose answer does not come.
        out.id = Some(id);
        match self.exchange(&mut None, &mut out, Some(session), &AtomicBool::new(false)).await {
            Verdict::Rejected { .. } => false,
            Verdict::Answered { .. } | Verdict::Accepted => modern,
            Verdict::Unsent { .. } | Verdict::Failed { .. } => true,
        }
    }
}
