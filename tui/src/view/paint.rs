//! How things look: bars, columns, and colours that only repeat what words say already.

use crate::text;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// What the terminal can show and the person wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Nothing beyond ASCII.
    pub ascii: bool,
    pub color: bool,
}

/// A meaning; [`Look`] decides on the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Head,
    Dim,
    Good,
    Warn,
    Bad,
}

impl Look {
    pub(super) fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        if !self.color {
            return match tone {
                Tone::Head => style.add_modifier(Modifier::BOLD),
                Tone::Plain | Tone::Dim | Tone::Good | Tone::Warn | Tone::Bad => style,
            };
        }
        match tone {
            Tone::Plain => style,
            Tone::Head => style.add_modifier(Modifier::BOLD),
            Tone::Dim => style.fg(Color::DarkGray),
            Tone::Good => style.fg(Color::Green),
            Tone::Warn => style.fg(Color::Yellow),
            Tone::Bad => style.fg(Color::LightRed).add_modifier(Modifier::BOLD),
        }
    }

    pub(super) fn span(self, words: impl Into<String>, tone: Tone) -> Span<'static> {
        Span::styled(words.into(), self.style(tone))
    }

    /// A bar of `room` columns, its brackets included. Anything above nothing shows at least one block.
    pub(super) fn bar(self, part: u64, whole: u64, room: usize) -> String {
        let inner = room.saturating_sub(2);
        let filled = match (part, whole) {
            (0, _) | (_, 0) => 0,
            (part, whole) => {
                let rounded = (part.min(whole) as u128 * inner as u128 + u128::from(whole) / 2) / u128::from(whole);
                (rounded as usize).clamp(1.min(inner), inner)
            }
        };
        let (full, empty) = if self.ascii { ("#", ".") } else { ("█", "░") };
        let (open, close) = if self.ascii { ("[", "]") } else { ("▕", "▏") };
        format!("{open}{}{}{close}", full.repeat(filled), empty.repeat(inner - filled))
    }

    pub(super) fn rule(self, room: usize) -> String {
        if self.ascii { "-" } else { "─" }.repeat(room)
    }
}

/// Text in a column: cut, then filled up on the right.
pub(super) fn left(words: &str, room: usize) -> String {
    let words = text::cut(words, room);
    let gap = room - text::width(&words).min(room);
    words + &" ".repeat(gap)
}

/// Text in a column, standing to the right.
pub(super) fn right(words: &str, room: usize) -> String {
    let words = text::cut(words, room);
    " ".repeat(room - text::width(&words).min(room)) + &words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_never_wider_than_its_room_and_never_hides_something() {
        let look = Look { ascii: true, color: false };
        assert_eq!(look.bar(0, 16, 10), "[........]");
        assert_eq!(look.bar(1, 1000, 10), "[#.......]");
        assert_eq!(look.bar(16, 16, 10), "[########]");
        assert_eq!(look.bar(99, 16, 10), "[########]");
        assert_eq!(look.bar(5, 0, 10), "[........]");
        assert_eq!(look.bar(u64::MAX, u64::MAX, 4), "[##]");
        assert_eq!(look.bar(1, 1, 2), "[]");
    }

    #[test]
    fn columns_keep_their_width() {
        assert_eq!(left("ab", 4), "ab  ");
        assert_eq!(right("ab", 4), "  ab");
        assert_eq!(right("abcdef", 4), "abc~");
    }
}
