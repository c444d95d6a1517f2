//! A worker: one task with one connection that runs calls, one after the other.

use super::Inner;
use super::answer::{Rejected, never_executed};
use super::client::Client;
use super::endpoint::{shared_value, text_value};
use super::exchange::{Outgoing, Tail, Verdict};
use super::link::Session;
use super::pool::{Next, Order, Seat};
use crate::call::State;
use crate::config::AfterCancel;
use crate::outcome::{Outcome, Scope};
use crate::protocol::error::{HEADER_MISMATCH, UNSUPPORTED_VERSION};
use crate::protocol::version::Era;
use crate::protocol::{method, splice};
use crate::upstream::ListKind;
use crate::upstream::connection::{How, LinkEvent, Run};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Up to this size an answer is spliced after its worker can be given the next call; a larger one before.
const SMALL: usize = 16 << 10;
/// The rest after a 429 that names none.
const FIRST_REST: Duration = Duration::from_secs(1);
/// The code that some servers put into the 404 of a dead session.
const SESSION_NOT_FOUND: i64 = -32001;

/// How a run ends.
enum End {
    Answer {
        message: Bytes,
        era: Era,
        tail: Option<Tail>,
    },
    Lost {
        sent: bool,
        note: String,
    },
    /// The upstream asked for a rest.
    Busy {
        sent: bool,
        note: String,
        rest: Option<Duration>,
    },
    /// Nothing was sent, and there is no link: the call waits in the queue.
    HandBack,
    /// The slot is kept without an exchange.
    Hold,
}

/// What a worker keeps between two runs.
#[derive(Default)]
enum Kept {
    #[default]
    Nothing,
    Ready(Client),
    /// The stream of the last answer has not ended yet.
    Ending(Tail),
}

impl Kept {
    /// Watches an idle connection: one that the server closes is dropped at once, a stream that ends leaves
    /// its connection usable.
    fn poll(&mut self, context: &mut Context<'_>) {
        *self = match std::mem::take(self) {
            Kept::Nothing => return,
            Kept::Ready(mut client) => match client.poll_gone(context) {
                Poll::Ready(()) => Kept::Nothing,
                Poll::Pending => Kept::Ready(client),
            },
            Kept::Ending(tail) => match tail.poll_end(context) {
                Err(open) => Kept::Ending(open),
                Ok(None) => Kept::Nothing,
                // Polled anew, so that its close wakes us.
                Ok(Some(client)) => {
                    *self = Kept::Ready(client);
                    return self.poll(context);
                }
            },
        };
    }
}

/// Works until it is told to retire.
pub(super) async fn work(seat: Seat) {
    let mut kept = Kept::Nothing;
    loop {
        let next = poll_fn(|context| {
            kept.poll(context);
            seat.cell.poll_next(context)
        })
        .await;
        let run = match next {
            Next::Run(run) => run,
            Next::Retire => return,
        };
        let (mut client, tail) = match std::mem::take(&mut kept) {
            Kept::Ready(client) => (Some(client), None),
            Kept::Ending(tail) => (None, Some(tail)),
            Kept::Nothing => (None, None),
        };
        let mut end = serve(&seat, &mut client, tail, &run).await;
        if let Some(client) = client {
            kept = Kept::Ready(client);
        } else if let End::Answer { tail, .. } = &mut end
            && let Some(tail) = tail.take()
        {
            kept = Kept::Ending(tail);
        }
        if !finish(&seat, run, end) {
            return;
        }
    }
}

/// Ends a run and makes the worker free. False if the worker shall retire.
fn finish(seat: &Seat, run: Run, end: End) -> bool {
    let id = run.id;
    match end {
        // The worker is free before the slot is, so that the actor, woken by the slot, finds it.
        End::Answer { message, era, .. } if message.len() <= SMALL => {
            let keep = seat.finish(id, None);
            seat.http.answered(run, &message, era);
            keep
        }
        End::Answer { message, era, .. } => {
            seat.http.answered(run, &message, era);
            seat.finish(id, None)
        }
        End::Lost { sent, note } => {
            let keep = seat.finish(id, None);
            run.lost(sent, &note);
            keep
        }
        End::Busy { sent, note, rest } => {
            let keep = seat.finish(id, None);
            let mut refusal = run.call.refusal(Outcome::Lost { sent }, Scope::Upstream);
            refusal.retry_after_ms = rest.map(|rest| rest.as_millis() as u64);
            refusal.note = Some(note.into());
            run.call.refuse(refusal, Instant::now());
            run.release(How::Busy);
            keep
        }
        End::HandBack => {
            let keep = seat.finish(id, None);
            run.hand_back();
            keep
        }
        End::Hold => {
            let until = seat.http.lingers_until(&run.call);
            seat.finish(id, Some((run, until)))
        }
    }
}

/// Runs one call to its end, or until it is told to stop.
async fn serve(seat: &Seat, client: &mut Option<Client>, tail: Option<Tail>, run: &Run) -> End {
    let begun = AtomicBool::new(false);
    // The session of the exchange under way, for a cancel on the legacy era.
    let using = parking_lot::Mutex::new(None::<Arc<Session>>);
    // When an exchange that was told to stop is given up. Made only then: most calls are never stopped.
    let mut patience: Option<Pin<Box<Sleep>>> = None;
    let mut told = false;
    let stopped = {
        let mut work = pin!(attempts(&seat.http, client, tail, run, &begun, &using));
        poll_fn(|context| {
            match seat.cell.poll_order(context) {
                None => {}
                Some(Order::Stop(why)) => {
                    let legacy = using.lock().clone().filter(|session| session.era == Era::Legacy);
                    match legacy.filter(|_| begun.load(Relaxed)) {
                        // The answer, or its absence, is awaited; the server is asked to hurry.
                        Some(session) if !told => {
                            told = true;
                            let until = seat.http.lingers_until(&run.call);
                            patience = until.map(|until| Box::pin(tokio::time::sleep_until(until)));
                            seat.http.side.cancel(&seat.http, &session, run.call.id.seq(), why.into());
                        }
                        Some(_) => {}
                        None => return Poll::Ready(Err(Order::Stop(why))),
                    }
                }
                Some(order) => return Poll::Ready(Err(order)),
            }
            if patience.as_mut().is_some_and(|patience| patience.as_mut().poll(context).is_ready()) {
                return Poll::Ready(Err(Order::Recycle));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    };
    // From here on the exchange, and with it its connection, is gone.
    let sent = begun.load(Relaxed);
    match stopped {
        Ok(end) => end,
        Err(Order::Stop(_)) if sent && seat.http.after_cancel() == AfterCancel::Hold => End::Hold,
        Err(Order::Stop(_)) => End::Lost { sent, note: "stopped".into() },
        Err(Order::Recycle) => End::Lost { sent, note: "the exchange was given up".into() },
        Err(Order::Reset) => End::Lost { sent, note: "the connection was reset".into() },
    }
}

/// Sends the call, and once more where it was rejected by protocol before execution (rule R5).
async fn attempts(
    http: &Arc<Inner>,
    client: &mut Option<Client>,
    tail: Option<Tail>,
    run: &Run,
    begun: &AtomicBool,
    using: &parking_lot::Mutex<Option<Arc<Session>>>,
) -> End {
    let mut again = true;
    if let Some(tail) = tail {
        *client = http.settle(tail).await;
    }
    let Ok(mut session) = http.link.session().await else { return End::HandBack };
    loop {
        // Also before it is sent again: what has ended meanwhile is not.
        if run.call.ticket.state() == State::Finished {
            return End::Lost { sent: false, note: "ended before it was sent".into() };
        }
        *using.lock() = Some(session.clone());
        let name = name(run, &session);
        let left = run.left_ms(Instant::now());
        let headers = || {
            let mut headers = session.headers.request(&run.call.request.method, name.clone(), left);
            mirror(http, run, &session, &mut headers);
            headers
        };
        let mut out = Outgoing::post(session.path.clone(), &headers, body(run, &session, left));
        out.id = Some(run.call.id.seq());
        out.call = Some(&run.call);
        match http.exchange(client, &mut out, Some(&session), begun).await {
            Verdict::Answered { message, tail, .. } => {
                http.worked();
                return End::Answer { message, era: session.era, tail };
            }
            Verdict::Unsent { fault } => {
                begun.store(false, Relaxed);
                http.broke(&session, &fault, false);
                return End::HandBack;
            }
            Verdict::Failed { note } => return End::Lost { sent: true, note },
            Verdict::Accepted => return End::Lost { sent: true, note: "answered like a notification".into() },
            Verdict::Rejected { rejected, body } => {
                match judge(http, &session, &rejected, again) {
                    Judged::Pass => return End::Answer { message: body, era: session.era, tail: None },
                    Judged::End(end) => return end,
                    Judged::Resend => {
                        again = false;
                        begun.store(false, Relaxed);
                    }
                    Judged::Renew => {
                        again = false;
                        begun.store(false, Relaxed);
                        match http.renew(&session).await {
                            Ok(renewed) => session = renewed,
                            // What was rejected by protocol was not executed: it may wait for the link.
                            Err(_) => return End::HandBack,
                        }
                    }
                }
            }
        }
    }
}

/// What to do about an HTTP error.
enum Judged {
    /// The body is the upstream's own answer.
    Pass,
    End(End),
    /// Send it once more as it is.
    Resend,
    /// Send it once more after a new handshake.
    Renew,
}

fn judge(http: &Arc<Inner>, session: &Session, rejected: &Rejected, again: bool) -> Judged {
    let own = || {
        if rejected.ours {
            return Judged::Pass;
        }
        let sent = !never_executed(rejected.status);
        Judged::End(End::Lost { sent, note: rejected.fault.clone() })
    };
    match rejected.status {
        // One call's right is not the upstream's: a tool may ask for more than the session did. Whether we are
        // let in at all is the handshake's to say.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if !rejected.ours => {
            http.try_credential(session);
            let note = format!("the server refused this call, perhaps for its credential: {}", rejected.fault);
            Judged::End(End::Lost { sent: false, note })
        }
        StatusCode::NOT_FOUND
            if session.id.is_some() && (!rejected.ours || rejected.code == Some(SESSION_NOT_FOUND)) =>
        {
            if again {
                return Judged::Renew;
            }
            http.broke(session, &format!("a fresh session was answered {}", rejected.fault), true);
            own()
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            // A 503 that names no time may be of one moment; a 429 means that there were too many.
            let rest = (rejected.status == StatusCode::TOO_MANY_REQUESTS).then_some(FIRST_REST);
            if let Some(retry_in) = rejected.retry_after.or(rest) {
                http.shared.tell(LinkEvent::Busy { retry_in });
            }
            if rejected.ours {
                return Judged::Pass;
            }
            let sent = !never_executed(rejected.status);
            Judged::End(End::Busy { sent, note: rejected.fault.clone(), rest: rejected.retry_after })
        }
        // Only these are rejections by protocol (rule R5); a bare 400 may come from behind the tool, so its
        // call is not sent again, but the server is probed anew for those that follow.
        StatusCode::BAD_REQUEST if session.era == Era::Modern && again => match rejected.code {
            // The headers are made from the call itself, so the server's lists must have changed.
            Some(HEADER_MISMATCH) => {
                http.lists_changed();
                Judged::Resend
            }
            Some(UNSUPPORTED_VERSION) => {
                http.link.forget_era();
                Judged::Renew
            }
            None if http.may_reprobe() => {
                http.renew_soon(session);
                own()
            }
            _ => own(),
        },
        _ => own(),
    }
}

/// The request's body as the upstream shall see it.
fn body(run: &Run, session: &Session, left: Option<u64>) -> Bytes {
    let call = &run.call;
    let mut body = Vec::with_capacity(call.request.body.len() + 256);
    let outbound = call.outbound(call.id.seq(), left, session.era);
    splice::request(&mut body, &call.request, &outbound);
    body.into()
}

/// Repeats in headers what the tool's schema asks for, as far as the list is known.
fn mirror(http: &Inner, run: &Run, session: &Session, headers: &mut HeaderMap) {
    let call = &run.call;
    if session.era == Era::Legacy || &*call.request.method != method::TOOLS_CALL {
        return;
    }
    let Some(list) = http.shared.lists.known(ListKind::Tools) else { return };
    let Some(mirrors) = list.mirrors.get(&**call.target()) else { return };
    let params = call.request.params_members();
    let arguments = params.get("arguments").unwrap_or("{}");
    for mirror in mirrors {
        if let Some(value) = mirror.value(arguments) {
            headers.insert(mirror.header.clone(), text_value(&value));
        }
    }
}

/// The value of `Mcp-Name`, taken from the caller's bytes where they can serve.
fn name(run: &Run, session: &Session) -> Option<HeaderValue> {
    let call = &run.call;
    let span = call.request.target.filter(|_| session.era == Era::Modern)?;
    let raw = span.start as usize + 1..span.end as usize - 1;
    let as_written = !call.is_renamed() && call.request.body.get(raw.clone()) == Some(call.target().as_bytes());
    let shared = as_written.then(|| shared_value(&call.request.body, raw)).flatten();
    Some(shared.unwrap_or_else(|| text_value(call.target())))
}
