//! From the tree to checked settings: `[listen]`, `[auth]`, `[global]`, and what concerns several tables.

mod caller;
mod hooks;
mod jwt;
mod limits;
mod tool;
mod upstream;

pub(crate) use limits::LONGEST_QUEUE;

pub(super) use upstream::points_at;

use super::node::{Node, Value};
use super::read::{Item, Reader, Table};
use super::schema;
use super::variables::Variables;
use super::{
    Auth, CallerConfig, Config, Global, LegacyDisconnect, Listen, OverloadReply, UpstreamConfig, check_name, place,
};
use crate::limits::shadow::Enforce;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// An upstream to be checked.
#[derive(Debug)]
pub(super) struct Named<'n> {
    pub name: String,
    /// Where its name stands.
    pub start: usize,
    pub item: Item<'n>,
}

/// The table at the root of a file.
pub(super) fn root<'n>(reader: &mut Reader<'_>, node: &'n Node) -> Table<'n> {
    reader.table(Some(&Item { key: String::new(), node, variable: None }), "", &schema::ROOT, None)
}

/// The entries of `[upstreams]`.
pub(super) fn named_upstreams<'n>(reader: &mut Reader<'_>, root: &Table<'n>) -> Vec<Named<'n>> {
    let Some(item) = root.get("upstreams") else { return Vec::new() };
    reader.entries(item).into_iter().map(|(name, start, item)| Named { name, start, item }).collect()
}

/// Checks everything. Where there is a fault, a default stands in, so that the rest is checked too.
pub(super) fn config(
    reader: &mut Reader<'_>,
    root: &Table<'_>,
    named: Vec<Named<'_>>,
    variables: &Variables,
    file: &Path,
) -> Config {
    let auth = auth(reader, root);
    let listen = listen(reader, root, variables, &auth);
    let global = global(reader, root, variables);
    if listen.max_body > global.max_bytes
        && let Some(item) = root.get("listen")
    {
        reader.warn(item, "lets in bodies larger than all that `global.max_bytes` holds", "lower max_body");
    }
    let defaults = reader.table(root.get("defaults"), "defaults", &schema::DEFAULTS, Some(variables));
    let defaults = limits::read(reader, &defaults);
    let mut upstreams = BTreeMap::new();
    for Named { name, start, item } in named {
        if let Err(why) = check_name(&name) {
            reader.fault_at(
                start,
                &item.key,
                format!("has a name that {why}"),
                "rename it; letters, digits, - and _, at most 32",
            );
        } else if name == "_removed" {
            reader.fault_at(start, &item.key, "has a name that forebay keeps for itself", "rename it");
        } else if name == "forebay" && global.builtin_tools {
            let hint = "rename it, or turn `global.builtin_tools` off";
            reader.fault_at(start, &item.key, "has the name under which the built-in tools stand", hint);
        }
        let Some(upstream) = upstream::read(reader, &name, start, &item, &defaults, &listen) else { continue };
        upstreams.insert(name, Arc::new(upstream));
    }
    let callers = callers(reader, root, &auth, &upstreams);
    let hooks = hooks::read(reader, root);
    Config { listen, auth, global, upstreams, callers, hooks, origin: Some(file.into()) }
}

fn auth(reader: &mut Reader<'_>, root: &Table<'_>) -> Auth {
    let table = reader.table(root.get("auth"), "auth", &schema::AUTH, None);
    #[derive(Clone, Copy, PartialEq)]
    enum Mode {
        None,
        Keys,
        Jwt,
    }
    let words = [("none", Mode::None), ("keys", Mode::Keys), ("jwt", Mode::Jwt)];
    let mode = table.get("mode").and_then(|item| reader.choice(item, &words)).unwrap_or(Mode::None);
    let jwt = table.get("jwt").and_then(|item| {
        if mode != Mode::Jwt {
            reader.warn(item, "does nothing while [auth] mode is not \"jwt\"", "set mode = \"jwt\" under [auth]");
        }
        jwt::read(reader, item)
    });
    match mode {
        Mode::None => Auth::None,
        Mode::Keys => Auth::Keys,
        Mode::Jwt => match jwt {
            Some(jwt) => Auth::Jwt(Arc::new(jwt)),
            // Nobody is let in by a config that is not whole.
            None => {
                if let (Some(item), None) = (table.get("mode"), table.get("jwt")) {
                    let hint = "say [auth.jwt] with audience = \"https://...\" and issuers = { \"https://...\" = \"https://.../jwks\" }";
                    reader.fault(item, "needs a table [auth.jwt]", hint);
                }
                Auth::Keys
            }
        },
    }
}

fn listen(reader: &mut Reader<'_>, root: &Table<'_>, variables: &Variables, auth: &Auth) -> Listen {
    let table = reader.table(root.get("listen"), "listen", &schema::LISTEN, Some(variables));
    let built_in = SocketAddr::from((Ipv4Addr::LOCALHOST, 7300));
    let mcp = table.get("mcp").and_then(|item| {
        let address = address(reader, item)?;
        if *auth == Auth::None && !address.ip().to_canonical().is_loopback() {
            let hint =
                "set mode = \"keys\" under [auth] and make keys with `forebay key new NAME`, or listen on 127.0.0.1";
            reader.fault(item, "is open to other machines while [auth] mode is \"none\"", hint);
        }
        Some(address)
    });
    let admin = table.get("admin").and_then(|item| socket(reader, item, "unix:/run/forebay/forebay.sock"));
    let mcp_unix = table.get("mcp_unix").and_then(|item| {
        let path = socket(reader, item, "unix:/run/forebay/mcp.sock")?;
        if admin.as_ref().is_some_and(|admin| *admin == path) {
            return reader.refuse(item, "is the admin API's socket too", "give each a path of its own");
        }
        Some(path)
    });
    let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let threads = table.get("threads").and_then(|item| reader.count(item, 1..=64, "leave it out for one a core"));
    Listen {
        mcp: mcp.unwrap_or(built_in),
        mcp_unix,
        admin: admin.unwrap_or_else(|| place::built_in_admin(reader.env)),
        hosts: table.get("hosts").map(|item| hosts(reader, item)).unwrap_or_default(),
        origins: table.get("origins").map(|item| origins(reader, item)).unwrap_or_default(),
        threads: threads.map_or_else(cores, |threads| threads as usize),
        max_body: table.get("max_body").and_then(|item| reader.size(item, 1 << 10..=1 << 30)).unwrap_or(4 << 20),
    }
}

/// A socket's path. A variable's starts where the commands' does: at the directory of the process.
fn socket(reader: &mut Reader<'_>, item: &Item<'_>, example: &str) -> Option<std::path::PathBuf> {
    let text = reader.text(item)?.text;
    let base = if item.variable.is_some() { Path::new("") } else { &reader.base };
    match place::parse_admin(&text).and_then(|path| place::fit(base.join(path))) {
        Ok(path) => Some(path),
        Err(why) => reader.refuse(item, why, &format!("write it as \"{example}\"")),
    }
}

fn address(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<SocketAddr> {
    let text = reader.text(item)?.text;
    let text = text.trim();
    let parsed = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        None => text.parse().ok(),
    };
    match parsed {
        Some(address) => Some(address),
        None => {
            reader.refuse(item, "is not an address with a port", "write it as \"127.0.0.1:7300\" or \"[::1]:7300\"")
        }
    }
}

fn hosts(reader: &mut Reader<'_>, item: &Item<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    for (host, item) in reader.strings(item).unwrap_or_default() {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        if host.is_empty() || !(plain || bracketed) {
            reader.fault(
                &item,
                "is not a host name",
                "write the name alone, without scheme and port; it is matched whole",
            );
        }
        hosts.push(host.to_ascii_lowercase());
    }
    hosts
}

fn origins(reader: &mut Reader<'_>, item: &Item<'_>) -> Vec<String> {
    let mut origins = Vec::new();
    for (origin, item) in reader.strings(item).unwrap_or_default() {
        let whole = origin.parse::<http::Uri>().is_ok_and(|uri| {
            let shape =
                format!("{}://{}", uri.scheme_str().unwrap_or_default(), uri.authority().map_or("", |a| a.as_str()));
            uri.host().is_some_and(|host| !host.is_empty()) && shape == origin && !origin.contains(['@', '*'])
        });
        if !whole {
            reader.fault(
                &item,
                "is not an origin",
                "write scheme, host and port alone: \"https://app.example\"; it is matched whole",
            );
        }
        origins.push(origin.to_ascii_lowercase());
    }
    origins
}

fn global(reader: &mut Reader<'_>, root: &Table<'_>, variables: &Variables) -> Global {
    let table = reader.table(root.get("global"), "global", &schema::GLOBAL, Some(variables));
    let built_in = Global::default();
    let max_share = table.get("max_share").and_then(|item| {
        let share = reader.real(item)?;
        if share > 0.0 && share <= 1.0 {
            return Some(share);
        }
        reader.refuse(item, "must be above 0 and at most 1", "0.75 lets one upstream hold three quarters")
    });
    let replies = [
        ("tool_error", OverloadReply::ToolError),
        ("jsonrpc_error", OverloadReply::JsonrpcError),
        ("http_429", OverloadReply::Http429),
    ];
    let disconnects = [
        ("drop_queued", LegacyDisconnect::DropQueued),
        ("keep", LegacyDisconnect::Keep),
        ("cancel", LegacyDisconnect::Cancel),
    ];
    Global {
        max_concurrent: table.get("max_concurrent").and_then(|item| reader.limit(item, 1_000_000)).flatten(),
        max_share: max_share.unwrap_or(built_in.max_share),
        max_bytes: table
            .get("max_bytes")
            .and_then(|item| reader.size(item, 1 << 16..=1 << 40))
            .unwrap_or(built_in.max_bytes),
        drain_timeout: table
            .get("drain_timeout")
            .and_then(|item| reader.some_duration(item, "\"1ms\" is the shortest"))
            .unwrap_or(built_in.drain_timeout),
        connect_concurrency: table
            .get("connect_concurrency")
            .and_then(|item| reader.count(item, 1..=1024, ""))
            .unwrap_or(built_in.connect_concurrency),
        overload_error_code: table
            .get("overload_error_code")
            .and_then(|item| error_code(reader, item))
            .unwrap_or(built_in.overload_error_code),
        overload_reply: table
            .get("overload_reply")
            .and_then(|item| reader.choice(item, &replies))
            .unwrap_or(built_in.overload_reply),
        enforce: table.get("enforce").and_then(|item| enforce(reader, item)).unwrap_or(built_in.enforce),
        legacy_disconnect: table
            .get("legacy_disconnect")
            .and_then(|item| reader.choice(item, &disconnects))
            .unwrap_or(built_in.legacy_disconnect),
        builtin_tools: table.get("builtin_tools").and_then(|item| reader.flag(item)).unwrap_or(built_in.builtin_tools),
    }
}

/// Whether a limit holds or only counts.
fn enforce(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<Enforce> {
    reader.choice(item, &[("on", Enforce::On), ("shadow", Enforce::Shadow)])
}

/// Rule R32.
fn error_code(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<i64> {
    let code = reader.signed(item)?;
    let hint = "leave it at -31429, or take one outside, such as -32001";
    if (-32099..=-32020).contains(&code) {
        return reader.refuse(item, "is one of the codes that MCP keeps for itself (-32099 to -32020)", hint);
    }
    if code == -32700 || (-32603..=-32600).contains(&code) {
        reader.warn(item, "is a code that JSON-RPC gives another meaning", hint);
    }
    Some(code)
}

fn callers(
    reader: &mut Reader<'_>,
    root: &Table<'_>,
    auth: &Auth,
    upstreams: &BTreeMap<String, Arc<UpstreamConfig>>,
) -> BTreeMap<String, Arc<CallerConfig>> {
    let mut callers = BTreeMap::new();
    let mut hashes = BTreeMap::new();
    let (mut subjects, mut uids) = (BTreeMap::new(), BTreeMap::new());
    let entries = root.get("callers").map(|item| reader.entries(item)).unwrap_or_default();
    for (name, start, item) in entries {
        if let Err(why) = check_name(&name) {
            reader.fault_at(
                start,
                &item.key,
                format!("has a name that {why}"),
                "rename it; letters, digits, - and _, at most 32",
            );
        }
        let caller = caller::read(reader, &name, &item, auth, upstreams);
        for hash in &caller.keys {
            if let Some(other) = hashes.insert(*hash, name.clone()) {
                let hint = "make another with `forebay key new`";
                reader.fault(&item, format!("has a key that `callers.{other}` has too"), hint);
            }
        }
        for uid in &caller.uids {
            if let Some(other) = uids.insert(*uid, name.clone()) {
                let message = format!("has the user id {uid}, which `callers.{other}` has too");
                reader.fault(&item, message, "a user can be only one caller: take it out of one of them");
            }
        }
        for subject in &caller.subjects {
            if let Some(other) = subjects.insert((caller.issuer.clone(), subject.clone()), name.clone()) {
                let message = format!("has the subject `{subject:.80}`, which `callers.{other}` has too");
                reader.fault(&item, message, "a token can be only one caller: take it out of one of them");
            }
        }
        callers.insert(name, Arc::new(caller));
    }
    if *auth == Auth::Keys
        && hashes.is_empty()
        && let Some(item) = root.get("auth")
    {
        reader.warn(
            item,
            "asks for keys, but no caller has one: nobody can call",
            "make one with `forebay key new NAME`",
        );
    }
    callers
}

/// Whether a node is a table that holds anything.
pub(super) fn is_table(node: &Node) -> bool {
    matches!(&node.value, Value::Table(_))
}
