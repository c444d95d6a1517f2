//! Drawing: pure functions from state and size to a frame. No clock, no I/O.

mod overview;
mod paint;

pub use overview::overview;
pub use paint::Look;
