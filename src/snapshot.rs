//! TODO-snapshot
