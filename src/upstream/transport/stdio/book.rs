//! What is open with one child: calls, requests of forebay's own, the probe; found by the id used there.
//!
//! An id is `generation << 16 | place`. A place's generation moves on whenever the place is given up, and
//! the book outlives its children, so a late line of an old call or an old child never ends a new one. Ids
//! stay below 2^48, which every server's JSON numbers can hold.
//!
//! Bound: open calls are bounded by the actor (their slots); a call whose slot the actor takes back
//! (`after_cancel = "release"`) is closed here at the same time; requests of our own by [`MAX_ASKS`].

use crate::upstream::connection::{AskError, How, Run, RunId};
use bytes::Bytes;
use tokio::sync::oneshot;

/// Most requests of forebay's own that are open with one child; further ones fail at once.
pub(super) const MAX_ASKS: usize = 64;

/// The id of a request as this child knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WireId(pub(super) u64);

/// One open request.
pub(super) enum Entry {
    Call(OpenCall),
    /// Whoever asked waits on the channel.
    Ask(oneshot::Sender<Result<Bytes, AskError>>),
    Probe,
}

pub(super) struct OpenCall {
    pub(super) run: Run,
    /// Calls are numbered in the order in which they were begun.
    pub(super) order: u64,
    /// Where its bytes begin in what was written to this child; none while they wait.
    pub(super) start: Option<u64>,
    /// Its caller has been answered and the server asked to stop.
    pub(super) stopped: bool,
}

struct Place {
    generation: u32,
    entry: Option<Entry>,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Book {
    places: Vec<Place>,
    free: Vec<u16>,
    next_order: u64,
    running: usize,
    stopped: usize,
    asks: usize,
}

impl Book {
    /// Opens a call. The run comes back if there is no place left for it.
    pub(super) fn open_call(&mut self, run: Run) -> Result<WireId, Run> {
        let Some(place) = self.place() else { return Err(run) };
        let call = OpenCall { run, order: self.next_order, start: None, stopped: false };
        self.next_order += 1;
        self.running += 1;
        Ok(self.put(place, Entry::Call(call)))
    }

    /// Opens a request of our own.
    pub(super) fn open_ask(&mut self) -> Result<(WireId, oneshot::Receiver<Result<Bytes, AskError>>), AskError> {
        let place = if self.asks < MAX_ASKS { self.place() } else { None };
        let Some(place) = place else {
            return Err(AskError::Down(format!("{MAX_ASKS} requests of forebay's own are open already")));
        };
        let (answer, answered) = oneshot::channel();
        self.asks += 1;
        Ok((self.put(place, Entry::Ask(answer)), answered))
    }

    /// Opens a probe.
    pub(super) fn open_probe(&mut self) -> Option<WireId> {
        let place = self.place()?;
        Some(self.put(place, Entry::Probe))
    }

    fn place(&mut self) -> Option<u16> {
        self.free.pop().or_else(|| {
            let place = u16::try_from(self.places.len()).ok()?;
            self.places.push(Place { generation: 1, entry: None });
            Some(place)
        })
    }

    fn put(&mut self, place: u16, entry: Entry) -> WireId {
        let at = &mut self.places[usize::from(place)];
        at.entry = Some(entry);
        WireId(u64::from(at.generation) << 16 | u64::from(place))
    }

    /// Closes the request of this id. None if it is not open (any more).
    pub(super) fn close(&mut self, id: WireId) -> Option<Entry> {
        let place = (id.0 & 0xffff) as u16;
        let at = self.places.get_mut(usize::from(place))?;
        if u64::from(at.generation) != id.0 >> 16 {
            return None;
        }
        let entry = at.entry.take()?;
        at.generation = at.generation.wrapping_add(1).max(1);
        self.free.push(place);
        match &entry {
            Entry::Call(call) if call.stopped => self.stopped -= 1,
            Entry::Call(_) => self.running -= 1,
            Entry::Ask(_) => self.asks -= 1,
            Entry::Probe => {}
        }
        Some(entry)
    }

    /// The open call of this id.
    pub(super) fn call(&mut self, id: WireId) -> Option<&mut OpenCall> {
        let at = self.places.get_mut((id.0 & 0xffff) as usize)?;
        match &mut at.entry {
            Some(Entry::Call(call)) if u64::from(at.generation) == id.0 >> 16 => Some(call),
            _ => None,
        }
    }

    /// The id under which a run is open here. Looks through the open calls: a cancel is rare, and a map
    /// beside the places would have to be kept for every call.
    pub(super) fn find(&self, run: RunId) -> Option<WireId> {
        self.calls().find(|(_, call)| call.run.id == run).map(|(id, _)| id)
    }

    /// Open calls with their ids, in no order.
    fn calls(&self) -> impl Iterator<Item = (WireId, &OpenCall)> {
        self.places.iter().enumerate().filter_map(|(place, at)| match &at.entry {
            Some(Entry::Call(call)) => Some((WireId(u64::from(at.generation) << 16 | place as u64), call)),
            _ => None,
        })
    }

    /// Marks a call as stopped.
    pub(super) fn stop(&mut self, id: WireId) {
        let Some(call) = self.call(id) else { return };
        if std::mem::replace(&mut call.stopped, true) {
            return;
        }
        self.running -= 1;
        self.stopped += 1;
    }

    /// Stopped calls that were begun before now: a serial server that answers a probe has ended them.
    pub(super) fn take_stopped(&mut self, ended: &mut Vec<Run>) {
        let stopped: Vec<_> = self.calls().filter(|(_, call)| call.stopped).map(|(id, _)| id).collect();
        for id in stopped {
            if let Some(Entry::Call(call)) = self.close(id) {
                ended.push(call.run);
            }
        }
    }

    /// Calls that hold a slot here: running ones and those that linger.
    pub(super) fn load(&self) -> usize {
        self.running + self.stopped
    }

    /// Calls that somebody still waits for.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Closes everything, in the order in which the calls were begun.
    pub(super) fn close_all(&mut self) -> Vec<Entry> {
        let open: Vec<_> = (0..self.places.len())
            .filter(|place| self.places[*place].entry.is_some())
            .map(|place| WireId(u64::from(self.places[place].generation) << 16 | place as u64))
            .collect();
        let mut closed: Vec<_> = open.into_iter().filter_map(|id| self.close(id)).collect();
        closed.sort_by_key(|entry| match entry {
            Entry::Call(call) => call.order,
            Entry::Ask(_) | Entry::Probe => u64::MAX,
        });
        closed
    }
}

impl OpenCall {
    /// Ends the call because its child is gone. `written` is how many bytes that child was given.
    pub(super) fn end(self, written: u64, note: &str) {
        let sent = self.start.is_some_and(|start| start < written);
        match (self.stopped, sent) {
            (true, _) => self.run.release(How::Lost),
            (false, true) => self.run.lost(true, note),
            (false, false) => self.run.hand_back(),
        }
    }
}
