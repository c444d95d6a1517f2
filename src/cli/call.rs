//! `forebay call`: tries a tool through its queue, as any caller would: over the REST face, with the caller's
//! own key. The admin socket only tells where that face is. Ending the command cancels the call.

use super::{CliError, Exit, Global, daemon, out};
use bytes::Bytes;
use forebay_wire::AuthMode;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpStream;

/// Largest answer, and largest arguments.
const LARGEST: usize = 256 << 20;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The upstream
    pub(super) upstream: String,
    /// Its tool, as the upstream names it
    pub(super) tool: String,
    /// The tool's arguments: a JSON object, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}")]
    pub(super) args: String,
    /// The lane to wait in
    #[arg(long, value_name = "LANE", value_parser = ["high", "normal", "low"])]
    pub(super) priority: Option<String>,
    /// The key of the caller to call as; better in the variable, where no list of processes shows it
    #[arg(long, value_name = "KEY", env = "FOREBAY_KEY", hide_env_values = true)]
    pub(super) key: Option<String>,
}

impl std::fmt::Debug for Args {
    /// Leaves out the key and the arguments.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Args").field("upstream", &self.upstream).field("tool", &self.tool).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Body<'a> {
    upstream: &'a str,
    tool: &'a str,
    /// As they were typed: no number is altered.
    arguments: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let arguments = arguments(&args.args)?;
    let state = daemon::client(global)?.state().await?;
    if matches!(state.auth, AuthMode::Keys | AuthMode::Jwt) && args.key.is_none() {
        return Err(CliError::new(Exit::NotAllowed, "the daemon wants a caller's key")
            .hint("set FOREBAY_KEY; `forebay key new NAME` makes one"));
    }
    let address = reachable(&state.mcp)?;
    let body = Body {
        upstream: &args.upstream,
        tool: &args.tool,
        arguments: &arguments,
        priority: args.priority.as_deref(),
        // Rounded up: 0 would be refused.
        timeout_ms: global.timeout.map(|timeout| (timeout.as_millis() as u64).max(1)),
    };
    let body =
        serde_json::to_vec(&body).map_err(|fault| CliError::failed(format!("cannot write the call: {fault}")))?;
    let (status, answer) = post(address, body, args.key.as_deref()).await.map_err(|fault| {
        CliError::new(Exit::Unreachable, format!("the daemon's MCP address {address} gave no answer: {fault}"))
    })?;
    if status != 200 {
        return Err(refused(status, &answer));
    }
    let result: ToolResult = serde_json::from_slice(&answer)
        .map_err(|fault| CliError::failed(format!("the answer cannot be read: {fault}")))?;
    if global.json() {
        out::line(&String::from_utf8_lossy(&answer))?;
    } else {
        out::print(&shown(&result))?;
    }
    if result.is_error { Err(CliError::silent(Exit::Failed)) } else { Ok(()) }
}

fn arguments(typed: &str) -> Result<Box<RawValue>, CliError> {
    let bad =
        |why: String| CliError::usage(format!("--args {why}")).hint("for example: --args '{\"sql\": \"select 1\"}'");
    let limit = LARGEST as u64;
    let read = |source: &mut dyn std::io::Read| {
        let mut text = String::new();
        source.take(limit).read_to_string(&mut text).map(|_| text)
    };
    let text = match (typed, typed.strip_prefix('@')) {
        ("-", _) => read(&mut std::io::stdin().lock()).map_err(|fault| bad(format!("cannot be read: {fault}")))?,
        (_, Some(file)) => std::fs::File::open(file)
            .and_then(|mut file| read(&mut file))
            .map_err(|fault| bad(format!("file {} cannot be read: {fault}", out::clean(file))))?,
        (text, None) => text.to_owned(),
    };
    let value = RawValue::from_string(text.trim().to_owned()).map_err(|fault| bad(format!("is no JSON: {fault}")))?;
    if value.get().starts_with('{') { Ok(value) } else { Err(bad("must be a JSON object".into())) }
}

/// The address to connect to, which for a daemon that listens everywhere is loopback.
pub(super) fn reachable(mcp: &str) -> Result<SocketAddr, CliError> {
    let mut address: SocketAddr = mcp
        .parse()
        .map_err(|_| CliError::failed(format!("the daemon's MCP address {} cannot be read", out::clean(mcp))))?;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(address)
}

async fn post(address: SocketAddr, body: Vec<u8>, key: Option<&str>) -> Result<(u16, Bytes), String> {
    let text = |fault: &dyn std::fmt::Display| fault.to_string();
    let stream = TcpStream::connect(address).await.map_err(|fault| text(&fault))?;
    let mut request = Request::post("/api/v1/tools/call")
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .header("accept", "application/json");
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let request =
        request.body(Full::<Bytes>::from(body)).map_err(|_| "the key has letters that no key has".to_owned())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|fault| text(&fault))?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let answer = sender.send_request(request).await.map_err(|fault| text(&fault))?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), LARGEST).collect().await.map_err(|fault| text(&fault))?;
    Ok((status, body.to_bytes()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    #[serde(default)]
    content: Vec<Content>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
struct Content {
    #[serde(rename = "type", default)]
    kind: String,
    text: Option<String>,
}

/// The result's text. Line breaks are its own; all else that a terminal would obey is written out.
fn shown(result: &ToolResult) -> String {
    let mut shown = String::new();
    for content in &result.content {
        match &content.text {
            Some(text) => {
                for line in text.lines() {
                    shown.push_str(&out::clean(line));
                    shown.push('\n');
                }
            }
            None => shown.push_str(&format!("({}: see --output json)\n", out::clean(&content.kind))),
        }
    }
    shown
}

#[derive(Default, Deserialize)]
struct Refused {
    #[serde(default)]
    message: String,
    #[serde(default)]
    refusal: Reason,
    error: Option<RpcError>,
}

#[derive(Default, Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct RpcError {
    #[serde(default)]
    message: String,
}

fn refused(status: u16, answer: &[u8]) -> CliError {
    let refused: Refused = serde_json::from_slice(answer).unwrap_or_default();
    let code = match status {
        400 => Exit::Usage,
        401 | 403 => Exit::NotAllowed,
        404 => Exit::NotFound,
        504 => Exit::TimedOut,
        503 if refused.refusal.reason == "expired" => Exit::TimedOut,
        _ => Exit::Failed,
    };
    let message = match (&refused.error, refused.message.is_empty()) {
        (Some(error), _) if !error.message.is_empty() => {
            format!("the upstream answered with an error: {}", error.message)
        }
        (_, false) => refused.message,
        _ => format!("the daemon answered HTTP {status}"),
    };
    let error = CliError::new(code, out::clean(&message));
    match status {
        401 => error.hint("set FOREBAY_KEY to a key whose hash is in the daemon's config"),
        404 => error.hint("see `forebay status` for upstreams"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_pass_as_they_were_typed() {
        let typed = r#" {"big":12345678901234567890123,"f":1.10,"e":1E400} "#;
        assert_eq!(arguments(typed).unwrap().get(), typed.trim());
        for bad in ["", "[1]", "7", "{", "{}{}", "@/does/not/exist"] {
            assert_eq!(arguments(bad).unwrap_err().code, Exit::Usage, "{bad}");
        }
    }

    #[test]
    fn a_daemon_that_listens_everywhere_is_reached_on_loopback() {
        assert_eq!(reachable("0.0.0.0:7300").unwrap().to_string(), "127.0.0.1:7300");
        assert_eq!(reachable("[::]:7300").unwrap().to_string(), "[::1]:7300");
        assert_eq!(reachable("10.0.0.1:7300").unwrap().to_string(), "10.0.0.1:7300");
        assert!(reachable("nonsense").is_err());
    }

    #[test]
    fn refusals_keep_their_words_and_get_a_code() {
        let full = br#"{"message":"the queue is full","refusal":{"reason":"queue_full"}}"#;
        let error = refused(429, full);
        assert_eq!((error.code, &*error.message), (Exit::Failed, "the queue is full"));
        assert_eq!(refused(503, br#"{"message":"m","refusal":{"reason":"expired"}}"#).code, Exit::TimedOut);
        assert_eq!(refused(504, b"{}").code, Exit::TimedOut);
        assert_eq!(refused(404, b"<html>").code, Exit::NotFound);
        assert!(
            refused(502, br#"{"message":"m","error":{"code":-1,"message":"boom\u001b"}}"#)
                .message
                .contains("boom\\x1b")
        );
    }

    #[test]
    fn a_result_keeps_its_lines_and_steers_no_terminal() {
        let result = ToolResult {
            content: vec![
                Content { kind: "text".into(), text: Some("a\nb\u{1b}[2J".into()) },
                Content { kind: "image".into(), text: None },
            ],
            is_error: false,
        };
        assert_eq!(shown(&result), "a\nb\\x1b[2J\n(image: see --output json)\n");
    }
}
