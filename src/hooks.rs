//! `[hooks] on_overload`: who is told that calls are refused because there are too many.
//!
//! A call's end counts itself and goes on ([`Overload::note`]). One task tells: an event, and the webhook or command
//! of the config. One telling is under way at most, the next comes no sooner than `overload_every` after it, and what
//! was counted meanwhile is told then, so however many calls are refused, tellings are few and nothing waits for them.

use crate::config::{Hook, Hooks};
use crate::dispatcher::Dispatcher;
use crate::events::Draft;
use crate::outcome::{Advice, ExpiredBy, Outcome, Reason};
use forebay_wire::Level;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

/// How long a webhook or command may take; then it is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rows of one telling; what finds none is counted as `others`.
const MOST_ROWS: usize = 100;

/// What has been refused since the last telling.
#[derive(Default)]
pub struct Overload {
    counts: Mutex<Counts>,
    /// Keeps one permit, so a note right before the task waits is not missed.
    wake: Notify,
    delivered: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct Counts {
    rows: HashMap<(Arc<str>, Arc<str>, usize), u64>,
    others: u64,
}

impl Overload {
    /// A call has ended. Never waits.
    pub(crate) fn note(&self, upstream: &Arc<str>, caller: &Arc<str>, outcome: Outcome) {
        if !is_overload(outcome) {
            return;
        }
        let mut counts = self.counts.lock();
        let key = (upstream.clone(), caller.clone(), outcome.index());
        let room = counts.rows.len() < MOST_ROWS;
        match counts.rows.get_mut(&key) {
            Some(calls) => *calls += 1,
            None if room => {
                counts.rows.insert(key, 1);
            }
            None => counts.others += 1,
        }
        drop(counts);
        self.wake.notify_one();
    }

    /// Tellings that a webhook or command took, and those that it did not.
    pub fn tellings(&self) -> (u64, u64) {
        (self.delivered.load(Relaxed), self.failed.load(Relaxed))
    }

    fn take(&self) -> Counts {
        std::mem::take(&mut *self.counts.lock())
    }
}

/// Whether a call that ended so speaks of more calls than are served.
fn is_overload(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Refused(Reason::Draining) => false,
        Outcome::Expired(by) => matches!(by, ExpiredBy::QueueTimeout | ExpiredBy::Sojourn),
        _ => outcome.advice() == Some(Advice::Busy),
    }
}

/// Tells as long as it is polled. The settings are those of the moment, so a reload holds from the next telling on.
pub(crate) async fn run(dispatcher: Arc<Dispatcher>) {
    let overload = dispatcher.overload().clone();
    loop {
        overload.wake.notified().await;
        let counts = overload.take();
        let calls: u64 = counts.rows.values().sum::<u64>() + counts.others;
        if calls == 0 {
            continue;
        }
        let Hooks { on_overload, every } = dispatcher.config.load().hooks.clone();
        let words = format!("{calls} calls were refused or expired because there are too many");
        dispatcher.events().tell(Draft::new(Level::Warn, "overload", words).times(calls));
        if let Some(hook) = on_overload {
            let body = body(&dispatcher.mark(), calls, &counts);
            let told = tokio::time::timeout(PATIENCE, deliver(&hook, body)).await;
            match told.unwrap_or_else(|_| Err(format!("nothing within {PATIENCE:?}"))) {
                Ok(()) => overload.delivered.fetch_add(1, Relaxed),
                Err(fault) => {
                    tracing::warn!(fault, "on_overload could not be told");
                    overload.failed.fetch_add(1, Relaxed)
                }
            };
        }
        tokio::time::sleep(every).await;
    }
}

fn body(mark: &str, calls: u64, counts: &Counts) -> Vec<u8> {
    let mut rows: Vec<_> = counts.rows.iter().collect();
    rows.sort_by(|one, other| other.1.cmp(one.1).then_with(|| one.0.cmp(other.0)));
    let rows: Vec<_> = rows
        .into_iter()
        .map(|((upstream, caller, index), calls)| {
            let (outcome, reason) = Outcome::labels(*index);
            serde_json::json!({
                "upstream": &**upstream, "caller": &**caller, "outcome": outcome, "reason": reason, "calls": calls
            })
        })
        .collect();
    let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_millis() as u64);
    serde_json::json!({
        "event": "overload", "instance": mark, "at_unix_ms": at, "calls": calls, "counts": rows, "others": counts.others
    })
    .to_string()
    .into()
}

/// An error names no part of a URL or of an argument: they may be credentials.
async fn deliver(hook: &Hook, body: Vec<u8>) -> Result<(), String> {
    match hook {
        Hook::Url(url) => {
            let status = crate::upstream::transport::http::post(url, body.into(), PATIENCE).await?;
            if (200..300).contains(&status) { Ok(()) } else { Err(format!("the webhook answered {status}")) }
        }
        Hook::Command(words) => {
            let (program, args) = words.split_first().ok_or("the command is empty")?;
            let mut command = tokio::process::Command::new(program.expose());
            command.args(args.iter().map(|word| word.expose())).env_clear();
            for name in ["PATH", "HOME", "LANG"] {
                if let Some(value) = std::env::var_os(name) {
                    command.env(name, value);
                }
            }
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            let mut child = command.spawn().map_err(|fault| format!("the command cannot be started: {fault}"))?;
            if let Some(mut input) = child.stdin.take() {
                // A command need not read it.
                let _ = input.write_all(&body).await;
            }
            let status = child.wait().await.map_err(|fault| format!("the command cannot be waited for: {fault}"))?;
            if status.success() { Ok(()) } else { Err(format!("the command ended with {status}")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_too_many_calls_are_an_overload() {
        for (outcome, is) in [
            (Outcome::Refused(Reason::QueueFull), true),
            (Outcome::Refused(Reason::CallerRate), true),
            (Outcome::Displaced, true),
            (Outcome::Expired(ExpiredBy::QueueTimeout), true),
            (Outcome::Expired(ExpiredBy::Deadline), false),
            (Outcome::Refused(Reason::Draining), false),
            (Outcome::Refused(Reason::Gated), false),
            (Outcome::Refused(Reason::UpstreamDown), false),
            (Outcome::Completed { is_error: true }, false),
        ] {
            assert_eq!(is_overload(outcome), is, "{outcome:?}");
        }
    }

    #[test]
    fn counts_are_bounded_and_none_is_lost() {
        let overload = Overload::default();
        for number in 0..3 * MOST_ROWS {
            let caller: Arc<str> = format!("c{number}").into();
            overload.note(&"db".into(), &caller, Outcome::Displaced);
        }
        overload.note(&"db".into(), &"c0".into(), Outcome::Displaced);
        let counts = overload.take();
        assert_eq!((counts.rows.len(), counts.others), (MOST_ROWS, 2 * MOST_ROWS as u64));
        let told: serde_json::Value = serde_json::from_slice(&body("k3f9q", 301, &counts)).unwrap();
        assert_eq!((&told["event"], &told["calls"], &told["others"]), (&"overload".into(), &301.into(), &200.into()));
        assert_eq!(told["counts"][0]["calls"], 2, "the largest first");
        assert!(overload.take().rows.is_empty());
    }

    #[tokio::test]
    async fn a_command_reads_the_telling_without_a_shell_and_without_the_daemons_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("told");
        let words = ["sh", "-c", "cat > \"$0\"; env >> \"$0\"", file.to_str().unwrap()];
        let hook = Hook::Command(words.map(crate::config::Secret::new).into());
        deliver(&hook, b"{\"event\":\"overload\"}".to_vec()).await.unwrap();
        let told = std::fs::read_to_string(&file).unwrap();
        assert!(told.starts_with("{\"event\":\"overload\"}") && !told.contains("CARGO"), "{told}");
        let fails = Hook::Command(["false"].map(crate::config::Secret::new).into());
        assert!(deliver(&fails, Vec::new()).await.unwrap_err().contains("exit status"));
        let none = Hook::Command(["/nonexistent/s3cr3t"].map(crate::config::Secret::new).into());
        assert!(!deliver(&none, Vec::new()).await.unwrap_err().contains("s3cr3t"));
    }
}
