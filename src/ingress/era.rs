//! The era of each request, told from the request alone, and the header rules of the modern one.
//!
//! A modern request says everything itself, in `_meta` and again in headers; the two must agree, so that a
//! proxy which reads only headers decides about the same request that is carried out here. Routing and
//! counting go by the body only.

use super::guard::single;
use crate::protocol::envelope::Request;
use crate::protocol::error;
use crate::protocol::method::{self, TargetKey, target_key};
use crate::protocol::mirror::{Mirror, decode};
use crate::protocol::version::{Era, MODERN, SUPPORTED, meta_key};
use http::{HeaderMap, HeaderName};
use std::borrow::Cow;

static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
static METHOD: HeaderName = HeaderName::from_static("mcp-method");
static NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Why a request is refused by its era's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    pub status: u16,
    pub code: i64,
    pub message: String,
    /// Raw JSON for the error's `data`.
    pub data: Option<String>,
}

impl Breach {
    fn header(message: impl Into<String>) -> Self {
        Breach { status: 400, code: error::HEADER_MISMATCH, message: message.into(), data: None }
    }

    fn version(requested: &str) -> Self {
        let data = serde_json::json!({ "supported": SUPPORTED, "requested": requested });
        Breach {
            status: 400,
            code: error::UNSUPPORTED_VERSION,
            message: format!("protocol version `{requested:.40}` is not spoken here"),
            data: Some(data.to_string()),
        }
    }

    fn no_method(method: &str) -> Self {
        Breach {
            status: 404,
            code: error::METHOD_NOT_FOUND,
            message: format!("method `{method:.80}` is not part of revision {MODERN}"),
            data: None,
        }
    }

    fn params(message: String) -> Self {
        Breach { status: 400, code: error::INVALID_PARAMS, message, data: None }
    }
}

/// The era of a message, with its version checked but no other rule.
pub(crate) fn classify(request: &Request, headers: &HeaderMap) -> Result<Era, Breach> {
    let twice = || Breach::header("the header MCP-Protocol-Version stands twice or is not plain text");
    let header = single(headers, &VERSION).map_err(|()| twice())?;
    let in_body = request.meta.version.is_some() || request.meta.has_capabilities;
    let framed = in_body || headers.contains_key(&METHOD);
    match header {
        Some(MODERN) => Ok(Era::Modern),
        // Gateways on the way may put Mcp-Method on anything.
        Some(known) if Era::of(known) == Some(Era::Legacy) && !in_body => Ok(Era::Legacy),
        // The handshake is how a version is agreed upon, so none of it is refused for its header.
        Some(_) if request.method.as_ref() == method::INITIALIZE && !framed => Ok(Era::Legacy),
        Some(unknown) if Era::of(unknown).is_none() && !framed => Err(Breach::version(unknown)),
        None if !framed => Ok(Era::Legacy),
        Some(_) | None => Ok(Era::Modern),
    }
}

/// The rules for a request that [`classify`] found modern.
pub(crate) fn check_modern(request: &Request, headers: &HeaderMap) -> Result<(), Breach> {
    let meta = &request.meta;
    let header = mirrored(headers, &VERSION, "MCP-Protocol-Version")?;
    if let Some(version) = &meta.version
        && **version != *header
    {
        let message = format!("the header MCP-Protocol-Version says `{header:.40}`, the body `{version:.40}`");
        return Err(Breach::header(message));
    }
    if *header != *MODERN {
        return Err(Breach::version(&header));
    }
    let named = mirrored(headers, &METHOD, "Mcp-Method")?;
    if *named != *request.method {
        let message = format!("the header Mcp-Method says `{named:.80}`, the body `{:.80}`", request.method);
        return Err(Breach::header(message));
    }
    if !matches!(target_key(&request.method), TargetKey::None)
        && let Some(target) = request.target_name()
    {
        let named = mirrored(headers, &NAME, "Mcp-Name")?;
        if *named != *target {
            let message = format!("the header Mcp-Name says `{named:.80}`, the body `{target:.80}`");
            return Err(Breach::header(message));
        }
    }
    for (there, key) in
        [(meta.version.is_some(), meta_key::PROTOCOL_VERSION), (meta.has_capabilities, meta_key::CLIENT_CAPABILITIES)]
    {
        if !there {
            return Err(Breach::params(format!("`params._meta[\"{key}\"]` is required")));
        }
    }
    match &*request.method {
        method::INITIALIZE | method::PING | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
            Err(Breach::no_method(&request.method))
        }
        _ => Ok(()),
    }
}

/// A header that mirrors the body, decoded.
fn mirrored<'a>(headers: &'a HeaderMap, name: &HeaderName, shown: &str) -> Result<Cow<'a, str>, Breach> {
    let value = single(headers, name)
        .map_err(|()| Breach::header(format!("the header {shown} stands twice or is not plain ASCII")))?
        .ok_or_else(|| Breach::header(format!("the header {shown} is missing")))?;
    decode(value).ok_or_else(|| Breach::header(format!("the header {shown} is not valid base64 of UTF-8")))
}

/// Whether the headers repeat the arguments that they ought to, and nothing else.
pub(crate) fn check_mirrors(mirrors: &[Mirror], arguments: &str, headers: &HeaderMap) -> Result<(), Breach> {
    for mirror in mirrors {
        let shown = mirror.header.as_str();
        let said = single(headers, &mirror.header)
            .map_err(|()| Breach::header(format!("the header {shown} stands twice or is not plain ASCII")))?;
        match (mirror.value(arguments), said) {
            (None, None) => {}
            (Some(value), Some(said)) if mirror.agrees(&value, said) => {}
            (Some(_), None) => return Err(Breach::header(format!("the header {shown} is missing"))),
            (None, Some(_)) => {
                return Err(Breach::header(format!("the header {shown} is there, but the body has no such value")));
            }
            (Some(_), Some(said)) => {
                return Err(Breach::header(format!("the header {shown} says `{said:.80}`, the body something else")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::envelope::{Message, read};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use http::HeaderValue;

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn request(method: &str, params: &str) -> Request {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
        match read(Bytes::from(text)).unwrap() {
            Message::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
        }
        headers
    }

    const GOOD: [(&str, &str); 3] =
        [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "up__echo")];

    fn call() -> Request {
        request("tools/call", &format!(r#""name":"up__echo",{META}"#))
    }

    #[test]
    fn each_request_tells_its_own_era() {
        let plain = request("tools/list", "");
        let modern = request("tools/list", META);
        type Case<'a> = (&'a Request, &'a [(&'a str, &'a str)], Result<Era, i64>);
        let cases: [Case<'_>; 10] = [
            (&plain, &[], Ok(Era::Legacy)),
            (&plain, &[("MCP-Protocol-Version", "2025-06-18")], Ok(Era::Legacy)),
            (&plain, &[("Mcp-Session-Id", "x")], Ok(Era::Legacy)),
            (&plain, &[("MCP-Protocol-Version", MODERN)], Ok(Era::Modern)),
            (&plain, &[("Mcp-Method", "tools/list")], Ok(Era::Modern)),
            (&modern, &[], Ok(Era::Modern)),
            (&modern, &[("MCP-Protocol-Version", "2025-06-18")], Ok(Era::Modern)),
            (&plain, &[("MCP-Protocol-Version", "1999-01-01")], Err(-32022)),
            (&plain, &[("MCP-Protocol-Version", MODERN), ("MCP-Protocol-Version", MODERN)], Err(-32020)),
            (&request("initialize", ""), &[("MCP-Protocol-Version", "1999-01-01")], Ok(Era::Legacy)),
        ];
        for (request, pairs, era) in cases {
            assert_eq!(classify(request, &headers(pairs)).map_err(|breach| breach.code), era, "{pairs:?}");
        }
        // A legacy extension's key does not make a request modern.
        let task = request("tools/call", r#""name":"x","_meta":{"io.modelcontextprotocol/related-task":{}}"#);
        assert_eq!(classify(&task, &headers(&[])), Ok(Era::Legacy));
    }

    #[test]
    fn headers_and_body_must_agree() {
        let check = |pairs: &[(&str, &str)]| check_modern(&call(), &headers(pairs)).map_err(|breach| breach.code);
        assert_eq!(check(&GOOD), Ok(()));
        let with = |at: usize, value: &'static str| {
            let mut pairs = GOOD;
            pairs[at].1 = value;
            check(&pairs)
        };
        assert_eq!(with(0, "2025-06-18"), Err(-32020));
        assert_eq!(with(1, "tools/list"), Err(-32020));
        assert_eq!(with(1, "Tools/call"), Err(-32020));
        assert_eq!(with(2, "up__Echo"), Err(-32020));
        assert_eq!(with(2, "=?base64?dXBfX2VjaG8=?="), Ok(()));
        assert_eq!(with(2, "=?base64?!!!?="), Err(-32020));
        assert_eq!(with(2, "=?base64?/w==?="), Err(-32020));
        for chosen in GOOD {
            let without: Vec<_> = GOOD.into_iter().filter(|pair| *pair != chosen).collect();
            assert_eq!(check(&without), Err(-32020), "{chosen:?} missing");
            let mut twice = GOOD.to_vec();
            twice.push(chosen);
            assert_eq!(check(&twice), Err(-32020), "{chosen:?} twice");
        }
        let mut more = GOOD.to_vec();
        more.push(("Mcp-Param-Region", "anything"));
        assert_eq!(check(&more), Ok(()));
    }

    #[test]
    fn a_name_that_is_not_plain_ascii_is_compared_decoded() {
        let check = |name: &str, header: &str| {
            let request = request("resources/read", &format!(r#""uri":{},{META}"#, serde_json::json!(name)));
            let pairs = [(GOOD[0]), ("Mcp-Method", "resources/read"), ("Mcp-Name", header)];
            check_modern(&request, &headers(&pairs)).map_err(|breach| breach.code)
        };
        let sentinel = |text: &str| format!("=?base64?{}?=", STANDARD.encode(text));
        assert_eq!(check("file:///é", &sentinel("file:///é")), Ok(()));
        assert_eq!(check("file:///é", "file:///é"), Err(-32020));
        assert_eq!(check(" x ", &sentinel(" x ")), Ok(()));
        assert_eq!(check("=?base64?eA==?=", &sentinel("=?base64?eA==?=")), Ok(()));
        assert_eq!(check("=?base64?eA==?=", "=?base64?eA==?="), Err(-32020));
    }

    #[test]
    fn unknown_versions_are_told_what_is_spoken() {
        let meta = META.replace(MODERN, "2031-01-01");
        let request = request("tools/list", &meta);
        let pairs = [("MCP-Protocol-Version", "2031-01-01"), ("Mcp-Method", "tools/list")];
        let breach = check_modern(&request, &headers(&pairs)).unwrap_err();
        assert_eq!((breach.status, breach.code), (400, -32022));
        let data: serde_json::Value = serde_json::from_str(&breach.data.unwrap()).unwrap();
        assert_eq!(data["requested"], "2031-01-01");
        assert_eq!(data["supported"][0], MODERN);
    }

    #[test]
    fn required_keys_and_removed_methods_are_told() {
        let pairs = |method: &'static str| [GOOD[0], ("Mcp-Method", method)];
        let check = |method: &'static str, params: &str| {
            check_modern(&request(method, params), &headers(&pairs(method))).map_err(|it| (it.status, it.code))
        };
        assert_eq!(check("tools/list", META), Ok(()));
        assert_eq!(check("tools/list", ""), Err((400, -32602)));
        let half = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        assert_eq!(check("tools/list", half), Err((400, -32602)));
        for gone in ["ping", "initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
            assert_eq!(check(gone, META), Err((404, -32601)), "{gone}");
        }
    }
}
