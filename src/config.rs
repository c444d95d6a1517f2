//! Settings that have been checked: these types cannot hold nonsense.
//!
//! [`load`](fn@load) reads a file into a tree that knows its places (`node`), checks it against the known keys
//! ([`schema`]) and turns it into these (`check`); every fault is told with file, line, key and a hint. The
//! environment is passed in ([`Env`]). Starting is reloading from nothing.

mod check;
mod env;
mod fault;
mod interpolate;
mod json_schema;
mod load;
mod loader;
mod mcp;
mod node;
mod origin;
mod overlay;
mod place;
mod read;
pub mod schema;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod value;
mod variables;

pub(crate) use check::LONGEST_QUEUE;
pub use env::{Env, LARGEST_FILE, ProcessEnv};
pub use fault::{Faults, Finding, Place, Warning};
pub use json_schema::schema as json_schema;
pub use load::{Format, Source, load, parse};
pub use loader::{Loaded, Loader};
pub use origin::{Origin, Setting, settings};
pub use place::{candidates, default_admin, parse_admin};
pub use value::{parse_duration, parse_size, show_duration};

use crate::caller::Lane;
use crate::limits::cursors::CursorRule;
use crate::limits::gate::{Gate, OnGateError};
use crate::limits::quota::Quota;
use crate::limits::shadow::Enforce;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The hard ceiling on calls in flight at one upstream; "unlimited" means this many (rule R21).
pub const MAX_CONCURRENT_CEILING: u32 = 4096;

/// Everything that the daemon runs by.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: Listen,
    pub auth: Auth,
    pub global: Global,
    pub upstreams: BTreeMap<String, Arc<UpstreamConfig>>,
    pub callers: BTreeMap<String, Arc<CallerConfig>>,
    pub hooks: Hooks,
    /// The file it came from, for messages.
    pub origin: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// Where MCP and REST are served. Port 0 takes any free one.
    pub mcp: SocketAddr,
    /// A unix socket on which the same is served; who calls there is known by its user id.
    pub mcp_unix: Option<PathBuf>,
    /// The admin API's unix socket.
    pub admin: PathBuf,
    /// Host names allowed beside the listener's own address (`Host` header, without port).
    pub hosts: Vec<String>,
    /// Origins allowed beside the listener's own, matched whole.
    pub origins: Vec<String>,
    /// Runtime threads that serve sockets; by default one a core, at most 8.
    pub threads: usize,
    /// Largest request body.
    pub max_body: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Everybody on loopback is `anonymous` (rule R33).
    None,
    /// Bearer keys (rule R34).
    Keys,
    /// Signed tokens of configured issuers.
    Jwt(Arc<JwtConfig>),
}

/// How tokens are checked, and what is said of this daemon as the resource that they are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtConfig {
    /// The URI by which callers reach this daemon; tokens must be made out to it.
    pub audience: String,
    /// Issuers, each with the URL of its public keys.
    pub issuers: BTreeMap<String, http::Uri>,
    /// The algorithms that are taken; never a symmetric one.
    pub algorithms: Vec<jsonwebtoken::Algorithm>,
    /// How far clocks may differ.
    pub leeway: Duration,
    /// Scopes that every token must have.
    pub scopes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Global {
    /// Calls in flight over all upstreams; none is unlimited.
    pub max_concurrent: Option<u32>,
    /// The part of it that one upstream may hold (rule R12).
    pub max_share: f64,
    /// Bytes of bodies and buffered results (rule R16).
    pub max_bytes: u64,
    pub drain_timeout: Duration,
    /// How many upstreams connect at once.
    pub connect_concurrency: u32,
    /// The JSON-RPC code of forebay's own errors (rule R32).
    pub overload_error_code: i64,
    pub overload_reply: OverloadReply,
    /// Whether the limits before the queues hold.
    pub enforce: Enforce,
    pub legacy_disconnect: LegacyDisconnect,
    /// Callers have tools to see and end their own calls.
    pub builtin_tools: bool,
}

/// Who is told of what happens.
#[derive(Clone, Debug)]
pub struct Hooks {
    pub on_overload: Option<Hook>,
    /// The least time between two tellings.
    pub every: Duration,
}

impl Default for Hooks {
    fn default() -> Self {
        Hooks { on_overload: None, every: Duration::from_secs(10) }
    }
}

/// Something to be told. Its URL or arguments may hold a credential.
#[derive(Clone)]
pub enum Hook {
    /// Posted to.
    Url(http::Uri),
    /// Started, without a shell; it reads its standard input.
    Command(Vec<Secret>),
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::Url(_) => "Url([secret])",
            Hook::Command(_) => "Command([secret])",
        })
    }
}

/// The form in which a `tools/call` over MCP is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadReply {
    ToolError,
    JsonrpcError,
    Http429,
}

/// What a legacy client's disconnect does (rule R28).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacyDisconnect {
    DropQueued,
    Keep,
    Cancel,
}

/// One upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamConfig {
    pub name: Arc<str>,
    pub target: Target,
    pub limits: Limits,
    pub tools: BTreeMap<String, ToolConfig>,
    pub start: Start,
    /// How long the handshake may take.
    pub connect_timeout: Duration,
    /// Longest line or body that the upstream may send.
    pub max_message: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    Stdio(StdioTarget),
    Http(HttpTarget),
}

#[derive(Clone, Debug, PartialEq)]
pub struct StdioTarget {
    pub command: String,
    pub args: Vec<Secret>,
    /// Laid over the documented base (`PATH`, `HOME` and the like).
    pub env: BTreeMap<String, Secret>,
    pub cwd: Option<PathBuf>,
    pub processes: u32,
}

#[derive(Clone, PartialEq)]
pub struct HttpTarget {
    /// Its path and query may hold a credential: show scheme and host alone.
    pub url: http::Uri,
    pub headers: Vec<(http::HeaderName, Secret)>,
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        f.debug_struct("HttpTarget")
            .field("url", &format_args!("{}://{authority}/...", self.url.scheme_str().unwrap_or("http")))
            .field("headers", &self.headers)
            .finish()
    }
}

/// When an upstream is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Eager,
    OnDemand,
}

/// The limits of one upstream; all of them can change while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    pub max_concurrent: Concurrency,
    /// 0 means never queue.
    pub queue_size: u32,
    /// Bytes of queued requests.
    pub queue_bytes: u64,
    /// None means no limit of forebay's own.
    pub queue_timeout: Option<Duration>,
    pub call_timeout: Option<Duration>,
    pub cancel_grace: Duration,
    pub after_cancel: AfterCancel,
    pub on_full: OnFull,
    pub fairness: Fairness,
    /// Most calls of one caller in this queue; see rule R15 for the default.
    pub max_queued: Option<u32>,
    /// Calls that waited long in a queue that stands are dropped (rule R19).
    pub sojourn: bool,
    /// Probes and list fetches take a slot too.
    pub count_everything: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    Fixed(u32),
    /// Moves between the two by load (rule R17).
    Adaptive {
        min: u32,
        max: u32,
    },
    Unlimited,
}

impl Concurrency {
    /// The limit as it is told at first: 0 for none. One that moves begins at its lower bound.
    pub fn shown(self) -> u32 {
        match self {
            Concurrency::Fixed(_) => self.ceiling(),
            Concurrency::Adaptive { min, .. } => min.min(self.ceiling()),
            Concurrency::Unlimited => 0,
        }
    }

    /// The most that may be in flight at once.
    pub fn ceiling(self) -> u32 {
        match self {
            Concurrency::Fixed(limit) => limit.min(MAX_CONCURRENT_CEILING),
            Concurrency::Adaptive { max, .. } => max.min(MAX_CONCURRENT_CEILING),
            Concurrency::Unlimited => MAX_CONCURRENT_CEILING,
        }
    }
}

/// What becomes of a slot whose call was cancelled or timed out (rule R7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCancel {
    Release,
    Hold,
    Recycle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    Displace,
    Reject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fairness {
    /// Turns go round the callers of a lane.
    Callers,
    /// One flow a lane: plain FIFO.
    None,
}

/// What one tool has of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolConfig {
    pub max_concurrent: Option<u32>,
    pub weight: Option<u32>,
    pub priority: Option<Lane>,
    pub call_timeout: Option<Duration>,
    /// What its calls leave open at the server.
    pub cursor: Option<CursorRule>,
    /// What refuses a call before it runs, in this order (rules R35, R36).
    pub gates: Vec<Gate>,
    pub gate_error: OnGateError,
    /// May be sent again when it is also annotated read-only or idempotent (rule R5).
    pub retry: bool,
}

/// What one caller may do.
#[derive(Clone, Debug, PartialEq)]
pub struct CallerConfig {
    /// SHA-256 of the secret part of each live key (at most two).
    pub keys: Vec<[u8; 32]>,
    /// User ids that are this caller on the unix socket.
    pub uids: Vec<u32>,
    /// The subjects of tokens that are this caller.
    pub subjects: Vec<String>,
    /// The issuer of these tokens; none means the only one.
    pub issuer: Option<String>,
    pub weight: u32,
    pub max_priority: Lane,
    /// How long a call may take at most, waiting included; every call of the caller has this deadline.
    pub max_deadline: Option<Duration>,
    pub max_concurrent: Option<u32>,
    pub max_queued: Option<u32>,
    pub rate: Option<Rate>,
    pub quota: Option<Quota>,
    /// Cursors that it may have open over all tools.
    pub cursors: Option<u32>,
    /// Whether its rate and its quota hold.
    pub enforce: Enforce,
    /// None means all.
    pub upstreams: Option<Vec<String>>,
    pub tools: Option<Vec<String>>,
}

impl Default for CallerConfig {
    fn default() -> Self {
        CallerConfig {
            keys: Vec::new(),
            uids: Vec::new(),
            subjects: Vec::new(),
            issuer: None,
            weight: 1,
            max_priority: Lane::High,
            max_deadline: None,
            max_concurrent: None,
            max_queued: None,
            rate: None,
            quota: None,
            cursors: None,
            enforce: Enforce::On,
            upstreams: None,
            tools: None,
        }
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub burst: u32,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A rate below one a second reads better the other way round.
        if self.per_second < 1.0 {
            write!(f, "one call every {:.0} s", 1.0 / self.per_second)?;
        } else {
            let rounded = (self.per_second * 100.0).round() / 100.0;
            write!(f, "{rounded} calls a second")?;
        }
        write!(f, ", {} at once", self.burst)
    }
}

/// A value that must never be shown: it has no `Display`, and its `Debug` is a placeholder.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The value itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl Limits {
    /// The built-in limits of a stdio upstream (5 slots) or an HTTP one (32).
    pub fn built_in(stdio: bool) -> Self {
        Limits {
            max_concurrent: Concurrency::Fixed(if stdio { 5 } else { 32 }),
            queue_size: 100,
            queue_bytes: 64 << 20,
            queue_timeout: Some(Duration::from_secs(30)),
            call_timeout: Some(Duration::from_secs(120)),
            cancel_grace: Duration::from_secs(5),
            after_cancel: AfterCancel::Release,
            on_full: OnFull::Displace,
            fairness: Fairness::Callers,
            max_queued: None,
            sojourn: false,
            count_everything: false,
        }
    }
}

impl Default for Global {
    fn default() -> Self {
        Global {
            max_concurrent: None,
            max_share: 0.75,
            max_bytes: 256 << 20,
            drain_timeout: Duration::from_secs(30),
            connect_concurrency: 4,
            overload_error_code: -31429,
            overload_reply: OverloadReply::ToolError,
            enforce: Enforce::On,
            legacy_disconnect: LegacyDisconnect::DropQueued,
            builtin_tools: false,
        }
    }
}

/// Whether a name of an upstream or a caller is fit for use. The error is a fragment that reads well behind
/// the name.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("is empty"),
        name if name.len() > 32 => Err("has more than 32 letters"),
        name if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) => {
            Err("has something else than letters, digits, - and _ in it")
        }
        _ => Ok(()),
    }
}
