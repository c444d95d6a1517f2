//! One call from submission to its ending, as its caller's request waits for it.
//!
//! Whatever becomes of the request, the call ends by a rule: a client that goes away cancels it or leaves it
//! by its era ([`Abandoned`]), a cancel sent right behind it is seen before it has its turn
//! ([`super::pipeline`]), and if nobody ends it in time the request does so itself (rule R1).

use super::inflight::Owner;
use super::service::Socket;
use super::stream::CallStream;
use super::{Ingress, mcp};
use crate::call::{Call, Ending, Notices, State};
use crate::caller::{Caller, Lane};
use crate::config::LegacyDisconnect;
use crate::dispatcher::route::Place;
use crate::dispatcher::{Arrival, Wanted};
use crate::ledger::Stage;
use crate::outcome::{CancelledBy, ExpiredBy, Outcome, Phase, Reason, Scope, TimedOutBy};
use crate::protocol::envelope::Request;
use crate::protocol::method;
use crate::protocol::splice::ReplyForm;
use crate::upstream::{ListKind, Upstream};
use http::{HeaderMap, HeaderName};
use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
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
    Legacy { owner: Owner, headers: Cow<'a, HeaderMap>, path: Cow<'a, str> },
}

impl Client<'_> {
    fn into_owned(self) -> Client<'static> {
        match self {
            Client::Closes => Client::Closes,
            Client::Legacy { owner, headers, path } => {
                let (headers, path) = (Cow::Owned(headers.into_owned()), Cow::Owned(path.into_owned()));
                Client::Legacy { owner, headers, path }
            }
        }
    }
}

/// How the wait for a call went.
pub(crate) enum Waited {
    Ended(Arc<Call>, Arc<Ending>),
    /// Its server has something to say before the answer.
    Streams(CallStream),
}

/// Where a call goes, as its request says.
pub(crate) enum To {
    Upstream {
        upstream: Arc<Upstream>,
        /// As the upstream names it.
        target: Arc<str>,
    },
    /// A name on the aggregate endpoint, or a URI: whoever lists it.
    Name { kind: ListKind, name: String },
}

/// What a request wants to be called.
pub(crate) struct Intent {
    pub caller: Arc<Caller>,
    pub to: To,
    pub request: Request,
    pub lane: Option<Lane>,
    pub arrived: Instant,
    pub timeout: Option<Duration>,
    pub form: ReplyForm,
    pub notices: Option<Notices>,
}

/// Makes a call and waits for its ending. The call exists before its upstream is looked for, so that a cancel
/// or a deadline finds it while a list is waited for.
pub(crate) async fn run(ingress: &Arc<Ingress>, socket: &Arc<Socket>, intent: Intent, client: Client<'_>) -> Waited {
    let Intent { caller, to, request, lane, arrived, timeout, form, notices } = intent;
    let (dispatcher, home) = (&ingress.dispatcher, socket.home);
    let (name, place) = match to {
        To::Upstream { upstream, target } => (None, Some(Place::Found { upstream, name: target })),
        To::Name { kind, name } => {
            let place = ingress.routes.find_known(dispatcher, &caller, kind, &name);
            (Some((kind, name)), place)
        }
    };
    match place {
        Some(Place::Found { upstream, name: target }) => {
            let wanted = Wanted {
                caller,
                upstream: upstream.clone(),
                tool: (&*request.method == method::TOOLS_CALL).then(|| target.clone()),
                renamed: name.is_some_and(|(_, name)| *name != *target),
                target,
                request,
                lane,
                arrived,
                timeout,
                home,
                form,
                notices,
            };
            let call = dispatcher.submit(wanted);
            let limits = Net::of(&call, Some(&upstream));
            wait(ingress, socket, &call, client, limits, None).await
        }
        place => {
            let call = dispatcher.accept(Arrival { caller, request, arrived, timeout, home, form, notices });
            let quest = match (place, name) {
                (None, Some((kind, name))) => Some(Quest { kind, name, lane }),
                (place, _) => {
                    turn_away(&call, place);
                    None
                }
            };
            wait(ingress, socket, &call, client, Net::of(&call, None), quest.as_ref()).await
        }
    }
}

/// What a call's upstream is looked for by.
#[derive(Clone)]
struct Quest {
    kind: ListKind,
    name: String,
    lane: Option<Lane>,
}

/// The search for a call's upstream. When it is over, the call is on its way there or has ended.
type Search<'a> = Pin<Box<dyn Future<Output = Option<Arc<Upstream>>> + Send + 'a>>;

async fn search(ingress: &Ingress, call: &Arc<Call>, quest: &Quest) -> Option<Arc<Upstream>> {
    match ingress.routes.find(&ingress.dispatcher, &call.caller, quest.kind, &quest.name).await {
        Place::Found { upstream, name: target } => {
            ingress.dispatcher.route(call, &upstream, target, quest.lane);
            Some(upstream)
        }
        place => {
            turn_away(call, Some(place));
            None
        }
    }
}

/// Ends a call whose name leads nowhere.
fn turn_away(call: &Call, place: Option<Place>) {
    let mut refusal = call.refusal(Outcome::Refused(Reason::NotAllowed), Scope::Caller);
    if let Some(Place::Clash(message)) = place {
        refusal.note = Some(message.into());
    }
    call.refuse(refusal, Instant::now());
}

async fn wait(
    ingress: &Arc<Ingress>,
    socket: &Arc<Socket>,
    call: &Arc<Call>,
    client: Client<'_>,
    mut limits: Net,
    quest: Option<&Quest>,
) -> Waited {
    let mut abandoned = Abandoned { ingress, call, client: Some(client), quest };
    let mut search: Option<Search<'_>> = quest.map(|quest| -> Search<'_> { Box::pin(search(ingress, call, quest)) });
    let client = abandoned.client.as_ref();
    if let Some(Client::Legacy { owner, .. }) = client {
        ingress.inflight.add(*owner, call);
    }
    let mut ended = pin!(call.ticket.ended());
    let mut net = pin!(tokio::time::sleep_until(limits.wakes(call)));
    let ending = poll_fn(|context| {
        if let Poll::Ready(ending) = ended.as_mut().poll(context) {
            return Poll::Ready(Some(ending));
        }
        if let Some(notices) = &call.notices
            && notices.poll_any(context).is_ready()
        {
            // What was said right before the end is worth no stream of its own, but it was said: it is passed on.
            return Poll::Ready(None);
        }
        if let Some(Client::Legacy { owner, headers, path }) = client {
            socket.pipe.look(context, |bytes| mcp::early_cancels(ingress, *owner, headers, path, bytes));
            if let Poll::Ready(ending) = ended.as_mut().poll(context) {
                return Poll::Ready(Some(ending));
            }
        }
        if let Some(Poll::Ready(upstream)) = search.as_mut().map(|search| search.as_mut().poll(context)) {
            search = None;
            limits = Net::of(call, upstream.as_ref());
            net.as_mut().reset(limits.wakes(call));
            if let Poll::Ready(ending) = ended.as_mut().poll(context) {
                return Poll::Ready(Some(ending));
            }
        }
        while net.as_mut().poll(context).is_ready() {
            if limits.is_over(call) {
                limits.claim(ingress, call);
                return ended.as_mut().poll(context).map(Some);
            }
            net.as_mut().reset(limits.wakes(call));
        }
        Poll::Pending
    })
    .await;
    let client = abandoned.client.take();
    match (ending, client) {
        (Some(ending), client) => {
            if let Some(client) = client {
                over(ingress, call, &client);
            }
            Waited::Ended(call.clone(), ending)
        }
        (None, client) => {
            let client = client.map_or(Client::Closes, Client::into_owned);
            Waited::Streams(CallStream::new(ingress.clone(), socket.clone(), call.clone(), client, limits))
        }
    }
}

/// A time that no call sees.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}

/// The limits within which somebody else must have ended the call.
pub(crate) struct Net {
    deadline: Option<Instant>,
    queued: Option<Instant>,
    call_timeout: Option<Duration>,
}

impl Net {
    /// The limits of a call; before its upstream is known they are its caller's alone.
    fn of(call: &Call, upstream: Option<&Arc<Upstream>>) -> Net {
        let Some(upstream) = upstream else {
            return Net { deadline: call.deadline, queued: None, call_timeout: None };
        };
        let settings = upstream.shared().config.load();
        let own = call.tool().and_then(|tool| settings.tools.get(&**tool)).and_then(|tool| tool.call_timeout);
        Net {
            deadline: call.deadline,
            queued: settings.limits.queue_timeout.map(|timeout| call.arrived + timeout + EXTENSION),
            call_timeout: own.or(settings.limits.call_timeout),
        }
    }

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

    /// When the limits are to be looked at next: the call may have moved on by then, and with it the limit that holds.
    pub(crate) fn wakes(&self, call: &Call) -> Instant {
        self.latest(call).unwrap_or_else(far)
    }

    /// Whether somebody ought to have ended the call by now.
    pub(crate) fn is_over(&self, call: &Call) -> bool {
        self.latest(call).is_some_and(|latest| latest <= Instant::now())
    }

    /// Ends a call that nobody has ended.
    pub(crate) fn claim(&self, ingress: &Ingress, call: &Arc<Call>) {
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
            tracing::warn!(call = %call.id, upstream = %call.upstream(), "a call was ended by its own request: its upstream's actor is late");
        }
    }
}

/// Acts when the request is dropped before its call has ended: its client has closed the connection.
struct Abandoned<'a> {
    ingress: &'a Arc<Ingress>,
    call: &'a Arc<Call>,
    /// None once somebody else answers for the call.
    client: Option<Client<'a>>,
    /// What its upstream is looked for by, if that was not known at once.
    quest: Option<&'a Quest>,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(client) = &self.client {
            leave(self.ingress, self.call, client, self.quest);
        }
    }
}

/// The call has ended, and its client hears of it.
pub(crate) fn over(ingress: &Ingress, call: &Arc<Call>, client: &Client<'_>) {
    if let Client::Legacy { owner, .. } = client {
        ingress.inflight.remove(*owner, call);
    }
}

/// The client has closed the connection before its call has ended.
pub(crate) fn abandon(ingress: &Arc<Ingress>, call: &Arc<Call>, client: &Client<'_>) {
    leave(ingress, call, client, None);
}

fn leave(ingress: &Arc<Ingress>, call: &Arc<Call>, client: &Client<'_>, quest: Option<&Quest>) {
    over(ingress, call, client);
    match client {
        Client::Closes => {
            ingress.dispatcher.cancel_call(call, CancelledBy::Caller);
        }
        Client::Legacy { .. } => match ingress.dispatcher.config.load().global.legacy_disconnect {
            LegacyDisconnect::Keep => {
                if let Some(quest) = quest.filter(|_| call.upstream().is_empty()) {
                    go_on(ingress, call, quest);
                }
            }
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

/// Looks on for the upstream of a call that is kept: with its request the search has gone. There are no more of
/// these than calls, and each lasts no longer than a list is waited for.
fn go_on(ingress: &Arc<Ingress>, call: &Arc<Call>, quest: &Quest) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        ingress.dispatcher.cancel_call(call, CancelledBy::Disconnect);
        return;
    };
    let (ingress, call, quest) = (ingress.clone(), call.clone(), quest.clone());
    runtime.spawn(async move { search(&ingress, &call, &quest).await });
}
