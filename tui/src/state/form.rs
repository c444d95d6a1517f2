//! The form of an upstream's limits: what was typed, checked against what the daemon takes.

use crate::text::time;
use forebay_wire::{Limits, Upstream, UpstreamDetail};

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    MaxConcurrent,
    QueueSize,
    QueueTimeout,
    CallTimeout,
    MaxQueued,
    CancelGrace,
}

impl Field {
    pub const ALL: [Field; 6] = [
        Field::MaxConcurrent,
        Field::QueueSize,
        Field::QueueTimeout,
        Field::CallTimeout,
        Field::MaxQueued,
        Field::CancelGrace,
    ];

    /// Its key in the config.
    pub fn name(self) -> &'static str {
        match self {
            Field::MaxConcurrent => "max_concurrent",
            Field::QueueSize => "queue_size",
            Field::QueueTimeout => "queue_timeout",
            Field::CallTimeout => "call_timeout",
            Field::MaxQueued => "max_queued",
            Field::CancelGrace => "cancel_grace",
        }
    }

    /// Its value, as it is typed and shown.
    pub fn shown(self, limits: &Limits) -> Option<String> {
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        let duration = |value: Option<u64>| value.map(plain_duration);
        match self {
            Field::MaxConcurrent => number(limits.max_concurrent),
            Field::QueueSize => number(limits.queue_size),
            Field::QueueTimeout => duration(limits.queue_timeout_ms),
            Field::CallTimeout => duration(limits.call_timeout_ms),
            Field::MaxQueued => number(limits.max_queued),
            Field::CancelGrace => duration(limits.cancel_grace_ms),
        }
    }

    fn set(self, limits: &mut Limits, typed: &str) -> Result<(), String> {
        let number = || match typed {
            "unlimited" => Ok(Some(0)),
            typed => typed.parse().map(Some).map_err(|_| format!("{} is a whole number, such as 8", self.name())),
        };
        let duration =
            || duration_ms(typed).map(Some).ok_or_else(|| format!("{} is a time, such as 30s or 2m", self.name()));
        match self {
            Field::MaxConcurrent => limits.max_concurrent = number()?,
            Field::QueueSize => limits.queue_size = number()?,
            Field::QueueTimeout => limits.queue_timeout_ms = duration()?,
            Field::CallTimeout => limits.call_timeout_ms = duration()?,
            Field::MaxQueued => limits.max_queued = number()?,
            Field::CancelGrace => limits.cancel_grace_ms = duration()?,
        }
        Ok(())
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    pub upstream: String,
    pub now: Limits,
    pub file: Limits,
    pub typed: [String; Field::ALL.len()],
    /// The field that is edited.
    pub at: usize,
    /// A field was edited, so that what the daemon tells no longer overwrites it.
    touched: [bool; Field::ALL.len()],
    /// What is wrong with what was typed.
    pub fault: Option<String>,
    /// Slots in use and calls waiting, to say what a lower limit does.
    pub taken: u64,
    pub queued: u64,
}

/// Characters of one field; more are not taken.
const LONGEST: usize = 12;

impl Form {
    /// A form with what the stream tells; [`Form::told`] brings the rest.
    pub fn new(upstream: &Upstream) -> Self {
        let now = Limits {
            max_concurrent: Some(upstream.max_concurrent),
            queue_size: Some(upstream.queue_size),
            queue_timeout_ms: upstream.queue_timeout_ms,
            call_timeout_ms: upstream.call_timeout_ms,
            ..Limits::default()
        };
        let mut form = Form {
            upstream: upstream.name.clone(),
            now,
            file: Limits::default(),
            typed: Default::default(),
            at: 0,
            touched: Default::default(),
            fault: None,
            taken: super::taken(upstream),
            queued: u64::from(upstream.queued),
        };
        form.fill();
        form
    }

    /// Takes in what the daemon says of the limits.
    pub fn told(&mut self, detail: &UpstreamDetail) {
        self.now = detail.now;
        self.file = detail.file;
        self.fill();
    }

    fn fill(&mut self) {
        for (index, field) in Field::ALL.into_iter().enumerate() {
            if !self.touched[index] {
                self.typed[index] = field.shown(&self.now).unwrap_or_default();
            }
        }
    }

    pub fn step(&mut self, down: bool) {
        let count = Field::ALL.len();
        self.at = (self.at + if down { 1 } else { count - 1 }) % count;
    }

    pub fn put(&mut self, c: char) {
        let first = !self.touched[self.at];
        let text = &mut self.typed[self.at];
        // The first key replaces the value; one seldom means to add a digit to it.
        if first {
            text.clear();
        }
        if text.len() < LONGEST && c.is_ascii_graphic() {
            text.push(c);
        }
        self.touched[self.at] = true;
        self.fault = None;
    }

    pub fn erase(&mut self) {
        self.touched[self.at] = true;
        self.typed[self.at].pop();
        self.fault = None;
    }

    /// What is to be changed: only what differs from what is in force.
    ///
    /// # Errors
    /// In words for the form: what was typed is no value.
    pub fn change(&self) -> Result<Limits, String> {
        let mut change = Limits::default();
        for (index, field) in Field::ALL.into_iter().enumerate() {
            let typed = self.typed[index].trim();
            let same = field.shown(&self.now).unwrap_or_default() == typed;
            if self.touched[index] && !same {
                field.set(&mut change, typed)?;
            }
        }
        Ok(change)
    }

    /// The command that makes the same change.
    pub fn command(&self, save: bool) -> String {
        let mut line = format!("forebay upstream set {}", super::shell_word(&self.upstream));
        if let Ok(change) = self.change() {
            for field in Field::ALL {
                if let Some(value) = field.shown(&change) {
                    line.push_str(&format!(" {}={value}", field.name()));
                }
            }
        }
        if save { line + " --save" } else { line }
    }

    /// What lowering a limit below what is there means.
    pub fn warning(&self) -> Option<&'static str> {
        let change = self.change().ok()?;
        let below = |limit: Option<u32>, there: u64| limit.is_some_and(|limit| u64::from(limit) < there);
        let slots = change.max_concurrent.filter(|limit| *limit > 0);
        (below(slots, self.taken) || below(change.queue_size, self.queued))
            .then_some("below what is there now: nothing is killed, newcomers are held back until it fits")
    }
}

/// A time as it is typed: `30s`, `1500ms`, `2m`, `1h`, `0`. `None` if it is no time.
pub(super) fn duration_ms(typed: &str) -> Option<u64> {
    if typed == "0" {
        return Some(0);
    }
    let digits = typed.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = typed.split_at(digits);
    let scale = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// A time in the shortest form that [`duration_ms`] reads back as the same.
pub fn plain_duration(ms: u64) -> String {
    match ms {
        0 => "0".into(),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}

/// A limit that is a time, as a screen shows it.
pub fn limit_time(ms: Option<u64>) -> String {
    match ms {
        None => "-".into(),
        Some(0) => "none".into(),
        Some(ms) if ms % 1_000 == 0 => plain_duration(ms),
        Some(ms) => time(ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form() -> Form {
        let up = Upstream {
            name: "my sql".into(),
            running: 2,
            queued: 9,
            max_concurrent: 2,
            queue_size: 16,
            queue_timeout_ms: Some(30_000),
            call_timeout_ms: Some(90_000),
            ..Upstream::default()
        };
        Form::new(&up)
    }

    fn typed(form: &mut Form, text: &str) {
        text.chars().for_each(|c| form.put(c));
    }

    #[test]
    fn only_what_was_changed_is_sent() {
        let mut form = form();
        assert_eq!(form.change(), Ok(Limits::default()));
        typed(&mut form, "3");
        form.step(true);
        form.step(true);
        typed(&mut form, "1m");
        let expected = Limits { max_concurrent: Some(3), queue_timeout_ms: Some(60_000), ..Limits::default() };
        assert_eq!(form.change(), Ok(expected));
        assert_eq!(form.command(true), "forebay upstream set 'my sql' max_concurrent=3 queue_timeout=1m --save");
    }

    #[test]
    fn what_is_no_value_is_told_in_words() {
        let mut form = form();
        typed(&mut form, "-1");
        assert_eq!(form.change(), Err("max_concurrent is a whole number, such as 8".into()));
        let mut form = super::tests::form();
        form.step(true);
        form.step(true);
        typed(&mut form, "60");
        assert_eq!(form.change(), Err("queue_timeout is a time, such as 30s or 2m".into()));
    }

    #[test]
    fn lowering_below_what_is_there_says_that_nothing_is_killed() {
        let mut form = form();
        typed(&mut form, "1");
        assert!(form.warning().unwrap().contains("nothing is killed"));
        let mut form = super::tests::form();
        typed(&mut form, "0");
        assert_eq!(form.warning(), None, "0 is unlimited");
    }

    #[test]
    fn what_the_daemon_tells_does_not_overwrite_what_is_being_typed() {
        let mut form = form();
        typed(&mut form, "7");
        let now = Limits { max_concurrent: Some(2), cancel_grace_ms: Some(5_000), ..Limits::default() };
        form.told(&UpstreamDetail { now, file: now, ..UpstreamDetail::default() });
        assert_eq!(form.typed[0], "7");
        assert_eq!(form.typed[5], "5s");
    }

    proptest! {
        #[test]
        fn a_time_reads_back_as_it_was_written(ms in 0u64..100_000_000) {
            prop_assert_eq!(duration_ms(&plain_duration(ms)), Some(ms));
        }

        #[test]
        fn no_text_breaks_the_reading(text in any::<String>()) {
            let _ = duration_ms(&text);
        }
    }
}
