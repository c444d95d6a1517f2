//! JSON-RPC error codes that forebay sends. -32020 to -32099 belong to the specification.

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Also for an unknown or hidden tool (rule R32).
pub const INVALID_PARAMS: i64 = -32602;
pub const INTERNAL_ERROR: i64 = -32603;
/// A header is missing, malformed or at odds with the body (2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// The client lacks a capability that the call needs (2026-07-28).
pub const MISSING_CAPABILITY: i64 = -32021;
/// The protocol version is not spoken here (2026-07-28).
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// Codes that no configured code may take (rule R32).
pub const RESERVED: std::ops::RangeInclusive<i64> = -32099..=-32020;
