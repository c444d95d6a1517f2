//! What comes by mailbox: steering, listings, changes of single calls. Handlers never wait.
//!
//! Switches and limits live in [`UpstreamShared`](super::super::UpstreamShared); their messages only say
//! "look again", so that a restart in between loses none of them.

use super::UpstreamActor;
use super::turn::SLICE;
use crate::call::{Call, What};
use crate::caller::Lane;
use crate::config::Start;
use crate::upstream::handle::{Edited, Found, Page, Row};
use crate::upstream::link::{Link, LinkState};
use crate::upstream::queue::EntryId;
use crate::upstream::shared::{Hold, Switch};
use kameo::message::{Context, Message};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

/// How far from now an edit may move a queue expiry (rule R25).
const LATEST_EXPIRY: Duration = Duration::from_secs(3600);

/// Looks at switches and limits again; they are in force when this is answered.
#[derive(Clone, Copy)]
pub(crate) struct Refresh;

/// Closes the connection and opens it again; what runs ends lost.
#[derive(Clone, Copy)]
pub(crate) struct Restart;

/// Gives the connection up: what still runs ends lost, what waits goes on waiting, until [`Attach`].
#[derive(Clone, Copy)]
pub(crate) struct Detach;

/// Another connection is in place.
#[derive(Clone, Copy)]
pub(crate) struct Attach;

/// Asks for a part of the listing.
#[derive(Clone, Copy)]
pub(crate) struct ListCalls {
    pub(crate) cursor: u64,
    pub(crate) limit: usize,
}

/// Asks for one call's row.
#[derive(Clone)]
pub(crate) struct FindCall {
    pub(crate) call: Arc<Call>,
}

/// Changes a queued call (rule R25).
#[derive(Clone)]
pub(crate) struct Edit {
    pub(crate) call: Arc<Call>,
    pub(crate) lane: Option<Lane>,
    pub(crate) extend: Option<Duration>,
}

/// Answers what waits and what runs `cancelled` by shutdown, a slice at a time; answers whether there is more.
#[derive(Clone, Copy)]
pub(crate) struct ShutDown;

/// Makes the actor panic. For tests of what a restart keeps.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(crate) struct PanicForTest;

impl Message<Refresh> for UpstreamActor {
    type Reply = ();

    async fn handle(&mut self, _: Refresh, _: &mut Context<Self, ()>) {
        self.read_clock();
        self.apply_config();
        // A raised limit or an ended pause is in force before the answer, not a turn later.
        self.dispatch();
        self.publish();
    }
}

impl Message<Restart> for UpstreamActor {
    type Reply = ();

    async fn handle(&mut self, _: Restart, _: &mut Context<Self, ()>) {
        self.read_clock();
        self.lose_running("the upstream was restarted by an operator");
        self.giving_up = false;
        self.shared.lists.invalidate();
        while self.shared.link_events.pop().is_some() {}
        self.link.state = LinkState::Starting;
        self.link.busy_until = None;
        self.forget_load();
        self.send_again();
        self.connection.reset("restarted by an operator");
        self.connection.open();
        self.publish_link();
    }
}

impl Message<Detach> for UpstreamActor {
    type Reply = ();

    async fn handle(&mut self, _: Detach, _: &mut Context<Self, ()>) {
        self.read_clock();
        self.shared.set_hold(Hold::Between);
        self.lose_running("the upstream was restarted with a changed configuration");
        self.giving_up = false;
        self.shared.lists.invalidate();
        self.link = Link::new(false);
        self.publish_link();
    }
}

impl Message<Attach> for UpstreamActor {
    type Reply = ();

    async fn handle(&mut self, _: Attach, _: &mut Context<Self, ()>) {
        self.read_clock();
        while self.shared.link_events.pop().is_some() {}
        self.shared.set_hold(Hold::Free);
        self.apply_config();
        let wanted = self.config.start == Start::Eager || self.core.figures().queued > 0 || self.shared.has_submits();
        self.link = Link::new(!wanted);
        if wanted {
            self.connection.open();
        }
        self.publish_link();
        self.publish();
    }
}

impl Message<ListCalls> for UpstreamActor {
    type Reply = Page;

    async fn handle(&mut self, ListCalls { cursor, limit }: ListCalls, _: &mut Context<Self, Page>) -> Page {
        self.read_clock();
        let part = self.core.page(cursor, limit.clamp(1, SLICE));
        let rows = part.rows.into_iter().map(|row| Row {
            call: row.job,
            state: row.state,
            position: row.position,
            left: row.due.map(|due| due.since(self.now)),
        });
        Page { rows: rows.collect(), next: part.next }
    }
}

impl Message<FindCall> for UpstreamActor {
    type Reply = Found;

    async fn handle(&mut self, FindCall { call }: FindCall, _: &mut Context<Self, Found>) -> Found {
        self.read_clock();
        let id = EntryId(call.entry.load(Acquire));
        if id.0 == 0 || !self.holds(id, &call) {
            return Found::default();
        }
        let row = self.core.row(id).map(|row| Row {
            call: row.job,
            state: row.state,
            position: row.position,
            left: row.due.map(|due| due.since(self.now)),
        });
        Found { row, wait: self.core.wait_of(id) }
    }
}

impl Message<Edit> for UpstreamActor {
    type Reply = Edited;

    async fn handle(&mut self, edit: Edit, _: &mut Context<Self, Edited>) -> Edited {
        self.read_clock();
        self.edit(&edit)
    }
}

impl Message<ShutDown> for UpstreamActor {
    type Reply = bool;

    async fn handle(&mut self, _: ShutDown, _: &mut Context<Self, bool>) -> bool {
        self.read_clock();
        // Nothing that waits may start in the place of what is stopped.
        self.shared.set_switch(Switch::Draining);
        while let Some(call) = self.shared.next_submit() {
            self.in_hand = Some(call.clone());
            let _ = call.cancel(crate::outcome::CancelledBy::Shutdown, self.clock);
            self.in_hand = None;
        }
        let more = self.shut_down_slice();
        if !more {
            self.shut_down_running();
        }
        self.publish();
        more
    }
}

#[cfg(test)]
impl Message<PanicForTest> for UpstreamActor {
    type Reply = ();

    async fn handle(&mut self, _: PanicForTest, _: &mut Context<Self, ()>) {
        panic!("asked to panic by a test");
    }
}

impl UpstreamActor {
    fn edit(&mut self, edit: &Edit) -> Edited {
        match edit.call.ticket.state() {
            crate::call::State::Running => return Edited::AlreadyRunning,
            crate::call::State::Finished => return Edited::Unknown,
            crate::call::State::Submitted | crate::call::State::Queued => {}
        }
        let entry = edit.call.entry.load(Acquire);
        if entry == 0 {
            return Edited::Unknown;
        }
        let id = EntryId(entry);
        if !self.holds(id, &edit.call) {
            return Edited::Unknown;
        }
        let edited = self.edit_entry(id, edit);
        if edited == Edited::Changed {
            let lane = edit.lane.map(|lane| format!("priority {}", lane.name()));
            let wait = edit.extend.map(|by| format!("deadline +{} s", by.as_secs_f64()));
            let detail: Vec<_> = lane.into_iter().chain(wait).collect();
            edit.call.ticket.note(self.clock, What::Edited, &detail.join(", "));
        }
        edited
    }

    fn edit_entry(&mut self, id: EntryId, edit: &Edit) -> Edited {
        if let Some(lane) = edit.lane {
            match self.core.set_lane(id, lane) {
                Edited::Changed => edit.call.set_lane(lane),
                refused @ (Edited::AlreadyRunning | Edited::Unknown) => return refused,
            }
        }
        if let Some(extend) = edit.extend {
            // A call without a limit on its wait has no expiry to move.
            let Some(due) = self.core.row(id).and_then(|row| row.due) else { return Edited::Changed };
            return self.core.set_expiry(id, due.after(extend).min(self.now.after(LATEST_EXPIRY)));
        }
        Edited::Changed
    }
}
