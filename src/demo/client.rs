//! A small MCP client over HTTP, as the demo's callers are: one connection, one call at a time.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

use crate::protocol::version::{MODERN, meta_key};

const LARGEST: usize = 1 << 20;

/// What came back for one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The tool's result, with its text.
    Ok(String),
    /// The server answered that it failed.
    Failed(String),
    /// forebay answered in the server's place.
    Refused { reason: String, text: String },
    /// No answer that can be used: the connection broke, or the HTTP status says no.
    Broken(String),
}

/// See the module's documentation.
pub struct Client {
    mcp: SocketAddr,
    key: String,
    connection: Option<SendRequest<Full<Bytes>>>,
    next_id: u64,
}

impl Client {
    pub fn new(mcp: SocketAddr, key: &str) -> Self {
        Client { mcp, key: key.into(), connection: None, next_id: 1 }
    }

    /// Connects, if it is not connected.
    pub async fn connect(&mut self) -> Result<(), String> {
        if self.connection.as_ref().is_some_and(|connection| !connection.is_closed()) {
            return Ok(());
        }
        let stream = TcpStream::connect(self.mcp).await.map_err(|fault| fault.to_string())?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|fault| fault.to_string())?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        self.connection = Some(sender);
        Ok(())
    }

    /// Calls a tool of one upstream; tells the answer and how long it took.
    pub async fn call(&mut self, upstream: &str, tool: &str, arguments: &str) -> (Answer, Duration) {
        let started = Instant::now();
        let answer = match self.exchange(upstream, tool, arguments).await {
            Ok(answer) => answer,
            Err(fault) => {
                self.connection = None;
                Answer::Broken(fault)
            }
        };
        (answer, started.elapsed())
    }

    async fn exchange(&mut self, upstream: &str, tool: &str, arguments: &str) -> Result<Answer, String> {
        self.connect().await?;
        let id = self.next_id;
        self.next_id += 1;
        let (version, capabilities) = (meta_key::PROTOCOL_VERSION, meta_key::CLIENT_CAPABILITIES);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"{version}":"{MODERN}","{capabilities}":{{}}}}}}}}"#
        );
        let request = Request::post(format!("/mcp/{upstream}"))
            .header("host", self.mcp.to_string())
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", MODERN)
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool)
            .body(Full::from(body))
            .map_err(|fault| fault.to_string())?;
        let connection = self.connection.as_mut().ok_or("not connected")?;
        connection.ready().await.map_err(|fault| fault.to_string())?;
        let answer = connection.send_request(request).await.map_err(|fault| fault.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST).collect().await.map_err(|fault| fault.to_string())?;
        read(&body.to_bytes()).ok_or_else(|| format!("HTTP {status}"))
    }
}

#[derive(Deserialize)]
struct Message {
    result: Option<ToolResult>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    #[serde(default)]
    content: Vec<Content>,
    #[serde(default)]
    is_error: bool,
    #[serde(default, rename = "_meta")]
    meta: Meta,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    text: String,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(rename = "forebay/refusal")]
    refusal: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    reason: String,
}

#[derive(Deserialize)]
struct RpcError {
    message: String,
    data: Option<serde_json::Value>,
}

/// Reads an answer, plain or as the last event of a stream.
fn read(body: &[u8]) -> Option<Answer> {
    let json = match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => body,
        _ => std::str::from_utf8(body).ok()?.lines().rev().find_map(|line| line.strip_prefix("data:"))?.as_bytes(),
    };
    let message: Message = serde_json::from_slice(json).ok()?;
    if let Some(error) = message.error {
        // A refusal in the form of an error carries the same object, bare or under its name.
        let data = error.data.unwrap_or_default();
        let reason = data.get("reason").or_else(|| data.get("forebay/refusal")?.get("reason"));
        return Some(match reason.and_then(serde_json::Value::as_str) {
            Some(reason) => Answer::Refused { reason: reason.into(), text: error.message },
            None => Answer::Failed(error.message),
        });
    }
    let result = message.result?;
    let text = result.content.into_iter().map(|content| content.text).collect::<Vec<_>>().join("\n");
    Some(match result.meta.refusal {
        Some(refusal) => Answer::Refused { reason: refusal.reason, text },
        None if result.is_error => Answer::Failed(text),
        None => Answer::Ok(text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_answer_is_told_apart() {
        let ok = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"done"}],"_meta":{"forebay/call":{}}}}"#;
        assert_eq!(read(ok.as_bytes()), Some(Answer::Ok("done".into())));
        let stream = format!(": hello\n\nevent: message\ndata: {ok}\n\n");
        assert_eq!(read(stream.as_bytes()), Some(Answer::Ok("done".into())));
        let failed = r#"{"result":{"content":[{"text":"locked"}],"isError":true}}"#;
        assert_eq!(read(failed.as_bytes()), Some(Answer::Failed("locked".into())));
        let refused = r#"{"result":{"content":[{"text":"full"}],"isError":true,"_meta":{"forebay/refusal":{"reason":"queue_full"}}}}"#;
        assert_eq!(
            read(refused.as_bytes()),
            Some(Answer::Refused { reason: "queue_full".into(), text: "full".into() })
        );
        let error = r#"{"error":{"code":-31429,"message":"full","data":{"reason":"queue_full"}}}"#;
        assert!(matches!(read(error.as_bytes()), Some(Answer::Refused { .. })));
        let error = r#"{"error":{"code":-1,"message":"no"}}"#;
        assert_eq!(read(error.as_bytes()), Some(Answer::Failed("no".into())));
        assert_eq!(read(b"<html>"), None);
    }
}
