//! Reads single values of the tree as what they should be, and keeps a fault for each that is not. A fault never
//! stops the reading: all of them are told at once.

use super::Env;
use super::fault::{Finding, Place, did_you_mean};
use super::interpolate::{Filled, fill};
use super::node::{Node, Text, Value, shown_key};
use super::schema::{Key, SECTIONS, Section};
use super::value::{parse_duration, parse_size};
use super::variables::Variables;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// See the module's documentation.
pub(super) struct Reader<'a> {
    pub env: &'a dyn Env,
    /// The config's directory; relative paths start here.
    pub base: PathBuf,
    text: &'a Text,
    pub faults: Vec<Finding>,
    pub warnings: Vec<Finding>,
}

/// A value with its key's path.
#[derive(Clone, Debug)]
pub(super) struct Item<'n> {
    pub key: String,
    pub node: &'n Node,
    /// The environment variable that gave it in place of the file.
    pub variable: Option<&'n str>,
}

/// A table whose keys are known.
#[derive(Debug)]
pub(super) struct Table<'n> {
    pub path: String,
    /// Where it begins, for keys that are missing.
    start: usize,
    items: Vec<(&'static str, Item<'n>)>,
}

impl<'n> Table<'n> {
    pub(super) fn get(&self, key: &str) -> Option<&Item<'n>> {
        self.items.iter().find(|(name, _)| *name == key).map(|(_, item)| item)
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a Text, base: &Path, env: &'a dyn Env) -> Self {
        Reader { env, base: base.into(), text, faults: Vec::new(), warnings: Vec::new() }
    }

    /// Where a byte of the file stands.
    pub(super) fn at(&self, offset: usize) -> Place {
        self.text.place(offset)
    }

    pub(super) fn place(&self, item: &Item<'_>) -> Place {
        match item.variable {
            Some(name) => Place::Variable(name.into()),
            None => self.at(item.node.span.start),
        }
    }

    fn finding(&self, item: &Item<'_>, message: impl Into<String>, hint: &str) -> Finding {
        finding(self.place(item), &item.key, message.into(), hint)
    }

    /// Keeps a fault of a value.
    pub(super) fn fault(&mut self, item: &Item<'_>, message: impl Into<String>, hint: &str) {
        let finding = self.finding(item, message, hint);
        self.faults.push(finding);
    }

    /// Keeps a fault of something that stands at an offset, or should.
    pub(super) fn fault_at(&mut self, offset: usize, key: &str, message: impl Into<String>, hint: &str) {
        self.faults.push(finding(self.at(offset), key, message.into(), hint));
    }

    pub(super) fn warn(&mut self, item: &Item<'_>, message: impl Into<String>, hint: &str) {
        let finding = self.finding(item, message, hint);
        self.warnings.push(finding);
    }

    pub(super) fn warn_at(&mut self, offset: usize, key: &str, message: impl Into<String>, hint: &str) {
        self.warnings.push(finding(self.at(offset), key, message.into(), hint));
    }

    pub(super) fn warn_of(&mut self, table: &Table<'_>, message: impl Into<String>, hint: &str) {
        self.warn_at(table.start, &table.path, message, hint);
    }

    /// Reads a table of known keys. `start` is where it stands when it is not there.
    pub(super) fn table<'n>(
        &mut self,
        item: Option<&Item<'n>>,
        path: &str,
        section: &Section,
        variables: Option<&'n Variables>,
    ) -> Table<'n> {
        let mut table =
            Table { path: path.into(), start: item.map_or(0, |item| item.node.span.start), items: Vec::new() };
        for (entry_key, span_start, item) in item.map(|item| self.entries(item)).unwrap_or_default() {
            let Some(key) = section.find(&entry_key) else {
                self.unknown_key(&item, span_start, &entry_key, section);
                continue;
            };
            if table.get(key.name).is_some() {
                let message = format!("is another name of `{}`, which is given too", key.name);
                self.fault(&item, message, "keep one of the two");
                continue;
            }
            table.items.push((key.name, item));
        }
        for variable in variables.into_iter().flat_map(|variables| variables.of(section)) {
            table.items.retain(|(name, _)| *name != variable.key.name);
            let key = if path.is_empty() { variable.key.name.into() } else { format!("{path}.{}", variable.key.name) };
            table.items.push((variable.key.name, Item { key, node: &variable.node, variable: Some(&variable.name) }));
        }
        table
    }

    fn unknown_key(&mut self, item: &Item<'_>, at: usize, name: &str, section: &Section) {
        let known = section.keys().map(|key: &Key| key.name);
        let hint = match did_you_mean(name, known.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: {}", known.collect::<Vec<_>>().join(", ")),
        };
        self.fault_at(at, &item.key, "is not a key that forebay knows", &hint);
    }

    /// The entries of a table whose keys are names: key, where the key stands, value.
    pub(super) fn entries<'n>(&mut self, item: &Item<'n>) -> Vec<(String, usize, Item<'n>)> {
        let Value::Table(entries) = &item.node.value else {
            self.fault(item, format!("must be a table, not {}", item.node.value.kind()), "");
            return Vec::new();
        };
        let path = |key: &str| {
            if item.key.is_empty() { shown_key(key) } else { format!("{}.{}", item.key, shown_key(key)) }
        };
        entries
            .iter()
            .map(|entry| {
                let item = Item { key: path(&entry.key), node: &entry.node, variable: None };
                (entry.key.clone(), entry.key_span.start, item)
            })
            .collect()
    }

    /// A string, filled in.
    pub(super) fn text(&mut self, item: &Item<'_>) -> Option<Filled> {
        match &item.node.value {
            Value::Text(text) if item.variable.is_some() => Some(Filled { text: text.clone(), secret: false }),
            Value::Text(text) => match fill(text, &self.base, self.env) {
                Ok(filled) => Some(filled),
                Err((message, hint)) => {
                    self.fault(item, message, &hint);
                    None
                }
            },
            other => {
                let hint = if matches!(other, Value::Whole(_) | Value::Real(_) | Value::Flag(_)) {
                    "put it in quotes"
                } else {
                    ""
                };
                self.fault(item, format!("must be a string, not {}", other.kind()), hint);
                None
            }
        }
    }

    /// A string that goes to a program or over a wire, where a zero byte cannot go.
    pub(super) fn text_without_zero(&mut self, item: &Item<'_>) -> Option<String> {
        let text = self.text(item)?.text;
        if text.contains('\0') {
            self.fault(item, "has a zero byte in it", "");
            return None;
        }
        Some(text)
    }

    fn whole(&mut self, item: &Item<'_>) -> Option<i64> {
        let message = match &item.node.value {
            Value::Whole(Some(number)) => return Some(*number),
            Value::Whole(None) => "is beyond all bounds",
            Value::Real(number) if !number.is_finite() => "is not a finite number",
            Value::Real(_) => "must be a whole number",
            Value::Text(_) => {
                let text = self.text(item)?.text;
                let text = text.trim();
                if let Ok(number) = text.parse() {
                    return Some(number);
                }
                let digits = text.strip_prefix('-').unwrap_or(text);
                if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    "is beyond all bounds"
                } else {
                    "must be a whole number"
                }
            }
            other => {
                self.fault(item, format!("must be a whole number, not {}", other.kind()), "");
                return None;
            }
        };
        self.fault(item, message, "");
        None
    }

    /// A whole number within bounds.
    pub(super) fn count(&mut self, item: &Item<'_>, bounds: RangeInclusive<u32>, hint: &str) -> Option<u32> {
        let number = self.whole(item)?;
        let message = match u32::try_from(number) {
            Ok(number) if bounds.contains(&number) => return Some(number),
            _ if number < 0 => "is negative".to_owned(),
            _ if number < i64::from(*bounds.start()) => format!("is below {}", bounds.start()),
            _ => format!("is above {}", bounds.end()),
        };
        let hint =
            if hint.is_empty() { format!("{} to {} are allowed", bounds.start(), bounds.end()) } else { hint.into() };
        self.fault(item, message, &hint);
        None
    }

    /// A limit; 0 and "unlimited" lift it (`Some(None)`).
    pub(super) fn limit(&mut self, item: &Item<'_>, most: u32) -> Option<Option<u32>> {
        if let Value::Text(text) = &item.node.value
            && text.trim().eq_ignore_ascii_case("unlimited")
        {
            return Some(None);
        }
        let hint = format!("1 to {most}, or 0 or \"unlimited\" for no limit");
        self.count(item, 0..=most, &hint).map(|number| (number > 0).then_some(number))
    }

    pub(super) fn signed(&mut self, item: &Item<'_>) -> Option<i64> {
        self.whole(item)
    }

    /// A number that may have a fraction, always finite.
    pub(super) fn real(&mut self, item: &Item<'_>) -> Option<f64> {
        let number = match &item.node.value {
            Value::Whole(Some(number)) => *number as f64,
            Value::Whole(None) => f64::INFINITY,
            Value::Real(number) => *number,
            Value::Text(_) => match self.text(item)?.text.trim().parse() {
                Ok(number) => number,
                Err(_) => {
                    self.fault(item, "must be a number", "");
                    return None;
                }
            },
            other => {
                self.fault(item, format!("must be a number, not {}", other.kind()), "");
                return None;
            }
        };
        if !number.is_finite() {
            self.fault(item, "is not a finite number", "");
            return None;
        }
        Some(number)
    }

    /// A duration; 0 is none (`Some(None)`).
    pub(super) fn duration(&mut self, item: &Item<'_>) -> Option<Option<Duration>> {
        let nonzero = |duration: Duration| (!duration.is_zero()).then_some(duration);
        match &item.node.value {
            Value::Whole(Some(0)) => Some(None),
            Value::Real(number) if *number == 0.0 => Some(None),
            Value::Whole(Some(number)) if *number < 0 => self.refuse(item, "is negative", ""),
            Value::Whole(Some(number)) => {
                let hint = format!("write \"{number}s\" or \"{number}ms\"; 0 means none");
                self.refuse(item, "is a number without a unit", &hint)
            }
            Value::Whole(None) => self.refuse(item, "is beyond all bounds", "write it as \"30s\""),
            Value::Real(number) if !number.is_finite() => {
                self.refuse(item, "is not a finite number", "write it as \"30s\"")
            }
            Value::Real(number) if *number < 0.0 => self.refuse(item, "is negative", ""),
            Value::Real(_) => self.refuse(item, "is a number without a unit", "write it as \"1.5s\""),
            Value::Text(_) => {
                let text = self.text(item)?;
                match parse_duration(&text.text) {
                    Ok(duration) => Some(nonzero(duration)),
                    Err(_) if text.secret => {
                        self.refuse(item, "is filled in with something that is no duration", "write it as \"30s\"")
                    }
                    Err(_) if text.text.trim().starts_with('-') => {
                        self.refuse(item, "is negative", "write it as \"30s\"")
                    }
                    Err(why) => self.refuse(item, why, ""),
                }
            }
            other => {
                let message = format!("must be a duration such as \"30s\", not {}", other.kind());
                self.refuse(item, message, "")
            }
        }
    }

    /// A duration where none would make no sense.
    pub(super) fn some_duration(&mut self, item: &Item<'_>, hint: &str) -> Option<Duration> {
        match self.duration(item)? {
            Some(duration) => Some(duration),
            None => self.refuse(item, "must not be 0", hint),
        }
    }

    /// A size in bytes within bounds.
    pub(super) fn size(&mut self, item: &Item<'_>, bounds: RangeInclusive<u64>) -> Option<u64> {
        let bytes = match &item.node.value {
            Value::Text(_) => {
                let text = self.text(item)?;
                match parse_size(&text.text) {
                    Ok(bytes) => bytes,
                    Err(_) if text.secret => {
                        return self.refuse(item, "is filled in with something that is no size", "");
                    }
                    Err(_) if text.text.trim().starts_with('-') => return self.refuse(item, "is negative", ""),
                    Err(why) => return self.refuse(item, why, ""),
                }
            }
            _ => match self.whole(item)? {
                number if number < 0 => return self.refuse(item, "is negative", ""),
                number => number.unsigned_abs(),
            },
        };
        if !bounds.contains(&bytes) {
            let message = if bytes < *bounds.start() { "is too small" } else { "is too large" };
            let hint = format!("{} to {} bytes are allowed", bounds.start(), bounds.end());
            return self.refuse(item, message, &hint);
        }
        Some(bytes)
    }

    pub(super) fn flag(&mut self, item: &Item<'_>) -> Option<bool> {
        match &item.node.value {
            Value::Flag(flag) => Some(*flag),
            Value::Text(_) => match self.text(item)?.text.trim() {
                "true" => Some(true),
                "false" => Some(false),
                _ => self.refuse(item, "must be true or false", ""),
            },
            other => {
                let message = format!("must be true or false, not {}", other.kind());
                self.refuse(item, message, "")
            }
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&mut self, item: &Item<'_>, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(item)?.text;
        if let Some((_, meant)) = words.iter().find(|(word, _)| *word == text.trim()) {
            return Some(*meant);
        }
        let known = words.iter().map(|(word, _)| *word);
        let list = known.clone().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
        let hint = did_you_mean(&text, known).map(|near| format!("did you mean \"{near}\"?")).unwrap_or_default();
        self.refuse(item, format!("must be one of {list}"), &hint)
    }

    /// The elements of a list.
    pub(super) fn list<'n>(&mut self, item: &Item<'n>) -> Option<Vec<Item<'n>>> {
        let Value::Array(elements) = &item.node.value else {
            let message = format!("must be a list, not {}", item.node.value.kind());
            return self.refuse(item, message, "write it in [ ]");
        };
        let element = |(at, node)| Item { key: format!("{}[{at}]", item.key), node, variable: None };
        Some(elements.iter().enumerate().map(element).collect())
    }

    /// A list of plain strings.
    pub(super) fn strings<'n>(&mut self, item: &Item<'n>) -> Option<Vec<(String, Item<'n>)>> {
        let elements = self.list(item)?;
        Some(elements.into_iter().filter_map(|element| Some((self.text(&element)?.text, element))).collect())
    }

    /// Keeps a fault and gives nothing.
    pub(super) fn refuse<T>(&mut self, item: &Item<'_>, message: impl Into<String>, hint: &str) -> Option<T> {
        self.fault(item, message, hint);
        None
    }
}

/// A finding; without a hint of its own, a message of two parts gives one, or what the key takes.
fn finding(place: Place, key: &str, message: String, hint: &str) -> Finding {
    let (message, hint) = match (hint, message.split_once("; ")) {
        ("", Some((message, hint))) => (message.to_owned(), Some(hint.to_owned())),
        ("", None) => (message, takes(key)),
        (hint, _) => (message, Some(hint.to_owned())),
    };
    Finding { place, key: key.into(), message, hint }
}

/// What a key takes, by the last part of its path.
fn takes(path: &str) -> Option<String> {
    let name = path.rsplit('.').next().unwrap_or(path);
    let name = name.split('[').next().unwrap_or(name);
    let key = SECTIONS.iter().find_map(|section| section.find(name))?;
    Some(format!("`{}` takes: {} ({})", key.name, key.kind, key.meaning))
}
