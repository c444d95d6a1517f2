//! Limits as `[defaults]` and each upstream give them, and how the two and the built-in ones add up.

use crate::config::node::Value;
use crate::config::read::{Item, Reader, Table};
use crate::config::schema;
use crate::config::{AfterCancel, Concurrency, Fairness, Limits, MAX_CONCURRENT_CEILING, OnFull, Start};
use std::time::Duration;

/// The longest queue: the submit ring has 65,536 places at most, and running calls pass through it too (R21).
pub(crate) const LONGEST_QUEUE: u32 = 65_536 - MAX_CONCURRENT_CEILING;

/// What one table says; none is what it leaves to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub max_concurrent: Option<Concurrency>,
    pub queue_size: Option<u32>,
    pub queue_bytes: Option<u64>,
    pub queue_timeout: Option<Option<Duration>>,
    pub call_timeout: Option<Option<Duration>>,
    pub cancel_grace: Option<Duration>,
    pub after_cancel: Option<AfterCancel>,
    pub on_full: Option<OnFull>,
    pub fairness: Option<Fairness>,
    pub max_queued: Option<u32>,
    pub sojourn: Option<bool>,
    pub count_everything: Option<bool>,
    pub start: Option<Start>,
    pub connect_timeout: Option<Duration>,
    pub max_message: Option<u64>,
}

pub(super) fn read(reader: &mut Reader<'_>, table: &Table<'_>) -> Given {
    let after_cancel =
        [("release", AfterCancel::Release), ("hold", AfterCancel::Hold), ("recycle", AfterCancel::Recycle)];
    let on_full = [("displace", OnFull::Displace), ("reject", OnFull::Reject)];
    let fairness = [("callers", Fairness::Callers), ("none", Fairness::None)];
    let start = [("eager", Start::Eager), ("on_demand", Start::OnDemand)];
    let queue_hint = format!("0 to {LONGEST_QUEUE}; 0 means never wait, and a queue always has a bound");
    let max_queued_hint = "leave it out for no limit; for a queue that takes nothing set queue_size = 0";
    Given {
        max_concurrent: table.get("max_concurrent").and_then(|item| concurrency(reader, item)),
        queue_size: table.get("queue_size").and_then(|item| reader.count(item, 0..=LONGEST_QUEUE, &queue_hint)),
        queue_bytes: table.get("queue_bytes").and_then(|item| reader.size(item, 1 << 10..=1 << 40)),
        queue_timeout: table.get("queue_timeout").and_then(|item| reader.duration(item)),
        call_timeout: table.get("call_timeout").and_then(|item| reader.duration(item)),
        cancel_grace: table.get("cancel_grace").and_then(|item| {
            reader.some_duration(
                item,
                "\"1ms\" is the shortest; after_cancel = \"hold\" waits as long as the call may run",
            )
        }),
        after_cancel: table.get("after_cancel").and_then(|item| reader.choice(item, &after_cancel)),
        on_full: table.get("on_full").and_then(|item| reader.choice(item, &on_full)),
        fairness: table.get("fairness").and_then(|item| reader.choice(item, &fairness)),
        max_queued: table.get("max_queued").and_then(|item| reader.count(item, 1..=LONGEST_QUEUE, max_queued_hint)),
        sojourn: table.get("sojourn_control").and_then(|item| reader.flag(item)),
        count_everything: table.get("count_everything").and_then(|item| reader.flag(item)),
        start: table.get("start").and_then(|item| reader.choice(item, &start)),
        connect_timeout: table
            .get("connect_timeout")
            .and_then(|item| reader.some_duration(item, "an upstream that never answers must be given up some time")),
        max_message: table.get("max_message").and_then(|item| reader.size(item, 1 << 10..=1 << 30)),
    }
    .with_a_limit_behind_its_queue(reader, table)
}

fn concurrency(reader: &mut Reader<'_>, item: &Item<'_>) -> Option<Concurrency> {
    if !matches!(item.node.value, Value::Table(_)) {
        let limit = reader.limit(item, MAX_CONCURRENT_CEILING)?;
        return Some(limit.map_or(Concurrency::Unlimited, Concurrency::Fixed));
    }
    let range = reader.table(Some(item), &item.key, &schema::RANGE, None);
    let mut end = |key| match range.get(key) {
        Some(item) => reader.count(item, 1..=MAX_CONCURRENT_CEILING, ""),
        None => reader.refuse(item, format!("lacks `{key}`"), "write it as { min = 2, max = 20 }"),
    };
    let (min, max) = (end("min"), end("max"));
    match (min?, max?) {
        (min, max) if min > max => reader.refuse(item, "has a min above its max", "swap the two"),
        (min, max) => Some(Concurrency::Adaptive { min, max }),
    }
}

impl Given {
    /// Nothing ever waits behind a limit that is not there, so who asks for a queue then is mistaken (C40).
    fn with_a_limit_behind_its_queue(self, reader: &mut Reader<'_>, table: &Table<'_>) -> Self {
        if self.max_concurrent == Some(Concurrency::Unlimited) {
            self.refuse_queue(reader, table);
        }
        self
    }

    /// Keeps a fault if this table asks for a queue.
    pub(super) fn refuse_queue(&self, reader: &mut Reader<'_>, table: &Table<'_>) {
        if let (Some(1..), Some(item)) = (self.queue_size, table.get("queue_size")) {
            let hint = "set max_concurrent to a number, or leave queue_size out";
            reader.fault(item, "asks for a queue, but max_concurrent is unlimited: nothing would ever wait", hint);
        }
    }

    /// What this table says, else what `defaults` says, else what is built in.
    pub(super) fn limits(&self, defaults: &Given, stdio: bool) -> Limits {
        let built_in = Limits::built_in(stdio);
        Limits {
            max_concurrent: self.max_concurrent.or(defaults.max_concurrent).unwrap_or(built_in.max_concurrent),
            queue_size: self.queue_size.or(defaults.queue_size).unwrap_or(built_in.queue_size),
            queue_bytes: self.queue_bytes.or(defaults.queue_bytes).unwrap_or(built_in.queue_bytes),
            queue_timeout: self.queue_timeout.or(defaults.queue_timeout).unwrap_or(built_in.queue_timeout),
            call_timeout: self.call_timeout.or(defaults.call_timeout).unwrap_or(built_in.call_timeout),
            cancel_grace: self.cancel_grace.or(defaults.cancel_grace).unwrap_or(built_in.cancel_grace),
            after_cancel: self.after_cancel.or(defaults.after_cancel).unwrap_or(built_in.after_cancel),
            on_full: self.on_full.or(defaults.on_full).unwrap_or(built_in.on_full),
            fairness: self.fairness.or(defaults.fairness).unwrap_or(built_in.fairness),
            max_queued: self.max_queued.or(defaults.max_queued).or(built_in.max_queued),
            sojourn: self.sojourn.or(defaults.sojourn).unwrap_or(built_in.sojourn),
            count_everything: self.count_everything.or(defaults.count_everything).unwrap_or(built_in.count_everything),
        }
    }
}
