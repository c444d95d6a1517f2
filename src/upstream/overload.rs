//! What keeps an upstream from being overrun: a limit that moves with the load, a breaker, a budget for what
//! is sent twice, and control of how long calls wait.
//!
//! State machines without I/O: the time is passed in, and so is what happened. The actor feeds them and does
//! what they say (`actor/overload.rs`); `docs/design/overload.md` tells the rules as they are built.

pub(super) mod aimd;
pub(super) mod breaker;
pub(super) mod budget;
pub(super) mod sojourn;

pub(super) use aimd::Aimd;
pub(super) use breaker::Breaker;
pub(super) use budget::Budget;
pub(super) use sojourn::Sojourn;
