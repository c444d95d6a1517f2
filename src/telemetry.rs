//! TODO-telemetry
