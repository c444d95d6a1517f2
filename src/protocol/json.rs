//! Small tools for JSON that is read without being built: spans, depth, strings.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

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

/// Whether `bytes` nest arrays and objects at most `limit` deep. Looks at brackets and strings only.
pub fn within_depth(bytes: &[u8], limit: usize) -> bool {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return false;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => loop {
                match memchr::memchr2(b'"', b'\\', &bytes[at.min(bytes.len())..]) {
                    None => return true,
                    Some(found) if bytes[at + found] == b'"' => {
                        at += found + 1;
                        break;
                    }
                    Some(found) => at += found + 2,
                }
            },
            _ => {}
        }
    }
    true
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

/// The members of one object, in order, raw; a key that occurs twice is an error.
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a str)>);

/// Reads `raw` as an object without looking into its members.
pub fn members(raw: &str) -> Result<Members<'_>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(raw);
    let members = MembersSeed.deserialize(&mut reader)?;
    reader.end()?;
    Ok(members)
}

/// Reads members inside another reader.
pub struct MembersSeed;

impl<'de> DeserializeSeed<'de> for MembersSeed {
    type Value = Members<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Members<'de>, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members: Vec<(Cow<'de, str>, &'de str)> = Vec::with_capacity(4);
                while let Some(key) = map.next_key::<Key<'de>>()? {
                    if members.iter().any(|(known, _)| *known == key.0) {
                        return Err(A::Error::custom(format_args!("duplicate key `{}`", key.0)));
                    }
                    let value: &'de serde_json::value::RawValue = map.next_value()?;
                    members.push((key.0, value.get()));
                    if members.len() > 256 {
                        return Err(A::Error::custom("more than 256 members"));
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// A key, borrowed where it has no escapes (a plain `Cow` would always allocate).
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

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
    fn depth_counts_brackets_outside_strings_only() {
        assert!(within_depth(br#"{"a":[1,{"b":"[[[[[[\"]]]"}]}"#, 3));
        assert!(!within_depth(br#"{"a":[1,{"b":[]}]}"#, 3));
        assert!(within_depth(br#""unclosed \"#, 1));
        assert!(!within_depth(&[b'['; 100], 64));
    }

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
