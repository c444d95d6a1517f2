//! What the tests drive: hand-made runs, a scripted server on a raw socket, the real test upstream.

use super::super::link::Backoff;
use super::super::{Http, Pool};
use crate::call::{Accepted, Answer, Call, Ending, IdMint, OnFinish};
use crate::caller::{Caller, CallerId, Lane};
use crate::config::{HttpTarget, Limits, Secret, Start, Target, UpstreamConfig};
use crate::ledger::Ledger;
use crate::outcome::Outcome;
use crate::protocol::envelope::{self, Message};
use crate::protocol::json::members;
use crate::protocol::splice::ReplyForm;
use crate::protocol::version::Era;
use crate::upstream::connection::{Completion, Connection, How, LinkEvent, Run, RunId};
use crate::upstream::shared::UpstreamShared;
use bytes::Bytes;
use http::HeaderName;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// No test waits longer for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not happen"),
    }
}

/// The tool at the end of whose calls whoever ends them panics.
pub(super) const PANICS: &str = "panics";

struct Nobody;
impl OnFinish for Nobody {
    fn finished(&self, call: &Call, _: &Arc<Ending>) {
        assert!(&**call.target() != PANICS, "injected");
    }
}

/// A connection and what it has told.
pub(super) struct Rig {
    pub(super) http: Http,
    pub(super) shared: Arc<UpstreamShared>,
    told: Mutex<(Vec<LinkEvent>, Vec<Completion>)>,
    mint: IdMint,
    entries: AtomicU64,
}

pub(super) fn config(url: &str) -> UpstreamConfig {
    UpstreamConfig {
        name: "up".into(),
        target: Target::Http(HttpTarget {
            url: url.parse().unwrap(),
            headers: vec![(HeaderName::from_static("authorization"), Secret::new("Bearer OWN"))],
        }),
        limits: Limits::built_in(false),
        tools: BTreeMap::new(),
        start: Start::Eager,
        connect_timeout: Duration::from_secs(10),
        max_message: 1 << 20,
    }
}

/// Waits that tests do not have to sit out.
pub(super) const QUICK: Backoff = Backoff { first: Duration::from_millis(1), ceiling: Duration::from_millis(4) };

impl Rig {
    pub(super) fn new(config: UpstreamConfig) -> Rig {
        Rig::with(config, QUICK, None)
    }

    pub(super) fn with(
        config: UpstreamConfig,
        backoff: Backoff,
        tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
    ) -> Rig {
        let shared = UpstreamShared::new(Arc::new(config));
        let homes = vec![Handle::current(), Handle::current()];
        let http = Http::with(shared.clone(), Arc::new(Semaphore::new(4)), homes, 7, backoff, tls).unwrap();
        Rig { http, shared, told: Mutex::default(), mint: IdMint::new(1), entries: AtomicU64::new(1) }
    }

    /// Opened, and up.
    pub(super) async fn up(config: UpstreamConfig) -> Rig {
        let rig = Rig::new(config);
        rig.http.open();
        rig.event("the link is up", |event| matches!(event, LinkEvent::Up { .. })).await;
        rig
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.http.inner.pool
    }

    fn gather(&self) {
        let mut told = self.told.lock();
        while let Some(event) = self.shared.link_events.pop() {
            told.0.push(event);
        }
        while let Some(completion) = self.shared.completions.pop() {
            told.1.push(completion);
        }
    }

    async fn find<T>(&self, what: &str, find: impl Fn(&[LinkEvent], &[Completion]) -> Option<T>) -> T {
        within(what, async {
            loop {
                self.gather();
                {
                    let told = self.told.lock();
                    if let Some(found) = find(&told.0, &told.1) {
                        return found;
                    }
                }
                self.shared.wake.notified().await;
            }
        })
        .await
    }

    pub(super) async fn event(&self, what: &str, wanted: impl Fn(&LinkEvent) -> bool) -> LinkEvent {
        self.find(what, |events, _| events.iter().find(|event| wanted(event)).cloned()).await
    }

    pub(super) fn events(&self) -> Vec<LinkEvent> {
        self.gather();
        self.told.lock().0.clone()
    }

    pub(super) fn forget_events(&self) {
        self.gather();
        self.told.lock().0.clear();
    }

    /// How the slot of a run came back.
    pub(super) async fn slot(&self, run: RunId) -> How {
        self.find("the slot comes back", |_, slots| {
            slots.iter().find(|slot| slot.id == run).map(|slot| slot.how.clone())
        })
        .await
    }

    pub(super) fn slots_back(&self) -> usize {
        self.gather();
        self.told.lock().1.len()
    }

    /// A running call in the form a modern client gives it.
    pub(super) fn call(&self, tool: &str, arguments: &str) -> Arc<Call> {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{{"name":{},"arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#,
            serde_json::Value::from(tool)
        );
        let Ok(Message::Request(request)) = envelope::read(Bytes::from(text)) else { panic!("no request") };
        let call = Call::accept(Accepted {
            id: self.mint.mint(),
            caller: Arc::new(Caller::new(CallerId(1), "ann".into(), "key", Arc::default())),
            upstream: "up".into(),
            form: ReplyForm::JsonRpc { id: request.id_bytes(), era: Era::Modern },
            notices: None,
            request,
            target: tool.into(),
            renamed: false,
            tool: Some(tool.into()),
            weight: 1,
            lane: Lane::Normal,
            arrived: Instant::now(),
            deadline: None,
            home: 0,
            ledger: Arc::new(Ledger::default()),
            on_finish: Arc::new(Nobody),
            charge: None,
            parent: None,
        });
        assert!(call.ticket.start(Instant::now()));
        call
    }

    pub(super) fn run(&self, call: &Arc<Call>, until: Option<Instant>) -> Run {
        let id = RunId { incarnation: 1, entry: self.entries.fetch_add(1, Relaxed) };
        Run::new(call.clone(), id, until, self.shared.clone(), Instant::now())
    }

    pub(super) fn begin(&self, tool: &str, arguments: &str) -> Started {
        let call = self.call(tool, arguments);
        let run = self.run(&call, None);
        let started = Started { call, run: run.id };
        self.http.begin(run);
        started
    }

    /// Runs a call to its end and waits for its slot too.
    pub(super) async fn serve(&self, tool: &str, arguments: &str) -> Ended {
        let started = self.begin(tool, arguments);
        let ended = started.ended().await;
        self.slot(started.run).await;
        ended
    }
}

/// A run under way.
pub(super) struct Started {
    pub(super) call: Arc<Call>,
    pub(super) run: RunId,
}

impl Started {
    pub(super) async fn ended(&self) -> Ended {
        let ending = within("the call ends", self.call.ticket.ended()).await;
        let (text, retry_after_ms) = match &ending.answer {
            Answer::Upstream(bytes) => (String::from_utf8(bytes.to_vec()).unwrap(), None),
            Answer::Own(refusal) => (refusal.text(), refusal.retry_after_ms),
        };
        Ended { outcome: ending.outcome, text, retry_after_ms }
    }
}

/// How a call ended, and what its caller reads.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) text: String,
    pub(super) retry_after_ms: Option<u64>,
}

impl Ended {
    #[track_caller]
    pub(super) fn completed(&self) -> &str {
        assert!(matches!(self.outcome, Outcome::Completed { .. }), "{self:?}");
        &self.text
    }

    #[track_caller]
    pub(super) fn lost(&self, sent: bool, words: &str) {
        assert_eq!(self.outcome, Outcome::Lost { sent }, "{self:?}");
        assert!(self.text.contains(words), "{self:?}");
    }
}

/// One request as it came over the wire.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The connection it came on, from 0.
    pub(super) connection: usize,
    /// Head and first line, as sent.
    pub(super) head: String,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn member(&self, path: &[&str]) -> String {
        let mut raw = self.body.clone();
        for key in path {
            let found = members(&raw).ok().and_then(|read| read.get(key).map(str::to_owned));
            raw = found.unwrap_or_default();
        }
        raw
    }

    pub(super) fn method(&self) -> String {
        self.member(&["method"]).trim_matches('"').to_owned()
    }

    pub(super) fn id(&self) -> String {
        self.member(&["id"])
    }

    /// Whether it calls this tool.
    pub(super) fn is_of(&self, tool: &str) -> bool {
        self.member(&["params", "name"]) == format!("\"{tool}\"")
    }

    pub(super) fn is_call(&self) -> bool {
        self.method() == "tools/call"
    }
}

/// What a scripted server does about a request.
pub(super) enum Do {
    /// Writes the pieces, each flushed by itself, and keeps the connection.
    Write(Vec<Vec<u8>>),
    /// Writes them and closes.
    WriteAndClose(Vec<Vec<u8>>),
    /// Never answers; the connection stays until the client closes it.
    Hang,
    /// Answers when told so.
    When(Arc<Notify>, Vec<u8>),
    /// Writes the first at once, the second when told so.
    Then(Vec<u8>, Arc<Notify>, Vec<u8>),
}

type Script = dyn Fn(&Seen) -> Do + Send + Sync;

/// A server that does as it is told and remembers everything.
pub(super) struct Hostile {
    pub(super) address: SocketAddr,
    log: Arc<Log>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Log {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicU64,
    /// Connections that the client has closed.
    closed: Mutex<Vec<usize>>,
    /// The names that TLS clients asked for.
    names: Mutex<Vec<String>>,
    changed: Notify,
}

impl Log {
    fn change(&self) {
        self.changed.notify_waiters();
    }
}

impl Hostile {
    pub(super) async fn new(script: impl Fn(&Seen) -> Do + Send + Sync + 'static) -> Hostile {
        Hostile::at("127.0.0.1:0".parse().unwrap(), script).await
    }

    pub(super) async fn at(address: SocketAddr, script: impl Fn(&Seen) -> Do + Send + Sync + 'static) -> Hostile {
        Hostile::listen(address, None, script)
    }

    /// Over TLS, with this certificate and key.
    pub(super) fn tls(tls: TlsAcceptor, script: impl Fn(&Seen) -> Do + Send + Sync + 'static) -> Hostile {
        Hostile::listen("127.0.0.1:0".parse().unwrap(), Some(tls), script)
    }

    fn listen(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        script: impl Fn(&Seen) -> Do + Send + Sync + 'static,
    ) -> Hostile {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(64).unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let task = tokio::spawn(accept(listener, tls, log.clone(), Arc::new(script)));
        Hostile { address, log, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.log.seen.lock().clone()
    }

    pub(super) fn calls(&self) -> Vec<Seen> {
        self.seen().into_iter().filter(Seen::is_call).collect()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.log.names.lock().clone()
    }

    pub(super) fn connections(&self) -> u64 {
        self.log.connections.load(Relaxed)
    }

    /// Waits until what was seen is as wanted.
    pub(super) async fn until(&self, what: &str, wanted: impl Fn(&[Seen], &[usize]) -> bool) {
        within(what, async {
            loop {
                let changed = self.log.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if wanted(&self.log.seen.lock(), &self.log.closed.lock()) {
                    return;
                }
                changed.await;
            }
        })
        .await;
    }

    /// Stops listening and drops every connection.
    pub(super) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, log: Arc<Log>, script: Arc<Script>) {
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { return };
        socket.set_nodelay(true).unwrap();
        let number = log.connections.fetch_add(1, Relaxed) as usize;
        log.change();
        let (tls, log, script) = (tls.clone(), log.clone(), script.clone());
        tasks.spawn(async move {
            let Some(tls) = tls else { return connection(socket, number, log, script).await };
            if let Ok(socket) = tls.accept(socket).await {
                let name = socket.get_ref().1.server_name().unwrap_or("no name").to_owned();
                log.names.lock().push(name);
                connection(socket, number, log, script).await;
            }
        });
    }
}

async fn connection<S>(mut socket: S, number: usize, log: Arc<Log>, script: Arc<Script>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut held = Vec::new();
    while let Some((head, body)) = read_request(&mut socket, &mut held).await {
        let seen = Seen { connection: number, head, body };
        let what = script(&seen);
        log.seen.lock().push(seen);
        log.change();
        let (pieces, close) = match what {
            Do::Write(pieces) => (pieces, false),
            Do::WriteAndClose(pieces) => (pieces, true),
            Do::Hang => (Vec::new(), false),
            Do::Then(first, told, rest) => {
                if socket.write_all(&first).await.is_err() {
                    break;
                }
                tokio::select! {
                    () = told.notified() => {}
                    _ = socket.read_u8() => break,
                }
                (vec![rest], false)
            }
            Do::When(told, bytes) => {
                tokio::select! {
                    () = told.notified() => {}
                    _ = socket.read_u8() => break,
                }
                (vec![bytes], false)
            }
        };
        for piece in pieces {
            if socket.write_all(&piece).await.is_err() || socket.flush().await.is_err() {
                break;
            }
            // Pieces are to arrive one by one.
            tokio::task::yield_now().await;
        }
        if close {
            // The end is noted once the client has seen it and closed its side too.
            let _ = socket.shutdown().await;
            while socket.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
            break;
        }
    }
    log.closed.lock().push(number);
    log.change();
}

async fn read_request<S: AsyncRead + Unpin>(socket: &mut S, held: &mut Vec<u8>) -> Option<(String, String)> {
    loop {
        if let Some(end) = held.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(held[..end].to_vec()).unwrap();
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned))
                .map_or(0, |value| value.trim().parse::<usize>().unwrap());
            if held.len() >= end + 4 + length {
                let body = String::from_utf8(held[end + 4..end + 4 + length].to_vec()).unwrap();
                held.drain(..end + 4 + length);
                return Some((head, body));
            }
        }
        if socket.read_buf(held).await.ok()? == 0 {
            return None;
        }
    }
}

/// A response with a length.
pub(super) fn response(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

pub(super) fn json(body: &str) -> Vec<u8> {
    response("200 OK", "content-type: application/json\r\n", body)
}

pub(super) fn answer(status: &str, headers: &str, body: &str) -> Do {
    Do::Write(vec![response(status, headers, body)])
}

pub(super) fn result(seen: &Seen, result: &str) -> Do {
    Do::Write(vec![json(&result_text(seen, result))])
}

pub(super) fn result_text(seen: &Seen, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, seen.id())
}

/// An event stream in chunks of these bytes.
pub(super) fn chunked(parts: &[&[u8]], ended: bool) -> Vec<Vec<u8>> {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mut pieces = vec![head];
    for part in parts {
        pieces.push([format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
    }
    if ended {
        pieces.push(b"0\r\n\r\n".to_vec());
    }
    pieces
}

/// The script of a modern server: the handshake is answered, the rest is `script`'s.
pub(super) fn modern(
    script: impl Fn(&Seen) -> Do + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Do + Send + Sync + 'static {
    move |seen| match &*seen.method() {
        "server/discover" => {
            result(seen, r#"{"supportedVersions":["2026-07-28"],"capabilities":{},"serverInfo":{"name":"h"}}"#)
        }
        _ => script(seen),
    }
}

/// The script of a legacy server with sessions `s1`, `s2` and so on.
pub(super) fn legacy(
    script: impl Fn(&Seen) -> Do + Send + Sync + 'static,
) -> impl Fn(&Seen) -> Do + Send + Sync + 'static {
    let sessions = AtomicU64::new(1);
    move |seen| match &*seen.method() {
        "server/discover" => answer("400 Bad Request", "", "no session"),
        "initialize" => {
            let body = result_text(
                seen,
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"h"},"instructions":"x"}"#,
            );
            let session = sessions.fetch_add(1, Relaxed);
            let headers = format!("content-type: application/json\r\nmcp-session-id: s{session}\r\n");
            answer("200 OK", &headers, &body)
        }
        "notifications/initialized" => answer("202 Accepted", "", ""),
        _ => script(seen),
    }
}

/// The real test upstream, as a process of its own.
pub(super) struct Upstream {
    _child: tokio::process::Child,
    pub(super) url: String,
}

impl Upstream {
    pub(super) async fn start(options: &[&str]) -> Upstream {
        use tokio::io::AsyncBufReadExt as _;
        let me = std::env::current_exe().unwrap();
        // target/PROFILE/deps/forebay-HASH -> target/PROFILE/forebay-test-upstream
        let program = me.parent().and_then(|deps| deps.parent()).unwrap().join("forebay-test-upstream");
        assert!(program.exists(), "{} is missing: cargo build -p forebay-test-upstream", program.display());
        let mut child = tokio::process::Command::new(program)
            .args(["--http", "127.0.0.1:0"])
            .args(options)
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let url = within("the test upstream listens", lines.next_line()).await.unwrap().expect("its address");
        Upstream { _child: child, url }
    }
}
