//! Callers: what each holds, what it was refused, and its share of all that waits.

use super::chrome::{ago, pending};
use super::paint::{Pen, Tone, wrap};
use super::table::{Column, RowLook, Table, column, put};
use super::words::{lane_word, percent};
use super::{View, lines};
use crate::state::{Drawn, Followed, Room, Rows, Sort, Which};
use crate::text::{cut, time};
use forebay_wire::Caller;
use ratatui::Frame;
use ratatui::layout::Rect;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Name,
    Identity,
    Client,
    Run,
    Wait,
    Bar,
    Share,
    Rate,
    Errors,
    Shed,
    Cancelled,
    Last,
    Weight,
    MostRunning,
    MostWaiting,
    MostRate,
    Lane,
}

const NAME: Column<Cell> = column(Cell::Name, "CALLER", 12, Sort::Name).grows();
const IDENTITY: Column<Cell> = column(Cell::Identity, "IDENTITY", 8, Sort::Name).unsorted();
const RUN: Column<Cell> = column(Cell::Run, "RUN", 4, Sort::Run).right();
const WAIT: Column<Cell> = column(Cell::Wait, "WAIT", 5, Sort::Wait).right();
const BAR: Column<Cell> = column(Cell::Bar, "SHARE", 9, Sort::Share);
const SHARE: Column<Cell> = column(Cell::Share, "", 4, Sort::Share).right();
const RATE: Column<Cell> = column(Cell::Rate, "REQ/M", 6, Sort::Rate).right();
const ERRORS: Column<Cell> = column(Cell::Errors, "ERR", 5, Sort::Errors).right();
const SHED: Column<Cell> = column(Cell::Shed, "SHED", 5, Sort::Shed).right();
const CANCELLED: Column<Cell> = column(Cell::Cancelled, "CXL", 4, Sort::Cancelled).right();
const LAST: Column<Cell> = column(Cell::Last, "LAST", 6, Sort::Last).right();

const SMALL: &[Column<Cell>] = &[NAME, RUN, WAIT, SHED];
const NARROW: &[Column<Cell>] = &[NAME, RUN, WAIT, BAR, SHARE, RATE, SHED];
const FULL: &[Column<Cell>] = &[NAME, IDENTITY, RUN, WAIT, BAR, SHARE, RATE, ERRORS, SHED, CANCELLED, LAST];
const WIDE: &[Column<Cell>] = &[
    Column { width: 18, ..NAME },
    IDENTITY,
    column(Cell::Client, "CLIENT (declared)", 20, Sort::Name).unsorted(),
    RUN,
    WAIT,
    Column { width: 12, ..BAR },
    SHARE,
    RATE,
    ERRORS,
    SHED,
    CANCELLED,
    LAST,
    column(Cell::Weight, "WEIGHT", 6, Sort::Name).right().unsorted(),
    column(Cell::MostRunning, "MAX RUN", 7, Sort::Name).right().unsorted(),
    column(Cell::MostWaiting, "MAX WAIT", 8, Sort::Name).right().unsorted(),
    column(Cell::MostRate, "MAX/S", 5, Sort::Name).right().unsorted(),
    column(Cell::Lane, "TOP PRI", 7, Sort::Name).unsorted(),
];

pub(super) fn draw(view: &View<'_>, frame: &mut Frame<'_>, area: Rect, drawn: &mut Drawn) {
    let list = &view.state.lists.callers;
    let all = view.state.rows(Which::Callers, view.now);
    let index = all.index(list);
    let rows = match all {
        Rows::Callers(rows) => rows,
        _ => Vec::new(),
    };
    let panel = if view.room > Room::Small && area.height >= 10 { 4 } else { 0 };
    let table = Table {
        which: Which::Callers,
        list,
        columns: match area.width {
            ..60 => SMALL,
            60..80 => NARROW,
            80..138 => FULL,
            _ => WIDE,
        },
        count: rows.len(),
        total: rows.len(),
        index,
        focus: true,
        empty: if list.filter.is_empty() { pending(view) } else { "nothing matches the filter" },
    };
    table.draw(
        frame,
        lines(area, 0, area.height - panel),
        view.look,
        drawn,
        |_| RowLook::default(),
        |row, what, width| rows.get(row).map_or((String::new(), Tone::Plain), |row| cell(view, row, what, width)),
    );
    if panel > 0 {
        let below = lines(area, area.height - panel, panel);
        put(frame, below, 0, view.look.span(view.look.rule(usize::from(area.width)), Tone::Dim).into());
        if let Some(row) = index.and_then(|index| rows.get(index)) {
            sentences(view, row, frame, lines(below, 1, panel - 1));
        }
    }
}

/// Its part of all waiting calls, in ten thousand.
fn share(view: &View<'_>, caller: &Caller) -> u64 {
    match view.model.totals.queued {
        0 => 0,
        all => (u64::from(caller.queued) * 10_000 / all).min(10_000),
    }
}

fn cell(view: &View<'_>, row: &Followed<Caller>, what: Cell, width: usize) -> (String, Tone) {
    let caller = &row.now;
    let plain = |text: String| (text, Tone::Plain);
    let or_dash = |value: Option<String>| plain(value.unwrap_or_else(|| "-".into()));
    match what {
        Cell::Name => plain(caller.name.clone()),
        Cell::Identity => plain(caller.identity.clone()),
        Cell::Client => or_dash(caller.client.clone()),
        Cell::Run => plain(caller.running.to_string()),
        Cell::Wait => plain(caller.queued.to_string()),
        Cell::Bar => (view.look.bar(share(view, caller), 10_000, width), Tone::Warn),
        Cell::Share => plain(format!("{}%", share(view, caller) / 100)),
        Cell::Rate => plain(row.past.per_minute(|sample| sample.offered).to_string()),
        Cell::Errors => {
            let rate = crate::state::error_rate(&row.past);
            (percent(rate), if rate > 0 { Tone::Warn } else { Tone::Plain })
        }
        Cell::Shed => {
            let shed = row.past.gain(|sample| sample.shed, 60);
            (shed.to_string(), if shed > 0 { Tone::Bad } else { Tone::Plain })
        }
        Cell::Cancelled => plain(caller.cancelled.to_string()),
        Cell::Last => plain(ago(view, row.at, caller.last_ms)),
        Cell::Weight => plain(caller.weight.to_string()),
        Cell::MostRunning => or_dash(caller.max_concurrent.map(|most| most.to_string())),
        Cell::MostWaiting => or_dash(caller.max_queued.map(|most| most.to_string())),
        Cell::MostRate => or_dash(caller.rate_per_second.map(|rate| format!("{rate}"))),
        Cell::Lane => or_dash(caller.max_priority.map(|lane| lane_word(lane).into())),
    }
}

fn sentences(view: &View<'_>, row: &Followed<Caller>, frame: &mut Frame<'_>, area: Rect) {
    let caller = &row.now;
    let name = cut(&caller.name, 24);
    let mut limits = vec![format!("weight {}", caller.weight)];
    limits.extend(caller.max_concurrent.map(|most| format!("max_concurrent {most}")));
    limits.extend(caller.max_queued.map(|most| format!("max_queued {most}")));
    limits.extend(caller.rate_per_second.map(|rate| format!("at most {rate} a second")));
    let mut said =
        vec![format!("{name} holds {}% of all queued calls ({}).", share(view, caller) / 100, limits.join(", "))];
    let calls = &view.model.calls;
    if calls.query().is_some_and(|query| query.caller.as_deref() == Some(&caller.name)) && calls.loaded() > 0 {
        let rows = calls.rows();
        let mut by: Vec<(&str, u32)> = Vec::new();
        for row in rows.iter().filter(|row| !row.gone) {
            match by.iter_mut().find(|(name, _)| *name == row.call.upstream) {
                Some((_, count)) => *count += 1,
                None => by.push((&row.call.upstream, 1)),
            }
        }
        by.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let split: Vec<_> = by.iter().take(4).map(|(name, count)| format!("{} {count}", cut(name, 20))).collect();
        let oldest = rows.iter().map(|row| row.queued_ms(view.clock)).max().unwrap_or(0);
        let first = if calls.is_complete() { "" } else { " (of its first calls)" };
        said.push(format!("By upstream{first}: {}. Oldest wait {}.", split.join(", "), time(oldest)));
    }
    if caller.identity == "none" {
        said.push("'none': callers without identity share one record; clients' names are claims.".into());
    } else if let Some(client) = &caller.client {
        said.push(format!("Its client says of itself: {} (a claim).", cut(client, 40)));
    }
    let room = usize::from(area.width).saturating_sub(2);
    for (down, line) in said.iter().flat_map(|text| wrap(text, room)).enumerate() {
        put(frame, area, u16::try_from(down).unwrap_or(u16::MAX), Pen::new(view.look).plain(" ").plain(&line).line());
    }
}
