//! Listings, a page at a time: those in flight in order of dispatch, then each lane by turns and FIFOs
//! (rule R18). Never a full copy.
//!
//! A cursor names a remembered place. Turns are found again by stamps, which grow along the ring, so a call
//! that stays queued is never missed however the ring turns meanwhile. A turn also remembers which listing
//! has shown it, so that it is not shown again when it comes round; where several listings run at once, or a
//! cursor is asked twice, a call may be seen twice, so readers key rows by id. A listing shows what was there
//! when it began and therefore ends, however many calls arrive. What starts to run while the lanes are
//! listed, or is moved to another lane, may be missed.

use super::flows::{Listed, Parked, Turn};
use super::machine::Core;
use super::slab::{Entry, NEVER, NIL, State};
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
    listing: u64,
    page: u32,
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
    listings: u64,
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
            listing: self.marks.listings + 1,
            page: 0,
            last_arrival: self.arrivals,
            last_start: self.starts(),
            started: 0,
            lane: 0,
            ring: START,
            aside: START,
        };
        let mut mark = match cursor {
            0 => {
                self.marks.listings += 1;
                begin
            }
            cursor => match self.marks.find(cursor) {
                Some(mark) => mark,
                None => return Rows { rows: Vec::new(), next: None, stale: true },
            },
        };
        mark.page += 1;
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

    fn list_lanes(&mut self, mark: &mut Mark, limit: usize, rows: &mut Vec<Row<J>>) -> bool {
        while mark.lane < 3 {
            // The ring again before the turns aside: some of those may have come back to it.
            let (ring, aside) = (self.flows.lanes[mark.lane].ring.head, self.flows.lanes[mark.lane].aside.head);
            for (head, in_ring) in [(ring, true), (aside, false)] {
                let mut at = if in_ring { mark.ring } else { mark.aside };
                let whole = self.list_turns(head, mark, &mut at, limit, rows);
                *(if in_ring { &mut mark.ring } else { &mut mark.aside }) = at;
                if !whole {
                    return false;
                }
            }
            (mark.lane, mark.ring, mark.aside) = (mark.lane + 1, START, START);
        }
        true
    }

    fn list_turns(&mut self, head: u32, mark: &Mark, at: &mut Place, limit: usize, rows: &mut Vec<Row<J>>) -> bool {
        let mut turn = self.find_turn(head, at);
        while turn != NIL {
            let Turn { stamp, next, listed, .. } = self.flows.turns[turn];
            // What a page asked before this one has shown.
            let shown = (listed.listing == mark.listing && listed.page < mark.page).then_some(listed.seq);
            if shown != Some(NEVER) {
                let (mut place, mut rank) = self.find_entry(turn, at, shown.unwrap_or(0));
                while place != NIL {
                    let Entry { seq, newer, .. } = self.slab[place];
                    if seq <= mark.last_arrival {
                        if rows.len() == limit {
                            return false;
                        }
                        rows.extend(self.row_at(place, rank));
                        let before = if stamp == at.stamp { at.seq } else { 0 };
                        *at = Place { stamp, seq: before.max(seq), turn, entry: self.slab.id(place) };
                        let Mark { listing, page, .. } = *mark;
                        self.flows.turns[turn].listed = Listed { listing, page, seq: at.seq };
                    }
                    (place, rank) = (newer, rank + 1);
                }
                let Mark { listing, page, .. } = *mark;
                self.flows.turns[turn].listed = Listed { listing, page, seq: NEVER };
            }
            *at = Place { stamp: stamp + 1, seq: 0, turn: next, entry: EntryId(0) };
            turn = next;
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

    /// The first entry of a turn that is not done, with its rank.
    fn find_entry(&self, turn: u32, at: &Place, shown: u64) -> (u32, u32) {
        let half = self.flows.turns[turn].stamp == at.stamp;
        if half
            && let Some(place) = self.slab.find(at.entry)
            && self.slab[place].state == State::Queued
            && self.flows.fifos[self.slab[place].fifo].turn == turn
        {
            let place = self.slab[place].newer;
            return (place, if place == NIL { 0 } else { self.rank(place, turn) });
        }
        let shown = if half { shown.max(at.seq) } else { shown };
        let (mut place, mut rank) = (self.flows.turns[turn].oldest, 0);
        while place != NIL && self.slab[place].seq <= shown {
            (place, rank) = (self.slab[place].newer, rank + 1);
        }
        (place, rank)
    }

    fn row_at(&self, place: u32, rank: u32) -> Option<Row<J>> {
        let entry = &self.slab[place];
        let (state, position, parked) = match entry.state {
            State::Queued => {
                let parked = self.flows.fifos[entry.fifo].parked != Parked::No;
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
