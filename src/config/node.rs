//! A config's text as a tree that knows where each value stands; one tree for TOML and for JSON with comments.
//! What the values mean is left to others.

use super::fault::Finding;
use super::fault::Place;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One value and where it stands, in bytes of the text.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub span: Range<usize>,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    /// None is a whole number beyond 64 bits.
    Whole(Option<i64>),
    Real(f64),
    Flag(bool),
    /// A date, or JSON's null: nothing that any key takes.
    Other(&'static str),
    Array(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub key_span: Range<usize>,
    pub node: Node,
}

impl Value {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a string",
            Value::Whole(_) => "a whole number",
            Value::Real(_) => "a number",
            Value::Flag(_) => "true or false",
            Value::Other(kind) => kind,
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// A text with its file name, for turning offsets into lines.
#[derive(Debug)]
pub(super) struct Text {
    file: PathBuf,
    text: String,
    line_starts: Vec<usize>,
}

impl Text {
    /// Takes a file's bytes; a byte order mark is dropped.
    pub(super) fn new(file: &Path, bytes: Vec<u8>) -> Result<Self, Finding> {
        let fault = |place, message: &str, hint: &str| Finding {
            place,
            key: String::new(),
            message: message.into(),
            hint: Some(hint.into()),
        };
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
            let at = good.len();
            let place = Text::of(file, good).place(at);
            fault(place, "is not UTF-8 from here on", "save the file as UTF-8")
        })?;
        let text = match text.strip_prefix('\u{feff}') {
            Some(rest) => rest.to_owned(),
            None => text,
        };
        if text.trim().is_empty() {
            let hint = "write the config, or go back to the last good one; an empty file is never taken for one";
            return Err(fault(Place::WholeFile(file.into()), "is empty", hint));
        }
        Ok(Text::of(file, text))
    }

    fn of(file: &Path, text: String) -> Self {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Text { file: file.into(), text, line_starts }
    }

    pub(super) fn place(&self, at: usize) -> Place {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let line = self.line_starts.partition_point(|start| *start <= at).max(1);
        let column = self.text[self.line_starts[line - 1]..at].chars().count() + 1;
        Place::File { file: self.file.clone(), line, column }
    }

    fn fault(&self, at: usize, message: String, hint: Option<String>) -> Finding {
        Finding { place: self.place(at), key: String::new(), message, hint }
    }

    /// Reads it as TOML. With a key given twice there is a tree too, so that the other faults can be told.
    pub(super) fn parse_toml(&self) -> (Option<Node>, Vec<Finding>) {
        let (tree, errors) = toml::de::DeTable::parse_recoverable(&self.text);
        let mut only_twice = true;
        let faults = errors.iter().take(20).map(|error| {
            let at = error.span().map_or(self.text.len(), |span| span.start);
            let twice = error.message() == "duplicate key";
            only_twice &= twice;
            if twice {
                let mut fault = self.fault(at, "was given before".into(), Some("keep one of the two".into()));
                fault.key = error.span().and_then(|span| self.text.get(span)).map(shown_key).unwrap_or_default();
                fault
            } else {
                let hint = "strings stand in double quotes, a table begins with [name] on a line of its own";
                self.fault(at, format!("not TOML: {}", error.message()), Some(hint.into()))
            }
        });
        let faults: Vec<Finding> = faults.collect();
        let span = tree.span();
        let tree = only_twice.then(|| Node { span, value: from_table(tree.into_inner()) });
        (tree, faults)
    }

    /// Reads it as JSON with comments and trailing commas.
    pub(super) fn parse_json(&self) -> (Option<Node>, Vec<Finding>) {
        let options = jsonc_parser::ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let mut faults = Vec::new();
        let tree = match jsonc_parser::parse_to_ast(&self.text, &jsonc_parser::CollectOptions::default(), &options) {
            Ok(parsed) => parsed.value.map(|value| self.json_node(value, &mut faults)),
            Err(error) => {
                let kind = error.kind().to_string();
                let hint = "comments and trailing commas are fine; keys and strings stand in double quotes";
                faults.push(self.fault(
                    error.range().start,
                    format!("not JSON: {}", kind.to_lowercase()),
                    Some(hint.into()),
                ));
                return (None, faults);
            }
        };
        if tree.is_none() {
            faults.push(self.fault(
                0,
                "holds comments only".into(),
                Some("write the servers under `mcpServers`".into()),
            ));
        }
        (tree, faults)
    }

    fn json_node(&self, value: jsonc_parser::ast::Value<'_>, faults: &mut Vec<Finding>) -> Node {
        use jsonc_parser::ast::Value as Json;
        use jsonc_parser::common::Ranged as _;
        let range = value.range();
        let value = match value {
            Json::StringLit(text) => Value::Text(text.value.into_owned()),
            Json::NumberLit(number) => number_of(number.value),
            Json::BooleanLit(flag) => Value::Flag(flag.value),
            Json::NullKeyword(_) => Value::Other("null"),
            Json::Array(array) => {
                Value::Array(array.elements.into_iter().map(|element| self.json_node(element, faults)).collect())
            }
            Json::Object(object) => {
                let mut entries: Vec<Entry> = Vec::new();
                let mut seen = std::collections::HashSet::new();
                for property in object.properties {
                    let start = property.range.start;
                    let node = self.json_node(property.value, faults);
                    let key = property.name.into_string();
                    if !seen.insert(key.clone()) {
                        let mut fault =
                            self.fault(start, "was given before".into(), Some("keep one of the two".into()));
                        fault.key = shown_key(&key);
                        faults.push(fault);
                        continue;
                    }
                    entries.push(Entry { key, key_span: start..node.span.end, node });
                }
                Value::Table(entries)
            }
        };
        Node { span: range.start..range.end, value }
    }
}

/// A key as messages show it: short, and with nothing in it that a terminal obeys.
pub(super) fn shown_key(key: &str) -> String {
    let mut shown: String = key.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect();
    if key.chars().nth(64).is_some() {
        shown.push_str("...");
    }
    shown
}

fn number_of(text: &str) -> Value {
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-' || byte == b'+') {
        return Value::Whole(text.parse().ok());
    }
    Value::Real(text.parse().unwrap_or(f64::NAN))
}

fn from_table(table: toml::de::DeTable<'_>) -> Value {
    let mut entries: Vec<Entry> = table
        .into_iter()
        .map(|(key, value)| {
            let key_span = key.span();
            Entry { key: key.into_inner().into_owned(), key_span, node: from_toml(value) }
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_span.start);
    Value::Table(entries)
}

fn from_toml(value: toml::Spanned<toml::de::DeValue<'_>>) -> Node {
    use toml::de::DeValue;
    let span = value.span();
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => Value::Whole(i64::from_str_radix(number.as_str(), number.radix()).ok()),
        DeValue::Float(number) => Value::Real(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(flag) => Value::Flag(flag),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(array) => Value::Array(array.into_iter().map(from_toml).collect()),
        DeValue::Table(table) => from_table(table),
    };
    Node { span, value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let text = Text::new(Path::new("f"), "é = 1\nab = \"😀\" x".into()).unwrap();
        let at = |at| match text.place(at) {
            Place::File { line, column, .. } => (line, column),
            _ => unreachable!(),
        };
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(3), (1, 3));
        assert_eq!(at(7), (2, 1));
        assert_eq!(at(13), (2, 7), "inside a character");
        assert_eq!(at(999), (2, 11));
    }

    #[test]
    fn deep_nesting_is_a_fault_and_no_overflow() {
        let deep = 200_000;
        let toml = Text::new(Path::new("f"), format!("a = {}", "[".repeat(deep)).into()).unwrap();
        assert!(!toml.parse_toml().1.is_empty());
        let json = Text::new(Path::new("f"), "[".repeat(deep).into()).unwrap();
        assert!(!json.parse_json().1.is_empty());
        let dotted = Text::new(Path::new("f"), format!("a{} = 1", ".a".repeat(deep)).into()).unwrap();
        assert!(!dotted.parse_toml().1.is_empty());
    }
}
