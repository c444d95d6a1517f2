//! stdio upstreams.
