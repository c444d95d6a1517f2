//! One server: the actor that owns its queue, the connection that reaches it, and what both share.
//!
//! [`Upstream`] is what the rest of the daemon holds. Calls go in through [`Upstream::offer`], which never
//! waits; the actor decides; the connection runs; the call's ticket tells its caller.

pub mod connection;
mod handle;
pub mod queue;
pub mod shared;
pub mod transport;

pub use connection::{Connection, Run, RunId};
pub use handle::{Edited, List, ListItem, ListKind, Page, Row, RowState, Status, Unavailable, Upstream, UpstreamState};
pub use shared::UpstreamShared;
