//! Tables of calls: all of them, one caller's, or one upstream's queue.

use super::chrome::{loaded, pending};
use super::paint::{Pen, Tone, wrap};
use super::table::{Column, RowLook, Table, column, put};
use super::words::{call_state, lane_letter, some_time};
use super::{View, lines};
use crate::state::{Drawn, Room, Row, Rows, Screen, Sort, Which, aim};
use crate::text::time;
use forebay_wire::CallState;
use ratatui::Frame;
use ratatui::layout::Rect;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Id,
    /// A word, or the position of one that waits.
    State,
    Word,
    Position,
    Lane,
    Caller,
    Upstream,
    Method,
    Tool,
    Age,
    Waited,
    Left,
    Bar,
}

const ID: Column<Cell> = column(Cell::Id, "ID", 11, Sort::Queue);
const STATE: Column<Cell> = column(Cell::State, "STATE", 5, Sort::State);
const LANE: Column<Cell> = column(Cell::Lane, "PRI", 3, Sort::Lane);
const CALLER: Column<Cell> = column(Cell::Caller, "CALLER", 12, Sort::Caller);
const UPSTREAM: Column<Cell> = column(Cell::Upstream, "UPSTREAM", 10, Sort::Upstream);
const TOOL: Column<Cell> = column(Cell::Tool, "TOOL", 8, Sort::Tool).grows();
const AGE: Column<Cell> = column(Cell::Age, "AGE", 6, Sort::Age).right();
const LEFT: Column<Cell> = column(Cell::Left, "LEFT", 6, Sort::Left).right();
const BAR: Column<Cell> = column(Cell::Bar, "DEADLINE", 20, Sort::Left);

const SMALL: &[Column<Cell>] = &[ID, STATE, Column { width: 10, ..CALLER }.grows(), AGE];
const NARROW: &[Column<Cell>] = &[ID, STATE, CALLER, TOOL, AGE, LEFT];
const FULL: &[Column<Cell>] = &[ID, STATE, LANE, CALLER, TOOL, AGE, BAR];
const FULL_OF_CALLER: &[Column<Cell>] = &[ID, STATE, LANE, Column { width: 12, ..UPSTREAM }, TOOL, AGE, BAR];
const FULL_OF_ALL: &[Column<Cell>] = &[ID, STATE, CALLER, UPSTREAM, TOOL, AGE, Column { width: 16, ..BAR }];
const WORD: Column<Cell> = column(Cell::Word, "STATE", 5, Sort::State);
const POSITION: Column<Cell> = column(Cell::Position, "POS", 6, Sort::Queue).right();
const METHOD: Column<Cell> = column(Cell::Method, "METHOD", 12, Sort::Tool).unsorted();
const WAITED: Column<Cell> = column(Cell::Waited, "WAITED", 6, Sort::Waited).right();
const WIDE: &[Column<Cell>] = &[
    Column { width: 12, ..ID },
    WORD,
    POSITION,
    LANE,
    Column { width: 20, ..CALLER },
    METHOD,
    TOOL,
    AGE,
    WAITED,
    Column { width: 28, ..BAR },
];
const WIDE_OF_ALL: &[Column<Cell>] = &[
    Column { width: 12, ..ID },
    WORD,
    POSITION,
    LANE,
    Column { width: 20, ..CALLER },
    Column { width: 16, ..UPSTREAM },
    METHOD,
    TOOL,
    AGE,
    WAITED,
    Column { width: 28, ..BAR },
];

pub(super) fn draw(view: &View<'_>, frame: &mut Frame<'_>, area: Rect, drawn: &mut Drawn) {
    let which = view.state.active();
    let (total, words) = loaded(view, view.state.lists.get(which));
    if view.room == Room::Small {
        table(view, which, total, true, frame, area, drawn);
        return;
    }
    let calls = &view.model.calls;
    let mut title = if calls.is_complete() { format!(" {words} calls") } else { format!(" {words}") };
    if let Screen::OfCaller(name) = view.state.screen()
        && let Some(row) = view.model.callers.get(name)
    {
        title.push_str(&format!("   {} running, {} waiting", row.now.running, row.now.queued));
    }
    if !calls.missing.is_empty() {
        title.push_str(&format!("   missing, as they do not answer: {}", calls.missing.join(", ")));
    }
    let width = usize::from(area.width);
    put(frame, area, 0, Pen::new(view.look).left(&title, width, Tone::Dim).line());
    table(view, which, total, true, frame, lines(area, 1, area.height), drawn);
}

/// The table alone.
pub(super) fn table(
    view: &View<'_>,
    which: Which,
    total: u64,
    focus: bool,
    frame: &mut Frame<'_>,
    area: Rect,
    drawn: &mut Drawn,
) {
    let list = view.state.lists.get(which);
    let all = view.state.rows(which, view.now);
    let index = all.index(list);
    let rows = match all {
        Rows::Calls(rows) => rows,
        _ => Vec::new(),
    };
    let empty = if !view.model.calls.has_answer() && view.state.is_live() {
        "loading ..."
    } else if list.filter.is_empty() && view.state.is_live() {
        "no calls: nothing is running or waiting here"
    } else if view.state.is_live() {
        "nothing matches the filter"
    } else {
        pending(view)
    };
    let table = Table {
        which,
        list,
        columns: set(which, area.width),
        count: rows.len(),
        total: usize::try_from(total).unwrap_or(usize::MAX),
        index,
        focus,
        empty,
    };
    table.draw(
        frame,
        area,
        view.look,
        drawn,
        |row| {
            let row = rows.get(row);
            RowLook {
                marked: row.is_some_and(|row| view.state.marks.contains(&row.call.id)),
                dim: row.is_some_and(|row| row.gone || row.call.state == CallState::Finished),
            }
        },
        |row, what, width| rows.get(row).map_or((String::new(), Tone::Plain), |row| cell(view, row, what, width)),
    );
}

fn set(which: Which, width: u16) -> &'static [Column<Cell>] {
    match (which, width) {
        (_, ..60) => SMALL,
        (_, 60..72) => NARROW,
        (Which::Requests, 72..120) => FULL_OF_ALL,
        (Which::OfCaller, 72..120) => FULL_OF_CALLER,
        (_, 72..120) => FULL,
        (Which::Requests | Which::OfCaller, _) => WIDE_OF_ALL,
        _ => WIDE,
    }
}

/// The end of a time is near: less than a tenth of it is left.
fn is_urgent(left: u64, whole: u64) -> bool {
    left.saturating_mul(10) < whole
}

fn cell(view: &View<'_>, row: &Row<'_>, what: Cell, width: usize) -> (String, Tone) {
    let call = row.call;
    let plain = |text: String| (text, Tone::Plain);
    let (word, tone) = call_state(call, row.gone);
    let position = call.position.filter(|_| call.state == CallState::Queued && !row.gone);
    match what {
        Cell::Id => plain(call.id.clone()),
        Cell::State => position.map_or((word.into(), tone), |position| (position.to_string(), tone)),
        Cell::Word => (word.into(), tone),
        Cell::Position => plain(position.map_or("-".into(), |position| position.to_string())),
        Cell::Lane => plain(lane_letter(call.lane).into()),
        Cell::Caller => plain(call.caller.clone()),
        Cell::Upstream => plain(call.upstream.clone()),
        Cell::Method => plain(call.method.clone()),
        Cell::Tool => plain(aim(call).to_owned()),
        Cell::Age => plain(time(row.age_ms(view.clock))),
        Cell::Waited => plain(time(row.queued_ms(view.clock))),
        Cell::Left => plain(some_time(row.left_ms(view.clock).map(|(left, _)| left))),
        Cell::Bar => match row.left_ms(view.clock) {
            None => ("-".into(), Tone::Dim),
            Some((left, whole)) => countdown(view, left, whole, width),
        },
    }
}

/// A bar of the time left, the time, and `!` when there is hardly any.
pub(super) fn countdown(view: &View<'_>, left: u64, whole: u64, width: usize) -> (String, Tone) {
    let urgent = is_urgent(left, whole);
    let bar = view.look.bar(left, whole, width.saturating_sub(9));
    let mark = if urgent { "!" } else { " " };
    (format!("{bar} {:>6} {mark}", time(left)), if urgent { Tone::Bad } else { Tone::Plain })
}

/// Text below one another, each line behind a space.
pub(super) fn paragraph(view: &View<'_>, words: &str, tone: Tone, frame: &mut Frame<'_>, area: Rect) -> u16 {
    let said = wrap(words, usize::from(area.width).saturating_sub(2));
    let count = said.len() as u16;
    for (down, line) in said.into_iter().enumerate() {
        put(frame, area, down as u16, Pen::new(view.look).plain(" ").say(&line, tone).line());
    }
    count.min(area.height)
}
