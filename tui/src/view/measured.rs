//! What the demo shows of itself: upstreams with their slots and queues, and the callers as they measured themselves.

use super::paint::{Look, Tone, left, right};
use super::words::{is_unlimited, label};
use crate::state::{CallerRow, Overview, Room};
use crate::text::{self, time};
use forebay_wire::Upstream;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

/// Draws the overview into whatever room there is.
pub fn overview(frame: &mut Frame<'_>, overview: &Overview, look: Look) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let room = Room::of(area.width, area.height);
    let lines =
        if room == Room::Line { vec![totals_line(overview)] } else { page(overview, look, room, width, height) };
    for (at, line) in lines.iter().take(height).enumerate() {
        let place = Rect { x: area.x, y: area.y + at as u16, width: area.width, height: 1 };
        frame.render_widget(line, place);
    }
}

fn totals_line(overview: &Overview) -> Line<'static> {
    let state = &overview.state;
    Line::from(format!("forebay run {} wait {} shed {}", running(overview), state.totals.queued, shed(overview)))
}

fn page(overview: &Overview, look: Look, room: Room, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![header(overview, look, room, width), look.span(look.rule(width), Tone::Dim).into()];
    lines.push(look.span(upstream_head(room), Tone::Head).into());
    let foot = 2;
    // Upstreams come first; callers take what is left, if that is more than their heading.
    let most = height.saturating_sub(lines.len() + foot);
    let upstreams = &overview.state.upstreams;
    let shown = if upstreams.len() <= most { upstreams.len() } else { most.saturating_sub(1) };
    lines.extend(upstreams.iter().take(shown).map(|upstream| upstream_line(upstream, look, room)));
    if shown < upstreams.len() {
        lines.push(look.span(format!("  ... {} more", upstreams.len() - shown), Tone::Dim).into());
    }
    let left_over = height.saturating_sub(lines.len() + foot);
    if room > Room::Small && !overview.callers.is_empty() && left_over >= 3 {
        lines.push(look.span(look.rule(width), Tone::Dim).into());
        lines.push(look.span(caller_head(room), Tone::Head).into());
        let most = left_over - 2;
        let callers = &overview.callers;
        let shown = if callers.len() <= most { callers.len() } else { most.saturating_sub(1) };
        lines.extend(callers.iter().take(shown).map(|caller| caller_line(caller, look, room)));
        if shown < callers.len() {
            lines.push(look.span(format!("  ... {} more", callers.len() - shown), Tone::Dim).into());
        }
    }
    while lines.len() + foot < height {
        lines.push(Line::default());
    }
    lines.push(look.span(look.rule(width), Tone::Dim).into());
    lines.push(look.span(text::cut(&format!(" {}", overview.note), width), Tone::Plain).into());
    lines
}

fn header(overview: &Overview, look: Look, room: Room, width: usize) -> Line<'static> {
    let state = &overview.state;
    let mut start = vec![look.span(" forebay  ", Tone::Head)];
    if let Some(age) = overview.stale {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        start.push(look.span(format!("STALE {}  ", time(age)), Tone::Bad));
    }
    let mut end = format!("run {}  wait {}  shed {}", running(overview), state.totals.queued, shed(overview));
    if room >= Room::Full
        && let Some((elapsed, whole)) = overview.progress
    {
        let (elapsed, whole) = (elapsed.min(whole).as_millis() as u64, whole.as_millis() as u64);
        end = format!("{} {:>5}  {end}", look.bar(elapsed, whole, 12), time(elapsed));
    }
    if room == Room::Wide {
        end = format!("{} {}  {end}", text::shown(&state.version), text::shown(&state.instance));
    }
    let used: usize = start.iter().map(Span::width).sum();
    let title_room = width.saturating_sub(used + text::width(&end) + 2);
    start.push(look.span(left(&overview.title, title_room), Tone::Plain));
    start.push(look.span(format!(" {end} "), Tone::Plain));
    Line::from(start)
}

fn running(overview: &Overview) -> String {
    let upstreams = &overview.state.upstreams;
    let taken: u64 = upstreams.iter().map(|up| u64::from(up.running) + u64::from(up.lingering)).sum();
    let cap: u64 = upstreams.iter().map(|up| u64::from(up.max_concurrent)).sum();
    if upstreams.iter().any(|up| is_unlimited(up.max_concurrent)) {
        taken.to_string()
    } else {
        format!("{taken}/{cap}")
    }
}

fn shed(overview: &Overview) -> u64 {
    overview.state.upstreams.iter().map(|up| up.refused).sum()
}

/// The widths of name, state and the two bars.
fn widths(room: Room) -> (usize, usize, usize) {
    match room {
        Room::Wide => (24, 14, 22),
        Room::Full => (12, 6, 8),
        Room::Narrow => (12, 6, 8),
        Room::Line | Room::Small => (12, 0, 0),
    }
}

fn upstream_head(room: Room) -> String {
    let (name, run_bar, wait_bar) = widths(room);
    let mut head = format!("  {} {} {}", left("UPSTREAM", name), left("STATE", 6), right("RUN", 5));
    head.push_str(&" ".repeat(if run_bar > 0 { run_bar + 1 } else { 0 }));
    head.push_str(&format!(" {}", right("WAIT", 7)));
    head.push_str(&" ".repeat(if wait_bar > 0 { wait_bar + 1 } else { 0 }));
    if room >= Room::Narrow {
        head.push_str(&format!(" {}", right("OLDEST", 6)));
    }
    if room >= Room::Full {
        head.push_str(&format!(" {} {}", right("P50", 6), right("P95", 6)));
    }
    if room >= Room::Narrow {
        head.push_str(&format!(" {}", right("SHED", 6)));
    }
    if room == Room::Wide {
        head.push_str(&format!(" {} {}", right("DONE", 8), left("KIND", 5)));
    }
    head
}

fn upstream_line(up: &Upstream, look: Look, room: Room) -> Line<'static> {
    let (name, run_bar, wait_bar) = widths(room);
    let (label, tone) = label(up);
    let taken = u64::from(up.running) + u64::from(up.lingering);
    let cap = if is_unlimited(up.max_concurrent) { "-".into() } else { up.max_concurrent.to_string() };
    let mut spans = vec![
        Span::raw(format!("  {} ", left(&up.name, name))),
        look.span(left(label, 6), tone),
        Span::raw(format!(" {}", right(&format!("{taken}/{cap}"), 5))),
    ];
    if run_bar > 0 {
        let whole = if is_unlimited(up.max_concurrent) { 0 } else { u64::from(up.max_concurrent) };
        spans.push(look.span(format!(" {}", look.bar(taken, whole, run_bar)), Tone::Good));
    }
    spans.push(Span::raw(format!(" {}", right(&format!("{}/{}", up.queued, up.queue_size), 7))));
    if wait_bar > 0 {
        let bar = look.bar(u64::from(up.queued), u64::from(up.queue_size), wait_bar);
        let tone = if up.queued >= up.queue_size { Tone::Bad } else { Tone::Warn };
        spans.push(look.span(format!(" {bar}"), tone));
    }
    let some = |ms: Option<u64>| ms.map_or("-".into(), time);
    let mut rest = String::new();
    if room >= Room::Narrow {
        rest.push_str(&format!(" {}", right(&some((up.queued > 0).then_some(up.oldest_wait_ms)), 6)));
    }
    if room >= Room::Full {
        rest.push_str(&format!(" {} {}", right(&some(up.p50_ms), 6), right(&some(up.p95_ms), 6)));
    }
    if room >= Room::Narrow {
        rest.push_str(&format!(" {}", right(&up.refused.to_string(), 6)));
    }
    if room == Room::Wide {
        rest.push_str(&format!(" {} {}", right(&up.finished.to_string(), 8), left(up.kind.name(), 5)));
    }
    spans.push(Span::raw(rest));
    Line::from(spans)
}

fn caller_head(room: Room) -> String {
    let (name, ..) = widths(room);
    let mut head = format!("  {}", left("CALLER", name));
    for column in ["CALLS", "OK", "FAILED", "SHED", "PER S"] {
        head.push_str(&format!(" {}", right(column, 8)));
    }
    if room >= Room::Full {
        head.push_str(&format!(" {} {}", right("P50", 7), right("P95", 7)));
    }
    head
}

fn caller_line(caller: &CallerRow, look: Look, room: Room) -> Line<'static> {
    let (name, ..) = widths(room);
    let number = |value: u64| format!(" {}", right(&value.to_string(), 8));
    let tone_if = |some: u64, tone| if some > 0 { tone } else { Tone::Dim };
    let mut spans = vec![
        Span::raw(format!("  {}", left(&caller.name, name))),
        Span::raw(number(caller.calls)),
        Span::raw(number(caller.ok)),
        look.span(number(caller.failed), tone_if(caller.failed, Tone::Bad)),
        look.span(number(caller.refused), tone_if(caller.refused, Tone::Warn)),
        Span::raw(format!(" {}", right(&format!("{:.1}", caller.per_second), 8))),
    ];
    if room >= Room::Full {
        let some = |ms: Option<u64>| right(&ms.map_or("-".into(), time), 7);
        spans.push(Span::raw(format!(" {} {}", some(caller.p50_ms), some(caller.p95_ms))));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Palette;
    use forebay_wire as wire;
    use forebay_wire::UpstreamState;
    use proptest::prelude::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    const ASCII: Look = Look { ascii: true, palette: Palette::Mono };

    fn upstream(name: &str, state: UpstreamState, run: (u32, u32), wait: (u32, u32)) -> Upstream {
        Upstream {
            name: name.into(),
            state,
            running: run.0,
            max_concurrent: run.1,
            queued: wait.0,
            queue_size: wait.1,
            oldest_wait_ms: 400,
            p50_ms: Some(41),
            p95_ms: Some(1_900),
            refused: u64::from(wait.0) * 3,
            finished: 1234,
            ..Upstream::default()
        }
    }

    fn sample() -> Overview {
        let mut fragile = upstream("fragile", UpstreamState::Saturated, (2, 2), (16, 16));
        fragile.lingering = 0;
        Overview {
            title: "demo: with limits".into(),
            progress: Some((Duration::from_millis(2500), Duration::from_secs(6))),
            state: wire::State {
                instance: "k3f9q".into(),
                version: "0.1.0".into(),
                totals: wire::Totals { queued: 20, running: 9, ..wire::Totals::default() },
                upstreams: vec![
                    fragile,
                    upstream("slow", UpstreamState::Up, (4, 4), (4, 32)),
                    upstream("flaky", UpstreamState::Up, (0, 8), (0, 32)),
                    Upstream {
                        kind: wire::UpstreamKind::Http,
                        ..upstream("gone", UpstreamState::Down, (0, 0), (0, 0))
                    },
                ],
                ..wire::State::default()
            },
            stale: None,
            callers: vec![
                CallerRow {
                    name: "ann".into(),
                    calls: 21,
                    ok: 20,
                    failed: 1,
                    refused: 0,
                    per_second: 3.5,
                    p50_ms: Some(62),
                    p95_ms: Some(340),
                },
                CallerRow {
                    name: "runaway\u{1b}[2J\u{202e}".into(),
                    calls: 4000,
                    refused: 3900,
                    ..CallerRow::default()
                },
            ],
            note: "q stops".into(),
        }
    }

    fn drawn(overview: &Overview, look: Look, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| super::overview(frame, overview, look)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn overview_80x24() {
        insta::assert_snapshot!(drawn(&sample(), ASCII, 80, 24));
    }

    #[test]
    fn overview_140x40() {
        insta::assert_snapshot!(drawn(&sample(), ASCII, 140, 40));
    }

    #[test]
    fn overview_40x10() {
        insta::assert_snapshot!(drawn(&sample(), ASCII, 40, 10));
    }

    #[test]
    fn overview_70x20_stale_with_blocks() {
        let overview = Overview { stale: Some(Duration::from_secs(12)), ..sample() };
        insta::assert_snapshot!(drawn(&overview, Look { ascii: false, palette: Palette::Dark }, 70, 20));
    }

    #[test]
    fn smaller_than_small_is_one_line() {
        insta::assert_snapshot!(drawn(&sample(), ASCII, 39, 3));
    }

    #[test]
    fn ascii_mode_draws_ascii_only_and_no_colour_means_none() {
        let mut terminal = Terminal::new(TestBackend::new(120, 30)).unwrap();
        terminal.draw(|frame| super::overview(frame, &sample(), ASCII)).unwrap();
        for cell in terminal.backend().buffer().content() {
            assert!(cell.symbol().is_ascii(), "{:?}", cell.symbol());
            assert_eq!(cell.fg, ratatui::style::Color::Reset);
            assert_eq!(cell.bg, ratatui::style::Color::Reset);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_size_and_no_name_breaks_the_screen(width in 1u16..160, height in 1u16..50, name in any::<String>(), run in any::<u32>()) {
            let mut overview = sample();
            overview.title = name.clone();
            overview.note = name.clone();
            overview.callers[0].name = name.clone();
            overview.state.version = name.clone();
            overview.state.upstreams[0].name = name;
            overview.state.upstreams[0].running = run / 2;
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| super::overview(frame, &overview, ASCII)).unwrap();
            for cell in terminal.backend().buffer().content() {
                prop_assert!(!cell.symbol().chars().any(char::is_control), "{:?}", cell.symbol());
            }
        }
    }
}
