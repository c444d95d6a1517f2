//! A frame as text, for a terminal that is not taken: `--once`.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use std::fmt::Write as _;

/// The lines of a frame, without the blanks at their ends. With `colors`, as SGR sequences.
pub fn print(buffer: &Buffer, colors: bool) -> String {
    let area = buffer.area;
    let mut out = String::new();
    for y in area.top()..area.bottom() {
        let mut line = String::new();
        let mut style = Style::reset();
        let mut skip = 0;
        let last = (area.left()..area.right()).rev().find(|x| {
            let cell = &buffer[(*x, y)];
            cell.symbol() != " " || (colors && cell.bg != Color::Reset)
        });
        for x in area.left()..last.map_or(area.left(), |last| last + 1) {
            let cell = &buffer[(x, y)];
            // A wide letter takes the cells behind it too.
            if skip > 0 {
                skip -= 1;
                continue;
            }
            skip = crate::text::width(cell.symbol()).saturating_sub(1);
            if colors && cell.style() != style {
                style = cell.style();
                line.push_str(&sgr(style));
            }
            line.push_str(cell.symbol());
        }
        if colors && style != Style::reset() {
            line.push_str("\x1b[0m");
        }
        out.push_str(&line);
        out.push('\n');
    }
    let end = out.trim_end_matches('\n').len();
    out.truncate(end);
    out.push('\n');
    out
}

fn sgr(style: Style) -> String {
    let mut codes = String::from("\x1b[0");
    let modifiers = [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::UNDERLINED, 4), (Modifier::REVERSED, 7)];
    for (modifier, code) in modifiers {
        if style.add_modifier.contains(modifier) {
            let _ = write!(codes, ";{code}");
        }
    }
    for (color, base) in [(style.fg, 30), (style.bg, 40)] {
        let _ = match color {
            Some(Color::Indexed(index)) => write!(codes, ";{};5;{index}", base + 8),
            Some(Color::Green) => write!(codes, ";{}", base + 2),
            Some(Color::Yellow) => write!(codes, ";{}", base + 3),
            Some(Color::Cyan) => write!(codes, ";{}", base + 6),
            Some(Color::DarkGray) => write!(codes, ";{}", base + 60),
            Some(Color::LightRed) => write!(codes, ";{}", base + 61),
            // No screen uses another.
            Some(_) | None => Ok(()),
        };
    }
    codes + "m"
}
