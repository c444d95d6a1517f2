//! Types of the admin API: what the daemon sends, what the commands and the screens read. Nothing else.
//!
//! Times are whole milliseconds in fields ending in `_ms`, names are snake_case, an absent figure is left out.
//! The API only ever grows: readers ignore fields that they do not know, and every enum has an `Unknown`
//! that stands for a value of a newer daemon.

mod call;
mod caller;
mod config;
mod daemon;
mod detail;
mod error;
mod event;
mod shadow;
mod steer;
mod stream;
mod upstream;

pub use call::{Call, CallState, CallsPage, CancelAnswer, Cancelled, Lane};
pub use caller::{Caller, CallersPage};
pub use config::{ConfigState, Finding, Reloaded};
pub use daemon::{AuthMode, Health, OutcomeCount, State, Totals};
pub use detail::{CallDetail, Share, Split, Stderr, Step, UpstreamDetail, Why};
pub use error::Fault;
pub use event::{Event, EventsPage, Level};
pub use shadow::{ShadowReport, ShadowRow};
pub use steer::{CancelledMany, Edit, EditAnswer, Edited, Limits, LimitsAnswer, Role, Selector};
pub use stream::{Changes, MOST_CALLERS, Snapshot, Update};
pub use upstream::{Upstream, UpstreamKind, UpstreamState};

/// The version of the API in its paths (`/v1/...`) and in [`State::api`].
pub const API: u32 = 1;
