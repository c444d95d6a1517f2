//! The short words that stand for states, lanes and figures.

use super::paint::Tone;
use crate::text::time;
use forebay_wire::{Call, CallState, Lane, Level, Upstream, UpstreamState};

/// "Unlimited" is 0 on the wire; in force it is the hard ceiling.
pub(super) fn is_unlimited(max_concurrent: u32) -> bool {
    max_concurrent == 0 || max_concurrent >= 4096
}

/// The short word for an upstream's state.
pub(super) fn label(up: &Upstream) -> (&'static str, Tone) {
    match up.state {
        UpstreamState::Starting => ("START", Tone::Warn),
        UpstreamState::Up if up.running == 0 && up.lingering == 0 && up.queued == 0 => ("idle", Tone::Dim),
        UpstreamState::Up => ("ok", Tone::Good),
        UpstreamState::Degraded => ("SLOW", Tone::Warn),
        UpstreamState::Saturated if up.queued < up.queue_size => ("SLOW", Tone::Warn),
        UpstreamState::Saturated => ("FULL", Tone::Bad),
        UpstreamState::Paused => ("PAUSED", Tone::Warn),
        UpstreamState::Draining | UpstreamState::Drained => ("DRAIN", Tone::Warn),
        UpstreamState::Down => ("DOWN", Tone::Bad),
        UpstreamState::Asleep => ("idle", Tone::Dim),
        UpstreamState::Unknown => ("?", Tone::Warn),
    }
}

/// Slots in use out of those there are.
pub(super) fn run(up: &Upstream) -> String {
    let taken = crate::state::taken(up);
    match crate::state::cap(up) {
        Some(cap) => format!("{taken}/{cap}"),
        None => format!("{taken}/-"),
    }
}

/// The short word for a call's state.
pub(super) fn call_state(call: &Call, gone: bool) -> (&'static str, Tone) {
    match call.state {
        _ if gone => ("gone", Tone::Dim),
        CallState::Queued => ("WAIT", Tone::Plain),
        CallState::Running => ("RUN", Tone::Good),
        CallState::Lingering => ("CXL?", Tone::Warn),
        CallState::Finished => ("done", Tone::Dim),
        CallState::Unknown => ("?", Tone::Warn),
    }
}

pub(super) fn lane_letter(lane: Lane) -> &'static str {
    match lane {
        Lane::High => "H",
        Lane::Normal => "N",
        Lane::Low => "L",
        Lane::Unknown => "?",
    }
}

/// A lane in words.
pub fn lane_word(lane: Lane) -> &'static str {
    match lane {
        Lane::High => "high",
        Lane::Normal => "normal",
        Lane::Low => "low",
        Lane::Unknown => "?",
    }
}

pub(super) fn level_tone(level: Level) -> Tone {
    match level {
        Level::Info => Tone::Plain,
        Level::Warn | Level::Unknown => Tone::Warn,
        Level::Error => Tone::Bad,
    }
}

/// A time, or a dash where there is none.
pub(super) fn some_time(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".into(), time)
}

/// A share in ten thousand as `0.8%`, `50%`.
pub(super) fn percent(of_ten_thousand: u64) -> String {
    match of_ten_thousand {
        0..1_000 => format!("{}.{}%", of_ten_thousand / 100, of_ten_thousand / 10 % 10),
        _ => format!("{}%", of_ten_thousand / 100),
    }
}

/// A number with its thousands apart.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1st`, `2nd`, `13th`.
pub(super) fn ordinal(number: u32) -> String {
    let end = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

/// A point in time as `14:02:19`, by a clock so many seconds from UTC; with `tenths` as `14:02:19.1`.
pub(super) fn clock(unix_ms: u64, offset_s: i32, tenths: bool) -> String {
    let ms = unix_ms.saturating_add_signed(i64::from(offset_s) * 1_000);
    let day = ms / 1_000 % 86_400;
    let text = format!("{:02}:{:02}:{:02}", day / 3_600, day / 60 % 60, day % 60);
    if tenths { format!("{text}.{}", ms / 100 % 10) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(percent(89), "0.8%");
        assert_eq!(percent(5_000), "50%");
        assert_eq!(number(1_204), "1,204");
        assert_eq!(number(100_000), "100,000");
        assert_eq!(number(7), "7");
        assert_eq!(["1st", "2nd", "3rd", "4th"], [1, 2, 3, 4].map(ordinal).each_ref().map(|text| &**text));
        assert_eq!(ordinal(112), "112th");
    }

    #[test]
    fn a_clock_has_its_zone_and_never_breaks() {
        assert_eq!(clock(1_000 * (14 * 3600 + 2 * 60 + 19) + 123, 0, true), "14:02:19.1");
        assert_eq!(clock(0, 3_600, false), "01:00:00");
        assert_eq!(clock(0, -3_600, false), "00:00:00");
        assert_eq!(clock(u64::MAX, 3_600, false).len(), 8);
    }
}
