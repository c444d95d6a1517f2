//! Messages that forebay itself sends to a child, each one line.

use super::book::WireId;
use crate::protocol::error::METHOD_NOT_FOUND;
use crate::protocol::json::{members, quote_into};
use crate::protocol::method;
use crate::protocol::version::{Era, LATEST_LEGACY, MODERN, meta_key};
use crate::upstream::connection::AskError;
use bytes::Bytes;

/// A request of our own. `params` is a raw object; a modern server gets its `_meta` put in.
pub(super) fn request(id: WireId, method: &str, params: Option<&str>, era: Era) -> Vec<u8> {
    let mut out = Vec::with_capacity(160 + params.map_or(0, str::len));
    out.extend_from_slice(format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":", id.0).as_bytes());
    quote_into(method, &mut out);
    let raw = params.unwrap_or("{}").trim();
    match era {
        Era::Legacy if params.is_none() => {}
        Era::Legacy => {
            out.extend_from_slice(b",\"params\":");
            one_line(raw, &mut out);
        }
        Era::Modern => {
            out.extend_from_slice(b",\"params\":{\"_meta\":");
            out.extend_from_slice(modern_meta().as_bytes());
            for (key, value) in members(raw).iter().flat_map(|read| &read.0).filter(|(key, _)| key != "_meta") {
                out.push(b',');
                quote_into(key, &mut out);
                out.push(b':');
                one_line(value, &mut out);
            }
            out.push(b'}');
        }
    }
    out.extend_from_slice(b"}\n");
    out
}

/// Line breaks are blanks outside JSON's strings and cannot stand inside them.
pub(super) fn one_line(raw: &str, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(raw.as_bytes());
    flatten(&mut out[start..]);
}

/// Makes one line of a JSON message that may have been written over several.
pub(super) fn flatten(message: &mut [u8]) {
    if memchr::memchr2(b'\n', b'\r', message).is_some() {
        for byte in message.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
    }
}

fn modern_meta() -> String {
    format!(
        r#"{{"{}":"{MODERN}","{}":{{}},"{}":{{"name":"forebay","version":"{}"}}}}"#,
        meta_key::PROTOCOL_VERSION,
        meta_key::CLIENT_CAPABILITIES,
        meta_key::CLIENT_INFO,
        env!("CARGO_PKG_VERSION"),
    )
}

/// Params of `initialize`. No sampling, elicitation or roots are declared: one child serves many callers,
/// and none of them could be asked.
pub(super) fn initialize() -> String {
    format!(
        r#"{{"protocolVersion":"{LATEST_LEGACY}","capabilities":{{}},"clientInfo":{{"name":"forebay","version":"{}"}}}}"#,
        env!("CARGO_PKG_VERSION"),
    )
}

/// What a modern server is asked to tell of.
pub(super) const LISTEN_PARAMS: &str =
    r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}}"#;

pub(super) fn initialized() -> Vec<u8> {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n", method::INITIALIZED).into_bytes()
}

pub(super) fn cancelled(id: WireId, reason: &str) -> Vec<u8> {
    let (method, id) = (method::CANCELLED, id.0);
    let mut out = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{{\"requestId\":{id},\"reason\":")
        .into_bytes();
    quote_into(reason, &mut out);
    out.extend_from_slice(b"}}\n");
    out
}

/// The probe of rule R9.
pub(super) fn probe(id: WireId, era: Era) -> Vec<u8> {
    match era {
        Era::Legacy => request(id, method::PING, None, era),
        Era::Modern => request(id, method::DISCOVER, None, era),
    }
}

/// The answer to a request of the child's own: pings are answered, everything else is refused at once, so
/// that the child does not hang on a question nobody will be asked (C28).
pub(super) fn reply(id: &str, method: &str) -> Vec<u8> {
    match method {
        method::PING => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n"),
        _ => format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{METHOD_NOT_FOUND},\"message\":\"forebay serves many callers and answers no requests of servers\"}}}}\n"
        ),
    }
    .into_bytes()
}

/// The result in the answer to a request of our own.
pub(super) fn result_of(line: &[u8]) -> Result<Bytes, AskError> {
    let malformed = |fault: &str| AskError::Malformed(fault.to_owned());
    let text = std::str::from_utf8(line).map_err(|_| malformed("it is not UTF-8"))?;
    let read = members(text).map_err(|fault| malformed(&fault.to_string()))?;
    match (read.get("result"), read.get("error")) {
        (Some(result), None) => Ok(Bytes::copy_from_slice(result.as_bytes())),
        (None, Some(error)) => Err(AskError::Rpc(error.to_owned())),
        _ => Err(malformed("it has not exactly one of `result` and `error`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: Vec<u8>) -> String {
        let text = String::from_utf8(message).unwrap();
        serde_json::from_str::<serde::de::IgnoredAny>(&text).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        text
    }

    #[test]
    fn requests_of_our_own_are_one_line_in_the_form_of_their_era() {
        let legacy = text(request(WireId(7), "tools/list", Some("{\"cursor\":\n\"a\"}"), Era::Legacy));
        assert_eq!(legacy, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/list\",\"params\":{\"cursor\": \"a\"}}\n");
        let modern = text(request(WireId(7), "tools/list", Some(r#"{"cursor":1.10}"#), Era::Modern));
        assert!(modern.contains(r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#), "{modern}");
        assert!(modern.contains(r#","cursor":1.10}"#), "{modern}");
        assert_eq!(text(probe(WireId(1), Era::Legacy)), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
        text(probe(WireId(1), Era::Modern));
        text(cancelled(WireId(1), "why \"so\"\n"));
        text(reply("\"a\"", "sampling/createMessage"));
        text(initialized());
    }

    #[test]
    fn only_one_of_result_and_error_is_an_answer() {
        assert_eq!(result_of(br#"{"id":1,"result":{"a":1.10}}"#).unwrap(), r#"{"a":1.10}"#);
        assert!(matches!(result_of(br#"{"id":1,"error":{}}"#), Err(AskError::Rpc(_))));
        assert!(matches!(result_of(br#"{"id":1,"error":{},"result":{}}"#), Err(AskError::Malformed(_))));
    }
}
