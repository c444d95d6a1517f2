//! Bytes of a child's standard output to lines, with a cap. Knows nothing of what a line means, but for
//! finding the id of a line that cannot be taken.
//!
//! Bound: at most `cap` bytes of an unfinished line and one read beyond it are kept. A longer line is given
//! up: its head is told at once, the rest is thrown away as it comes, and its tail is told at its end.

use bytes::{Buf, BytesMut};

/// Room made for each read.
const READ: usize = 16 << 10;
/// A buffer that a large line has grown beyond this is given back when it is empty.
const KEEP: usize = 256 << 10;
/// How much of the head of a line that is too long is looked at for its id.
const HEAD: usize = 4 << 10;
/// How much of its tail: servers that write the id last end in `,"id":123}`.
const TAIL: usize = 64;

/// One thing that was found in the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    /// A line without its end (`\n` or `\r\n`).
    Line(&'a [u8]),
    /// A line has grown over the cap; this is its beginning, the rest is dropped.
    TooLong { head: &'a [u8] },
    /// The end of the line that was too long: its last bytes and its whole length.
    TooLongEnd { tail: &'a [u8], length: u64 },
}

/// See the module's documentation.
pub(super) struct Framer {
    buffer: BytesMut,
    /// Bytes of the buffer that are known to hold no end of line.
    scanned: usize,
    /// Bytes of the frame given out last; dropped before the next one.
    given: usize,
    cap: usize,
    /// Bytes dropped of the line that is too long; none while lines are taken.
    dropped: Option<u64>,
    tail: Vec<u8>,
}

impl Framer {
    /// Lines of more than `cap` bytes, their end not counted, are given up.
    pub(super) fn new(cap: usize) -> Self {
        let buffer = BytesMut::with_capacity(READ);
        Framer { buffer, scanned: 0, given: 0, cap, dropped: None, tail: Vec::new() }
    }

    /// Where to read into: appended bytes are the next of the stream.
    pub(super) fn space(&mut self) -> &mut BytesMut {
        self.buffer.advance(std::mem::take(&mut self.given));
        if self.buffer.is_empty() && self.buffer.capacity() > KEEP {
            self.buffer = BytesMut::new();
        }
        if self.buffer.capacity() - self.buffer.len() < READ / 4 {
            self.buffer.reserve(READ);
        }
        &mut self.buffer
    }

    /// The next frame in what has been read.
    pub(super) fn next(&mut self) -> Option<Frame<'_>> {
        self.buffer.advance(std::mem::take(&mut self.given));
        let end = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|found| self.scanned + found);
        if let Some(dropped) = self.dropped {
            return self.skip(dropped, end);
        }
        match end {
            Some(end) if end <= self.cap => {
                self.given = end + 1;
                self.scanned = 0;
                let line = &self.buffer[..end];
                Some(Frame::Line(line.strip_suffix(b"\r").unwrap_or(line)))
            }
            None if self.buffer.len() <= self.cap => {
                self.scanned = self.buffer.len();
                None
            }
            Some(_) | None => {
                // Nothing is dropped yet: the next turn drops up to the end of line, if it is here already.
                self.dropped = Some(0);
                self.scanned = 0;
                self.tail.clear();
                let head = self.buffer.len().min(self.cap).min(HEAD);
                Some(Frame::TooLong { head: &self.buffer[..head] })
            }
        }
    }

    fn skip(&mut self, dropped: u64, end: Option<usize>) -> Option<Frame<'_>> {
        let part = end.unwrap_or(self.buffer.len());
        let length = dropped + part as u64;
        let last = &self.buffer[part.saturating_sub(TAIL)..part];
        if last.len() >= TAIL {
            self.tail.clear();
        }
        self.tail.extend_from_slice(last);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        self.scanned = 0;
        match end {
            Some(end) => {
                self.buffer.advance(end + 1);
                self.dropped = None;
                Some(Frame::TooLongEnd { tail: &self.tail, length })
            }
            None => {
                self.buffer.clear();
                self.dropped = Some(length);
                None
            }
        }
    }

    /// Bytes kept at this moment, for tests of the bound.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.buffer.capacity() + self.tail.capacity()
    }
}

/// The id of a response whose beginning is `head`: the number at the key `id` of the outermost object. None
/// if it does not stand in these bytes. Works on bytes, so it also reads lines that are not UTF-8.
pub(super) fn id_in_head(head: &[u8]) -> Option<u64> {
    let mut depth = 0usize;
    let mut at = 0;
    // Where the last string at depth 1 lies, if nothing but blanks followed it.
    let mut key: Option<&[u8]> = None;
    while let Some(&byte) = head.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let start = at;
                loop {
                    match head.get(at)? {
                        b'"' => break,
                        b'\\' => at += 2,
                        _ => at += 1,
                    }
                }
                key = (depth == 1).then_some(&head[start..at]);
                at += 1;
                continue;
            }
            b':' if key == Some(b"id") => return number_at(&head[at..]),
            b' ' | b'\t' | b'\r' => continue,
            _ => {}
        }
        key = None;
    }
    None
}

/// The id of a response whose end is `tail`: it must close with `"id":N}` right inside the outermost object.
/// Inside a string those quotes would be escaped, and in a nested object the line would not end there, so
/// for valid JSON this cannot be mistaken.
pub(super) fn id_in_tail(tail: &[u8]) -> Option<u64> {
    let inner = tail.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let inner = inner.strip_suffix(b"\"").unwrap_or(inner);
    let digits = inner.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = inner.split_at(inner.len() - digits);
    let before = before.strip_suffix(b"\"").unwrap_or(before);
    let before = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end().strip_suffix(b"\"id\"")?;
    if !matches!(before.trim_ascii_end().last(), Some(b',' | b'{')) {
        return None;
    }
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// A whole number at the beginning of `bytes`, as it is or as a string, that ends within them.
fn number_at(bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.trim_ascii_start();
    let bytes = bytes.strip_prefix(b"\"").unwrap_or(bytes);
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == bytes.len() {
        return None;
    }
    std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Eq)]
    enum Seen {
        Line(Vec<u8>),
        TooLong(u64),
    }

    fn run(chunks: &[&[u8]], cap: usize) -> Vec<Seen> {
        let mut framer = Framer::new(cap);
        let mut seen = Vec::new();
        for chunk in chunks {
            framer.space().extend_from_slice(chunk);
            while let Some(frame) = framer.next() {
                match frame {
                    Frame::Line(line) => seen.push(Seen::Line(line.to_vec())),
                    Frame::TooLong { head } => assert!(head.len() <= cap),
                    Frame::TooLongEnd { length, .. } => seen.push(Seen::TooLong(length)),
                }
            }
        }
        seen
    }

    /// What lines there are, said simply.
    fn expected(bytes: &[u8], cap: usize) -> Vec<Seen> {
        let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
        lines.pop();
        lines
            .into_iter()
            .map(|line| match line.len() > cap {
                true => Seen::TooLong(line.len() as u64),
                false => Seen::Line(line.strip_suffix(b"\r").unwrap_or(line).to_vec()),
            })
            .collect()
    }

    proptest! {
        /// C11: bytes may be split anywhere.
        #[test]
        fn c11_any_chunking_gives_the_same_lines(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..400),
            cuts in proptest::collection::vec(0usize..400, 0..40),
            cap in 1usize..60,
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(0);
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(run(&chunks, cap), expected(&bytes, cap));
        }

        #[test]
        fn ids_are_found_in_any_bytes_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (id_in_head(&bytes), id_in_tail(&bytes));
        }

        #[test]
        fn the_id_of_a_whole_answer_is_found_at_either_end(id in any::<u64>(), text in ".{0,40}") {
            let text = serde_json::json!({"id": 3, "text": text, "x": [{"id": 4}, "\"id\":5}"]}).to_string();
            let first = format!(r#"{{"jsonrpc":"2.0", "id" : {id} ,"result":{text}}}"#);
            let last = format!(r#"{{"result":{text},"jsonrpc":"2.0","id":"{id}"}}"#);
            prop_assert_eq!(id_in_head(first.as_bytes()), Some(id));
            prop_assert_eq!(id_in_head(last.as_bytes()), Some(id));
            prop_assert_eq!(id_in_tail(last.as_bytes()), Some(id));
            let without = format!(r#"{{"result":{text}}}"#);
            prop_assert_eq!(id_in_head(without.as_bytes()), None);
            prop_assert_eq!(id_in_tail(without.as_bytes()), None);
        }
    }

    /// C12: the cap is the longest line that is taken, and what follows a longer one is taken again.
    #[test]
    fn c12_a_line_over_the_cap_costs_one_line() {
        let seen = run(&[b"1234\n12345\n1\n", b"12345", b"67", b"8\nab\r\n"], 4);
        let line = |text: &str| Seen::Line(text.as_bytes().to_vec());
        assert_eq!(seen, [line("1234"), Seen::TooLong(5), line("1"), Seen::TooLong(8), line("ab")]);
    }

    /// C12, security row 18: memory is bounded however much comes without an end of line.
    #[test]
    fn c12_an_endless_line_does_not_grow_memory() {
        let mut framer = Framer::new(1 << 20);
        let block = [b'x'; 64 << 10];
        let (mut most, mut told) = (0, 0);
        for _ in 0..1024 {
            framer.space().extend_from_slice(&block);
            while let Some(frame) = framer.next() {
                assert!(matches!(frame, Frame::TooLong { .. }));
                told += 1;
            }
            most = most.max(framer.held());
        }
        assert_eq!(told, 1);
        assert!(most < 4 << 20, "{most} bytes were held for 64 MiB");
        framer.space().extend_from_slice(b"\nok\n");
        assert!(matches!(framer.next(), Some(Frame::TooLongEnd { length: 0x400_0000, .. })));
        assert_eq!(framer.next(), Some(Frame::Line(b"ok")));
        framer.space();
        assert!(framer.held() < 1 << 20);
    }

    #[test]
    fn an_id_that_is_cut_off_is_no_id() {
        assert_eq!(id_in_head(br#"{"id":12"#), None);
        assert_eq!(id_in_head(br#"{"id":12,"#), Some(12));
        assert_eq!(id_in_head(br#"{"result":{"id":7},"#), None);
        assert_eq!(id_in_head(b"{\"a\":\"\xff\",\"id\":9}"), Some(9));
        assert_eq!(id_in_head(br#"{"x":"id","id2":3}"#), None);
        assert_eq!(id_in_tail(br#"aaa","jsonrpc":"2.0","id":5}"#), Some(5));
        assert_eq!(id_in_tail(br#"aaa{"id":5}}"#), None);
        assert_eq!(id_in_tail(br#"aaa\"id\":5}"#), None);
    }
}
