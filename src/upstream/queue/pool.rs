//! Records that come and go, reused in place: no allocation once the high-water mark is reached.

use std::ops::{Index, IndexMut};

pub(super) struct Pool<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Pool<T> {
    pub(super) fn new() -> Self {
        Pool { items: Vec::new(), free: Vec::new() }
    }

    /// A record to be made over, used before or made anew.
    pub(super) fn take(&mut self, new: impl FnOnce() -> T) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.items.push(new());
            // Room to give every record back without allocating then.
            self.free.reserve(self.items.len());
            (self.items.len() - 1) as u32
        })
    }

    pub(super) fn put(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.items[at as usize] = item;
                at
            }
            None => {
                self.items.push(item);
                self.free.reserve(self.items.len());
                (self.items.len() - 1) as u32
            }
        }
    }

    pub(super) fn give(&mut self, at: u32) {
        self.free.push(at);
    }

    pub(super) fn get(&self, at: u32) -> Option<&T> {
        self.items.get(at as usize)
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<T> Index<u32> for Pool<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.items[at as usize]
    }
}

impl<T> IndexMut<u32> for Pool<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.items[at as usize]
    }
}
