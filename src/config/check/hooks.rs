//! Who is told of what happens.

use crate::config::node::Value;
use crate::config::read::{Item, Reader, Table};
use crate::config::schema;
use crate::config::{Hook, Hooks, Secret};
use std::time::Duration;

pub(super) fn read(reader: &mut Reader<'_>, root: &Table<'_>) -> Hooks {
    let table = reader.table(root.get("hooks"), "hooks", &schema::HOOKS, None);
    let every = table.get("overload_every").and_then(|item| {
        let every = reader.some_duration(item, "\"10s\" tells at most every ten seconds")?;
        if every < Duration::from_secs(1) {
            return reader.refuse(item, "is below 1s", "an overload must not make a flood of its own");
        }
        Some(every)
    });
    Hooks {
        on_overload: table.get("on_overload").and_then(|item| hook(reader, item)),
        every: every.unwrap_or(Hooks::default().every),
    }
}

fn hook(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<Hook> {
    if !matches!(item.node.value, Value::Array(_)) {
        return super::upstream::url(reader, item).map(Hook::Url);
    }
    let words = reader.list(item)?;
    let words: Vec<_> = words.iter().filter_map(|word| reader.text_without_zero(word)).map(Secret::new).collect();
    if words.first().is_none_or(|program| program.expose().trim().is_empty()) {
        return reader.refuse(item, "names no program", "write it as [\"notify\", \"--overload\"], or as a URL");
    }
    Some(Hook::Command(words))
}
