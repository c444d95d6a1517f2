//! What happened in the daemon, as numbered entries of its event log.

use serde::{Deserialize, Serialize};

/// One entry of the event log. Its texts hold names from outside: escape them before they are drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up by one within a run of the daemon; a hole is what a slow reader missed.
    pub number: u64,
    /// Milliseconds since 1970, by the daemon's clock.
    pub at_unix_ms: u64,
    pub level: Level,
    /// A stable word such as `upstream.exit`, `refused`, `cancelled`, `limit.changed`; docs/admin-api.md lists them.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The call that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Who did it, for what was done by a person: `uid:1000 tui`, `token:ops cli`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// For people.
    pub text: String,
    /// How many happenings of the same kind this entry stands for; refusals come as one a caller, reason and second.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub times: u64,
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_one(times: &u64) -> bool {
    *times == 1
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    #[default]
    Info,
    Warn,
    Error,
    #[serde(other)]
    Unknown,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
            Level::Unknown => "unknown",
        }
    }
}

/// `GET /v1/events`: oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsPage {
    pub events: Vec<Event>,
    /// The number that the next event will have: pass it as `from` to read on.
    pub next: u64,
    /// Entries between `from` and the first one given that are no longer kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}
