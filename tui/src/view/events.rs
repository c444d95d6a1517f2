//! The event log: what happened, the newest first.

use super::chrome::pending;
use super::paint::{Pen, Tone};
use super::table::{Column, RowLook, Table, column, put};
use super::words::{clock, level_tone};
use super::{View, lines};
use crate::state::{Drawn, Room, Rows, Sort, Which};
use forebay_wire::Event;
use ratatui::Frame;
use ratatui::layout::Rect;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Time,
    Level,
    Kind,
    Upstream,
    Caller,
    Call,
    By,
    Detail,
}

const TIME: Column<Cell> = column(Cell::Time, "TIME", 10, Sort::Queue).unsorted();
const LEVEL: Column<Cell> = column(Cell::Level, "LEVEL", 5, Sort::Queue).unsorted();
const KIND: Column<Cell> = column(Cell::Kind, "EVENT", 14, Sort::Queue).unsorted();
const UPSTREAM: Column<Cell> = column(Cell::Upstream, "UPSTREAM", 10, Sort::Queue).unsorted();
const DETAIL: Column<Cell> = column(Cell::Detail, "DETAIL", 10, Sort::Queue).unsorted().grows();

const SMALL: &[Column<Cell>] = &[Column { width: 8, ..TIME }, Column { width: 12, ..KIND }, DETAIL];
const FULL: &[Column<Cell>] = &[TIME, LEVEL, KIND, UPSTREAM, DETAIL];
const WIDE: &[Column<Cell>] = &[
    TIME,
    LEVEL,
    Column { width: 18, ..KIND },
    Column { width: 14, ..UPSTREAM },
    column(Cell::Caller, "CALLER", 16, Sort::Queue).unsorted(),
    column(Cell::Call, "CALL", 11, Sort::Queue).unsorted(),
    column(Cell::By, "BY", 14, Sort::Queue).unsorted(),
    DETAIL,
];

pub(super) fn draw(view: &View<'_>, frame: &mut Frame<'_>, area: Rect, drawn: &mut Drawn) {
    let list = &view.state.lists.events;
    let all = view.state.rows(Which::Events, view.now);
    let index = all.index(list);
    let rows = match all {
        Rows::Events(rows) => rows,
        _ => Vec::new(),
    };
    let panel = u16::from(view.room > Room::Small && area.height > 6) * 2;
    let table = Table {
        which: Which::Events,
        list,
        columns: match area.width {
            ..60 => SMALL,
            60..120 => FULL,
            _ => WIDE,
        },
        count: rows.len(),
        total: rows.len(),
        index,
        focus: true,
        empty: if list.filter.is_empty() { pending(view) } else { "nothing matches the filter" },
    };
    let wide = area.width >= 120;
    table.draw(
        frame,
        lines(area, 0, area.height - panel),
        view.look,
        drawn,
        |_| RowLook::default(),
        |row, what, _| rows.get(row).map_or((String::new(), Tone::Plain), |event| cell(view, event, what, wide)),
    );
    if panel > 0 {
        let below = lines(area, area.height - panel, panel);
        let width = usize::from(area.width);
        put(frame, below, 0, view.look.span(view.look.rule(width), Tone::Dim).into());
        let mut line = String::from(" CLI: forebay events --follow");
        if view.state.level != forebay_wire::Level::Info {
            line.push_str(&format!(" --level {}", view.state.level.name()));
        }
        if view.model.events_missed > 0 {
            line.push_str(&format!("   {} came too fast to be told", view.model.events_missed));
        }
        put(frame, below, 1, Pen::new(view.look).left(&line, width, Tone::Dim).line());
    }
}

fn cell(view: &View<'_>, event: &Event, what: Cell, wide: bool) -> (String, Tone) {
    let plain = |text: String| (text, Tone::Plain);
    let or_dash = |text: &Option<String>| plain(text.clone().unwrap_or_else(|| "-".into()));
    match what {
        Cell::Time => plain(clock(event.at_unix_ms, view.state.options.utc_offset_s, true)),
        Cell::Level => (event.level.name().into(), level_tone(event.level)),
        Cell::Kind => plain(event.kind.clone()),
        Cell::Upstream => or_dash(&event.upstream),
        Cell::Caller => or_dash(&event.caller),
        Cell::Call => or_dash(&event.call),
        Cell::By => or_dash(&event.by),
        Cell::Detail => plain(detail(event, !wide)),
    }
}

/// What an event says, with whom it is about where that has no column of its own.
fn detail(event: &Event, with_names: bool) -> String {
    let mut words: Vec<&str> = Vec::new();
    if with_names {
        words.extend(event.caller.as_deref());
        words.extend(event.call.as_deref());
    }
    words.push(&event.text);
    let by = event.by.as_ref().filter(|_| with_names).map(|by| format!("by {by}"));
    words.extend(by.as_deref());
    let times = (event.times > 1).then(|| format!("({} times)", event.times));
    words.extend(times.as_deref());
    words.join(" ")
}

/// The newest events, of one upstream or of all, without a heading.
pub(super) fn newest(view: &View<'_>, upstream: Option<&str>, frame: &mut Frame<'_>, area: Rect) {
    let about = |event: &&Event| upstream.is_none() || event.upstream.as_deref() == upstream;
    let events = view.model.events.iter().rev().filter(about).take(usize::from(area.height));
    let width = usize::from(area.width);
    for (down, event) in events.enumerate() {
        let mut pen = Pen::new(view.look)
            .plain(" ")
            .plain(&clock(event.at_unix_ms, view.state.options.utc_offset_s, true))
            .plain(" ")
            .left(event.level.name(), 5, level_tone(event.level))
            .plain(" ")
            .left(&event.kind, if width > 100 { 18 } else { 14 }, Tone::Plain)
            .plain(" ");
        if upstream.is_none() {
            pen = pen.left(event.upstream.as_deref().unwrap_or("-"), 14, Tone::Plain).plain(" ");
        }
        let room = width.saturating_sub(pen.used());
        put(frame, area, down as u16, pen.left(&detail(event, true), room, Tone::Plain).line());
    }
}
