//! A strict reader of JSON that keeps places instead of values.
//!
//! It walks a text once, checks it against the grammar (RFC 8259), and says where each member lies, so that
//! a message can be cut and spliced without being built. It never recurses without a bound. What it accepts
//! and refuses is held against `serde_json` by property tests.

use super::Span;
use smallvec::SmallVec;
use std::borrow::Cow;

/// Deepest nesting that is read at all, whatever the caller of the scanner allows.
const DEEPEST: usize = 512;
/// Most members of an object that is looked into; one that is skipped may have any number.
const MOST_MEMBERS: usize = 256;

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{what} at byte {at}")]
    Syntax { what: &'static str, at: usize },
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
    #[error("duplicate key `{0}`")]
    Duplicate(String),
    /// A reader that does not tell case would take it for the other, and see another message than we do.
    #[error("the key `{0}` differs only in case from one that is read here: leave it out")]
    Lookalike(String),
    #[error("more than {MOST_MEMBERS} members in one object")]
    TooMany,
    #[error("expected an object at byte {0}")]
    NoObject(usize),
}

impl Fault {
    /// The text is JSON; it is what it says that cannot be taken.
    pub fn is_data(&self) -> bool {
        match self {
            Fault::Syntax { .. } => false,
            Fault::TooDeep(_) | Fault::Duplicate(_) | Fault::Lookalike(_) | Fault::TooMany | Fault::NoObject(_) => true,
        }
    }
}

/// See the module's documentation.
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    deepest: usize,
}

impl<'a> Scanner<'a> {
    /// Reads `text`, at most `deepest` levels deep.
    pub fn new(text: &'a str, deepest: usize) -> Self {
        Scanner { text, at: 0, depth: 0, deepest: deepest.min(DEEPEST) }
    }

    /// Reads one object. `member` is given each key and must consume its value, by [`Scanner::value`] or by
    /// [`Scanner::object`]. A key that occurs twice is a fault.
    pub fn object(&mut self, member: impl FnMut(&mut Self, &Cow<'a, str>) -> Result<(), Fault>) -> Result<Span, Fault> {
        self.members(true, member)
    }

    /// As [`Scanner::object`], for one that is only looked at and never written anew: any number of members,
    /// keys that occur twice, and keys that are no Unicode text, which are given as empty.
    pub fn loose_object(
        &mut self,
        member: impl FnMut(&mut Self, &Cow<'a, str>) -> Result<(), Fault>,
    ) -> Result<Span, Fault> {
        self.members(false, member)
    }

    fn members(
        &mut self,
        strict: bool,
        mut member: impl FnMut(&mut Self, &Cow<'a, str>) -> Result<(), Fault>,
    ) -> Result<Span, Fault> {
        self.blanks();
        let start = self.at;
        if self.peek() != Some(b'{') {
            // Anything that is not JSON at all is told as such.
            self.value()?;
            return Err(Fault::NoObject(start));
        }
        self.at += 1;
        self.depth += 1;
        if self.depth > self.deepest {
            return Err(Fault::TooDeep(self.deepest));
        }
        let mut keys: SmallVec<[Cow<'a, str>; 12]> = SmallVec::new();
        self.blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                let key = self.key(strict)?;
                if keys.contains(&key) {
                    return Err(Fault::Duplicate(key.chars().take(100).collect()));
                }
                if keys.len() == MOST_MEMBERS {
                    return Err(Fault::TooMany);
                }
                self.blanks();
                self.expect(b':', "expected `:`")?;
                self.blanks();
                member(self, &key)?;
                if strict {
                    keys.push(key);
                }
                self.blanks();
                match self.next() {
                    Some(b',') => self.blanks(),
                    Some(b'}') => break,
                    _ => return Err(self.wrong("expected `,` or `}`")),
                }
            }
        }
        self.depth -= 1;
        Ok(Span { start: start as u32, end: self.at as u32 })
    }

    /// Reads one value of any kind and says where it lies.
    pub fn value(&mut self) -> Result<Span, Fault> {
        self.blanks();
        let start = self.at;
        // One bit a level: whether it is an object.
        let mut objects = [0u64; DEEPEST / 64];
        let mut depth = self.depth;
        let base = self.depth;
        loop {
            match self.peek() {
                Some(open @ (b'{' | b'[')) => {
                    self.at += 1;
                    depth += 1;
                    if depth > self.deepest {
                        return Err(Fault::TooDeep(self.deepest));
                    }
                    let bit = 1 << (depth % 64);
                    let word = &mut objects[depth / 64 % (DEEPEST / 64)];
                    if open == b'{' {
                        *word |= bit;
                    } else {
                        *word &= !bit;
                    }
                    self.blanks();
                    match (open, self.peek()) {
                        (b'{', Some(b'}')) | (b'[', Some(b']')) => {
                            self.at += 1;
                            depth -= 1;
                        }
                        (b'{', _) => {
                            self.member_key()?;
                            continue;
                        }
                        _ => continue,
                    }
                }
                Some(b'"') => drop(self.string()?),
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word("true")?,
                Some(b'f') => self.word("false")?,
                Some(b'n') => self.word("null")?,
                Some(_) => return Err(self.wrong("expected a value")),
                None => return Err(self.wrong("unexpected end")),
            }
            // A value has ended: close what closes, or go on to the next one.
            loop {
                if depth == base {
                    return Ok(Span { start: start as u32, end: self.at as u32 });
                }
                let object = objects[depth / 64 % (DEEPEST / 64)] & (1 << (depth % 64)) != 0;
                self.blanks();
                match (self.next(), object) {
                    (Some(b','), true) => {
                        self.blanks();
                        self.member_key()?;
                        break;
                    }
                    (Some(b','), false) => {
                        self.blanks();
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => depth -= 1,
                    (_, true) => return Err(self.wrong("expected `,` or `}`")),
                    (_, false) => return Err(self.wrong("expected `,` or `]`")),
                }
            }
        }
    }

    /// Sees to it that nothing follows.
    pub fn end(mut self) -> Result<(), Fault> {
        self.blanks();
        if self.at == self.text.len() { Ok(()) } else { Err(self.wrong("trailing characters")) }
    }

    /// The next byte of the value that comes.
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// A place to come back to with [`Scanner::rewind`].
    pub fn mark(&self) -> (usize, usize) {
        (self.at, self.depth)
    }

    pub fn rewind(&mut self, mark: (usize, usize)) {
        (self.at, self.depth) = mark;
    }

    /// The text of a span.
    pub fn text(&self, span: Span) -> &'a str {
        &self.text[span.range()]
    }

    fn key(&mut self, strict: bool) -> Result<Cow<'a, str>, Fault> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.wrong("expected a key"));
        }
        if !self.string()? {
            return Ok(Cow::Borrowed(&self.text[start + 1..self.at - 1]));
        }
        match super::unquote(&self.text[start..self.at]) {
            Some(key) => Ok(key),
            None if strict => Err(Fault::Syntax { what: "the key cannot be read", at: start }),
            None => Ok(Cow::Borrowed("")),
        }
    }

    /// A key that nobody asks for, and its colon.
    fn member_key(&mut self) -> Result<(), Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong("expected a key"));
        }
        self.string()?;
        self.blanks();
        self.expect(b':', "expected `:`")?;
        self.blanks();
        Ok(())
    }

    /// Passes a string; says whether it has escapes.
    fn string(&mut self) -> Result<bool, Fault> {
        let bytes = self.text.as_bytes();
        let mut escapes = false;
        self.at += 1;
        loop {
            self.at += plain_prefix(&bytes[self.at..]);
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escapes);
                }
                Some(b'\\') => match bytes.get(self.at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                        (self.at, escapes) = (self.at + 2, true)
                    }
                    Some(b'u') => {
                        let digits = bytes.get(self.at + 2..self.at + 6);
                        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                            return Err(self.wrong("bad \\u escape"));
                        }
                        (self.at, escapes) = (self.at + 6, true);
                    }
                    _ => return Err(self.wrong("bad escape")),
                },
                Some(_) => return Err(self.wrong("control character in a string")),
                None => return Err(self.wrong("unclosed string")),
            }
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.next() {
            Some(b'0') => {}
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.wrong("bad number")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(())
    }

    fn some_digits(&mut self) -> Result<(), Fault> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.wrong("bad number"));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Fault> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.wrong("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += usize::from(byte.is_some());
        byte
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Fault> {
        if self.peek() != Some(byte) {
            return Err(self.wrong(what));
        }
        self.at += 1;
        Ok(())
    }

    fn wrong(&self, what: &'static str) -> Fault {
        Fault::Syntax { what, at: self.at }
    }
}

/// How many bytes at the head need no look: no quote, no backslash, no control character. Eight at a time.
fn plain_prefix(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    let mut at = 0;
    while let Some(eight) = bytes.get(at..at + 8) {
        let mut word = [0; 8];
        word.copy_from_slice(eight);
        let word = u64::from_le_bytes(word);
        let (quote, slash) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        // A byte's high bit is set where the byte is below 0x20, or zero after the exclusive or. A borrow
        // can only set bits above a true one, so the lowest set bit is always true.
        let found = ((word.wrapping_sub(ONES * 0x20) & !word)
            | (quote.wrapping_sub(ONES) & !quote)
            | (slash.wrapping_sub(ONES) & !slash))
            & HIGH;
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + bytes[at..].iter().take_while(|byte| **byte >= 0x20 && **byte != b'"' && **byte != b'\\').count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    fn scanned(text: &str) -> Result<Span, Fault> {
        let mut scanner = Scanner::new(text, DEEPEST);
        let span = scanner.value()?;
        scanner.end()?;
        Ok(span)
    }

    /// Texts that are JSON, or nearly so.
    fn nearly_json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".into()),
            "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
            "\"[a-zé😀 ]{0,12}\"",
            "\"(\\\\[\"\\\\/bfnrtu]|\\\\u00e9|[a-c]){0,4}\"",
        ];
        let json = leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[{}]", all.join(" , "))),
                proptest::collection::vec(("[a-d]{0,3}", inner), 0..4).prop_map(|all| {
                    let all: Vec<_> = all.iter().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
                    format!("{{{}}}", all.join(","))
                }),
            ]
        });
        (json, any::<prop::sample::Index>(), 0..6u8, "[\\[\\]{}:,\"\\\\0-9.eE+\\- \u{1}\n]").prop_map(
            |(mut text, place, kind, wrong)| {
                let at =
                    text.char_indices().map(|(at, _)| at).nth(place.index(text.chars().count().max(1))).unwrap_or(0);
                match kind {
                    0 => text.insert_str(at, &wrong),
                    1 if !text.is_empty() => drop(text.remove(at)),
                    2 => text.truncate(at),
                    _ => {}
                }
                text
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        #[test]
        fn what_is_json_is_decided_as_serde_json_does(text in nearly_json()) {
            let raw = serde_json::from_str::<&RawValue>(&text);
            let ours = scanned(&text);
            prop_assert_eq!(raw.is_ok(), ours.is_ok(), "{:?}: {:?} {:?}", text, raw, ours);
            if let (Ok(raw), Ok(span)) = (raw, ours) {
                prop_assert_eq!(raw.get(), &text[span.range()]);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            prop_assert_eq!(serde_json::from_str::<&RawValue>(&text).is_ok(), scanned(&text).is_ok(), "{:?}", text);
        }

        #[test]
        fn the_plain_head_of_a_string_is_found(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let plain = bytes.iter().take_while(|byte| **byte >= 0x20 && **byte != b'"' && **byte != b'\\').count();
            prop_assert_eq!(plain_prefix(&bytes), plain);
        }
    }

    #[test]
    fn depth_is_bounded_exactly() {
        for (deepest, depth, fits) in [(3, 3, true), (3, 4, false), (600, 512, true), (600, 513, false), (64, 64, true)]
        {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let mut scanner = Scanner::new(&text, deepest);
                assert_eq!(scanner.value().is_ok(), fits, "{depth} of {deepest}");
            }
        }
        let half = "[".repeat(100_000);
        assert_eq!(scanned(&half), Err(Fault::TooDeep(512)));
    }

    #[test]
    fn the_depth_outside_a_value_counts_too() {
        let text = r#"{"a":{"b":[[1]]}}"#;
        let read = |deepest| {
            let mut scanner = Scanner::new(text, deepest);
            scanner.object(|scanner, _| scanner.object(|scanner, _| scanner.value().map(drop)).map(drop))
        };
        assert!(read(4).is_ok());
        assert_eq!(read(3), Err(Fault::TooDeep(3)));
    }
}
