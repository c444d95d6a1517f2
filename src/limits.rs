//! What stands before an upstream's queue: the limits of a caller, and the gates of a tool.
//!
//! The order is fixed: rate, quota, cursors, gates, then the queue with its own. Each is cheap, refuses without
//! waiting and is the caller's own before it is shared. The arithmetic is pure, with the time as an argument; where
//! in a call's way it is asked is [`crate::dispatcher`]'s.

pub mod cursors;
pub mod gate;
pub mod pointer;
pub mod quota;
pub mod shadow;
