//! The error output of one upstream, as its newest lines. Hostile text, made safe line by line.

use super::paint::{Pen, Tone};
use super::requests::paragraph;
use super::table::put;
use super::{View, lines};
use crate::state::{Drawn, Which};
use ratatui::Frame;
use ratatui::layout::Rect;

pub(super) fn draw(view: &View<'_>, name: &str, frame: &mut Frame<'_>, area: Rect, drawn: &mut Drawn) {
    let told = view.model.stderr.as_ref().filter(|told| told.about == name);
    let Some(told) = told.filter(|told| !told.what.is_empty()) else {
        let words = match (told, view.state.is_live()) {
            (None, true) => "asking for it ...",
            (None, false) => "not connected",
            (Some(_), _) => {
                "Nothing: it has written nothing to its error output, or has none, as it is reached over HTTP."
            }
        };
        paragraph(view, words, Tone::Dim, frame, area);
        return;
    };
    let rows = lines(area, 0, area.height);
    let height = usize::from(rows.height);
    let count = told.what.len();
    // What is selected is the last line in sight, so that the newest shows first.
    let end = view.state.lists.lines.at.saturating_add(1).clamp(height.min(count), count);
    let top = end.saturating_sub(height);
    drawn.lists.push((rows, Which::Lines, top));
    for (down, line) in told.what[top..end].iter().enumerate() {
        let width = usize::from(area.width).saturating_sub(1);
        put(frame, rows, down as u16, Pen::new(view.look).plain(" ").left(line, width, Tone::Plain).line());
    }
}
