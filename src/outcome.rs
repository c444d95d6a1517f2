//! The closed list of ways a call ends, and what each means to every reader.
//!
//! Metric label, REST status, log level, retry advice and the text a model reads are each one exhaustive
//! match on [`Outcome`], so an ending cannot be forgotten anywhere.

pub mod refusal;

pub use refusal::{Refusal, Scope};

/// The one way in which a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The upstream answered with a result; `is_error` is the tool's own verdict.
    Completed { is_error: bool },
    /// The upstream answered with a JSON-RPC error, which is passed on unchanged.
    UpstreamError,
    /// forebay said no at the door, or gave up a queue at once. Never executed.
    Refused(Reason),
    /// Left a full queue for a more deserving call. Never executed.
    Displaced,
    /// A time limit passed while the call was queued. Never executed.
    Expired(ExpiredBy),
    /// A time limit passed while the call was running. It may have run.
    TimedOut(TimedOutBy),
    /// Somebody ended it.
    Cancelled { by: CancelledBy, phase: Phase },
    /// The child died or the connection broke; `sent` says whether any byte had been written.
    Lost { sent: bool },
}

/// Why forebay refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The queue has no place by count, bytes or both.
    QueueFull,
    /// All slots are taken and `queue_size = 0`.
    ConcurrencyLimit,
    /// The predicted wait, or the deadline itself, lies beyond the caller's deadline.
    WouldExpire,
    /// The caller's rate is used up.
    CallerRate,
    /// The caller's quota is in debt.
    CallerQuota,
    /// The caller holds its share of the queue already.
    CallerShare,
    /// The caller holds all its cursors already.
    CallerCursors,
    /// A gate found the question too big.
    Gated,
    /// The upstream cannot be reached, and will not be in time.
    UpstreamDown,
    /// The upstream, or the daemon, is being drained.
    Draining,
    /// The caller has no right to this tool, or there is none: both answered as unknown.
    NotAllowed,
    /// A bound on memory or connections was met.
    Overloaded,
}

/// Which limit let a queued call expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpiredBy {
    QueueTimeout,
    Deadline,
    Sojourn,
}

/// Whose limit ended a running call (rule R8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimedOutBy {
    CallTimeout,
    Caller,
}

/// Who ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelledBy {
    Caller,
    Operator,
    Disconnect,
    Shutdown,
}

/// Where a call was when it was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Queued,
    Running,
}

/// Whether the upstream ran the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executed {
    Yes,
    Never,
    Unknown,
}

impl Executed {
    pub fn name(self) -> &'static str {
        match self {
            Executed::Yes => "yes",
            Executed::Never => "never",
            Executed::Unknown => "unknown",
        }
    }
}

/// What a caller should make of an answer that forebay gave itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Wait, then repeat the same call.
    Busy,
    /// Do not repeat it as it is.
    TooSlow,
    /// Narrow it.
    Gated,
    /// The upstream is unreachable; it will be tried again.
    Down,
    /// It may have run: do not repeat it blindly.
    Unknown,
    /// It was ended on purpose, or there is no such thing.
    Final,
}

impl Outcome {
    /// How many distinct [`Outcome::index`] values there are.
    pub const COUNT: usize = LABELS.len();

    /// A dense number for counters; [`Outcome::labels`] turns it back into words.
    pub fn index(self) -> usize {
        match self {
            Outcome::Completed { .. } => 0,
            Outcome::UpstreamError => 1,
            Outcome::Refused(Reason::QueueFull) => 2,
            Outcome::Refused(Reason::ConcurrencyLimit) => 3,
            Outcome::Refused(Reason::WouldExpire) => 4,
            Outcome::Refused(Reason::CallerRate) => 5,
            Outcome::Refused(Reason::CallerQuota) => 6,
            Outcome::Refused(Reason::CallerShare) => 7,
            Outcome::Refused(Reason::CallerCursors) => 8,
            Outcome::Refused(Reason::Gated) => 9,
            Outcome::Refused(Reason::UpstreamDown) => 10,
            Outcome::Refused(Reason::Draining) => 11,
            Outcome::Refused(Reason::NotAllowed) => 12,
            Outcome::Refused(Reason::Overloaded) => 13,
            Outcome::Displaced => 14,
            Outcome::Expired(ExpiredBy::QueueTimeout) => 15,
            Outcome::Expired(ExpiredBy::Deadline) => 16,
            Outcome::Expired(ExpiredBy::Sojourn) => 17,
            Outcome::TimedOut(TimedOutBy::CallTimeout) => 18,
            Outcome::TimedOut(TimedOutBy::Caller) => 19,
            Outcome::Cancelled { by: CancelledBy::Caller, .. } => 20,
            Outcome::Cancelled { by: CancelledBy::Operator, .. } => 21,
            Outcome::Cancelled { by: CancelledBy::Disconnect, .. } => 22,
            Outcome::Cancelled { by: CancelledBy::Shutdown, .. } => 23,
            Outcome::Lost { .. } => 24,
        }
    }

    /// `(outcome, reason)` of a counter's index; the reason is empty where there is none.
    pub fn labels(index: usize) -> (&'static str, &'static str) {
        LABELS[index]
    }

    /// The outcome's name in every answer, metric and listing.
    pub fn name(self) -> &'static str {
        LABELS[self.index()].0
    }

    /// The reason beside the name; empty where there is none.
    pub fn reason(self) -> &'static str {
        LABELS[self.index()].1
    }

    /// Whether the upstream ran the call.
    pub fn executed(self) -> Executed {
        match self {
            Outcome::Completed { .. } | Outcome::UpstreamError => Executed::Yes,
            Outcome::Refused(_) | Outcome::Displaced | Outcome::Expired(_) => Executed::Never,
            Outcome::Cancelled { phase: Phase::Queued, .. } | Outcome::Lost { sent: false } => Executed::Never,
            Outcome::TimedOut(_) | Outcome::Cancelled { phase: Phase::Running, .. } | Outcome::Lost { sent: true } => {
                Executed::Unknown
            }
        }
    }

    /// What the caller should do; none where the upstream's own answer is passed on.
    pub fn advice(self) -> Option<Advice> {
        Some(match self {
            Outcome::Completed { .. } | Outcome::UpstreamError => return None,
            Outcome::Refused(reason) => match reason {
                Reason::QueueFull
                | Reason::ConcurrencyLimit
                | Reason::CallerRate
                | Reason::CallerQuota
                | Reason::CallerShare
                | Reason::CallerCursors
                | Reason::Draining
                | Reason::Overloaded => Advice::Busy,
                Reason::WouldExpire => Advice::TooSlow,
                Reason::Gated => Advice::Gated,
                Reason::UpstreamDown => Advice::Down,
                Reason::NotAllowed => Advice::Final,
            },
            Outcome::Displaced => Advice::Busy,
            Outcome::Expired(_) => Advice::TooSlow,
            Outcome::TimedOut(_) => Advice::Unknown,
            Outcome::Lost { sent } => {
                if sent {
                    Advice::Unknown
                } else {
                    Advice::Down
                }
            }
            Outcome::Cancelled { phase: Phase::Queued, .. } => Advice::Final,
            Outcome::Cancelled { phase: Phase::Running, .. } => Advice::Unknown,
        })
    }

    /// The HTTP status on the REST face (rule R26); 499 is for logs only.
    pub fn rest_status(self) -> u16 {
        match self {
            Outcome::Completed { .. } => 200,
            Outcome::UpstreamError | Outcome::Lost { .. } => 502,
            Outcome::Refused(reason) => match reason {
                Reason::QueueFull
                | Reason::ConcurrencyLimit
                | Reason::WouldExpire
                | Reason::CallerRate
                | Reason::CallerQuota
                | Reason::CallerShare
                | Reason::CallerCursors => 429,
                Reason::Gated => 422,
                Reason::UpstreamDown | Reason::Draining | Reason::Overloaded => 503,
                Reason::NotAllowed => 404,
            },
            Outcome::Displaced => 429,
            Outcome::Expired(_) => 503,
            Outcome::TimedOut(_) => 504,
            Outcome::Cancelled { by, .. } => match by {
                CancelledBy::Caller | CancelledBy::Disconnect => 499,
                CancelledBy::Operator => 409,
                CancelledBy::Shutdown => 503,
            },
        }
    }

    /// How loud a finished call is in the log.
    pub fn log_level(self) -> tracing::Level {
        match self {
            Outcome::Completed { .. } | Outcome::UpstreamError => tracing::Level::DEBUG,
            Outcome::Cancelled { .. } => tracing::Level::DEBUG,
            Outcome::Refused(_) | Outcome::Displaced | Outcome::Expired(_) | Outcome::TimedOut(_) => {
                tracing::Level::INFO
            }
            Outcome::Lost { .. } => tracing::Level::WARN,
        }
    }
}

const LABELS: [(&str, &str); 25] = [
    ("completed", ""),
    ("upstream_error", ""),
    ("refused", "queue_full"),
    ("refused", "concurrency_limit"),
    ("refused", "would_expire"),
    ("refused", "caller_rate"),
    ("refused", "caller_quota"),
    ("refused", "caller_share"),
    ("refused", "caller_cursors"),
    ("refused", "gated"),
    ("refused", "upstream_down"),
    ("refused", "draining"),
    ("refused", "not_allowed"),
    ("refused", "overloaded"),
    ("displaced", ""),
    ("expired", "queue_timeout"),
    ("expired", "deadline"),
    ("expired", "sojourn"),
    ("timed_out", "call_timeout"),
    ("timed_out", "caller"),
    ("cancelled", "caller"),
    ("cancelled", "operator"),
    ("cancelled", "disconnect"),
    ("cancelled", "shutdown"),
    ("lost", ""),
];
