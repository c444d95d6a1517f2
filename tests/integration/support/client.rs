//! An MCP client over Streamable HTTP, of either era.

use super::http::{Connection, Response};
use serde_json::Value;
use std::net::SocketAddr;
use std::thread::JoinHandle;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// A client; cheap to clone. Every call has a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    path: String,
    token: Option<String>,
    /// The session id of a legacy client.
    session: Option<String>,
    legacy: bool,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response,
    /// The JSON-RPC message, in its own bytes; empty if there was none.
    pub(crate) message: String,
    /// The same, parsed.
    pub(crate) json: Value,
}

/// A call under way on a thread of its own.
pub(crate) struct Pending(JoinHandle<Answer>);

impl Client {
    /// A stateless client of 2026-07-28 at `path`, such as `/mcp/db`.
    pub(crate) fn modern(address: SocketAddr, path: &str) -> Client {
        Client { address, path: path.to_owned(), token: None, session: None, legacy: false }
    }

    /// A client that has shaken hands.
    pub(crate) fn legacy(address: SocketAddr, path: &str) -> Client {
        let mut client = Client { legacy: true, ..Client::modern(address, path) };
        let hello = format!(
            r#"{{"protocolVersion":"{LEGACY}","capabilities":{{}},"clientInfo":{{"name":"test","version":"1"}}}}"#
        );
        let answer = client.request("\"hello\"", "initialize", &hello);
        assert_eq!(answer.json["result"]["protocolVersion"], LEGACY, "{answer:?}");
        client.session = answer.response.header("mcp-session-id").map(str::to_owned);
        let told = client.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "", None);
        assert_eq!(told.status, 202, "{told:?}");
        client
    }

    /// The same client with a bearer key.
    pub(crate) fn with_key(mut self, key: &str) -> Client {
        self.token = Some(key.to_owned());
        self
    }

    /// The same client at another path.
    pub(crate) fn at(&self, path: &str) -> Client {
        Client { path: path.to_owned(), ..self.clone() }
    }

    /// Calls a tool and waits for the answer. `arguments` is raw JSON.
    pub(crate) fn call(&self, tool: &str, arguments: &str) -> Answer {
        self.call_as("1", tool, arguments)
    }

    /// The same under a raw JSON-RPC id.
    pub(crate) fn call_as(&self, id: &str, tool: &str, arguments: &str) -> Answer {
        let mut connection = Connection::tcp(self.address);
        connection.send(&self.call_bytes(id, tool, arguments)).expect("the request is taken");
        Answer::of(connection.receive().expect("an answer comes"))
    }

    /// Begins a call on a thread of its own.
    pub(crate) fn start(&self, tool: &str, arguments: &str) -> Pending {
        let (client, tool, arguments) = (self.clone(), tool.to_owned(), arguments.to_owned());
        Pending(std::thread::spawn(move || client.call(&tool, &arguments)))
    }

    /// Any request.
    pub(crate) fn request(&self, id: &str, method: &str, params: &str) -> Answer {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        Answer::of(self.post(&body, method, None))
    }

    /// The bytes of a `tools/call`, as they go on a connection.
    pub(crate) fn call_bytes(&self, id: &str, tool: &str, arguments: &str) -> Vec<u8> {
        let meta = if self.legacy {
            String::new()
        } else {
            format!(
                r#","_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{{}}}}"#
            )
        };
        self.call_bytes_with(id, tool, arguments, &meta)
    }

    fn call_bytes_with(&self, id: &str, tool: &str, arguments: &str, meta: &str) -> Vec<u8> {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}{meta}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
        self.bytes(&body, "tools/call", Some(tool))
    }

    /// The bytes of `notifications/cancelled` for one of this client's own requests.
    pub(crate) fn cancel_bytes(&self, id: &str) -> Vec<u8> {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
        self.bytes(&body, "notifications/cancelled", None)
    }

    fn post(&self, body: &str, method: &str, name: Option<&str>) -> Response {
        let mut connection = Connection::tcp(self.address);
        connection.send(&self.bytes(body, method, name)).expect("the request is taken");
        connection.receive().expect("an answer comes")
    }

    fn bytes(&self, body: &str, method: &str, name: Option<&str>) -> Vec<u8> {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            self.path,
            self.address,
            body.len()
        );
        let mut header = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        if let Some(token) = &self.token {
            header("Authorization", &format!("Bearer {token}"));
        }
        if self.legacy {
            if let Some(session) = &self.session {
                header("Mcp-Session-Id", session);
                header("MCP-Protocol-Version", LEGACY);
            }
        } else {
            header("MCP-Protocol-Version", MODERN);
            header("Mcp-Method", method);
            if let Some(name) = name {
                header("Mcp-Name", name);
            }
        }
        head.push_str("\r\n");
        head.push_str(body);
        head.into_bytes()
    }
}

impl Pending {
    /// The answer; the connection's own deadline bounds the wait.
    pub(crate) fn answer(self) -> Answer {
        self.0.join().expect("the call is answered")
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.0.is_finished()
    }
}

impl Answer {
    pub(crate) fn of(response: Response) -> Answer {
        let text = String::from_utf8(response.body.clone()).expect("answers are UTF-8");
        let stream = response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        // Of a stream, the last message is the answer; what comes before it are notices.
        let message = if stream { last_event(&text) } else { text };
        let json = serde_json::from_str(&message).unwrap_or(Value::Null);
        Answer { response, message, json }
    }

    /// The first text block of the result.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        self.json["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {self:?}"))
    }

    pub(crate) fn is_error(&self) -> bool {
        self.json["result"]["isError"] == true
    }

    /// `_meta["forebay/refusal"]`.
    #[track_caller]
    pub(crate) fn refusal(&self) -> &Value {
        let refusal = &self.json["result"]["_meta"]["forebay/refusal"];
        assert!(refusal.is_object() && self.is_error(), "no refusal: {self:?}");
        refusal
    }

    pub(crate) fn is_refusal(&self) -> bool {
        self.json["result"]["_meta"]["forebay/refusal"].is_object()
    }

    /// The result of a `stats` call.
    #[track_caller]
    pub(crate) fn stats(&self) -> &Value {
        let stats = &self.json["result"]["structuredContent"];
        assert!(stats.is_object(), "no stats: {self:?}");
        stats
    }
}

fn last_event(stream: &str) -> String {
    let mut last = String::new();
    for event in stream.split("\n\n") {
        let data: Vec<_> = event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
        if !data.concat().is_empty() {
            last = data.join("\n");
        }
    }
    last
}
