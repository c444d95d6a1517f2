//! `[auth.jwt]`: which tokens are believed.

use crate::config::JwtConfig;
use crate::config::read::{Item, Reader};
use crate::config::schema;
use http::Uri;
use jsonwebtoken::Algorithm;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Clocks that differ by more are wrong.
const MOST_LEEWAY: Duration = Duration::from_secs(30);

const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

pub(super) fn read(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<JwtConfig> {
    let table = reader.table(Some(item), &item.key, &schema::JWT, None);
    let audience = match table.get("audience") {
        Some(item) => audience(reader, item),
        None => reader.refuse(item, "lacks `audience`", "say the URL by which callers reach this daemon"),
    };
    let issuers = match table.get("issuers") {
        Some(item) => issuers(reader, item),
        None => {
            reader.refuse(item, "lacks `issuers`", "write issuers = { \"https://issuer\" = \"https://issuer/jwks\" }")
        }
    };
    let algorithms = table.get("algorithms").map(|item| algorithms(reader, item));
    let leeway = table.get("leeway").and_then(|item| {
        let leeway = reader.duration(item)?.unwrap_or_default();
        if leeway > MOST_LEEWAY {
            return reader.refuse(item, "is more than 30s", "set the clocks right instead");
        }
        Some(leeway)
    });
    let scopes = table.get("scopes").map(|item| scopes(reader, item)).unwrap_or_default();
    Some(JwtConfig {
        audience: audience?,
        issuers: issuers?,
        algorithms: algorithms.unwrap_or_else(|| vec![Algorithm::RS256, Algorithm::ES256]),
        leeway: leeway.unwrap_or(Duration::from_secs(10)),
        scopes,
    })
}

/// A resource's URI as RFC 8707 has it: absolute, without a fragment.
fn audience(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<String> {
    let text = reader.text(item)?.text;
    let fits = text.parse::<Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("https" | "http"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
            && !uri.authority().is_some_and(|authority| authority.as_str().contains('@'))
    });
    if fits && !text.contains(['#', '"', '\\']) {
        return Some(text);
    }
    reader.refuse(
        item,
        "is not the URL of a resource",
        "write it as \"https://mcp.example/mcp\", without query and fragment",
    )
}

fn issuers(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<BTreeMap<String, Uri>> {
    if !super::is_table(item.node) {
        let message = format!("must be a table, not {}", item.node.value.kind());
        return reader.refuse(item, message, "write issuers = { \"https://issuer\" = \"https://issuer/jwks\" }");
    }
    let mut issuers = BTreeMap::new();
    for (issuer, start, item) in reader.entries(item) {
        if issuer.is_empty() {
            reader.fault_at(start, &item.key, "has no name", "name the issuer as `iss` in its tokens has it");
        }
        let Some(text) = reader.text(&item) else { continue };
        match text.text.parse::<Uri>() {
            Ok(url) if fetchable(&url) => {
                issuers.insert(issuer, url);
            }
            _ => {
                let hint = "write it as \"https://issuer/jwks\"; http is allowed on loopback only";
                reader.fault(&item, "is not a URL from which keys can be fetched safely", hint);
            }
        }
    }
    if issuers.is_empty() { reader.refuse(item, "names no issuer whose keys can be had", "") } else { Some(issuers) }
}

/// Whoever can change what is fetched can be anybody, so it comes over TLS or from this machine.
fn fetchable(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match url.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => here,
        _ => false,
    }
}

fn algorithms(reader: &mut Reader<'_>, item: &Item<'_>) -> Vec<Algorithm> {
    let mut algorithms = Vec::new();
    let names = reader.strings(item).unwrap_or_default();
    for (name, item) in &names {
        match ALGORITHMS.iter().find(|(known, _)| known == name) {
            Some((_, algorithm)) => algorithms.push(*algorithm),
            None if name.starts_with("HS") || name == "none" => {
                reader.fault(item, "is an algorithm that anybody could sign with", "take RS256, ES256 or EdDSA");
            }
            None => reader.fault(item, "is no algorithm that is known here", "take RS256, ES256 or EdDSA"),
        }
    }
    if names.is_empty() {
        reader.fault(item, "is empty, so that no token could be good", "leave it out for RS256 and ES256");
    }
    algorithms
}

fn scopes(reader: &mut Reader<'_>, item: &Item<'_>) -> Vec<String> {
    let mut scopes = Vec::new();
    for (scope, item) in reader.strings(item).unwrap_or_default() {
        // The letters of RFC 6749; no quote can get out of a header.
        let plain = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        if scope.is_empty() || !scope.bytes().all(plain) {
            reader.fault(&item, "is no scope", "write one word, such as \"mcp:call\"");
        }
        scopes.push(scope);
    }
    scopes
}
