//! Protocol revisions, and the two eras they fall into.

/// The revision that forebay speaks to modern peers.
pub const MODERN: &str = "2026-07-28";
/// The newest revision with a handshake.
pub const LATEST_LEGACY: &str = "2025-11-25";
/// Every revision served, newest first.
pub const SUPPORTED: [&str; 4] = [MODERN, LATEST_LEGACY, "2025-06-18", "2025-03-26"];

/// Modern revisions are stateless; legacy ones begin with `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    Modern,
    Legacy,
}

impl Era {
    /// The era of a revision that forebay serves.
    pub fn of(version: &str) -> Option<Era> {
        match version {
            MODERN => Some(Era::Modern),
            known if SUPPORTED.contains(&known) => Some(Era::Legacy),
            _ => None,
        }
    }
}

/// Keys of `_meta` that only modern messages carry.
pub mod meta_key {
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    pub const PREFIX: &str = "io.modelcontextprotocol/";
    pub const PROGRESS_TOKEN: &str = "progressToken";
    /// The time that is left for a call; read from callers, told to upstreams.
    pub const TIMEOUT_MS: &str = "forebay/timeout_ms";
    pub const PRIORITY: &str = "forebay/priority";
    pub const CALL: &str = "forebay/call";
    pub const REFUSAL: &str = "forebay/refusal";
}
