//! Where an upstream is, and the headers of every request to it, built from scratch: no header of a caller
//! ever travels.

use super::redact::Redactor;
use crate::config::HttpTarget;
use crate::protocol::method;
use crate::protocol::version::Era;
use base64::Engine as _;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(super) const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The time left for a call, as forebay itself takes it from its callers.
pub(super) const TIMEOUT: HeaderName = HeaderName::from_static("forebay-timeout");

/// Headers that no configuration may set: they are forebay's, or belong to one connection.
const RESERVED: [&str; 18] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "forebay-timeout",
    "host",
    "keep-alive",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The address of one upstream, checked.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) https: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// The request's target: path and query only.
    pub(super) path: Uri,
    /// host, content-type, accept and the configured headers.
    common: HeaderMap,
    /// What of it must not come back in a server's words.
    pub(super) secrets: Redactor,
}

/// Why an address or a header cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadEndpoint {
    #[error("the url has no scheme: write http:// or https://")]
    NoScheme,
    #[error("the url's scheme is {0}: only http and https are spoken")]
    Scheme(String),
    #[error("the url names no host")]
    NoHost,
    #[error("the url holds a user or a password: put credentials into `headers`")]
    UserInfo,
    #[error("the header `{0}` is set by forebay itself: take it out of `headers`")]
    Reserved(HeaderName),
    #[error("the value of the header `{0}` holds characters that no header can carry")]
    Value(HeaderName),
}

impl Endpoint {
    pub(super) fn new(target: &HttpTarget) -> Result<Endpoint, BadEndpoint> {
        let scheme = target.url.scheme().ok_or(BadEndpoint::NoScheme)?;
        let https = match scheme.as_str() {
            "https" => true,
            "http" => false,
            other => return Err(BadEndpoint::Scheme(other.into())),
        };
        let authority = target.url.authority().ok_or(BadEndpoint::NoHost)?;
        if authority.as_str().contains('@') {
            return Err(BadEndpoint::UserInfo);
        }
        let host = authority.host().to_owned();
        if host.is_empty() {
            return Err(BadEndpoint::NoHost);
        }
        let port = authority.port_u16().unwrap_or(default_port(https));
        let mut common = HeaderMap::with_capacity(12);
        let shown = if port == default_port(https) { host.clone() } else { format!("{host}:{port}") };
        common.insert(HOST, HeaderValue::from_str(&shown).map_err(|_| BadEndpoint::NoHost)?);
        common.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        common.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        for (name, secret) in &target.headers {
            if RESERVED.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
                return Err(BadEndpoint::Reserved(name.clone()));
            }
            let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| BadEndpoint::Value(name.clone()))?;
            value.set_sensitive(true);
            common.append(name.clone(), value);
        }
        let (path, secrets) = (origin_form(target.url.path_and_query()), Redactor::new(target));
        Ok(Endpoint { https, host, port, path, common, secrets })
    }

    /// Headers of a request outside any session: `initialize`.
    pub(super) fn bare(&self) -> HeaderMap {
        self.common.clone()
    }

    /// Headers of requests at a revision, within a session if there is one.
    pub(super) fn headers(&self, era: Era, version: &HeaderValue, session: Option<&HeaderValue>) -> Headers {
        let mut plain = self.common.clone();
        plain.insert(PROTOCOL_VERSION, version.clone());
        if let Some(session) = session {
            plain.insert(SESSION_ID, session.clone());
        }
        let mut named = plain.clone();
        if era == Era::Modern {
            // Placeholders: setting them later changes a value in place, and the map never grows.
            plain.insert(METHOD, HeaderValue::from_static(""));
            named.insert(METHOD, HeaderValue::from_static(""));
            named.insert(NAME, HeaderValue::from_static(""));
        }
        Headers { era, plain, named }
    }

    /// Where a redirect leads on this same origin, or why it is not followed.
    pub(super) fn redirect(&self, from: &Uri, location: &str) -> Result<Uri, String> {
        let elsewhere = || {
            let origin = self.secrets.clean(&location_origin(location), 100);
            format!("a redirect to another origin ({origin}) is not followed")
        };
        if let Ok(url) = location.parse::<Uri>()
            && let (Some(scheme), Some(authority)) = (url.scheme(), url.authority())
        {
            let https = *scheme == Scheme::HTTPS;
            if !(https || *scheme == Scheme::HTTP)
                || https != self.https
                || !authority.host().eq_ignore_ascii_case(&self.host)
                || authority.port_u16().unwrap_or(default_port(https)) != self.port
                || authority.as_str().contains('@')
            {
                return Err(elsewhere());
            }
            return Ok(origin_form(url.path_and_query()));
        }
        if location.starts_with("//") || location.contains("://") || location.contains('\\') {
            return Err(elsewhere());
        }
        let path = if location.starts_with('/') {
            location.to_owned()
        } else {
            let base = from.path();
            let folder = &base[..base.rfind('/').map_or(0, |slash| slash + 1)];
            format!("{folder}{location}")
        };
        let path = path.split('#').next().unwrap_or("/").parse::<PathAndQuery>();
        path.map(|path| origin_form(Some(&path))).map_err(|_| "the redirect's Location cannot be read".into())
    }
}

/// Prebuilt headers of one session; a request clones one of the two maps and fills in its own values.
#[derive(Clone, Debug)]
pub(super) struct Headers {
    era: Era,
    plain: HeaderMap,
    named: HeaderMap,
}

impl Headers {
    /// The headers of one request.
    pub(super) fn request(&self, method: &str, name: Option<HeaderValue>, left_ms: Option<u64>) -> HeaderMap {
        let mut headers = match (self.era, &name) {
            (Era::Modern, Some(_)) => self.named.clone(),
            (Era::Modern, None) | (Era::Legacy, _) => self.plain.clone(),
        };
        if self.era == Era::Modern {
            headers.insert(METHOD, method_value(method));
            if let Some(name) = name {
                headers.insert(NAME, name);
            }
        }
        if let Some(value) = left_ms.and_then(|left| HeaderValue::from_str(&format!("{left}ms")).ok()) {
            headers.insert(TIMEOUT, value);
        }
        headers
    }

    /// The headers of a notification on a legacy session, and of its end.
    pub(super) fn plain(&self) -> HeaderMap {
        self.plain.clone()
    }
}

fn default_port(https: bool) -> u16 {
    if https { 443 } else { 80 }
}

fn origin_form(path: Option<&PathAndQuery>) -> Uri {
    path.map_or_else(|| Uri::from_static("/"), |path| Uri::from(path.clone()))
}

/// What of a `Location` may be shown: scheme and host, no path, no user.
fn location_origin(location: &str) -> String {
    let authority = location.split("//").nth(1).and_then(|rest| rest.split(['/', '?', '#', '\\']).next());
    match authority.and_then(|text| text.parse::<Authority>().ok()) {
        Some(authority) => authority.host().to_owned(),
        None => "unreadable".into(),
    }
}

fn method_value(name: &str) -> HeaderValue {
    match name {
        method::TOOLS_CALL => HeaderValue::from_static(method::TOOLS_CALL),
        method::TOOLS_LIST => HeaderValue::from_static(method::TOOLS_LIST),
        method::PROMPTS_GET => HeaderValue::from_static(method::PROMPTS_GET),
        method::RESOURCES_READ => HeaderValue::from_static(method::RESOURCES_READ),
        method::DISCOVER => HeaderValue::from_static(method::DISCOVER),
        other => text_value(other),
    }
}

/// A text as the value of `Mcp-Name`: as it is where that is plain, else in the base64 form.
pub(super) fn text_value(text: &str) -> HeaderValue {
    if is_plain(text)
        && let Ok(value) = HeaderValue::from_str(text)
    {
        return value;
    }
    let mut value = String::with_capacity(text.len() * 4 / 3 + 16);
    value.push_str("=?base64?");
    base64::engine::general_purpose::STANDARD.encode_string(text, &mut value);
    value.push_str("?=");
    HeaderValue::from_maybe_shared(Bytes::from(value)).unwrap_or(HeaderValue::from_static(""))
}

/// The same for a text that lies in `body` as it is, without copying it.
pub(super) fn shared_value(body: &Bytes, raw: std::ops::Range<usize>) -> Option<HeaderValue> {
    let text = std::str::from_utf8(body.get(raw.clone())?).ok()?;
    if !is_plain(text) {
        return None;
    }
    HeaderValue::from_maybe_shared(body.slice(raw)).ok()
}

/// Printable ASCII without blanks at its ends, that does not look like the base64 form itself.
fn is_plain(text: &str) -> bool {
    let like_base64 = text.starts_with("=?base64?") && text.ends_with("?=");
    let blank_at_an_end = text.starts_with(' ') || text.ends_with(' ');
    let printable = text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    !text.is_empty() && printable && !blank_at_an_end && !like_base64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn endpoint(url: &str) -> Result<Endpoint, BadEndpoint> {
        Endpoint::new(&HttpTarget { url: url.parse().unwrap(), headers: Vec::new() })
    }

    #[test]
    fn an_address_is_taken_apart_once() {
        let found = endpoint("https://api.example.com/mcp?x=1").unwrap();
        assert_eq!((found.https, &*found.host, found.port), (true, "api.example.com", 443));
        assert_eq!(found.path, "/mcp?x=1");
        assert_eq!(found.bare()[HOST], "api.example.com");
        assert_eq!(endpoint("http://[::1]:8080").unwrap().bare()[HOST], "[::1]:8080");
        assert_eq!(endpoint("/mcp").unwrap_err(), BadEndpoint::NoScheme);
        assert_eq!(endpoint("ftp://a/").unwrap_err(), BadEndpoint::Scheme("ftp".into()));
        assert_eq!(endpoint("http://u:p@a/").unwrap_err(), BadEndpoint::UserInfo);
    }

    #[test]
    fn configured_headers_are_secret_and_may_not_be_forebays_own() {
        let with = |name: &'static str, value: &str| {
            let headers = vec![(HeaderName::from_static(name), Secret::new(value))];
            Endpoint::new(&HttpTarget { url: "http://a/".parse().unwrap(), headers })
        };
        let found = with("authorization", "Bearer CANARY").unwrap();
        assert!(found.bare()["authorization"].is_sensitive());
        assert!(!format!("{found:?}").contains("CANARY"));
        assert!(matches!(with("mcp-session-id", "x").unwrap_err(), BadEndpoint::Reserved(_)));
        assert!(matches!(with("proxy-authorization", "x").unwrap_err(), BadEndpoint::Reserved(_)));
        let fault = with("x-key", "CANARY\n").unwrap_err();
        assert!(matches!(fault, BadEndpoint::Value(_)) && !fault.to_string().contains("CANARY"));
    }

    #[test]
    fn names_that_are_not_plain_travel_as_base64() {
        let value = |text: &str| text_value(text).to_str().unwrap().to_owned();
        assert_eq!(value("get_weather"), "get_weather");
        assert_eq!(value("a b"), "a b");
        assert_eq!(value("é"), "=?base64?w6k=?=");
        assert_eq!(value(" a"), "=?base64?IGE=?=");
        assert_eq!(value("a\nb"), "=?base64?YQpi?=");
        assert_eq!(value("=?base64?YQ==?="), "=?base64?PT9iYXNlNjQ/WVE9PT89?=");
        assert_eq!(value(""), "=?base64??=");
    }

    /// C36: where a redirect may lead.
    #[test]
    fn c36_a_redirect_stays_on_its_origin() {
        let found = endpoint("http://up.example:8080/api/mcp").unwrap();
        let to = |location: &str| found.redirect(&found.path, location).map(|uri| uri.to_string());
        assert_eq!(to("/mcp/").unwrap(), "/mcp/");
        assert_eq!(to("mcp/?a=1#f").unwrap(), "/api/mcp/?a=1");
        assert_eq!(to("http://UP.example:8080/x").unwrap(), "/x");
        for away in [
            "http://169.254.169.254/",
            "http://up.example/",
            "http://up.example:8081/mcp",
            "https://up.example:8080/mcp",
            "//evil.example/",
            "/\\evil.example/",
            "http://up.example:8080@evil.example/",
            "http://evil@up.example:8080/",
            "ftp://up.example:8080/",
            "javascript://up.example:8080/%0a",
        ] {
            assert!(to(away).is_err(), "{away}");
        }
        assert!(to("http://169.254.169.254/secret").unwrap_err().contains("169.254.169.254"));
    }
}
