//! TODO-shutdown
