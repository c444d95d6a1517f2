//! Where entries live: a slab whose places carry a generation, so an id is an address and a proof at once.

use super::types::EntryId;
use std::ops::{Index, IndexMut};

/// No place. All links between entries are 32-bit places.
pub(super) const NIL: u32 = u32::MAX;
/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;
/// The bucket of an entry that is in no wheel.
pub(super) const UNARMED: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Queued,
    Running,
    Lingering,
}

/// Two cache lines with an `Arc` as its job. What its neighbours in the lists touch is in the first one.
#[repr(C, align(64))]
pub(super) struct Entry<J> {
    /// Order of arrival; kept when a call is handed back, renewed when its lane is changed.
    pub seq: u64,
    pub expires: u64,
    pub generation: u32,
    pub state: State,
    pub lane: u8,
    pub bucket: u16,
    pub fifo: u32,
    /// Neighbours in the FIFO while queued, in the list of those in flight afterwards; `next` also chains
    /// free places.
    pub prev: u32,
    pub next: u32,
    /// Neighbours among all of the turn's entries, in order of arrival.
    pub older: u32,
    pub newer: u32,
    pub wheel_prev: u32,
    pub wheel_next: u32,
    pub caller: u32,
    pub tool: u32,
    pub weight: u32,
    /// The time for which it is in the wheel.
    pub due: u64,
    pub job: Option<J>,
    pub bytes: u64,
    pub deadline: u64,
    pub since: u64,
    /// Order of dispatch.
    pub started: u64,
    /// Slots held while in flight: the weight as it was clipped at dispatch.
    pub took: u32,
    /// Number within its turn; the difference to the oldest one's bounds how many stand before it.
    pub ordinal: u32,
}

pub(super) struct Slab<J> {
    entries: Vec<Entry<J>>,
    free: u32,
}

impl<J> Slab<J> {
    pub(super) fn new() -> Self {
        Slab { entries: Vec::new(), free: NIL }
    }

    /// A place, its links and times reset, its generation kept.
    pub(super) fn take(&mut self) -> u32 {
        if self.free != NIL {
            let place = self.free;
            self.free = self[place].next;
            return place;
        }
        let place = self.entries.len() as u32;
        self.entries.push(Entry {
            job: None,
            seq: 0,
            expires: NEVER,
            bytes: 0,
            generation: 1,
            state: State::Free,
            lane: 0,
            bucket: UNARMED,
            fifo: NIL,
            prev: NIL,
            next: NIL,
            older: NIL,
            newer: NIL,
            wheel_prev: NIL,
            wheel_next: NIL,
            ordinal: 0,
            weight: 1,
            took: 0,
            caller: NIL,
            tool: NIL,
            due: NEVER,
            deadline: NEVER,
            since: 0,
            started: 0,
        });
        place
    }

    /// Gives a place back; ids that name it are stale from here on. Generation 0 is skipped so that no id
    /// is ever 0.
    pub(super) fn give(&mut self, place: u32) -> Option<J> {
        let free = self.free;
        let entry = &mut self[place];
        entry.state = State::Free;
        entry.generation = entry.generation.checked_add(1).unwrap_or(1);
        entry.next = free;
        let job = entry.job.take();
        self.free = place;
        job
    }

    pub(super) fn id(&self, place: u32) -> EntryId {
        EntryId(u64::from(self[place].generation) << 32 | u64::from(place))
    }

    /// The place of a live entry.
    pub(super) fn find(&self, id: EntryId) -> Option<u32> {
        let place = id.0 as u32;
        let entry = self.entries.get(place as usize)?;
        (entry.generation == (id.0 >> 32) as u32 && entry.state != State::Free).then_some(place)
    }

    /// Every live place, in no order that means anything.
    pub(super) fn live(&self) -> impl Iterator<Item = (u32, &Entry<J>)> {
        (0..).zip(&self.entries).filter(|(_, entry)| entry.state != State::Free)
    }
}

impl<J> Index<u32> for Slab<J> {
    type Output = Entry<J>;

    fn index(&self, place: u32) -> &Entry<J> {
        &self.entries[place as usize]
    }
}

impl<J> IndexMut<u32> for Slab<J> {
    fn index_mut(&mut self, place: u32) -> &mut Entry<J> {
        &mut self.entries[place as usize]
    }
}
