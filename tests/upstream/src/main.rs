//! An MCP server for tests.
fn main() {}
