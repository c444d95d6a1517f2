//! Arguments of a tool that its requests repeat in headers (`x-mcp-header`, revision 2026-07-28).
//!
//! A tool whose annotations break the rules is no tool at all for a client, and so for us.

use super::json::{members, unquote};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;

/// In a property's schema.
const KEY: &str = "x-mcp-header";
/// Before the header's own name.
const PREFIX: &str = "mcp-param-";
/// The largest integer that every party reads alike.
const SAFE: i64 = (1 << 53) - 1;

/// One argument and its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The keys that lead to the argument.
    path: Vec<Box<str>>,
    pub header: HeaderName,
}

/// The mirrored arguments of a tool, given as the list has it.
///
/// # Errors
/// What is wrong with an annotation; such a tool must not be offered.
pub fn of_tool(tool: &str) -> Result<Vec<Mirror>, String> {
    if memchr::memmem::find(tool.as_bytes(), KEY.as_bytes()).is_none() {
        return Ok(Vec::new());
    }
    let tool: Value = serde_json::from_str(tool).map_err(|fault| fault.to_string())?;
    let Some(schema) = tool.get("inputSchema") else { return Ok(Vec::new()) };
    let (mut found, mut names) = (Vec::new(), HashSet::new());
    walk(schema, &mut Vec::new(), &mut found, &mut names)?;
    if count(schema) != found.len() {
        return Err(format!("`{KEY}` stands where no chain of `properties` leads"));
    }
    Ok(found)
}

fn walk(
    schema: &Value,
    path: &mut Vec<Box<str>>,
    found: &mut Vec<Mirror>,
    names: &mut HashSet<String>,
) -> Result<(), String> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    for (key, property) in properties {
        path.push(key.as_str().into());
        if let Some(name) = property.get(KEY) {
            let name = name.as_str().ok_or_else(|| format!("`{KEY}` of `{key}` is no string"))?;
            let token = !name.is_empty() && name.bytes().all(is_token);
            let header = HeaderName::from_bytes(format!("{PREFIX}{name}").to_ascii_lowercase().as_bytes());
            let (true, Ok(header)) = (token, header) else {
                return Err(format!("`{KEY}` of `{key}` is no header name"));
            };
            if !matches!(property.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
                return Err(format!("`{KEY}` of `{key}` is on no string, integer or boolean"));
            }
            if !names.insert(name.to_ascii_lowercase()) {
                return Err(format!("two arguments have the header `{name}`"));
            }
            found.push(Mirror { path: path.clone(), header });
        }
        walk(property, path, found, names)?;
        path.pop();
    }
    Ok(())
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// How often the annotation stands in a schema, wherever.
fn count(schema: &Value) -> usize {
    match schema {
        Value::Object(all) => {
            let here = usize::from(all.contains_key(KEY));
            // A property may well be named like the annotation.
            let inner = all.iter().filter(|(key, _)| *key != KEY);
            here + inner
                .map(|(key, value)| if key == "properties" { properties(value) } else { count(value) })
                .sum::<usize>()
        }
        Value::Array(all) => all.iter().map(count).sum(),
        _ => 0,
    }
}

fn properties(schema: &Value) -> usize {
    schema.as_object().map_or(0, |all| all.values().map(count).sum())
}

impl Mirror {
    /// The argument's value as text; none if it is absent, null, or nothing that a header carries.
    pub fn value<'a>(&self, arguments: &'a str) -> Option<Cow<'a, str>> {
        let mut raw = arguments;
        for key in &self.path {
            // Borrowed from the text itself, so it outlives the members.
            raw = members(raw).ok()?.get(key)?;
        }
        match raw.as_bytes().first()? {
            b'"' => unquote(raw),
            b't' | b'f' => Some(Cow::Borrowed(raw)),
            b'-' | b'0'..=b'9' => {
                // Whole numbers in another form are written as what they are.
                let number = raw.parse::<i64>().ok().or_else(|| {
                    let real =
                        raw.parse::<f64>().ok().filter(|real| real.fract() == 0.0 && real.abs() <= SAFE as f64)?;
                    Some(real as i64)
                });
                number.filter(|number| number.abs() <= SAFE).map(|number| Cow::Owned(number.to_string()))
            }
            _ => None,
        }
    }

    /// Whether what the header says is the argument's value.
    pub fn agrees(&self, value: &str, header: &str) -> bool {
        let Some(said) = decode(header) else { return false };
        let number = |text: &str| text.parse::<f64>().ok();
        *said == *value
            || (value.parse::<i64>().is_ok() && number(&said).is_some_and(|said| number(value) == Some(said)))
    }
}

/// Undoes `=?base64?...?=`; any other value stands for itself. None if it cannot be read.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(properties: &str) -> String {
        format!(r#"{{"name":"t","inputSchema":{{"type":"object","properties":{properties}}}}}"#)
    }

    #[test]
    fn annotations_lead_to_arguments() {
        let found = of_tool(&tool(
            r#"{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"object","properties":{"c":{"type":"integer","x-mcp-header":"N"}}}}"#,
        ))
        .unwrap();
        let names: Vec<_> = found.iter().map(|mirror| mirror.header.as_str()).collect();
        assert_eq!(names, ["mcp-param-region", "mcp-param-n"]);
        let arguments = r#"{"a":"é\n","b":{"c":42.0}}"#;
        assert_eq!(found[0].value(arguments).as_deref(), Some("é\n"));
        assert_eq!(found[1].value(arguments).as_deref(), Some("42"));
        for nothing in ["{}", r#"{"a":null,"b":{"c":1.5}}"#, r#"{"a":[],"b":{"c":9007199254740993}}"#, "[]"] {
            assert_eq!((found[0].value(nothing), found[1].value(nothing)), (None, None), "{nothing}");
        }
        assert!(found[1].agrees("42", "42.0") && !found[1].agrees("42", "43") && !found[0].agrees("a", "A"));
        assert!(found[0].agrees("Hello", "=?base64?SGVsbG8=?="));
        for bad in ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?="] {
            assert!(!found[0].agrees("Hello", bad), "{bad}");
        }
    }

    #[test]
    fn a_tool_with_a_broken_annotation_is_none() {
        for bad in [
            r#"{"a":{"type":"string","x-mcp-header":""}}"#,
            r#"{"a":{"type":"string","x-mcp-header":"a b"}}"#,
            r#"{"a":{"type":"string","x-mcp-header":"a\n"}}"#,
            r#"{"a":{"type":"string","x-mcp-header":7}}"#,
            r#"{"a":{"type":"number","x-mcp-header":"A"}}"#,
            r#"{"a":{"type":"object","x-mcp-header":"A"}}"#,
            r#"{"a":{"x-mcp-header":"A"}}"#,
            r#"{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}"#,
            r#"{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}"#,
            r#"{"a":{"anyOf":[{"type":"string","x-mcp-header":"A"}]}}"#,
        ] {
            assert!(of_tool(&tool(bad)).is_err(), "{bad}");
        }
        assert_eq!(of_tool(&tool(r#"{"x-mcp-header":{"type":"string"}}"#)), Ok(Vec::new()));
    }
}
