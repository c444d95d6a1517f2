//! `forebay cancel`: ends calls by id.

use super::out::{self, Paint};
use super::{CliError, Exit, Global, daemon};
use forebay_tui::client::ClientError;
use forebay_wire::{CancelAnswer, Cancelled};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Ids as `forebay ps` shows them; the part behind the dash is enough
    #[arg(required = true, value_name = "ID")]
    pub(super) ids: Vec<String>,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let client = daemon::client(global)?;
    let mut answers = Vec::with_capacity(args.ids.len());
    for id in &args.ids {
        answers.push(match client.cancel(id).await {
            Ok(answer) => answer,
            // No id at all: nothing of that name, as for one that is unknown. The others are still cancelled.
            Err(ClientError::Refused { fault, .. }) if fault.code == "bad_id" => {
                out::note(&out::clean(&fault.message), global);
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

fn told(answer: &CancelAnswer, color: bool) -> String {
    let id = out::clean(&answer.id);
    let (text, tone) = match answer.answer {
        Cancelled::CancelledQueued => (format!("{id}  cancelled while queued: the upstream never saw it"), Paint::Good),
        Cancelled::CancelledRunning => (
            format!("{id}  cancelled while running: the upstream was asked to stop; its slot lingers until it has"),
            Paint::Good,
        ),
        Cancelled::AlreadyFinished => {
            let outcome = out::clean(answer.outcome.as_deref().unwrap_or("finished")).into_owned();
            let reason = answer.reason.as_deref().map_or(String::new(), |reason| format!(" ({})", out::clean(reason)));
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
