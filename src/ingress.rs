//! TODO-ingress
