//! One upstream: what is started or called, its limits, its tools.

use super::limits::{self, Given};
use super::tool::tools;
use crate::config::read::{Item, Reader, Table};
use crate::config::schema;
use crate::config::{AfterCancel, Concurrency, HttpTarget, Listen, Secret, Start, StdioTarget, Target, UpstreamConfig};
use http::{HeaderName, HeaderValue, Uri};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reads one upstream. None if it has no target that could be checked further.
pub(super) fn read(
    reader: &mut Reader<'_>,
    name: &str,
    start: usize,
    item: &Item<'_>,
    defaults: &Given,
    listen: &Listen,
) -> Option<UpstreamConfig> {
    let table = reader.table(Some(item), &item.key, &schema::UPSTREAM, None);
    let target = target(reader, &table, start, listen);
    let own = limits::read(reader, &table);
    let stdio = !matches!(target, Some(Target::Http(_)));
    let mut limits = own.limits(defaults, stdio);
    if own.max_concurrent.is_none() && limits.max_concurrent == Concurrency::Unlimited {
        own.refuse_queue(reader, &table);
    }
    if !stdio && limits.after_cancel == AfterCancel::Recycle {
        if let (Some(AfterCancel::Recycle), Some(item)) = (own.after_cancel, table.get("after_cancel")) {
            reader.fault(item, "is \"recycle\", but a url has no process to replace", "use \"hold\" or \"release\"");
        }
        limits.after_cancel = AfterCancel::Release;
    }
    // A modern server tells nobody that it has ended a cancelled call, so nothing else would give the slot back.
    if !stdio && limits.after_cancel == AfterCancel::Hold && limits.call_timeout.is_none() {
        match table.get("after_cancel").or_else(|| table.get("call_timeout")) {
            Some(item) => reader.fault(
                item,
                "holds the slot of a cancelled call for ever: \"hold\" on a url needs a call_timeout",
                "set call_timeout, or after_cancel = \"release\"",
            ),
            None => limits.after_cancel = AfterCancel::Release,
        }
    }
    let ceiling = limits.max_concurrent.ceiling();
    let tools = tools(reader, &table, ceiling);
    if let (Some(Target::Stdio(stdio)), Some(item)) = (&target, table.get("processes"))
        && stdio.processes > ceiling
    {
        reader.warn(item, format!("is above max_concurrent ({ceiling}): some children would never get a call"), "");
    }
    Some(UpstreamConfig {
        name: name.into(),
        target: target?,
        limits,
        tools,
        start: own.start.or(defaults.start).unwrap_or(Start::Eager),
        connect_timeout: own.connect_timeout.or(defaults.connect_timeout).unwrap_or(Duration::from_secs(60)),
        max_message: own.max_message.or(defaults.max_message).unwrap_or(16 << 20) as usize,
    })
}

fn target(reader: &mut Reader<'_>, table: &Table<'_>, start: usize, listen: &Listen) -> Option<Target> {
    let mut misplaced = |keys: &[&str], of: &str, hint: &str| {
        for item in keys.iter().filter_map(|key| table.get(key)) {
            reader.fault(item, format!("goes with `{of}` only"), hint);
        }
    };
    match (table.get("command"), table.get("url")) {
        (Some(_), Some(url)) => {
            reader.refuse(url, "is given beside `command`", "an upstream is a command or a url; keep one")
        }
        (None, None) => {
            let hint = "give it a command (a stdio server) or a url (a Streamable HTTP server)";
            reader.fault_at(start, &table.path, "has neither `command` nor `url`", hint);
            None
        }
        (Some(command), None) => {
            misplaced(&["headers"], "url", "a command gets its credentials by `env`");
            stdio(reader, table, command).map(Target::Stdio)
        }
        (None, Some(url)) => {
            misplaced(&["args", "env", "cwd", "processes"], "command", "a url gets its credentials by `headers`");
            http(reader, table, url, listen).map(Target::Http)
        }
    }
}

fn stdio(reader: &mut Reader<'_>, table: &Table<'_>, command: &Item<'_>) -> Option<StdioTarget> {
    let program = reader.text_without_zero(command).and_then(|program| match program.trim() {
        "" => reader.refuse(command, "is empty", "name the program, such as \"npx\""),
        trimmed if is_forebay(trimmed) => reader.refuse(command, "is forebay itself", "take this upstream out"),
        // A trailing blank is no part of any program's name, but one inside may be.
        trimmed => Some(trimmed.to_owned()),
    });
    if let Some(program) = &program
        && program.contains(' ')
        && !program.contains('/')
    {
        reader.warn(
            command,
            "has a space in it: it is started as one program, without a shell",
            "put arguments into `args`",
        );
    }
    let args = table.get("args").and_then(|item| reader.list(item)).unwrap_or_default();
    let args = args.iter().filter_map(|item| reader.text_without_zero(item)).map(Secret::new).collect();
    let mut env = BTreeMap::new();
    for (name, start, item) in table.get("env").map(|item| reader.entries(item)).unwrap_or_default() {
        if name.is_empty() || name.contains(['=', '\0']) {
            reader.fault_at(start, &item.key, "is no name for a variable", "it must not be empty nor have = in it");
        }
        if let Some(value) = reader.text_without_zero(&item) {
            env.insert(name, Secret::new(value));
        }
    }
    let cwd = table.get("cwd").and_then(|item| {
        let text = reader.text_without_zero(item)?;
        if text.is_empty() {
            return reader.refuse(item, "is empty", "leave it out for forebay's own directory");
        }
        Some(match (text.strip_prefix("~/"), reader.env.var("HOME")) {
            (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
            _ => reader.base.join(text),
        })
    });
    let processes = table.get("processes").and_then(|item| {
        reader.count(item, 1..=64, "an upstream needs at least one process; take it out of the config to have none")
    });
    Some(StdioTarget { command: program?, args, env, cwd, processes: processes.unwrap_or(1) })
}

fn is_forebay(program: &str) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "forebay")
}

fn http(reader: &mut Reader<'_>, table: &Table<'_>, item: &Item<'_>, listen: &Listen) -> Option<HttpTarget> {
    let url = url(reader, item);
    if let Some(url) = &url
        && points_at(url, listen.mcp)
    {
        reader.fault(item, "is forebay's own address", "take this upstream out, or listen elsewhere");
    }
    let headers = headers(reader, table);
    if let Some(url) = &url
        && url.scheme_str() == Some("http")
        && !url.host().is_some_and(is_loopback)
        && let Some(credential) = headers.iter().map(|(name, _)| name.as_str()).find(|name| is_credential(name))
    {
        reader.warn(item, format!("sends the header `{credential}` unencrypted"), "use https");
    }
    Some(HttpTarget { url: url?, headers })
}

pub(super) fn url(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<Uri> {
    let text = reader.text(item)?.text;
    let hint = "write it as \"https://host/mcp\"";
    let Ok(url) = text.trim().parse::<Uri>() else {
        return reader.refuse(item, "is not a URL", hint);
    };
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return reader.refuse(item, "must begin with http:// or https://", hint);
    }
    let Some(authority) = url.authority().filter(|authority| !authority.host().is_empty()) else {
        return reader.refuse(item, "names no host", hint);
    };
    if authority.as_str().contains('@') {
        let hint = "send them by headers = { Authorization = \"Basic ${...}\" }";
        return reader.refuse(item, "has credentials in it", hint);
    }
    // `Uri` takes any digits behind the colon; only a port is one.
    if authority.as_str().len() > authority.host().len() && authority.port_u16().is_none_or(|port| port == 0) {
        return reader.refuse(item, "has a port that is none", "1 to 65535 are allowed");
    }
    Some(url)
}

/// Whether a URL leads back to a listener of forebay's own.
pub(in crate::config) fn points_at(url: &Uri, mcp: SocketAddr) -> bool {
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
    let Some(host) = url.host() else { return false };
    let own = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip == mcp.ip());
    mcp.port() != 0 && port == mcp.port() && (own || is_loopback(host))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn is_credential(header: &str) -> bool {
    matches!(header, "authorization" | "cookie" | "proxy-authorization")
        || ["key", "token", "secret"].iter().any(|part| header.contains(part))
}

fn headers(reader: &mut Reader<'_>, table: &Table<'_>) -> Vec<(HeaderName, Secret)> {
    let mut headers: Vec<(HeaderName, Secret)> = Vec::new();
    for (name, start, item) in table.get("headers").map(|item| reader.entries(item)).unwrap_or_default() {
        let value = reader.text(&item);
        let Ok(name) = name.parse::<HeaderName>() else {
            reader.fault_at(start, &item.key, "is no name for a header", "");
            continue;
        };
        if is_forebays_own(name.as_str()) {
            reader.warn_at(start, &item.key, "is ignored: it is a header that forebay sets itself", "take it out");
            continue;
        }
        if headers.iter().any(|(other, _)| *other == name) {
            reader.fault_at(start, &item.key, "is given twice: case does not count in headers", "keep one of the two");
        }
        let Some(value) = value else { continue };
        if HeaderValue::from_str(&value.text).is_err() {
            reader.fault(
                &item,
                "has a character that no header may have",
                "a line end at the end of a secret is a common one",
            );
            continue;
        }
        headers.push((name, Secret::new(value.text)));
    }
    headers
}

fn is_forebays_own(name: &str) -> bool {
    const OWN: [&str; 14] = [
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    OWN.contains(&name) || name.starts_with("mcp-") || name.starts_with("proxy-c")
}
