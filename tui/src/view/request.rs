//! One call: why it waits or what holds it, who sent it, how long it has, and what has happened to it.

use super::paint::{Pen, Tone};
use super::requests::{countdown, paragraph};
use super::table::put;
use super::words::{clock, lane_word, number};
use super::{View, lines};
use crate::state::{Drawn, Moment, Room, Row, Told, Which, aim};
use crate::text::{cut, time};
use forebay_wire::{CallDetail, CallState, Step};
use ratatui::Frame;
use ratatui::layout::Rect;

pub(super) fn draw(view: &View<'_>, id: &str, frame: &mut Frame<'_>, area: Rect, drawn: &mut Drawn) {
    let Some(told) = view.model.call.as_ref().filter(|told| told.about == id) else {
        let words = if view.state.is_live() {
            format!("Asking for {} ...", cut(id, 40))
        } else {
            format!("Nothing is known of {}, and the daemon is not connected.", cut(id, 40))
        };
        paragraph(view, &words, Tone::Dim, frame, area);
        return;
    };
    let mut used = 0;
    let why = view.model.call_why.as_ref().filter(|told| told.about == id);
    if let Some(why) = why {
        let most = if view.room == Room::Small { 3 } else { 4 };
        used += paragraph(view, &why.what.sentence, Tone::Head, frame, lines(area, 0, most));
        if let Some(hint) = why.what.hint.as_ref().filter(|_| view.room > Room::Small) {
            used += paragraph(view, hint, Tone::Dim, frame, lines(area, used, 2));
        }
        used += 1;
    }
    used += facts(view, told, frame, lines(area, used, area.height));
    if let Some(split) = why.and_then(|why| why.what.split)
        && view.room > Room::Small
        && used < area.height
    {
        let line = format!(
            " time       admission {}  queue {}  upstream {}  delivery {}",
            time(split.admission_ms),
            time(split.queue_ms),
            time(split.upstream_ms),
            time(split.delivery_ms)
        );
        put(frame, area, used, Pen::new(view.look).left(&line, usize::from(area.width), Tone::Plain).line());
        used += 1;
    }
    if view.room > Room::Small {
        used += 1;
    }
    let rest = lines(area, used, area.height);
    put(frame, rest, 0, Pen::new(view.look).say(" TIMELINE", Tone::Head).line());
    let rows = lines(rest, 1, rest.height);
    let steps = &told.what.timeline;
    let list = &view.state.lists.lines;
    let top = list.at.min(steps.len().saturating_sub(usize::from(rows.height)));
    drawn.lists.push((rows, Which::Lines, top));
    timeline(view, &steps[top..], "   ", frame, rows);
}

/// What is known of it, in pairs; and how many lines that took.
fn facts(view: &View<'_>, told: &Told<CallDetail>, frame: &mut Frame<'_>, area: Rect) -> u16 {
    let (detail, call) = (&told.what, &told.what.call);
    let width = usize::from(area.width);
    // The second column starts where the mock-up has it, or where there is room.
    let second = if view.room > Room::Small { 45 } else { usize::MAX };
    let protocol = match (&detail.protocol, &detail.upstream_protocol) {
        (Some(theirs), Some(ours)) => format!("{theirs} -> {ours}"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => "-".into(),
    };
    let client = detail.client.as_ref().map_or("not declared".into(), |client| format!("{client} (declared)"));
    let mut rows: Vec<[(&str, String); 2]> = vec![
        [("call", call.id.clone()), ("lane", lane_word(call.lane).into())],
        [("caller", call.caller.clone()), ("client", client)],
        [("upstream", call.upstream.clone()), ("attempt", call.attempt.to_string())],
        [
            ("method", format!("{} {}", call.method, if call.tool.is_some() { aim(call) } else { "" })),
            ("protocol", protocol),
        ],
        [("arguments", format!("{} bytes", number(call.bytes))), ("slots", call.weight.to_string())],
    ];
    if let Some(outcome) = &call.outcome {
        let reason = call.reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
        let executed = call.executed.clone().unwrap_or_else(|| "-".into());
        rows.push([("outcome", format!("{outcome}{reason}")), ("executed", executed)]);
    }
    let mut down = 0;
    for [(name, value), (other, beside)] in rows {
        let room = second.min(width).saturating_sub(13);
        let mut pen = Pen::new(view.look).plain(" ").left(name, 11, Tone::Dim).left(&value, room, Tone::Plain);
        if second < width {
            pen = pen.plain(" ").left(other, 9, Tone::Dim).plain(" ");
            let room = width.saturating_sub(pen.used());
            pen = pen.left(&beside, room, Tone::Plain);
        }
        put(frame, area, down, pen.line());
        down += 1;
    }
    if view.room > Room::Small {
        down += 1;
    }
    put(frame, area, down, times(view, told, width));
    down + 1
}

/// When it came, and how much of its time is left.
fn times(view: &View<'_>, told: &Told<CallDetail>, width: usize) -> ratatui::text::Line<'static> {
    let call = &told.what.call;
    let row = Row { call, at: told.at, gone: call.state == CallState::Finished };
    let arrived = arrived(view, &told.what);
    let mut pen = Pen::new(view.look).plain(" ").left("arrived", 11, Tone::Dim).plain(&arrived);
    let (word, spent) = match call.state {
        CallState::Queued => ("queued", row.queued_ms(view.clock)),
        CallState::Running | CallState::Lingering => ("running", row.running_ms(view.clock)),
        CallState::Finished | CallState::Unknown => ("took", row.age_ms(view.clock)),
    };
    pen = pen.plain(&format!("   {word} {}", time(spent)));
    if let Some((left, whole)) = row.left_ms(view.clock) {
        let (bar, tone) = countdown(view, left, whole, 22);
        pen = pen.plain("   ").say(&bar, tone).plain("left");
    }
    let _ = width;
    pen.line()
}

fn arrived(view: &View<'_>, detail: &CallDetail) -> String {
    match detail.arrived_unix_ms {
        // An older daemon does not tell.
        0 => "-".into(),
        at => clock(at, view.state.options.utc_offset_s, true),
    }
}

fn timeline(view: &View<'_>, steps: &[Step], edge: &str, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    for (down, step) in steps.iter().take(usize::from(area.height)).enumerate() {
        let at = format!("+{}.{:03}s", step.at_ms / 1_000, step.at_ms % 1_000);
        let pen = Pen::new(view.look)
            .plain(edge)
            .left(&at, 9, Tone::Dim)
            .plain(" ")
            .left(&step.what, 13, Tone::Plain)
            .plain(" ");
        let room = width.saturating_sub(pen.used());
        put(frame, area, down as u16, pen.left(step.detail.as_deref().unwrap_or(""), room, Tone::Plain).line());
    }
}

/// The selected call beside a queue.
pub(super) fn beside(view: &View<'_>, frame: &mut Frame<'_>, area: Rect) {
    let Some(id) = view.state.call(view.now) else {
        put(frame, area, 0, Pen::new(view.look).say(" no call is selected", Tone::Dim).line());
        return;
    };
    let title = format!(" SELECTED {}", cut(&id, 30));
    put(frame, area, 0, Pen::new(view.look).say(&title, Tone::Head).line());
    let Some(told) = view.model.call.as_ref().filter(|told| told.about == id) else { return };
    let (detail, call) = (&told.what, &told.what.call);
    let width = usize::from(area.width);
    let row = Row { call, at: told.at, gone: call.state == CallState::Finished };
    let position = match (call.position, detail.waiting) {
        (Some(position), Some(waiting)) => format!("   position {position} of {waiting}"),
        (Some(position), None) => format!("   position {position}"),
        (None, _) => String::new(),
    };
    let facts = [
        ("caller", call.caller.clone()),
        ("client", detail.client.as_ref().map_or("-".into(), |client| format!("{client} (declared)"))),
        ("method", format!("{} {}", call.method, if call.tool.is_some() { aim(call) } else { "" })),
        ("priority", lane_word(call.lane).into()),
        ("arrived", format!("{}{position}", arrived(view, detail))),
        ("state", state_words(view, &row, view.clock)),
        ("payload", format!("{} B in, hidden", number(call.bytes))),
    ];
    let mut down = 1;
    for (name, value) in facts {
        let pen = Pen::new(view.look).plain(" ").left(name, 10, Tone::Dim).plain(" ");
        let room = width.saturating_sub(pen.used());
        put(frame, area, down, pen.left(&value, room, Tone::Plain).line());
        down += 1;
    }
    put(frame, area, down, Pen::new(view.look).say(" TIMELINE", Tone::Head).line());
    timeline(view, &detail.timeline, " ", frame, lines(area, down + 1, area.height));
}

fn state_words(view: &View<'_>, row: &Row<'_>, clock: Moment) -> String {
    let spent = match row.call.state {
        CallState::Queued => format!("queued {}", time(row.queued_ms(clock))),
        CallState::Running => format!("running {}", time(row.running_ms(clock))),
        CallState::Lingering => format!("lingering {}", time(row.running_ms(clock))),
        CallState::Finished => row.call.outcome.clone().unwrap_or_else(|| "finished".into()),
        CallState::Unknown => "?".into(),
    };
    match row.left_ms(clock) {
        Some((left, whole)) => format!("{spent}  {} left", countdown(view, left, whole, 21).0.trim_end()),
        None => spent,
    }
}
