//! The queue of one upstream, sans-I/O: who runs, who waits, who has to go. It has no clock, no randomness
//! and no task; the actor passes time in and acts on what comes out.
//!
//! ```text
//!  offer --> refused
//!    |  \--> queued --next--> running --linger--> lingering
//!    |         |  ^             |  |                  |
//!    |         |  '--hand_back--'  '----complete------'--> slot free
//!    |         '--> expired, displaced, withdrawn, gone
//!    '-----------------------> running
//! ```
//!
//! Everything is an intrusive list over one slab, so offering, dispatching, ending, cancelling by id and
//! expiring are O(1) and, once the high-water mark is reached, allocate nothing. `docs/design/queue.md`
//! tells the rules as they are built.

mod admission;
mod ages;
mod callers;
mod dispatch;
mod estimate;
mod flows;
mod lengths;
mod listing;
mod machine;
mod parking;
mod pool;
mod slab;
mod tools;
mod turns;
mod types;
mod wheel;

#[cfg(test)]
mod model;
#[cfg(test)]
mod order;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use machine::Core;
pub use types::{
    Admitted, Due, EntryId, Figures, FlowKey, Gate, Moment, Next, Offer, Open, Pass, Retry, Row, Rows, Settings,
    ToolKey, Withdrawn,
};
