//! The actor's side of the gates, and the last look at a ticket before its call runs.

use crate::call::{Call, State};
use crate::upstream::gates::{Door, Gates, Grant, Parked, Permits};
use crate::upstream::queue::{FlowKey, Gate, Pass};
use crate::upstream::shared::UpstreamShared;
use std::sync::Arc;
use tokio::time::Instant;

/// Asked by the core just before each dispatch.
pub(super) struct Doorkeeper {
    gates: Arc<Gates>,
    door: Door,
    /// Permits handed to parked flows, good for this turn; what is left over goes to others.
    grants: Vec<Grant>,
    /// The permits of the call that was let through last.
    taken: Option<Permits>,
    pub(super) now: Instant,
}

impl Doorkeeper {
    pub(super) fn new(gates: Arc<Gates>, shared: &Arc<UpstreamShared>, now: Instant) -> Self {
        let door = gates.enter(shared.clone());
        Doorkeeper { gates, door, grants: Vec::new(), taken: None, now }
    }

    /// Takes a grant in; the flow that it is for. A grant of a former life goes on to others.
    pub(super) fn granted(&mut self, grant: Grant) -> Option<FlowKey> {
        let flow = (grant.door == self.door).then_some(grant.flow)?;
        self.grants.push(grant);
        Some(flow)
    }

    /// A flow that was parked is no more, and waits no longer.
    pub(super) fn withdraw(&mut self, flow: FlowKey) {
        self.gates.withdraw(self.door, flow);
    }

    /// The turn is over: unused grants go to whoever waits next.
    pub(super) fn pass_on(&mut self) {
        self.grants.clear();
    }

    /// The permits of the call that the core lets run now.
    pub(super) fn permits(&mut self) -> Permits {
        self.taken.take().unwrap_or_else(Permits::free)
    }

    pub(super) fn leave(&mut self) {
        self.gates.leave(self.door);
        self.grants.clear();
    }
}

impl Gate<Arc<Call>> for Doorkeeper {
    fn take(&mut self, call: &Arc<Call>, flow: FlowKey) -> Pass {
        if call.ticket.state() == State::Finished {
            return Pass::Gone;
        }
        let granted = self.grants.iter().position(|grant| grant.flow == flow);
        let permits = match granted {
            Some(at) => self.grants.remove(at).permits,
            None => match self.gates.take(self.door, &call.caller, flow) {
                Ok(permits) => permits,
                Err(Parked) => return Pass::Park,
            },
        };
        // The compare-exchange after which the call counts as run; lost, it was never executed (rule R1).
        if !call.ticket.start(self.now) {
            if granted.is_some() {
                self.grants.push(Grant { door: self.door, flow, permits });
            }
            return Pass::Gone;
        }
        self.taken = Some(permits);
        Pass::Go
    }
}
