//! JSON pointers (RFC 6901) into raw JSON, which is not built for it.

use crate::protocol::json::{members, unquote};
use serde_json::value::RawValue;

/// Where in a JSON text a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    text: Box<str>,
    parts: Box<[Box<str>]>,
}

impl Pointer {
    /// Reads `/a/b/0`. The error is a fragment that reads well behind the name of a key.
    pub fn parse(text: &str) -> Result<Pointer, &'static str> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err("is not a JSON pointer; write it as \"/structuredContent/next\"");
        };
        if text.len() > 256 || text.matches('/').count() > 16 {
            return Err("is a pointer of more than 16 parts or 256 letters");
        }
        let part = |part: &str| {
            let fine = part.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            fine.then(|| part.replace("~1", "/").replace("~0", "~").into())
        };
        let parts: Option<_> = rest.split('/').map(part).collect();
        Ok(Pointer { text: text.into(), parts: parts.ok_or("has a ~ that is neither ~0 nor ~1")? })
    }

    /// The raw value at this place; none if there is none, or if what is above it cannot be read.
    pub fn find<'a>(&self, json: &'a str) -> Option<&'a str> {
        let mut value = json.trim_ascii();
        for part in &self.parts {
            value = if value.starts_with('[') {
                let at: usize = part.parse().ok()?;
                serde_json::from_str::<Vec<&RawValue>>(value).ok()?.get(at)?.get()
            } else {
                members(value).ok()?.get(part)?
            };
        }
        Some(value)
    }
}

impl std::fmt::Display for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// A raw value as a finite number; a string that holds nothing else counts as one.
pub fn number(raw: &str) -> Option<f64> {
    let text = unquote(raw);
    let number: f64 = text.as_deref().unwrap_or(raw).trim().parse().ok()?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_finds_raw_values() {
        let json = r#" {"a":{"b/c":[1,{"~":"x"}]},"n":12345678901234567890123, "s":"7.5"} "#;
        let find = |pointer: &str| Pointer::parse(pointer).unwrap().find(json);
        assert_eq!(find("/a/b~1c/0"), Some("1"));
        assert_eq!(find("/a/b~1c/1/~0"), Some("\"x\""));
        assert_eq!(find("/n"), Some("12345678901234567890123"));
        for none in ["/a/b~1c/2", "/a/b~1c/x", "/x", "/n/0", "/a/b~1c/-"] {
            assert_eq!(find(none), None, "{none}");
        }
        for wrong in ["", "a", "#/a", "/~2", "/~"] {
            assert!(Pointer::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Pointer::parse(&"/a".repeat(17)).is_err());
        assert_eq!(Pointer::parse("/a").unwrap().find(r#"{"a":1,"a":2}"#), None, "no guess which of the two is meant");
        assert_eq!(Pointer::parse("/a").unwrap().find("not json"), None);
    }

    #[test]
    fn numbers_are_finite_and_may_stand_in_strings() {
        assert_eq!((number("12"), number("\" 7.5 \""), number("-1e3")), (Some(12.0), Some(7.5), Some(-1000.0)));
        for wrong in ["\"\"", "null", "true", "[1]", "\"12 rows\"", "1e999", "\"inf\"", "\"nan\""] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
