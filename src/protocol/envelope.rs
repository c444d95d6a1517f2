//! The envelope of a message from a caller: read once, borrowed, never rebuilt.

use super::error;
use super::json::{Members, Span, members, unquote, within_depth};
use super::method::{TargetKey, target_key};
use super::version::meta_key;
use bytes::Bytes;
use std::borrow::Cow;

/// Deepest nesting taken from a caller.
pub const MAX_DEPTH: usize = 64;

/// What a caller sent in one message.
#[derive(Clone, Debug)]
pub enum Message {
    Request(Request),
    Notification(Request),
    /// An answer to a question of ours; it has no `method`.
    Response,
}

/// A request (or notification) with its bytes and the places of its parts.
#[derive(Clone, Debug)]
pub struct Request {
    pub body: Bytes,
    /// The id as it was written, quotes included. Empty for a notification.
    pub id: Span,
    /// Decoded method name.
    pub method: Box<str>,
    /// The whole `params` object, braces included.
    pub params: Option<Span>,
    /// The value that names the target, quotes included.
    pub target: Option<Span>,
    pub meta: Meta,
}

/// What was found in `params._meta`.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// The whole object, braces included.
    pub span: Option<Span>,
    /// The object has members.
    pub filled: bool,
    /// Some member belongs to the modern revisions alone.
    pub modern: bool,
    pub version: Option<Box<str>>,
    pub has_capabilities: bool,
    /// The progress token as it was written.
    pub token: Option<Span>,
    /// The value of `forebay/timeout_ms`.
    pub timeout: Option<Span>,
    pub timeout_ms: Option<u64>,
    pub priority: Option<Box<str>>,
}

/// Why a message cannot be taken, with the id to answer with if it could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeError {
    pub code: i64,
    pub message: String,
    /// The id as it was written.
    pub id: Option<Box<str>>,
}

impl Request {
    /// The id as it was written; empty for a notification.
    pub fn id_bytes(&self) -> Bytes {
        self.body.slice(self.id.range())
    }

    /// The text of a span of the body.
    pub fn text(&self, span: Span) -> &str {
        std::str::from_utf8(span.of_bytes(&self.body)).unwrap_or("")
    }

    /// The decoded value that names the target.
    pub fn target_name(&self) -> Option<Cow<'_, str>> {
        unquote(self.text(self.target?))
    }

    /// The members of `params`; empty if there are none.
    pub fn params_members(&self) -> Members<'_> {
        self.params.and_then(|span| members(self.text(span)).ok()).unwrap_or(Members(Vec::new()))
    }
}

/// Reads one message. Arrays (batches of 2025-03-26) are refused here.
pub fn read(body: Bytes) -> Result<Message, EnvelopeError> {
    let refuse = |code, message: String, id: Option<&str>| EnvelopeError { code, message, id: id.map(Into::into) };
    let Ok(text) = std::str::from_utf8(&body) else {
        return Err(refuse(error::PARSE_ERROR, "the message is not UTF-8".into(), None));
    };
    if u32::try_from(text.len()).is_err() {
        return Err(refuse(error::INVALID_REQUEST, "the message is larger than 4 GiB".into(), None));
    }
    if !within_depth(&body, MAX_DEPTH) {
        let message = format!("the message nests deeper than {MAX_DEPTH} levels");
        return Err(refuse(error::INVALID_REQUEST, message, None));
    }
    if text.trim_start().starts_with('[') {
        let message = "arrays of messages are not taken: send one message a request".into();
        return Err(refuse(error::INVALID_REQUEST, message, None));
    }
    let envelope = members(text).map_err(|fault| {
        let code = if fault.is_data() { error::INVALID_REQUEST } else { error::PARSE_ERROR };
        refuse(code, format!("the message is not a JSON-RPC object: {fault}"), None)
    })?;
    let raw_id = envelope.get("id");
    let id = raw_id.filter(|raw| is_id(raw));
    let invalid = |message: &str| Err(refuse(error::INVALID_REQUEST, message.into(), id));
    if raw_id.is_some() && id.is_none() {
        return invalid("`id` must be a string or an integer");
    }
    if envelope.get("jsonrpc") != Some("\"2.0\"") {
        return invalid("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = envelope.get("method") else {
        if envelope.get("result").is_some() || envelope.get("error").is_some() {
            return Ok(Message::Response);
        }
        return invalid("`method` is missing");
    };
    let Some(method) = unquote(method) else {
        return invalid("`method` must be a string");
    };
    let method: Box<str> = method.into();
    let mut request = Request {
        id: id.map(|raw| Span::of(text, raw)).unwrap_or_default(),
        method,
        params: None,
        target: None,
        meta: Meta::default(),
        body: body.clone(),
    };
    if let Some(raw) = envelope.get("params") {
        if !raw.starts_with('{') {
            return invalid("`params` must be an object");
        }
        request.params = Some(Span::of(text, raw));
        let params = members(raw)
            .map_err(|fault| refuse(error::INVALID_PARAMS, format!("`params` cannot be read: {fault}"), id))?;
        let key = match target_key(&request.method) {
            TargetKey::Name => Some("name"),
            TargetKey::Uri => Some("uri"),
            TargetKey::TaskId => Some("taskId"),
            TargetKey::None => None,
        };
        if let Some(raw) = key.and_then(|key| params.get(key)) {
            if unquote(raw).is_none() {
                let message = format!("`params.{}` must be a string", key.unwrap_or_default());
                return Err(refuse(error::INVALID_PARAMS, message, id));
            }
            request.target = Some(Span::of(text, raw));
        }
        if let Some(raw) = params.get("_meta") {
            request.meta = read_meta(text, raw).map_err(|message| refuse(error::INVALID_PARAMS, message, id))?;
        }
    }
    if id.is_some() { Ok(Message::Request(request)) } else { Ok(Message::Notification(request)) }
}

fn read_meta(text: &str, raw: &str) -> Result<Meta, String> {
    let found = members(raw).map_err(|fault| format!("`params._meta` cannot be read: {fault}"))?;
    let mut meta = Meta { span: Some(Span::of(text, raw)), filled: !found.0.is_empty(), ..Meta::default() };
    for (key, value) in &found.0 {
        match &**key {
            meta_key::PROTOCOL_VERSION => {
                let version = unquote(value).ok_or_else(|| format!("`_meta[\"{key}\"]` must be a string"))?;
                meta.version = Some(version.into());
                meta.modern = true;
            }
            meta_key::CLIENT_CAPABILITIES => {
                if !value.starts_with('{') {
                    return Err(format!("`_meta[\"{key}\"]` must be an object"));
                }
                meta.has_capabilities = true;
                meta.modern = true;
            }
            meta_key::PROGRESS_TOKEN => {
                if !is_id(value) {
                    return Err("`_meta.progressToken` must be a string or an integer".into());
                }
                meta.token = Some(Span::of(text, value));
            }
            meta_key::TIMEOUT_MS => {
                let ms: u64 = value.parse().map_err(|_| {
                    format!("`_meta[\"{key}\"]` must be a whole number of milliseconds, not {value:.20}")
                })?;
                meta.timeout = Some(Span::of(text, value));
                meta.timeout_ms = Some(ms);
            }
            meta_key::PRIORITY => {
                let priority = unquote(value).ok_or_else(|| format!("`_meta[\"{key}\"]` must be a string"))?;
                meta.priority = Some(priority.into());
            }
            other if other.starts_with(meta_key::PREFIX) => meta.modern = true,
            _ => {}
        }
    }
    Ok(meta)
}

/// Whether `raw` is a string or an integer, of any size.
fn is_id(raw: &str) -> bool {
    raw.starts_with('"')
        || (raw.starts_with(|first: char| first == '-' || first.is_ascii_digit())
            && raw.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match read(Bytes::copy_from_slice(text.as_bytes())).unwrap() {
            Message::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn code(text: &str) -> i64 {
        read(Bytes::copy_from_slice(text.as_bytes())).unwrap_err().code
    }

    /// C23: ids keep their type and their text.
    #[test]
    fn c23_ids_are_kept_as_written() {
        for id in ["0", "\"0\"", "-1", "9007199254740993", "\"\"", "\"1\"", "1", "123456789012345678901234567890"] {
            let request = request(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
            assert_eq!(request.id_bytes(), id.as_bytes());
        }
        for id in ["null", "1.5", "1e3", "{}", "[1]", "true"] {
            assert_eq!(code(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)), -32600, "{id}");
        }
    }

    #[test]
    fn a_tool_call_is_cut_where_its_parts_lie() {
        let request = request(
            r#"{"jsonrpc":"2.0","method":"tools/call","id":7,"params":{"arguments":{"a":1.10},"_meta":{"progressToken":"t","forebay/timeout_ms":900,"traceparent":"x"},"name":"n\u0061me"}}"#,
        );
        assert_eq!(request.target_name().unwrap(), "name");
        assert_eq!(request.text(request.meta.token.unwrap()), "\"t\"");
        assert_eq!(request.meta.timeout_ms, Some(900));
        assert!(!request.meta.modern);
    }

    #[test]
    fn bad_messages_are_told_apart() {
        assert_eq!(code("{"), -32700);
        assert_eq!(code("[]"), -32600);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#), -32600);
        assert_eq!(code(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#), -32600);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1}"#), -32600);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#), -32600);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}"#), -32602);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#), -32602);
        assert_eq!(code(&format!("{}{}", "[".repeat(70), "]".repeat(70))), -32600);
        let fault = read(Bytes::from_static(br#"{"jsonrpc":"2.0","id":"x","method":5}"#)).unwrap_err();
        assert_eq!(fault.id.as_deref(), Some("\"x\""));
    }

    #[test]
    fn notifications_and_responses_are_no_requests() {
        let read = |text: &'static str| super::read(Bytes::from_static(text.as_bytes())).unwrap();
        assert!(matches!(read(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), Message::Notification(_)));
        assert!(matches!(read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Message::Response));
    }
}
