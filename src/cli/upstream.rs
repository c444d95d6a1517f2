//! `forebay upstream`: steers one upstream: pause, resume, drain, restart, live limits.

use super::out::{self, Table, clean};
use super::{CliError, Global, daemon};
use forebay_tui::client::{escaped, read};
use forebay_tui::text::time;
use forebay_wire::{Limits, LimitsAnswer, Upstream};
use http::Method;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    /// Start no more calls; arrivals queue
    Pause(Name),
    /// Start calls again, after a pause or a drain
    Resume(Name),
    /// Refuse arrivals and let the queue run dry
    Drain(Name),
    /// Replace its process or connection; calls that run end as `lost`
    Restart(Name),
    /// Change limits while it runs
    Set(Set),
}

#[derive(Debug, clap::Args)]
pub(super) struct Name {
    /// The upstream
    #[arg(value_name = "NAME")]
    pub(super) name: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct Set {
    /// The upstream
    #[arg(value_name = "NAME")]
    name: String,
    /// Limits by their config keys: max_concurrent, queue_size, queue_timeout, call_timeout, cancel_grace, max_queued
    #[arg(value_name = "KEY=VALUE", required = true)]
    limits: Vec<String>,
    /// Write them into the config file too
    #[arg(long)]
    save: bool,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let (word, Name { name }) = match args.action {
        Action::Pause(name) => ("pause", name),
        Action::Resume(name) => ("resume", name),
        Action::Drain(name) => ("drain", name),
        Action::Restart(name) => ("restart", name),
        Action::Set(set) => return set_limits(&set, global).await,
    };
    let body = daemon::client(global)?.post(&format!("/v1/upstreams/{}/{word}", escaped(&name))).await?;
    if global.json() {
        return out::line(&String::from_utf8_lossy(&body));
    }
    let now: Upstream = read(&body)?;
    out::line(&told(&now))
}

fn told(now: &Upstream) -> String {
    // A lingering slot is taken though nobody waits for its call any more: it is no running one.
    let lingering = match now.lingering {
        0 => String::new(),
        slots => format!(", {slots} lingering"),
    };
    let (name, state) = (clean(&now.name), now.state.name());
    format!("{name}: {state}, {} running{lingering}, {} queued", now.running, now.queued)
}

async fn set_limits(set: &Set, global: &Global) -> Result<(), CliError> {
    let mut limits = Limits::default();
    for text in &set.limits {
        assign(&mut limits, text)
            .map_err(|why| CliError::usage(why).hint("for example: forebay upstream set db max_concurrent=3"))?;
    }
    let save = if set.save { "?save=true" } else { "" };
    let path = format!("/v1/upstreams/{}{save}", escaped(&set.name));
    let body = daemon::client(global)?.send(Method::PATCH, &path, daemon::body(&limits)?).await?;
    if global.json() {
        return out::line(&String::from_utf8_lossy(&body));
    }
    let answer: LimitsAnswer = read(&body)?;
    for note in &answer.notes {
        out::note(&clean(note), global);
    }
    out::print(&limits_table(&answer.now, &answer.file).render(global.color_on_stdout()))?;
    match &answer.saved_to {
        Some(file) => out::note(&format!("saved to {}", clean(file)), global),
        None => out::note("until the daemon is restarted; --save writes it into the config file", global),
    }
    Ok(())
}

/// Takes `key=value`.
fn assign(limits: &mut Limits, text: &str) -> Result<(), String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(format!("`{}` is not of the form KEY=VALUE", clean(text)));
    };
    let (key, value) = (key.trim(), value.trim());
    let wrong = |why: &str| format!("{key} {why}");
    let number = || value.parse::<u32>().map_err(|_| wrong("must be a whole number"));
    let unlimited = || if value == "unlimited" { Ok(0) } else { number() };
    let duration = || {
        if value == "none" {
            return Ok(0);
        }
        crate::config::parse_duration(value).map(|time| time.as_millis() as u64).map_err(|why| wrong(&why))
    };
    fn once<T>(place: &mut Option<T>, key: &str, value: T) -> Result<(), String> {
        if place.replace(value).is_some() { Err(format!("{key} is given twice")) } else { Ok(()) }
    }
    match key {
        "max_concurrent" | "max_concurrent_requests" => once(&mut limits.max_concurrent, key, unlimited()?),
        "queue_size" => once(&mut limits.queue_size, key, number()?),
        "queue_timeout" => once(&mut limits.queue_timeout_ms, key, duration()?),
        "call_timeout" => once(&mut limits.call_timeout_ms, key, duration()?),
        "cancel_grace" => once(&mut limits.cancel_grace_ms, key, duration()?),
        "max_queued" => once(&mut limits.max_queued, key, if value == "none" { 0 } else { number()? }),
        other => Err(format!(
            "`{}` cannot be changed while it runs; what can: max_concurrent, queue_size, queue_timeout, call_timeout, \
             cancel_grace, max_queued",
            clean(other)
        )),
    }
}

/// Limits in force beside those of the file.
pub(super) fn limits_table(now: &Limits, file: &Limits) -> Table {
    let limit = |number: Option<u32>, nothing: &str| match number {
        Some(0) => nothing.to_owned(),
        Some(number) => number.to_string(),
        None => "-".to_owned(),
    };
    let duration = |ms: Option<u64>| match ms {
        Some(0) => "none".to_owned(),
        Some(ms) => time(ms),
        None => "-".to_owned(),
    };
    let mut table = Table::new(&["LIMIT", ">NOW", ">FILE"]);
    let mut row = |key: &str, now: String, file: String| table.row([key.to_owned(), now, file]);
    row("max_concurrent", limit(now.max_concurrent, "unlimited"), limit(file.max_concurrent, "unlimited"));
    row("queue_size", limit(now.queue_size, "0"), limit(file.queue_size, "0"));
    row("queue_timeout", duration(now.queue_timeout_ms), duration(file.queue_timeout_ms));
    row("call_timeout", duration(now.call_timeout_ms), duration(file.call_timeout_ms));
    row("cancel_grace", duration(now.cancel_grace_ms), duration(file.cancel_grace_ms));
    row("max_queued", limit(now.max_queued, "none"), limit(file.max_queued, "none"));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lingering_slots_are_no_running_calls() {
        let mut now = Upstream { name: "db".into(), running: 2, lingering: 1, queued: 3, ..Upstream::default() };
        now.state = forebay_wire::UpstreamState::Paused;
        assert_eq!(told(&now), "db: paused, 2 running, 1 lingering, 3 queued");
        now.lingering = 0;
        assert_eq!(told(&now), "db: paused, 2 running, 3 queued");
    }

    #[test]
    fn limits_are_taken_by_their_config_keys() {
        let mut limits = Limits::default();
        for text in
            ["max_concurrent=unlimited", "queue_size = 7", "queue_timeout=1m 30s", "call_timeout=0", "max_queued=none"]
        {
            assign(&mut limits, text).unwrap();
        }
        assert_eq!((limits.max_concurrent, limits.queue_size), (Some(0), Some(7)));
        assert_eq!((limits.queue_timeout_ms, limits.call_timeout_ms), (Some(90_000), Some(0)));
        assert_eq!((limits.max_queued, limits.cancel_grace_ms), (Some(0), None));
        for (text, word) in [
            ("max_concurrent", "KEY=VALUE"),
            ("max_concurrent=-1", "whole number"),
            ("max_concurrent=1", "twice"),
            ("cancel_grace=60", "cancel_grace"),
            ("on_full=reject", "cannot be changed"),
            ("=", "cannot be changed"),
        ] {
            let why = assign(&mut limits, text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
