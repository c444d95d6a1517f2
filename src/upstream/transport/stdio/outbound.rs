//! What waits to be written to a child.
//!
//! Two queues: cancels, probes, answers and requests of our own go before calls, so that none of them waits
//! behind a call. Calls wait whole and are marked when the writer takes them, so that it is known of every
//! call whether a byte of it may have been written. Our own requests wait under their ids, so that one whose
//! asker has given up is withdrawn and never sent.
//!
//! Bound: calls are those that hold a slot (a call that is stopped before it was taken is removed), so at
//! most `max_concurrent` bodies; requests of our own are bounded by the book; answers to the child's own
//! questions by [`MAX_REPLIES`] bytes, above which they are dropped: a child that asks without ever reading
//! gets no answers. Cancels and probes are at most one for each call taken.

use super::book::{Book, WireId};
use std::collections::VecDeque;

/// Most bytes of answers that wait for a child that does not read.
pub(super) const MAX_REPLIES: usize = 64 << 10;
/// The writer takes about this much at once; a larger message is taken alone and not copied.
const BATCH: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Outbound {
    /// With the id of a request of our own.
    urgent: VecDeque<(Option<WireId>, Vec<u8>)>,
    calls: VecDeque<(WireId, Vec<u8>)>,
    replies: usize,
    /// Bytes handed to the writer in this child's life.
    taken: u64,
}

impl Outbound {
    /// Puts a notice of our own before all calls. True if the writer has to be woken.
    pub(super) fn put_first(&mut self, message: Vec<u8>) -> bool {
        self.put_urgent(None, message)
    }

    /// Puts a request of our own before all calls.
    pub(super) fn put_request(&mut self, id: WireId, message: Vec<u8>) -> bool {
        self.put_urgent(Some(id), message)
    }

    fn put_urgent(&mut self, id: Option<WireId>, message: Vec<u8>) -> bool {
        let idle = self.is_empty();
        self.urgent.push_back((id, message));
        idle
    }

    /// Takes a request of our own back that the writer has not taken. False if it has.
    pub(super) fn remove_request(&mut self, id: WireId) -> bool {
        let Some(at) = self.urgent.iter().position(|(known, _)| *known == Some(id)) else { return false };
        self.urgent.remove(at);
        true
    }

    /// Puts an answer to a question of the child. None if it had to be dropped.
    pub(super) fn put_reply(&mut self, message: Vec<u8>) -> Option<bool> {
        if self.replies + message.len() > MAX_REPLIES {
            return None;
        }
        self.replies += message.len();
        Some(self.put_first(message))
    }

    /// Puts a call at the end.
    pub(super) fn put_call(&mut self, id: WireId, message: Vec<u8>) -> bool {
        let idle = self.is_empty();
        self.calls.push_back((id, message));
        idle
    }

    /// Takes a call back that the writer has not taken. False if it has.
    pub(super) fn remove_call(&mut self, id: WireId) -> bool {
        let Some(at) = self.calls.iter().position(|(known, _)| *known == id) else { return false };
        self.calls.remove(at);
        true
    }

    /// Moves the next messages to the writer's (empty) batch and marks their calls.
    pub(super) fn take(&mut self, batch: &mut Vec<u8>, book: &mut Book) {
        while let Some((_, message)) = self.urgent.pop_front() {
            batch.extend_from_slice(&message);
        }
        self.replies = 0;
        while let Some((id, message)) = self.calls.front() {
            if !batch.is_empty() && batch.len() + message.len() > BATCH {
                break;
            }
            if let Some(call) = book.call(*id) {
                call.start = Some(self.taken + batch.len() as u64);
            }
            let Some((_, message)) = self.calls.pop_front() else { break };
            if batch.is_empty() && message.len() > batch.capacity() {
                *batch = message;
            } else {
                batch.extend_from_slice(&message);
            }
        }
        self.taken += batch.len() as u64;
    }

    /// For a new child.
    pub(super) fn reset(&mut self) {
        *self = Outbound::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.calls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c04_what_is_urgent_goes_before_every_call_and_a_call_not_taken_can_be_taken_back() {
        let (mut out, mut book) = (Outbound::default(), Book::default());
        assert!(out.put_call(WireId(1), b"a\n".to_vec()));
        assert!(!out.put_call(WireId(2), b"b\n".to_vec()));
        assert!(!out.put_first(b"cancel\n".to_vec()));
        assert!(out.remove_call(WireId(1)));
        let mut batch = Vec::new();
        out.take(&mut batch, &mut book);
        assert_eq!(batch, b"cancel\nb\n");
        assert!(!out.remove_call(WireId(2)));
        assert!(out.put_first(Vec::new()));
    }

    #[test]
    fn a_request_of_our_own_that_was_not_taken_can_be_taken_back() {
        let (mut out, mut book) = (Outbound::default(), Book::default());
        out.put_request(WireId(1), b"list\n".to_vec());
        out.put_first(b"notice\n".to_vec());
        out.put_request(WireId(2), b"probe\n".to_vec());
        assert!(out.remove_request(WireId(1)));
        let mut batch = Vec::new();
        out.take(&mut batch, &mut book);
        assert_eq!(batch, b"notice\nprobe\n");
        assert!(!out.remove_request(WireId(2)));
    }

    #[test]
    fn answers_to_a_child_that_does_not_read_are_bounded() {
        let (mut out, mut book) = (Outbound::default(), Book::default());
        let taken = (0..10_000).filter(|_| out.put_reply(vec![b'x'; 100]).is_some()).count();
        assert_eq!(taken, MAX_REPLIES / 100);
        out.take(&mut Vec::new(), &mut book);
        assert!(out.put_reply(vec![b'x'; 100]).is_some());
    }

    #[test]
    fn a_large_message_is_taken_alone() {
        let (mut out, mut book) = (Outbound::default(), Book::default());
        out.put_call(WireId(1), vec![b'a'; 10]);
        out.put_call(WireId(2), vec![b'b'; BATCH * 3]);
        out.put_call(WireId(3), vec![b'c'; 10]);
        let mut sizes = Vec::new();
        loop {
            let mut batch = Vec::new();
            out.take(&mut batch, &mut book);
            if batch.is_empty() {
                break;
            }
            sizes.push(batch.len());
        }
        assert_eq!(sizes, [10, BATCH * 3, 10]);
    }
}
