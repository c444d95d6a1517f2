//! How forebay introduces itself: `initialize` for legacy clients, `server/discover` for modern ones.
//!
//! On an upstream's own endpoint it speaks for that upstream. Neither answer waits long or is ever refused
//! for load: clients take a failure here for an older server, or for none.

use super::Ingress;
use crate::caller::Caller;
use crate::protocol::json::{members, quote_into};
use crate::protocol::version::{Era, LATEST_LEGACY, SUPPORTED, meta_key};
use crate::upstream::connection::ServerInfo;
use crate::upstream::{Upstream, UpstreamState};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;

/// How long an upstream may take to say what it can do, on its own endpoint.
const OWN_WAIT: Duration = Duration::from_secs(10);
/// The same on the aggregate endpoint, where one slow upstream must not hold up the others.
const UNION_WAIT: Duration = Duration::from_secs(1);
/// What an upstream that has said nothing is taken to offer: its calls then tell what is the matter.
const ASSUMED: [&str; 3] = ["tools", "prompts", "resources"];

/// What is said of a server.
pub(crate) struct Hello {
    capabilities: Vec<u8>,
    server_info: String,
    /// Raw JSON string.
    instructions: Option<String>,
}

/// The revision agreed upon in a handshake.
pub(crate) fn agree(wanted: &str) -> &str {
    match Era::of(wanted) {
        Some(Era::Legacy) => wanted,
        Some(Era::Modern) | None => LATEST_LEGACY,
    }
}

/// What the endpoint offers this caller.
pub(crate) async fn hello(ingress: &Ingress, caller: &Caller, one: Option<&Arc<Upstream>>) -> Hello {
    match one {
        Some(upstream) => match server(upstream, OWN_WAIT).await {
            Some(info) => Hello {
                capabilities: offered(&info, upstream.tells_logs()),
                server_info: info.server_info.clone(),
                instructions: info.instructions.clone(),
            },
            None => Hello { capabilities: union(&[None]), server_info: own_info(), instructions: None },
        },
        None => {
            let upstreams = ingress.dispatcher.upstreams();
            let mine = upstreams.values().filter(|upstream| ingress.dispatcher.allows(caller, upstream.name(), None));
            let infos = join_all(mine.map(|upstream| server(upstream, UNION_WAIT))).await;
            Hello { capabilities: union(&infos), server_info: own_info(), instructions: None }
        }
    }
}

/// What an upstream says of itself. One that is down is not waited for.
async fn server(upstream: &Arc<Upstream>, wait: Duration) -> Option<Arc<ServerInfo>> {
    if upstream.status().state == UpstreamState::Down {
        return None;
    }
    tokio::time::timeout(wait, upstream.server(wait)).await.ok()?.ok()
}

impl Hello {
    /// The result of `initialize`.
    pub(crate) fn initialize(&self, version: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.capabilities.len());
        out.extend_from_slice(b"{\"protocolVersion\":");
        quote_into(version, &mut out);
        out.extend_from_slice(b",\"capabilities\":");
        out.extend_from_slice(&self.capabilities);
        out.extend_from_slice(b",\"serverInfo\":");
        out.extend_from_slice(self.server_info.as_bytes());
        self.put_instructions(&mut out);
        out.push(b'}');
        out
    }

    /// The result of `server/discover`.
    pub(crate) fn discover(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(400 + self.capabilities.len());
        out.extend_from_slice(b"{\"resultType\":\"complete\",\"supportedVersions\":");
        let _ = serde_json::to_writer(&mut out, &SUPPORTED);
        out.extend_from_slice(b",\"capabilities\":");
        out.extend_from_slice(&self.capabilities);
        self.put_instructions(&mut out);
        out.extend_from_slice(b",\"ttlMs\":0,\"cacheScope\":\"private\",\"_meta\":{\"");
        out.extend_from_slice(meta_key::PREFIX.as_bytes());
        out.extend_from_slice(b"serverInfo\":");
        out.extend_from_slice(self.server_info.as_bytes());
        out.extend_from_slice(b"}}");
        out
    }

    fn put_instructions(&self, out: &mut Vec<u8>) {
        if let Some(instructions) = &self.instructions {
            out.extend_from_slice(b",\"instructions\":");
            out.extend_from_slice(instructions.as_bytes());
        }
    }
}

fn own_info() -> String {
    serde_json::json!({ "name": "forebay", "version": env!("CARGO_PKG_VERSION") }).to_string()
}

/// What any of the upstreams offers; one that has said nothing may offer everything.
fn union(infos: &[Option<Arc<ServerInfo>>]) -> Vec<u8> {
    let mut out = vec![b'{'];
    for name in ASSUMED {
        let has = |info: &Option<Arc<ServerInfo>>| match info {
            Some(info) => members(&info.capabilities).is_ok_and(|found| found.get(name).is_some()),
            None => true,
        };
        if infos.iter().any(has) || name == "tools" {
            put_member(&mut out, name, "{}");
        }
    }
    out.push(b'}');
    out
}

/// An upstream's own capabilities, without those that take notices which cannot be passed on.
fn offered(info: &ServerInfo, logs: bool) -> Vec<u8> {
    let mut out = vec![b'{'];
    if let Ok(found) = members(&info.capabilities) {
        for (name, value) in &found.0 {
            match &**name {
                "logging" if !logs => {}
                "resources" if info.era == Era::Modern => put_member(&mut out, name, &without_subscribe(value)),
                _ => put_member(&mut out, name, value),
            }
        }
    }
    out.push(b'}');
    out
}

fn without_subscribe(value: &str) -> String {
    let mut out = vec![b'{'];
    if let Ok(found) = members(value) {
        for (name, value) in &found.0 {
            if &**name != "subscribe" {
                put_member(&mut out, name, value);
            }
        }
    }
    out.push(b'}');
    String::from_utf8(out).unwrap_or_else(|_| "{}".into())
}

fn put_member(out: &mut Vec<u8>, name: &str, value: &str) {
    if out.len() > 1 {
        out.push(b',');
    }
    quote_into(name, out);
    out.push(b':');
    out.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::version::MODERN;

    fn info(capabilities: &str) -> Option<Arc<ServerInfo>> {
        Some(Arc::new(ServerInfo {
            era: Era::Legacy,
            version: LATEST_LEGACY.into(),
            capabilities: capabilities.into(),
            server_info: r#"{"name":"up"}"#.into(),
            instructions: None,
        }))
    }

    #[test]
    fn versions_are_agreed_upon() {
        for known in ["2025-03-26", "2025-06-18", "2025-11-25"] {
            assert_eq!(agree(known), known);
        }
        for other in [MODERN, "2024-11-05", "2031-01-01", ""] {
            assert_eq!(agree(other), LATEST_LEGACY);
        }
    }

    #[test]
    fn the_union_is_what_anybody_offers() {
        assert_eq!(union(&[]), br#"{"tools":{}}"#);
        assert_eq!(
            union(&[info(r#"{"tools":{"listChanged":true}}"#), info(r#"{"prompts":{}}"#)]),
            br#"{"tools":{},"prompts":{}}"#
        );
        assert_eq!(union(&[None]), br#"{"tools":{},"prompts":{},"resources":{}}"#);
    }

    #[test]
    fn what_is_not_delivered_is_not_declared() {
        let raw =
            r#"{"logging":{},"tools":{"listChanged":true},"resources":{"subscribe":true,"x":1.0},"completions":{}}"#;
        let said = |raw: &str, era, logs| {
            let info = ServerInfo { era, ..(*info(raw).unwrap()).clone() };
            String::from_utf8(offered(&info, logs)).unwrap()
        };
        assert_eq!(said(raw, Era::Legacy, true), raw);
        assert_eq!(said(raw, Era::Legacy, false), raw.replace(r#""logging":{},"#, ""));
        let modern = raw.replace(r#""logging":{},"#, "").replace(r#""subscribe":true,"#, "");
        assert_eq!(said(raw, Era::Modern, false), modern);
        assert_eq!(said("nonsense", Era::Legacy, true), "{}");
    }

    #[test]
    fn both_introductions_are_json_of_their_era() {
        let hello =
            Hello { capabilities: b"{}".to_vec(), server_info: own_info(), instructions: Some("\"hi\"".into()) };
        let value: serde_json::Value = serde_json::from_slice(&hello.initialize("2025-06-18")).unwrap();
        assert_eq!(value["protocolVersion"], "2025-06-18");
        assert_eq!(value["serverInfo"]["name"], "forebay");
        assert_eq!(value["instructions"], "hi");
        let value: serde_json::Value = serde_json::from_slice(&hello.discover()).unwrap();
        assert_eq!(value["supportedVersions"], serde_json::json!(SUPPORTED));
        assert_eq!(value["resultType"], "complete");
        assert_eq!(value["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "forebay");
    }
}
