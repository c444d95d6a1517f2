//! TODO-admin
