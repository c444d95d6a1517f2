//! How things look: bars, columns, and colours that only repeat what words say already.

use crate::text;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// What the terminal can show and the person wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Nothing beyond ASCII.
    pub ascii: bool,
    pub palette: Palette,
}

/// The colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// For a dark ground.
    #[default]
    Dark,
    /// For a light ground.
    Light,
    /// Blue and orange, for eyes that do not tell red from green.
    Cvd,
    /// None.
    Mono,
}

impl Palette {
    pub const ALL: [Palette; 4] = [Palette::Dark, Palette::Light, Palette::Cvd, Palette::Mono];

    pub fn name(self) -> &'static str {
        match self {
            Palette::Dark => "dark",
            Palette::Light => "light",
            Palette::Cvd => "cvd",
            Palette::Mono => "mono",
        }
    }
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
    /// A key that can be pressed.
    Key,
}

impl Look {
    pub(super) fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        let bold = style.add_modifier(Modifier::BOLD);
        match (self.palette, tone) {
            (_, Tone::Plain) => style,
            (_, Tone::Head) => bold,
            (Palette::Mono, Tone::Dim | Tone::Good | Tone::Warn | Tone::Key) => style,
            (Palette::Mono, Tone::Bad) => bold,
            (Palette::Dark, Tone::Dim) => style.fg(Color::DarkGray),
            (Palette::Dark, Tone::Good) => style.fg(Color::Green),
            (Palette::Dark, Tone::Warn) => style.fg(Color::Yellow),
            (Palette::Dark, Tone::Bad) => bold.fg(Color::LightRed),
            (Palette::Dark, Tone::Key) => style.fg(Color::Cyan),
            (Palette::Light, Tone::Dim) => style.fg(Color::Indexed(244)),
            (Palette::Light, Tone::Good) => style.fg(Color::Indexed(28)),
            (Palette::Light, Tone::Warn) => style.fg(Color::Indexed(130)),
            (Palette::Light, Tone::Bad) => bold.fg(Color::Indexed(124)),
            (Palette::Light, Tone::Key) => style.fg(Color::Indexed(25)),
            (Palette::Cvd, Tone::Dim) => style.fg(Color::DarkGray),
            (Palette::Cvd, Tone::Good) => style.fg(Color::Indexed(75)),
            (Palette::Cvd, Tone::Warn) => style.fg(Color::Indexed(222)),
            (Palette::Cvd, Tone::Bad) => bold.fg(Color::Indexed(208)),
            (Palette::Cvd, Tone::Key) => style.fg(Color::Indexed(75)),
        }
    }

    /// What a selected row gets on top. `>` says the same.
    pub(super) fn selected(self, focus: bool) -> Style {
        let style = Style::new();
        match self.palette {
            Palette::Mono if focus => style.add_modifier(Modifier::REVERSED),
            Palette::Mono => style.add_modifier(Modifier::BOLD),
            Palette::Dark | Palette::Cvd => style.bg(Color::Indexed(if focus { 238 } else { 235 })),
            Palette::Light => style.bg(Color::Indexed(if focus { 252 } else { 255 })),
        }
    }

    /// What a picture that is out of date gets on top.
    pub(super) fn stale(self) -> Style {
        match self.palette {
            Palette::Mono => Style::new().add_modifier(Modifier::DIM),
            Palette::Dark | Palette::Light | Palette::Cvd => {
                let dim = self.style(Tone::Dim);
                Style { bg: Some(Color::Reset), ..dim }.remove_modifier(Modifier::BOLD)
            }
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

    /// A column of a small chart, for a value of so much; `None` where nothing is known.
    pub(super) fn spark(self, value: Option<u64>, whole: u64) -> char {
        const ASCII: [char; 6] = ['_', '.', '-', '=', '*', '#'];
        const BLOCKS: [char; 9] =
            ['_', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
        let steps: &[char] = if self.ascii { &ASCII } else { &BLOCKS };
        let top = steps.len() - 1;
        match value {
            None => ' ',
            Some(0) => steps[0],
            Some(value) => {
                let step = u128::from(value.min(whole)) * top as u128 / u128::from(whole.max(1));
                steps[(step as usize).clamp(1, top)]
            }
        }
    }

    /// The line between two panes that stand side by side.
    pub(super) fn side(self) -> &'static str {
        if self.ascii { "|" } else { "\u{2502}" }
    }

    pub(super) fn rule(self, room: usize) -> String {
        if self.ascii { "-" } else { "─" }.repeat(room)
    }
}

/// Writes a line from left to right. Whatever is written passes the door of `text`.
pub(super) struct Pen {
    look: Look,
    spans: Vec<Span<'static>>,
    used: usize,
}

impl Pen {
    pub(super) fn new(look: Look) -> Self {
        Pen { look, spans: Vec::new(), used: 0 }
    }

    pub(super) fn say(mut self, words: &str, tone: Tone) -> Self {
        let words = text::shown(words).into_owned();
        self.used += text::width(&words);
        self.spans.push(self.look.span(words, tone));
        self
    }

    pub(super) fn plain(self, words: &str) -> Self {
        self.say(words, Tone::Plain)
    }

    /// Text in a column of its own, cut to fit.
    pub(super) fn left(self, words: &str, room: usize, tone: Tone) -> Self {
        self.say(&left(words, room), tone)
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Goes to a column, or stays where it is if that is past.
    pub(super) fn to(self, column: usize) -> Self {
        let gap = column.saturating_sub(self.used);
        self.say(&" ".repeat(gap), Tone::Plain)
    }

    /// Text that ends at a column, if there is room for it.
    pub(super) fn end_at(self, column: usize, words: &str, tone: Tone) -> Self {
        let words = text::shown(words).into_owned();
        let width = text::width(&words);
        if self.used + width > column {
            return self;
        }
        self.to(column - width).say(&words, tone)
    }

    pub(super) fn line(self) -> Line<'static> {
        Line::from(self.spans)
    }
}

/// Breaks text into lines of at most so many columns, between words where it can. Hostile text is made safe first.
pub(super) fn wrap(words: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text::shown(words).split(' ') {
        let needed = text::width(&line) + usize::from(!line.is_empty()) + text::width(word);
        if needed > room && !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        // A word that is longer than a line is cut: names of that length say nothing more.
        line.push_str(&text::cut(word, room));
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
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
        let look = Look { ascii: true, palette: Palette::Mono };
        assert_eq!(look.bar(0, 16, 10), "[........]");
        assert_eq!(look.bar(1, 1000, 10), "[#.......]");
        assert_eq!(look.bar(16, 16, 10), "[########]");
        assert_eq!(look.bar(99, 16, 10), "[########]");
        assert_eq!(look.bar(5, 0, 10), "[........]");
        assert_eq!(look.bar(u64::MAX, u64::MAX, 4), "[##]");
        assert_eq!(look.bar(1, 1, 2), "[]");
    }

    #[test]
    fn lines_break_between_words_and_long_words_are_cut() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghijkl mn", 5), ["abcd~", "mn"]);
        assert_eq!(wrap("", 5), Vec::<String>::new());
        assert_eq!(wrap("a\u{1b}[2J", 20), ["a\\x1b[2J"]);
        assert!(wrap("abc", 0).concat().is_empty());
    }

    #[test]
    fn columns_keep_their_width() {
        assert_eq!(left("ab", 4), "ab  ");
        assert_eq!(right("ab", 4), "  ab");
        assert_eq!(right("abcdef", 4), "abc~");
    }
}
