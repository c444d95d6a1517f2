//! The REST face: one call, and the list of tools.

use super::answer::{self, Reply};
use super::calls::{self, Client, Intent, To, Waited};
use super::service::Socket;
use super::{Ingress, lists, mcp};
use crate::caller::{Caller, Lane};
use crate::outcome::{Outcome, Reason};
use crate::protocol::envelope::{self, Message, Request};
use crate::protocol::json::{members_within, quote_into, unquote};
use crate::protocol::method;
use crate::protocol::splice::ReplyForm;
use crate::upstream::ListKind;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What a REST caller asks for.
#[derive(Debug)]
struct Asked {
    /// Without it, `tool` is a joined name.
    upstream: Option<String>,
    tool: String,
    request: Request,
    lane: Option<Lane>,
    timeout: Option<Duration>,
}

/// `POST /api/v1/tools/call`.
pub(crate) async fn call(ingress: &Arc<Ingress>, socket: &Arc<Socket>, caller: &Arc<Caller>, body: &Bytes) -> Reply {
    let asked = match read(body) {
        Ok(asked) => asked,
        Err(message) => return answer::rest_plain(400, &message, "bad_request"),
    };
    let arrived = Instant::now();
    let to = match &asked.upstream {
        Some(name) => match mcp::endpoint(ingress, caller, name) {
            Some(upstream) => To::Upstream { upstream, target: asked.tool.as_str().into() },
            None => {
                ingress.dispatcher.refuse_unrouted(Outcome::Refused(Reason::NotAllowed), caller);
                return answer::rest_unknown(name, &asked.tool);
            }
        },
        None => To::Name { kind: ListKind::Tools, name: asked.tool },
    };
    let Asked { request, lane, timeout, .. } = asked;
    let (caller, form) = (caller.clone(), ReplyForm::Result);
    let intent = Intent { caller, to, request, lane, arrived, timeout, form, notices: None };
    match calls::run(ingress, socket, intent, Client::Closes).await {
        Waited::Ended(call, ending) => answer::rest(&call, &ending),
        // Not without notices.
        Waited::Streams(stream) => answer::events(stream),
    }
}

/// Reads the body into the request that the upstream will see; `arguments` passes byte for byte.
fn read(body: &Bytes) -> Result<Asked, String> {
    let text = std::str::from_utf8(body).map_err(|_| "the body is not UTF-8")?;
    // One level less than a message may have: the body is wrapped into one.
    let found = members_within(text, envelope::MAX_DEPTH - 1)
        .map_err(|fault| format!("the body is not a JSON object: {fault}"))?;
    let (mut upstream, mut tool, mut arguments, mut lane, mut timeout) = (None, None, "{}", None, None);
    for (key, value) in &found.0 {
        let string = || unquote(value).ok_or_else(|| format!("`{key}` must be a string"));
        match &**key {
            "upstream" => upstream = Some(string()?.into_owned()),
            "tool" => tool = Some(string()?.into_owned()),
            "arguments" if value.starts_with('{') => arguments = value,
            "arguments" => return Err("`arguments` must be an object".into()),
            "priority" => {
                let name = string()?;
                lane = Some(Lane::from_name(&name).ok_or_else(|| mcp::bad_priority("`priority`", &name))?);
            }
            "timeout_ms" => {
                let ms = value.parse::<u64>().ok().filter(|ms| *ms > 0);
                let ms = ms.ok_or_else(|| {
                    format!("`timeout_ms` must be a whole number of milliseconds above 0, not {value:.20}")
                })?;
                timeout = Some(Duration::from_millis(ms));
            }
            other => {
                return Err(format!(
                    "`{other:.40}` is not known here: say upstream, tool, arguments, priority, timeout_ms"
                ));
            }
        }
    }
    let tool = tool.ok_or("`tool` is missing")?;
    let mut message = Vec::with_capacity(100 + tool.len() + arguments.len());
    message.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"");
    message.extend_from_slice(method::TOOLS_CALL.as_bytes());
    message.extend_from_slice(b"\",\"params\":{\"name\":");
    quote_into(&tool, &mut message);
    message.extend_from_slice(b",\"arguments\":");
    message.extend_from_slice(arguments.as_bytes());
    message.extend_from_slice(b"}}");
    match envelope::read(message.into()) {
        Ok(Message::Request(request)) => Ok(Asked { upstream, tool, request, lane, timeout }),
        Ok(Message::Notification(_) | Message::Response) => Err("the body makes no call".into()),
        Err(fault) => Err(fault.message),
    }
}

/// `GET /api/v1/tools`: what the caller may use, each with the upstream that has it.
pub(crate) async fn tools(ingress: &Ingress, caller: &Caller) -> Reply {
    if let Err(wait_ms) = ingress.take_ask(caller) {
        let reply = answer::rest_error(429, "too many lists of this caller", Reason::CallerRate);
        return answer::retry_after(reply, wait_ms);
    }
    if ingress.dispatcher.is_full() {
        return answer::retry_after(answer::rest_error(503, mcp::NO_ROOM, Reason::Overloaded), 1000);
    }
    let mut out = b"{\"tools\":[".to_vec();
    for (upstream, index) in lists::all(ingress, caller, ListKind::Tools).await {
        for item in &index.list.items {
            if !lists::visible(ingress, caller, &upstream, ListKind::Tools, &item.name) {
                continue;
            }
            if out.last() != Some(&b'[') {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"upstream\":");
            quote_into(upstream.name(), &mut out);
            out.extend_from_slice(b",\"tool\":");
            quote_into(&item.name, &mut out);
            out.extend_from_slice(b",\"definition\":");
            out.extend_from_slice(&item.raw);
            out.push(b'}');
        }
    }
    out.extend_from_slice(b"]}");
    answer::json(200, ingress.dispatcher.memory().hold(out.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Asked, String> {
        super::read(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn c25_arguments_pass_byte_for_byte() {
        let asked = read(
            r#"{"arguments": {"big":12345678901234567890123,"f":1.10, "e":1E400},"tool":"t\"1","upstream":"db","priority":"low","timeout_ms":1500}"#,
        )
        .unwrap();
        assert_eq!(
            asked.request.body,
            r#"{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"t\"1","arguments":{"big":12345678901234567890123,"f":1.10, "e":1E400}}}"#
        );
        assert_eq!((asked.upstream.as_deref(), asked.lane), (Some("db"), Some(Lane::Low)));
        assert_eq!(asked.timeout, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn what_cannot_be_read_is_told_by_key() {
        for (text, word) in [
            ("", "object"),
            ("[]", "object"),
            (r#"{"upstream":"db"}"#, "`tool`"),
            (r#"{"tool":1}"#, "`tool`"),
            (r#"{"tool":"t","upstream":null}"#, "`upstream`"),
            (r#"{"tool":"t","arguments":[]}"#, "`arguments`"),
            (r#"{"tool":"t","priority":"urgent"}"#, "`priority`"),
            (r#"{"tool":"t","timeout_ms":0}"#, "`timeout_ms`"),
            (r#"{"tool":"t","timeout_ms":"5s"}"#, "`timeout_ms`"),
            (r#"{"tool":"t","timeout_ms":-1}"#, "`timeout_ms`"),
            (r#"{"tool":"t","tool":"u"}"#, "duplicate"),
            (r#"{"tool":"t","command":"sh"}"#, "`command`"),
            (r#"{"tool":"t"} x"#, "object"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(word), "{text}: {fault}");
        }
        assert!(
            read(&format!("{{\"tool\":\"t\",\"arguments\":{{\"a\":{}{}}}}}", "[".repeat(70), "]".repeat(70))).is_err()
        );
    }
}
