//! A turn's FIFOs that may be served, by the age of their heads: the oldest by itself, since nearly always it is
//! the only one, and a heap of the others.

use super::flows::{Fifo, Flows};
use super::slab::NIL;

impl Flows {
    pub(super) fn heap_push(&mut self, turn: u32, fifo: u32) {
        let Flows { turns, fifos, .. } = self;
        let turn = &mut turns[turn];
        if turn.first == NIL {
            turn.first = fifo;
            return;
        }
        let mut other = fifo;
        if fifos[fifo].head_seq < fifos[turn.first].head_seq {
            std::mem::swap(&mut other, &mut turn.first);
        }
        let at = turn.others.len();
        turn.others.push(other);
        sift_up(&mut turn.others, fifos.as_mut_slice(), at);
    }

    pub(super) fn heap_remove(&mut self, turn: u32, fifo: u32) {
        let Flows { turns, fifos, .. } = self;
        let turn = &mut turns[turn];
        let at = if turn.first == fifo {
            turn.first = turn.others.first().copied().unwrap_or(NIL);
            0
        } else {
            fifos[fifo].heap_at as usize
        };
        if at < turn.others.len() {
            turn.others.swap_remove(at);
        }
        if at < turn.others.len() {
            sift_up(&mut turn.others, fifos.as_mut_slice(), at);
            sift_down(&mut turn.others, fifos.as_mut_slice(), at);
        }
    }

    /// The head of a FIFO has changed.
    pub(super) fn heap_fix(&mut self, turn: u32, fifo: u32) {
        let Flows { turns, fifos, .. } = self;
        let turn = &mut turns[turn];
        if turn.others.is_empty() {
            return;
        }
        if turn.first != fifo {
            let at = fifos[fifo].heap_at as usize;
            sift_up(&mut turn.others, fifos.as_mut_slice(), at);
            sift_down(&mut turn.others, fifos.as_mut_slice(), at);
        }
        if fifos[turn.others[0]].head_seq < fifos[turn.first].head_seq {
            std::mem::swap(&mut turn.first, &mut turn.others[0]);
            sift_down(&mut turn.others, fifos.as_mut_slice(), 0);
        }
    }
}

fn sift_up(heap: &mut [u32], fifos: &mut [Fifo], mut at: usize) {
    let fifo = heap[at];
    let age = fifos[fifo as usize].head_seq;
    while at > 0 {
        let parent = (at - 1) / 2;
        if fifos[heap[parent] as usize].head_seq <= age {
            break;
        }
        heap[at] = heap[parent];
        fifos[heap[at] as usize].heap_at = at as u32;
        at = parent;
    }
    heap[at] = fifo;
    fifos[fifo as usize].heap_at = at as u32;
}

/// Leaves an entry that stands right where it is; one that `sift_up` has moved stands right above `at`.
fn sift_down(heap: &mut [u32], fifos: &mut [Fifo], mut at: usize) {
    let fifo = heap[at];
    let age = fifos[fifo as usize].head_seq;
    loop {
        let mut child = 2 * at + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() && fifos[heap[child + 1] as usize].head_seq < fifos[heap[child] as usize].head_seq {
            child += 1;
        }
        if fifos[heap[child] as usize].head_seq >= age {
            break;
        }
        heap[at] = heap[child];
        fifos[heap[at] as usize].heap_at = at as u32;
        at = child;
    }
    heap[at] = fifo;
    fifos[fifo as usize].heap_at = at as u32;
}
