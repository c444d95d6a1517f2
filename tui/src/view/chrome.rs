//! What surrounds every screen: the header, the line that says where one is, and the keys at the foot.

use super::paint::{Pen, Tone};
use super::table::put;
use super::words::{clock, label, ordinal};
use super::{View, lines};
use crate::input::{Action, Kind, valid_on};
use crate::state::{Drawn, Filter, Link, Moment, Overlay, Room, Screen, Which};
use crate::text::{self, time};
use forebay_wire::{CallState, Role};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Draws header and foot, and gives the room between them.
pub(super) fn draw(view: &View<'_>, frame: &mut Frame<'_>, area: Rect, drawn: &mut Drawn) -> Rect {
    let width = usize::from(area.width);
    put(frame, area, 0, header(view, width));
    put(frame, area, 1, place(view, width, area, drawn));
    let rule = || Line::from(view.look.span(view.look.rule(width), Tone::Dim));
    let (head, foot) = if view.room == Room::Small { (2, 1) } else { (3, 3) };
    if view.room > Room::Small {
        put(frame, area, 2, rule());
        put(frame, area, area.height - 3, rule());
        let [first, second] = keys(view, width);
        put(frame, area, area.height - 2, first);
        put(frame, area, area.height - 1, said(view, width).unwrap_or(second));
    } else {
        let short = Pen::new(view.look).plain(" ? help  q quit  Esc back");
        put(frame, area, area.height - 1, said(view, width).unwrap_or_else(|| short.line()));
    }
    lines(area, head, area.height.saturating_sub(head + foot))
}

/// Everything in one line, for a terminal of hardly any size. A question comes first.
pub(super) fn one_line(view: &View<'_>, frame: &mut Frame<'_>, area: Rect) {
    let pen = Pen::new(view.look);
    let line = match &view.state.overlay {
        Some(Overlay::Confirm(confirm)) => pen.say(&format!("{} y/N", confirm.title), Tone::Bad),
        Some(Overlay::Limits(form)) => {
            let field = crate::state::Field::ALL[form.at];
            pen.plain(&format!("{} {}_", field.name(), form.typed[form.at]))
        }
        _ => {
            let pen = status(view, pen.plain("forebay "));
            let (run, wait, shed) = totals(view);
            pen.plain(&format!("run {run} wait {wait} shed {shed}"))
        }
    };
    put(frame, area, 0, line.line());
}

fn totals(view: &View<'_>) -> (String, u64, u64) {
    let (taken, cap) = view.model.slots();
    let run = cap.map_or_else(|| taken.to_string(), |cap| format!("{taken}/{cap}"));
    (run, view.model.totals.queued, view.model.past.gain(|sample| sample.shed, 60))
}

/// How it stands with the daemon, in words.
fn status(view: &View<'_>, pen: Pen) -> Pen {
    let pen = match &view.state.link {
        Link::Connecting => pen.say("CONNECTING ", Tone::Warn),
        Link::Live if view.state.frozen.is_some() => pen,
        Link::Live => pen.say("LIVE ", Tone::Good),
        Link::Lost { since, retry_at, .. } => {
            let seconds = |ms: u64| if ms < 100_000 { format!("{}s", ms / 1000) } else { time(ms) };
            let retry = retry_at.since(view.now).div_ceil(1_000);
            let words = if retry == 0 { "connecting".into() } else { format!("retry in {retry}s") };
            let old = if view.model.daemon.is_some() { "STALE" } else { "OFFLINE" };
            pen.say(&format!("{old} {}  {words} ", seconds(view.now.since(*since))), Tone::Bad)
        }
    };
    let pen = match &view.state.frozen {
        Some(frozen) => pen.say(&format!("FROZEN {} ", time(view.now.since(frozen.1) / 1000 * 1000)), Tone::Warn),
        None => pen,
    };
    if view.model.draining { pen.say("STOPPING ", Tone::Bad) } else { pen }
}

fn header(view: &View<'_>, width: usize) -> Line<'static> {
    let model = view.model;
    let wide = view.room == Room::Wide;
    let mut pen = Pen::new(view.look).say(" forebay ", Tone::Head);
    if wide && let Some(daemon) = &model.daemon {
        pen = pen.plain(&format!("{} ", text::cut(&daemon.version, 12)));
    }
    pen = status(view, pen.plain(" ")).plain(" ");
    let (run, wait, shed) = totals(view);
    let up = time(model.uptime_ms(view.clock));
    let end = match view.room {
        Room::Wide => {
            let requests = model.past.per_minute(|sample| sample.offered);
            let now =
                model.unix_ms(view.now).map_or(String::new(), |ms| clock(ms, view.state.options.utc_offset_s, false));
            format!("up {up}  run {run}  wait {wait}/{}  shed {shed}/min  req {requests}/min  {now}", model.places())
        }
        Room::Full => format!("up {up}  run {run}  wait {wait}  shed {shed}/m"),
        Room::Narrow => format!("run {run}  wait {wait}  shed {shed}/m"),
        Room::Small | Room::Line => format!("run {run} wait {wait}"),
    };
    let room = width.saturating_sub(pen.used() + text::width(&end) + 3);
    if room > 4 && view.room > Room::Small {
        let mut target = view.state.options.target.clone();
        if let (true, Some(daemon)) = (wide, &model.daemon) {
            let may =
                if view.state.options.read_only || daemon.role != Role::Operator { "read-only" } else { "read-write" };
            target.push_str(&format!("  ({may}, {})", text::shown(&daemon.subject)));
        } else if view.state.options.read_only {
            target.push_str("  (read-only)");
        }
        pen = pen.plain(&text::cut(&target, room));
    }
    pen.end_at(width.saturating_sub(1), &end, Tone::Plain).line()
}

/// Where one is: the numbered screens, or the way down to what was opened.
fn place(view: &View<'_>, width: usize, area: Rect, drawn: &mut Drawn) -> Line<'static> {
    let state = view.state;
    let mut pen = Pen::new(view.look);
    let mut end = String::new();
    match state.screen() {
        Screen::Upstream(_) | Screen::Request(_) | Screen::Stderr(_) | Screen::OfCaller(_) => {
            pen = way(view, pen);
        }
        Screen::Upstreams | Screen::Requests | Screen::Callers | Screen::Events => {
            let here = state.screen().kind();
            let short = view.room == Room::Small;
            for (at, kind) in Kind::TABS.into_iter().enumerate() {
                let name = if short && kind != here { &kind.name()[..3] } else { kind.name() };
                let words = if kind == here { format!("[{} {name}]", at + 1) } else { format!(" {} {name} ", at + 1) };
                let x = area.x + pen.used() as u16;
                let room = (text::width(&words) as u16).min(area.right().saturating_sub(x));
                drawn.tabs.push((Rect { x, y: area.y + 1, width: room, height: 1 }, kind));
                pen = pen.say(&words, if kind == here { Tone::Head } else { Tone::Plain });
            }
        }
    }
    if view.room > Room::Small {
        end = looked_at(view);
    }
    let room = width.saturating_sub(pen.used() + 2);
    pen.end_at(width.saturating_sub(1), &text::cut(&end, room), Tone::Plain).line()
}

/// How the list is looked at: filter, marks, order.
fn looked_at(view: &View<'_>) -> String {
    let state = view.state;
    let which = state.active();
    let list = state.lists.get(which);
    let mut words = Vec::new();
    if which == Which::Events {
        words.push(if state.follow { "following".to_owned() } else { "not following".to_owned() });
        words.push(format!("level: {}", state.level.name()));
    }
    if !list.filter.is_empty() {
        words.push(format!("filter: {}", list.filter));
    }
    if !state.marks.is_empty() {
        words.push(format!("marked: {}", state.marks.len()));
    }
    if !matches!(which, Which::Events | Which::Lines) {
        let way = if list.descending { "desc" } else { "asc" };
        words.push(format!("sort: {} {way}", list.sort.name()));
    }
    words.join("  ")
}

fn way(view: &View<'_>, pen: Pen) -> Pen {
    let mut pen = pen.plain(" ");
    let screens = &view.state.screens;
    let long = view.room > Room::Small;
    for (at, screen) in screens.iter().enumerate() {
        let last = at + 1 == screens.len();
        if !long && !last {
            continue;
        }
        let name = match screen {
            Screen::Upstreams | Screen::Requests | Screen::Callers | Screen::Events => screen.kind().name().to_owned(),
            Screen::Upstream(name) | Screen::OfCaller(name) => text::cut(name, 24),
            Screen::Request(id) => text::cut(id, 24),
            Screen::Stderr(name) if at > 0 && matches!(&screens[at - 1], Screen::Upstream(under) if under == name) => {
                "stderr".into()
            }
            Screen::Stderr(name) => format!("{} stderr", text::cut(name, 24)),
        };
        pen = pen.say(&name, if last { Tone::Head } else { Tone::Plain });
        if !last {
            pen = pen.say(" > ", Tone::Dim);
        }
    }
    match view.state.screen() {
        Screen::Upstream(name) => match view.model.upstreams.get(name) {
            Some(row) => upstream_words(view, pen, &row.now),
            None => pen.say("  is gone", Tone::Bad),
        },
        Screen::Request(id) => match view.model.call.as_ref().filter(|told| told.about == *id) {
            Some(told) => {
                let call = &told.what.call;
                let words = match (call.state, call.position, told.what.waiting) {
                    (CallState::Queued, Some(position), Some(waiting)) => {
                        format!("  QUEUED ({} of {waiting})", ordinal(position))
                    }
                    (CallState::Queued, ..) => "  QUEUED".into(),
                    (CallState::Running, ..) => "  RUNNING".into(),
                    (CallState::Lingering, ..) => "  LINGERING (CXL?)".into(),
                    (CallState::Finished, ..) => {
                        format!("  FINISHED ({})", text::cut(call.outcome.as_deref().unwrap_or("?"), 20))
                    }
                    (CallState::Unknown, ..) => "  ?".into(),
                };
                pen.say(&words, Tone::Head)
            }
            None => pen,
        },
        _ => pen,
    }
}

fn upstream_words(view: &View<'_>, pen: Pen, up: &forebay_wire::Upstream) -> Pen {
    let (word, tone) = label(up);
    let mut pen = pen.say(&format!("  {word}"), tone);
    if view.room == Room::Small {
        return pen;
    }
    pen = pen.plain(&format!("  {}", up.kind.name()));
    match &up.pids[..] {
        [] => {}
        [one] => pen = pen.plain(&format!(" pid {one}")),
        many => pen = pen.plain(&format!(" {} processes", many.len())),
    }
    pen = pen.plain(&format!("  restarts {}", up.restarts));
    let told = view.model.upstream.as_ref().filter(|told| told.about == up.name);
    if view.room == Room::Wide
        && let Some(told) = told
    {
        if let Some(protocol) = &told.what.protocol {
            pen = pen.plain(&format!("  protocol {}", text::cut(protocol, 12)));
        }
        if let Some(server) = &told.what.server {
            pen = pen.plain(&format!("  {}", text::cut(server, 30)));
        }
    }
    pen
}

/// What is said at the foot for a while, or typed there.
fn said(view: &View<'_>, width: usize) -> Option<Line<'static>> {
    let pen = Pen::new(view.look);
    if let Some(Overlay::Filter { .. }) = view.state.overlay {
        let list = view.state.lists.get(view.state.active());
        let hint = if view.state.mode() == crate::input::Mode::Line && view.room > Room::Small {
            "Enter keeps, Esc drops; !word: without"
        } else {
            ""
        };
        // The end of what is typed stays in sight.
        let room = width.saturating_sub(4 + text::width(hint));
        let mut typed = text::shown(&list.filter).into_owned();
        while text::width(&typed) > room && typed.pop().is_some() {}
        return Some(pen.say(" /", Tone::Key).plain(&format!("{typed}_")).end_at(width, hint, Tone::Dim).line());
    }
    if let Some(notice) = &view.state.notice {
        let tone = if notice.bad { Tone::Bad } else { Tone::Good };
        return Some(pen.left(&format!(" {}", notice.text), width, tone).line());
    }
    if let Link::Lost { why, .. } = &view.state.link {
        return Some(pen.left(&format!(" {why}   (^R tries at once)"), width, Tone::Bad).line());
    }
    None
}

/// The keys that are valid here, in two lines; those that always are stand at the end.
fn keys(view: &View<'_>, width: usize) -> [Line<'static>; 2] {
    let state = view.state;
    let steers = !state.options.read_only
        && view
            .model
            .daemon
            .as_ref()
            .is_none_or(|daemon| daemon.role == Role::Operator && daemon.api == forebay_wire::API);
    let kind = state.screen().kind();
    let always = ["Esc", "?", "q"];
    let time = (view.room == Room::Full).then(|| view.model.unix_ms(view.now)).flatten();
    let time = time.map_or(String::new(), |ms| clock(ms, state.options.utc_offset_s, false));
    let tail: usize = valid_on(kind)
        .filter(|binding| always.contains(&binding.shown))
        .map(|binding| binding.shown.len() + binding.words.len() + 3)
        .sum();
    let end = width.saturating_sub(if time.is_empty() { 0 } else { time.len() + 1 });
    let mut done = Vec::new();
    let mut pen = Pen::new(view.look).plain(" ");
    // Without panes no call is selected on the overview.
    let no_call = kind == Kind::Upstreams && !state.has_panes();
    let here = |action| !(no_call && matches!(action, Action::NextPane | Action::CancelCaller));
    let shown = valid_on(kind)
        .filter(|binding| binding.at_foot && (steers || !binding.steers) && here(binding.action))
        .filter(|binding| !always.contains(&binding.shown) && binding.action != Action::Lower);
    for binding in shown {
        let (keys, words) = match binding.action {
            // One word for both directions.
            Action::Raise => ("+ -", "priority"),
            _ => (binding.shown, binding.words),
        };
        let needed = keys.len() + words.len() + 3;
        let room = if done.is_empty() { width } else { end.saturating_sub(tail) };
        if pen.used() + needed > room {
            if done.is_empty() {
                done.push(std::mem::replace(&mut pen, Pen::new(view.look).plain(" ")).line());
            } else {
                continue;
            }
        }
        pen = pen.say(keys, Tone::Key).plain(&format!(" {words}  "));
    }
    if done.is_empty() && pen.used() + tail > end {
        done.push(std::mem::replace(&mut pen, Pen::new(view.look).plain(" ")).line());
    }
    for binding in valid_on(kind).filter(|binding| always.contains(&binding.shown)) {
        pen = pen.say(binding.shown, Tone::Key).plain(&format!(" {}  ", binding.words));
    }
    let last = pen.end_at(width.saturating_sub(1), &time, Tone::Dim).line();
    match done.pop() {
        Some(first) => [first, last],
        None => [last, Line::default()],
    }
}

/// How many rows are loaded of how many there are, where that is not all.
pub(super) fn loaded(view: &View<'_>, list: &crate::state::List) -> (u64, String) {
    let calls = &view.model.calls;
    let loaded = calls.loaded() as u64;
    let Some(query) = calls.query() else { return (0, String::new()) };
    let narrowed = query.tool.is_some() || query.state.is_some() || query.older_than_ms.is_some();
    let live = |caller: &forebay_wire::Caller| u64::from(caller.queued) + u64::from(caller.running);
    let total = match (&query.upstream, &query.caller) {
        _ if narrowed => None,
        (Some(_), Some(_)) => None,
        (Some(name), None) => {
            view.model.upstreams.get(name).map(|row| crate::state::taken(&row.now) + u64::from(row.now.queued))
        }
        (None, Some(name)) => view.model.callers.get(name).map(|row| live(&row.now)),
        (None, None) => {
            let totals = &view.model.totals;
            Some(totals.queued + totals.running + totals.lingering)
        }
    };
    let complete = calls.is_complete();
    let total = if complete { loaded } else { total.unwrap_or(loaded).max(loaded) };
    let words = match (calls.has_answer(), complete) {
        (false, _) => "loading".into(),
        (true, true) => super::words::number(loaded),
        (true, false) => {
            format!("{} of {} loaded", super::words::number(loaded), super::words::number(total))
        }
    };
    // Filtered rows are counted as they are.
    let hidden = Filter::of(&list.filter).has_words();
    (if hidden { 0 } else { total }, words)
}

/// Something that is not there yet, or cannot be had.
pub(super) fn pending(view: &View<'_>) -> &'static str {
    match view.state.link {
        Link::Connecting => "connecting ...",
        Link::Lost { .. } if view.model.daemon.is_none() => "not connected",
        Link::Lost { .. } | Link::Live => "none",
    }
}

/// How long ago, counted at the moment that is shown.
pub(super) fn ago(view: &View<'_>, at: Moment, ms: Option<u64>) -> String {
    super::words::some_time(ms.map(|ms| ms + view.clock.since(at)))
}
