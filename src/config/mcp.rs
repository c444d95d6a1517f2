//! An `mcpServers` file as clients have it (`.mcp.json`, `claude_desktop_config.json`, VS Code's `mcp.json` with
//! `servers`), turned into upstreams as the own format has them. What cannot be taken is told for each server.

use super::check::points_at;
use super::node::{Entry, Node, Value, shown_key};
use super::read::{Item, Reader};
use super::schema::UPSTREAM;
use super::value::show_duration;
use super::{check_name, interpolate};
use std::net::SocketAddr;
use std::time::Duration;

/// A server of the file, in the form of an upstream.
#[derive(Debug)]
pub(super) struct Server {
    pub name: String,
    /// The key's path in the file.
    pub path: String,
    pub start: usize,
    pub node: Node,
}

const SHAPE: &str = "the file must be { \"mcpServers\": { \"NAME\": { \"command\": ... } } }";

/// Fields of clients that mean nothing to a daemon.
const NOT_FOR_US: [&str; 20] = [
    "type",
    "transport",
    "protocol",
    "name",
    "description",
    "disabled",
    "enabled",
    "alwaysAllow",
    "autoApprove",
    "disabledTools",
    "icon",
    "gallery",
    "version",
    "trust",
    "dev",
    "created",
    "updated",
    "quarantined",
    "source_registry",
    "tags",
];

/// The servers of the file. `own` is where forebay listens: an entry that leads there would be a loop.
pub(super) fn servers(reader: &mut Reader<'_>, root: &Node, own: SocketAddr) -> Vec<Server> {
    let root_item = Item { key: String::new(), node: root, variable: None };
    let Value::Table(entries) = &root.value else {
        reader.fault(&root_item, format!("must be an object with `mcpServers`, not {}", root.value.kind()), SHAPE);
        return Vec::new();
    };
    let found = ["mcpServers", "servers", "mcp_servers"]
        .iter()
        .find_map(|key| entries.iter().find(|entry| entry.key == **key))
        .or_else(|| {
            // VS Code's settings have the whole one level down.
            let mcp = entries.iter().find(|entry| entry.key == "mcp")?;
            let Value::Table(inner) = &mcp.node.value else { return None };
            inner.iter().find(|entry| entry.key == "servers")
        });
    let Some(found) = found else {
        reader.fault(&root_item, "has no `mcpServers`", SHAPE);
        return Vec::new();
    };
    let mut servers: Vec<Server> = Vec::new();
    for (name, start, item) in named(reader, found) {
        let before = reader.warnings.len();
        let Some(node) = upstream(reader, start, &item, own) else { continue };
        let name = fit_name(reader, start, &item, name);
        if servers.iter().any(|other| other.name == name) {
            reader.warnings.truncate(before);
            let hint = "rename one of the two";
            reader.fault_at(start, &item.key, format!("would be served as `{name}`, like another server"), hint);
            continue;
        }
        servers.push(Server { name, path: item.key, start, node });
    }
    if servers.is_empty() && reader.faults.is_empty() {
        let hint = match reader.warnings.is_empty() {
            true => "add one: \"NAME\": { \"command\": ... } or \"NAME\": { \"url\": ... }",
            false => "each server that was left out is told beside this with the reason",
        };
        reader.fault_at(found.key_span.start, &found.key, "has no server that can be served", hint);
    }
    servers
}

/// The servers with their names, from an object or (as mcpproxy writes it) a list.
fn named<'n>(reader: &mut Reader<'_>, found: &'n Entry) -> Vec<(String, usize, Item<'n>)> {
    let item = Item { key: shown_key(&found.key), node: &found.node, variable: None };
    if !matches!(found.node.value, Value::Array(_)) {
        return reader.entries(&item);
    }
    let mut named = Vec::new();
    for item in reader.list(&item).unwrap_or_default() {
        let name = match &item.node.value {
            Value::Table(entries) => entries.iter().find_map(|entry| match &entry.node.value {
                Value::Text(name) if entry.key == "name" => Some(name.clone()),
                _ => None,
            }),
            _ => None,
        };
        match name {
            Some(name) => named.push((name, item.node.span.start, item)),
            None => reader.fault(&item, "has no name", "give it a `name`"),
        }
    }
    named
}

/// Names are free in these files; here they become part of tool names and addresses.
fn fit_name(reader: &mut Reader<'_>, start: usize, item: &Item<'_>, name: String) -> String {
    if check_name(&name).is_ok() {
        return name;
    }
    let fit: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' })
        .take(32)
        .collect();
    let fit = if fit.is_empty() { "unnamed".to_owned() } else { fit };
    reader.warn_at(
        start,
        &item.key,
        format!("is served as `{fit}`"),
        "names have letters, digits, - and _, at most 32",
    );
    fit
}

/// The upstream that an entry describes. None if it is left out, which is told.
fn upstream(reader: &mut Reader<'_>, start: usize, item: &Item<'_>, own: SocketAddr) -> Option<Node> {
    let Value::Table(entries) = &item.node.value else {
        reader.fault(item, format!("must be an object, not {}", item.node.value.kind()), "");
        return None;
    };
    let text = |keys: &[&str]| {
        entries.iter().find_map(|entry| match &entry.node.value {
            Value::Text(text) if keys.contains(&entry.key.as_str()) => Some(text.as_str()),
            _ => None,
        })
    };
    let flag = |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node.value);
    let mut left_out = |why: &str, hint: &str| {
        reader.warn_at(start, &item.key, format!("is left out: {why}"), hint);
        None
    };
    if matches!(flag("disabled"), Some(Value::Flag(true))) || matches!(flag("enabled"), Some(Value::Flag(false))) {
        return left_out("it is disabled in the file", "");
    }
    match text(&["type", "transport", "protocol"]).map(str::to_ascii_lowercase).as_deref() {
        None
        | Some(
            "stdio" | "local" | "http" | "streamable-http" | "streamablehttp" | "streamable_http" | "remote" | "auto",
        ) => {}
        Some("sse") => {
            let hint = "most such servers have a Streamable HTTP address too: give that, with \"type\": \"http\"";
            return left_out("forebay does not speak the old HTTP+SSE transport (\"type\": \"sse\")", hint);
        }
        Some("ws" | "websocket") => return left_out("MCP has no websocket transport that forebay speaks", ""),
        Some(_) => {
            let hint = "\"stdio\" or \"http\"; it may be left out";
            reader.fault_at(start, &item.key, "has a `type` that forebay does not know", hint);
            return None;
        }
    }
    let program = text(&["command"]).map(|command| command.trim().rsplit('/').next().unwrap_or_default());
    if program == Some("forebay") {
        return left_out("it is forebay itself", "");
    }
    let url = text(&["url", "serverUrl", "httpUrl"]).filter(|url| !url.is_empty());
    let url = url.and_then(|url| interpolate::fill(url, &reader.base, reader.env).ok());
    if url.and_then(|url| url.text.parse().ok()).is_some_and(|url| points_at(&url, own)) {
        reader.warn_at(start, &item.key, "is left out: it leads back to forebay's own address", "");
        return None;
    }
    let mut taken: Vec<Entry> = Vec::new();
    for entry in entries.iter().filter(|entry| !is_nothing(&entry.node.value)) {
        let key = match entry.key.as_str() {
            "serverUrl" | "httpUrl" => "url",
            "working_dir" | "workingDirectory" => "cwd",
            other => other,
        };
        match UPSTREAM.find(key) {
            Some(known) if !taken.iter().any(|other| other.key == known.name) => {
                taken.push(Entry { key: known.name.into(), ..entry.clone() });
            }
            None if NOT_FOR_US.contains(&key) => {}
            _ => ignored(reader, item, entry),
        }
    }
    Some(Node { span: item.node.span.clone(), value: Value::Table(taken) })
}

/// Clients write empty fields for what is not there.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Text(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Table(entries) => entries.is_empty(),
        Value::Other(kind) => *kind == "null",
        Value::Whole(_) | Value::Real(_) | Value::Flag(_) => false,
    }
}

fn ignored(reader: &mut Reader<'_>, item: &Item<'_>, entry: &Entry) {
    let key = format!("{}.{}", item.key, shown_key(&entry.key));
    let hint = match (entry.key.as_str(), &entry.node.value) {
        ("timeout", Value::Whole(Some(number @ 1..=86_400_000))) => {
            let milliseconds = Duration::from_millis(number.unsigned_abs());
            format!(
                "its unit differs from client to client; set FOREBAY_DEFAULTS_CALL_TIMEOUT, to {} if it is milliseconds",
                show_duration(Some(milliseconds))
            )
        }
        ("envFile", _) => "give the variables by `env`".to_owned(),
        _ => String::new(),
    };
    reader.warn_at(entry.key_span.start, &key, "is ignored: forebay has no such field", &hint);
}
