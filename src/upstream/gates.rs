//! Caller and global permits behind one process-wide lock (rules R11, R12). Slots and tool caps belong to the
//! queue's core; when a flow is parked or returns is the core's too (R13).
//!
//! A permit is taken or handed over for one call, whatever its weight: these gates count calls. [`Gates::take`]
//! gives both permits or none, and parks the flow in the same critical section. A release *hands* the permit
//! on as a [`Grant`] before anybody else can take it, so a flow that is parked cannot be overtaken by a busy
//! upstream. No permit is ever held while waiting for the other one.
//!
//! A flow of a door waits in one place at most, so those who wait are bounded by the flows that have a call
//! queued: a flow that is parked again keeps its place, and one that is no more is withdrawn.
//!
//! What holds after every change made under the lock:
//! - a caller with room has no flow waiting at its own gate (all of them wait at the global one);
//! - while the global gate has room, only upstreams that hold their share already have flows waiting there.
//!
//! So whoever finds room overtakes nobody who could have used it.

use super::queue::FlowKey;
use crate::caller::{Caller, CallerId};
use crate::config::Global;
use crate::sync::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// See the module's documentation.
pub struct Gates {
    /// Calls in flight over all upstreams; 0 is unlimited. Read without the lock to skip the gates.
    global: AtomicU32,
    /// The bits of `global.max_share`.
    share: AtomicU64,
    state: Mutex<State>,
}

/// A door of the gates: one life of an upstream's actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Door(u64);

/// Where grants for a door's parked flows go. Called under the gates' lock: it must not wait, and must not
/// drop the grant.
pub(crate) trait Sink: Send + Sync {
    fn grant(&self, grant: Grant);
}

/// Permits handed to a parked flow. Dropped unused, they go to the next one who waits.
pub(crate) struct Grant {
    pub(crate) door: Door,
    pub(crate) flow: FlowKey,
    pub(crate) permits: Permits,
}

/// The caller and global permits of one call, given back on drop.
#[must_use]
pub(crate) struct Permits {
    held: Option<Held>,
}

struct Held {
    gates: Arc<Gates>,
    door: Door,
    caller: Option<CallerId>,
    global: bool,
}

/// The flow has been parked; a [`Grant`] will follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parked;

#[derive(Default)]
struct State {
    /// Global permits that are out.
    held: u32,
    doors: BTreeMap<Door, DoorState>,
    callers: HashMap<CallerId, CallerState>,
    /// Doors with flows at the global gate; the first one is served next.
    ring: VecDeque<Door>,
    next: u64,
}

struct DoorState {
    sink: Arc<dyn Sink>,
    /// Global permits that its calls hold.
    held: u32,
    /// Flows at the global gate, by the order in which they were parked.
    waiting: BTreeMap<u64, Waiter>,
    /// The place of each of its flows that waits, here or at its caller's gate.
    places: HashMap<FlowKey, u64>,
}

#[derive(Default)]
struct CallerState {
    held: u32,
    /// Flows at the caller's own gate, by the order in which they were parked.
    waiting: BTreeMap<u64, (Door, Waiter)>,
}

struct Waiter {
    caller: Arc<Caller>,
    flow: FlowKey,
}

impl Gates {
    pub fn new(global: &Global) -> Arc<Self> {
        let gates = Gates { global: AtomicU32::new(0), share: AtomicU64::new(0), state: Mutex::new(State::default()) };
        gates.store(global);
        Arc::new(gates)
    }

    /// Puts changed limits in force. Also to be called when a caller's own limit has changed.
    pub fn configure(self: &Arc<Self>, global: &Global) {
        let mut state = self.state.lock();
        self.store(global);
        let callers: Vec<_> = state.callers.keys().copied().collect();
        for caller in callers {
            self.open_caller(&mut state, caller);
        }
        self.open_global(&mut state);
    }

    /// Calls that hold a global permit.
    pub fn in_flight(&self) -> u32 {
        self.state.lock().held
    }

    /// Registers one life of an upstream's actor.
    pub(crate) fn enter(&self, sink: Arc<dyn Sink>) -> Door {
        let mut state = self.state.lock();
        state.next += 1;
        let door = Door(state.next);
        state.doors.insert(door, DoorState { sink, held: 0, waiting: BTreeMap::new(), places: HashMap::new() });
        door
    }

    /// Forgets a door and its parked flows. After this no grant comes through it; permits that are out stay
    /// out until they are dropped.
    pub(crate) fn leave(self: &Arc<Self>, door: Door) {
        let mut state = self.state.lock();
        let gone = state.doors.remove(&door);
        state.ring.retain(|other| *other != door);
        for caller in state.callers.values_mut() {
            caller.waiting.retain(|_, (other, _)| *other != door);
        }
        state.callers.retain(|_, caller| caller.held > 0 || !caller.waiting.is_empty());
        // With fewer upstreams the share of the others may have grown.
        self.open_global(&mut state);
        drop(state);
        drop(gone);
    }

    /// Takes both permits for one call of `caller`, or parks `flow`.
    pub(crate) fn take(self: &Arc<Self>, door: Door, caller: &Arc<Caller>, flow: FlowKey) -> Result<Permits, Parked> {
        let limit = caller.config.load().max_concurrent;
        if limit.is_none() && self.global.load(Relaxed) == 0 {
            return Ok(Permits { held: None });
        }
        let mut state = self.state.lock();
        if !state.caller_has_room(caller) {
            let Some(place) = state.place_for(door, flow) else { return Err(Parked) };
            let waiter = Waiter { caller: caller.clone(), flow };
            state.callers.entry(caller.id).or_default().waiting.insert(place, (door, waiter));
            return Err(Parked);
        }
        if !self.global_has_room(&state, door) {
            let Some(place) = state.place_for(door, flow) else { return Err(Parked) };
            state.wait_global(door, place, Waiter { caller: caller.clone(), flow });
            return Err(Parked);
        }
        Ok(self.hand(&mut state, door, caller))
    }

    /// A parked flow waits no longer: it has no call any more. Nothing happens if it does not wait; a grant
    /// that is on its way to it goes on to others.
    pub(crate) fn withdraw(&self, door: Door, flow: FlowKey) {
        let mut state = self.state.lock();
        let waiter = state.remove_waiter(door, flow);
        drop(state);
        drop(waiter);
    }

    /// How many flows wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        let state = self.state.lock();
        let at_callers: usize = state.callers.values().map(|caller| caller.waiting.len()).sum();
        let at_doors: usize = state.doors.values().map(|door| door.waiting.len()).sum();
        assert_eq!(at_callers + at_doors, state.doors.values().map(|door| door.places.len()).sum::<usize>());
        at_callers + at_doors
    }

    fn store(&self, global: &Global) {
        self.share.store(global.max_share.to_bits(), Relaxed);
        self.global.store(global.max_concurrent.unwrap_or(0), Relaxed);
    }

    fn global_has_room(&self, state: &State, door: Door) -> bool {
        let limit = self.global.load(Relaxed);
        limit == 0 || (state.held < limit && state.held_by(door) < self.share_of(limit, state.doors.len()))
    }

    /// What one upstream may hold of the global limit (rule R12).
    fn share_of(&self, limit: u32, doors: usize) -> u32 {
        let share = (f64::from(limit) * f64::from_bits(self.share.load(Relaxed))).floor() as u32;
        let most = if doors > 1 { limit.saturating_sub(1) } else { limit };
        share.min(most).max(1)
    }

    fn hand(self: &Arc<Self>, state: &mut State, door: Door, caller: &Arc<Caller>) -> Permits {
        let global = self.global.load(Relaxed) != 0;
        if global {
            state.held += 1;
            if let Some(door) = state.doors.get_mut(&door) {
                door.held += 1;
            }
        }
        let limited = caller.config.load().max_concurrent.is_some();
        if limited {
            state.callers.entry(caller.id).or_default().held += 1;
        }
        Permits { held: Some(Held { gates: self.clone(), door, caller: limited.then_some(caller.id), global }) }
    }

    fn release(self: &Arc<Self>, held: &Held) {
        let mut state = self.state.lock();
        if held.global {
            state.held -= 1;
            if let Some(door) = state.doors.get_mut(&held.door) {
                door.held -= 1;
            }
        }
        if let Some(caller) = held.caller {
            if let Some(caller) = state.callers.get_mut(&caller) {
                caller.held -= 1;
            }
            self.open_caller(&mut state, caller);
        }
        if held.global {
            self.open_global(&mut state);
        }
    }

    /// Serves the flows at a caller's gate, first come first: straight away where no global permit is needed,
    /// else they go on to the global gate, where they keep their place by age.
    fn open_caller(self: &Arc<Self>, state: &mut State, id: CallerId) {
        let unlimited = self.global.load(Relaxed) == 0;
        let mut moved = false;
        loop {
            let Some(caller) = state.callers.get_mut(&id) else { return };
            let Some(first) = caller.waiting.first_entry() else {
                if caller.held == 0 {
                    state.callers.remove(&id);
                }
                break;
            };
            let (door, place, who) = (first.get().0, *first.key(), first.get().1.caller.clone());
            if !state.caller_has_room(&who) {
                break;
            }
            let Some((_, waiter)) = state.callers.get_mut(&id).and_then(|caller| caller.waiting.remove(&place)) else {
                break;
            };
            if unlimited {
                self.grant(state, door, &waiter);
            } else {
                state.wait_global(door, place, waiter);
                moved = true;
            }
        }
        if moved {
            self.open_global(state);
        }
    }

    /// Serves the flows at the global gate: upstreams in turn, the oldest flow of each. A flow whose caller
    /// has no room goes back to that caller's gate.
    fn open_global(self: &Arc<Self>, state: &mut State) {
        let mut skipped = 0;
        while skipped < state.ring.len() {
            let limit = self.global.load(Relaxed);
            if limit != 0 && state.held >= limit {
                return;
            }
            let Some(door) = state.ring.pop_front() else { return };
            if !self.global_has_room(state, door) {
                state.ring.push_back(door);
                skipped += 1;
                continue;
            }
            let Some((place, waiter)) = state.doors.get_mut(&door).and_then(|door| door.waiting.pop_first()) else {
                continue;
            };
            let more = state.doors.get(&door).is_some_and(|door| !door.waiting.is_empty());
            if state.caller_has_room(&waiter.caller) {
                if more {
                    state.ring.push_back(door);
                }
                self.grant(state, door, &waiter);
                skipped = 0;
            } else {
                if more {
                    state.ring.push_front(door);
                }
                let caller = state.callers.entry(waiter.caller.id).or_default();
                caller.waiting.insert(place, (door, waiter));
            }
        }
    }

    fn grant(self: &Arc<Self>, state: &mut State, door: Door, waiter: &Waiter) {
        let Some(at) = state.doors.get_mut(&door) else { return };
        at.places.remove(&waiter.flow);
        let sink = at.sink.clone();
        let permits = self.hand(state, door, &waiter.caller);
        sink.grant(Grant { door, flow: waiter.flow, permits });
    }
}

impl State {
    fn caller_has_room(&self, caller: &Arc<Caller>) -> bool {
        match caller.config.load().max_concurrent {
            None => true,
            Some(limit) => self.callers.get(&caller.id).map_or(0, |caller| caller.held) < limit,
        }
    }

    fn held_by(&self, door: Door) -> u32 {
        self.doors.get(&door).map_or(0, |door| door.held)
    }

    /// A place at the end for a flow; none if it has one already, or if its door is gone.
    fn place_for(&mut self, door: Door, flow: FlowKey) -> Option<u64> {
        let places = &mut self.doors.get_mut(&door)?.places;
        let std::collections::hash_map::Entry::Vacant(vacant) = places.entry(flow) else { return None };
        self.next += 1;
        vacant.insert(self.next);
        Some(self.next)
    }

    fn remove_waiter(&mut self, door: Door, flow: FlowKey) -> Option<Waiter> {
        let at = self.doors.get_mut(&door)?;
        let place = at.places.remove(&flow)?;
        if let Some(waiter) = at.waiting.remove(&place) {
            if at.waiting.is_empty() {
                self.ring.retain(|other| *other != door);
            }
            return Some(waiter);
        }
        let caller = self.callers.get_mut(&flow.caller)?;
        let waiter = caller.waiting.remove(&place);
        if caller.held == 0 && caller.waiting.is_empty() {
            self.callers.remove(&flow.caller);
        }
        waiter.map(|(_, waiter)| waiter)
    }

    fn wait_global(&mut self, door: Door, place: u64, waiter: Waiter) {
        let Some(state) = self.doors.get_mut(&door) else { return };
        if state.waiting.is_empty() {
            self.ring.push_back(door);
        }
        state.waiting.insert(place, waiter);
    }
}

impl Permits {
    /// Nothing, where no gate is set.
    pub(crate) fn free() -> Self {
        Permits { held: None }
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.gates.release(&held);
        }
    }
}

#[cfg(test)]
#[cfg(forebay_loom)]
mod loom_models;
#[cfg(test)]
#[cfg(not(forebay_loom))]
mod tests;
