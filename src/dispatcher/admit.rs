//! The limits of a caller's own, asked before a call is offered to its upstream.

use crate::call::Call;
use crate::outcome::{Outcome, Reason, Refusal, Scope};
use tokio::time::Instant;

/// Takes what the call takes of its caller's limits, or says which of them it does not fit: the rate first, then
/// the quota.
pub(super) fn own_limits(call: &Call, now: Instant) -> Result<(), Box<Refusal>> {
    let caller = &call.caller;
    let refuse = |reason, wait_ms, limit: String| {
        let mut refusal = call.refusal(Outcome::Refused(reason), Scope::Caller);
        refusal.retry_after_ms = Some(wait_ms);
        refusal.limit = Some(limit.into());
        Err(Box::new(refusal))
    };
    if let Err((rate, wait_ms)) = caller.take_rate(now) {
        return refuse(Reason::CallerRate, wait_ms, rate.to_string());
    }
    if let Err(debt) = caller.check_quota(now) {
        return refuse(Reason::CallerQuota, debt.wait.div_ceil(1_000_000), debt.to_string());
    }
    Ok(())
}
