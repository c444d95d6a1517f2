//! `forebay cancel`: ends calls, by id or all that a selector takes.

use super::out::{self, Paint, clean};
use super::{CliError, Exit, Global, daemon};
use forebay_tui::client::{Client, ClientError, read};
use forebay_wire::{CallState, CancelAnswer, Cancelled, CancelledMany, Selector};
use http::Method;
use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(super) struct Args {
    /// Ids as `forebay ps` shows them; the part behind the dash is enough
    #[arg(value_name = "ID", group = "which", conflicts_with_all = ["caller", "upstream", "tool", "state", "older_than", "all"])]
    ids: Vec<String>,
    /// All calls of this caller; with more than one of these, calls that fit all of them
    #[arg(long, group = "which", value_name = "NAME")]
    caller: Option<String>,
    /// All calls of this upstream
    #[arg(long, group = "which", value_name = "NAME")]
    upstream: Option<String>,
    /// All calls of this tool
    #[arg(long, group = "which", value_name = "NAME")]
    tool: Option<String>,
    /// All calls in this state
    #[arg(long, group = "which", value_name = "STATE", value_parser = ["queued", "running"])]
    state: Option<String>,
    /// All calls that are older than this, such as 30s
    #[arg(long, group = "which", value_name = "TIME", value_parser = crate::config::parse_duration)]
    older_than: Option<Duration>,
    /// Every call
    #[arg(long, group = "which")]
    all: bool,
    /// Tell what would be cancelled, and cancel nothing
    #[arg(long, conflicts_with = "ids")]
    dry_run: bool,
    /// Do not ask; it is only asked on a terminal, and only for more than ids
    #[arg(short, long)]
    yes: bool,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let client = daemon::client(global)?;
    if args.ids.is_empty() { many(&args, &client, global).await } else { by_id(&args.ids, &client, global).await }
}

async fn by_id(ids: &[String], client: &Client, global: &Global) -> Result<(), CliError> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        answers.push(match client.cancel(id).await {
            Ok(answer) => answer,
            // No id at all: nothing of that name, as for one that is unknown. The others are still cancelled.
            Err(ClientError::Refused { fault, .. }) if fault.code == "bad_id" => {
                out::note(&clean(&fault.message), global);
                CancelAnswer { id: id.clone(), answer: Cancelled::UnknownId, outcome: None, reason: None }
            }
            Err(other) => return Err(other.into()),
        });
    }
    if global.json() {
        out::json(&answers)?;
    } else {
        for answer in &answers {
            out::line(&told(answer, global.color_on_stdout()))?;
        }
    }
    let unknown = answers.iter().filter(|answer| answer.answer == Cancelled::UnknownId).count();
    match unknown {
        0 => Ok(()),
        // Each was told in its line.
        all if all == answers.len() => Err(CliError::silent(Exit::NotFound)),
        _ => Err(CliError::silent(Exit::PartlyDone)),
    }
}

async fn many(args: &Args, client: &Client, global: &Global) -> Result<(), CliError> {
    let mut selector = Selector {
        caller: args.caller.clone(),
        upstream: args.upstream.clone(),
        tool: args.tool.clone(),
        state: args.state.as_deref().map(|state| match state {
            "running" => CallState::Running,
            _ => CallState::Queued,
        }),
        older_than_ms: args.older_than.map(|age| age.as_millis() as u64),
        all: args.all,
        dry_run: args.dry_run,
    };
    let ask = !args.dry_run
        && !args.yes
        && !global.no_input
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal();
    if ask {
        let planned: CancelledMany = read(&send(client, &Selector { dry_run: true, ..selector.clone() }).await?)?;
        if planned.matched > 0 {
            out::talk(&format!("{}\ncancel? [y/N] ", told_many(&planned)));
            // The question has no end of its own; an answer that never comes is for whoever interrupts it.
            let mut answer = String::new();
            let read = std::io::stdin().lock().read_line(&mut answer);
            if read.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
                return Err(CliError::failed("nothing was cancelled"));
            }
        }
    }
    selector.dry_run = args.dry_run;
    let body = send(client, &selector).await?;
    if global.json() {
        return out::line(&String::from_utf8_lossy(&body));
    }
    out::line(&told_many(&read(&body)?))
}

async fn send(client: &Client, selector: &Selector) -> Result<bytes::Bytes, CliError> {
    Ok(client.send(Method::POST, "/v1/cancel", daemon::body(selector)?).await?)
}

fn told_many(answer: &CancelledMany) -> String {
    if answer.matched == 0 {
        return "no call fits: nothing to cancel".into();
    }
    let word = if answer.dry_run { "would cancel" } else { "cancelled" };
    let mut parts = Vec::new();
    if answer.cancelled_queued > 0 {
        parts.push(format!("{} queued (the upstream never saw them)", answer.cancelled_queued));
    }
    if answer.cancelled_running > 0 {
        let tense = if answer.dry_run { "is asked" } else { "was asked" };
        parts.push(format!(
            "{} running (the upstream {tense} to stop; their slots linger until it has)",
            answer.cancelled_running
        ));
    }
    if answer.already_finished > 0 {
        parts.push(format!("{} had finished already", answer.already_finished));
    }
    let calls = if answer.matched == 1 { "1 call".to_owned() } else { format!("{} calls", answer.matched) };
    let mut text = format!("{word} {calls}: {}", parts.join(", "));
    if !answer.ids.is_empty() {
        let ids: Vec<_> = answer.ids.iter().map(|id| clean(id).into_owned()).collect();
        let more = if (ids.len() as u64) < answer.matched { " ..." } else { "" };
        text.push_str(&format!("\n  {}{more}", ids.join(" ")));
    }
    text
}

fn told(answer: &CancelAnswer, color: bool) -> String {
    let id = clean(&answer.id);
    let (text, tone) = match answer.answer {
        Cancelled::CancelledQueued => (format!("{id}  cancelled while queued: the upstream never saw it"), Paint::Good),
        Cancelled::CancelledRunning => (
            format!("{id}  cancelled while running: the upstream was asked to stop; its slot lingers until it has"),
            Paint::Good,
        ),
        Cancelled::AlreadyFinished => {
            let outcome = clean(answer.outcome.as_deref().unwrap_or("finished")).into_owned();
            let reason = answer.reason.as_deref().map_or(String::new(), |reason| format!(" ({})", clean(reason)));
            (format!("{id}  had finished already: {outcome}{reason}"), Paint::Dim)
        }
        Cancelled::UnknownId => (
            format!("{id}  is not known: finished long ago, of another run, or never seen; see `forebay ps`"),
            Paint::Bad,
        ),
        Cancelled::Unknown => (format!("{id}  answered in words of a newer daemon"), Paint::Warn),
    };
    out::paint(&text, tone, color).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_selector_did_is_told_in_counts() {
        let answer = CancelledMany {
            matched: 14,
            cancelled_queued: 12,
            cancelled_running: 1,
            already_finished: 1,
            ids: vec!["k3f9q-11".into()],
            dry_run: false,
        };
        let text = told_many(&answer);
        for part in ["cancelled 14 calls", "12 queued", "1 running", "1 had finished already", "\n  k3f9q-11 ..."] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(told_many(&CancelledMany { dry_run: true, ..answer }).starts_with("would cancel 14 calls"));
        assert_eq!(told_many(&CancelledMany::default()), "no call fits: nothing to cancel");
    }
}
