//! Server-sent events, read as they arrive: bytes in any chunks, the data of `message` events out.
//!
//! Only what MCP needs: `id` and `retry` are skipped (streams are not resumed), events of other types and
//! events without data are dropped, an event that the stream's end cuts off is never given out.

use bytes::Bytes;

/// Cuts one stream into events. Holds at most one unfinished event, bounded by the limit it was made with.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The `data` lines of the event so far, joined by LF.
    data: Vec<u8>,
    has_data: bool,
    /// The event's type is one that is not ours.
    foreign: bool,
    /// The last byte was a CR that ended a line: an LF right behind it belongs to it.
    after_cr: bool,
    /// No line has ended yet, so a byte order mark may still stand before it.
    at_start: bool,
}

/// An event is larger than allowed. The stream cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {limit} bytes")]
pub struct EventTooLarge {
    pub limit: usize,
}

impl Splitter {
    /// `limit` bounds the bytes of one event, its unfinished line included.
    pub fn new(limit: usize) -> Self {
        Splitter {
            limit,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            foreign: false,
            after_cr: false,
            at_start: true,
        }
    }

    /// Takes the next bytes of the stream and appends the events that they complete to `events`.
    pub fn push(&mut self, mut chunk: &[u8], events: &mut Vec<Bytes>) -> Result<(), EventTooLarge> {
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        while let Some(end) = memchr::memchr2(b'\r', b'\n', chunk) {
            let (line, rest) = chunk.split_at(end);
            self.bounded(line.len())?;
            if self.line.is_empty() {
                self.take_line(line, events);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.take_line(&whole, events);
                whole.clear();
                self.line = whole;
            }
            self.at_start = false;
            chunk = &rest[1..];
            if rest[0] == b'\r' {
                match chunk.split_first() {
                    Some((b'\n', rest)) => chunk = rest,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
        }
        self.bounded(chunk.len())?;
        self.line.extend_from_slice(chunk);
        Ok(())
    }

    fn bounded(&self, more: usize) -> Result<(), EventTooLarge> {
        // The field's name and the colon are not the sender's to pay for.
        let held = self.line.len() + self.data.len() + more;
        if held > self.limit.saturating_add(64) { Err(EventTooLarge { limit: self.limit }) } else { Ok(()) }
    }

    fn take_line(&mut self, line: &[u8], events: &mut Vec<Bytes>) {
        let line = if self.at_start { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if line.is_empty() {
            return self.take_event(events);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(0) => return, // a comment
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &line[line.len()..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value);
            }
            b"event" => self.foreign = !(value.is_empty() || value == b"message"),
            _ => {}
        }
    }

    fn take_event(&mut self, events: &mut Vec<Bytes>) {
        let data = std::mem::take(&mut self.data);
        self.has_data = false;
        // Keep-alives are events whose data is empty, or nothing but blanks.
        if !std::mem::take(&mut self.foreign) && !data.iter().all(u8::is_ascii_whitespace) {
            events.push(data.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(stream: &[u8]) -> Vec<String> {
        in_chunks(stream, stream.len().max(1))
    }

    fn in_chunks(stream: &[u8], size: usize) -> Vec<String> {
        let mut splitter = Splitter::new(1 << 20);
        let mut events = Vec::new();
        for chunk in stream.chunks(size) {
            splitter.push(chunk, &mut events).unwrap();
        }
        events.into_iter().map(|event| String::from_utf8(event.to_vec()).unwrap()).collect()
    }

    /// C16: LF, CRLF, lone CR and a mixture of them end lines alike.
    #[test]
    fn c16_every_line_ending_gives_the_same_event() {
        let message = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        for [a, b, c] in [
            ["\n", "\n", "\n"],
            ["\r\n", "\r\n", "\r\n"],
            ["\r", "\r", "\r"],
            ["\r\n", "\n", "\r"],
            ["\r", "\r\n", "\n"],
        ] {
            let stream = format!("event: message{a}data: {message}{b}{c}");
            for size in 1..stream.len() {
                assert_eq!(in_chunks(stream.as_bytes(), size), [message], "{stream:?} in chunks of {size}");
            }
        }
    }

    /// C17: data over several lines, comments, empty events, an optional blank, foreign events.
    #[test]
    fn c17_data_lines_join_and_what_is_no_message_is_skipped() {
        let stream = ": ping\n\ndata:\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\ndata: \"result\":{}}\n\n\
                      data:{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}\n\nevent: other\ndata: {\"id\":4}\n\n\
                      data\n\nid: 7\nretry: 10\n\nevent:\ndata:  x\n\n";
        assert_eq!(
            read(stream.as_bytes()),
            ["{\"jsonrpc\":\"2.0\",\"id\":2,\n\"result\":{}}", r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, " x"]
        );
    }

    #[test]
    fn a_byte_order_mark_is_skipped_once_and_a_cut_event_is_not_given_out() {
        assert_eq!(read(b"\xef\xbb\xbfdata: a\n\ndata: b\n"), ["a"]);
        assert_eq!(read("data: a\n\n\u{feff}data: b\n\n".as_bytes()), ["a"]);
    }

    #[test]
    fn an_event_above_the_limit_is_an_error_however_it_comes() {
        let limit = 100;
        let mut events = Vec::new();
        let one_line = [b"data: ".as_slice(), &[b'x'; 200]].concat();
        assert_eq!(Splitter::new(limit).push(&one_line, &mut events), Err(EventTooLarge { limit }));
        let mut splitter = Splitter::new(limit);
        let result = (0..200).try_for_each(|_| splitter.push(b"data: xxxxxxxxxx\n", &mut events));
        assert_eq!(result, Err(EventTooLarge { limit }));
        assert!(events.is_empty());
        let mut splitter = Splitter::new(limit);
        for _ in 0..1000 {
            splitter.push(&[b"data: ".as_slice(), &[b'x'; 90], b"\n\n"].concat(), &mut events).unwrap();
        }
        assert_eq!(events.len(), 1000);
    }

    fn piece() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "data",
            "data:",
            "data: ",
            ":",
            "event",
            "event: x",
            "event: message",
            "id: 1",
            " ",
            "{",
            "\u{feff}",
            "é",
            "\r",
            "\n",
            "\r\n",
            "\n\n",
            "\r\r",
            "x",
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_chunking_gives_the_same_events(
            pieces in prop::collection::vec(piece(), 0..40),
            cuts in prop::collection::vec(0usize..200, 0..12),
        ) {
            let stream = pieces.concat().into_bytes();
            let whole = read(&stream);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut splitter = Splitter::new(1 << 20);
            let mut events = Vec::new();
            for pair in cuts.windows(2) {
                splitter.push(&stream[pair[0]..pair[1]], &mut events).unwrap();
            }
            let events: Vec<String> =
                events.into_iter().map(|event| String::from_utf8(event.to_vec()).unwrap()).collect();
            prop_assert_eq!(events, whole);
        }
    }
}
