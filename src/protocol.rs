//! JSON-RPC and MCP on the wire: the only place that knows method names, versions, error codes and where
//! the parts of a message lie.
//!
//! Messages travel as raw bytes. A message is read once, borrowed, for its envelope; what has to change
//! (the id, a name's prefix, the progress token, `_meta`) is spliced, and every other byte passes as it came.

pub mod envelope;
pub mod error;
pub mod incoming;
pub mod json;
pub mod method;
pub mod mirror;
pub mod splice;
pub mod sse;
pub mod version;
