//! TODO-cli
