//! The two ways to reach a server.

pub mod http;
pub mod stdio;
