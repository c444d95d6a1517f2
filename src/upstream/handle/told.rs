//! What a server tells beside its answers (log lines, changed lists, watched resources), and how it is asked to.

use super::{CONTROL, Upstream};
use crate::call::Level;
use crate::config::Target;
use crate::protocol::json::members;
use crate::protocol::method;
use crate::protocol::version::Era;
use crate::upstream::connection::{AskError, Connection as _};
use crate::upstream::news::Kinds;
use std::sync::atomic::Ordering::Relaxed;

fn uri_params(uri: &str) -> String {
    serde_json::json!({ "uri": uri }).to_string()
}

/// Whether a raw `capabilities` object has `{name: {flag: true}}`.
fn capability(capabilities: &str, name: &str, flag: &str) -> bool {
    let of = members(capabilities).ok();
    let part = of.as_ref().and_then(|of| of.get(name)).and_then(|raw| members(raw).ok());
    part.is_some_and(|part| part.get(flag) == Some("true"))
}

impl Upstream {
    /// Whether its server sends log lines, as far as is known.
    pub(crate) fn can_log(&self) -> bool {
        self.connection.server().is_some_and(|info| info.capabilities.contains("\"logging\""))
    }

    /// Asks a server with sessions for log lines from `level` on. One that was asked for more keeps sending more:
    /// whoever wanted that shares it.
    pub(crate) async fn log_from(&self, level: Level) -> Result<(), AskError> {
        let legacy = self.connection.server().is_some_and(|info| info.era == Era::Legacy);
        if !legacy || self.shared.log_level.fetch_min(level as u8, Relaxed) <= level as u8 {
            return Ok(());
        }
        let params = format!(r#"{{"level":"{}"}}"#, level.name());
        self.connection.ask(method::SET_LEVEL, Some(&params), CONTROL).await.map(drop)
    }

    /// Whether its log lines can be told to the calls that they belong to: only where every call has a stream of its own.
    pub(crate) fn tells_logs(&self) -> bool {
        self.can_log() && matches!(self.shared.config.load().target, Target::Http(_))
    }

    /// The lists of whose changes its server tells.
    pub(crate) fn tells_changes(&self) -> Kinds {
        let Some(info) = self.connection.server() else { return Kinds::NONE };
        let says = |name: &str| capability(&info.capabilities, name, "listChanged");
        let kinds = [("tools", Kinds::TOOLS), ("prompts", Kinds::PROMPTS), ("resources", Kinds::RESOURCES)];
        kinds.into_iter().filter(|(name, _)| says(name)).fold(Kinds::NONE, |all, (_, kind)| all.or(kind))
    }

    /// Whether resources of it can be watched.
    pub(crate) fn can_watch(&self) -> bool {
        let info = self.connection.server();
        info.is_some_and(|info| info.era == Era::Legacy && capability(&info.capabilities, "resources", "subscribe"))
    }

    /// Asks the server to tell of changes of a resource.
    pub(crate) async fn watch(&self, uri: &str) -> Result<(), AskError> {
        self.connection.ask(method::SUBSCRIBE, Some(&uri_params(uri)), CONTROL).await.map(drop)
    }

    /// The same without waiting for the answer.
    pub(crate) fn watch_soon(&self, uri: &str) {
        let asked = self.connection.ask(method::SUBSCRIBE, Some(&uri_params(uri)), CONTROL);
        let name = self.shared.name.clone();
        tokio::spawn(async move {
            if let Err(fault) = asked.await {
                tracing::debug!(upstream = %name, %fault, "a resource cannot be watched");
            }
        });
    }

    /// Asks the server to tell no more, unless somebody else watches the resource too.
    pub(crate) async fn unwatch(&self, uri: &str) -> Result<(), AskError> {
        if self.shared.news.is_watched(uri) {
            return Ok(());
        }
        self.connection.ask(method::UNSUBSCRIBE, Some(&uri_params(uri)), CONTROL).await.map(drop)
    }
}
