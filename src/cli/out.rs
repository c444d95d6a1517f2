//! The one place that prints: data to standard output, talk to standard error.
//!
//! A reader that went away ends the command quietly; a device that is full is an error. What comes from
//! outside (names of tools, callers, files) goes through [`clean`], so that no text can steer a terminal.

use super::{CliError, Exit, Global};
use forebay_tui::text::width as width_of;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{ErrorKind, Write as _};

/// Writes text to standard output as it is.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::silent(Exit::Ok),
        _ => CliError::failed(format!("cannot write to standard output: {error}")),
    })
}

/// Writes one line to standard output.
pub fn line(text: &str) -> Result<(), CliError> {
    print(&format!("{text}\n"))
}

/// Writes a value as one line of JSON to standard output.
pub fn json(value: &impl Serialize) -> Result<(), CliError> {
    let mut text =
        serde_json::to_string(value).map_err(|error| CliError::failed(format!("cannot write as JSON: {error}")))?;
    text.push('\n');
    print(&text)
}

/// Writes text to standard error. Nobody may be there to read it, which is no failure.
pub fn talk(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Tells the user something beside the data, unless `--quiet`.
pub fn note(text: &str, global: &Global) {
    if !global.quiet {
        talk(&format!("{text}\n"));
    }
}

/// Tells why the command failed.
pub fn error(error: &CliError, global: &Global) {
    if error.is_silent() {
        return;
    }
    if global.json() {
        talk(&format!("{}\n", error.to_json()));
        return;
    }
    let word = paint("error:", Paint::Bad, global.color_on_stderr());
    let mut text = format!("{word} {}\n", error.message);
    if let Some(hint) = &error.hint {
        text.push_str(&format!("  hint: {hint}\n"));
    }
    talk(&text);
}

/// A meaning, not a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Bad,
    Warn,
    Good,
    Dim,
    Head,
}

/// Text in the colour of its meaning, or as it is.
pub fn paint(text: &str, paint: Paint, color: bool) -> Cow<'_, str> {
    if !color || text.is_empty() {
        return Cow::Borrowed(text);
    }
    let code = match paint {
        Paint::Bad => "1;31",
        Paint::Warn => "33",
        Paint::Good => "32",
        Paint::Dim => "2",
        Paint::Head => "1",
    };
    Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m"))
}

/// Text from outside, with all that a terminal would obey written out.
pub use forebay_tui::text::shown as clean;

/// Columns of text, as wide as they need to be.
#[derive(Debug, Default)]
pub struct Table {
    head: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<(String, Option<Paint>)>>,
}

impl Table {
    /// A table with these headings. A heading that begins with `>` is for numbers and stands to the right.
    pub fn new(head: &[&'static str]) -> Self {
        Table {
            head: head.iter().map(|text| text.trim_start_matches('>')).collect(),
            right: head.iter().map(|text| text.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; the texts are cleaned.
    pub fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| (clean(cell.as_ref()).into_owned(), None)).collect());
    }

    /// Adds a row whose cells may have a meaning that is painted.
    pub fn painted_row(&mut self, cells: impl IntoIterator<Item = (String, Option<Paint>)>) {
        self.rows.push(cells.into_iter().map(|(cell, paint)| (clean(&cell).into_owned(), paint)).collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The whole table, each line ended.
    pub fn render(&self, color: bool) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|(cell, _)| width_of(cell));
            cells.chain([self.head[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        let head = self.head.iter().map(|name| ((*name).to_owned(), Some(Paint::Head))).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            self.render_row(row, &widths, color, &mut text);
        }
        text
    }

    fn render_row(&self, row: &[(String, Option<Paint>)], widths: &[usize], color: bool, text: &mut String) {
        for (at, (cell, meaning)) in row.iter().enumerate().take(widths.len()) {
            let gap = widths[at] - width_of(cell).min(widths[at]);
            let shown = match meaning {
                Some(meaning) => paint(cell, *meaning, color),
                None => Cow::Borrowed(cell.as_str()),
            };
            let last = at + 1 == row.len();
            match (self.right[at], last) {
                (true, _) => text.push_str(&format!("{}{shown}", " ".repeat(gap))),
                (false, true) => text.push_str(&shown),
                (false, false) => text.push_str(&format!("{shown}{}", " ".repeat(gap))),
            }
            text.push_str(if last { "\n" } else { "  " });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_and_obeys_nothing_from_outside() {
        let mut table = Table::new(&["NAME", ">CAP"]);
        table.row(["a\x1b[31m", "5"]);
        table.row(["longer-name", "32"]);
        assert_eq!(table.render(false), "NAME         CAP\na\\x1b[31m      5\nlonger-name   32\n");
        assert!(table.render(true).starts_with("\x1b[1mNAME"));
    }

    #[test]
    fn plain_text_is_not_copied() {
        assert!(matches!(clean("plain"), Cow::Borrowed(_)));
        assert_eq!(clean("a\u{202e}b\r\n"), "a\\u{202e}b\\r\\n");
    }
}
