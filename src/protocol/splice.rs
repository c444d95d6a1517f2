//! What forebay changes in a message, and nothing else: the id, the target's name, the progress token and
//! its own keys in `_meta`.

use super::envelope::Request;
use super::json::{Fault, Scanner, Span, members, quote_into};
use super::version::{Era, MODERN, meta_key};
use bytes::Bytes;
use smallvec::SmallVec;

/// The form in which a caller wants its answer.
#[derive(Clone, Debug)]
pub enum ReplyForm {
    /// A JSON-RPC message with this id, written as the caller wrote it.
    JsonRpc { id: Bytes, era: Era },
    /// The bare result (REST).
    Result,
}

/// What is told about a call in `_meta["forebay/call"]`.
#[derive(Clone, Copy, Debug)]
pub struct CallNote<'a> {
    /// The id as text.
    pub call_id: &'a [u8],
    pub upstream: &'a str,
    pub queued_ms: u64,
    pub running_ms: u64,
    /// A modern client is told how long the result keeps, if its server does not say.
    pub cacheable: bool,
}

/// What an upstream's answer turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// A result; the flag is the result's own `isError`.
    Result { is_error: bool },
    /// A JSON-RPC error.
    Error,
}

/// How a request is written for its upstream.
#[derive(Clone, Copy, Debug)]
pub struct Outbound<'a> {
    /// Our own number for it.
    pub id: u64,
    /// The target's name there, if it differs from what the caller wrote.
    pub name: Option<&'a str>,
    /// Our own progress token, used if the caller gave one.
    pub token: u64,
    /// The time left for the call.
    pub left_ms: Option<u64>,
    /// The era of the upstream.
    pub era: Era,
    /// The lowest level of log lines that the client wants.
    pub level: Option<&'a str>,
}

/// Appends the request as the upstream shall see it.
pub fn request(out: &mut Vec<u8>, request: &Request, to: &Outbound<'_>) {
    let body = &request.body;
    let mut edits = Edits::default();
    let mut digits = itoa::Buffer::new();
    edits.replace(request.id, digits.format(to.id).as_bytes());
    if let (Some(span), Some(name)) = (request.target, to.name) {
        let mut quoted: Text = SmallVec::new();
        quote(name, &mut quoted);
        edits.replace(span, &quoted);
    }
    let meta = &request.meta;
    let modern_client = meta.version.is_some();
    if (to.era == Era::Modern) == modern_client {
        edit_meta(&mut edits, request, to);
    } else {
        let mut rebuilt = Vec::with_capacity(160);
        rebuild_meta(&mut rebuilt, request, to);
        match meta.span {
            Some(span) => edits.replace(span, &rebuilt),
            None => put_first(&mut edits, request, meta_member(&rebuilt)),
        }
    }
    let whole = Span { start: 0, end: body.len() as u32 };
    out.reserve(body.len() + edits.text.len());
    edits.write(body, whole, out);
}

/// Changes inside `_meta`, or a `_meta` of our own: the token and the time left.
fn edit_meta(edits: &mut Edits, request: &Request, to: &Outbound<'_>) {
    let mut digits = itoa::Buffer::new();
    if let Some(token) = request.meta.token {
        edits.replace(token, digits.format(to.token).as_bytes());
    }
    let Some(left) = to.left_ms else { return };
    let left = digits.format(left).as_bytes();
    if let Some(span) = request.meta.timeout {
        return edits.replace(span, left);
    }
    let mut member: Text = SmallVec::new();
    member.push(b'"');
    member.extend_from_slice(meta_key::TIMEOUT_MS.as_bytes());
    member.extend_from_slice(b"\":");
    member.extend_from_slice(left);
    match request.meta.span {
        Some(span) => {
            if request.meta.filled {
                member.push(b',');
            }
            edits.insert(span.start + 1, &member);
        }
        None => {
            member.insert(0, b'{');
            member.push(b'}');
            put_first(edits, request, meta_member(&member));
        }
    }
}

/// A whole `_meta` for the other era: the modern keys are dropped, or put in.
fn rebuild_meta(out: &mut Vec<u8>, request: &Request, to: &Outbound<'_>) {
    let old = request.meta.span.and_then(|span| members(request.text(span)).ok());
    out.push(b'{');
    let mut put = |key: &str, value: &[u8]| {
        if out.len() > 1 {
            out.push(b',');
        }
        quote_into(key, out);
        out.push(b':');
        out.extend_from_slice(value);
    };
    let mut digits = itoa::Buffer::new();
    for (key, value) in old.iter().flat_map(|old| &old.0) {
        match &**key {
            meta_key::PROGRESS_TOKEN => put(key, digits.format(to.token).as_bytes()),
            meta_key::TIMEOUT_MS => {}
            dropped if dropped.starts_with(meta_key::PREFIX) => {}
            _ => put(key, value.as_bytes()),
        }
    }
    if to.era == Era::Modern {
        put(meta_key::PROTOCOL_VERSION, format!("\"{MODERN}\"").as_bytes());
        put(meta_key::CLIENT_CAPABILITIES, b"{}");
        put(
            meta_key::CLIENT_INFO,
            format!(r#"{{"name":"forebay","version":"{}"}}"#, env!("CARGO_PKG_VERSION")).as_bytes(),
        );
        if let Some(level) = to.level {
            let mut quoted: Text = SmallVec::new();
            quote(level, &mut quoted);
            put(meta_key::LOG_LEVEL, &quoted);
        }
    }
    if let Some(left) = to.left_ms {
        put(meta_key::TIMEOUT_MS, digits.format(left).as_bytes());
    }
    out.push(b'}');
}

fn meta_member(value: &[u8]) -> Text {
    let mut member: Text = SmallVec::new();
    member.extend_from_slice(b"\"_meta\":");
    member.extend_from_slice(value);
    member
}

/// Puts a member at the head of `params`, or makes a `params` for it.
fn put_first(edits: &mut Edits, request: &Request, mut member: Text) {
    match request.params {
        Some(span) => {
            let inner = &request.body[span.start as usize + 1..span.end as usize - 1];
            if inner.iter().any(|byte| !byte.is_ascii_whitespace()) {
                member.push(b',');
            }
            edits.insert(span.start + 1, &member);
        }
        None => {
            // The id always stands in a request, so a member may follow it.
            let mut params = b",\"params\":{".to_vec();
            params.extend_from_slice(&member);
            params.push(b'}');
            edits.insert(request.id.end, &params);
        }
    }
}

/// Where the parts of an upstream's answer lie.
#[derive(Default)]
struct Answer {
    id: Option<Span>,
    error: Option<Span>,
    result: Option<Span>,
    result_object: Option<ResultParts>,
}

/// Where the parts of a result lie that is an object.
#[derive(Default)]
struct ResultParts {
    filled: bool,
    /// `_meta`, and whether it is an object with members, an empty one, or none.
    meta: Option<(Span, Option<bool>)>,
    is_error: bool,
    typed: bool,
    /// It says how long it keeps.
    cached: bool,
    /// Its members are too many, occur twice or cannot be read: nothing is put into it.
    sealed: bool,
}

impl Answer {
    fn read(text: &str) -> Result<Answer, Fault> {
        let mut answer = Answer::default();
        let mut scanner = Scanner::new(text, usize::MAX);
        scanner.object(|scanner, key| {
            match &**key {
                "id" => answer.id = Some(scanner.value()?),
                "error" => answer.error = Some(scanner.value()?),
                "result" if scanner.peek() == Some(b'{') => {
                    let mark = scanner.mark();
                    let mut parts = ResultParts::default();
                    let mut read = scanner.object(|scanner, key| parts.member(scanner, key));
                    if read.is_err() {
                        // What cannot be written into passes as it came; all that is asked of it is `isError`.
                        scanner.rewind(mark);
                        parts = ResultParts { sealed: true, ..ResultParts::default() };
                        read = scanner.loose_object(|scanner, key| parts.member(scanner, key));
                    }
                    answer.result = Some(read?);
                    answer.result_object = Some(parts);
                }
                "result" => answer.result = Some(scanner.value()?),
                _ => drop(scanner.value()?),
            }
            Ok(())
        })?;
        scanner.end()?;
        Ok(answer)
    }
}

impl ResultParts {
    fn member(&mut self, scanner: &mut Scanner<'_>, key: &str) -> Result<(), Fault> {
        self.filled = true;
        match key {
            "_meta" if scanner.peek() == Some(b'{') => {
                let span = scanner.value()?;
                let inner = &scanner.text(span).as_bytes()[1..span.range().len() - 1];
                self.meta = Some((span, Some(inner.iter().any(|byte| !byte.is_ascii_whitespace()))));
            }
            "_meta" => self.meta = Some((scanner.value()?, None)),
            "isError" => {
                let span = scanner.value()?;
                self.is_error = scanner.text(span) == "true";
            }
            "ttlMs" => {
                scanner.value()?;
                self.cached = true;
            }
            "resultType" => {
                scanner.value()?;
                self.typed = true;
            }
            _ => {
                scanner.value()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
thread_local! {
    /// Answers that were looked at on this thread, so that a test sees what is not.
    pub(crate) static ANSWERS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Turns an upstream's answer into the caller's: its id back, a note of forebay's in `_meta`.
///
/// None if the line is no valid answer.
pub fn answer(line: &[u8], upstream_era: Era, form: &ReplyForm, note: &CallNote<'_>) -> Option<(Bytes, AnswerKind)> {
    #[cfg(test)]
    ANSWERS.set(ANSWERS.get() + 1);
    let text = std::str::from_utf8(line).ok()?;
    let found = Answer::read(text).ok()?;
    let id = found.id?;
    let mut edits = Edits::default();
    if let Some(error) = found.error {
        if !text[error.range()].starts_with('{') || found.result.is_some() {
            return None;
        }
        let out = match form {
            ReplyForm::JsonRpc { id: own, .. } => {
                edits.replace(id, own);
                edits.apply(line)
            }
            ReplyForm::Result => text.as_bytes()[error.range()].to_vec(),
        };
        return Some((out.into(), AnswerKind::Error));
    }
    let result = found.result?;
    let mut is_error = false;
    if let Some(parts) = &found.result_object {
        is_error = parts.is_error;
    }
    if let Some(parts) = found.result_object.filter(|parts| !parts.sealed) {
        let mut head: Text = SmallVec::new();
        match parts.meta {
            Some((meta, Some(filled))) => {
                let mut member: Text = SmallVec::new();
                write_note(&mut member, note);
                if filled {
                    member.push(b',');
                }
                edits.insert(meta.start + 1, &member);
            }
            // A `_meta` that is no object is the server's own affair.
            Some((_, None)) => {}
            None => {
                head.extend_from_slice(b"\"_meta\":{");
                write_note(&mut head, note);
                head.push(b'}');
            }
        }
        let modern_caller = matches!(form, ReplyForm::JsonRpc { era: Era::Modern, .. });
        if modern_caller && upstream_era == Era::Legacy && !parts.typed {
            if !head.is_empty() {
                head.push(b',');
            }
            head.extend_from_slice(b"\"resultType\":\"complete\"");
            if note.cacheable && !parts.cached {
                head.extend_from_slice(b",\"ttlMs\":0,\"cacheScope\":\"private\"");
            }
        }
        if !head.is_empty() {
            if parts.filled {
                head.push(b',');
            }
            edits.insert(result.start + 1, &head);
        }
    }
    let out = match form {
        ReplyForm::JsonRpc { id: own, .. } => {
            edits.replace(id, own);
            edits.apply(line)
        }
        ReplyForm::Result => edits.apply_within(line, result),
    };
    Some((out.into(), AnswerKind::Result { is_error }))
}

/// `"forebay/call":{...}` of a call that the upstream answered.
fn write_note(out: &mut Text, note: &CallNote<'_>) {
    let mut digits = itoa::Buffer::new();
    out.push(b'"');
    out.extend_from_slice(meta_key::CALL.as_bytes());
    out.extend_from_slice(b"\":{\"call_id\":\"");
    out.extend_from_slice(note.call_id);
    out.extend_from_slice(b"\",\"upstream\":");
    quote(note.upstream, out);
    out.extend_from_slice(b",\"queued_ms\":");
    out.extend_from_slice(digits.format(note.queued_ms).as_bytes());
    out.extend_from_slice(b",\"running_ms\":");
    out.extend_from_slice(digits.format(note.running_ms).as_bytes());
    out.extend_from_slice(b",\"outcome\":\"completed\",\"executed\":\"yes\"}");
}

/// Bytes that are put into a message; they rarely leave the stack.
type Text = SmallVec<[u8; 256]>;

/// Appends `text` as a JSON string with its quotes.
fn quote(text: &str, out: &mut Text) {
    // Writing to memory cannot fail, and a string always serialises.
    let _ = serde_json::to_writer(out, text);
}

/// A few replacements in one message, applied in the order of their places.
#[derive(Default)]
struct Edits {
    list: SmallVec<[(Span, usize, usize); 6]>,
    text: Text,
}

impl Edits {
    fn replace(&mut self, span: Span, with: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(with);
        self.list.push((span, start, self.text.len()));
    }

    fn insert(&mut self, at: u32, text: &[u8]) {
        self.replace(Span { start: at, end: at }, text);
    }

    fn apply(self, body: &[u8]) -> Vec<u8> {
        let whole = Span { start: 0, end: body.len() as u32 };
        self.apply_within(body, whole)
    }

    fn apply_within(self, body: &[u8], within: Span) -> Vec<u8> {
        // Exactly what is needed, so that turning it into shared bytes does not move it.
        let out: usize = self.list.iter().map(|(span, ..)| span.range().len()).sum();
        let mut message = Vec::with_capacity((within.range().len() + self.text.len()).saturating_sub(out));
        self.write(body, within, &mut message);
        message
    }

    fn write(mut self, body: &[u8], within: Span, out: &mut Vec<u8>) {
        self.list.sort_unstable_by_key(|(span, ..)| span.start);
        let inside = |span: &Span| span.start >= within.start && span.end <= within.end;
        let mut from = within.start as usize;
        for (span, start, end) in self.list.iter().filter(|(span, ..)| inside(span)) {
            out.extend_from_slice(&body[from..span.start as usize]);
            out.extend_from_slice(&self.text[*start..*end]);
            from = span.end as usize;
        }
        out.extend_from_slice(&body[from..within.end as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::envelope::{Message, read};
    use super::*;

    fn outbound(text: &str, name: Option<&str>, era: Era) -> String {
        let Message::Request(parsed) = read(Bytes::copy_from_slice(text.as_bytes())).unwrap() else { panic!() };
        let mut out = Vec::new();
        request(&mut out, &parsed, &Outbound { id: 77, name, token: 5, left_ms: Some(900), era, level: None });
        serde_json::from_slice::<serde::de::IgnoredAny>(&out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// C25: the text of every number is unchanged.
    #[test]
    fn c25_numbers_and_order_pass_byte_for_byte() {
        let arguments = r#"{"id":9223372036854775807,"big":12345678901234567890123,"f":1.10,"e":1E400,"z":-0.0}"#;
        let text = format!(
            r#"{{"jsonrpc":"2.0", "id" : "x","newer":[ ],"method":"tools/call","params":{{"zz":1,"arguments": {arguments},"name":"up__t"}}}}"#
        );
        assert_eq!(
            outbound(&text, Some("t"), Era::Legacy),
            format!(
                r#"{{"jsonrpc":"2.0", "id" : 77,"newer":[ ],"method":"tools/call","params":{{"_meta":{{"forebay/timeout_ms":900}},"zz":1,"arguments": {arguments},"name":"t"}}}}"#
            )
        );
    }

    #[test]
    fn meta_is_edited_in_place_where_eras_agree() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"mine","forebay/timeout_ms":5,"k":1.0}}}"#;
        assert_eq!(
            outbound(text, None, Era::Modern),
            r#"{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":5,"forebay/timeout_ms":900,"k":1.0}}}"#
        );
        assert_eq!(
            outbound(text, None, Era::Legacy),
            r#"{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":5,"k":1.0,"forebay/timeout_ms":900}}}"#
        );
    }

    #[test]
    fn a_legacy_request_is_stamped_for_a_modern_upstream() {
        assert_eq!(
            outbound(r#"{"jsonrpc":"2.0","id":1,"method":"x/y"}"#, None, Era::Modern),
            r#"{"jsonrpc":"2.0","id":77,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"forebay","version":"VERSION"},"forebay/timeout_ms":900}},"method":"x/y"}"#
                .replace("VERSION", env!("CARGO_PKG_VERSION"))
        );
        assert_eq!(
            outbound(r#"{"jsonrpc":"2.0","id":1,"method":"x/y","params":{ }}"#, None, Era::Legacy),
            r#"{"jsonrpc":"2.0","id":77,"method":"x/y","params":{"_meta":{"forebay/timeout_ms":900} }}"#
        );
    }

    fn answered(line: &str, form: &ReplyForm, era: Era) -> Option<(String, AnswerKind)> {
        let note = CallNote { call_id: b"k-1", upstream: "up", queued_ms: 3, running_ms: 4, cacheable: false };
        let (bytes, kind) = answer(line.as_bytes(), era, form, &note)?;
        serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).unwrap();
        Some((String::from_utf8(bytes.to_vec()).unwrap(), kind))
    }

    const NOTE: &str = r#""forebay/call":{"call_id":"k-1","upstream":"up","queued_ms":3,"running_ms":4,"outcome":"completed","executed":"yes"}"#;

    /// C24: what is newer than us passes.
    #[test]
    fn c24_unknown_fields_of_a_result_pass() {
        let form = ReplyForm::JsonRpc { id: Bytes::from_static(b"\"a\""), era: Era::Legacy };
        let line = r#"{"result":{"content":[],"structuredContent":{"n":1.10},"_meta":{"k":"v"},"newer":true},"id":9,"jsonrpc":"2.0","x":0}"#;
        let (text, kind) = answered(line, &form, Era::Legacy).unwrap();
        assert_eq!(kind, AnswerKind::Result { is_error: false });
        assert_eq!(
            text,
            format!(
                r#"{{"result":{{"content":[],"structuredContent":{{"n":1.10}},"_meta":{{{NOTE},"k":"v"}},"newer":true}},"id":"a","jsonrpc":"2.0","x":0}}"#
            )
        );
    }

    #[test]
    fn errors_change_only_their_id() {
        let form = ReplyForm::JsonRpc { id: Bytes::from_static(b"1"), era: Era::Modern };
        let line = r#"{"jsonrpc":"2.0","id":"9","error":{"code":-1,"message":"m","data":1E400}}"#;
        let (text, kind) = answered(line, &form, Era::Modern).unwrap();
        assert_eq!(kind, AnswerKind::Error);
        assert_eq!(text, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m","data":1E400}}"#);
    }

    #[test]
    fn a_modern_caller_of_a_legacy_upstream_gets_a_result_type() {
        let form = ReplyForm::JsonRpc { id: Bytes::from_static(b"1"), era: Era::Modern };
        let (text, kind) =
            answered(r#"{"jsonrpc":"2.0","id":9,"result":{"isError":true}}"#, &form, Era::Legacy).unwrap();
        assert_eq!(kind, AnswerKind::Result { is_error: true });
        assert_eq!(
            text,
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"_meta":{{{NOTE}}},"resultType":"complete","isError":true}}}}"#
            )
        );
        let (text, _) = answered(r#"{"jsonrpc":"2.0","id":9,"result":null}"#, &form, Era::Legacy).unwrap();
        assert_eq!(text, r#"{"jsonrpc":"2.0","id":1,"result":null}"#);
    }

    #[test]
    fn a_result_that_cannot_be_written_into_passes_as_it_came() {
        let many: Vec<_> = (0..300).map(|n| format!("\"k{n}\": {n}")).collect();
        for result in [
            r#"{"isError":true,"a":1,"a":1.10,"_meta":{}}"#.to_owned(),
            r#"{"\ud800": "\udfff","isError":true}"#.to_owned(),
            r#"{"_meta":{"a":1},"isError" : true,"_meta":{"b":2}}"#.to_owned(),
            format!("{{{}, \"isError\":true}}", many.join(", ")),
        ] {
            let line = format!(r#"{{"result":{result},"id":9,"jsonrpc":"2.0"}}"#);
            let form = ReplyForm::JsonRpc { id: Bytes::from_static(b"1"), era: Era::Modern };
            let (text, kind) = answered(&line, &form, Era::Legacy).unwrap();
            assert_eq!(kind, AnswerKind::Result { is_error: true });
            assert_eq!(text, format!(r#"{{"result":{result},"id":1,"jsonrpc":"2.0"}}"#));
            let (text, _) = answered(&line, &ReplyForm::Result, Era::Modern).unwrap();
            assert_eq!(text, result);
        }
        let broken = r#"{"result":{"a":1,"a":},"id":9,"jsonrpc":"2.0"}"#;
        assert!(answered(broken, &ReplyForm::Result, Era::Modern).is_none());
    }

    #[test]
    fn rest_gets_the_bare_result() {
        let (text, _) = answered(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, &ReplyForm::Result, Era::Modern).unwrap();
        assert_eq!(text, format!(r#"{{"_meta":{{{NOTE}}}}}"#));
        assert!(answered(r#"{"jsonrpc":"2.0","id":9}"#, &ReplyForm::Result, Era::Modern).is_none());
    }
}
