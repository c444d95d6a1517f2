//! Listings, a page at a time: those in flight in order of dispatch, then each lane by turns and FIFOs
//! (rule R18). Never a full copy.
//!
//! A cursor names a remembered place. Turns are found again by stamps, which grow along the ring, so a call
//! that stays queued is never missed however the ring turns meanwhile; it may be seen twice if its turn came
//! round, so readers key rows by id. A listing shows what was there when it began and therefore ends, however
//! many calls arrive. What starts to run while the lanes are listed may be missed, as it has been passed.

use super::flows::Turn;
use super::machine::Core;
use super::slab::{NIL, State};
use super::types::{EntryId, Moment, Row, Rows};
use crate::caller::Lane;
use crate::upstream::RowState;

/// Most rows of one page.
const PAGE: usize = 256;
/// Cursors remembered; the oldest is forgotten first.
const MARKS: u64 = 64;

/// Where a listing stands.
#[derive(Clone, Copy, Debug)]
struct Mark {
    number: u64,
    /// What arrived or started later does not belong to this listing.
    last_arrival: u64,
    last_start: u64,
    /// Those in flight are listed up to this start.
    started: u64,
    lane: usize,
    ring: Place,
    aside: Place,
}

/// A place among turns: turns of a lower stamp are done; of this one, entries up to `seq`.
#[derive(Clone, Copy, Debug)]
struct Place {
    stamp: u64,
    seq: u64,
    /// Where they were found last; only a hint.
    turn: u32,
    entry: EntryId,
}

const START: Place = Place { stamp: 0, seq: 0, turn: NIL, entry: EntryId(0) };

/// The remembered cursors.
#[derive(Debug, Default)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    made: u64,
}

impl Marks {
    fn find(&self, number: u64) -> Option<Mark> {
        self.marks.get((number % MARKS) as usize).filter(|mark| mark.number == number).copied()
    }

    fn remember(&mut self, mut mark: Mark) -> u64 {
        self.made += 1;
        mark.number = self.made;
        let at = (self.made % MARKS) as usize;
        while self.marks.len() <= at {
            self.marks.push(Mark { number: 0, ..mark });
        }
        self.marks[at] = mark;
        self.made
    }
}

impl<J: Clone> Core<J> {
    /// Rows from `cursor` on (0 is the beginning), at most `limit` and at most 256.
    pub fn page(&mut self, cursor: u64, limit: usize) -> Rows<J> {
        let limit = limit.clamp(1, PAGE);
        let begin = Mark {
            number: 0,
            last_arrival: self.arrivals,
            last_start: self.starts(),
            started: 0,
            lane: 0,
            ring: START,
            aside: START,
        };
        let mut mark = match cursor {
            0 => begin,
            cursor => match self.marks.find(cursor) {
                Some(mark) => mark,
                None => return Rows { rows: Vec::new(), next: None, stale: true },
            },
        };
        let mut rows = Vec::with_capacity(limit.min((self.running + self.lingering + self.flows.queued) as usize));
        let whole = self.list_started(&mut mark, limit, &mut rows) && self.list_lanes(&mut mark, limit, &mut rows);
        let next = (!whole).then(|| self.marks.remember(mark));
        Rows { rows, next, stale: false }
    }

    /// Every entry in no order, by its place alone: whoever has to find all jobs after a panic does not depend
    /// on the links between them.
    pub fn entries(&self) -> impl Iterator<Item = (EntryId, RowState, &J)> {
        self.slab.live().filter_map(|(place, entry)| {
            let state = match entry.state {
                State::Queued => RowState::Queued,
                State::Running => RowState::Running,
                State::Lingering => RowState::Lingering,
                State::Free => return None,
            };
            entry.job.as_ref().map(|job| (self.slab.id(place), state, job))
        })
    }

    /// One entry, as a listing shows it.
    pub fn row(&self, id: EntryId) -> Option<Row<J>> {
        let place = self.slab.find(id)?;
        let rank = match self.slab[place].state {
            State::Queued => self.rank(place, self.flows.fifos[self.slab[place].fifo].turn),
            State::Running | State::Lingering | State::Free => 0,
        };
        self.row_at(place, rank)
    }

    /// False when the page is full before the end.
    fn list_started(&self, mark: &mut Mark, limit: usize, rows: &mut Vec<Row<J>>) -> bool {
        if mark.started >= mark.last_start {
            return true;
        }
        let mut place = self.first_started;
        while place != NIL && self.slab[place].started <= mark.last_start {
            if self.slab[place].started > mark.started {
                if rows.len() == limit {
                    return false;
                }
                rows.extend(self.row_at(place, 0));
                mark.started = self.slab[place].started;
            }
            place = self.slab[place].next;
        }
        mark.started = mark.last_start;
        true
    }

    fn list_lanes(&self, mark: &mut Mark, limit: usize, rows: &mut Vec<Row<J>>) -> bool {
        while mark.lane < 3 {
            let lane = &self.flows.lanes[mark.lane];
            // The ring again before the turns aside: some of those may have come back to it.
            if !self.list_turns(lane.ring.head, mark.last_arrival, &mut mark.ring, limit, rows)
                || !self.list_turns(lane.aside.head, mark.last_arrival, &mut mark.aside, limit, rows)
            {
                return false;
            }
            (mark.lane, mark.ring, mark.aside) = (mark.lane + 1, START, START);
        }
        true
    }

    fn list_turns(&self, head: u32, last: u64, at: &mut Place, limit: usize, rows: &mut Vec<Row<J>>) -> bool {
        let mut turn = self.find_turn(head, at);
        while turn != NIL {
            let this = &self.flows.turns[turn];
            let (mut place, mut rank) =
                if this.stamp == at.stamp { self.find_entry(turn, at) } else { (this.oldest, 0) };
            while place != NIL {
                let entry = &self.slab[place];
                if entry.seq <= last {
                    if rows.len() == limit {
                        return false;
                    }
                    rows.extend(self.row_at(place, rank));
                    let seq = if this.stamp == at.stamp { at.seq.max(entry.seq) } else { entry.seq };
                    *at = Place { stamp: this.stamp, seq, turn, entry: self.slab.id(place) };
                }
                (place, rank) = (entry.newer, rank + 1);
            }
            *at = Place { stamp: this.stamp + 1, seq: 0, turn: this.next, entry: EntryId(0) };
            turn = this.next;
        }
        true
    }

    /// The first turn that is not done.
    fn find_turn(&self, head: u32, at: &Place) -> u32 {
        // A stamp is given once, so a turn that carries it is the one, and in this very list.
        let hint: Option<&Turn> = self.flows.turns.get(at.turn);
        if hint.is_some_and(|hint| hint.len > 0 && hint.stamp == at.stamp) {
            return at.turn;
        }
        let mut turn = head;
        while turn != NIL && self.flows.turns[turn].stamp < at.stamp {
            turn = self.flows.turns[turn].next;
        }
        turn
    }

    /// The first entry of a half-listed turn that is not done, with its rank.
    fn find_entry(&self, turn: u32, at: &Place) -> (u32, u32) {
        if let Some(place) = self.slab.find(at.entry)
            && self.slab[place].state == State::Queued
            && self.flows.fifos[self.slab[place].fifo].turn == turn
        {
            let place = self.slab[place].newer;
            return (place, if place == NIL { 0 } else { self.rank(place, turn) });
        }
        let (mut place, mut rank) = (self.flows.turns[turn].oldest, 0);
        while place != NIL && self.slab[place].seq <= at.seq {
            (place, rank) = (self.slab[place].newer, rank + 1);
        }
        (place, rank)
    }

    fn row_at(&self, place: u32, rank: u32) -> Option<Row<J>> {
        let entry = &self.slab[place];
        let (state, position, parked) = match entry.state {
            State::Queued => {
                let parked = self.flows.fifos[entry.fifo].parked != super::flows::Parked::No;
                (RowState::Queued, Some(self.position_at(place, rank)), parked)
            }
            State::Running => (RowState::Running, None, false),
            State::Lingering => (RowState::Lingering, None, false),
            State::Free => return None,
        };
        Some(Row {
            id: self.slab.id(place),
            job: entry.job.clone()?,
            state,
            lane: Lane::ALL[usize::from(entry.lane)],
            caller: self.flows.callers.get(entry.caller).id,
            position,
            parked,
            since: Moment(entry.since),
            due: self.is_armed(place).then_some(Moment(entry.due)),
        })
    }
}
