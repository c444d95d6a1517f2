//! What both faces share: the protocol in both eras, and the tools.
//!
//! A face hands every message to [`Server::receive`] and, if that gives a request, awaits
//! [`Server::reply`]. Dropping that future ends the call as a closed stream does.

use crate::{Eras, Options};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) const MODERN: &str = "2026-07-28";
const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Lines on standard output that are no messages.
pub(crate) const NOISE: &[u8] = b"server ready on stdio\n\n{\"level\":\"info\"}\n123\n";

/// Name and what it does; `hold` and its kin are first because tests page through the list.
const TOOLS: &[(&str, &str)] = &[
    ("echo", "returns its arguments, byte for byte, as text and as structuredContent"),
    ("sleep", "{ms}: answers after ms"),
    ("stats", "what the server has counted; counts nothing itself"),
    ("hold", "{key}: waits for release of key, or for a cancel (then no answer)"),
    ("release", "{key}: lets everybody go who holds key, now or later"),
    ("wait", "{tool, count} or {cancels} or {answers}: answers once that many were seen"),
    ("ignore_cancel", "{ms}: like sleep, but deaf to cancels"),
    ("hold_deaf", "{key}: like hold, but deaf to cancels"),
    ("fail", "a result with isError"),
    ("error", "{code}: a JSON-RPC error"),
    ("exit", "{code}: the process exits unanswered"),
    ("kill_self", "kill -9 of itself"),
    ("inc", "{file}: adds 1 to the number in file, then closes the link unanswered"),
    ("flood_stderr", "{bytes}: that many x on standard error without an end of line"),
    ("stderr", "{line}: a line on standard error"),
    ("noise", "lines that are no messages, then the answer"),
    ("flood_stdout", "{bytes}: that many x without an end of line, an end of line, then the answer"),
    ("big", "{bytes, id_last?}: a text of that many a"),
    ("utf8_bytewise", "two characters beyond ASCII, flushed after every byte"),
    ("bad_utf8", "an answer that is not UTF-8"),
    ("string_id", "gives the request's id back as a string"),
    ("spawn_grandchild", "starts `sleep 1000` with this process's own streams; returns its pid"),
    ("env", "the environment, as an object in structuredContent, and the working directory"),
    ("raw", "{line}: prints the line before the answer"),
    ("twice", "answers twice"),
];

/// One MCP server.
pub(crate) struct Server {
    pub(crate) options: Options,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    in_flight: u64,
    peak: u64,
    calls: BTreeMap<String, u64>,
    /// Raw ids of tools/call, in order.
    ids: Vec<String>,
    /// Raw ids of cancels, in order.
    cancels: Vec<String>,
    cancelled: BTreeSet<String>,
    released: BTreeSet<String>,
    /// Messages that answer a question of ours, in order.
    answers: Vec<String>,
    initialized: bool,
}

/// A request to answer.
pub(crate) struct Incoming {
    /// As it was written.
    pub(crate) id: String,
    pub(crate) method: String,
    params: Option<Box<RawValue>>,
}

/// What goes on the wire for a request.
pub(crate) enum Reply {
    Message(String),
    /// Bytes of no message, then the message.
    After {
        before: Vec<u8>,
        message: String,
    },
    /// A line that is no text.
    Bytes(Vec<u8>),
    /// The message, flushed after every byte.
    Bytewise(String),
    /// No answer.
    Silence,
    /// The link is closed unanswered.
    Close,
}

#[derive(Deserialize)]
struct Envelope {
    id: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct CallParams {
    name: String,
    arguments: Option<Box<RawValue>>,
}

/// The arguments of every tool.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    ms: u64,
    key: String,
    tool: String,
    count: u64,
    cancels: u64,
    answers: u64,
    code: i64,
    file: String,
    bytes: usize,
    line: String,
    id_last: bool,
}

impl Server {
    pub(crate) fn new(options: Options) -> Arc<Server> {
        Arc::new(Server { options, state: Mutex::default(), changed: Notify::new() })
    }

    /// Takes in one message; gives it back if it is a request that wants an answer.
    pub(crate) fn receive(&self, message: &[u8]) -> Option<Incoming> {
        if let Some(file) = &self.options.log {
            append_line(file, message.trim_ascii_end());
        }
        let envelope: Envelope = serde_json::from_slice(message).ok()?;
        let Some(method) = envelope.method else {
            self.change(|state| state.answers.push(String::from_utf8_lossy(message).trim().to_owned()));
            return None;
        };
        let Some(id) = envelope.id else {
            self.notified(&method, envelope.params.as_deref());
            return None;
        };
        Some(Incoming { id: id.get().to_owned(), method, params: envelope.params })
    }

    /// Answers one request.
    pub(crate) async fn reply(self: &Arc<Self>, request: Incoming) -> Reply {
        let id = &*request.id;
        let handshake = matches!(&*request.method, "initialize" | "server/discover");
        if handshake && (self.options.silent_init || self.options.silent_discover && request.method != "initialize") {
            return Reply::Silence;
        }
        if self.options.dies_of_discover && request.method == "server/discover" {
            std::process::exit(1);
        }
        if handshake && !self.options.slow_init.is_zero() {
            tokio::time::sleep(self.options.slow_init).await;
        }
        let params = request.params.as_deref().map_or("{}", RawValue::get);
        let modern = params.contains("io.modelcontextprotocol/protocolVersion");
        match &*request.method {
            "initialize" | "ping" if self.options.eras == Eras::Modern => error(id, -32601, "method not found"),
            "server/discover" if self.options.eras == Eras::Legacy => error(id, -32601, "method not found"),
            "initialize" => self.initialize(id, params),
            "server/discover" if !modern => error(id, -32602, "_meta has no protocolVersion"),
            "server/discover" => result(
                id,
                &format!(
                    r#"{{"resultType":"complete","supportedVersions":["{MODERN}"],"capabilities":{CAPABILITIES},"serverInfo":{INFO},"instructions":"be kind","ttlMs":0,"cacheScope":"private"}}"#
                ),
            ),
            "ping" => result(id, "{}"),
            _ if modern && self.options.eras == Eras::Legacy || !modern && self.options.eras == Eras::Modern => {
                error(id, -32602, "wrong era")
            }
            "tools/list" => self.tools(id, params),
            "tools/call" => match serde_json::from_str::<CallParams>(params) {
                Ok(call) => self.call(id, call).await,
                Err(fault) => error(id, -32602, &fault.to_string()),
            },
            _ => error(id, -32601, "method not found"),
        }
    }

    /// The client asked that this request be stopped (also for a closed stream).
    pub(crate) fn cancel(&self, id: &str) {
        self.change(|state| {
            state.cancels.push(id.to_owned());
            state.cancelled.insert(id.to_owned());
        });
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/initialized" => self.change(|state| state.initialized = true),
            "notifications/cancelled" => {
                #[derive(Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Cancelled {
                    request_id: Box<RawValue>,
                }
                let read = params.and_then(|params| serde_json::from_str::<Cancelled>(params.get()).ok());
                if let Some(cancelled) = read {
                    self.cancel(cancelled.request_id.get());
                }
            }
            _ => {}
        }
    }

    fn initialize(&self, id: &str, params: &str) -> Reply {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Initialize {
            protocol_version: String,
        }
        let asked = serde_json::from_str::<Initialize>(params).map(|read| read.protocol_version).unwrap_or_default();
        let version = LEGACY.into_iter().find(|known| *known == asked).unwrap_or(LEGACY[0]);
        result(
            id,
            &format!(
                r#"{{"protocolVersion":"{version}","capabilities":{CAPABILITIES},"serverInfo":{INFO},"instructions":"be kind"}}"#
            ),
        )
    }

    fn tools(&self, id: &str, params: &str) -> Reply {
        #[derive(Deserialize)]
        struct List {
            cursor: Option<String>,
        }
        let cursor = serde_json::from_str::<List>(params).ok().and_then(|list| list.cursor);
        let Ok(from) = cursor.as_deref().unwrap_or("0").parse::<usize>() else {
            return error(id, -32602, "unknown cursor");
        };
        if from > TOOLS.len() {
            return error(id, -32602, "unknown cursor");
        }
        let to = self.options.tools_page.map_or(TOOLS.len(), |page| TOOLS.len().min(from + page));
        let tools: Vec<_> = TOOLS[from..to]
            .iter()
            .map(|(name, about)| {
                serde_json::json!({
                    "name": name,
                    "description": about,
                    "inputSchema": {"type": "object"},
                    "annotations": {"readOnlyHint": matches!(*name, "echo" | "sleep" | "stats" | "big" | "env")},
                })
            })
            .collect();
        let mut list =
            serde_json::json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools});
        if to < TOOLS.len() {
            list["nextCursor"] = to.to_string().into();
        }
        result(id, &list.to_string())
    }

    async fn call(self: &Arc<Self>, id: &str, call: CallParams) -> Reply {
        let raw = call.arguments.as_deref().map_or("{}", RawValue::get);
        let arguments: Arguments = serde_json::from_str(raw).unwrap_or_default();
        if !TOOLS.iter().any(|(name, _)| *name == call.name) {
            return error(id, -32602, &format!("unknown tool: {}", call.name));
        }
        // What tests look and steer with is not counted.
        let _in_flight = match &*call.name {
            "stats" | "release" | "wait" => None,
            _ => Some(InFlight::enter(self, id, &call.name)),
        };
        match &*call.name {
            "echo" => {
                let text = serde_json::Value::from(raw);
                let body = format!(r#"{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{raw}}}"#);
                result(id, &body)
            }
            "sleep" => tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(arguments.ms)) => text(id, "slept"),
                () = self.until(|state| state.cancelled.contains(id)) => Reply::Silence,
            },
            "ignore_cancel" => {
                tokio::time::sleep(Duration::from_millis(arguments.ms)).await;
                text(id, "slept")
            }
            "hold" => tokio::select! {
                () = self.until(|state| state.released.contains(&arguments.key)) => text(id, &arguments.key),
                () = self.until(|state| state.cancelled.contains(id)) => Reply::Silence,
            },
            "hold_deaf" => {
                self.until(|state| state.released.contains(&arguments.key)).await;
                text(id, &arguments.key)
            }
            "release" => {
                self.change(|state| state.released.insert(arguments.key.clone()));
                text(id, "released")
            }
            "wait" => {
                self.until(|state| {
                    state.calls.get(&arguments.tool).copied().unwrap_or(0) >= arguments.count
                        && state.cancels.len() as u64 >= arguments.cancels
                        && state.answers.len() as u64 >= arguments.answers
                })
                .await;
                self.stats(id)
            }
            "stats" => self.stats(id),
            "fail" => result(id, r#"{"content":[{"type":"text","text":"it failed"}],"isError":true}"#),
            "error" => error(id, arguments.code, "as told"),
            "exit" => std::process::exit(arguments.code as i32),
            "kill_self" => {
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                Reply::Silence
            }
            "inc" => {
                let number = std::fs::read_to_string(&arguments.file).ok().and_then(|text| text.trim().parse().ok());
                match std::fs::write(&arguments.file, (number.unwrap_or(0u64) + 1).to_string()) {
                    Ok(()) => Reply::Close,
                    Err(fault) => error(id, -1, &fault.to_string()),
                }
            }
            "flood_stderr" => {
                write_all(&mut std::io::stderr(), arguments.bytes);
                text(id, "flooded")
            }
            "stderr" => {
                complain(&format!("{}\n", arguments.line));
                text(id, "said")
            }
            "noise" => Reply::After { before: NOISE.to_vec(), message: text_message(id, "after the noise") },
            "flood_stdout" => {
                write_all(&mut std::io::stdout().lock(), arguments.bytes);
                Reply::After { before: b"\n".to_vec(), message: text_message(id, "after the flood") }
            }
            "big" => {
                let body = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "a".repeat(arguments.bytes));
                if arguments.id_last {
                    return Reply::Message(format!(r#"{{"jsonrpc":"2.0","result":{body},"id":{id}}}"#));
                }
                result(id, &body)
            }
            "utf8_bytewise" => Reply::Bytewise(text_message(id, "é😀")),
            "bad_utf8" => {
                let mut line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"x":""#).into_bytes();
                line.extend_from_slice(b"\xc3\x28\"}}");
                Reply::Bytes(line)
            }
            "string_id" => text(&format!("\"{id}\""), "a string"),
            "spawn_grandchild" => match std::process::Command::new("sleep").arg("1000").spawn() {
                Ok(child) => text(id, &child.id().to_string()),
                Err(fault) => error(id, -1, &fault.to_string()),
            },
            "env" => {
                let env: BTreeMap<_, _> = std::env::vars_os()
                    .map(|(key, value)| (key.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
                    .collect();
                let cwd = std::env::current_dir().unwrap_or_default();
                let body = serde_json::json!({"content": [], "structuredContent": {"env": env, "cwd": cwd}});
                result(id, &body.to_string())
            }
            "raw" => {
                let mut before = arguments.line.into_bytes();
                before.push(b'\n');
                Reply::After { before, message: text_message(id, "after the line") }
            }
            "twice" => {
                let message = text_message(id, "twice");
                Reply::After { before: format!("{message}\n").into_bytes(), message }
            }
            other => error(id, -32603, &format!("{other} is listed but not written")),
        }
    }

    fn stats(&self, id: &str) -> Reply {
        let state = self.lock();
        let body = serde_json::json!({
            "content": [],
            "structuredContent": {
                "in_flight": state.in_flight,
                "peak": state.peak,
                "calls": state.calls,
                "ids": state.ids,
                "cancels": state.cancels,
                "answers": state.answers,
                "initialized": state.initialized,
                "pid": std::process::id(),
            },
        });
        result(id, &body.to_string())
    }

    /// Waits until `found` holds.
    async fn until(&self, found: impl Fn(&State) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if found(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let done = change(&mut self.lock());
        self.changed.notify_waiters();
        done
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One tool call under way.
struct InFlight<'a>(&'a Server);

impl<'a> InFlight<'a> {
    fn enter(server: &'a Server, id: &str, tool: &str) -> Self {
        let now = server.change(|state| {
            state.in_flight += 1;
            state.peak = state.peak.max(state.in_flight);
            *state.calls.entry(tool.to_owned()).or_default() += 1;
            state.ids.push(id.to_owned());
            state.in_flight
        });
        if server.options.limit.is_some_and(|limit| now > limit) {
            complain("more calls at once than this server can bear\n");
            std::process::exit(70);
        }
        InFlight(server)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.in_flight -= 1);
    }
}

const CAPABILITIES: &str = r#"{"tools":{"listChanged":true}}"#;
const INFO: &str = r#"{"name":"forebay-test-upstream","version":"1"}"#;

fn result(id: &str, body: &str) -> Reply {
    Reply::Message(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{body}}}"#))
}

pub(crate) fn error(id: &str, code: i64, message: &str) -> Reply {
    let message = serde_json::Value::from(message);
    Reply::Message(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#))
}

fn text(id: &str, text: &str) -> Reply {
    Reply::Message(text_message(id, text))
}

fn text_message(id: &str, text: &str) -> String {
    let text = serde_json::Value::from(text);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#)
}

/// Appends a line to a file that a test reads.
pub(crate) fn append_line(file: &Path, line: &[u8]) {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    if let Ok(mut opened) = opened {
        let _ = opened.write_all(&[line, b"\n"].concat());
    }
}

/// Writes to standard output, for whoever started the process.
pub(crate) fn announce(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes to standard error.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn write_all(to: &mut impl std::io::Write, mut bytes: usize) {
    let block = [b'x'; 1 << 16];
    while bytes > 0 {
        let part = bytes.min(block.len());
        if to.write_all(&block[..part]).is_err() {
            return;
        }
        bytes -= part;
    }
    let _ = to.flush();
}
