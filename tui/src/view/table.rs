//! One table: its heading, the rows in sight, the one that is selected, and how many follow.

use super::paint::{Look, Tone, left, right};
use crate::state::{Drawn, List, Sort, Which};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

/// A column. `C` is what stands in it.
#[derive(Clone, Copy)]
pub(super) struct Column<C> {
    pub(super) what: C,
    pub(super) title: &'static str,
    pub(super) width: usize,
    pub(super) right: bool,
    pub(super) sort: Option<Sort>,
    /// It takes the room that is left over.
    pub(super) grows: bool,
}

pub(super) const fn column<C>(what: C, title: &'static str, width: usize, sort: Sort) -> Column<C> {
    Column { what, title, width, right: false, sort: Some(sort), grows: false }
}

impl<C: Copy> Column<C> {
    pub(super) const fn right(self) -> Self {
        Column { right: true, ..self }
    }

    pub(super) const fn grows(self) -> Self {
        Column { grows: true, ..self }
    }

    pub(super) const fn unsorted(self) -> Self {
        Column { sort: None, ..self }
    }
}

/// What a table is drawn from.
pub(super) struct Table<'a, C> {
    pub(super) which: Which,
    pub(super) list: &'a List,
    pub(super) columns: &'a [Column<C>],
    /// Rows there are here, and rows there are in all.
    pub(super) count: usize,
    pub(super) total: usize,
    pub(super) index: Option<usize>,
    /// It has the keys.
    pub(super) focus: bool,
    /// What stands there if there are no rows.
    pub(super) empty: &'a str,
}

/// How a row stands out.
#[derive(Clone, Copy, Default)]
pub(super) struct RowLook {
    pub(super) marked: bool,
    pub(super) dim: bool,
}

/// Columns before the first one: `>` for the selected row, `*` for a marked one.
const EDGE: usize = 2;

impl<C: Copy> Table<'_, C> {
    /// Draws it, and notes where.
    pub(super) fn draw(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        look: Look,
        drawn: &mut Drawn,
        row_look: impl Fn(usize) -> RowLook,
        cell: impl Fn(usize, C, usize) -> (String, Tone),
    ) {
        if area.is_empty() {
            return;
        }
        let width = usize::from(area.width);
        let widths = self.widths(width);
        self.heading(frame, area, look, &widths, drawn);
        let mut rows = Rect { y: area.y + 1, height: area.height - 1, ..area };
        let more = self.total.max(self.count) > usize::from(rows.height);
        if more && rows.height > 1 {
            rows.height -= 1;
        }
        let height = usize::from(rows.height);
        let top = self.list.first_row(self.index, self.count, height);
        drawn.lists.push((rows, self.which, top));
        if self.count == 0 {
            put(frame, area, 1, look.span(left(&format!("  {}", self.empty), width), Tone::Dim).into());
            return;
        }
        let shown = (self.count - top).min(height);
        for (line, row) in (top..top + shown).enumerate() {
            let is_selected = self.index == Some(row);
            let RowLook { marked, dim } = row_look(row);
            let edge = format!("{}{}", if is_selected { '>' } else { ' ' }, if marked { '*' } else { ' ' });
            let mut spans = vec![look.span(edge, if marked { Tone::Warn } else { Tone::Plain })];
            for (at, (column, width)) in self.columns.iter().zip(&widths).enumerate() {
                if *width == 0 {
                    continue;
                }
                if at > 0 {
                    spans.push(Span::raw(" "));
                }
                let (text, tone) = cell(row, column.what, *width);
                let text = if column.right { right(&text, *width) } else { left(&text, *width) };
                spans.push(look.span(text, if dim { Tone::Dim } else { tone }));
            }
            let place = Rect { y: rows.y + line as u16, height: 1, ..rows };
            frame.render_widget(Line::from(spans), place);
            if is_selected {
                frame.buffer_mut().set_style(place, look.selected(self.focus));
            }
        }
        let left_over = self.total.max(self.count) - (top + shown);
        if more && area.height > 2 && left_over > 0 {
            let words = format!("  ... {left_over} more");
            put(frame, area, area.height - 1, look.span(left(&words, width), Tone::Dim).into());
        }
    }

    /// The widths that are used: what is left over goes to the column that grows; what does not fit is left out
    /// from the right.
    fn widths(&self, room: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| column.width).collect();
        let mut used = EDGE;
        for (at, width) in widths.iter_mut().enumerate() {
            let gap = usize::from(at > 0);
            if used + gap + *width > room {
                *width = if at == 0 { room.saturating_sub(EDGE) } else { 0 };
            }
            if *width > 0 {
                used += gap + *width;
            }
        }
        let grows = self.columns.iter().position(|column| column.grows).filter(|at| widths[*at] > 0);
        if let Some(at) = grows {
            widths[at] += room.saturating_sub(used);
        }
        widths
    }

    fn heading(&self, frame: &mut Frame<'_>, area: Rect, look: Look, widths: &[usize], drawn: &mut Drawn) {
        let mut spans = vec![Span::raw(" ".repeat(EDGE))];
        let mut x = EDGE;
        for (at, (column, width)) in self.columns.iter().zip(widths).enumerate() {
            if *width == 0 {
                continue;
            }
            if at > 0 {
                spans.push(Span::raw(" "));
                x += 1;
            }
            let title = if column.right { right(column.title, *width) } else { left(column.title, *width) };
            let mut span = look.span(title, Tone::Head);
            if column.sort == Some(self.list.sort) {
                span.style = span.style.add_modifier(Modifier::UNDERLINED);
            }
            if let Some(sort) = column.sort {
                let place = Rect { x: area.x + x as u16, y: area.y, width: *width as u16, height: 1 };
                drawn.heads.push((place, self.which, sort));
            }
            spans.push(span);
            x += *width;
        }
        put(frame, area, 0, Line::from(spans));
    }
}

/// Draws a line so far down in an area; nothing if that is outside.
pub(super) fn put(frame: &mut Frame<'_>, area: Rect, down: u16, line: Line<'static>) {
    if down < area.height && area.width > 0 {
        frame.render_widget(line, Rect { y: area.y + down, height: 1, ..area });
    }
}
