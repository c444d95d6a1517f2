//! A daemon that is none: answers the admin API on a unix socket with made-up figures of any size, and can be
//! told what to say on its stream, to fall silent, and to come back as another run.

#![allow(dead_code, reason = "each of those who include it uses a part")]

use forebay_wire as wire;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

/// How much there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) upstreams: usize,
    pub(crate) calls: usize,
}

/// See the module's documentation. Dropping it ends it; the socket stays, as that of a killed daemon does.
pub(crate) struct Fake {
    pub(crate) socket: PathBuf,
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

struct Shared {
    size: Size,
    instance: String,
    /// What was asked: method, path, and the body.
    asked: Mutex<Vec<String>>,
    says: broadcast::Sender<String>,
}

impl Fake {
    pub(crate) fn start(socket: &Path, instance: &str, size: Size) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).expect("the socket can be bound");
        let (says, _) = broadcast::channel(64);
        let shared = Arc::new(Shared { size, instance: instance.into(), asked: Mutex::default(), says });
        let mut tasks = JoinSet::new();
        let serving = shared.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, serving.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Fake { socket: socket.into(), shared, tasks }
    }

    /// Sends a message on every stream that is open.
    pub(crate) fn say(&self, update: &wire::Update) {
        let _ = self.shared.says.send(serde_json::to_string(update).expect("it becomes JSON"));
    }

    /// What steered, in the order in which it came.
    pub(crate) fn steered(&self) -> Vec<String> {
        let asked = self.shared.asked.lock().expect("no test panicked");
        asked.iter().filter(|line| !line.starts_with("GET ")).cloned().collect()
    }

    /// How often the stream was begun.
    pub(crate) fn streams(&self) -> usize {
        let asked = self.shared.asked.lock().expect("no test panicked");
        asked.iter().filter(|line| *line == "GET /v1/stream").count()
    }

    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.lock().expect("no test panicked").len()
    }
}

pub(crate) fn upstream(at: usize, size: Size) -> wire::Upstream {
    let queued = (size.calls / size.upstreams.max(1)) as u32;
    wire::Upstream {
        name: format!("upstream-{at:04}"),
        state: if at % 7 == 3 { wire::UpstreamState::Saturated } else { wire::UpstreamState::Up },
        running: 2,
        max_concurrent: 2,
        queued,
        queue_size: queued * 2 + at as u32 % 50,
        oldest_wait_ms: (at as u64 * 37) % 29_000,
        queue_timeout_ms: Some(30_000),
        call_timeout_ms: Some(60_000),
        p50_ms: Some(120),
        p95_ms: Some(900),
        ..wire::Upstream::default()
    }
}

fn snapshot(shared: &Shared) -> wire::Snapshot {
    let Size { upstreams, calls } = shared.size;
    let caller = |at: usize| wire::Caller {
        name: format!("caller-{at:03}"),
        identity: "key".into(),
        queued: (calls / 200) as u32,
        ..wire::Caller::default()
    };
    wire::Snapshot {
        api: wire::API,
        version: "0.0.0".into(),
        instance: shared.instance.clone(),
        subject: "uid:1000".into(),
        uptime_ms: 5_000,
        now_unix_ms: 1_700_000_000_000,
        totals: wire::Totals { queued: calls as u64, running: 2 * upstreams as u64, ..wire::Totals::default() },
        upstreams: (0..upstreams).map(|at| upstream(at, shared.size)).collect(),
        callers: (0..200).map(caller).collect(),
        ..wire::Snapshot::default()
    }
}

fn page(shared: &Shared, path: &str) -> wire::CallsPage {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let value = |name: &str| {
        query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value))
    };
    let limit: usize = value("limit").and_then(|text| text.parse().ok()).unwrap_or(256);
    let from: usize = value("cursor").and_then(|text| text.parse().ok()).unwrap_or(0);
    let upstream = value("upstream");
    let all = if upstream.is_some() { shared.size.calls / shared.size.upstreams.max(1) } else { shared.size.calls };
    let call = |at: usize| wire::Call {
        id: format!("{}-{at:x}", shared.instance),
        caller: format!("caller-{:03}", at % 200),
        upstream: upstream.map_or_else(|| format!("upstream-{:04}", at % shared.size.upstreams), Into::into),
        method: "tools/call".into(),
        tool: Some("query".into()),
        position: Some(at as u32 + 1),
        age_ms: 4_000,
        queued_ms: 4_000,
        deadline_ms: Some(26_000),
        weight: 1,
        bytes: 300,
        attempt: 1,
        ..wire::Call::default()
    };
    let to = (from + limit).min(all);
    let next = (to < all).then(|| to.to_string());
    wire::CallsPage { calls: (from..to).map(call).collect(), next, missing: Vec::new() }
}

async fn serve(mut stream: UnixStream, shared: Arc<Shared>) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    let end = loop {
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => head.extend_from_slice(&buffer[..count]),
        }
    };
    let text = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
    let length: usize = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|length| length.trim().parse().ok())
        .unwrap_or(0);
    while head.len() < end + length {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => head.extend_from_slice(&buffer[..count]),
        }
    }
    let line = String::from_utf8_lossy(&head[..end]).lines().next().unwrap_or_default().to_owned();
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let body = String::from_utf8_lossy(&head[end..end + length]).into_owned();
    shared.asked.lock().expect("no test panicked").push(format!("{method} {path} {body}").trim_end().to_owned());
    if path == "/v1/stream" {
        follow(stream, &shared).await;
        return;
    }
    let json = answer(&shared, method, path, &body);
    let (status, json) = json
        .map_or(("404 Not Found", r#"{"code":"unknown_route","message":"no such route"}"#.into()), |json| {
            ("200 OK", json)
        });
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", json.len());
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(json.as_bytes()).await;
}

async fn follow(mut stream: UnixStream, shared: &Shared) {
    let mut says = shared.says.subscribe();
    let first = wire::Update::Snapshot(Box::new(snapshot(shared)));
    let first = serde_json::to_string(&first).expect("it becomes JSON");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    if stream.write_all(format!("{head}data: {first}\n\n").as_bytes()).await.is_err() {
        return;
    }
    while let Ok(text) = says.recv().await {
        if stream.write_all(format!("data: {text}\n\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer(shared: &Shared, method: &str, path: &str, body: &str) -> Option<String> {
    let json = |value: &dyn erased::Json| Some(value.json());
    let bare = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = bare.split('/').skip(2).collect();
    match (method, &parts[..]) {
        ("GET", ["state"]) => json(&wire::State { instance: shared.instance.clone(), ..wire::State::default() }),
        ("GET", ["calls"]) => json(&page(shared, path)),
        ("GET", ["calls", id]) => {
            let call = wire::Call { id: (*id).into(), caller: "caller-007".into(), ..wire::Call::default() };
            json(&wire::CallDetail { call, ..wire::CallDetail::default() })
        }
        ("GET", [_, _, "why"]) => json(&wire::Why { sentence: "it waits for a slot".into(), ..wire::Why::default() }),
        ("GET", ["upstreams", _]) => json(&wire::UpstreamDetail::default()),
        ("GET", ["upstreams", _, "stderr"]) => Some("[]".into()),
        ("POST", ["cancel"]) => {
            let selector: wire::Selector = serde_json::from_str(body).ok()?;
            let done = wire::CancelledMany {
                dry_run: selector.dry_run,
                matched: 5,
                cancelled_queued: 5,
                ..Default::default()
            };
            json(&done)
        }
        ("POST", ["upstreams", ..]) => json(&wire::Upstream::default()),
        ("PATCH", ["upstreams", _]) => json(&wire::LimitsAnswer::default()),
        _ => None,
    }
}

/// Serialisation behind a reference.
mod erased {
    pub(super) trait Json {
        fn json(&self) -> String;
    }

    impl<T: serde::Serialize> Json for T {
        fn json(&self) -> String {
            serde_json::to_string(self).expect("it becomes JSON")
        }
    }
}
