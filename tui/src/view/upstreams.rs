//! The overview: every upstream with its slots and its queue, the worst first. With room, the selected one's
//! queue and the selected call stand below it, and the newest events.

use super::chrome::pending;
use super::paint::{Look, Pen, Tone, wrap};
use super::table::{Column, RowLook, Table, column, put};
use super::words::{label, percent, run, some_time};
use super::{View, columns, events, lines, request, requests};
use crate::state::{Drawn, Followed, History, Model, Moment, Room, Rows, Sort, Which, limit_time};
use crate::text::{cut, time};
use forebay_wire::{Upstream, UpstreamState};
use ratatui::Frame;
use ratatui::layout::Rect;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Name,
    State,
    Kind,
    Run,
    RunBar,
    Wait,
    WaitBar,
    Oldest,
    Limit,
    P50,
    P95,
    Rate,
    Errors,
    Shed,
    Spark,
    LongSpark,
}

const NAME: Column<Cell> = column(Cell::Name, "UPSTREAM", 12, Sort::Name).grows();
const STATE: Column<Cell> = column(Cell::State, "STATE", 6, Sort::State);
const RUN: Column<Cell> = column(Cell::Run, "RUN", 5, Sort::Run).right();
const WAIT: Column<Cell> = column(Cell::Wait, "WAIT", 7, Sort::Wait).right();
const WAIT_BAR: Column<Cell> = column(Cell::WaitBar, "", 10, Sort::Pressure);
const OLDEST: Column<Cell> = column(Cell::Oldest, "OLDEST", 6, Sort::Oldest).right();
const P50: Column<Cell> = column(Cell::P50, "P50", 5, Sort::P50).right();
const P95: Column<Cell> = column(Cell::P95, "P95", 5, Sort::P95).right();
const SHED: Column<Cell> = column(Cell::Shed, "SHED", 4, Sort::Shed).right();
const SPARK: Column<Cell> = column(Cell::Spark, "LAST 60S", 8, Sort::Wait).unsorted();

const SMALL: &[Column<Cell>] = &[NAME, STATE, RUN, WAIT];
const NARROW: &[Column<Cell>] = &[NAME, STATE, RUN, WAIT, Column { width: 8, ..WAIT_BAR }, OLDEST, SHED];
const ROOMY: &[Column<Cell>] = &[NAME, STATE, RUN, WAIT, Column { width: 8, ..WAIT_BAR }, OLDEST, SHED, SPARK];
const FULL: &[Column<Cell>] = &[NAME, STATE, RUN, WAIT, WAIT_BAR, OLDEST, P50, P95, SHED, SPARK];
const WIDE: &[Column<Cell>] = &[
    Column { width: 14, ..NAME },
    STATE,
    column(Cell::Kind, "KIND", 5, Sort::State).unsorted(),
    Column { width: 6, ..RUN },
    column(Cell::RunBar, "", 12, Sort::Run),
    Column { width: 8, ..WAIT },
    Column { width: 12, ..WAIT_BAR },
    OLDEST,
    column(Cell::Limit, "LIMIT", 6, Sort::Oldest).right().unsorted(),
    Column { width: 6, ..P50 },
    Column { width: 6, ..P95 },
    column(Cell::Rate, "REQ/M", 6, Sort::Rate).right(),
    column(Cell::Errors, "ERR", 5, Sort::Errors).right(),
    Column { width: 5, ..SHED },
    column(Cell::LongSpark, "WAIT 5 MIN", 15, Sort::Wait).unsorted(),
];

/// Upstreams that are always in sight beside their queue, if there are so many.
const BESIDE: u16 = 8;
const EVENTS: u16 = 6;

pub(super) fn draw(view: &View<'_>, frame: &mut Frame<'_>, area: Rect, drawn: &mut Drawn) {
    let list = &view.state.lists.upstreams;
    let all = view.state.rows(Which::Upstreams, view.now);
    let index = all.index(list);
    let rows = match all {
        Rows::Upstreams(rows) => rows,
        _ => Vec::new(),
    };
    let panes = view.room == Room::Wide && !view.state.zoomed;
    let panel = match view.room {
        _ if panes => {
            let table = (rows.len() as u16).saturating_add(2).clamp(BESIDE + 1, (area.height / 2).max(BESIDE + 1));
            area.height.saturating_sub(table)
        }
        Room::Full | Room::Narrow | Room::Wide if area.height >= 10 => 4,
        _ => 0,
    };
    let table = Table {
        which: Which::Upstreams,
        list,
        columns: set(view.room, area.width),
        count: rows.len(),
        total: rows.len(),
        index,
        focus: !view.state.in_queue || !panes,
        empty: if list.filter.is_empty() { pending(view) } else { "nothing matches the filter" },
    };
    let above = lines(area, 0, area.height - panel);
    table.draw(
        frame,
        above,
        view.look,
        drawn,
        |_| RowLook::default(),
        |row, what, width| rows.get(row).map_or((String::new(), Tone::Plain), |row| cell(view, row, what, width)),
    );
    let selected = index.and_then(|index| rows.get(index)).copied();
    let below = lines(area, area.height - panel, panel);
    if panes {
        beside(view, selected, frame, below, drawn);
    } else if panel > 0 {
        let width = usize::from(below.width);
        put(frame, below, 0, view.look.span(view.look.rule(width), Tone::Dim).into());
        if let Some(selected) = selected {
            sentences(view, selected, frame, lines(below, 1, panel - 1));
        }
    }
}

fn set(room: Room, width: u16) -> &'static [Column<Cell>] {
    match room {
        Room::Wide => WIDE,
        Room::Full if width >= 134 => WIDE,
        Room::Full => FULL,
        Room::Narrow if width >= 70 => ROOMY,
        Room::Narrow => NARROW,
        Room::Small | Room::Line => SMALL,
    }
}

fn cell(view: &View<'_>, row: &Followed<Upstream>, what: Cell, width: usize) -> (String, Tone) {
    let up = &row.now;
    let plain = |text: String| (text, Tone::Plain);
    let rests = up.queued == 0 && crate::state::taken(up) == 0;
    match what {
        Cell::Name => plain(up.name.clone()),
        Cell::State => {
            let (word, tone) = label(up);
            (word.into(), tone)
        }
        Cell::Kind => plain(up.kind.name().into()),
        Cell::Run => plain(run(up)),
        Cell::RunBar => {
            let whole = crate::state::cap(up).unwrap_or(0);
            (view.look.bar(crate::state::taken(up), whole, width), Tone::Good)
        }
        Cell::Wait => plain(format!("{}/{}", up.queued, up.queue_size)),
        Cell::WaitBar => (view.look.bar(u64::from(up.queued), u64::from(up.queue_size), width), wait_tone(up)),
        Cell::Oldest => {
            let oldest = Model::oldest_ms(row, view.clock);
            let late =
                oldest.zip(up.queue_timeout_ms).is_some_and(|(oldest, limit)| limit > 0 && oldest * 10 > limit * 9);
            (some_time(oldest), if late { Tone::Bad } else { Tone::Plain })
        }
        Cell::Limit => plain(limit_time(up.queue_timeout_ms)),
        Cell::P50 => plain(some_time(up.p50_ms)),
        Cell::P95 => plain(some_time(up.p95_ms)),
        Cell::Rate => plain(row.past.per_minute(|sample| sample.offered).to_string()),
        Cell::Errors if up.finished == 0 => ("-".into(), Tone::Dim),
        Cell::Errors => {
            let rate = crate::state::error_rate(&row.past);
            (percent(rate), if rate > 0 { Tone::Warn } else { Tone::Plain })
        }
        Cell::Shed => {
            let shed = row.past.gain(|sample| sample.shed, 60);
            (shed.to_string(), if shed > 0 { Tone::Bad } else { Tone::Plain })
        }
        Cell::Spark => (spark(view.look, &row.past, up, width, 60), if rests { Tone::Dim } else { Tone::Plain }),
        Cell::LongSpark => (spark(view.look, &row.past, up, width, 300), if rests { Tone::Dim } else { Tone::Plain }),
    }
}

fn wait_tone(up: &Upstream) -> Tone {
    match up.queued {
        0 => Tone::Dim,
        queued if queued >= up.queue_size => Tone::Bad,
        _ => Tone::Warn,
    }
}

/// How the queue stood, oldest first.
pub(super) fn spark(look: Look, past: &History, up: &Upstream, width: usize, seconds: usize) -> String {
    let waits = past.waits(width, seconds);
    waits.into_iter().map(|wait| look.spark(wait.map(u64::from), u64::from(up.queue_size))).collect()
}

/// What there is to say of the selected upstream, and of one that is down.
fn sentences(view: &View<'_>, selected: &Followed<Upstream>, frame: &mut Frame<'_>, area: Rect) {
    let room = usize::from(area.width).saturating_sub(2);
    let up = &selected.now;
    let mut said = wrap(&sentence(view, selected), room);
    let down =
        view.model.upstreams.values().find(|row| row.now.state == UpstreamState::Down && row.now.name != up.name);
    if let Some(row) = down {
        said.truncate(usize::from(area.height).saturating_sub(1));
        said.extend(wrap(&down_words(&row.now, row.at, view.clock), room).into_iter().take(1));
    }
    for (down, line) in said.into_iter().enumerate() {
        put(frame, area, down as u16, Pen::new(view.look).plain(" ").plain(&line).line());
    }
}

fn down_words(up: &Upstream, at: Moment, clock: Moment) -> String {
    let fault = up.fault.as_ref().map_or(String::new(), |fault| format!(": {}", cut(fault, 60)));
    let retry = up.retry_in_ms.map_or(String::new(), |ms| {
        format!(", tried again in {}", time(ms.saturating_sub(clock.since(at)).div_ceil(1_000) * 1_000))
    });
    format!("{} DOWN{fault}{retry}. e shows its stderr.", cut(&up.name, 24))
}

/// What there is to say of one upstream.
pub(super) fn sentence(view: &View<'_>, row: &Followed<Upstream>) -> String {
    let up = &row.now;
    if up.state == UpstreamState::Down {
        return down_words(up, row.at, view.clock);
    }
    let (word, _) = label(up);
    let name = cut(&up.name, 24);
    let mut text = format!("{name} {word}: {} of {} queued", up.queued, up.queue_size);
    if let Some(oldest) = Model::oldest_ms(row, view.clock) {
        text.push_str(&format!(", oldest {}", time(oldest)));
        if let Some(limit) = up.queue_timeout_ms.filter(|limit| *limit > 0) {
            text.push_str(&format!(" of {}", limit_time(Some(limit))));
        }
    }
    text.push('.');
    let why = view.model.upstream_why.as_ref().filter(|told| told.about == up.name);
    if let Some(told) = why
        && !told.what.waiting.is_empty()
    {
        let shares =
            told.what.waiting.iter().take(4).map(|share| format!("{} {}", cut(&share.caller, 20), share.calls));
        text.push_str(&format!(" Callers: {}.", shares.collect::<Vec<_>>().join(", ")));
    }
    let shed = row.past.gain(|sample| sample.shed, 60);
    if shed > 0 {
        text.push_str(&format!(" Refused {shed} in the last minute."));
    }
    if matches!(up.state, UpstreamState::Paused | UpstreamState::Draining | UpstreamState::Drained) {
        text.push_str(&format!(" It is {}: p resumes it.", up.state.name()));
    }
    text
}

/// The queue of the selected upstream, the selected call, the newest events.
fn beside(
    view: &View<'_>,
    selected: Option<&Followed<Upstream>>,
    frame: &mut Frame<'_>,
    area: Rect,
    drawn: &mut Drawn,
) {
    let width = usize::from(area.width);
    let rule = || view.look.span(view.look.rule(width), Tone::Dim).into();
    put(frame, area, 0, rule());
    let events_height = EVENTS + 2;
    let middle = lines(area, 1, area.height.saturating_sub(events_height + 1));
    let split = (area.width * 11 / 20).max(76).min(area.width);
    let queue = columns(middle, 0, split - 1);
    let detail = columns(middle, split + 1, area.width);
    for down in 0..middle.height {
        put(frame, columns(middle, split, 1), down, view.look.span(view.look.side(), Tone::Dim).into());
    }
    if let Some(row) = selected {
        let (total, words) = super::chrome::loaded(view, &view.state.lists.queue);
        let mut title = format!(" {} > queue ({words})", cut(&row.now.name, 30));
        let why = view.model.upstream_why.as_ref().filter(|told| told.about == row.now.name);
        for share in why.iter().flat_map(|told| &told.what.waiting).take(3) {
            title.push_str(&format!("   {} {}", cut(&share.caller, 16), share.calls));
        }
        let title = cut(&title, usize::from(queue.width));
        put(frame, queue, 0, Pen::new(view.look).say(&title, Tone::Head).line());
        requests::table(view, Which::Queue, total, view.state.in_queue, frame, lines(queue, 1, queue.height), drawn);
        request::beside(view, frame, detail);
    }
    let below = lines(area, area.height.saturating_sub(events_height), events_height);
    put(frame, below, 0, rule());
    put(frame, below, 1, Pen::new(view.look).say(" EVENTS", Tone::Head).line());
    events::newest(view, None, frame, lines(below, 2, EVENTS));
}
