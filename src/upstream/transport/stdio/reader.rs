//! What a child says: lines in, calls ended.

use super::book::{Entry, WireId};
use super::frame::{Frame, Framer, id_in_head, id_in_tail};
use super::message;
use super::pool::{Inner, release};
use crate::call::State;
use crate::protocol::incoming::{self, Incoming};
use crate::protocol::json::members;
use crate::protocol::method;
use crate::protocol::version::Era;
use crate::upstream::connection::{AskError, How};
use crate::upstream::news::Kinds;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes that held no message, since the last message, past which a child is recycled: at least this much,
/// and always room for many of the longest messages.
const FLOOD: u64 = 64 << 20;

/// Why reading ended.
#[derive(Debug)]
pub(super) enum ReadEnd {
    Closed,
    Flooded,
}

impl Inner {
    /// Reads until the child closes its standard output or floods it.
    pub(super) async fn read(&self, index: usize, mut from: impl AsyncRead + Unpin) -> ReadEnd {
        let cap = self.shared.config.load().max_message;
        let budget = FLOOD.max(16 * cap as u64);
        let mut framer = Framer::new(cap);
        let mut useless = 0u64;
        // A call was ended already for the line that is being skipped.
        let mut blamed = false;
        let signals = &self.signals[index];
        loop {
            match from.read_buf(framer.space()).await {
                Ok(0) | Err(_) => return ReadEnd::Closed,
                Ok(read) => useless += read as u64,
            }
            signals.heard.fetch_add(1, Relaxed);
            if signals.suspect.load(Relaxed) {
                self.lift_suspicion(index);
            }
            while let Some(frame) = framer.next() {
                match frame {
                    // A panic over one line costs that line (its call ends when its run is dropped).
                    Frame::Line(line) => match catch_unwind(AssertUnwindSafe(|| self.line(index, line))) {
                        Ok(true) => useless = 0,
                        Ok(false) => {}
                        Err(_) => tracing::error!(upstream = %self.shared.name, "a line of the child caused a panic"),
                    },
                    Frame::TooLong { head } => {
                        let id = id_in_head(head);
                        blamed = id.is_some_and(|id| self.unusable(index, WireId(id), "longer than `max_message`"));
                    }
                    Frame::TooLongEnd { tail, length } => {
                        let note = "longer than `max_message`";
                        if !blamed && !id_in_tail(tail).is_some_and(|id| self.unusable(index, WireId(id), note)) {
                            self.noise(&format!("a line of {length} bytes"));
                        }
                    }
                }
            }
            if useless > budget {
                return ReadEnd::Flooded;
            }
        }
    }

    /// One whole line. False for noise.
    fn line(&self, index: usize, line: &[u8]) -> bool {
        match incoming::read(line) {
            Incoming::Response { id } => {
                self.answered(index, WireId(id), line);
                true
            }
            Incoming::Request { id, method } => {
                let mut pool = self.pool.lock();
                match pool.members[index].out.put_reply(message::reply(id, &method)) {
                    Some(true) => self.signals[index].out.notify_one(),
                    Some(false) => {}
                    None => {
                        drop(pool);
                        self.noise("a question while answers to earlier ones wait unread");
                    }
                }
                true
            }
            Incoming::Notification { method, params } => {
                match &*method {
                    method::TOOLS_CHANGED | method::PROMPTS_CHANGED | method::RESOURCES_CHANGED => {
                        self.shared.note_changed(Kinds::of_method(&method));
                        self.pool.lock().members[index].lists_changed = true;
                        self.signals[index].watch.notify_one();
                    }
                    method::PROGRESS => self.progress(index, line, params),
                    method::ACKNOWLEDGED => self.signals[index].watch.notify_one(),
                    method::RESOURCE_UPDATED => self.shared.note_updated(params),
                    _ => {}
                }
                true
            }
            Incoming::Noise => {
                let text = std::str::from_utf8(line);
                let broken = text.map_or(Some("not UTF-8"), |text| {
                    // A log line in JSON may well name a request's id, so only a broken answer is blamed.
                    (members(text).is_err() && text.contains("\"jsonrpc\"")).then_some("not valid JSON")
                });
                let id = id_in_head(line).or_else(|| id_in_tail(line));
                let blamed = broken.zip(id).is_some_and(|(what, id)| self.unusable(index, WireId(id), what));
                if !blamed {
                    self.noise(&String::from_utf8_lossy(&line[..line.len().min(200)]));
                }
                blamed
            }
        }
    }

    fn answered(&self, index: usize, id: WireId, line: &[u8]) {
        let mut ended = Vec::new();
        let (entry, era) = {
            let mut pool = self.pool.lock();
            let entry = pool.members[index].book.close(id);
            if matches!(entry, Some(Entry::Probe)) {
                self.probe_answered(&mut pool, index, id, &mut ended);
            }
            // A child that is being ended may still answer; its era is the upstream's.
            (entry, pool.members[index].era().or(pool.era).unwrap_or(Era::Legacy))
        };
        release(ended);
        match entry {
            Some(Entry::Call(call)) => {
                if call.stopped || call.run.call.ticket.state() == State::Finished {
                    self.late.fetch_add(1, Relaxed);
                }
                call.run.answer(line, era);
            }
            Some(Entry::Ask(asked)) => drop(asked.send(message::result_of(line))),
            Some(Entry::Probe) => {}
            None => {
                self.late.fetch_add(1, Relaxed);
            }
        }
    }

    /// An answer that cannot be taken costs the one call it belongs to. False if it belongs to none.
    fn unusable(&self, index: usize, id: WireId, what: &str) -> bool {
        let entry = self.pool.lock().members[index].book.close(id);
        let note = format!("the server's answer is {what}");
        match entry {
            Some(Entry::Call(call)) if call.stopped => call.run.release(How::Answered),
            Some(Entry::Call(call)) => call.run.lost(true, &note),
            Some(Entry::Ask(asked)) => drop(asked.send(Err(AskError::Malformed(note)))),
            Some(Entry::Probe) => {}
            None => return false,
        }
        true
    }

    /// Passes a progress notice on to the call whose token it names (rule R29). Log lines name no call, and many
    /// callers share the child: nobody can say whose they are, so nobody gets them.
    fn progress(&self, index: usize, line: &[u8], params: Option<&str>) {
        let token = params.and_then(|params| members(params).ok()?.get("progressToken").and_then(incoming::number));
        let Some(token) = token else { return };
        let call = {
            let mut pool = self.pool.lock();
            let open = pool.members[index].book.call(WireId(token));
            open.filter(|call| !call.stopped && call.run.call.notices.is_some()).map(|call| call.run.call.clone())
        };
        if let Some(notices) = call.as_ref().and_then(|call| call.notices.as_ref()) {
            notices.take(line, method::PROGRESS, params);
        }
    }

    fn noise(&self, what: &str) {
        self.noise.fetch_add(1, Relaxed);
        self.noise_log.tell(|held_back| {
            tracing::info!(
                upstream = %self.shared.name, held_back, line = %what.escape_debug(),
                "the child printed something that is no message"
            );
        });
    }
}
