//! The keys that are valid on this screen, from the table of bindings, and what the short words stand for.

use super::paint::{Pen, Tone};
use super::table::put;
use super::{View, dialog};
use crate::input::{LABELS, valid_on};
use crate::state::Room;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

pub(super) fn draw(view: &View<'_>, top: usize, frame: &mut Frame<'_>, area: Rect) {
    let kind = view.state.screen().kind();
    let with_twins = view.room > Room::Small;
    let mut text: Vec<Line<'static>> = Vec::new();
    let steers = !view.state.options.read_only;
    for binding in valid_on(kind).filter(|binding| steers || !binding.steers) {
        let mut pen = Pen::new(view.look).plain(" ").left(binding.shown, 6, Tone::Key).left(
            binding.words,
            if with_twins { 26 } else { 33 },
            Tone::Plain,
        );
        if let (Some(twin), true) = (binding.twin, with_twins) {
            pen = pen.plain(" ").say(twin, Tone::Dim);
        }
        text.push(pen.line());
    }
    text.push(Line::default());
    for (label, name) in LABELS {
        text.push(Pen::new(view.look).plain(" ").left(label, 14, Tone::Head).plain(name).line());
    }
    let width = area.width.min(96);
    let height = u16::try_from(text.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let inner = dialog::frame(view, &format!("Keys on {}", kind.name()), (width, height), frame, area);
    let top = top.min(text.len().saturating_sub(usize::from(inner.height)));
    for (down, line) in text.into_iter().skip(top).take(usize::from(inner.height)).enumerate() {
        put(frame, inner, down as u16, line);
    }
}
