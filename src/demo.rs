//! TODO-demo
