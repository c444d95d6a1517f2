//! Server-sent events out of bytes: what arrives is cut anywhere, what comes out is whole.

/// A message may be a snapshot of many upstreams; more than this is no stream of ours.
const LARGEST: usize = 64 << 20;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Sse {
    line: Vec<u8>,
    data: String,
    /// The line before ended with a carriage return, to which a line feed may belong.
    after_return: bool,
}

/// What arrives is not a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SseError {
    #[error("a message of the stream is too large")]
    TooLarge,
    #[error("the stream is not UTF-8")]
    NotText,
}

impl Sse {
    /// Takes in bytes, and gives the data of each event that is complete by now.
    ///
    /// # Errors
    /// It is not such a stream, or beyond what is taken.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, SseError> {
        let mut events = Vec::new();
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (part, None),
            };
            let follows_return = std::mem::take(&mut self.after_return);
            if follows_return && text.is_empty() && end == Some(b'\n') {
                continue;
            }
            self.line.extend_from_slice(text);
            if self.line.len() + self.data.len() > LARGEST {
                return Err(SseError::TooLarge);
            }
            if let Some(end) = end {
                self.after_return = end == b'\r';
                self.end_line(&mut events)?;
            }
        }
        Ok(events)
    }

    fn end_line(&mut self, events: &mut Vec<String>) -> Result<(), SseError> {
        let line = std::str::from_utf8(&self.line).map_err(|_| SseError::NotText)?;
        if line.is_empty() {
            if !self.data.is_empty() {
                events.push(std::mem::take(&mut self.data));
            }
        } else if let Some(data) = line.strip_prefix("data:") {
            if !self.data.is_empty() {
                self.data.push('\n');
            }
            self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
        }
        // Comments keep the connection alive; other fields say nothing that is not in the data.
        self.line.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_comments_and_other_fields() {
        let mut sse = Sse::default();
        let text = ": hello\n\nevent: changes\nid: 4\ndata: {\"a\":\ndata: 1}\n\ndata:x\r\n\r\ndata: half";
        assert_eq!(sse.feed(text.as_bytes()).unwrap(), ["{\"a\":\n1}", "x"]);
        assert_eq!(sse.feed(b"\n\n").unwrap(), ["half"]);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_the_bytes_are_cut(data in proptest::collection::vec("[a-zé{}]{1,12}", 1..6), cuts in proptest::collection::vec(0usize..200, 0..12)) {
            let whole: String = data.iter().map(|data| format!("data: {data}\r\n\r\n")).collect();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut % (whole.len() + 1)).chain([0, whole.len()]).collect();
            cuts.sort_unstable();
            let mut sse = Sse::default();
            let mut out = Vec::new();
            for pair in cuts.windows(2) {
                out.extend(sse.feed(&whole.as_bytes()[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(out, data);
        }

        #[test]
        fn no_bytes_break_it(bytes in any::<Vec<u8>>()) {
            let _ = Sse::default().feed(&bytes);
        }
    }
}
