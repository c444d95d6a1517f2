//! The last lines of a child's standard error. It is always drained, whatever the child writes, so that a
//! talkative child never blocks in a write (C09).
//!
//! Bound: [`LINES`] lines of at most [`LINE`] bytes; what is older is dropped, what is longer is cut.

use super::quiet::Quiet;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::ops::Range;
use tokio::io::{AsyncRead, AsyncReadExt};

const LINES: usize = 200;
const LINE: usize = 4 << 10;

/// Shared by all children of an upstream.
#[derive(Default)]
pub(super) struct StderrTail {
    kept: Mutex<Kept>,
    log: Quiet,
}

#[derive(Default)]
struct Kept {
    lines: VecDeque<String>,
    /// Lines that there have been, dropped ones included.
    ever: u64,
}

impl StderrTail {
    /// Oldest first. Hostile text.
    pub(super) fn lines(&self) -> Vec<String> {
        self.kept.lock().lines.iter().cloned().collect()
    }

    /// How many lines there have been.
    pub(super) fn ever(&self) -> u64 {
        self.kept.lock().ever
    }

    /// Those that are kept of the lines with these numbers.
    pub(super) fn of(&self, numbers: &Range<u64>) -> Vec<String> {
        let kept = self.kept.lock();
        let first = kept.ever - kept.lines.len() as u64;
        kept.lines.iter().zip(first..).filter(|(_, at)| numbers.contains(at)).map(|(line, _)| line.clone()).collect()
    }

    /// Reads until the end, or until nothing more can be read.
    pub(super) async fn drain(&self, mut from: impl AsyncRead + Unpin, upstream: &str) {
        let mut cutter = Cutter::default();
        let mut chunk = vec![0; 8 << 10];
        while let Ok(read @ 1..) = from.read(&mut chunk).await {
            cutter.feed(&chunk[..read], |line| self.put(line, upstream));
        }
        if !cutter.line.is_empty() {
            self.put(&cutter.line, upstream);
        }
    }

    fn put(&self, line: &[u8], upstream: &str) {
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        self.log.tell(|held_back| tracing::debug!(upstream, held_back, line = %text.escape_debug(), "stderr"));
        let mut kept = self.kept.lock();
        if kept.lines.len() == LINES {
            kept.lines.pop_front();
        }
        kept.lines.push_back(text);
        kept.ever += 1;
    }
}

/// Cuts a stream into lines of bounded length.
#[derive(Default)]
struct Cutter {
    line: Vec<u8>,
    /// The rest of this line is dropped.
    full: bool,
}

impl Cutter {
    fn feed(&mut self, chunk: &[u8], mut put: impl FnMut(&[u8])) {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            let room = LINE - self.line.len();
            if !self.full {
                self.line.extend_from_slice(&text[..text.len().min(room)]);
            }
            if text.len() > room && !self.full {
                // Told as soon as it is full, so that a line without an end is seen too.
                self.full = true;
                put(&self.line);
            }
            if ends {
                if !self.full {
                    put(&self.line);
                }
                self.full = false;
                self.line.clear();
            }
        }
        if self.full {
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn c09_any_amount_without_an_end_of_line_is_drained_into_a_bounded_ring() {
        let tail = StderrTail::default();
        let mut input = vec![b'x'; 256 << 10];
        for number in 0..500 {
            input.extend_from_slice(format!("\nline {number}").as_bytes());
        }
        input.extend_from_slice(b"\n\xff\xfe\nlast");
        tail.drain(&input[..], "up").await;
        let lines = tail.lines();
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines.last().unwrap(), "last");
        assert_eq!(lines[LINES - 3], "line 499");
        assert_eq!(tail.of(&(tail.ever() - 1..u64::MAX)), ["last"]);
        assert_eq!((tail.of(&(0..u64::MAX)).len(), tail.of(&(0..tail.ever() - 1)).len()), (LINES, LINES - 1));
        assert!(lines.iter().all(|line| line.len() <= LINE));
        let tail = StderrTail::default();
        tail.drain(&input[..(LINE + 7)], "up").await;
        assert_eq!(tail.lines(), ["x".repeat(LINE)]);
    }
}
