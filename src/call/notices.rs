//! What a server says of a call before its answer: progress and log lines, on their way to the call's client.
//!
//! Made only for a call whose client takes a stream and asked for something. The connection's reader puts
//! messages in and never waits; the request of the caller takes them out. Bound: [`MOST`] messages and
//! [`MOST_BYTES`] bytes; what comes while it is full is dropped (a later progress says more than an earlier one).

use crate::protocol::json::{members, unquote};
use crate::protocol::method;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

/// Messages that wait for their client at most.
const MOST: usize = 64;
/// The same in bytes.
const MOST_BYTES: usize = 256 << 10;

/// How grave a log line is, in the order of RFC 5424.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    pub const ALL: [(&'static str, Level); 8] = [
        ("debug", Level::Debug),
        ("info", Level::Info),
        ("notice", Level::Notice),
        ("warning", Level::Warning),
        ("error", Level::Error),
        ("critical", Level::Critical),
        ("alert", Level::Alert),
        ("emergency", Level::Emergency),
    ];

    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
    }

    pub fn name(self) -> &'static str {
        Level::ALL[self as usize].0
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Notices {
    /// The client's progress token, as it was written; none if it asked for no progress.
    token: Option<Bytes>,
    /// The lowest level of log lines that the client wants; none if it wants none.
    level: Option<Level>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Bytes>,
    bytes: usize,
    /// The progress told last (rule R29).
    told: Option<f64>,
    dropped: u64,
    client: Option<Waker>,
}

impl Notices {
    /// None if there is nothing that the client wants.
    pub fn wanted(token: Option<Bytes>, level: Option<Level>) -> Option<Notices> {
        (token.is_some() || level.is_some()).then(|| Notices { token, level, inner: Mutex::default() })
    }

    /// The lowest level of log lines that the client wants.
    pub fn level(&self) -> Option<Level> {
        self.level
    }

    /// Takes in a notification of the server that belongs to the call: the whole message, its method and params.
    pub fn take(&self, message: &[u8], method: &str, params: Option<&str>) {
        let Some(params) = params else { return };
        match method {
            method::PROGRESS => self.progress(message, params),
            method::MESSAGE => self.log(message, params),
            _ => {}
        }
    }

    /// A value that is not above the last one told is dropped (rule R29).
    fn progress(&self, message: &[u8], params: &str) {
        let (Some(token), Ok(read)) = (&self.token, members(params)) else { return };
        let (Some(theirs), Some(value)) = (read.get("progressToken"), read.get("progress")) else { return };
        let Some(value) = value.parse::<f64>().ok().filter(|value| value.is_finite()) else { return };
        let Some(at) = offset(message, theirs.as_bytes()) else { return };
        let mut inner = self.inner.lock();
        if inner.told.is_some_and(|told| value <= told) {
            return;
        }
        let mut ours = Vec::with_capacity(message.len() + token.len());
        ours.extend_from_slice(&message[..at]);
        ours.extend_from_slice(token);
        ours.extend_from_slice(&message[at + theirs.len()..]);
        if inner.put(ours.into()) {
            inner.told = Some(value);
        }
    }

    fn log(&self, message: &[u8], params: &str) {
        let Some(lowest) = self.level else { return };
        let level = members(params).ok().and_then(|read| read.get("level").and_then(unquote).map(|it| it.into_owned()));
        // A level of a later revision is the server's to judge.
        if level.and_then(|level| Level::from_name(&level)).is_none_or(|level| level >= lowest) {
            self.inner.lock().put(Bytes::copy_from_slice(message));
        }
    }

    /// The next message for the client.
    pub fn poll_next(&self, context: &Context<'_>) -> Poll<Bytes> {
        let mut inner = self.inner.lock();
        if let Some(message) = inner.waiting.pop_front() {
            inner.bytes -= message.len();
            return Poll::Ready(message);
        }
        match &inner.client {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => inner.client = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Ready when there is something for the client; nothing is taken.
    pub fn poll_any(&self, context: &Context<'_>) -> Poll<()> {
        let mut inner = self.inner.lock();
        if !inner.waiting.is_empty() {
            return Poll::Ready(());
        }
        match &inner.client {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => inner.client = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// What waits, without waiting for more.
    pub fn next_now(&self) -> Option<Bytes> {
        let mut inner = self.inner.lock();
        let message = inner.waiting.pop_front()?;
        inner.bytes -= message.len();
        Some(message)
    }

    /// How many were dropped because their client was slow.
    pub fn dropped(&self) -> u64 {
        self.inner.lock().dropped
    }
}

impl Inner {
    fn put(&mut self, message: Bytes) -> bool {
        if self.waiting.len() >= MOST || self.bytes + message.len() > MOST_BYTES {
            self.dropped += 1;
            return false;
        }
        self.bytes += message.len();
        self.waiting.push_back(message);
        if let Some(waker) = self.client.take() {
            waker.wake();
        }
        true
    }
}

/// Where `part`, a piece of `whole` itself, begins in it.
fn offset(whole: &[u8], part: &[u8]) -> Option<usize> {
    let at = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (at + part.len() <= whole.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::incoming::{Incoming, read};

    fn take(notices: &Notices, message: &str) {
        let Incoming::Notification { method, params } = read(message.as_bytes()) else { panic!("{message}") };
        notices.take(message.as_bytes(), &method, params);
    }

    fn all(notices: &Notices) -> Vec<String> {
        std::iter::from_fn(|| notices.next_now()).map(|it| String::from_utf8(it.to_vec()).unwrap()).collect()
    }

    fn progress(value: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":77,"progress":{value},"total":1.10,"new":[1]}}}}"#
        )
    }

    #[test]
    fn r29_progress_has_the_clients_token_and_rises() {
        let notices = Notices::wanted(Some(Bytes::from_static(b"\"tok\"")), None).unwrap();
        for value in ["0", "5", "5", "4.9", "5e1", "\"90\"", "1e999"] {
            take(&notices, &progress(value));
        }
        let expected = ["0", "5", "5e1"].map(|value| progress(value).replace("77", "\"tok\""));
        assert_eq!(all(&notices), expected);
    }

    #[test]
    fn log_lines_are_for_who_asked_for_their_level() {
        let line = |level: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1.0}}}}"#)
        };
        let notices = Notices::wanted(None, Some(Level::Warning)).unwrap();
        for level in ["debug", "warning", "alert", "newer"] {
            take(&notices, &line(level));
        }
        take(&notices, &progress("1"));
        assert_eq!(all(&notices), ["warning", "alert", "newer"].map(line));
        assert!(Notices::wanted(None, None).is_none());
    }

    #[test]
    fn a_client_that_does_not_read_is_bounded() {
        let notices = Notices::wanted(Some(Bytes::from_static(b"1")), None).unwrap();
        for value in 0..1000 {
            take(&notices, &progress(&value.to_string()));
        }
        assert_eq!((all(&notices).len(), notices.dropped()), (MOST, 1000 - MOST as u64));
        take(&notices, &progress("2000"));
        assert_eq!(all(&notices).len(), 1);
    }

    #[test]
    fn levels_are_named_in_their_order() {
        for (name, level) in Level::ALL {
            assert_eq!((Level::from_name(name), level.name()), (Some(level), name));
        }
        assert!(Level::Debug < Level::Emergency);
    }
}
