//! `forebay edit`: moves a queued call to another lane, or the end of its wait.

use super::out::{self, Paint, clean};
use super::{CliError, Exit, Global, daemon};
use forebay_tui::client::{ClientError, escaped, read};
use forebay_tui::text::time;
use forebay_wire::{Edit, EditAnswer, Edited, Lane};
use http::Method;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub(super) struct Args {
    /// The call's id as `forebay ps` shows it; the part behind the dash is enough
    #[arg(value_name = "ID")]
    id: String,
    /// The lane to wait in
    #[arg(long, group = "change", value_name = "LANE", value_parser = ["high", "normal", "low"])]
    priority: Option<String>,
    /// How much longer it may wait, such as +30s; at most to its caller's own deadline, or one hour from now
    #[arg(long, group = "change", value_name = "+TIME", value_parser = more)]
    deadline: Option<Duration>,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let edit = Edit {
        priority: args.priority.as_deref().map(|lane| match lane {
            "high" => Lane::High,
            "low" => Lane::Low,
            _ => Lane::Normal,
        }),
        extend_ms: args.deadline.map(|time| time.as_millis() as u64),
    };
    let client = daemon::client(global)?;
    let body = daemon::body(&edit)?;
    let body = match client.send(Method::POST, &format!("/v1/calls/{}", escaped(&args.id)), body).await {
        Ok(body) => body,
        // An answer of its own kind, whatever its status.
        Err(ClientError::Refused { body, .. }) if serde_json::from_slice::<EditAnswer>(&body).is_ok() => body,
        Err(fault) => return Err(fault.into()),
    };
    let answer: EditAnswer = read(&body)?;
    if global.json() {
        out::line(&String::from_utf8_lossy(&body))?;
    } else {
        out::line(&told(&answer, global.color_on_stdout()))?;
    }
    match answer.answer {
        Edited::Changed => Ok(()),
        Edited::AlreadyRunning | Edited::AlreadyFinished | Edited::Unknown => Err(CliError::silent(Exit::Failed)),
        Edited::UnknownId => Err(CliError::silent(Exit::NotFound)),
    }
}

fn told(answer: &EditAnswer, color: bool) -> String {
    let id = clean(&answer.id);
    let (text, tone) = match answer.answer {
        Edited::Changed => {
            let mut text = format!("{id}  changed");
            if let Some(call) = &answer.call {
                let position = call.position.map_or(String::new(), |position| format!(", position {position}"));
                let left = call.deadline_ms.map_or("no end of its wait".into(), |left| format!("{} left", time(left)));
                text = format!("{text}: lane {}{position}, {left}", super::ps::lane(call.lane));
            }
            (text, Paint::Good)
        }
        Edited::AlreadyRunning => (format!("{id}  runs already: only a call that waits can be changed"), Paint::Warn),
        Edited::AlreadyFinished => (format!("{id}  had finished already"), Paint::Warn),
        Edited::UnknownId => (format!("{id}  is not known; see `forebay ps`"), Paint::Bad),
        Edited::Unknown => (format!("{id}  answered in words of a newer daemon"), Paint::Warn),
    };
    out::paint(&text, tone, color).into_owned()
}

/// `+30s`, or `30s`.
fn more(text: &str) -> Result<Duration, String> {
    let time = crate::config::parse_duration(text.strip_prefix('+').unwrap_or(text))?;
    if time.is_zero() { Err("must be more than nothing, such as +30s".into()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_moves_forward_only() {
        assert_eq!(more("+30s"), Ok(Duration::from_secs(30)));
        assert_eq!(more("1m 30s"), Ok(Duration::from_secs(90)));
        for bad in ["0", "+0s", "-5s", "+", "30", "++1s"] {
            assert!(more(bad).is_err(), "{bad}");
        }
    }
}
