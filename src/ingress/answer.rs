//! Every answer's form: endings of calls for both faces, errors, and what has no body at all.
//!
//! The forms are those of `docs/outcomes.md`, which a test holds to this code.

use super::payload::{Events, Payload};
use crate::call::{Answer, Call, Ending, Memory};
use crate::config::{Global, OverloadReply};
use crate::outcome::{CancelledBy, Outcome, Reason, Refusal, Scope};
use crate::protocol::error;
use crate::protocol::json::{members, quote_into};
use crate::protocol::method;
use crate::protocol::splice::ReplyForm;
use crate::protocol::version::{Era, meta_key};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

/// An answer as HTTP carries it.
pub(crate) type Reply = Response<Payload>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

pub(crate) fn json(status: u16, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Payload::from(body.into()));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    reply.headers_mut().insert(CONTENT_TYPE, JSON);
    reply
}

/// What notifications and responses get (C19).
pub(crate) fn accepted() -> Reply {
    let mut reply = Response::new(Payload::default());
    *reply.status_mut() = StatusCode::ACCEPTED;
    reply
}

/// What a call that its own legacy client cancelled gets: a stream with nothing in it (rule R4).
pub(crate) fn empty_stream() -> Reply {
    let mut reply = Response::new(Payload::default());
    reply.headers_mut().insert(CONTENT_TYPE, EVENTS);
    reply
}

/// A stream of events. What stands on the way is asked not to hold it back.
pub(crate) fn events(events: impl Events + 'static) -> Reply {
    let mut reply = Response::new(Payload::stream(events));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    reply
}

/// The same, and the connection ends with it: the rest of the request is not read.
pub(crate) fn closing(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

pub(crate) fn retry_after(mut reply: Reply, ms: u64) -> Reply {
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000).max(1)));
    reply
}

/// A JSON-RPC error message. Without an id it answers `null`.
pub(crate) fn rpc_error(status: u16, id: Option<&[u8]>, code: i64, message: &str, data: Option<&str>) -> Reply {
    let mut out = Vec::with_capacity(160 + message.len());
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.filter(|id| !id.is_empty()).unwrap_or(b"null"));
    out.extend_from_slice(b",\"error\":");
    write_error(&mut out, code, message, data);
    out.push(b'}');
    json(status, out)
}

fn write_error(out: &mut Vec<u8>, code: i64, message: &str, data: Option<&str>) {
    out.extend_from_slice(b"{\"code\":");
    out.extend_from_slice(itoa::Buffer::new().format(code).as_bytes());
    out.extend_from_slice(b",\"message\":");
    quote_into(message, out);
    if let Some(data) = data {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(data.as_bytes());
    }
    out.push(b'}');
}

/// A JSON-RPC message with a result that is written already.
pub(crate) fn rpc_result(id: &[u8], result: &[u8]) -> Reply {
    json(200, result_message(id, result))
}

/// The same, charged until it is written (rule R16).
pub(crate) fn rpc_result_held(id: &[u8], result: &[u8], memory: &Memory) -> Reply {
    json(200, memory.hold(result_message(id, result).into()))
}

fn result_message(id: &[u8], result: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(40 + id.len() + result.len());
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id);
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(result);
    out.push(b'}');
    out
}

/// An unknown tool, prompt or resource; a hidden one is answered by the same bytes (rule R32).
pub(crate) fn rpc_unknown(id: &[u8], what: &str, name: &str) -> Reply {
    rpc_error(200, Some(id), error::INVALID_PARAMS, &format!("Unknown {what}: {name}"), None)
}

/// The answer to a call that came over MCP. `name` is the target as its caller wrote it.
pub(crate) fn mcp(call: &Call, ending: &Ending, name: &str, global: &Global) -> Reply {
    let (id, era) = match &call.form {
        ReplyForm::JsonRpc { id, era } => (id.clone(), *era),
        ReplyForm::Result => (call.request.id_bytes(), Era::Modern),
    };
    let refusal = match &ending.answer {
        Answer::Upstream(bytes) => {
            let status =
                if ending.outcome == Outcome::UpstreamError && era == Era::Modern { modern_status(bytes) } else { 200 };
            return json(status, bytes.clone());
        }
        Answer::Own(refusal) => refusal,
    };
    match ending.outcome {
        Outcome::Refused(Reason::NotAllowed) => {
            return match &refusal.note {
                // The name has two meanings.
                Some(note) => rpc_error(200, Some(&id), error::INVALID_PARAMS, note, None),
                None => rpc_unknown(&id, what(&call.request.method), name),
            };
        }
        Outcome::Cancelled { by: CancelledBy::Caller | CancelledBy::Disconnect, .. } if era == Era::Legacy => {
            return empty_stream();
        }
        _ => {}
    }
    let text = refusal.text();
    let data = serde_json::to_string(refusal).unwrap_or_default();
    let as_result = &*call.request.method == method::TOOLS_CALL && global.overload_reply == OverloadReply::ToolError;
    if as_result {
        let mut out = Vec::with_capacity(700);
        out.extend_from_slice(b"{\"content\":[{\"type\":\"text\",\"text\":");
        quote_into(&text, &mut out);
        out.extend_from_slice(b"}],\"isError\":true,");
        if era == Era::Modern {
            out.extend_from_slice(b"\"resultType\":\"complete\",");
        }
        out.extend_from_slice(b"\"_meta\":{\"");
        out.extend_from_slice(meta_key::REFUSAL.as_bytes());
        out.extend_from_slice(b"\":");
        out.extend_from_slice(data.as_bytes());
        out.extend_from_slice(b",\"");
        out.extend_from_slice(meta_key::CALL.as_bytes());
        out.extend_from_slice(b"\":");
        write_note(&mut out, call, ending);
        out.extend_from_slice(b"}}");
        return rpc_result(&id, &out);
    }
    let limited = global.overload_reply == OverloadReply::Http429 && ending.outcome.rest_status() == 429;
    let status = if limited { 429 } else { 200 };
    let reply = rpc_error(status, Some(&id), global.overload_error_code, &text, Some(&data));
    if limited { retry_after(reply, refusal.retry_after_ms.unwrap_or(1000)) } else { reply }
}

/// The same as a message of a stream that has begun, where HTTP's own forms have no place any more. None for a call
/// that its own client cancelled.
pub(crate) fn in_stream(call: &Call, ending: &Ending, name: &str, global: &Global) -> Option<Bytes> {
    match &ending.answer {
        Answer::Upstream(bytes) => Some(bytes.clone()),
        Answer::Own(_) => Some(mcp(call, ending, name, global).into_body().into_whole()).filter(|it| !it.is_empty()),
    }
}

/// What a method's target is called in an answer.
pub(crate) fn what(method: &str) -> &'static str {
    match method {
        method::TOOLS_CALL => "tool",
        method::PROMPTS_GET => "prompt",
        method::RESOURCES_READ => "resource",
        _ => "target",
    }
}

/// The HTTP status that a modern server gives with its error.
fn modern_status(message: &[u8]) -> u16 {
    let code = std::str::from_utf8(message).ok().and_then(|text| {
        let error = members(text).ok()?.get("error")?;
        members(error).ok()?.get("code")?.parse::<i64>().ok()
    });
    match code {
        Some(error::METHOD_NOT_FOUND) => 404,
        Some(error::HEADER_MISMATCH | error::MISSING_CAPABILITY | error::UNSUPPORTED_VERSION) => 400,
        _ => 200,
    }
}

/// The answer to a call that came over REST (rule R26).
pub(crate) fn rest(call: &Call, ending: &Ending) -> Reply {
    match &ending.answer {
        Answer::Upstream(bytes) if ending.outcome != Outcome::UpstreamError => json(200, bytes.clone()),
        Answer::Upstream(bytes) => {
            let refusal = call.refusal(ending.outcome, Scope::Upstream);
            rest_refusal(call, ending, &refusal, "the upstream answered with an error", Some(bytes))
        }
        Answer::Own(refusal) => match ending.outcome {
            Outcome::Refused(Reason::NotAllowed) => match &refusal.note {
                Some(note) => rest_plain(400, note, "bad_request"),
                None if call.upstream().is_empty() => {
                    rest_error(404, &format!("Unknown tool: {}", call.target()), Reason::NotAllowed)
                }
                None => rest_unknown(call.upstream(), call.target()),
            },
            _ => rest_refusal(call, ending, refusal, &refusal.text(), None),
        },
    }
}

fn rest_refusal(call: &Call, ending: &Ending, refusal: &Refusal, message: &str, error: Option<&Bytes>) -> Reply {
    let mut out = Vec::with_capacity(700);
    out.extend_from_slice(b"{\"message\":");
    quote_into(message, &mut out);
    if let Some(error) = error {
        out.extend_from_slice(b",\"error\":");
        out.extend_from_slice(error);
    }
    out.extend_from_slice(b",\"refusal\":");
    let _ = serde_json::to_writer(&mut out, refusal);
    out.extend_from_slice(b",\"call\":");
    write_note(&mut out, call, ending);
    out.push(b'}');
    let status = match ending.outcome.rest_status() {
        // 499 is for logs: whoever still listens gets a status that exists.
        499 => 409,
        status => status,
    };
    let reply = json(status, out);
    match (status, refusal.retry_after_ms) {
        (429 | 503, wait) => retry_after(reply, wait.unwrap_or(1000)),
        (_, Some(wait)) => retry_after(reply, wait),
        (_, None) => reply,
    }
}

/// An unknown tool, or a hidden one, over REST.
pub(crate) fn rest_unknown(upstream: &str, tool: &str) -> Reply {
    let message = format!("Unknown tool: {tool} of upstream {upstream}");
    rest_error(404, &message, Reason::NotAllowed)
}

/// A REST request that never became a call.
pub(crate) fn rest_error(status: u16, message: &str, reason: Reason) -> Reply {
    let reason = Outcome::Refused(reason).reason();
    rest_plain(status, message, reason)
}

/// A REST error with a reason of its own ("bad_request").
pub(crate) fn rest_plain(status: u16, message: &str, reason: &str) -> Reply {
    let body = serde_json::json!({ "message": message, "refusal": { "reason": reason, "executed": "never" } });
    json(status, body.to_string())
}

/// `{"call_id":...}` of a call that forebay answered itself.
fn write_note(out: &mut Vec<u8>, call: &Call, ending: &Ending) {
    let (queued, running) = call.times(ending.at);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b"{\"call_id\":\"");
    call.id.write_to(out);
    out.extend_from_slice(b"\",\"upstream\":");
    quote_into(call.upstream(), out);
    out.extend_from_slice(b",\"queued_ms\":");
    out.extend_from_slice(digits.format(queued.as_millis() as u64).as_bytes());
    out.extend_from_slice(b",\"running_ms\":");
    out.extend_from_slice(digits.format(running.as_millis() as u64).as_bytes());
    out.extend_from_slice(b",\"outcome\":\"");
    out.extend_from_slice(ending.outcome.name().as_bytes());
    out.extend_from_slice(b"\",\"executed\":\"");
    out.extend_from_slice(ending.outcome.executed().name().as_bytes());
    out.extend_from_slice(b"\"}");
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
