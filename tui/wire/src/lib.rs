//! Types of the admin API: what the daemon sends, what the commands and the screens read. Nothing else.
//!
//! Times are whole milliseconds in fields ending in `_ms`, names are snake_case, an absent figure is left out.
//! The API only ever grows: readers ignore fields that they do not know, and every enum has an `Unknown`
//! that stands for a value of a newer daemon.

mod call;
mod daemon;
mod error;
mod upstream;

pub use call::{Call, CallState, CallsPage, CancelAnswer, Cancelled, Lane};
pub use daemon::{AuthMode, Health, OutcomeCount, State, Totals};
pub use error::Fault;
pub use upstream::{Upstream, UpstreamKind, UpstreamState};

/// The version of the API in its paths (`/v1/...`) and in [`State::api`].
pub const API: u32 = 1;
