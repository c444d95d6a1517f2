//! What lies over a screen: a question with what it would do, and the form of an upstream's limits.

use super::View;
use super::paint::{Pen, Tone, wrap};
use super::table::put;
use crate::state::{Confirm, Field, Form};
use crate::text::{cut, width};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Clear;

/// A frame with a title in the middle of an area; gives the room inside.
pub(super) fn frame(
    view: &View<'_>,
    title: &str,
    (width, height): (u16, u16),
    frame: &mut Frame<'_>,
    area: Rect,
) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    if width < 4 || height < 3 {
        return Rect { width: 0, height: 0, ..place };
    }
    let (corner, side) =
        if view.look.ascii { (["+", "+", "+", "+"], "|") } else { (["╭", "╮", "╰", "╯"], "│") };
    let room = usize::from(width) - 2;
    let title = cut(&format!(" {} ", crate::text::shown(title)), room.saturating_sub(3));
    let rule = view.look.rule(room.saturating_sub(2 + crate::text::width(&title)));
    let head = Pen::new(view.look)
        .plain(corner[0])
        .plain(&view.look.rule(2))
        .say(&title, Tone::Head)
        .plain(&rule)
        .plain(corner[1]);
    put(frame, place, 0, head.line());
    for down in 1..height - 1 {
        put(frame, place, down, Pen::new(view.look).plain(side).to(room + 1).plain(side).line());
    }
    let foot = Pen::new(view.look).plain(corner[2]).plain(&view.look.rule(room)).plain(corner[3]);
    put(frame, place, height - 1, foot.line());
    Rect { x: place.x + 1, y: place.y + 1, width: width - 2, height: height - 2 }
}

pub(super) fn confirm(view: &View<'_>, confirm: &Confirm, frame: &mut Frame<'_>, area: Rect) {
    let most = usize::from(area.width).saturating_sub(4).min(76);
    let command = format!("same as: {}", confirm.command);
    let longest = [&confirm.title, &command]
        .into_iter()
        .chain(&confirm.lines)
        .map(|line| width(line) + 6)
        .max()
        .unwrap_or(0)
        .clamp(40.min(most), most.max(1));
    let room = longest.saturating_sub(4);
    let mut text: Vec<(String, Tone)> = Vec::new();
    // The title may be cut in the frame: a question must be read whole.
    if width(&confirm.title) + 6 > longest {
        text.extend(wrap(&confirm.title, room).into_iter().map(|line| (line, Tone::Head)));
    }
    for line in &confirm.lines {
        text.extend(wrap(line, room).into_iter().map(|line| (line, Tone::Plain)));
    }
    let mut same = wrap(&command, room).into_iter().map(|line| (line, Tone::Dim)).collect::<Vec<_>>();
    // With little height the command goes first, then what it does; never the answers.
    let height = usize::from(area.height).saturating_sub(3);
    if text.len() + same.len() < height {
        text.push((String::new(), Tone::Plain));
    }
    if text.len() + same.len() > height {
        same.clear();
    }
    text.truncate(height);
    text.extend(same);
    let size = (longest as u16, text.len() as u16 + 3);
    let inner = self::frame(view, &confirm.title, size, frame, area);
    for (down, (line, tone)) in text.into_iter().enumerate() {
        put(frame, inner, down as u16, Pen::new(view.look).plain(" ").say(&line, tone).line());
    }
    let answers = if confirm.counting { "[ ... ]  [ N no ]" } else { "[ y yes ]  [ N no ]" };
    let at = usize::from(inner.width).saturating_sub(answers.len()) / 2;
    put(frame, inner, inner.height.saturating_sub(1), Pen::new(view.look).to(at).say(answers, Tone::Key).line());
}

pub(super) fn limits(view: &View<'_>, form: &Form, frame: &mut Frame<'_>, area: Rect) {
    let size = (70, 13);
    let title = format!("Limits of {}", cut(&form.upstream, 30));
    let inner = self::frame(view, &title, size, frame, area);
    if inner.is_empty() {
        return;
    }
    let head = Pen::new(view.look).say("   key               new            now         file", Tone::Dim);
    put(frame, inner, 0, head.line());
    for (at, field) in Field::ALL.into_iter().enumerate() {
        let edited = at == form.at;
        let known = |limits| field.shown(limits).unwrap_or_else(|| "-".into());
        let typed = format!("{}{}", form.typed[at], if edited { "_" } else { "" });
        let pen = Pen::new(view.look)
            .say(if edited { " > " } else { "   " }, Tone::Key)
            .left(field.name(), 17, Tone::Plain)
            .plain(" ")
            .left(&typed, 14, if edited { Tone::Head } else { Tone::Plain })
            .plain(" ")
            .left(&known(&form.now), 11, Tone::Dim)
            .plain(" ")
            .left(&known(&form.file), 11, Tone::Dim);
        put(frame, inner, 1 + at as u16, pen.line());
    }
    let room = usize::from(inner.width).saturating_sub(2);
    let (words, tone) = match (&form.fault, form.warning()) {
        (Some(fault), _) => (fault.clone(), Tone::Bad),
        (None, Some(warning)) => (warning.into(), Tone::Warn),
        (None, None) => ("0 is no limit; times are written 30s, 2m, 1500ms".into(), Tone::Dim),
    };
    put(frame, inner, 7, Pen::new(view.look).plain(" ").left(&words, room, tone).line());
    let command = format!("same as: {}", form.command(false));
    put(frame, inner, 8, Pen::new(view.look).plain(" ").left(&command, room, Tone::Dim).line());
    let keys = " Enter apply until restart   ^S apply and save to the file   Esc leave";
    put(
        frame,
        inner,
        inner.height.saturating_sub(1),
        Pen::new(view.look).left(keys, usize::from(inner.width), Tone::Key).line(),
    );
}
