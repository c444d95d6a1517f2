//! The daemon's memory budget for bodies and results (rule R16): one count, and charges that give back what
//! they took.
//!
//! A body is charged while its call lives, a result from when it is whole until its last byte is handed to
//! the kernel or its socket closes: the charge goes with the bytes themselves, so nobody can forget it.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes held at this moment. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<AtomicU64>);

/// Bytes taken from the budget, given back on drop.
#[derive(Debug)]
pub struct Charge {
    bytes: u64,
    memory: Memory,
}

impl Memory {
    /// Bytes held at this moment.
    pub fn held(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Takes `bytes`, if no more than `most` are held with them.
    pub fn take(&self, bytes: u64, most: u64) -> Option<Charge> {
        let mut charge = self.take_anyway(0);
        charge.grow(bytes, most).then_some(charge)
    }

    /// Takes `bytes` for what is there already and cannot be refused any more.
    pub fn take_anyway(&self, bytes: u64) -> Charge {
        self.0.fetch_add(bytes, Relaxed);
        Charge { bytes, memory: self.clone() }
    }

    /// The same bytes, charged until the last handle on them is gone.
    pub fn hold(&self, bytes: Bytes) -> Bytes {
        let charge = self.take_anyway(bytes.len() as u64);
        Bytes::from_owner(Held { bytes, _charge: charge })
    }
}

impl Charge {
    /// Takes `bytes` more, if no more than `most` are held with them. They stay charged either way.
    pub fn grow(&mut self, bytes: u64, most: u64) -> bool {
        self.bytes += bytes;
        self.memory.0.fetch_add(bytes, Relaxed).saturating_add(bytes) <= most
    }

    /// Whose budget it is.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Relaxed);
    }
}

struct Held {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r16_what_is_taken_comes_back() {
        let memory = Memory::default();
        let one = memory.take(60, 100).unwrap();
        assert!(memory.take(41, 100).is_none());
        assert_eq!(memory.held(), 60, "what was refused is not held");
        let mut two = memory.take(40, 100).unwrap();
        assert!(!two.grow(1, 100));
        assert_eq!(memory.held(), 101);
        drop((one, two));
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn r16_a_result_is_charged_until_its_last_handle_is_gone() {
        let memory = Memory::default();
        let held = memory.hold(Bytes::from(vec![b'x'; 10]));
        let part = held.slice(3..5);
        drop(held);
        assert_eq!((memory.held(), &*part), (10, &b"xx"[..]));
        drop(part);
        assert_eq!(memory.held(), 0);
    }
}
