//! The table of keys as a JSON Schema, for editors. What only the daemon can know (names that fit, limits that fit each
//! other, variables that are set) is left to `forebay check`.
//!
//! Every scalar may also be a string with `${...}` in it, and a number a string, so the schema allows that too.

use super::schema::{self, Key, QUOTA, RANGE, RATE, Section};
use serde_json::{Map, Value, json};

/// The schema of a config file.
pub fn schema() -> Value {
    let table = |section: &Section| object(section, value);
    let gate = table(&schema::GATE);
    let tool = object(&schema::TOOL, |key| match key.name {
        "cursor" => table(&schema::CURSOR),
        "gate" => json!({ "anyOf": [gate, { "type": "array", "items": gate }] }),
        _ => value(key),
    });
    let upstream = object(&schema::UPSTREAM, |key| match key.name {
        "tools" => by_name(tool.clone()),
        _ => value(key),
    });
    let caller = table(&schema::CALLER);
    let mut root = object(&schema::ROOT, |key| match key.name {
        "listen" => table(&schema::LISTEN),
        "auth" => object(&schema::AUTH, |key| match key.name {
            "jwt" => table(&schema::JWT),
            _ => value(key),
        }),
        "global" => table(&schema::GLOBAL),
        "hooks" => table(&schema::HOOKS),
        "defaults" => table(&schema::DEFAULTS),
        "upstreams" => by_name(upstream.clone()),
        "callers" => by_name(caller.clone()),
        _ => value(key),
    });
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("forebay's configuration");
    root["required"] = json!(["upstreams"]);
    root
}

fn object(section: &Section, of: impl Fn(&Key) -> Value) -> Value {
    let mut properties = Map::new();
    for key in section.keys() {
        let mut value = of(key);
        value["description"] = json!(key.meaning);
        for name in std::iter::once(&key.name).chain(key.aliases) {
            properties.insert((*name).to_owned(), value.clone());
        }
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn by_name(value: Value) -> Value {
    json!({ "type": "object", "additionalProperties": value })
}

fn value(key: &Key) -> Value {
    let strings = json!({ "type": "array", "items": { "type": "string" } });
    match key.kind {
        "number, \"unlimited\" or { min, max }" => {
            json!({ "anyOf": [{ "type": ["integer", "string"] }, object(&RANGE, value)] })
        }
        "number" if key.name == "per_second" => json!({ "type": ["number", "string"] }),
        "number" if key.name == "max" => json!({ "type": ["number", "string"] }),
        "{ per_second, burst }" => object(&RATE, value),
        "{ bytes_per_minute, tokens_per_minute }" => object(&QUOTA, value),
        "fraction" => json!({ "type": ["number", "string"] }),
        // 0 is written as a number, everything else as a string with its unit.
        "number" | "JSON-RPC code" | "duration" | "size" => json!({ "type": ["integer", "string"] }),
        "true, false" => json!({ "anyOf": [{ "type": "boolean" }, { "enum": ["true", "false"] }, filled()] }),
        "list of user ids" => json!({ "type": "array", "items": { "type": ["integer", "string"] } }),
        kind if kind.starts_with("list of") => strings,
        "string or list of two" | "http(s) URL or list of strings" => {
            json!({ "anyOf": [{ "type": "string" }, strings] })
        }
        "table of strings" => by_name(json!({ "type": "string" })),
        "table" | "tables by name" => json!({ "type": "object" }),
        "string" | "JSON pointer" | "CEL expression" | "tool" | "path" | "http(s) URL" | "address:port"
        | "unix:PATH" => json!({ "type": "string" }),
        words => {
            let words: Vec<_> = words.split(", ").collect();
            json!({ "anyOf": [{ "enum": words }, filled()] })
        }
    }
}

/// A string that is filled in from outside.
fn filled() -> Value {
    json!({ "type": "string", "pattern": "\\$\\{" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a value by the part of JSON Schema that is used above.
    fn faults(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
        let mut no = |why: String| found.push(format!("{path}: {why}"));
        if let Some(any) = schema.get("anyOf").and_then(Value::as_array) {
            let fits = |one: &Value| {
                let mut inner = Vec::new();
                faults(one, value, path, &mut inner);
                inner.is_empty()
            };
            if !any.iter().any(fits) {
                no(format!("{value} fits none"));
            }
        }
        if let Some(words) = schema.get("enum").and_then(Value::as_array)
            && !words.contains(value)
        {
            no(format!("{value} is none of {words:?}"));
        }
        if schema.get("pattern").is_some() && !value.as_str().is_some_and(|text| text.contains("${")) {
            no(format!("{value} is not filled in"));
        }
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let is = |kind: &str| match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            other => panic!("{other} is not used"),
        };
        if !kinds.is_empty() && !kinds.iter().any(|kind| is(kind)) {
            no(format!("{value} is no {kinds:?}"));
        }
        if let (Some(items), Some(all)) = (schema.get("items"), value.as_array()) {
            all.iter().for_each(|one| faults(items, one, path, found));
        }
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            if value.get(key.as_str().unwrap()).is_none() {
                found.push(format!("{path}: {key} is missing"));
            }
        }
        for (key, inner) in value.as_object().into_iter().flatten() {
            let known = schema.get("properties").and_then(|known| known.get(key));
            let path = format!("{path}.{key}");
            match (known, schema.get("additionalProperties")) {
                (Some(known), _) => faults(known, inner, &path, found),
                (None, Some(Value::Bool(false))) => found.push(format!("{path}: is not known")),
                (None, Some(other)) => faults(other, inner, &path, found),
                (None, None) => {}
            }
        }
    }

    fn check(toml: &str) -> Vec<String> {
        let value: toml::Value = toml::from_str(toml).unwrap_or_else(|fault| panic!("{fault}: {toml}"));
        let mut found = Vec::new();
        faults(&schema(), &serde_json::to_value(value).unwrap(), "", &mut found);
        found
    }

    #[test]
    fn it_takes_every_example_there_is() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
        assert_eq!(check(&read("examples/forebay.toml")), [""; 0]);
        let mut seen = 0;
        for page in ["README.md", "docs/config.md"] {
            for block in read(page).split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
                assert_eq!(check(block), [""; 0], "{block}");
                seen += 1;
            }
        }
        assert!(seen > 0);
        let words = "[upstreams.a]\ncommand = \"x\"\nmax_concurrent = { min = 2, max = 20 }\nqueue_timeout = 0\n\
                     on_full = \"${MODE:-reject}\"\nqueue_size = \"${SLOTS:-5}\"\ncount_everything = true\n\
                     tools.t = { weight = 2, max_concurrent_requests = 1 }\n[callers.c]\nkey_hash = [\"a\", \"b\"]\n\
                     rate = { per_second = 0.5, burst = 2 }\n[global]\nmax_share = 0.5\n";
        assert_eq!(check(words), [""; 0]);
    }

    #[test]
    fn it_refuses_what_an_editor_should_underline() {
        let up = "[upstreams.a]\ncommand = \"x\"\n";
        for (text, word) in [
            ("[listen]\nmcp = \"x\"\n".to_owned(), "upstreams"),
            (format!("{up}queue_tiemout = \"1s\"\n"), "queue_tiemout"),
            (format!("{up}on_full = \"shed\"\n"), "on_full"),
            (format!("{up}queue_size = []\n"), "queue_size"),
            (format!("{up}max_concurrent = {{ low = 1 }}\n"), "max_concurrent"),
            (format!("{up}[auth]\nmode = \"magic\"\n"), "mode"),
            (format!("{up}[callers.c]\nrate = {{ a_second = 1 }}\n"), "a_second"),
        ] {
            let found = check(&text);
            assert!(found.iter().any(|fault| fault.contains(word)), "{word}: {found:?}");
        }
    }

    /// A kind that nobody translated would be taken for a list of words.
    #[test]
    fn every_kind_is_known() {
        for key in schema::SECTIONS.iter().flat_map(|section| section.keys()) {
            let value = value(key);
            let words = value["anyOf"][0]["enum"].as_array();
            let fine = words.is_none_or(|words| {
                words.iter().all(|word| word.as_str().unwrap().bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
            });
            assert!(fine, "{}: {}", key.name, key.kind);
        }
    }
}
