//! Call ids: short, unique over restarts and replicas, easy to type (rule R27).
//!
//! `k3f9q-1f9` is 25 random bits fixed when the daemon starts, a dash, and a sequence number, both in
//! Crockford's base32. Rights, not secrecy, protect a call: nothing may hang on an id being hard to guess.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const MARK_LETTERS: usize = 5;

/// The id of one call: the mark of the daemon's run, and the call's number in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    mark: u32,
    seq: u64,
}

impl CallId {
    /// The number of the call within its run; the key of the live table.
    pub fn seq(self) -> u64 {
        self.seq
    }

    /// Appends the id as text, without allocating.
    pub fn write_to(self, out: &mut Vec<u8>) {
        write_mark(self.mark, out);
        out.push(b'-');
        write_number(self.seq, out);
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(20);
        self.write_to(&mut text);
        f.pad(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a person typed for a call: a whole id, or its number alone, which means the running daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRef {
    mark: Option<u32>,
    seq: u64,
}

/// Why a text is no call id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a call id: ids look like k3f9q-1f9, or 1f9 for this run of the daemon")]
pub struct BadCallId(pub String);

impl FromStr for CallRef {
    type Err = BadCallId;

    fn from_str(text: &str) -> Result<Self, BadCallId> {
        let bad = || BadCallId(text.chars().take(40).collect());
        let (mark, seq) = match text.rsplit_once('-') {
            Some((mark, seq)) if mark.len() == MARK_LETTERS => {
                let mark = read_number(mark).ok_or_else(bad)?;
                (Some(u32::try_from(mark).map_err(|_| bad())?), seq)
            }
            Some(_) => return Err(bad()),
            None => (None, text),
        };
        Ok(CallRef { mark, seq: read_number(seq).ok_or_else(bad)? })
    }
}

/// Gives out ids for one run of the daemon.
#[derive(Debug)]
pub struct IdMint {
    mark: u32,
    next: AtomicU64,
}

impl IdMint {
    /// `randomness` is 25 bits of it; the rest is ignored.
    pub fn new(randomness: u32) -> Self {
        // Numbers start at 33 so that no id is a single letter, which is too easy to mistype.
        IdMint { mark: randomness & 0x01ff_ffff, next: AtomicU64::new(33) }
    }

    /// The next id.
    pub fn mint(&self) -> CallId {
        CallId { mark: self.mark, seq: self.next.fetch_add(1, Relaxed) }
    }

    /// The id that `reference` means here, or none if it names another run.
    pub fn resolve(&self, reference: CallRef) -> Option<CallId> {
        match reference.mark {
            Some(mark) if mark != self.mark => None,
            _ => Some(CallId { mark: self.mark, seq: reference.seq }),
        }
    }

    /// The mark of this run, as it stands before the dash.
    pub fn mark(&self) -> String {
        let mut text = Vec::with_capacity(MARK_LETTERS);
        write_mark(self.mark, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn write_mark(mark: u32, out: &mut Vec<u8>) {
    for place in (0..MARK_LETTERS).rev() {
        out.push(ALPHABET[(mark >> (5 * place)) as usize & 31]);
    }
}

fn write_number(mut number: u64, out: &mut Vec<u8>) {
    let letters = (64 - number.leading_zeros()).div_ceil(5).max(1) as usize;
    let start = out.len();
    out.resize(start + letters, 0);
    for place in out[start..].iter_mut().rev() {
        *place = ALPHABET[(number & 31) as usize];
        number >>= 5;
    }
}

fn read_number(text: &str) -> Option<u64> {
    if text.is_empty() || text.len() > 13 {
        return None;
    }
    let mut number = 0u64;
    for letter in text.bytes() {
        let digit = match letter.to_ascii_lowercase() {
            b'o' => 0,
            b'i' | b'l' => 1,
            other => ALPHABET.iter().position(|known| *known == other)? as u64,
        };
        number = number.checked_mul(32)?.checked_add(digit)?;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_read_back_is_the_same_id(mark in 0u32..1 << 25, seq in any::<u64>()) {
            let id = CallId { mark, seq };
            let read: CallRef = id.to_string().parse().unwrap();
            prop_assert_eq!(read, CallRef { mark: Some(mark), seq });
        }

        #[test]
        fn any_text_is_an_id_or_an_error(text in ".{0,40}") {
            let _ = text.parse::<CallRef>();
        }
    }

    #[test]
    fn a_number_alone_means_this_run_and_another_mark_means_none() {
        let mint = IdMint::new(12345);
        let id = mint.mint();
        let text = id.to_string();
        let (_, number) = text.split_once('-').unwrap();
        assert_eq!(mint.resolve(number.parse().unwrap()), Some(id));
        assert_eq!(mint.resolve(text.to_uppercase().parse().unwrap()), Some(id));
        assert_eq!(IdMint::new(54321).resolve(text.parse().unwrap()), None);
    }

    #[test]
    fn letters_that_look_alike_are_read_alike() {
        assert_eq!("1O".parse::<CallRef>().unwrap(), "l0".parse::<CallRef>().unwrap());
        assert!("1u".parse::<CallRef>().is_err());
        assert!("".parse::<CallRef>().is_err());
        assert!("k3-1f9".parse::<CallRef>().is_err());
        assert!("zzzzzzzzzzzzzzz".parse::<CallRef>().is_err());
    }
}
