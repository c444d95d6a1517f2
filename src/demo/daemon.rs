//! The daemon as the demo runs it: in this process, by the library's own front door.

use crate::config::Config;
use std::net::SocketAddr;

/// A running daemon.
pub struct Daemon {
    mcp: SocketAddr,
}

impl Daemon {
    /// Starts it; its admin socket answers when this returns.
    pub async fn start(_config: Config) -> Result<Self, String> {
        Err("the daemon is not built yet".into())
    }

    /// Where calls are served.
    pub fn mcp(&self) -> SocketAddr {
        self.mcp
    }

    /// Drains it and stops it.
    pub async fn stop(self) {}
}
