//! The pipeline behind HTTP for a client on standard input and output: one message in the form of one POST.
//!
//! So both fronts have one truth about eras, methods, lists and endings. What a modern request says in its body is
//! mirrored in the headers that HTTP asks for; the caller and its endpoint are fixed.

use super::Ingress;
use super::calls::CLOSING_CANCELS;
use super::mcp::Post;
use super::service::Socket;
use super::stdio::{Backend, Out};
use super::who::Peer;
use crate::caller::Caller;
use crate::protocol::envelope::Request;
use crate::protocol::error;
use crate::protocol::version::MODERN;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use http::request::Parts;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// See the module's documentation.
pub(crate) struct Face {
    pub ingress: Arc<Ingress>,
    pub caller: Arc<Caller>,
    /// The upstream whose endpoint it is.
    pub endpoint: Arc<str>,
}

impl Backend for Face {
    async fn answer(self: Arc<Self>, request: Request, out: Out) {
        let Some(parts) = parts(&request) else {
            return out.error(&request.id_bytes(), error::INTERNAL_ERROR, "the message cannot be taken").await;
        };
        let nowhere = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let peer = Peer { address: nowhere, uid: None };
        let socket = Arc::new(Socket { home: 0, peer, local: (nowhere, 0).into(), pipe: Arc::default() });
        let post = Post {
            ingress: &self.ingress,
            socket: &socket,
            parts: &parts,
            caller: &self.caller,
            endpoint: Some(&self.endpoint),
        };
        let reply = post.answer(request.body.clone()).await;
        if let Err(fault) = out.reply(reply, usize::MAX).await {
            tracing::error!(fault, "an answer broke off");
        }
    }
}

/// The head of the POST that this message would be.
pub(crate) fn parts(request: &Request) -> Option<Parts> {
    let mut head = http::Request::post("/mcp").header(&CLOSING_CANCELS, "cancel");
    let meta = &request.meta;
    if meta.version.is_some() || meta.has_capabilities {
        head = head
            .header("mcp-protocol-version", mirrored(meta.version.as_deref().unwrap_or(MODERN))?)
            .header("mcp-method", mirrored(&request.method)?);
        if let Some(name) = request.target_name() {
            head = head.header("mcp-name", mirrored(&name)?);
        }
    }
    head.body(()).ok().map(|head| head.into_parts().0)
}

/// A value of the body as a header carries it.
fn mirrored(value: &str) -> Option<HeaderValue> {
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && value.trim_matches(' ').len() == value.len()
        && !value.is_empty()
        && !value.starts_with("=?");
    if plain {
        HeaderValue::from_str(value).ok()
    } else {
        HeaderValue::try_from(format!("=?base64?{}?=", STANDARD.encode(value))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::era;
    use crate::protocol::envelope::{Message, read};
    use crate::protocol::version::{Era, meta_key};

    #[test]
    fn a_modern_message_is_mirrored_so_that_its_head_agrees() {
        for name in ["echo", "", " x ", "é😀", "=?base64?eA==?=", "a\u{7f}b"] {
            let text = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name,
                "_meta": { meta_key::PROTOCOL_VERSION: MODERN, meta_key::CLIENT_CAPABILITIES: {} } } });
            let Ok(Message::Request(request)) = read(text.to_string().into()) else { panic!("{text}") };
            let parts = parts(&request).unwrap();
            assert_eq!(era::classify(&request, &parts.headers), Ok(Era::Modern));
            assert_eq!(era::check_modern(&request, &parts.headers), Ok(()), "{name:?}");
        }
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#;
        let Ok(Message::Request(request)) = read(text.into()) else { panic!() };
        assert_eq!(era::classify(&request, &parts(&request).unwrap().headers), Ok(Era::Legacy));
    }
}
