//! One upstream: its limits, who holds its slots, its queue; with room, its past, its outcomes, its error output.

use super::chrome::loaded;
use super::paint::{Pen, Tone};
use super::requests::{paragraph, table};
use super::table::put;
use super::words::{number, percent, run, some_time};
use super::{View, columns, events, lines};
use crate::state::{Drawn, Field, Followed, Room, Told, Which, cap, limit_time, taken};
use crate::text::{cut, time};
use forebay_wire::{CallState, Upstream, UpstreamDetail, UpstreamState};
use ratatui::Frame;
use ratatui::layout::Rect;

/// Lines of the limits, the chart and the outcomes.
const FIGURES: u16 = 9;
/// Lines of error output and events at the foot.
const OUTPUT: u16 = 5;

pub(super) fn draw(view: &View<'_>, name: &str, frame: &mut Frame<'_>, area: Rect, drawn: &mut Drawn) {
    let list = &view.state.lists.queue;
    let (total, _) = loaded(view, list);
    let told = view.model.upstream.as_ref().filter(|told| told.about == name);
    let Some(row) = view.model.upstreams.get(name) else {
        let words = format!("There is no upstream {} any more. Esc goes back.", cut(name, 40));
        paragraph(view, &words, Tone::Bad, frame, area);
        return;
    };
    match view.room {
        Room::Wide => {
            figures(view, row, told, frame, lines(area, 0, FIGURES));
            let rule = || view.look.span(view.look.rule(usize::from(area.width)), Tone::Dim).into();
            put(frame, area, FIGURES, rule());
            put(frame, area, FIGURES + 1, holders(view, row));
            put(frame, area, FIGURES + 2, rule());
            let top = FIGURES + 3;
            let middle = area.height.saturating_sub(top + OUTPUT + 1);
            table(view, Which::Queue, total, true, frame, lines(area, top, middle), drawn);
            put(frame, area, top + middle, rule());
            output(view, row, told, frame, lines(area, top + middle + 1, OUTPUT));
        }
        Room::Full | Room::Narrow => {
            let above = short(view, row, frame, area);
            table(view, Which::Queue, total, true, frame, lines(area, above, area.height), drawn);
        }
        Room::Small | Room::Line => table(view, Which::Queue, total, true, frame, area, drawn),
    }
}

/// The limits and the figures in two lines, and why it is down, if it is.
fn short(view: &View<'_>, row: &Followed<Upstream>, frame: &mut Frame<'_>, area: Rect) -> u16 {
    let up = &row.now;
    let most = cap(up).map_or("unlimited".into(), |cap| cap.to_string());
    let error = if up.finished == 0 { "-".into() } else { percent(crate::state::error_rate(&row.past)) };
    let mut limits = format!(
        " max_concurrent {most}  queue_size {}  queue_timeout {}  call_timeout {}",
        up.queue_size,
        limit_time(up.queue_timeout_ms),
        limit_time(up.call_timeout_ms)
    );
    let width = usize::from(area.width);
    if limits.len() + error.len() + 6 <= width {
        limits.push_str(&format!("  err {error}"));
    }
    put(frame, area, 0, Pen::new(view.look).left(&limits, width, Tone::Plain).line());
    let bar = |part, whole| view.look.bar(part, whole, 12);
    let figures = Pen::new(view.look)
        .plain(&format!(" run {} ", run(up)))
        .say(&bar(taken(up), cap(up).unwrap_or(0)), Tone::Good)
        .plain(&format!("  wait {}/{} ", up.queued, up.queue_size))
        .say(
            &bar(up.queued.into(), up.queue_size.into()),
            if up.queued >= up.queue_size { Tone::Bad } else { Tone::Warn },
        )
        .plain(&format!(
            "  p50 {} p95 {}  shed {}/m",
            some_time(up.p50_ms),
            some_time(up.p95_ms),
            row.past.gain(|sample| sample.shed, 60)
        ));
    put(frame, area, 1, figures.line());
    let mut used = 2;
    let stopped = matches!(
        up.state,
        UpstreamState::Down | UpstreamState::Paused | UpstreamState::Draining | UpstreamState::Drained
    );
    if stopped {
        let words = super::upstreams::sentence(view, row);
        used += paragraph(view, &words, Tone::Warn, frame, lines(area, 2, 2));
    }
    put(frame, area, used, view.look.span(view.look.rule(width), Tone::Dim).into());
    used + 1
}

fn figures(
    view: &View<'_>,
    row: &Followed<Upstream>,
    told: Option<&Told<UpstreamDetail>>,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let up = &row.now;
    let limits = columns(area, 0, 36);
    let chart = columns(area, 38, 64);
    let outcomes = columns(area, 104, area.width);
    for side in [37, 103] {
        for down in 0..area.height {
            put(frame, columns(area, side, 1), down, view.look.span(view.look.side(), Tone::Dim).into());
        }
    }
    put(frame, limits, 0, Pen::new(view.look).say(" LIMITS               now      file", Tone::Head).line());
    let form = crate::state::Form::new(up);
    let (now, file) = told.map_or((form.now, form.file), |told| (told.what.now, told.what.file));
    for (down, field) in Field::ALL.into_iter().enumerate() {
        let word = |limits, unlimited: bool| match (field, field.shown(limits)) {
            (_, None) => "-".into(),
            (Field::MaxConcurrent, Some(_)) if unlimited => "no limit".into(),
            (Field::MaxConcurrent | Field::MaxQueued, Some(value)) if value == "0" => "no limit".into(),
            (_, Some(value)) => value,
        };
        // In force, "unlimited" is the hard ceiling.
        let (now, file) = (word(&now, cap(up).is_none()), word(&file, false));
        let tone = if now != file && file != "-" { Tone::Warn } else { Tone::Plain };
        let line = format!(" {:<16}{now:>8}{file:>10}", field.name());
        put(frame, limits, 1 + down as u16, Pen::new(view.look).say(&line, tone).line());
    }
    if let Some(told) = told {
        let line = format!(" on_full {}  processes {}", cut(&told.what.on_full, 12), told.what.processes);
        put(frame, limits, 7, Pen::new(view.look).left(&line, 36, Tone::Plain).line());
        let line = format!(" after_cancel {}", cut(&told.what.after_cancel, 20));
        put(frame, limits, 8, Pen::new(view.look).left(&line, 36, Tone::Plain).line());
    }
    let title = format!(" QUEUED, last 5 min (max {})", up.queue_size);
    put(frame, chart, 0, Pen::new(view.look).say(&title, Tone::Head).line());
    queued_chart(view, row, frame, lines(chart, 1, 6));
    let figures = format!(
        " run {}  wait {}/{}  p50 {}  p95 {}  {}/min  shed {}/min",
        run(up),
        up.queued,
        up.queue_size,
        some_time(up.p50_ms),
        some_time(up.p95_ms),
        row.past.per_minute(|sample| sample.offered),
        row.past.gain(|sample| sample.shed, 60)
    );
    put(frame, chart, 7, Pen::new(view.look).left(&figures, usize::from(chart.width), Tone::Plain).line());
    put(frame, outcomes, 0, Pen::new(view.look).say(" OUTCOMES since the start", Tone::Head).line());
    if let Some(told) = told {
        let counts = told.what.outcomes.iter().take(usize::from(area.height) - 1);
        for (down, count) in counts.enumerate() {
            let reason = count.reason.as_ref().map_or(String::new(), |reason| format!(" {reason}"));
            let line = Pen::new(view.look)
                .plain(" ")
                .left(
                    &format!("{}{reason}", count.outcome),
                    usize::from(outcomes.width).saturating_sub(12),
                    Tone::Plain,
                )
                .end_at(usize::from(outcomes.width).saturating_sub(1), &number(count.calls), Tone::Plain);
            put(frame, outcomes, 1 + down as u16, line.line());
        }
    }
}

/// The queue's length over the last five minutes, a column every few seconds, as high as the area.
fn queued_chart(view: &View<'_>, row: &Followed<Upstream>, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width).saturating_sub(2);
    let waits = row.past.waits(width, 300);
    let height = u64::from(area.height);
    let size = u64::from(row.now.queue_size.max(1));
    let full = if view.look.ascii { '#' } else { '\u{2588}' };
    for down in 0..area.height {
        let level = height - u64::from(down);
        let line: String = waits
            .iter()
            .map(|wait| match wait.map(|wait| (u64::from(wait) * height).div_ceil(size)) {
                Some(reached) if reached >= level => full,
                Some(_) if level == 1 => '.',
                Some(_) | None => ' ',
            })
            .collect();
        let tone = if level == height { Tone::Bad } else { Tone::Warn };
        put(frame, area, down, Pen::new(view.look).plain(" ").say(&line, tone).line());
    }
}

/// Who holds the slots, the longest first.
fn holders(view: &View<'_>, row: &Followed<Upstream>) -> ratatui::text::Line<'static> {
    let mut pen = Pen::new(view.look).say(" HOLDERS ", Tone::Head);
    let why = view.model.upstream_why.as_ref().filter(|told| told.about == row.now.name);
    let Some(told) = why.filter(|told| !told.what.holders.is_empty()) else {
        return pen.say(" no slot is in use", Tone::Dim).line();
    };
    for call in told.what.holders.iter().take(4) {
        let age = call.running_ms + view.clock.since(told.at);
        pen = pen.plain(&format!(
            "  {} {} {} {}",
            call.id,
            cut(crate::state::aim(call), 16),
            time(age),
            cut(&call.caller, 16)
        ));
        if call.state == CallState::Lingering {
            pen = pen.say("  CXL?", Tone::Warn);
        }
    }
    let more = told.what.holders.len().saturating_sub(4);
    if more > 0 {
        pen = pen.say(&format!("  and {more} more"), Tone::Dim);
    }
    pen.line()
}

fn output(
    view: &View<'_>,
    row: &Followed<Upstream>,
    told: Option<&Told<UpstreamDetail>>,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let half = area.width / 2;
    let (left, right) = (columns(area, 0, half), columns(area, half + 1, area.width));
    for down in 0..area.height {
        put(frame, columns(area, half, 1), down, view.look.span(view.look.side(), Tone::Dim).into());
    }
    let rows = area.height.saturating_sub(1);
    put(frame, left, 0, Pen::new(view.look).say(&format!(" STDERR (last {rows} lines, e for all)"), Tone::Head).line());
    let shown = told.map_or(&[][..], |told| &told.what.stderr);
    let from = shown.len().saturating_sub(usize::from(rows));
    for (down, line) in shown[from..].iter().enumerate() {
        let width = usize::from(left.width).saturating_sub(1);
        put(frame, left, 1 + down as u16, Pen::new(view.look).plain(" ").left(line, width, Tone::Plain).line());
    }
    let title = format!(" EVENTS of {}", cut(&row.now.name, 30));
    put(frame, right, 0, Pen::new(view.look).say(&title, Tone::Head).line());
    events::newest(view, Some(&row.now.name), frame, lines(right, 1, rows));
}
