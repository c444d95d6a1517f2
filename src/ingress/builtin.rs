//! Tools of forebay's own on the aggregate endpoint: a caller sees and ends its own calls over MCP.
//!
//! Off unless `[global] builtin_tools = true`. They are answered here, never queued and no calls themselves, so they work
//! when everything else is stuck. Another caller's call is answered as one that never was (rule R27).

use super::Ingress;
use super::answer::{self, Reply};
use crate::call::CallRef;
use crate::caller::Caller;
use crate::dispatcher::{CancelAnswer, route};
use crate::outcome::CancelledBy;
use crate::protocol::envelope::Request;
use crate::protocol::json::{members, unquote};
use crate::protocol::method;
use crate::protocol::version::Era;
use crate::snapshot;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The upstream's name under which they stand; no upstream has it while they are on.
pub(crate) const NAME: &str = "forebay";
/// Calls that are told at most, oldest first.
const MOST: usize = 100;

/// One of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    MyCalls,
    CancelMyCall,
}

impl Builtin {
    const ALL: [Builtin; 2] = [Builtin::MyCalls, Builtin::CancelMyCall];

    fn name(self) -> String {
        let name = match self {
            Builtin::MyCalls => "my_calls",
            Builtin::CancelMyCall => "cancel_my_call",
        };
        route::join(NAME, name)
    }

    /// The tool that a request on the aggregate endpoint calls, if they are on.
    pub(crate) fn of(ingress: &Ingress, request: &Request) -> Option<Builtin> {
        if &*request.method != method::TOOLS_CALL || !ingress.dispatcher.config.load().global.builtin_tools {
            return None;
        }
        let name = request.target_name()?;
        Builtin::ALL.into_iter().find(|tool| tool.name() == name)
    }

    fn definition(self) -> Value {
        let (description, properties, required, read_only) = match self {
            Builtin::MyCalls => (
                "Lists your own calls that wait or run at the gateway, oldest first, with id, upstream, tool, state and \
                 times in milliseconds. Answered at once, also while everything else waits.",
                json!({}),
                json!([]),
                true,
            ),
            Builtin::CancelMyCall => (
                "Ends one of your own calls by the id that forebay__my_calls gives. One that waits never reaches its \
                 server; of one that runs the server is asked to stop.",
                json!({ "id": { "type": "string", "description": "the call's id, such as k3f9q-1f9" } }),
                json!(["id"]),
                false,
            ),
        };
        json!({
            "name": self.name(),
            "description": description,
            "inputSchema": { "type": "object", "properties": properties, "required": required },
            "annotations": { "readOnlyHint": read_only, "destructiveHint": !read_only, "openWorldHint": false },
        })
    }

    /// Answers a call of it.
    pub(crate) fn call(self, ingress: &Ingress, caller: &Caller, request: &Request, era: Era) -> Reply {
        let (value, failed) = match self {
            Builtin::MyCalls => (my_calls(ingress, caller), false),
            Builtin::CancelMyCall => cancel(ingress, caller, request),
        };
        let mut result = json!({
            "content": [{ "type": "text", "text": value.to_string() }],
            "structuredContent": value,
        });
        if failed {
            result["isError"] = json!(true);
        }
        if era == Era::Modern {
            result["resultType"] = json!("complete");
        }
        answer::rpc_result(&request.id_bytes(), result.to_string().as_bytes())
    }
}

/// What stands in the list of tools.
pub(crate) fn listed(ingress: &Ingress) -> Vec<Bytes> {
    if !ingress.dispatcher.config.load().global.builtin_tools {
        return Vec::new();
    }
    Builtin::ALL.iter().map(|tool| tool.definition().to_string().into()).collect()
}

fn my_calls(ingress: &Ingress, caller: &Caller) -> Value {
    let now = Instant::now();
    let mut mine = ingress.dispatcher.live_calls();
    mine.retain(|call| call.caller.id == caller.id);
    mine.sort_by_key(|call| call.id);
    let shown = mine.iter().take(MOST).map(|call| {
        let call = snapshot::live(call, now);
        json!({
            "id": call.id, "upstream": call.upstream, "tool": call.tool, "method": call.method, "lane": call.lane,
            "state": call.state, "age_ms": call.age_ms, "queued_ms": call.queued_ms, "running_ms": call.running_ms,
        })
    });
    json!({ "calls": shown.collect::<Vec<_>>(), "total": mine.len() })
}

fn cancel(ingress: &Ingress, caller: &Caller, request: &Request) -> (Value, bool) {
    let params = request.params_members();
    let arguments = params.get("arguments").and_then(|text| members(text).ok());
    let Some(id) = arguments.as_ref().and_then(|arguments| arguments.get("id")).and_then(unquote) else {
        return (json!({ "answer": "bad_arguments", "message": "say which call: {\"id\": \"k3f9q-1f9\"}" }), true);
    };
    // What is waited for is answered: whoever made that call may be another client of this caller (rule R4).
    let answer = id.parse::<CallRef>().ok().map_or(CancelAnswer::UnknownId { other_run: false }, |reference| {
        ingress.dispatcher.cancel(reference, CancelledBy::Operator, Some(caller.id))
    });
    match answer {
        CancelAnswer::CancelledQueued => (json!({ "id": id, "answer": "cancelled_queued" }), false),
        CancelAnswer::CancelledRunning => (json!({ "id": id, "answer": "cancelled_running" }), false),
        CancelAnswer::AlreadyFinished(outcome) => {
            (json!({ "id": id, "answer": "already_finished", "outcome": outcome.name() }), false)
        }
        CancelAnswer::UnknownId { .. } => {
            (json!({ "id": id, "answer": "unknown_id", "message": "no call of yours has this id" }), true)
        }
    }
}
