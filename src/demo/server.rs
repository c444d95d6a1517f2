//! The demo's MCP servers: small, real, each in a process of its own. What they do wrong they really do:
//! `fragile` fails while it has more than two calls in flight, `slow` takes its time, `flaky` fails at random.
//!
//! Each counts its own calls in flight and tells the peak by its tool `peak`, which is the only figure of
//! what reached the server that the demo believes.

mod http;
mod stdio;

use crate::protocol::version::MODERN;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Which server to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fragile,
    Slow,
    Flaky,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Fragile, Kind::Slow, Kind::Flaky];
    /// What `fragile` can take at once.
    pub const FRAGILE_TAKES: u32 = 2;

    pub fn name(self) -> &'static str {
        match self {
            Kind::Fragile => "fragile",
            Kind::Slow => "slow",
            Kind::Flaky => "flaky",
        }
    }

    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The tool that does its work.
    pub fn tool(self) -> &'static str {
        match self {
            Kind::Fragile => "query",
            Kind::Slow => "report",
            Kind::Flaky => "lookup",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Kind::Fragile => "Takes 40 to 80 ms, and fails while more than 2 calls are in flight",
            Kind::Slow => "Takes 200 to 400 ms, or `ms` milliseconds",
            Kind::Flaky => "Takes 20 to 60 ms, and fails once in five times",
        }
    }
}

/// Serves until its input ends (stdio), or until the process that started it goes away (HTTP).
///
/// # Errors
/// The address cannot be listened on, or standard input or output is broken.
pub async fn serve(kind: Kind, http: Option<SocketAddr>, seed: u64) -> std::io::Result<()> {
    let server = Arc::new(Server::new(kind, seed));
    match http {
        Some(address) => http::serve(server, address).await,
        None => stdio::serve(server).await,
    }
}

struct Server {
    kind: Kind,
    in_flight: AtomicU32,
    peak: AtomicU32,
    randomness: Mutex<fastrand::Rng>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    params: Option<Params>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    name: Option<String>,
    #[serde(default)]
    arguments: Value,
    protocol_version: Option<String>,
}

/// Counts a call as in flight for as long as it lives, however it ends.
struct InFlight<'a>(&'a AtomicU32);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Server {
    fn new(kind: Kind, seed: u64) -> Self {
        Server {
            kind,
            in_flight: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            randomness: Mutex::new(fastrand::Rng::with_seed(seed)),
        }
    }

    /// The answer to one message; none for notifications and what is no request.
    async fn answer(&self, message: &[u8]) -> Option<String> {
        let message: Message<'_> = match serde_json::from_slice(message) {
            Ok(message) => message,
            Err(fault) => {
                let error = json!({"code": -32700, "message": fault.to_string()});
                return Some(json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string());
            }
        };
        let (id, method) = (message.id?.get(), message.method?);
        let params = message.params.unwrap_or_default();
        let answer = match &*method {
            "initialize" => Ok(json!({
                "protocolVersion": params.protocol_version.unwrap_or_else(|| "2025-11-25".into()),
                "capabilities": {"tools": {}},
                "serverInfo": self.info(),
            })),
            "server/discover" => Ok(json!({
                "resultType": "complete",
                "supportedVersions": [MODERN],
                "capabilities": {"tools": {}},
                "_meta": {"io.modelcontextprotocol/serverInfo": self.info()},
                "ttlMs": 60_000,
                "cacheScope": "public",
            })),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({
                "resultType": "complete",
                "tools": self.tools(),
                "ttlMs": 60_000,
                "cacheScope": "public",
            })),
            "tools/call" => match params.name.as_deref() {
                Some("peak") => Ok(text(self.peak.load(SeqCst).to_string(), false)),
                Some(name) if name == self.kind.tool() => Ok(self.work(&params.arguments).await),
                _ => Err((-32602, "there is no such tool")),
            },
            _ => Err((-32601, "there is no such method")),
        };
        let body = match answer {
            Ok(result) => format!("\"result\":{result}"),
            Err((code, message)) => format!("\"error\":{}", json!({"code": code, "message": message})),
        };
        Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{body}}}"))
    }

    async fn work(&self, arguments: &Value) -> Value {
        let now = self.in_flight.fetch_add(1, SeqCst) + 1;
        let _in_flight = InFlight(&self.in_flight);
        self.peak.fetch_max(now, SeqCst);
        let asked = arguments.get("ms").and_then(Value::as_u64).map(|ms| ms.min(10_000));
        let (ms, unlucky) = {
            let mut randomness = self.randomness.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let ms = match self.kind {
                Kind::Fragile => randomness.u64(40..=80),
                Kind::Slow => randomness.u64(200..=400),
                Kind::Flaky => randomness.u64(20..=60),
            };
            (ms, randomness.u32(0..5) == 0)
        };
        // Like a locked database, it takes as long to fail as to succeed.
        tokio::time::sleep(Duration::from_millis(asked.unwrap_or(ms))).await;
        match self.kind {
            Kind::Fragile if now > Kind::FRAGILE_TAKES => {
                text(format!("database is locked: {now} calls in flight, {} at most", Kind::FRAGILE_TAKES), true)
            }
            Kind::Flaky if unlucky => text("the backend hung up".into(), true),
            Kind::Fragile | Kind::Slow | Kind::Flaky => text("done".into(), false),
        }
    }

    fn info(&self) -> Value {
        json!({"name": format!("demo-{}", self.kind.name()), "version": env!("CARGO_PKG_VERSION")})
    }

    fn tools(&self) -> Value {
        json!([
            {
                "name": self.kind.tool(),
                "description": self.kind.about(),
                "inputSchema": {"type": "object", "properties": {"ms": {"type": "integer"}}},
            },
            {
                "name": "peak",
                "description": "The most calls that were ever in flight here at once",
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": true},
            },
        ])
    }
}

fn text(text: String, is_error: bool) -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": is_error})
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn call(server: &Server, tool: &str) -> Value {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":"a\u00e9","method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#
        );
        serde_json::from_str(&server.answer(message.as_bytes()).await.unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_fragile_server_breaks_above_two_in_flight_and_says_its_peak() {
        let server = Server::new(Kind::Fragile, 1);
        let answers = tokio::join!(call(&server, "query"), call(&server, "query"), call(&server, "query"));
        let failed = [&answers.0, &answers.1, &answers.2].map(|answer| answer["result"]["isError"] == true);
        assert_eq!(failed, [false, false, true]);
        assert_eq!(call(&server, "peak").await["result"]["content"][0]["text"], "3");
        assert_eq!(call(&server, "query").await["result"]["isError"], false, "it recovers");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_dropped_is_no_longer_in_flight() {
        let server = Server::new(Kind::Slow, 1);
        let dropped = tokio::time::timeout(Duration::from_millis(10), call(&server, "report")).await;
        assert!(dropped.is_err());
        assert_eq!(server.in_flight.load(SeqCst), 0);
    }

    #[tokio::test]
    async fn what_is_not_understood_is_answered() {
        let server = Server::new(Kind::Slow, 1);
        let code = async |message: &str| {
            let answer: Value = serde_json::from_str(&server.answer(message.as_bytes()).await.unwrap()).unwrap();
            answer["error"]["code"].as_i64()
        };
        assert_eq!(code(r#"{"id":1,"method":"x"}"#).await, Some(-32601));
        assert_eq!(code(r#"{"id":1,"method":"tools/call","params":{"name":"x"}}"#).await, Some(-32602));
        assert_eq!(code("nonsense").await, Some(-32700));
        assert_eq!(server.answer(br#"{"method":"notifications/initialized"}"#).await, None);
    }
}
