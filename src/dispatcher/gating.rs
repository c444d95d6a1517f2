//! A call on its way through the gates of its tool (rules R35, R36), before its upstream has it.
//!
//! What an expression says of a few figures is asked at once. What takes longer (a list to go through, a price to be
//! asked) has a task of its own: meanwhile the call is queued for its caller and holds nothing; its end ends the task,
//! and with it the price that is being asked.

use super::Dispatcher;
use crate::call::{Accepted, Answer, Call};
use crate::config::ToolConfig;
use crate::limits::gate::{Gate, OnGateError, Price, Question, Test, When};
use crate::limits::shadow::Limit;
use crate::outcome::{CancelledBy, ExpiredBy, Outcome, Reason, Refusal, Scope};
use crate::protocol::envelope::{self, Message};
use crate::protocol::json::quote_into;
use crate::protocol::method;
use crate::protocol::splice::ReplyForm;
use crate::upstream::Upstream;
use std::sync::Arc;
use tokio::time::Instant;

/// What a gate says no with.
type Said = Result<(), Box<Refusal>>;

/// Offers a call to its upstream, behind its gates.
pub(super) fn pass(dispatcher: &Arc<Dispatcher>, call: &Arc<Call>, upstream: &Arc<Upstream>) {
    let settings = upstream.shared().config.load();
    let tool = call.tool().and_then(|tool| settings.tools.get(&**tool));
    // A price is asked without gates, so that no gate can ask for itself.
    let Some(tool) = tool.filter(|tool| !tool.gates.is_empty() && call.parent.is_none()) else {
        return upstream.offer(call.clone());
    };
    let question = match ask(call) {
        Ok(question) => question,
        Err(fault) if tool.gate_error == OnGateError::Allow => {
            tracing::warn!(call = %call.id, fault, "the gates of a tool cannot be asked; the call goes on");
            return upstream.offer(call.clone());
        }
        Err(fault) => {
            let note = format!("{fault}, so its gates cannot be asked");
            return end(call, gated(call, Scope::Tool, None, note));
        }
    };
    let mut rest = tool.gates.iter().enumerate();
    for (at, gate) in rest.by_ref() {
        match &gate.test {
            Test::When(when) if !when.is_heavy() => {
                let said = judge(call, gate, when, when.holds(&question), tool.gate_error);
                if let Err(refusal) = shadowed(dispatcher, call, gate, said) {
                    return end(call, *refusal);
                }
            }
            Test::When(_) | Test::Price(_) => {
                let way = Way {
                    dispatcher: dispatcher.clone(),
                    call: call.clone(),
                    upstream: upstream.clone(),
                    tool: tool.clone(),
                };
                if call.ticket.queue(Instant::now()) {
                    tokio::spawn(way.go(at, question, settings.limits.queue_timeout));
                }
                return;
            }
        }
    }
    upstream.offer(call.clone());
}

/// What the task of a call has to hand.
struct Way {
    dispatcher: Arc<Dispatcher>,
    call: Arc<Call>,
    upstream: Arc<Upstream>,
    tool: ToolConfig,
}

impl Way {
    async fn go(self, from: usize, question: Question, queue_timeout: Option<std::time::Duration>) {
        let call = &self.call;
        let expires = queue_timeout.and_then(|wait| call.arrived.checked_add(wait));
        let until = [expires, call.deadline].into_iter().flatten().min();
        let late = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // Somebody else has ended it; what is being asked ends with this task.
            _ = call.ticket.stopped() => {}
            said = self.ask_all(from, question, until) => match said {
                Ok(()) => self.upstream.offer(call.clone()),
                Err(refusal) => end(call, *refusal),
            },
            () = late => {
                let own = call.deadline.is_some_and(|deadline| Some(deadline) == until);
                let by = if own { ExpiredBy::Deadline } else { ExpiredBy::QueueTimeout };
                call.end(Outcome::Expired(by), Scope::Upstream, Instant::now());
            }
        }
    }

    async fn ask_all(&self, from: usize, question: Question, until: Option<Instant>) -> Said {
        for gate in &self.tool.gates[from..] {
            match &gate.test {
                Test::When(when) => {
                    let holds = if when.is_heavy() {
                        let (when, question) = (when.clone(), question.clone());
                        let held = tokio::task::spawn_blocking(move || when.holds(&question)).await;
                        held.unwrap_or_else(|_| Err("its evaluation failed".into()))
                    } else {
                        when.holds(&question)
                    };
                    let said = judge(&self.call, gate, when, holds, self.tool.gate_error);
                    shadowed(&self.dispatcher, &self.call, gate, said)?;
                }
                Test::Price(price) => {
                    let said = self.ask_price(gate, price, until).await;
                    shadowed(&self.dispatcher, &self.call, gate, said)?;
                }
            }
        }
        Ok(())
    }

    /// Asks the price as a call of its own, with the caller's lane and deadline.
    async fn ask_price(&self, gate: &Gate, price: &Price, until: Option<Instant>) -> Said {
        let told = match self.price_call(price, until) {
            Some(asked) => {
                let asked = Asked { way: self, call: asked };
                let ending = asked.call.ticket.ended().await;
                match &ending.answer {
                    Answer::Upstream(result) if ending.outcome == (Outcome::Completed { is_error: false }) => {
                        let number = std::str::from_utf8(result).ok().and_then(|result| price.number(result));
                        number.ok_or_else(|| (format!("{} gave no number", price.tool), None))
                    }
                    Answer::Upstream(_) => Err((format!("{} answered with an error", price.tool), None)),
                    Answer::Own(refusal) => {
                        let wait = refusal.retry_after_ms;
                        Err((format!("{} could not be asked: {}", price.tool, refusal.reason()), wait))
                    }
                }
            }
            None => Err((format!("{} could not be asked: the gateway is at its bound on memory", price.tool), None)),
        };
        match told {
            Ok(number) if number <= price.max => Ok(()),
            Ok(number) => {
                let limit = format!("{} says {number}, and {} is the most", price.tool, price.max);
                Err(Box::new(gated(&self.call, Scope::Price, Some(limit), gate.say.to_string())))
            }
            Err((fault, _)) if self.tool.gate_error == OnGateError::Allow => {
                tracing::warn!(call = %self.call.id, fault, "a price is not known; the call goes on");
                Ok(())
            }
            Err((fault, wait)) => {
                let mut refusal = gated(&self.call, Scope::Price, None, format!("its price is not known: {fault}"));
                refusal.retry_after_ms = wait;
                Err(Box::new(refusal))
            }
        }
    }

    /// None at the bound on memory.
    fn price_call(&self, price: &Price, until: Option<Instant>) -> Option<Arc<Call>> {
        let parent = &self.call;
        let mut body = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"tools/call\",\"params\":{\"name\":".to_vec();
        quote_into(&price.tool, &mut body);
        body.extend_from_slice(b",\"arguments\":");
        body.extend_from_slice(arguments(parent).as_bytes());
        body.extend_from_slice(b"}}");
        let Ok(Message::Request(request)) = envelope::read(body.into()) else { return None };
        let charge = self.dispatcher.charge(request.body.len() as u64)?;
        let weight = self.upstream.shared().config.load().tools.get(&*price.tool).and_then(|tool| tool.weight);
        let asked = Call::accept(Accepted {
            id: self.dispatcher.mint.mint(),
            caller: parent.caller.clone(),
            upstream: parent.upstream().clone(),
            request,
            target: price.tool.clone(),
            renamed: false,
            tool: Some(price.tool.clone()),
            weight: weight.unwrap_or(1),
            lane: parent.lane(),
            arrived: Instant::now(),
            deadline: until,
            home: parent.home,
            form: ReplyForm::Result,
            notices: None,
            ledger: self.upstream.shared().ledger.clone(),
            on_finish: self.dispatcher.books.clone(),
            charge: Some(charge),
            parent: Some(parent.id),
        });
        self.dispatcher.books.live.insert(&asked);
        self.upstream.offer(asked.clone());
        Some(asked)
    }
}

/// A price that is being asked; dropped before its answer, it is cancelled as its parent was.
struct Asked<'a> {
    way: &'a Way,
    call: Arc<Call>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let by = match self.way.call.ticket.ending().map(|ending| ending.outcome) {
            Some(Outcome::Cancelled { by, .. }) => by,
            _ => CancelledBy::Caller,
        };
        // Nothing happens if it has ended.
        self.way.dispatcher.cancel_call(&self.call, by);
    }
}

fn ask(call: &Call) -> Result<Question, String> {
    Question::new(arguments(call), &call.caller.name, call.caller.identity)
}

/// The raw arguments of a call.
pub(super) fn arguments(call: &Call) -> &str {
    debug_assert_eq!(&*call.request.method, method::TOOLS_CALL);
    call.request.params_members().get("arguments").filter(|raw| raw.starts_with('{')).unwrap_or("{}")
}

fn judge(call: &Call, gate: &Gate, when: &When, holds: Result<bool, String>, on_error: OnGateError) -> Said {
    match holds {
        Ok(false) => Ok(()),
        Ok(true) => Err(Box::new(gated(call, Scope::Tool, None, gate.say.to_string()))),
        Err(fault) if on_error == OnGateError::Allow => {
            tracing::warn!(call = %call.id, gate = when.source(), fault, "a gate cannot be evaluated; the call goes on");
            Ok(())
        }
        Err(fault) => {
            let note = format!("{}; the gate `{}` could not be evaluated: {fault}", gate.say, when.source());
            Err(Box::new(gated(call, Scope::Tool, None, note)))
        }
    }
}

/// Lets a call go on that a gate in shadow mode refuses, and counts it.
fn shadowed(dispatcher: &Dispatcher, call: &Call, gate: &Gate, said: Said) -> Said {
    match said {
        Err(_) if dispatcher.counts(call, gate.enforce, (Limit::Gate, None), Instant::now()) => Ok(()),
        said => said,
    }
}

fn gated(call: &Call, scope: Scope, limit: Option<String>, note: String) -> Refusal {
    let mut refusal = call.refusal(Outcome::Refused(Reason::Gated), scope);
    refusal.limit = limit.map(Into::into);
    refusal.note = Some(note.into());
    refusal
}

fn end(call: &Call, refusal: Refusal) {
    call.refuse(refusal, Instant::now());
}
