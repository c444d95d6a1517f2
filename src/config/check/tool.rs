//! What single tools of an upstream have of their own: caps, cursors, gates.

use crate::caller::Lane;
use crate::config::node::Value;
use crate::config::read::{Item, Reader, Table};
use crate::config::schema;
use crate::config::{MAX_CONCURRENT_CEILING, ToolConfig};
use crate::limits::cursors::CursorRule;
use crate::limits::gate::{Gate, OnGateError, Price, Test, When};
use crate::limits::pointer::Pointer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The most cursors that any bound may allow: all of one tool are looked at with each of its calls.
pub(super) const MOST_CURSORS: u32 = 10_000;
/// Gates of one tool.
const MOST_GATES: usize = 16;
/// The longest text that tells what to narrow.
const LONGEST_SAY: usize = 500;

pub(super) fn tools(reader: &mut Reader<'_>, table: &Table<'_>, ceiling: u32) -> BTreeMap<String, ToolConfig> {
    let lanes = Lane::ALL.map(|lane| (lane.name(), lane));
    let errors = [("refuse", OnGateError::Refuse), ("allow", OnGateError::Allow)];
    let mut tools = BTreeMap::new();
    for (name, start, item) in table.get("tools").map(|item| reader.entries(item)).unwrap_or_default() {
        if name.is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
            reader.fault_at(start, &item.key, "is no name for a tool", "write it as the upstream lists it");
        }
        let table = reader.table(Some(&item), &item.key, &schema::TOOL, None);
        let long = "write a long time, such as \"30d\", to lift the upstream's limit";
        let tool = ToolConfig {
            max_concurrent: table
                .get("max_concurrent")
                .and_then(|item| reader.limit(item, MAX_CONCURRENT_CEILING))
                .flatten(),
            weight: table.get("weight").and_then(|item| reader.count(item, 1..=MAX_CONCURRENT_CEILING, "")),
            priority: table.get("priority").and_then(|item| reader.choice(item, &lanes)),
            call_timeout: table.get("call_timeout").and_then(|item| reader.some_duration(item, long)),
            cursor: table.get("cursor").and_then(|item| cursor(reader, item)),
            gates: table.get("gate").map(|item| gates(reader, item, &name)).unwrap_or_default(),
            gate_error: table.get("gate_error").and_then(|item| reader.choice(item, &errors)).unwrap_or_default(),
            retry: table.get("retry").and_then(|item| reader.flag(item)).unwrap_or(false),
        };
        // Rule R14: the effective weight is cut to the limit.
        if let (Some(weight), Some(item)) = (tool.weight, table.get("weight"))
            && weight > ceiling
        {
            let message = format!("is above the upstream's max_concurrent ({ceiling}), so it counts as {ceiling}");
            reader.warn(item, message, "lower it, or raise max_concurrent");
        }
        if let (Some(limit), Some(item)) = (tool.max_concurrent, table.get("max_concurrent"))
            && limit > ceiling
        {
            let message = format!("is above the upstream's max_concurrent ({ceiling}), so it never counts");
            reader.warn(item, message, "lower it, or leave it out");
        }
        tools.insert(name, tool);
    }
    tools
}

fn cursor(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<CursorRule> {
    let table = reader.table(Some(item), &item.key, &schema::CURSOR, None);
    let needed = |reader: &mut Reader<'_>, key: &str| match table.get(key) {
        Some(item) => Some((item.clone(), reader.text(item)?.text)),
        None => {
            let hint = "write it as { pointer = \"/structuredContent/next\", argument = \"cursor\" }";
            if super::is_table(item.node) {
                reader.fault(item, format!("lacks `{key}`"), hint);
            }
            None
        }
    };
    let pointer = needed(reader, "pointer").and_then(|(item, text)| pointer(reader, &item, &text));
    let argument = needed(reader, "argument").and_then(|(item, text)| match &*text {
        "" => reader.refuse(&item, "is empty", "name the argument in which a follow-up gives the cursor back"),
        _ => Some(text),
    });
    let count = |reader: &mut Reader<'_>, key: &str, built_in: u32| match table.get(key) {
        Some(item) => reader.count(item, 1..=MOST_CURSORS, ""),
        None => Some(built_in),
    };
    let (per_caller, total) = (count(reader, "per_caller", 10), count(reader, "total", 100));
    let ttl =
        table.get("ttl").map(|item| reader.some_duration(item, "a cursor that nobody follows up must end some time"));
    if let (Some(per_caller), Some(total), Some(item)) = (per_caller, total, table.get("per_caller"))
        && per_caller > total
    {
        reader.warn(item, format!("is above total ({total}), so it never counts"), "lower it, or raise total");
    }
    let enforce = table.get("enforce").and_then(|item| super::enforce(reader, item)).unwrap_or_default();
    Some(CursorRule {
        pointer: pointer?,
        argument: argument?,
        ttl: ttl.unwrap_or(Some(Duration::from_secs(600)))?,
        per_caller: per_caller?,
        total: total?,
        enforce,
    })
}

fn pointer(reader: &mut Reader<'_>, item: &Item<'_>, text: &str) -> Option<Pointer> {
    match Pointer::parse(text) {
        Ok(pointer) => Some(pointer),
        Err(why) => reader.refuse(item, why, "such as \"/structuredContent/next\", or \"/content/0/text\""),
    }
}

fn gates(reader: &mut Reader<'_>, item: &Item<'_>, tool: &str) -> Vec<Gate> {
    let all = match &item.node.value {
        Value::Array(_) => reader.list(item).unwrap_or_default(),
        // One gate may stand in single brackets.
        _ => vec![item.clone()],
    };
    if all.len() > MOST_GATES {
        reader.fault(item, format!("has more than {MOST_GATES} gates"), "join some with ||");
    }
    all.iter().filter_map(|item| gate(reader, item, tool)).collect()
}

fn gate(reader: &mut Reader<'_>, item: &Item<'_>, tool: &str) -> Option<Gate> {
    let table = reader.table(Some(item), &item.key, &schema::GATE, None);
    if !super::is_table(item.node) {
        return None;
    }
    let say = match table.get("say") {
        Some(item) => {
            let say = reader.text(item)?.text;
            let hint = "tell what to narrow, such as \"ask for at most 1000 rows\"";
            if say.trim().is_empty() || say.len() > LONGEST_SAY || say.chars().any(char::is_control) {
                reader.refuse(item, format!("must be one line of 1 to {LONGEST_SAY} letters"), hint)
            } else {
                Some(Arc::from(say.trim()))
            }
        }
        None => reader.refuse(item, "lacks `say`", "tell what to narrow, such as \"ask for at most 1000 rows\""),
    };
    let test = match (table.get("when"), table.get("price")) {
        (Some(when), None) => {
            for key in ["max", "value"] {
                if let Some(item) = table.get(key) {
                    reader.fault(item, "goes with `price` only", "take it out");
                }
            }
            expression(reader, when)
        }
        (None, Some(asked)) => price(reader, &table, item, asked, tool),
        (Some(_), Some(asked)) => reader.refuse(asked, "is given beside `when`", "make two gates of them"),
        (None, None) => reader.refuse(item, "has neither `when` nor `price`", "say by which of them it is too big"),
    };
    let enforce = table.get("enforce").and_then(|item| super::enforce(reader, item)).unwrap_or_default();
    Some(Gate { test: test?, say: say?, enforce })
}

fn expression(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<Test> {
    let source = reader.text(item)?.text;
    match When::compile(&source) {
        Ok(when) => Some(Test::When(Arc::new(when))),
        Err((fault, hint)) => reader.refuse(item, fault, hint),
    }
}

fn price(reader: &mut Reader<'_>, table: &Table<'_>, gate: &Item<'_>, item: &Item<'_>, tool: &str) -> Option<Test> {
    let asked = reader.text(item)?.text;
    if asked.is_empty() || asked == tool {
        return reader.refuse(item, "must be another tool of this upstream", "name a cheap one that tells the price");
    }
    let Some(most) = table.get("max") else {
        return reader.refuse(gate, "lacks `max`", "say what the price may be at most");
    };
    let max = reader.real(most)?;
    if max < 0.0 {
        return reader.refuse(most, "is negative", "0 or more is allowed");
    }
    let value = match table.get("value") {
        Some(item) => {
            let text = reader.text(item)?.text;
            Some(pointer(reader, item, &text)?)
        }
        None => None,
    };
    Some(Test::Price(Price { tool: asked.into(), max, value }))
}
