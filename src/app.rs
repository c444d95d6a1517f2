//! TODO-app
