//! Signed tokens of configured issuers (JWT): who is behind one.
//!
//! The algorithms are those of the config, never the token's own choice; none of them is symmetric. `iss` only
//! chooses among configured issuers, whose keys come from configured URLs ([`keys`]). A token must say who, for
//! whom, from whom and until when. What was verified once is kept until it expires or its issuer's keys change.

mod crypto;
mod keys;
#[cfg(test)]
mod tests;

use crate::config::JwtConfig;
use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::{Validation, decode, decode_header};
use keys::{Keys, NoKey};
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest token that is looked at.
const LONGEST: usize = 8 << 10;
/// Verified tokens kept in each of two generations. With both full the older one goes.
const KEPT: usize = 4096;

/// Why nobody is behind a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    /// Malformed, forged, expired, not for us: all alike.
    Wrong,
    /// It is good, and has not all the scopes that are needed.
    Scope,
    /// Its issuer's keys cannot be had now; in so many milliseconds they may.
    Unready(u64),
}

/// What a good token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub issuer: Arc<str>,
    pub subject: Arc<str>,
    /// Unix time in seconds.
    expires: u64,
    scoped: bool,
    /// Of its issuer's keys.
    epoch: u64,
}

/// See the module's documentation.
pub struct Tokens {
    config: Arc<JwtConfig>,
    issuers: HashMap<Arc<str>, Arc<Keys>>,
    seen: Mutex<Seen>,
}

/// Found by a keyed hash and compared whole, so nobody can aim at another's entry.
#[derive(Default)]
struct Seen {
    young: HashMap<Box<str>, Verified>,
    old: HashMap<Box<str>, Verified>,
}

impl Seen {
    fn get(&mut self, token: &str) -> Option<Verified> {
        if let Some(known) = self.young.get(token) {
            return Some(known.clone());
        }
        let (token, known) = self.old.remove_entry(token)?;
        self.put(token, known.clone());
        Some(known)
    }

    fn put(&mut self, token: Box<str>, verified: Verified) {
        if self.young.len() >= KEPT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(token, verified);
    }
}

/// The claims that count; the rest is checked by the library.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    exp: f64,
    #[serde(default)]
    scope: Option<Words>,
    #[serde(default)]
    scp: Option<Words>,
}

#[derive(Deserialize)]
struct Issued {
    iss: String,
}

/// Scopes as issuers write them: one string with spaces, or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Many(Vec<String>),
}

impl Words {
    fn has(&self, scope: &str) -> bool {
        match self {
            Words::One(text) => text.split(' ').any(|word| word == scope),
            Words::Many(words) => words.iter().any(|word| word == scope),
        }
    }
}

impl Tokens {
    pub fn new(config: Arc<JwtConfig>) -> Self {
        crypto::install();
        let keys = |(issuer, url): (&String, &http::Uri)| (Arc::from(issuer.as_str()), Keys::new(issuer, url));
        Tokens { issuers: config.issuers.iter().map(keys).collect(), config, seen: Mutex::default() }
    }

    pub fn config(&self) -> &Arc<JwtConfig> {
        &self.config
    }

    /// Who is behind a token.
    pub async fn verify(&self, token: &str) -> Result<Verified, BadToken> {
        if token.len() > LONGEST {
            return Err(BadToken::Wrong);
        }
        if let Some(known) = self.known(token) {
            return scoped(known);
        }
        let verified = self.look(token).await?;
        self.seen.lock().put(token.into(), verified.clone());
        scoped(verified)
    }

    /// A token that was verified before, if that still holds.
    fn known(&self, token: &str) -> Option<Verified> {
        let known = self.seen.lock().get(token)?;
        let keys = self.issuers.get(&known.issuer)?;
        let fresh = now() < known.expires.saturating_add(self.config.leeway.as_secs());
        (fresh && keys.usable() && keys.epoch() == known.epoch).then_some(known)
    }

    async fn look(&self, token: &str) -> Result<Verified, BadToken> {
        let wrong = |_| BadToken::Wrong;
        let header = decode_header(token).map_err(wrong)?;
        if !self.config.algorithms.contains(&header.alg) || critical(token) {
            return Err(BadToken::Wrong);
        }
        let kid = header.kid.ok_or(BadToken::Wrong)?;
        let issued: Issued = insecure_decode_claims(token).map_err(wrong)?;
        let (issuer, keys) = self.issuers.get_key_value(&*issued.iss).ok_or(BadToken::Wrong)?;
        let (key, epoch) = keys.find(&kid).await.map_err(|none| match none {
            NoKey::Unknown => BadToken::Wrong,
            NoKey::Unready(ms) => BadToken::Unready(ms),
        })?;
        if key.algorithm.is_some_and(|only| only != header.alg) {
            return Err(BadToken::Wrong);
        }
        let mut validation = Validation::new(header.alg);
        validation.leeway = self.config.leeway.as_secs();
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&**issuer]);
        validation.set_audience(&[&self.config.audience]);
        let claims: Claims = decode(token, &key.key, &validation).map_err(wrong)?.claims;
        if claims.sub.is_empty() || *claims.iss != **issuer {
            return Err(BadToken::Wrong);
        }
        let has = |scope: &String| [&claims.scope, &claims.scp].into_iter().flatten().any(|words| words.has(scope));
        Ok(Verified {
            issuer: issuer.clone(),
            scoped: self.config.scopes.iter().all(has),
            subject: claims.sub.into(),
            expires: claims.exp as u64,
            epoch,
        })
    }
}

fn scoped(verified: Verified) -> Result<Verified, BadToken> {
    if verified.scoped { Ok(verified) } else { Err(BadToken::Scope) }
}

/// Whether the header asks for something that must be understood: nothing of the kind is.
fn critical(token: &str) -> bool {
    use base64::Engine as _;
    let head = token.split('.').next().unwrap_or_default();
    let head = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(head).unwrap_or_default();
    let head: serde_json::Value = serde_json::from_slice(&head).unwrap_or_default();
    head.get("crit").is_some() || !head.is_object()
}

/// Unix time in seconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
