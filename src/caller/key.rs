//! Bearer keys (rule R34): `fb_<id>_<256 random bits>`.
//!
//! The config stores the SHA-256 of the secret part; keys are random, so a fast hash is enough, and a slow
//! one would let wrong keys burn the processor. The id is the head of that hash, so the hash alone, as the
//! config has it, is enough to find a key by its id.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ID_LETTERS: usize = 8;
const SECRET_LETTERS: usize = 52;

/// SHA-256 of a key's secret part.
pub type KeyHash = [u8; 32];

/// A key as its caller holds it.
#[derive(Clone)]
pub struct Key {
    text: String,
    hash: KeyHash,
}

impl Key {
    /// Makes a key from 32 random bytes.
    pub fn new(randomness: [u8; 32]) -> Self {
        let secret = base32(&randomness, SECRET_LETTERS);
        let hash = hash(&secret);
        Key { text: format!("fb_{}_{secret}", id(&hash)), hash }
    }

    /// The whole key, to be shown once.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// What the config stores: `sha256:` and 64 hex digits.
    pub fn key_hash(&self) -> String {
        let mut text = String::from("sha256:");
        for byte in self.hash {
            use std::fmt::Write as _;
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// Reads a `key_hash` of the config.
pub fn parse_key_hash(text: &str) -> Option<KeyHash> {
    let digits = text.strip_prefix("sha256:")?;
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// The id under which a key with this hash is found.
pub fn id(hash: &KeyHash) -> String {
    base32(hash, ID_LETTERS)
}

/// Splits a presented key into its id and the hash of its secret. None if it has not the form of a key.
pub fn presented(text: &str) -> Option<(&str, KeyHash)> {
    let (id, secret) = text.strip_prefix("fb_")?.split_once('_')?;
    (id.len() == ID_LETTERS && secret.len() == SECRET_LETTERS).then(|| (id, hash(secret)))
}

/// Compares two hashes in constant time.
pub fn same(one: &KeyHash, other: &KeyHash) -> bool {
    one.ct_eq(other).into()
}

fn hash(secret: &str) -> KeyHash {
    Sha256::digest(secret.as_bytes()).into()
}

/// The first `letters` five-bit groups of `bytes`; what is missing at the end counts as zero bits.
fn base32(bytes: &[u8], letters: usize) -> String {
    let bit = |at: usize| bytes.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0);
    (0..letters)
        .map(|letter| {
            let value = (0..5).fold(0usize, |value, at| value << 1 | usize::from(bit(letter * 5 + at)));
            char::from(ALPHABET[value])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_id_and_matches_its_hash_only() {
        let key = Key::new([7; 32]);
        let stored = parse_key_hash(&key.key_hash()).unwrap();
        let (key_id, hash) = presented(key.expose()).unwrap();
        assert_eq!(key_id, id(&stored));
        assert!(same(&hash, &stored));
        let other = Key::new([8; 32]);
        assert!(!same(&presented(other.expose()).unwrap().1, &stored));
    }

    #[test]
    fn what_is_no_key_is_none() {
        for text in ["", "fb_", "fb_x_y", "Bearer x", "fb_00000000_short"] {
            assert!(presented(text).is_none());
        }
        assert!(parse_key_hash("sha256:zz").is_none());
        assert!(parse_key_hash(&format!("sha256:{}", "g".repeat(64))).is_none());
    }
}
