//! One call from submission to its ending, as its caller's request waits for it.
//!
//! Whatever becomes of the request, the call ends by a rule: a client that goes away cancels it or leaves it
//! by its era ([`Abandoned`]), a cancel sent right behind it is seen before it has its turn
//! ([`super::pipeline`]), and if nobody ends it in time the request does so itself (rule R1).

use super::inflight::Owner;
use super::service::Socket;
use super::{Ingress, mcp};
use crate::call::{Call, Ending, State};
use crate::config::LegacyDisconnect;
use crate::dispatcher::Wanted;
use crate::ledger::Stage;
use crate::outcome::{CancelledBy, ExpiredBy, Outcome, Phase, Scope, TimedOutBy};
use http::{HeaderMap, HeaderName};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// How late an ending may come before the request claims it: two ticks of the queues' wheels.
const TICK: Duration = Duration::from_millis(32);
/// The same for limits of the upstream's own, which an operator may move while the call runs.
const SLACK: Duration = Duration::from_secs(1);
/// How far an operator may move the expiry of a queued call (rule R25).
const EXTENSION: Duration = Duration::from_secs(3600);

/// With `cancel` as its value: closing the connection is a cancel for a legacy client too. Sent by fronts that give each
/// request a connection of its own and close it when their client cancels.
pub(crate) static CLOSING_CANCELS: HeaderName = HeaderName::from_static("forebay-disconnect");

/// Whose call it is, and what that means when its client goes away.
pub(crate) enum Client<'a> {
    /// Closing the connection is the client's cancel.
    Closes,
    /// A legacy client: it cancels by a notice, which may stand on the same socket already.
    Legacy { owner: Owner, headers: &'a HeaderMap, path: &'a str },
}

/// Makes a call and waits for its ending.
pub(crate) async fn run(
    ingress: &Ingress,
    socket: &Socket,
    wanted: Wanted,
    client: Client<'_>,
) -> (Arc<Call>, Arc<Ending>) {
    let settings = wanted.upstream.shared().config.load_full();
    let call = ingress.dispatcher.submit(wanted);
    let own_timeout =
        call.tool.as_ref().and_then(|tool| settings.tools.get(&**tool)).and_then(|tool| tool.call_timeout);
    let limits = Net {
        deadline: call.deadline,
        queued: settings.limits.queue_timeout.map(|timeout| call.arrived + timeout + EXTENSION),
        call_timeout: own_timeout.or(settings.limits.call_timeout),
    };
    drop(settings);
    let ending = wait(ingress, socket, &call, &client, &limits).await;
    (call, ending)
}

async fn wait(ingress: &Ingress, socket: &Socket, call: &Arc<Call>, client: &Client<'_>, limits: &Net) -> Arc<Ending> {
    let mut abandoned = Abandoned { ingress, call, client, waiting: true };
    if let Client::Legacy { owner, .. } = client {
        ingress.inflight.add(*owner, call);
    }
    let mut ended = pin!(call.ticket.ended());
    let mut net = pin!(tokio::time::sleep_until(limits.latest(call).unwrap_or_else(far)));
    let ending = poll_fn(|context| {
        if let Poll::Ready(ending) = ended.as_mut().poll(context) {
            return Poll::Ready(ending);
        }
        if let Client::Legacy { owner, headers, path } = client {
            socket.pipe.look(context, |bytes| mcp::early_cancels(ingress, *owner, headers, path, bytes));
            if let Poll::Ready(ending) = ended.as_mut().poll(context) {
                return Poll::Ready(ending);
            }
        }
        while net.as_mut().poll(context).is_ready() {
            match limits.latest(call) {
                // The call has moved on since, and with it the limit that holds.
                Some(latest) if latest > Instant::now() => net.as_mut().reset(latest),
                None => net.as_mut().reset(far()),
                Some(_) => {
                    limits.claim(ingress, call);
                    return ended.as_mut().poll(context);
                }
            }
        }
        Poll::Pending
    })
    .await;
    abandoned.waiting = false;
    ending
}

/// A time that no call sees.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}

/// The limits within which somebody else must have ended the call.
struct Net {
    deadline: Option<Instant>,
    queued: Option<Instant>,
    call_timeout: Option<Duration>,
}

impl Net {
    /// The latest end of the call as it stands.
    fn latest(&self, call: &Call) -> Option<Instant> {
        let own = match call.ticket.state() {
            State::Submitted | State::Queued => self.queued,
            State::Running | State::Finished => {
                self.call_timeout.zip(call.ticket.started()).map(|(timeout, started)| started + timeout)
            }
        };
        let own = own.map(|latest| latest + SLACK);
        let deadline = self.deadline.map(|deadline| deadline + TICK);
        own.into_iter().chain(deadline).min()
    }

    /// Ends a call that nobody has ended.
    fn claim(&self, ingress: &Ingress, call: &Arc<Call>) {
        let now = Instant::now();
        let by_caller = self.deadline.is_some_and(|deadline| deadline <= now);
        let outcome = |stage: Stage| {
            Some(match stage {
                Stage::Submitted | Stage::Queued if by_caller => Outcome::Expired(ExpiredBy::Deadline),
                Stage::Submitted | Stage::Queued => Outcome::Expired(ExpiredBy::QueueTimeout),
                Stage::Running if by_caller => Outcome::TimedOut(TimedOutBy::Caller),
                Stage::Running => Outcome::TimedOut(TimedOutBy::CallTimeout),
            })
        };
        if call.end_by_stage(outcome, Scope::Upstream, now) {
            ingress.dispatcher.withdraw(call);
            tracing::warn!(call = %call.id, upstream = %call.upstream, "a call was ended by its own request: its upstream's actor is late");
        }
    }
}

/// Acts when the request is dropped before its call has ended: its client has closed the connection.
struct Abandoned<'a> {
    ingress: &'a Ingress,
    call: &'a Arc<Call>,
    client: &'a Client<'a>,
    waiting: bool,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let Abandoned { ingress, call, client, waiting } = self;
        if let Client::Legacy { owner, .. } = client {
            ingress.inflight.remove(*owner, call);
        }
        if !*waiting {
            return;
        }
        match client {
            Client::Closes => {
                ingress.dispatcher.cancel_call(call, CancelledBy::Caller);
            }
            Client::Legacy { .. } => match ingress.dispatcher.config.load().global.legacy_disconnect {
                LegacyDisconnect::Keep => {}
                LegacyDisconnect::Cancel => {
                    ingress.dispatcher.cancel_call(call, CancelledBy::Disconnect);
                }
                // No resumption is offered, so nobody could get the answer of what has not begun (rule R28).
                LegacyDisconnect::DropQueued => {
                    let outcome = |stage| match stage {
                        Stage::Submitted | Stage::Queued => {
                            Some(Outcome::Cancelled { by: CancelledBy::Disconnect, phase: Phase::Queued })
                        }
                        Stage::Running => None,
                    };
                    if call.end_by_stage(outcome, Scope::Upstream, Instant::now()) {
                        ingress.dispatcher.withdraw(call);
                    }
                }
            },
        }
    }
}
