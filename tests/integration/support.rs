//! What the stories are told with: a daemon, clients, scripted servers, and waiting that has an end.

mod client;
mod daemon;
mod fake;
mod http;
mod pipe;
mod upstream;

pub(crate) use client::{Answer, Client, Pending};
pub(crate) use daemon::{Daemon, Ran, forebay, signal_pid};
pub(crate) use fake::FakeDaemon;
pub(crate) use http::Connection;
pub(crate) use pipe::Pipe;
pub(crate) use upstream::{HttpUpstream, Log, stdio, test_upstream};

use std::time::{Duration, Instant};

/// The longest that anything may take here; long, because the machine may be busy, and never waited out in a
/// run that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Looks until `found` gives something; fails the test with `what` if it never does.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "did not come to pass within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
