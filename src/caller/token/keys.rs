//! An issuer's public keys: fetched from its configured URL, kept, and asked for again in measure.
//!
//! A key id that is not known may be a new key, so it is looked for once more, but never more often than every
//! [`EVERY`], whatever comes. Keys that cannot be renewed are used for [`STALE`] and not longer.

use crate::upstream::transport::http::get;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::Uri;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// Two fetches are at least so far apart, once there are keys.
pub(super) const EVERY: Duration = Duration::from_secs(30);
/// The same while there are none.
const RETRY: Duration = Duration::from_secs(2);
/// Keys as old as this are renewed behind the calls that use them.
const REFRESH: Duration = Duration::from_secs(600);
/// Keys older than this are not used.
pub(super) const STALE: Duration = Duration::from_secs(3600);
/// How long one fetch may take, and how much may come.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 1 << 20;
/// Keys of one issuer at most; the rest is left out.
const MOST_KEYS: usize = 256;

/// One public key.
pub(super) struct Key {
    pub(super) key: DecodingKey,
    /// The one algorithm that it is for, if it says so.
    pub(super) algorithm: Option<Algorithm>,
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    Unknown,
    /// No keys are to be had; in so many milliseconds it is tried again.
    Unready(u64),
}

struct Held {
    keys: HashMap<String, Arc<Key>>,
    at: Instant,
    epoch: u64,
    raw: Bytes,
}

/// See the module's documentation.
pub(super) struct Keys {
    issuer: String,
    url: Uri,
    held: ArcSwapOption<Held>,
    epochs: AtomicU64,
    /// When a fetch was begun last.
    begun: Mutex<Option<Instant>>,
    fetching: tokio::sync::Mutex<()>,
}

impl Keys {
    pub(super) fn new(issuer: &str, url: &Uri) -> Arc<Self> {
        Arc::new(Keys {
            issuer: issuer.into(),
            url: url.clone(),
            held: ArcSwapOption::empty(),
            epochs: AtomicU64::new(0),
            begun: Mutex::new(None),
            fetching: tokio::sync::Mutex::default(),
        })
    }

    /// Changes with every other set of keys.
    pub(super) fn epoch(&self) -> u64 {
        self.held.load().as_ref().map_or(0, |held| held.epoch)
    }

    /// Whether there are keys that may be used. Old ones are renewed meanwhile.
    pub(super) fn usable(self: &Arc<Self>) -> bool {
        let held = self.held.load();
        let Some(held) = &*held else { return false };
        let age = held.at.elapsed();
        if age >= REFRESH && self.may_begin() {
            let keys = self.clone();
            tokio::spawn(async move { keys.fetch().await });
        }
        age < STALE
    }

    /// The key of this id, with the epoch of its set.
    pub(super) async fn find(self: &Arc<Self>, kid: &str) -> Result<(Arc<Key>, u64), NoKey> {
        if self.usable()
            && let Some(found) = self.get(kid)
        {
            return Ok(found);
        }
        // In a task of its own: a client that goes away must not take with it what others wait for.
        let keys = self.clone();
        let _ = tokio::spawn(async move {
            let _one_at_a_time = keys.fetching.lock().await;
            if keys.may_begin() {
                keys.fetch().await;
            }
        })
        .await;
        if !self.usable() {
            return Err(NoKey::Unready(RETRY.as_millis() as u64));
        }
        self.get(kid).ok_or(NoKey::Unknown)
    }

    fn get(&self, kid: &str) -> Option<(Arc<Key>, u64)> {
        let held = self.held.load();
        let held = held.as_ref()?;
        Some((held.keys.get(kid)?.clone(), held.epoch))
    }

    /// Whether a fetch may begin now; if so it counts as begun.
    fn may_begin(&self) -> bool {
        let apart = if self.held.load().is_some() { EVERY } else { RETRY };
        let mut begun = self.begun.lock();
        let may = begun.is_none_or(|last| last.elapsed() >= apart);
        if may {
            *begun = Some(Instant::now());
        }
        may
    }

    async fn fetch(&self) {
        let keys = match get(&self.url, FETCH_TIMEOUT, MOST_BYTES).await {
            Ok(raw) => read(&raw).map(|keys| (keys, raw)),
            Err(fault) => Err(fault),
        };
        match keys {
            Ok((keys, raw)) => {
                let same = self.held.load().as_ref().filter(|held| held.raw == raw).map(|held| held.epoch);
                let epoch = same.unwrap_or_else(|| self.epochs.fetch_add(1, Relaxed) + 1);
                tracing::debug!(issuer = %self.issuer, keys = keys.len(), "an issuer's keys were fetched");
                self.held.store(Some(Arc::new(Held { keys, at: Instant::now(), epoch, raw })));
            }
            Err(fault) => tracing::warn!(issuer = %self.issuer, %fault, "an issuer's keys could not be fetched"),
        }
    }
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<serde_json::Value>,
}

/// The keys of a set that can check signatures. What is not understood is left out, and so is every symmetric key.
fn read(raw: &[u8]) -> Result<HashMap<String, Arc<Key>>, String> {
    let set: Set = serde_json::from_slice(raw).map_err(|fault| format!("it is no set of keys: {fault}"))?;
    let mut keys = HashMap::new();
    for value in set.keys.into_iter().take(MOST_KEYS) {
        let Ok(jwk) = serde_json::from_value::<Jwk>(value) else { continue };
        let Some(kid) = jwk.common.key_id.clone() else { continue };
        if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
            continue;
        }
        let fits = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => true,
            AlgorithmParameters::EllipticCurve(key) => matches!(key.curve, EllipticCurve::P256 | EllipticCurve::P384),
            AlgorithmParameters::OctetKeyPair(key) => key.curve == EllipticCurve::Ed25519,
            _ => false,
        };
        let algorithm = match &jwk.common.key_algorithm {
            None => None,
            Some(named) => match Algorithm::from_str(&named.to_string()) {
                Ok(algorithm) => Some(algorithm),
                Err(_) => continue,
            },
        };
        if let (true, Ok(key)) = (fits, DecodingKey::from_jwk(&jwk)) {
            keys.insert(kid, Arc::new(Key { key, algorithm }));
        }
    }
    if keys.is_empty() { Err("no key in it can check a signature".into()) } else { Ok(keys) }
}
