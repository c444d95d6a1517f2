//! The envelope of a message from a caller: read once, borrowed, never rebuilt.

use super::error;
use super::json::{Fault, Members, Scanner, Span, members, unquote};
use super::method::{self, TargetKey, target_key};
use super::version::{SUPPORTED, meta_key};
use bytes::Bytes;
use smallvec::SmallVec;
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
    pub method: Cow<'static, str>,
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
    pub version: Option<Cow<'static, str>>,
    pub has_capabilities: bool,
    /// The progress token as it was written.
    pub token: Option<Span>,
    /// The value of `forebay/timeout_ms`.
    pub timeout: Option<Span>,
    pub timeout_ms: Option<u64>,
    pub priority: Option<Box<str>>,
    /// The lowest level of log lines that a modern client wants.
    pub log_level: Option<Box<str>>,
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
        self.params.and_then(|span| members(self.text(span)).ok()).unwrap_or(Members(SmallVec::new()))
    }
}

/// Reads one message, in one pass. Arrays (batches of 2025-03-26) are refused here.
pub fn read(body: Bytes) -> Result<Message, EnvelopeError> {
    let refuse = |code, message: String, id: Option<&str>| EnvelopeError { code, message, id: id.map(Into::into) };
    let Ok(text) = std::str::from_utf8(&body) else {
        return Err(refuse(error::PARSE_ERROR, "the message is not UTF-8".into(), None));
    };
    if u32::try_from(text.len()).is_err() {
        return Err(refuse(error::INVALID_REQUEST, "the message is larger than 4 GiB".into(), None));
    }
    if text.trim_start().starts_with('[') {
        let message = "arrays of messages are not taken: send one message a request".into();
        return Err(refuse(error::INVALID_REQUEST, message, None));
    }
    let mut found = Parts::default();
    let mut scanner = Scanner::new(text, MAX_DEPTH);
    let read = scanner.object(|scanner, key| found.member(scanner, key)).and_then(|_| scanner.end());
    let id = found.id.map(|span| &text[span.range()]).filter(|raw| is_id(raw));
    if let Err(fault) = read {
        let code = if fault.is_data() { error::INVALID_REQUEST } else { error::PARSE_ERROR };
        return Err(refuse(code, format!("the message is not a JSON-RPC object: {fault}"), id));
    }
    let invalid = |message: &str| Err(refuse(error::INVALID_REQUEST, message.into(), id));
    if found.id.is_some() && id.is_none() {
        return invalid("`id` must be a string or an integer");
    }
    if found.jsonrpc.map(|span| &text[span.range()]) != Some("\"2.0\"") {
        return invalid("`jsonrpc` must be \"2.0\"");
    }
    let Some(method) = found.method else {
        if found.answers {
            return Ok(Message::Response);
        }
        return invalid("`method` is missing");
    };
    let Some(method) = unquote(&text[method.range()]) else {
        return invalid("`method` must be a string");
    };
    let mut target = None;
    match &found.params {
        Params::None => {}
        Params::NoObject => return invalid("`params` must be an object"),
        Params::Bad(message) => return Err(refuse(error::INVALID_PARAMS, message.clone(), id)),
        Params::Object(_) => {
            let (key, place) = match target_key(&method) {
                TargetKey::Name => ("name", found.targets[0]),
                TargetKey::Uri => ("uri", found.targets[1]),
                TargetKey::TaskId => ("taskId", found.targets[2]),
                TargetKey::None => ("", None),
            };
            if let Some(place) = place {
                if unquote(&text[place.range()]).is_none() {
                    return Err(refuse(error::INVALID_PARAMS, format!("`params.{key}` must be a string"), id));
                }
                target = Some(place);
            }
        }
    }
    let is_request = id.is_some();
    if is_request && method.starts_with("notifications/") {
        // A server that goes by the method alone would take it for a notice of ours, a cancel even.
        let message = format!("`{method:.80}` is a notification: send it without an `id`");
        return Err(refuse(error::METHOD_NOT_FOUND, message, id));
    }
    let request = Request {
        id: found.id.unwrap_or_default(),
        method: known_method(method),
        params: match found.params {
            Params::Object(span) => Some(span),
            Params::None | Params::NoObject | Params::Bad(_) => None,
        },
        target,
        meta: found.meta,
        body: body.clone(),
    };
    if is_request { Ok(Message::Request(request)) } else { Ok(Message::Notification(request)) }
}

/// What a first pass finds in an envelope.
#[derive(Default)]
struct Parts {
    id: Option<Span>,
    jsonrpc: Option<Span>,
    method: Option<Span>,
    /// `result` or `error` is there.
    answers: bool,
    params: Params,
    /// `name`, `uri` and `taskId` of the params.
    targets: [Option<Span>; 3],
    meta: Meta,
}

#[derive(Default)]
enum Params {
    #[default]
    None,
    NoObject,
    Object(Span),
    /// They are JSON, but cannot be taken; the envelope is read to its end all the same, for its id.
    Bad(String),
}

impl Parts {
    fn member(&mut self, scanner: &mut Scanner<'_>, key: &str) -> Result<(), Fault> {
        match key {
            "id" => self.id = Some(scanner.value()?),
            "jsonrpc" => self.jsonrpc = Some(scanner.value()?),
            "method" => self.method = Some(scanner.value()?),
            "params" if scanner.peek() == Some(b'{') => {
                let mark = scanner.mark();
                let mut bad = None;
                match scanner.object(|scanner, key| self.param(scanner, key, &mut bad)) {
                    Ok(span) => self.params = bad.map_or(Params::Object(span), Params::Bad),
                    Err(fault @ (Fault::Duplicate(_) | Fault::Lookalike(_) | Fault::TooMany)) => {
                        scanner.rewind(mark);
                        scanner.value()?;
                        self.params = Params::Bad(format!("`params` cannot be read: {fault}"));
                    }
                    Err(fault) => return Err(fault),
                }
            }
            "params" => {
                scanner.value()?;
                self.params = Params::NoObject;
            }
            "result" | "error" => {
                scanner.value()?;
                self.answers = true;
            }
            other => {
                distinct(other, &["id", "jsonrpc", "method", "params", "result", "error"])?;
                scanner.value()?;
            }
        }
        Ok(())
    }

    fn param(&mut self, scanner: &mut Scanner<'_>, key: &str, bad: &mut Option<String>) -> Result<(), Fault> {
        match key {
            "name" => self.targets[0] = Some(scanner.value()?),
            "uri" => self.targets[1] = Some(scanner.value()?),
            "taskId" => self.targets[2] = Some(scanner.value()?),
            "_meta" if scanner.peek() == Some(b'{') => {
                let meta = &mut self.meta;
                let span = scanner.object(|scanner, key| {
                    meta.filled = true;
                    let value = scanner.value()?;
                    if let Err(message) = meta.member(key, value, scanner.text(value)) {
                        bad.get_or_insert(message);
                    }
                    Ok(())
                })?;
                meta.span = Some(span);
            }
            "_meta" => {
                scanner.value()?;
                bad.get_or_insert("`params._meta` must be an object".into());
            }
            other => {
                distinct(other, &["name", "uri", "taskId", "_meta"])?;
                scanner.value()?;
            }
        }
        Ok(())
    }
}

impl Meta {
    fn member(&mut self, key: &str, place: Span, value: &str) -> Result<(), String> {
        let text = || unquote(value).ok_or_else(|| format!("`_meta[\"{key}\"]` must be a string"));
        match key {
            meta_key::PROTOCOL_VERSION => {
                self.version = Some(known_version(text()?));
                self.modern = true;
            }
            meta_key::CLIENT_CAPABILITIES => {
                if !value.starts_with('{') {
                    return Err(format!("`_meta[\"{key}\"]` must be an object"));
                }
                self.has_capabilities = true;
                self.modern = true;
            }
            meta_key::PROGRESS_TOKEN => {
                if !is_id(value) {
                    return Err("`_meta.progressToken` must be a string or an integer".into());
                }
                self.token = Some(place);
            }
            meta_key::TIMEOUT_MS => {
                let ms = value.parse().map_err(|_| {
                    format!("`_meta[\"{key}\"]` must be a whole number of milliseconds, not {value:.20}")
                })?;
                self.timeout = Some(place);
                self.timeout_ms = Some(ms);
            }
            meta_key::LOG_LEVEL => {
                self.log_level = Some(text()?.into());
                self.modern = true;
            }
            meta_key::PRIORITY => self.priority = Some(text()?.into()),
            other if other.starts_with(meta_key::PREFIX) => self.modern = true,
            _ => {}
        }
        Ok(())
    }
}

/// Spares the allocation where the method is one of those that are called all day.
fn known_method(method: Cow<'_, str>) -> Cow<'static, str> {
    match &*method {
        method::TOOLS_CALL => Cow::Borrowed(method::TOOLS_CALL),
        method::TOOLS_LIST => Cow::Borrowed(method::TOOLS_LIST),
        method::RESOURCES_READ => Cow::Borrowed(method::RESOURCES_READ),
        method::PROMPTS_GET => Cow::Borrowed(method::PROMPTS_GET),
        method::PING => Cow::Borrowed(method::PING),
        method::CANCELLED => Cow::Borrowed(method::CANCELLED),
        _ => Cow::Owned(method.into_owned()),
    }
}

/// As [`known_method`], for the versions served.
fn known_version(version: Cow<'_, str>) -> Cow<'static, str> {
    match SUPPORTED.into_iter().find(|known| *known == version) {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(version.into_owned()),
    }
}

/// Refuses a key that is one of `known` but for case: some servers read keys without case, and would take the
/// id, the method or the tool from a member that is not looked at here.
fn distinct(key: &str, known: &[&str]) -> Result<(), Fault> {
    let folded = |letter: char| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    let alike = |known: &&str| key.chars().map(folded).eq(known.chars().map(folded));
    if known.iter().any(alike) {
        return Err(Fault::Lookalike(key.chars().take(40).collect()));
    }
    Ok(())
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
    fn keys_that_differ_only_in_case_are_refused() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"ID":2,"method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","Params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","param\u017f":{}}"#,
        ] {
            assert_eq!(code(text), -32600, "{text}");
        }
        for key in ["Name", "URI", "TaskId", "taſkId", "tas\u{212a}Id", "_Meta"] {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a","{key}":"b"}}}}"#);
            assert_eq!(code(&text), -32602, "{text}");
        }
        let free =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"Name":1,"ID":2}}}"#;
        assert_eq!(request(free).target_name().unwrap(), "a");
    }

    #[test]
    fn a_notification_with_an_id_is_refused() {
        assert_eq!(
            code(r#"{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled","params":{"requestId":5}}"#),
            -32601
        );
    }

    #[test]
    fn notifications_and_responses_are_no_requests() {
        let read = |text: &'static str| super::read(Bytes::from_static(text.as_bytes())).unwrap();
        assert!(matches!(read(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), Message::Notification(_)));
        assert!(matches!(read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Message::Response));
    }
}
