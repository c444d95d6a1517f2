//! The queue of one upstream, sans-I/O.
