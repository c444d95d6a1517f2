//! Streamable HTTP upstreams.
