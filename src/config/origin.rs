//! Every setting in force and where it comes from: a line of the file, a variable, or what is built in.
//!
//! Made from the table of keys ([`schema`]) and the same tree that is checked, so a key cannot be forgotten here. Values
//! are shown as they were written: what `${...}` stands for is never filled in, and what may hold a secret by itself is
//! only counted.

use super::load::{self, Format, Source};
use super::node::{Node, Text, Value};
use super::read::{Item, Reader, Table};
use super::schema::{self, Key, Section};
use super::variables::Variables;
use super::{Config, Env, Faults, Place, Target, UpstreamConfig, Warning, mcp};
use std::path::Path;

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The whole path, such as `upstreams.db.queue_size`.
    pub key: String,
    pub value: String,
    pub origin: Origin,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// It is written down, in the file or in a variable.
    At(Place),
    /// What is built in.
    Default,
}

/// Checks a config and tells every setting in force.
///
/// # Errors
/// The faults of the config, as [`load`](fn@super::load) tells them.
pub fn settings(source: &Source, env: &dyn Env) -> Result<(Config, Vec<Setting>, Vec<Warning>), Faults> {
    let (file, format) = load::place(source, env)?;
    let bytes = load::bytes(&file, env)?;
    let (config, warnings) = load::parse(&file, bytes.clone(), format, env)?;
    // It has just been read without a fault, so nothing below can find one.
    let Ok(text) = Text::new(&file, bytes) else { return Ok((config, Vec::new(), warnings)) };
    let (tree, _) = match format {
        Format::Toml => text.parse_toml(),
        Format::McpServers => text.parse_json(),
    };
    let Some(tree) = tree else { return Ok((config, Vec::new(), warnings)) };
    let variables = Variables::read(env, &mut Vec::new());
    let mut reader = Reader::new(&text, file.parent().unwrap_or(Path::new("")), env);
    let nothing = Node { span: 0..0, value: Value::Table(Vec::new()) };
    let servers;
    let (root, named): (_, Vec<(String, Item<'_>)>) = match format {
        Format::Toml => {
            let root = item(&tree, "");
            let root = reader.table(Some(&root), "", &schema::ROOT, None);
            let named = root.get("upstreams").map(|item| reader.entries(item)).unwrap_or_default();
            (root, named.into_iter().map(|(name, _, item)| (name, item)).collect())
        }
        Format::McpServers => {
            servers = mcp::servers(&mut reader, &tree, config.listen.mcp);
            let root = reader.table(Some(&item(&nothing, "")), "", &schema::ROOT, None);
            (root, servers.iter().map(|server| (server.name.clone(), item(&server.node, &server.path))).collect())
        }
    };
    let mut shown = Shown { config: &config, settings: Vec::new() };
    let mut defaults = None;
    for section in [schema::LISTEN, schema::AUTH, schema::GLOBAL, schema::DEFAULTS] {
        let table = reader.table(root.get(section.title), section.title, &section, Some(&variables));
        shown.section(&reader, section.title, &section, &table, |key| key.default.to_owned());
        if section.title == "defaults" {
            defaults = Some(table);
        }
    }
    for (name, item) in &named {
        // One that was left out of an `mcpServers` file is not in force.
        let Some(upstream) = config.upstreams.get(name) else { continue };
        let path = format!("upstreams.{name}");
        let table = reader.table(Some(item), &path, &schema::UPSTREAM, None);
        shown.upstream(&mut reader, &path, &table, defaults.as_ref(), upstream);
    }
    for (name, _, item) in root.get("callers").map(|item| reader.entries(item)).unwrap_or_default() {
        let path = format!("callers.{name}");
        let table = reader.table(Some(&item), &path, &schema::CALLER, None);
        shown.section(&reader, &path, &schema::CALLER, &table, |key| key.default.to_owned());
    }
    Ok((shown.settings, warnings)).map(|(settings, warnings)| (config, settings, warnings))
}

fn item<'n>(node: &'n Node, key: &str) -> Item<'n> {
    Item { key: key.into(), node, variable: None }
}

struct Shown<'c> {
    config: &'c Config,
    settings: Vec<Setting>,
}

impl Shown<'_> {
    fn section(
        &mut self,
        reader: &Reader<'_>,
        path: &str,
        section: &Section,
        table: &Table<'_>,
        built_in: impl Fn(&Key) -> String,
    ) {
        for key in section.keys() {
            let (value, origin) = match table.get(key.name) {
                Some(item) => (written(key, item), Origin::At(reader.place(item))),
                None => (built_in(key), Origin::Default),
            };
            let value = match (path, key.name, &origin) {
                // Where the built-in value depends on the machine, what it came to.
                ("listen", "admin", Origin::Default) => format!("unix:{}", self.config.listen.admin.display()),
                ("listen", "threads", Origin::Default) => self.config.listen.threads.to_string(),
                _ => value,
            };
            self.settings.push(Setting { key: format!("{path}.{}", key.name), value, origin });
        }
    }

    fn upstream(
        &mut self,
        reader: &mut Reader<'_>,
        path: &str,
        table: &Table<'_>,
        defaults: Option<&Table<'_>>,
        upstream: &UpstreamConfig,
    ) {
        let stdio = matches!(upstream.target, Target::Stdio(_));
        for key in schema::UPSTREAM.keys() {
            let foreign: &[&str] =
                if stdio { &["url", "headers"] } else { &["command", "args", "env", "cwd", "processes"] };
            if foreign.contains(&key.name) || key.name == "tools" {
                continue;
            }
            let own = table.get(key.name);
            let inherited = || defaults.and_then(|defaults| defaults.get(key.name));
            let (value, origin) = match own.or_else(inherited) {
                Some(item) => {
                    let value = match (&upstream.target, key.name) {
                        // Its path and query may hold a credential.
                        (Target::Http(http), "url") => format!(
                            "{}://{}{}/...",
                            http.url.scheme_str().unwrap_or("http"),
                            http.url.host().unwrap_or_default(),
                            http.url.port().map_or(String::new(), |port| format!(":{port}"))
                        ),
                        _ => written(key, item),
                    };
                    (value, Origin::At(reader.place(item)))
                }
                None if key.name == "max_concurrent" => (if stdio { "5" } else { "32" }.to_owned(), Origin::Default),
                None => (key.default.to_owned(), Origin::Default),
            };
            self.settings.push(Setting { key: format!("{path}.{}", key.name), value, origin });
        }
        for (tool, _, item) in table.get("tools").map(|item| reader.entries(item)).unwrap_or_default() {
            let path = format!("{path}.tools.{tool}");
            let table = reader.table(Some(&item), &path, &schema::TOOL, None);
            self.section(reader, &path, &schema::TOOL, &table, |key| key.default.to_owned());
        }
    }
}

/// A value as it was written; of what may be secret, only how much of it there is.
fn written(key: &Key, item: &Item<'_>) -> String {
    let count = |count: usize| format!("({count} given)");
    match (key.name, &item.node.value) {
        ("args", Value::Array(all)) => count(all.len()),
        ("env" | "headers", Value::Table(all)) => {
            let names: Vec<_> = all.iter().map(|entry| super::node::shown_key(&entry.key)).collect();
            if names.is_empty() { "{}".into() } else { format!("{} (not shown)", names.join(", ")) }
        }
        ("key_hash", Value::Array(all)) => count(all.len()),
        ("key_hash", _) => count(1),
        (_, value) => plain(value),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Whole(number) => number.map_or_else(|| "?".into(), |number| number.to_string()),
        Value::Real(number) => number.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Other(kind) => (*kind).to_owned(),
        Value::Array(all) => {
            format!("[{}]", all.iter().map(|node| plain(&node.value)).collect::<Vec<_>>().join(", "))
        }
        Value::Table(all) => {
            let all = all.iter().map(|entry| format!("{} = {}", entry.key, plain(&entry.node.value)));
            format!("{{ {} }}", all.collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::Fake;

    fn shown(text: &str, env: Fake) -> Vec<Setting> {
        let env = env.with_file("/etc/forebay.toml", text);
        settings(&Source::File("/etc/forebay.toml".into()), &env).unwrap().1
    }

    #[test]
    fn each_value_tells_where_it_comes_from() {
        let text = "[defaults]\nqueue_size = 7\ncall_timeout = \"1m\"\n[upstreams.db]\ncommand = \"x\"\nargs = [\"s3cr3t\"]\n\
                    call_timeout = \"${T:-9s}\"\n[upstreams.web]\nurl = \"https://h.example/s3cr3t?k=s3cr3t\"\n\
                    headers = { Authorization = \"Bearer s3cr3t\" }\n[upstreams.db.tools.slow]\nweight = 2\n";
        let all = shown(text, Fake::default().with("FOREBAY_DEFAULTS_QUEUE_SIZE", "9").with("T", "11s"));
        let of = |key: &str| {
            let setting = all.iter().find(|setting| setting.key == key).unwrap_or_else(|| panic!("{key}: {all:#?}"));
            let origin = match &setting.origin {
                Origin::Default => "default".to_owned(),
                Origin::At(Place::File { line, .. }) => format!("line {line}"),
                Origin::At(Place::Variable(name)) => name.clone(),
                Origin::At(other) => format!("{other:?}"),
            };
            (setting.value.clone(), origin)
        };
        let is = |key: &str, value: &str, origin: &str| assert_eq!(of(key), (value.into(), origin.into()), "{key}");
        is("upstreams.db.queue_size", "9", "FOREBAY_DEFAULTS_QUEUE_SIZE");
        is("upstreams.db.call_timeout", "${T:-9s}", "line 7");
        is("upstreams.web.call_timeout", "1m", "line 3");
        is("upstreams.db.max_concurrent", "5", "default");
        is("upstreams.web.max_concurrent", "32", "default");
        is("upstreams.db.args", "(1 given)", "line 6");
        is("upstreams.web.url", "https://h.example/...", "line 9");
        is("upstreams.web.headers", "Authorization (not shown)", "line 10");
        is("upstreams.db.tools.slow.weight", "2", "line 12");
        is("global.max_bytes", "256MiB", "default");
        assert!(!format!("{all:?}").contains("s3cr3t"), "C32: {all:#?}");
    }

    #[test]
    fn a_faulty_config_is_told_as_by_check() {
        let env = Fake::default().with_file("/etc/forebay.toml", "[upstreams.a]\nqueue_size = -1\n");
        assert!(settings(&Source::File("/etc/forebay.toml".into()), &env).is_err());
    }
}
