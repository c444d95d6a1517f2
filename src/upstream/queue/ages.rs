//! The heap of a turn's FIFOs that may be served, the one with the oldest head first. Nearly always of one.

use super::flows::{Fifo, Flows};

impl Flows {
    pub(super) fn heap_push(&mut self, turn: u32, fifo: u32) {
        let heap = &mut self.turns[turn].heap;
        let at = heap.len();
        heap.push(fifo);
        sift_up(heap, self.fifos.as_mut_slice(), at);
    }

    pub(super) fn heap_remove(&mut self, turn: u32, at: u32) {
        let heap = &mut self.turns[turn].heap;
        let at = at as usize;
        heap.swap_remove(at);
        if at < heap.len() {
            let fifos = self.fifos.as_mut_slice();
            sift_up(heap, fifos, at);
            sift_down(heap, fifos, at);
        }
    }

    pub(super) fn heap_fix(&mut self, turn: u32, at: u32) {
        let heap = &mut self.turns[turn].heap;
        if heap.len() > 1 {
            let fifos = self.fifos.as_mut_slice();
            sift_up(heap, fifos, at as usize);
            sift_down(heap, fifos, at as usize);
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
