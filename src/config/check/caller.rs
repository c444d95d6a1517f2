//! One caller: its keys, its share, its limits and rights.

use super::limits::LONGEST_QUEUE;
use super::tool::MOST_CURSORS;
use crate::caller::registry::ANONYMOUS;
use crate::caller::{Lane, key};
use crate::config::fault::did_you_mean;
use crate::config::read::{Item, Reader, Table};
use crate::config::schema;
use crate::config::{Auth, CallerConfig, Rate, UpstreamConfig};
use crate::limits::quota::Quota;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn read(
    reader: &mut Reader<'_>,
    name: &str,
    item: &Item<'_>,
    auth: &Auth,
    upstreams: &BTreeMap<String, Arc<UpstreamConfig>>,
) -> CallerConfig {
    let table = reader.table(Some(item), &item.key, &schema::CALLER, None);
    let lanes = Lane::ALL.map(|lane| (lane.name(), lane));
    let caller = CallerConfig {
        keys: table.get("key_hash").map(|item| keys(reader, item)).unwrap_or_default(),
        uids: table.get("uids").map(|item| uids(reader, item)).unwrap_or_default(),
        subjects: table.get("subjects").map(|item| subjects(reader, item)).unwrap_or_default(),
        issuer: issuer(reader, &table, auth),
        weight: table.get("weight").and_then(|item| reader.count(item, 1..=1000, "")).unwrap_or(1),
        max_priority: table.get("max_priority").and_then(|item| reader.choice(item, &lanes)).unwrap_or(Lane::High),
        max_deadline: table.get("max_deadline").and_then(|item| reader.duration(item)).flatten(),
        max_concurrent: table.get("max_concurrent").and_then(|item| reader.limit(item, 1_000_000)).flatten(),
        max_queued: table
            .get("max_queued")
            .and_then(|item| reader.count(item, 1..=LONGEST_QUEUE, "leave it out for no limit of its own")),
        rate: table.get("rate").and_then(|item| rate(reader, item)),
        quota: table.get("quota").and_then(|item| quota(reader, item)),
        enforce: table.get("enforce").and_then(|item| super::enforce(reader, item)).unwrap_or_default(),
        cursors: table
            .get("cursors")
            .and_then(|item| reader.count(item, 1..=MOST_CURSORS, "leave it out for the tools' own bounds alone")),
        upstreams: table.get("upstreams").and_then(|item| allowed_upstreams(reader, item, upstreams)),
        tools: table.get("tools").and_then(|item| allowed_tools(reader, item)),
    };
    warn(reader, name, &table, auth);
    caller
}

fn warn(reader: &mut Reader<'_>, name: &str, table: &Table<'_>, auth: &Auth) {
    if name != ANONYMOUS && table.get("uids").is_some() {
        return;
    }
    match (auth, name == ANONYMOUS, table.get("key_hash")) {
        (Auth::None, false, Some(item)) => {
            reader.warn(item, "does nothing while [auth] mode is \"none\"", "set mode = \"keys\" under [auth]");
        }
        (Auth::None, false, None) => {
            let message = "can never be met: with [auth] mode = \"none\" everybody is `anonymous`";
            reader.warn_of(table, message, "set mode = \"keys\" under [auth], or name the caller `anonymous`");
        }
        (Auth::Keys, true, _) => {
            reader.warn_of(table, "can never be met: with [auth] mode = \"keys\" nobody is anonymous", "take it out");
        }
        (Auth::Keys, false, None) => {
            let hint = format!("make a key with `forebay key new {name}`");
            reader.warn_of(table, "has no key_hash, so it cannot call", &hint);
        }
        (Auth::Keys | Auth::Jwt(_), false, _)
            if table.get("subjects").or(table.get("key_hash")).is_some()
                && ["upstreams", "tools"].iter().all(|key| table.get(key).is_none()) =>
        {
            let hint = "say which with upstreams = [...]; upstreams = [\"*\"] says that all are meant";
            reader.warn_of(table, "may use all upstreams and tools", hint);
        }
        (Auth::Jwt(_), true, _) => {
            reader.warn_of(table, "can never be met: with [auth] mode = \"jwt\" nobody is anonymous", "take it out");
        }
        (Auth::Jwt(_), false, _) if table.get("subjects").is_none() => {
            let hint = "name the `sub` of its tokens: subjects = [\"...\"]";
            reader.warn_of(table, "has no subjects, so it cannot call", hint);
        }
        (Auth::None, true, _) | (Auth::Keys | Auth::Jwt(_), false, _) => {}
    }
}

fn uids(reader: &mut Reader<'_>, item: &Item<'_>) -> Vec<u32> {
    let elements = reader.list(item).unwrap_or_default();
    elements
        .iter()
        .filter_map(|element| reader.count(element, 0..=u32::MAX - 1, "write it as `id -u` prints it"))
        .collect()
}

fn subjects(reader: &mut Reader<'_>, item: &Item<'_>) -> Vec<String> {
    let mut subjects = Vec::new();
    for (subject, item) in reader.strings(item).unwrap_or_default() {
        if subject.is_empty() || subject.len() > 255 {
            reader.fault(&item, "is no subject", "write it as `sub` in the token has it, 1 to 255 letters");
        } else if subjects.contains(&subject) {
            reader.fault(&item, "is given twice", "keep one of the two");
        } else {
            subjects.push(subject);
        }
    }
    subjects
}

/// The issuer of a caller's tokens, written out where there is only one.
fn issuer(reader: &mut Reader<'_>, table: &Table<'_>, auth: &Auth) -> Option<String> {
    let named = table.get("issuer").and_then(|item| Some((reader.text(item)?.text, item)));
    let Auth::Jwt(jwt) = auth else { return named.map(|(name, _)| name) };
    match named {
        Some((name, item)) if !jwt.issuers.contains_key(&name) => {
            let near = did_you_mean(&name, jwt.issuers.keys().map(String::as_str));
            let hint = near.map(|near| format!("did you mean \"{near}\"?")).unwrap_or_default();
            reader.refuse(item, "is none of the issuers under [auth.jwt]", &hint)
        }
        Some((name, _)) => Some(name),
        None if jwt.issuers.len() == 1 => jwt.issuers.keys().next().cloned(),
        None => {
            if let Some(item) = table.get("subjects") {
                let hint = "say issuer = \"https://...\", as [auth.jwt] has it: two issuers may have the same subject";
                reader.fault(item, "does not say whose tokens these are", hint);
            }
            None
        }
    }
}

fn keys(reader: &mut Reader<'_>, item: &Item<'_>) -> Vec<key::KeyHash> {
    let elements = match item.node.value {
        crate::config::node::Value::Array(_) => reader.list(item).unwrap_or_default(),
        _ => vec![item.clone()],
    };
    if elements.is_empty() || elements.len() > 2 {
        reader.fault(item, "must be one hash, or two while a key is being replaced", "");
    }
    let mut keys: Vec<key::KeyHash> = Vec::new();
    for element in elements {
        let Some(text) = reader.text(&element) else { continue };
        match key::parse_key_hash(text.text.trim()) {
            Some(hash) if keys.contains(&hash) => reader.fault(&element, "is given twice", "keep one of the two"),
            Some(hash) => keys.push(hash),
            None if text.text.trim().starts_with("fb_") => {
                let hint = "the config stores the key_hash that `forebay key new` printed beside it; make a new key";
                reader.fault(&element, "is a key itself, not its hash", hint);
            }
            None => {
                let hint = "it is \"sha256:\" and 64 hex digits, as `forebay key new NAME` prints it";
                reader.fault(&element, "is not the hash of a key", hint);
            }
        }
    }
    keys
}

fn rate(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<Rate> {
    if !super::is_table(item.node) {
        let message = format!("must be a table, not {}", item.node.value.kind());
        return reader.refuse(item, message, "write it as { per_second = 5, burst = 20 }");
    }
    let table = reader.table(Some(item), &item.key, &schema::RATE, None);
    let burst = table.get("burst").map(|item| reader.count(item, 1..=1_000_000, ""));
    let Some(per_second) = table.get("per_second") else {
        return reader.refuse(item, "lacks `per_second`", "write it as { per_second = 5, burst = 20 }");
    };
    let number = reader.real(per_second)?;
    // One call a day is the slowest: below, the bucket's clock would run out of bits.
    if !(1.0 / 86_400.0..=1e6).contains(&number) {
        let what = if number < 0.0 { "is negative" } else { "is out of bounds" };
        return reader.refuse(
            per_second,
            what,
            "one a day (0.0000116) to 1000000 are allowed; leave `rate` out for no limit",
        );
    }
    Some(Rate { per_second: number, burst: burst.unwrap_or(Some(number.ceil() as u32))?.max(1) })
}

fn quota(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<Quota> {
    let hint = "write it as { bytes_per_minute = \"1MiB\" } or { tokens_per_minute = 250000 }";
    if !super::is_table(item.node) {
        let message = format!("must be a table, not {}", item.node.value.kind());
        return reader.refuse(item, message, hint);
    }
    let table = reader.table(Some(item), &item.key, &schema::QUOTA, None);
    let (bytes, tokens) = (table.get("bytes_per_minute"), table.get("tokens_per_minute"));
    if bytes.is_none() && tokens.is_none() {
        return reader.refuse(item, "says no quota", hint);
    }
    // An answer has some hundred bytes at least: less a minute would serve one call every few minutes by accident.
    let least = "leave `quota` out for no limit; to let a caller make no calls, take its key out";
    let bytes = bytes.map(|item| reader.size(item, 1 << 10..=1 << 40));
    let tokens = tokens.map(|item| reader.count(item, 256..=1_000_000_000, least));
    // One that is wrong must not leave the other to stand alone.
    Some(Quota {
        bytes_per_minute: bytes.map_or(Some(None), |bytes| bytes.map(Some))?,
        tokens_per_minute: tokens.map_or(Some(None), |tokens| tokens.map(Some))?.map(u64::from),
    })
}

fn allowed_upstreams(
    reader: &mut Reader<'_>,
    item: &Item<'_>,
    upstreams: &BTreeMap<String, Arc<UpstreamConfig>>,
) -> Option<Vec<String>> {
    let names = reader.strings(item)?;
    if names.iter().any(|(name, _)| name == "*") {
        return None;
    }
    for (name, item) in &names {
        if !upstreams.contains_key(name) {
            let near = did_you_mean(name, upstreams.keys().map(String::as_str));
            let hint = near.map(|near| format!("did you mean \"{near}\"?")).unwrap_or_default();
            reader.warn(item, "names an upstream that is not in this config", &hint);
        }
    }
    Some(names.into_iter().map(|(name, _)| name).collect())
}

fn allowed_tools(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<Vec<String>> {
    let names: Vec<String> = reader.strings(item)?.into_iter().map(|(name, _)| name).collect();
    (!names.iter().any(|name| name == "*")).then_some(names)
}
