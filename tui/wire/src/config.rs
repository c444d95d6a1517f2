//! The config in force, and what became of an attempt to change it.

use serde::{Deserialize, Serialize};

/// How the config stands, in `GET /v1/state`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigState {
    /// The file that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The file as it is now is in force. False after a reload was refused: what was in force before goes on.
    pub ok: bool,
    /// When what is in force was taken over, milliseconds since 1970.
    pub since_unix_ms: u64,
    /// When the last reload was refused, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_unix_ms: Option<u64>,
    /// Why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Finding>,
    /// What the file says that only a restart of the daemon puts in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs_restart: Vec<String>,
    /// A change of the file is noticed by itself.
    #[serde(default)]
    pub watched: bool,
}

/// One fault or warning of a config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
    /// The environment variable that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The key's path; empty when it is about the whole.
    pub key: String,
    pub message: String,
    /// The mend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The answer to `POST /v1/reload`: with status 200 the file is in force, with 422 what was before goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The same in one line, as it stands in the event log.
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Upstreams that take no calls any more; those they have are run or answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Upstreams whose limits or tools changed; their servers run on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Upstreams whose server is started or dialled anew, once what it runs has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarted: Vec<String>,
    /// Callers that were added, removed or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// Tables of the file that changed and concern the whole daemon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<String>,
    /// What only a restart of the daemon puts in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs_restart: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Finding>,
    /// Why nothing was changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Finding>,
}
