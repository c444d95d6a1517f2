//! The figures behind an answer that forebay gives itself, and the words a model reads.
//!
//! Every such answer says three things: that this is a limit and not a failure of the tool, which limit
//! with its figures, and what to do next. The same text stands in `message` and in the tool result, since
//! many clients drop `data`.

use super::{Advice, CancelledBy, Executed, Outcome, Phase, Reason};
use crate::call::CallId;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::fmt::Write as _;
use std::sync::Arc;

/// Which bound a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One upstream's queue, by number of calls.
    Entries,
    /// One upstream's queue, by bytes.
    Bytes,
    /// One upstream as a whole.
    Upstream,
    /// One tool of an upstream.
    Tool,
    /// One caller.
    Caller,
    /// All upstreams together.
    Global,
    /// The price asked of another tool.
    Price,
    /// One cursor that a call follows up.
    Cursor,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Scope::Entries => "entries",
            Scope::Bytes => "bytes",
            Scope::Upstream => "upstream",
            Scope::Tool => "tool",
            Scope::Caller => "caller",
            Scope::Global => "global",
            Scope::Price => "price",
            Scope::Cursor => "cursor",
        }
    }
}

/// What is told about a call that forebay answered itself. Serialises to `_meta["forebay/refusal"]`.
///
/// Figures that do not belong to the outcome are absent, never zero.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub outcome: Outcome,
    pub scope: Scope,
    pub call_id: CallId,
    /// Empty before an upstream is known.
    pub upstream: Arc<str>,
    pub caller: Arc<str>,
    /// Running and lingering calls of the upstream.
    pub active: Option<u32>,
    /// 0 means unlimited.
    pub max_concurrent: Option<u32>,
    pub queued: Option<u32>,
    pub queue_size: Option<u32>,
    pub queue_timeout_ms: Option<u64>,
    pub retry_after_ms: Option<u64>,
    /// A limit of the caller's own, with its figures in words ("5 calls a second, 20 at once").
    pub limit: Option<Arc<str>>,
    /// A sentence of the operator or of the fault ("exit code 1", a gate's `say`).
    pub note: Option<Arc<str>>,
}

impl Refusal {
    /// A refusal without figures; the fields are public to be filled.
    pub fn new(outcome: Outcome, scope: Scope, call_id: CallId, upstream: Arc<str>, caller: Arc<str>) -> Self {
        Refusal {
            outcome,
            scope,
            call_id,
            upstream,
            caller,
            active: None,
            max_concurrent: None,
            queued: None,
            queue_size: None,
            queue_timeout_ms: None,
            retry_after_ms: None,
            limit: None,
            note: None,
        }
    }

    /// The `reason` field: the refusal's reason, else the outcome with its reason.
    pub fn reason(&self) -> &'static str {
        match self.outcome {
            Outcome::Refused(_) => self.outcome.reason(),
            Outcome::Completed { .. }
            | Outcome::UpstreamError
            | Outcome::Displaced
            | Outcome::Expired(_)
            | Outcome::TimedOut(_)
            | Outcome::Cancelled { .. }
            | Outcome::Lost { .. } => self.outcome.name(),
        }
    }

    /// The words for a model. One paragraph, no line breaks.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(240);
        self.say_what(&mut text);
        if let Some(note) = &self.note {
            let _ = write!(text, " ({note})");
        }
        text.push_str(". ");
        self.say_todo(&mut text);
        let _ = write!(text, " [call {}, {}]", self.call_id, self.reason());
        text
    }

    fn say_what(&self, text: &mut String) {
        let up = &self.upstream;
        let _ = match self.outcome {
            Outcome::Completed { .. } | Outcome::UpstreamError => write!(text, "Answered by {up}"),
            Outcome::Refused(Reason::QueueFull) => {
                let _ = write!(text, "Not executed: the queue of {up} is full");
                self.figures(text)
            }
            Outcome::Refused(Reason::ConcurrencyLimit) => {
                let _ = write!(text, "Not executed: {up} is at its limit and keeps no queue");
                self.figures(text)
            }
            Outcome::Refused(Reason::WouldExpire) => {
                let _ = write!(text, "Not executed: the call would not start on {up} before its deadline");
                self.figures(text)
            }
            Outcome::Refused(Reason::CallerRate) => {
                let _ = write!(text, "Not executed: caller {} has used up its rate of calls", self.caller);
                self.own_limit(text)
            }
            Outcome::Refused(Reason::CallerQuota) => {
                let _ = write!(text, "Not executed: caller {} has used up its quota", self.caller);
                self.own_limit(text)
            }
            Outcome::Refused(Reason::CallerShare) => {
                let _ =
                    write!(text, "Not executed: caller {} holds its share of the queue of {up} already", self.caller);
                self.figures(text)
            }
            Outcome::Refused(Reason::CallerCursors) => {
                let caller = &self.caller;
                let _ = match self.scope {
                    Scope::Cursor => {
                        write!(
                            text,
                            "Not executed: the cursor in this call is none that caller {caller} has open on {up}"
                        )
                    }
                    Scope::Tool => write!(text, "Not executed: all cursors that may be open on {up} are in use"),
                    _ => write!(text, "Not executed: caller {caller} holds all its open cursors on {up} already"),
                };
                self.own_limit(text)
            }
            Outcome::Refused(Reason::Gated) => {
                let _ = write!(text, "Not executed: a gate on {up} found this call too big");
                self.own_limit(text)
            }
            Outcome::Refused(Reason::UpstreamDown) => write!(text, "Not executed: {up} cannot be reached"),
            Outcome::Refused(Reason::Draining) => {
                if up.is_empty() {
                    write!(text, "Not executed: the gateway is shutting down and takes no new calls")
                } else {
                    write!(text, "Not executed: {up} is being drained and takes no new calls")
                }
            }
            Outcome::Refused(Reason::NotAllowed) => write!(text, "Unknown tool"),
            Outcome::Refused(Reason::Overloaded) => {
                write!(text, "Not executed: the gateway is at its bound on memory or connections")
            }
            Outcome::Displaced => {
                let _ =
                    write!(text, "Not executed: the call gave its place in the full queue of {up} to another caller");
                self.figures(text)
            }
            Outcome::Expired(_) => {
                let _ = write!(text, "Not executed: the call expired in the queue of {up}");
                self.figures(text)
            }
            Outcome::TimedOut(by) => match by {
                super::TimedOutBy::CallTimeout => write!(text, "No answer: the call ran into its time limit on {up}"),
                super::TimedOutBy::Caller => {
                    write!(text, "No answer: the caller's deadline passed while the call ran on {up}")
                }
            },
            Outcome::Cancelled { by, phase } => {
                let who = match by {
                    CancelledBy::Caller => "by its caller",
                    CancelledBy::Operator => "by an operator",
                    CancelledBy::Disconnect => "because its caller went away",
                    CancelledBy::Shutdown => "because the gateway is shutting down",
                };
                match phase {
                    Phase::Queued => {
                        write!(text, "Not executed: the call was cancelled {who} while it waited for {up}")
                    }
                    Phase::Running => write!(text, "The call was cancelled {who} while it ran on {up}"),
                }
            }
            Outcome::Lost { sent: true } => {
                write!(text, "No valid answer: the exchange with {up} failed while the call ran")
            }
            Outcome::Lost { sent: false } => {
                write!(text, "Not executed: the exchange with {up} failed before the call was taken")
            }
        };
    }

    /// What to do about a cursor; false where the words of the kind fit.
    fn say_cursor(&self, text: &mut String, wait: Option<&Wait>) -> bool {
        let _ = match (self.scope, wait) {
            (Scope::Tool, _) => return false,
            (Scope::Cursor, _) => write!(
                text,
                "This is a limit of the gateway, not a failure of the tool: the cursor has run out of time, was read to its end or was never given; begin again without a cursor."
            ),
            (_, Some(wait)) => write!(
                text,
                "This is a limit of the gateway, not a failure of the tool: read one of them to its last page, or wait {wait}, then repeat the same call."
            ),
            (_, None) => write!(
                text,
                "This is a limit of the gateway, not a failure of the tool: read one of them to its last page, then repeat the same call."
            ),
        };
        true
    }

    fn own_limit(&self, text: &mut String) -> std::fmt::Result {
        match &self.limit {
            Some(limit) => write!(text, ": {limit}"),
            None => Ok(()),
        }
    }

    /// `: 2 of 2 running, 16 of 16 waiting`.
    fn figures(&self, text: &mut String) -> std::fmt::Result {
        let mut lead = ": ";
        if let Some(active) = self.active {
            match self.max_concurrent {
                Some(0) | None => write!(text, "{lead}{active} running")?,
                Some(limit) => write!(text, "{lead}{active} of {limit} running")?,
            }
            lead = ", ";
        }
        if let Some(queued) = self.queued {
            match self.queue_size {
                Some(size) => write!(text, "{lead}{queued} of {size} waiting")?,
                None => write!(text, "{lead}{queued} waiting")?,
            }
        }
        Ok(())
    }

    fn say_todo(&self, text: &mut String) {
        let wait = self.retry_after_ms.map(Wait);
        if self.outcome == Outcome::Refused(Reason::CallerCursors) && self.say_cursor(text, wait.as_ref()) {
            return;
        }
        let _ = match self.outcome.advice() {
            None => Ok(()),
            Some(Advice::Busy) => match wait {
                Some(wait) => write!(
                    text,
                    "This is a limit of the gateway, not a failure of the tool: wait {wait}, then repeat the same call."
                ),
                None => write!(
                    text,
                    "This is a limit of the gateway, not a failure of the tool: wait a moment, then repeat the same call."
                ),
            },
            Some(Advice::TooSlow) => match wait {
                Some(wait) => write!(
                    text,
                    "This is a limit of the gateway, not a failure of the tool: do not repeat it at once; wait {wait}, ask for less, or allow more time."
                ),
                None => write!(
                    text,
                    "This is a limit of the gateway, not a failure of the tool: do not repeat it at once; ask for less, or allow more time."
                ),
            },
            Some(Advice::Gated) => {
                write!(
                    text,
                    "This is a limit of the gateway, not a failure of the tool: narrow the call, then try again."
                )
            }
            Some(Advice::Down) => match wait {
                Some(wait) => write!(text, "The call was not run; the server is tried again in {wait}."),
                None => write!(text, "The call was not run; somebody has to mend the server first."),
            },
            Some(Advice::Unknown) => {
                write!(text, "It may have run: check its effect before you repeat it.")
            }
            Some(Advice::Final) => match self.outcome.executed() {
                Executed::Never => write!(text, "It was not run and will not be."),
                Executed::Yes | Executed::Unknown => write!(text, "Do not repeat it unless asked to."),
            },
        };
    }
}

/// Milliseconds in the words of a person: `1.5 s`, `40 s`.
struct Wait(u64);

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            ms @ 0..10_000 => write!(f, "{}.{} s", ms.div_ceil(100) / 10, ms.div_ceil(100) % 10),
            ms => write!(f, "{} s", ms.div_ceil(1000)),
        }
    }
}

impl Serialize for Refusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("reason", self.reason())?;
        if !matches!(self.outcome, Outcome::Refused(_)) && !self.outcome.reason().is_empty() {
            map.serialize_entry("by", self.outcome.reason())?;
        }
        map.serialize_entry("scope", self.scope.name())?;
        map.serialize_entry("upstream", &*self.upstream)?;
        map.serialize_entry("caller", &*self.caller)?;
        let mut number = |name: &str, value: Option<u64>| match value {
            Some(value) => map.serialize_entry(name, &value),
            None => Ok(()),
        };
        number("active", self.active.map(u64::from))?;
        number("max_concurrent", self.max_concurrent.map(u64::from))?;
        number("queued", self.queued.map(u64::from))?;
        number("queue_size", self.queue_size.map(u64::from))?;
        number("queue_timeout_ms", self.queue_timeout_ms)?;
        number("retry_after_ms", self.retry_after_ms)?;
        if let Some(limit) = &self.limit {
            map.serialize_entry("limit", &**limit)?;
        }
        map.serialize_entry("executed", self.outcome.executed().name())?;
        map.serialize_entry("call_id", &self.call_id.to_string())?;
        if let Some(note) = &self.note {
            map.serialize_entry("note", &**note)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::IdMint;

    fn refusal(outcome: Outcome) -> Refusal {
        let mint = IdMint::new(7);
        let mut refusal = Refusal::new(outcome, Scope::Entries, mint.mint(), "db".into(), "ann".into());
        refusal.active = Some(2);
        refusal.max_concurrent = Some(2);
        refusal.queued = Some(16);
        refusal.queue_size = Some(16);
        refusal.retry_after_ms = Some(1450);
        refusal
    }

    #[test]
    fn a_full_queue_is_told_with_figures_and_a_time() {
        let text = refusal(Outcome::Refused(Reason::QueueFull)).text();
        assert_eq!(
            text,
            "Not executed: the queue of db is full: 2 of 2 running, 16 of 16 waiting. This is a limit of the gateway, \
             not a failure of the tool: wait 1.5 s, then repeat the same call. [call 00007-11, queue_full]"
        );
    }

    #[test]
    fn what_may_have_run_is_never_told_to_be_repeated() {
        for index in 0..Outcome::COUNT {
            let outcome = every().into_iter().find(|o| o.index() == index).expect("every index has an outcome");
            let text = refusal(outcome).text();
            if outcome.executed() != Executed::Never {
                assert!(!text.contains("repeat the same call"), "{text}");
            } else if outcome != Outcome::Refused(Reason::NotAllowed) {
                assert!(text.starts_with("Not executed"), "{text}");
            }
            assert!(!text.contains('\n'));
        }
    }

    /// One outcome an index.
    fn every() -> Vec<Outcome> {
        use super::super::{CancelledBy::*, ExpiredBy, Reason::*, TimedOutBy};
        let mut all = vec![
            Outcome::Completed { is_error: false },
            Outcome::UpstreamError,
            Outcome::Displaced,
            Outcome::Expired(ExpiredBy::QueueTimeout),
            Outcome::Expired(ExpiredBy::Deadline),
            Outcome::Expired(ExpiredBy::Sojourn),
            Outcome::TimedOut(TimedOutBy::CallTimeout),
            Outcome::TimedOut(TimedOutBy::Caller),
            Outcome::Lost { sent: true },
        ];
        all.extend(
            [
                QueueFull,
                ConcurrencyLimit,
                WouldExpire,
                CallerRate,
                CallerQuota,
                CallerShare,
                CallerCursors,
                Gated,
                UpstreamDown,
                Draining,
                NotAllowed,
                Overloaded,
            ]
            .map(Outcome::Refused),
        );
        all.extend([Caller, Operator, Disconnect, Shutdown].map(|by| Outcome::Cancelled { by, phase: Phase::Running }));
        all
    }

    #[test]
    fn figures_that_are_not_known_are_absent() {
        let mut refusal = refusal(Outcome::Refused(Reason::CallerRate));
        refusal.active = None;
        let json = serde_json::to_value(&refusal).unwrap();
        assert!(json.get("active").is_none());
        assert_eq!(json["reason"], "caller_rate");
        assert_eq!(json["executed"], "never");
    }
}
