//! The limits of a caller's own, asked before a call goes on to the gates and to its upstream.

use super::gating;
use crate::call::Call;
use crate::config::show_duration;
use crate::limits::cursors::{Bound, CursorHash, CursorRule, Cursors, Full, ToolName};
use crate::limits::shadow::{Enforce, Limit};
use crate::outcome::{Outcome, Reason, Refusal, Scope};
use crate::protocol::json::members;
use std::sync::Arc;
use tokio::time::Instant;

/// Takes what the call takes of its caller's limits, or says which of them it does not fit: the rate first, then
/// the quota. `shadowed` is asked of each that it does not fit, with the time to wait; if it says so, the call goes on.
pub(super) fn own_limits(
    call: &Call,
    shadowed: impl Fn(Enforce, (Limit, Option<u64>)) -> bool,
    now: Instant,
) -> Result<(), Box<Refusal>> {
    let caller = &call.caller;
    let enforce = caller.config.load().enforce;
    if let Err((rate, wait_ms)) = caller.take_rate(now)
        && !shadowed(enforce, (Limit::Rate, Some(wait_ms)))
    {
        return Err(refusal(call, Reason::CallerRate, Scope::Caller, Some(wait_ms), Some(rate.to_string())));
    }
    if let Err(debt) = caller.check_quota(now) {
        let wait_ms = debt.wait.div_ceil(1_000_000);
        if !shadowed(enforce, (Limit::Quota, Some(wait_ms))) {
            return Err(refusal(call, Reason::CallerQuota, Scope::Caller, Some(wait_ms), Some(debt.to_string())));
        }
    }
    Ok(())
}

/// Takes the place or the lease that a call of a tool with cursors needs.
pub(super) fn cursor(
    call: &Call,
    cursors: &Arc<Cursors>,
    rule: Option<&CursorRule>,
    now: Instant,
) -> Result<(), Box<Refusal>> {
    let (Some(rule), Some(tool)) = (rule, call.tool()) else { return Ok(()) };
    let name = ToolName { upstream: call.upstream().clone(), tool: tool.clone() };
    let arguments = gating::arguments(call);
    let given = members(arguments).ok().and_then(|known| known.get(&rule.argument)).and_then(CursorHash::of);
    let caller = call.caller.id;
    let held = match given {
        Some(cursor) => cursors
            .follow(name, caller, rule, cursor, now)
            .ok_or_else(|| refusal(call, Reason::CallerCursors, Scope::Cursor, None, None))?,
        None => {
            let own = call.caller.config.load().cursors;
            cursors.open(name, caller, rule, own, now).map_err(|full| full_of(call, &full, rule, now))?
        }
    };
    call.takes_cursor(held);
    Ok(())
}

fn full_of(call: &Call, full: &Full, rule: &CursorRule, now: Instant) -> Box<Refusal> {
    let Full { by, open, limit, free_at } = full;
    let (scope, whose) = match by {
        Bound::CallerOfTool => (Scope::Caller, "of this tool"),
        Bound::Caller => (Scope::Caller, "of all tools"),
        Bound::Tool => (Scope::Tool, "of this tool by all callers"),
    };
    let wait_ms = free_at.map(|at| (at.saturating_duration_since(now).as_micros() as u64).div_ceil(1000).max(1));
    let ttl = show_duration(Some(rule.ttl));
    let told = format!("{open} of {limit} are open {whose}; one is free after its last page, or {ttl} after its use");
    refusal(call, Reason::CallerCursors, scope, wait_ms, Some(told))
}

fn refusal(call: &Call, reason: Reason, scope: Scope, wait_ms: Option<u64>, limit: Option<String>) -> Box<Refusal> {
    let mut refusal = call.refusal(Outcome::Refused(reason), scope);
    refusal.retry_after_ms = wait_ms;
    refusal.limit = limit.map(Into::into);
    Box::new(refusal)
}
