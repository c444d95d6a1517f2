//! JSON that is read without being built: spans, strings, the members of an object.

mod scan;

pub use scan::{Fault, Scanner};

use smallvec::SmallVec;
use std::borrow::Cow;

/// A stretch of a message's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// Where `part`, a slice of `whole`, lies in it.
    pub fn of(whole: &str, part: &str) -> Span {
        let start = part.as_ptr() as usize - whole.as_ptr() as usize;
        Span { start: start as u32, end: (start + part.len()) as u32 }
    }

    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    pub fn of_bytes(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.range()]
    }
}

/// The text of a JSON string given with its quotes; borrowed where it has no escapes.
pub fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
}

/// Appends `text` as a JSON string with its quotes.
pub fn quote_into(text: &str, out: &mut Vec<u8>) {
    // Writing to a Vec cannot fail, and a string always serialises.
    let _ = serde_json::to_writer(out, text);
}

/// The members of one object, in order, raw; a key that occurs twice is a fault.
pub struct Members<'a>(pub SmallVec<[(Cow<'a, str>, &'a str); 8]>);

/// Reads `raw` as an object without looking into its members.
pub fn members(raw: &str) -> Result<Members<'_>, Fault> {
    members_within(raw, usize::MAX)
}

/// As [`members`], for an object that nests at most `deepest` levels.
pub fn members_within(raw: &str, deepest: usize) -> Result<Members<'_>, Fault> {
    let mut scanner = Scanner::new(raw, deepest);
    let mut members = SmallVec::new();
    scanner.object(|scanner, key| {
        let value = scanner.value()?;
        members.push((key.clone(), scanner.text(value)));
        Ok(())
    })?;
    scanner.end()?;
    Ok(Members(members))
}

impl<'a> Members<'a> {
    /// The raw value of `key`.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_text_and_their_order() {
        let read = members(r#"{ "b" : 1.10, "a":{"x": [ 1 ]} ,"\u0063":"é" }"#).unwrap();
        let pairs: Vec<_> = read.0.iter().map(|(key, value)| (&**key, *value)).collect();
        assert_eq!(pairs, [("b", "1.10"), ("a", r#"{"x": [ 1 ]}"#), ("c", "\"é\"")]);
        assert!(members(r#"{"a":1,"\u0061":2}"#).is_err());
        assert!(members(r#"{"a":1} x"#).is_err());
        assert!(members("[1]").is_err());
    }
}
