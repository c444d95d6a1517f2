//! May this request be looked at: Host, Origin, media types. All of it before the body is read.
//!
//! A page that was let in by DNS rebinding is same-origin and sends no Origin, so the Host is always
//! checked, on every route; names are compared whole, never by their ends.

use crate::config::Listen;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};
use http::request::Parts;
use std::net::{IpAddr, SocketAddr};

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turned {
    pub status: u16,
    pub why: &'static str,
}

const BAD_HOST: Turned = Turned {
    status: 403,
    why: "the Host is not one of this listener's: use its loopback name and port, or list the name in `listen.hosts`",
};
const BAD_ORIGIN: Turned =
    Turned { status: 403, why: "the Origin is not allowed here: list it in `listen.origins`, exactly as it is sent" };
const BAD_TYPE: Turned = Turned { status: 415, why: "the Content-Type must be application/json, in UTF-8" };
const BAD_ACCEPT: Turned = Turned { status: 406, why: "the answer is application/json, which Accept must allow" };

/// The Host values that mean this listener without any configuration.
pub(crate) fn own_hosts(local: SocketAddr) -> Vec<String> {
    let port = local.port();
    let mut names = vec![format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")];
    if !local.ip().is_unspecified() {
        names.push(local.to_string());
    }
    if port == 80 {
        names.extend(["127.0.0.1".into(), "localhost".into(), "[::1]".into()]);
    }
    names
}

/// Host and Origin. `here` is the address on which this very socket came in.
pub(crate) fn check_source(parts: &Parts, own: &[String], here: SocketAddr, listen: &Listen) -> Result<(), Turned> {
    let host = single(&parts.headers, &HOST).ok().flatten().ok_or(BAD_HOST)?;
    if !host_allowed(host, own, here, listen) {
        return Err(BAD_HOST);
    }
    // An absolute URI names a host of its own, which counts as much.
    if let Some(authority) = parts.uri.authority()
        && !host_allowed(authority.as_str(), own, here, listen)
    {
        return Err(BAD_HOST);
    }
    match single(&parts.headers, &ORIGIN) {
        Ok(None) => Ok(()),
        Ok(Some(origin)) if origin_allowed(origin, own, listen) => Ok(()),
        Ok(Some(_)) | Err(()) => Err(BAD_ORIGIN),
    }
}

fn host_allowed(host: &str, own: &[String], here: SocketAddr, listen: &Listen) -> bool {
    if own.iter().any(|known| known.eq_ignore_ascii_case(host)) {
        return true;
    }
    let Some((name, port)) = split_host(host) else { return false };
    let listed = |known: &String| known.eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host);
    if listen.hosts.iter().any(listed) {
        return true;
    }
    // An address cannot be rebound, so the one that was really reached is right.
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok_and(|ip| ip == here.ip() && port.unwrap_or(80) == here.port())
}

/// Name and port of a Host; none if anything else stands in it.
fn split_host(host: &str) -> Option<(&str, Option<u16>)> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            if !inside.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')) {
                return None;
            }
            (&host[..inside.len() + 2], after)
        }
        None => {
            let at = host.find(':').unwrap_or(host.len());
            (&host[..at], &host[at..])
        }
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if name.is_empty() || (!name.starts_with('[') && !name.bytes().all(plain)) {
        return None;
    }
    if port.is_empty() {
        return Some((name, None));
    }
    let digits = port.strip_prefix(':')?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { Some((name, Some(digits.parse().ok()?))) } else { None }
}

fn origin_allowed(origin: &str, own: &[String], listen: &Listen) -> bool {
    if listen.origins.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
        return true;
    }
    origin.strip_prefix("http://").is_some_and(|host| own.iter().any(|known| known.eq_ignore_ascii_case(host)))
}

/// What a POST carries must be JSON (C20).
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), Turned> {
    let value = single(headers, &CONTENT_TYPE).ok().flatten().ok_or(BAD_TYPE)?;
    let mut parts = value.split(';');
    let essence = parts.next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(BAD_TYPE);
    }
    for parameter in parts {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        let value = value.trim().trim_matches('"');
        let utf8 = value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8");
        if name.trim().eq_ignore_ascii_case("charset") && !utf8 {
            return Err(BAD_TYPE);
        }
    }
    Ok(())
}

/// Accept, where it is given, must allow JSON.
pub(crate) fn check_accept(headers: &HeaderMap) -> Result<(), Turned> {
    let mut given = false;
    for value in headers.get_all(ACCEPT) {
        given = true;
        let Ok(value) = value.to_str() else { continue };
        if value.split(',').any(allows_json) {
            return Ok(());
        }
    }
    if given { Err(BAD_ACCEPT) } else { Ok(()) }
}

/// Whether an answer may be a stream of events. Who says nothing takes anything.
pub(crate) fn takes_events(headers: &HeaderMap) -> bool {
    let given: Vec<_> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    given.is_empty() || given.iter().any(|value| value.split(',').any(|range| allows(range, "text", "event-stream")))
}

fn allows_json(range: &str) -> bool {
    allows(range, "application", "json")
}

fn allows(range: &str, kind: &str, part: &str) -> bool {
    let mut parts = range.split(';');
    let essence = parts.next().unwrap_or_default().trim();
    let fits = match essence.split_once('/') {
        Some(("*", "*")) => true,
        Some((one, other)) => one.eq_ignore_ascii_case(kind) && (other == "*" || other.eq_ignore_ascii_case(part)),
        None => false,
    };
    let unwanted =
        |parameter: &str| parameter.trim().strip_prefix("q=").is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q == 0.0));
    fits && !parts.any(unwanted)
}

/// The value of a header that may stand once; an error if it stands twice or is not plain text.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Request};

    fn listen(hosts: &[&str], origins: &[&str]) -> Listen {
        Listen {
            mcp: "127.0.0.1:7411".parse().unwrap(),
            mcp_unix: None,
            admin: "/nowhere".into(),
            hosts: hosts.iter().map(|name| (*name).into()).collect(),
            origins: origins.iter().map(|name| (*name).into()).collect(),
            threads: 1,
            max_body: 1024,
        }
    }

    fn source(host: Option<&str>, origin: &[&str], listen: &Listen) -> Result<(), Turned> {
        let mut request = Request::builder().uri("/mcp");
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        for origin in origin {
            request = request.header(ORIGIN, *origin);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let local: SocketAddr = "127.0.0.1:7411".parse().unwrap();
        check_source(&parts, &own_hosts(local), local, listen)
    }

    #[test]
    fn c30_only_own_or_listed_hosts_pass() {
        let plain = listen(&[], &[]);
        for good in ["localhost:7411", "127.0.0.1:7411", "[::1]:7411", "LocalHost:7411"] {
            assert_eq!(source(Some(good), &[], &plain), Ok(()), "{good}");
        }
        for bad in [
            "evil.example:7411",
            "localhost:7400",
            "localhost",
            "localhost.evil.example:7411",
            "evil@localhost:7411",
            "localhost:7411?",
            "localhost:7411#",
            "localhost:7411/x",
            "localhost.:7411",
            "127.0.0.2:7411",
            "[::1:7411",
            "",
        ] {
            assert_eq!(source(Some(bad), &[], &plain), Err(BAD_HOST), "{bad}");
        }
        assert_eq!(source(None, &[], &plain), Err(BAD_HOST));
        let listed = listen(&["mcp.example"], &[]);
        assert_eq!(source(Some("mcp.example"), &[], &listed), Ok(()));
        assert_eq!(source(Some("MCP.example:443"), &[], &listed), Ok(()));
        assert_eq!(source(Some("a.mcp.example"), &[], &listed), Err(BAD_HOST));
        assert_eq!(source(Some("mcp.example.evil"), &[], &listed), Err(BAD_HOST));
        assert_eq!(source(Some("u@mcp.example"), &[], &listed), Err(BAD_HOST));
    }

    #[test]
    fn c30_only_own_or_listed_origins_pass() {
        let plain = listen(&[], &["https://app.example"]);
        for good in ["http://localhost:7411", "http://127.0.0.1:7411", "https://app.example"] {
            assert_eq!(source(Some("localhost:7411"), &[good], &plain), Ok(()), "{good}");
        }
        for bad in [
            "null",
            "http://localhost.evil.example",
            "http://localhost",
            "http://localhost:7400",
            "https://localhost:7411",
            "https://app.example.evil",
            "https://app.example:444",
            "http://u@localhost:7411",
            "",
        ] {
            assert_eq!(source(Some("localhost:7411"), &[bad], &plain), Err(BAD_ORIGIN), "{bad}");
        }
        let twice = ["http://localhost:7411", "http://localhost:7411"];
        assert_eq!(source(Some("localhost:7411"), &twice, &plain), Err(BAD_ORIGIN));
    }

    #[test]
    fn the_host_of_an_absolute_uri_counts_too() {
        let local: SocketAddr = "127.0.0.1:7411".parse().unwrap();
        let check = |uri: &str| {
            let request = Request::builder().uri(uri).header(HOST, "localhost:7411").body(()).unwrap();
            check_source(&request.into_parts().0, &own_hosts(local), local, &listen(&[], &[]))
        };
        assert_eq!(check("http://localhost:7411/mcp"), Ok(()));
        assert_eq!(check("http://evil.example:7411/mcp"), Err(BAD_HOST));
    }

    #[test]
    fn an_address_that_was_reached_is_a_host() {
        let local: SocketAddr = "0.0.0.0:7300".parse().unwrap();
        let here: SocketAddr = "192.0.2.7:7300".parse().unwrap();
        let check = |host: &str| {
            let request = Request::builder().header(HOST, host).body(()).unwrap();
            check_source(&request.into_parts().0, &own_hosts(local), here, &listen(&[], &[]))
        };
        assert_eq!(check("192.0.2.7:7300"), Ok(()));
        assert_eq!(check("192.0.2.8:7300"), Err(BAD_HOST));
        assert_eq!(check("name.example:7300"), Err(BAD_HOST));
    }

    fn headers(name: HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn c20_media_types_are_compared_without_case_and_parameters() {
        for good in [
            "application/json",
            "application/json; charset=utf-8",
            "Application/JSON",
            "application/json;charset=\"UTF-8\"",
            "application/json; profile=x",
        ] {
            assert_eq!(check_content_type(&headers(CONTENT_TYPE, &[good])), Ok(()), "{good}");
        }
        for bad in ["application/json;charset=latin1", "text/plain", "application/jsonx", "application/x-ndjson", ""] {
            assert_eq!(check_content_type(&headers(CONTENT_TYPE, &[bad])), Err(BAD_TYPE), "{bad}");
        }
        assert_eq!(check_content_type(&HeaderMap::new()), Err(BAD_TYPE));
        assert_eq!(
            check_content_type(&headers(CONTENT_TYPE, &["application/json", "application/json"])),
            Err(BAD_TYPE)
        );
    }

    #[test]
    fn accept_must_allow_json_where_it_is_given() {
        for good in ["application/json, text/event-stream", "*/*", "text/event-stream, Application/*;q=0.1"] {
            assert_eq!(check_accept(&headers(ACCEPT, &[good])), Ok(()), "{good}");
        }
        assert_eq!(check_accept(&HeaderMap::new()), Ok(()));
        assert_eq!(check_accept(&headers(ACCEPT, &["text/event-stream", "application/json"])), Ok(()));
        for bad in ["text/event-stream", "application/json;q=0", "text/html"] {
            assert_eq!(check_accept(&headers(ACCEPT, &[bad])), Err(BAD_ACCEPT), "{bad}");
        }
    }
}
