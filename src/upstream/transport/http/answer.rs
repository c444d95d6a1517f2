//! What an upstream's answer says, judged from its status, its headers and its bytes. No I/O.

use super::redact::Redactor;
use crate::protocol::incoming::{self, Incoming};
use crate::protocol::json::{members, unquote};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, StatusCode};
use std::time::{Duration, SystemTime};

/// The longest rest that an upstream is granted by `Retry-After`.
const LONGEST_REST: Duration = Duration::from_secs(3600);

/// The form of a body that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Events,
}

/// The upstream answered with an HTTP error.
#[derive(Clone, Debug)]
pub(super) struct Rejected {
    pub(super) status: StatusCode,
    /// A short phrase for people: status, and what the upstream said.
    pub(super) fault: String,
    /// The body is a JSON-RPC error with our id.
    pub(super) ours: bool,
    /// The code of a JSON-RPC error in the body, whatever its id.
    pub(super) code: Option<i64>,
    /// Protocol revisions that a -32022 error names.
    pub(super) supported: Vec<String>,
    pub(super) retry_after: Option<Duration>,
}

/// The form of an answer's body, by its headers.
pub(super) fn form(headers: &HeaderMap, secrets: &Redactor) -> Result<Form, String> {
    if let Some(coding) = headers.get(CONTENT_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        let coding = secrets.clean(&String::from_utf8_lossy(coding.as_bytes()), 40);
        return Err(format!("it answered with the content coding {coding}, which it was not asked for"));
    }
    // A body that does not say what it is, is read as JSON or not at all.
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(Form::Json) };
    let text = value.to_str().map_err(|_| "its Content-Type cannot be read".to_owned())?;
    let mut parts = text.split(';');
    let essence = parts.next().unwrap_or_default().trim();
    let form = if essence.eq_ignore_ascii_case("application/json") {
        Form::Json
    } else if essence.eq_ignore_ascii_case("text/event-stream") {
        Form::Events
    } else {
        return Err(format!("it answered with {} instead of JSON or an event stream", secrets.clean(essence, 60)));
    };
    for parameter in parts {
        let Some((key, value)) = parameter.split_once('=') else { continue };
        let value = value.trim().trim_matches('"');
        if key.trim().eq_ignore_ascii_case("charset") && !value.eq_ignore_ascii_case("utf-8") {
            return Err(format!("it answered in the charset {}, which is not UTF-8", secrets.clean(value, 40)));
        }
    }
    Ok(form)
}

/// Whether `message` answers our request `id`.
pub(super) fn answers(message: &[u8], id: u64) -> bool {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(id).as_bytes();
    // The two orders that serialisers write spare a pass over a large message: an id right behind
    // `jsonrpc` at the head, or last of all, can only be the envelope's.
    if let Some(rest) = message.strip_prefix(b"{\"jsonrpc\":\"2.0\",\"id\":")
        && let Some(rest) = rest.strip_prefix(digits)
        && (rest.starts_with(b",\"result\":") || rest.starts_with(b",\"error\":"))
    {
        return true;
    }
    if (message.starts_with(b"{\"result\":") || message.starts_with(b"{\"error\":"))
        && let Some(head) = message.strip_suffix(b"}").and_then(|head| head.strip_suffix(digits))
        && head.ends_with(b",\"jsonrpc\":\"2.0\",\"id\":")
    {
        return true;
    }
    incoming::read(message) == Incoming::Response { id }
}

/// A message that carries no id at all, as servers answer what they could not read.
pub(super) fn is_error_without_id(message: &[u8]) -> bool {
    let read = std::str::from_utf8(message).ok().and_then(|text| members(text).ok());
    read.is_some_and(|read| read.get("error").is_some() && read.get("id") == Some("null"))
}

/// Whether a body says nothing: how notifications are acknowledged (C19).
pub(super) fn is_nothing(body: &[u8]) -> bool {
    let body = body.trim_ascii();
    body.is_empty() || body == b"null"
}

/// Judges an HTTP error by its head and as much of its body as was read. What it says is told without `secrets`.
pub(super) fn rejected(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    id: Option<u64>,
    secrets: &Redactor,
) -> Rejected {
    let mut fault = format!("HTTP {}", status.as_u16());
    if let Some(reason) = status.canonical_reason() {
        fault.push(' ');
        fault.push_str(reason);
    }
    if status.is_redirection() {
        fault.push_str(": a POST is not redirected; does the url lack or have a trailing slash?");
        if let Some(to) = headers.get(LOCATION).and_then(|to| to.to_str().ok()) {
            // Only the path: the rest may be a secret of the server's.
            let path = to.split("//").last().unwrap_or(to);
            let path = path.find('/').map_or("", |slash| &path[slash..]);
            let path = path.split(['?', '#']).next().unwrap_or("");
            if !path.is_empty() {
                fault.push_str(&format!(" (it points to {})", secrets.clean(path, 100)));
            }
        }
    }
    if let Some(asks) = text_of(headers, &WWW_AUTHENTICATE, secrets) {
        fault.push_str(&format!("; WWW-Authenticate: {asks}"));
    }
    let mut rejected =
        Rejected { status, fault, ours: false, code: None, supported: Vec::new(), retry_after: retry_after(headers) };
    let read = match form(headers, secrets) {
        Ok(Form::Json) => std::str::from_utf8(body).ok().and_then(|text| members(text).ok()),
        Ok(Form::Events) | Err(_) => None,
    };
    let Some(read) = read else { return rejected };
    let Some(error) = read.get("error").and_then(|raw| members(raw).ok()) else { return rejected };
    rejected.code = error.get("code").and_then(|raw| raw.parse().ok());
    rejected.ours = id.is_some() && read.get("id").and_then(incoming::number) == id && rejected.code.is_some();
    if let Some(message) = error.get("message").and_then(unquote) {
        rejected.fault.push_str(&format!(": {}", secrets.clean(&message, 200)));
    }
    let supported = error.get("data").and_then(|raw| members(raw).ok()).and_then(|data| data.get("supported"));
    rejected.supported = supported.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
    rejected
}

/// Whether an HTTP error proves that the request was not executed. What is not listed may have run.
pub(super) fn never_executed(status: StatusCode) -> bool {
    matches!(status.as_u16(), 300..=302 | 304..=308 | 400..=407 | 411 | 413..=417 | 421 | 426 | 428 | 429 | 431)
}

/// `Retry-After` in either form.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let rest = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    Some(rest.min(LONGEST_REST))
}

fn text_of(headers: &HeaderMap, name: &HeaderName, secrets: &Redactor) -> Option<String> {
    headers.get(name).map(|value| secrets.clean(&String::from_utf8_lossy(value.as_bytes()), 200))
}

/// A server's text as one short line.
pub(super) fn clean(text: &str, most: usize) -> String {
    let mut clean: String =
        text.chars().take(most).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.chars().nth(most).is_some() {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    /// C20: media types are compared without case and parameters.
    #[test]
    fn c20_media_types_are_compared_without_case_and_parameters() {
        let form = |text: &str| super::form(&headers(&[(CONTENT_TYPE, text)]), &Redactor::default());
        assert_eq!(form("application/json; charset=utf-8"), Ok(Form::Json));
        assert_eq!(form("Application/JSON"), Ok(Form::Json));
        assert_eq!(form("application/json;Charset=\"UTF-8\";x"), Ok(Form::Json));
        assert_eq!(form("text/event-stream;charset=UTF-8"), Ok(Form::Events));
        assert!(form("application/json;charset=latin1").unwrap_err().contains("latin1"));
        assert!(form("text/html").unwrap_err().contains("text/html"));
        assert!(form("application/jsonx").is_err());
        assert_eq!(super::form(&HeaderMap::new(), &Redactor::default()), Ok(Form::Json));
    }

    /// C21: an unknown coding is an error.
    #[test]
    fn c21_a_coding_that_was_not_asked_for_is_an_error() {
        let form = |text: &str| super::form(&headers(&[(CONTENT_ENCODING, text)]), &Redactor::default());
        assert!(form("br").unwrap_err().contains("br"));
        assert!(form("gzip, identity").is_err());
        assert_eq!(form("identity"), Ok(Form::Json));
    }

    #[test]
    fn an_answer_is_known_by_its_id_wherever_it_stands() {
        for good in [
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#"{"result":{"id":8},"jsonrpc":"2.0","id":7}"#,
            r#"{ "id" : "7" , "error":{} }"#,
            "{\"id\":7,\n\"result\":null}",
        ] {
            assert!(answers(good.as_bytes(), 7), "{good}");
        }
        for bad in [
            r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":8,"result":{"jsonrpc":"2.0","id":7}}"#,
            r#"{"id":8,"result":",\"jsonrpc\":\"2.0\",\"id\":7}"}"#,
            r#"{"id":7,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#,
            r#"{"method":"ping","jsonrpc":"2.0","id":7}"#,
            r#"[{"id":7,"result":1}]"#,
            "null",
            "",
        ] {
            assert!(!answers(bad.as_bytes(), 7), "{bad}");
        }
    }

    #[test]
    fn an_error_body_is_ours_by_its_id_only() {
        let json = headers(&[(CONTENT_TYPE, "application/json")]);
        let body = br#"{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"a\nb","data":{"supported":["x"]}}}"#;
        let found = rejected(StatusCode::BAD_REQUEST, &json, body, Some(7), &Redactor::default());
        assert!(found.ours);
        assert_eq!((found.code, &*found.supported), (Some(-32022), ["x".to_owned()].as_slice()));
        assert_eq!(found.fault, "HTTP 400 Bad Request: a b");
        let found = rejected(StatusCode::BAD_REQUEST, &json, body, Some(8), &Redactor::default());
        assert!(!found.ours);
        let html = headers(&[(CONTENT_TYPE, "text/html")]);
        assert_eq!(rejected(StatusCode::BAD_REQUEST, &html, body, Some(7), &Redactor::default()).code, None);
    }

    #[test]
    fn a_rest_is_read_in_both_forms_and_bounded() {
        let rest = |text: &str| retry_after(&headers(&[(RETRY_AFTER, text)]));
        assert_eq!(rest("3"), Some(Duration::from_secs(3)));
        assert_eq!(rest("99999999999"), Some(LONGEST_REST));
        assert_eq!(rest("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(rest("soon"), None);
    }

    /// C36: the message for a redirect speaks of the trailing slash and shows no query.
    #[test]
    fn c36_a_redirected_post_is_told_with_its_likely_cause() {
        let to = headers(&[(LOCATION, "http://other.example/mcp/?token=CANARY")]);
        let fault = rejected(StatusCode::FOUND, &to, b"", None, &Redactor::default()).fault;
        assert!(fault.contains("trailing slash") && fault.contains("/mcp/") && !fault.contains("CANARY"), "{fault}");
    }
}
