//! All callers that are known, found by key or by name.

use super::key::{self, KeyHash};
use super::token::{BadToken, Tokens};
use super::{Caller, CallerId};
use crate::config::{Auth, CallerConfig, Config};
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// The name under which callers without identity share one record (rule R33).
pub const ANONYMOUS: &str = "anonymous";

/// Subjects that the config does not name, at most; a newcomer beyond is turned away.
const MOST_SUBJECTS: usize = 200_000;
/// How long a subject is remembered that makes no calls.
const IDLE: Duration = Duration::from_secs(600);

/// See the module's documentation.
pub struct Callers {
    table: ArcSwap<Table>,
    /// With `jwt`: what tokens are checked with.
    tokens: ArcSwapOption<Tokens>,
    anonymous: Arc<Caller>,
    next_id: AtomicU32,
    subjects: Mutex<Subjects>,
}

/// The callers of a config. Sorted, since a hash table's free places would cost as much as a record.
#[derive(Default)]
struct Table {
    /// By the hash, whose head is the key's id.
    by_key: Vec<(KeyHash, Arc<Caller>)>,
    by_name: Vec<Arc<Caller>>,
    /// By issuer and subject.
    by_subject: HashMap<String, HashMap<String, Arc<Caller>>>,
    by_uid: HashMap<u32, Arc<Caller>>,
}

impl Table {
    fn get(&self, name: &str) -> Option<&Arc<Caller>> {
        let at = self.by_name.binary_search_by(|caller| (*caller.name).cmp(name)).ok()?;
        self.by_name.get(at)
    }
}

/// Subjects that were verified otherwise than by a key of the config.
#[derive(Default)]
struct Subjects {
    known: HashMap<Arc<str>, Arc<Caller>>,
    /// How many there may be before the idle ones are looked for.
    sweep_at: usize,
}

impl Subjects {
    /// Forgets who holds no call and would find the same limits as a new record; how many.
    fn sweep(&mut self, now: Instant) -> usize {
        let before = self.known.len();
        self.known.retain(|_, caller| Arc::strong_count(caller) > 1 || !caller.is_idle(IDLE, now));
        if self.known.len() * 2 < self.known.capacity() {
            self.known.shrink_to_fit();
        }
        // Twice what is in use: so a newcomer pays for two looks at others on average.
        self.sweep_at = (self.known.len() * 2).clamp(1024, MOST_SUBJECTS);
        before - self.known.len()
    }
}

impl Callers {
    /// The callers of a config.
    pub fn new(config: &Config) -> Self {
        let own = config.callers.get(ANONYMOUS).cloned().unwrap_or_default();
        let callers = Callers {
            table: ArcSwap::default(),
            tokens: ArcSwapOption::empty(),
            anonymous: Arc::new(Caller::new(CallerId(0), ANONYMOUS.into(), "none", own)),
            next_id: AtomicU32::new(1),
            subjects: Mutex::default(),
        };
        callers.reload(config);
        callers
    }

    /// Takes over a changed config. A caller that stays keeps its record, and with it what it has used up.
    pub fn reload(&self, config: &Config) {
        let old = self.table.load_full();
        let now = Instant::now();
        let keys = config.callers.values().map(|settings| settings.keys.len()).sum();
        let mut table = Table {
            by_key: Vec::with_capacity(keys),
            by_name: Vec::with_capacity(config.callers.len()),
            ..Table::default()
        };
        for (name, settings) in &config.callers {
            let caller = if name == ANONYMOUS {
                self.anonymous.set_config(settings.clone(), now);
                self.anonymous.clone()
            } else if let Some(known) = old.get(name) {
                known.set_config(settings.clone(), now);
                known.clone()
            } else {
                let id = CallerId(self.next_id.fetch_add(1, Relaxed));
                let identity = match settings {
                    settings if !settings.keys.is_empty() => "key",
                    settings if !settings.subjects.is_empty() => "jwt",
                    settings if !settings.uids.is_empty() => "peer-uid",
                    _ => "key",
                };
                Arc::new(Caller::new(id, name.as_str().into(), identity, settings.clone()))
            };
            if let Some(issuer) = &settings.issuer {
                let subjects = table.by_subject.entry(issuer.clone()).or_default();
                subjects.extend(settings.subjects.iter().map(|subject| (subject.clone(), caller.clone())));
            }
            table.by_uid.extend(settings.uids.iter().map(|uid| (*uid, caller.clone())));
            for hash in &settings.keys {
                table.by_key.push((*hash, caller.clone()));
            }
            table.by_name.push(caller);
        }
        if !config.callers.contains_key(ANONYMOUS) {
            self.anonymous.set_config(Arc::new(CallerConfig::default()), now);
        }
        // Names come sorted out of the config.
        table.by_key.sort_unstable_by_key(|(hash, _)| *hash);
        self.table.store(Arc::new(table));
        match &config.auth {
            Auth::None | Auth::Keys => self.tokens.store(None),
            // Fetched keys and verified tokens outlive a reload that does not concern them.
            Auth::Jwt(jwt) if self.tokens.load().as_ref().is_some_and(|tokens| tokens.config() == jwt) => {}
            Auth::Jwt(jwt) => self.tokens.store(Some(Arc::new(Tokens::new(jwt.clone())))),
        }
    }

    /// The caller of a presented token. A subject that no caller has is nobody, however good its token.
    pub async fn by_token(&self, presented: &str) -> Result<Arc<Caller>, BadToken> {
        let tokens = self.tokens.load_full().ok_or(BadToken::Wrong)?;
        let verified = tokens.verify(presented).await?;
        let table = self.table.load();
        let caller = table.by_subject.get(&*verified.issuer).and_then(|subjects| subjects.get(&*verified.subject));
        caller.cloned().ok_or(BadToken::Wrong)
    }

    /// The caller that the config has for a user id.
    pub fn by_uid(&self, uid: u32) -> Option<Arc<Caller>> {
        self.table.load().by_uid.get(&uid).cloned()
    }

    /// The same; a user that the config does not name has a record of its own, with the rights of whoever is
    /// anonymous.
    pub fn user(&self, uid: u32) -> Arc<Caller> {
        if let Some(caller) = self.by_uid(uid) {
            return caller;
        }
        let own = self.anonymous.config.load_full();
        self.subject(&format!("uid:{uid}"), "peer-uid", &own, Instant::now()).unwrap_or_else(|| self.anonymous.clone())
    }

    /// The caller without identity.
    pub fn anonymous(&self) -> &Arc<Caller> {
        &self.anonymous
    }

    /// The caller of a presented key. Every key is hashed and compared, known or not.
    pub fn by_key(&self, presented: &str) -> Option<Arc<Caller>> {
        let (id, hash) = key::presented(presented)?;
        let table = self.table.load();
        // The id is the head of the hash, so whoever knows neither finds where others stand, and nothing more.
        let from = table.by_key.partition_point(|(known, _)| known[..4] < hash[..4]);
        let near = table.by_key[from..].iter().take_while(|(known, _)| known[..4] == hash[..4]);
        let mut found = near.filter(|(known, _)| key::same(known, &hash) && key::id(known) == id);
        found.next().map(|(_, caller)| caller.clone())
    }

    /// Shows all callers in no order, the one without identity among them.
    pub fn each(&self, mut show: impl FnMut(&Arc<Caller>)) {
        let table = self.table.load();
        table.by_name.iter().for_each(&mut show);
        if table.get(ANONYMOUS).is_none() {
            show(&self.anonymous);
        }
        let subjects: Vec<_> = self.subjects.lock().known.values().cloned().collect();
        subjects.iter().for_each(show);
    }

    pub fn by_name(&self, name: &str) -> Option<Arc<Caller>> {
        if name == ANONYMOUS {
            return Some(self.anonymous.clone());
        }
        let configured = self.table.load().get(name).cloned();
        configured.or_else(|| self.subjects.lock().known.get(name).cloned())
    }

    /// The record of a subject that the config does not name, made when it is first seen and forgotten when it has
    /// been idle for ten minutes. `settings` are those of all its kind. None if there are too many that are not idle.
    pub fn subject(
        &self,
        name: &str,
        identity: &'static str,
        settings: &Arc<CallerConfig>,
        now: Instant,
    ) -> Option<Arc<Caller>> {
        let mut subjects = self.subjects.lock();
        if let Some(known) = subjects.known.get(name) {
            if !Arc::ptr_eq(&known.config.load(), settings) {
                known.set_config(settings.clone(), now);
            }
            return Some(known.clone());
        }
        if subjects.known.len() >= subjects.sweep_at {
            subjects.sweep(now);
            if subjects.known.len() >= MOST_SUBJECTS {
                return None;
            }
        }
        let id = CallerId(self.next_id.fetch_add(1, Relaxed));
        let caller = Arc::new(Caller::new(id, name.into(), identity, settings.clone()));
        subjects.known.insert(caller.name.clone(), caller.clone());
        Some(caller)
    }

    /// Forgets subjects that are idle; how many.
    pub fn evict_idle(&self, now: Instant) -> usize {
        self.subjects.lock().sweep(now)
    }
}
