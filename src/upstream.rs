//! One server: the actor that owns its queue, the connection that reaches it, and what both share.
//!
//! [`Upstream`] is what the rest of the daemon holds. Calls go in through [`Upstream::offer`], which never
//! waits; the actor decides; the connection runs; the call's ticket tells its caller.

mod actor;
pub mod connection;
pub mod gates;
mod handle;
mod latency;
mod link;
mod lists;
pub(crate) mod news;
mod overload;
pub mod queue;
mod saturation;
pub mod shared;
pub mod supervisor;
mod swap;
pub mod transport;

pub use connection::{Connection, Run, RunId};
pub use gates::Gates;
pub use handle::{
    Edited, Found, List, ListItem, ListKind, Page, Print, Row, RowState, Status, Unavailable, Upstream, UpstreamState,
};
pub use shared::UpstreamShared;
pub use supervisor::Supervisor;

#[cfg(test)]
#[cfg(not(forebay_loom))]
pub(crate) mod scripted;
#[cfg(test)]
#[cfg(not(forebay_loom))]
mod tests;
