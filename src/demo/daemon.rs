//! The daemon as the demo runs it: in this process, by the library's own front door.

use crate::app::App;
use crate::config::Config;
use std::error::Error as _;
use std::net::SocketAddr;

/// A running daemon.
pub(super) struct Daemon(App);

impl Daemon {
    /// Starts it; its admin socket and its listener are bound when this returns.
    pub(super) fn start(config: Config) -> Result<Self, String> {
        App::start(config).map(Daemon).map_err(|fault| match fault.source() {
            Some(source) => format!("{fault}: {source}"),
            None => fault.to_string(),
        })
    }

    /// Where calls are served.
    pub(super) fn mcp(&self) -> SocketAddr {
        self.0.mcp
    }

    /// Stops it without waiting for calls: the demo's own have ended, and a guest's end cancelled.
    pub(super) async fn stop(self) {
        self.0.shut_down(std::future::ready(())).await;
    }
}
