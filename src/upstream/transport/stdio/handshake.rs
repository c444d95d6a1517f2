//! How a child is greeted: `server/discover` first, `initialize` after an error or silence; the era that was
//! found is kept for the upstream and looked for anew after a failure.

use super::message;
use super::pool::{Asked, Inner};
use crate::protocol::error::UNSUPPORTED_VERSION;
use crate::protocol::json::{members, unquote};
use crate::protocol::method;
use crate::protocol::version::{Era, MODERN};
use crate::upstream::connection::{AskError, ServerInfo};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Where modern servers may name themselves instead of in `serverInfo`.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Longest wait for an answer to `server/discover` before `initialize` is sent beside it.
const PROBE: Duration = Duration::from_secs(2);

/// Why a child could not be greeted.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("the handshake failed: {0}")]
    Ask(#[from] AskError),
    #[error("the server speaks none of our protocol versions, but {0}")]
    Version(String),
    #[error("the server was modern and is not any more")]
    Changed,
}

impl HandshakeError {
    /// The class of it, without the server's own words.
    pub(super) fn brief(&self) -> &'static str {
        match self {
            HandshakeError::Ask(AskError::Rpc(_) | AskError::Rejected(_)) => "the server refused the handshake",
            HandshakeError::Ask(AskError::Malformed(_)) => "the server's answer to the handshake cannot be read",
            HandshakeError::Ask(AskError::Down(_) | AskError::TimedOut(_)) => "the handshake failed",
            HandshakeError::Version(_) | HandshakeError::Changed => "the server speaks none of our protocol versions",
        }
    }
}

impl Inner {
    /// Greets the child. The caller bounds the time.
    pub(super) async fn greet(self: &Arc<Self>, index: usize) -> Result<ServerInfo, HandshakeError> {
        let known = self.pool.lock().era;
        match known {
            Some(Era::Legacy) => self.initialize(index).await,
            Some(Era::Modern) => match discovered(&self.discover(index)?.answer().await?)? {
                Some(info) => Ok(info),
                None => Err(HandshakeError::Changed),
            },
            None => self.probe_era(index).await,
        }
    }

    async fn probe_era(self: &Arc<Self>, index: usize) -> Result<ServerInfo, HandshakeError> {
        let patience = PROBE.min(self.shared.config.load().connect_timeout / 3);
        self.pool.lock().members[index].probing_era = true;
        let mut discover = self.discover(index)?;
        let first = tokio::time::timeout(patience, discover.answer()).await;
        self.pool.lock().members[index].probing_era = false;
        match first {
            Ok(Ok(result)) => match discovered(&result)? {
                Some(info) => return Ok(info),
                None => return self.initialize(index).await,
            },
            Ok(Err(fault)) => {
                is_legacy(fault)?;
                return self.initialize(index).await;
            }
            Err(_) => {}
        }
        // Silence: a legacy server that ignores what it does not know, or one that is slow to start. Whichever
        // answer comes first decides.
        let initialize = self.initialize(index);
        tokio::pin!(initialize);
        tokio::select! {
            biased;
            late = discover.answer() => match late {
                Ok(result) => match discovered(&result)? {
                    Some(info) => Ok(info),
                    None => initialize.await,
                },
                Err(fault) => {
                    is_legacy(fault)?;
                    initialize.await
                }
            },
            greeted = &mut initialize => match greeted {
                Err(HandshakeError::Ask(AskError::Rpc(_))) => {
                    discovered(&discover.answer().await?)?.ok_or(HandshakeError::Changed)
                }
                other => other,
            },
        }
    }

    fn discover(self: &Arc<Self>, index: usize) -> Result<Asked, AskError> {
        self.ask(index, method::DISCOVER, None, Era::Modern)
    }

    async fn initialize(self: &Arc<Self>, index: usize) -> Result<ServerInfo, HandshakeError> {
        let result = self.ask(index, method::INITIALIZE, Some(&message::initialize()), Era::Legacy)?.answer().await?;
        let text = text(&result)?;
        let read = members(text).map_err(|fault| AskError::Malformed(fault.to_string()))?;
        let version = read.get("protocolVersion").and_then(unquote).unwrap_or_default().into_owned();
        // Revisions are dates. Servers of older ones than we serve ourselves speak the same lines.
        if version.len() != MODERN.len() || &*version >= MODERN {
            return Err(HandshakeError::Version(shown(&version)));
        }
        if self.pool.lock().members[index].out.put_first(message::initialized()) {
            self.signals[index].out.notify_one();
        }
        Ok(ServerInfo {
            era: Era::Legacy,
            version,
            capabilities: read.get("capabilities").unwrap_or("{}").to_owned(),
            server_info: read.get("serverInfo").unwrap_or("{}").to_owned(),
            instructions: read.get("instructions").map(str::to_owned),
        })
    }
}

/// Whether an error in answer to `server/discover` leaves `initialize` to be tried. Errors that only modern
/// servers know do not, unless the server names a version with a handshake.
fn is_legacy(fault: AskError) -> Result<(), HandshakeError> {
    let AskError::Rpc(error) = &fault else { return Err(fault.into()) };
    let read = members(error).ok();
    let get = |key| read.as_ref().and_then(|read| read.get(key));
    if get("code").and_then(|code| code.parse().ok()) != Some(UNSUPPORTED_VERSION) {
        return Ok(());
    }
    let data = get("data").and_then(|data| members(data).ok());
    let supported = data.and_then(|data| data.get("supported").map(str::to_owned)).unwrap_or_default();
    let versions: Vec<String> = serde_json::from_str(&supported).unwrap_or_default();
    match versions.iter().any(|version| Era::of(version) == Some(Era::Legacy)) {
        true => Ok(()),
        false => Err(HandshakeError::Version(shown(&supported))),
    }
}

/// Reads a discover result. None if it names no version of ours but leaves `initialize` to be tried: there
/// are old servers that answer anything with an empty result.
fn discovered(result: &Bytes) -> Result<Option<ServerInfo>, HandshakeError> {
    let read = members(text(result)?).map_err(|fault| AskError::Malformed(fault.to_string()))?;
    let Some(supported) = read.get("supportedVersions") else { return Ok(None) };
    let versions: Vec<String> = serde_json::from_str(supported).unwrap_or_default();
    if !versions.iter().any(|version| version == MODERN) {
        return match versions.iter().any(|version| Era::of(version) == Some(Era::Legacy)) {
            true => Ok(None),
            false => Err(HandshakeError::Version(shown(supported))),
        };
    }
    let meta = read.get("_meta").and_then(|meta| members(meta).ok());
    let in_meta = meta.and_then(|meta| meta.get(SERVER_INFO).map(str::to_owned));
    Ok(Some(ServerInfo {
        era: Era::Modern,
        version: MODERN.to_owned(),
        capabilities: read.get("capabilities").unwrap_or("{}").to_owned(),
        server_info: read.get("serverInfo").map(str::to_owned).or(in_meta).unwrap_or_else(|| "{}".to_owned()),
        instructions: read.get("instructions").map(str::to_owned),
    }))
}

fn text(result: &Bytes) -> Result<&str, AskError> {
    std::str::from_utf8(result).map_err(|_| AskError::Malformed("it is not UTF-8".into()))
}

/// Hostile text, cut and made harmless for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_modern_error_forbids_the_fallback() {
        let rpc = |text: &str| is_legacy(AskError::Rpc(text.into()));
        assert!(rpc(r#"{"code":-32601,"message":"no"}"#).is_ok());
        assert!(rpc(r#"{"code":-32000,"message":"not initialized"}"#).is_ok());
        assert!(rpc("17").is_ok());
        assert!(rpc(r#"{"code":-32022,"message":"","data":{"supported":["2027-01-01"]}}"#).is_err());
        assert!(rpc(r#"{"code":-32022,"message":"","data":{"supported":["2027-01-01","2025-06-18"]}}"#).is_ok());
        assert!(is_legacy(AskError::Down("gone".into())).is_err());
    }

    #[test]
    fn a_discover_result_without_our_version_is_refused_in_words() {
        let fault = discovered(&Bytes::from_static(br#"{"supportedVersions":["2030-01-01"]}"#)).unwrap_err();
        assert!(fault.to_string().contains("2030-01-01"), "{fault}");
        assert!(discovered(&Bytes::from_static(b"[]")).is_err());
        for old in [&b"{}"[..], br#"{"supportedVersions":["2025-06-18"]}"#] {
            assert!(discovered(&Bytes::from_static(old)).unwrap().is_none());
        }
    }
}
