//! `forebay events`: what has happened in the daemon, and with `-f` what happens.

use super::out::{self, Paint, clean};
use super::{CliError, Exit, Global, daemon};
use forebay_tui::client::{Client, read};
use forebay_wire::{Event, Level};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::{Duration, SystemTime};

/// How often new events are asked for.
const LOOK: Duration = Duration::from_millis(250);
/// The same while no daemon answers.
const AWAY: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Go on with what happens, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Only events of this level and above
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = ["info", "warn", "error"])]
    level: String,
    /// Only events that are not older than this, such as 10m
    #[arg(long, value_name = "TIME", value_parser = crate::config::parse_duration)]
    since: Option<Duration>,
}

/// A page whose events are kept as they came, so that what a newer daemon adds is printed too.
#[derive(Deserialize)]
struct Page {
    events: Vec<Box<RawValue>>,
    next: u64,
    #[serde(default)]
    dropped: u64,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let client = daemon::client(global)?;
    let filter = Filter {
        level: match &*args.level {
            "error" => Level::Error,
            "warn" => Level::Warn,
            _ => Level::Info,
        },
        from_unix_ms: args.since.map_or(0, |since| now_unix_ms().saturating_sub(since.as_millis() as u64)),
    };
    let mut from = 0;
    let mut shown = Vec::new();
    loop {
        let page = page(&client, from).await?;
        let more = page.next > from && !page.events.is_empty();
        from = page.next;
        shown.extend(page.events.into_iter().filter(|raw| filter.takes(raw)));
        if !more {
            break;
        }
    }
    match (args.follow, global.json()) {
        (false, true) => return out::print(&daemon::array(&shown)),
        (false, false) if shown.is_empty() => out::note("no events", global),
        _ => show(&shown, global)?,
    }
    if args.follow { follow(&client, from, &filter, global).await } else { Ok(()) }
}

async fn follow(client: &Client, mut from: u64, filter: &Filter, global: &Global) -> Result<(), CliError> {
    let mut away = false;
    loop {
        match page(client, from).await {
            Ok(page) => {
                if away {
                    out::note("a daemon answers again", global);
                    away = false;
                }
                // The numbers begin anew: it is another run.
                if page.next < from {
                    from = 0;
                    continue;
                }
                if page.dropped > 0 {
                    out::note(&format!("{} events came faster than they were read", page.dropped), global);
                }
                let new: Vec<_> = page.events.into_iter().filter(|raw| filter.takes(raw)).collect();
                show(&new, global)?;
                let idle = page.next == from;
                from = page.next;
                if idle {
                    tokio::time::sleep(LOOK).await;
                }
            }
            // A daemon that is restarted comes back; one that says no is not asked again.
            Err(fault) if fault.code == Exit::Unreachable => {
                if !away {
                    out::note(&format!("{}; waiting for it", fault.message), global);
                    away = true;
                }
                tokio::time::sleep(AWAY).await;
            }
            Err(fault) => return Err(fault),
        }
    }
}

async fn page(client: &Client, from: u64) -> Result<Page, CliError> {
    Ok(read(&client.get(&format!("/v1/events?from={from}&limit=1000")).await?)?)
}

struct Filter {
    level: Level,
    from_unix_ms: u64,
}

impl Filter {
    fn takes(&self, raw: &RawValue) -> bool {
        let Ok(event) = serde_json::from_str::<Event>(raw.get()) else { return true };
        event.level >= self.level && event.at_unix_ms >= self.from_unix_ms
    }
}

fn show(events: &[Box<RawValue>], global: &Global) -> Result<(), CliError> {
    let color = global.color_on_stdout();
    let mut text = String::new();
    for raw in events {
        if global.json() {
            text.push_str(raw.get());
        } else {
            text.push_str(&line(&read(raw.get().as_bytes())?, color));
        }
        text.push('\n');
    }
    if text.is_empty() { Ok(()) } else { out::print(&text) }
}

fn line(event: &Event, color: bool) -> String {
    let tone = match event.level {
        Level::Info => None,
        Level::Warn | Level::Unknown => Some(Paint::Warn),
        Level::Error => Some(Paint::Bad),
    };
    let level = format!("{:5}", event.level.name());
    let level = tone.map_or(level.clone().into(), |tone| out::paint(&level, tone, color));
    let mut text = format!(
        "{} {level} {:16} {:12} {}",
        clock(event.at_unix_ms),
        clean(&event.kind),
        clean(event.upstream.as_deref().unwrap_or("-")),
        clean(&event.text)
    );
    if let Some(call) = &event.call {
        text.push_str(&format!(" [{}]", clean(call)));
    }
    if let Some(by) = &event.by {
        text.push_str(&format!(" by {}", clean(by)));
    }
    if event.times > 1 {
        text.push_str(&format!(" ({} times)", event.times));
    }
    text
}

/// The moment in UTC, to the millisecond.
pub(super) fn clock(unix_ms: u64) -> String {
    let (days, rest) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    // Days since 1970 to a date, by the calendar's 400-year cycle that begins in March.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, after) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + after;
    let (hours, minutes, seconds) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", rest % 1000)
}

fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_as_dates() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (1_796_083_199_999, "2026-11-30T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(clock(ms), text);
        }
    }

    #[test]
    fn an_event_is_one_line_that_steers_no_terminal() {
        let event = Event {
            at_unix_ms: 0,
            level: Level::Warn,
            kind: "refused".into(),
            upstream: Some("db".into()),
            text: "bob\u{1b}[31m\nqueue_full".into(),
            by: Some("uid:0 cli".into()),
            times: 3,
            ..Event::default()
        };
        assert_eq!(
            line(&event, false),
            "1970-01-01T00:00:00.000Z warn  refused          db           bob\\x1b[31m\\nqueue_full by uid:0 cli (3 times)"
        );
        assert!(line(&event, true).contains("\x1b[33mwarn "));
    }

    #[test]
    fn only_what_is_asked_for_is_shown_and_what_is_unknown_is_not_hidden() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        let filter = Filter { level: Level::Warn, from_unix_ms: 100 };
        let event = |level: &str, at: u64| {
            raw(&format!(r#"{{"number":1,"at_unix_ms":{at},"level":"{level}","kind":"x","text":""}}"#))
        };
        assert!(!filter.takes(&event("info", 200)) && filter.takes(&event("warn", 200)));
        assert!(!filter.takes(&event("error", 99)) && filter.takes(&event("error", 100)));
        assert!(filter.takes(&event("catastrophe", 100)) && filter.takes(&raw("7")));
    }
}
