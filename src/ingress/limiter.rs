//! Bounds by address: on wrong credentials, and on open sockets ([`Crowd`]).
//!
//! A limiter for wrong credentials by address (C35). Right ones are never asked about, so it cannot delay a
//! good caller who shares an address with a noisy one.
//!
//! The table has a fixed number of places and an address falls into one by a keyed hash: it cannot be
//! filled up, and two addresses that share a place merely share the allowance for wrong credentials.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::time::Instant;

const PLACES: usize = 4096;
/// Wrong credentials that are answered at once before the limiter says no.
const BURST: u64 = 20;
/// One more is answered every so many milliseconds.
const STEP_MS: u64 = 1000;

pub(crate) struct Limiter {
    started: Instant,
    key: RandomState,
    /// Per place the time, in milliseconds, at which its allowance is whole again.
    places: Vec<AtomicU64>,
}

impl Limiter {
    pub(crate) fn new(started: Instant) -> Self {
        Limiter { started, key: RandomState::new(), places: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes one wrong credential. An error says in how many milliseconds the next is answered.
    pub(crate) fn wrong(&self, address: IpAddr, now: Instant) -> Result<(), u64> {
        let now = now.saturating_duration_since(self.started).as_millis() as u64;
        let place = &self.places[self.key.hash_one(network(address)) as usize % PLACES];
        let mut whole_at = place.load(Relaxed);
        loop {
            let next = whole_at.max(now) + STEP_MS;
            if next > now + BURST * STEP_MS {
                return Err(next - now - BURST * STEP_MS);
            }
            match place.compare_exchange_weak(whole_at, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(changed) => whole_at = changed,
            }
        }
    }
}

/// Open sockets by address. Bounded by the sockets that are open.
#[derive(Default)]
pub(crate) struct Crowd(Mutex<HashMap<u64, u32>>);

impl Crowd {
    /// One socket more from this address, if it has fewer than `most`.
    pub(crate) fn enter(&self, address: IpAddr, most: u32) -> bool {
        let mut open = self.0.lock();
        let here = open.entry(network(address)).or_default();
        if *here >= most {
            return false;
        }
        *here += 1;
        true
    }

    pub(crate) fn leave(&self, address: IpAddr) {
        let mut open = self.0.lock();
        let network = network(address);
        if let Some(here) = open.get_mut(&network) {
            *here -= 1;
            if *here == 0 {
                open.remove(&network);
            }
        }
    }
}

/// What counts as one address: a whole /64 of IPv6, since one host has all of it.
fn network(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn c35_wrong_credentials_are_slowed_by_address() {
        let start = Instant::now();
        let limiter = Limiter::new(start);
        let noisy: IpAddr = "192.0.2.1".parse().unwrap();
        let passed = (0..1000).filter(|_| limiter.wrong(noisy, start).is_ok()).count();
        assert_eq!(passed as u64, BURST);
        assert_eq!(limiter.wrong(noisy, start), Err(STEP_MS));
        let later = start + Duration::from_millis(STEP_MS);
        assert_eq!(limiter.wrong(noisy, later), Ok(()));
        assert!(limiter.wrong(noisy, later).is_err());
        assert_eq!(limiter.places.len(), PLACES);
    }

    #[test]
    fn an_address_has_so_many_sockets_and_no_more() {
        let crowd = Crowd::default();
        let (one, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert!(crowd.enter(one, 2) && crowd.enter(one, 2) && !crowd.enter(one, 2));
        assert!(crowd.enter(other, 2));
        crowd.leave(one);
        assert!(crowd.enter(one, 2));
        [one, one, other].iter().for_each(|address| crowd.leave(*address));
        assert!(crowd.0.lock().is_empty());
    }

    #[test]
    fn one_host_of_ipv6_is_one_address() {
        let network = |text: &str| super::network(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
    }
}
