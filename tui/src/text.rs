//! Text that came from outside, made safe to draw: every name of a tool, caller or server passes here.

use std::borrow::Cow;
use std::fmt::Write as _;
use unicode_width::UnicodeWidthStr as _;

/// The text with everything that a terminal would obey, or that a reader could not see, written out:
/// control characters as `\x1b`, marks of direction and zero width as `\u{202e}`.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_hidden(c) && u32::from(c) < 0x100 => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if is_hidden(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Characters that steer a terminal, reorder a line, or take no room in it.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Columns that the text takes on a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The text made safe, cut to at most `room` columns; a cut is marked by `~`.
pub fn cut(text: &str, room: usize) -> String {
    let text = shown(text);
    if text.width() <= room {
        return text.into_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        out.push(c);
        if out.width() + 1 > room {
            out.pop();
            break;
        }
    }
    if room > 0 {
        out.push('~');
    }
    out
}

/// Milliseconds as a screen shows them: `12ms`, `1.9s`, `28.4s`, `4m05s`, `3h12m`, `3d04h`.
pub fn time(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..100_000 => format!("{}.{}s", ms / 1000, ms / 100 % 10),
        100_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms / 1000 % 60),
        3_600_000..86_400_000 => format!("{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{}d{:02}h", ms / 86_400_000, ms / 3_600_000 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_control_character_is_ever_drawn(text in any::<String>(), room in 0usize..40) {
            for drawn in [shown(&text).into_owned(), cut(&text, room)] {
                prop_assert!(!drawn.contains(is_hidden), "{drawn:?}");
                prop_assert!(!drawn.bytes().any(|byte| byte < 0x20 || byte == 0x7f));
            }
            prop_assert!(width(&cut(&text, room)) <= room);
        }

        #[test]
        fn plain_text_stays_as_it_is(text in "[ -~äöü漢字]{0,40}") {
            prop_assert_eq!(&*shown(&text), &text);
        }
    }

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        let cases = [
            ("\u{1b}]52;c;aGk=\u{7}", "\\x1b]52;c;aGk=\\x07"),
            ("\u{1b}]8;;http://x\u{1b}\\link", "\\x1b]8;;http://x\\x1b\\link"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{9b}31m\u{7f}", "\\x9b31m\\x7f"),
            ("abc\u{202e}txt", "abc\\u{202e}txt"),
            ("zero\u{200b}width", "zero\\u{200b}width"),
        ];
        for (text, drawn) in cases {
            assert_eq!(shown(text), drawn);
        }
    }

    #[test]
    fn a_cut_is_marked_and_never_splits_a_wide_letter() {
        assert_eq!(cut("abcdef", 4), "abc~");
        assert_eq!(cut("漢字漢字", 4), "漢~");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn times_are_short() {
        let cases = [
            (0, "0ms"),
            (999, "999ms"),
            (1900, "1.9s"),
            (99_999, "99.9s"),
            (245_000, "4m05s"),
            (11_520_000, "3h12m"),
            (273_600_000, "3d04h"),
        ];
        for (ms, text) in cases {
            assert_eq!(time(ms), text);
        }
    }
}
