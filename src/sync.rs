//! Locks and atomics, swapped for loom's when a model is checked (`RUSTFLAGS="--cfg forebay_loom"`).
//!
//! Only what the loom models run uses this module; the rest of the code takes `parking_lot` as it is.

#[cfg(not(forebay_loom))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(forebay_loom))]
pub(crate) use std::sync::atomic::AtomicU8;

#[cfg(forebay_loom)]
pub(crate) use loom::sync::atomic::AtomicU8;

/// loom's mutex with the shape of `parking_lot`'s.
#[cfg(forebay_loom)]
#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(forebay_loom)]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
