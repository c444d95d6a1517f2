//! All callers that are known, found by key or by name.

use super::key::{self, KeyHash};
use super::{Caller, CallerId};
use crate::config::{CallerConfig, Config};
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tokio::time::Instant;

/// The name under which callers without identity share one record (rule R33).
pub const ANONYMOUS: &str = "anonymous";

/// See the module's documentation.
pub struct Callers {
    table: ArcSwap<Table>,
    anonymous: Arc<Caller>,
    next_id: AtomicU32,
}

#[derive(Default)]
struct Table {
    by_key_id: HashMap<String, Vec<(KeyHash, Arc<Caller>)>>,
    by_name: HashMap<Arc<str>, Arc<Caller>>,
}

impl Callers {
    /// The callers of a config.
    pub fn new(config: &Config) -> Self {
        let own = config.callers.get(ANONYMOUS).cloned().unwrap_or_default();
        let callers = Callers {
            table: ArcSwap::default(),
            anonymous: Arc::new(Caller::new(CallerId(0), ANONYMOUS.into(), "none", own)),
            next_id: AtomicU32::new(1),
        };
        callers.reload(config);
        callers
    }

    /// Takes over a changed config. A caller that stays keeps its record, and with it what it has used up.
    pub fn reload(&self, config: &Config) {
        let old = self.table.load_full();
        let now = Instant::now();
        let mut table = Table::default();
        for (name, settings) in &config.callers {
            let caller = if name == ANONYMOUS {
                self.anonymous.set_config(settings.clone(), now);
                self.anonymous.clone()
            } else if let Some(known) = old.by_name.get(&**name) {
                known.set_config(settings.clone(), now);
                known.clone()
            } else {
                let id = CallerId(self.next_id.fetch_add(1, Relaxed));
                Arc::new(Caller::new(id, name.as_str().into(), "key", settings.clone()))
            };
            for hash in &settings.keys {
                table.by_key_id.entry(key::id(hash)).or_default().push((*hash, caller.clone()));
            }
            table.by_name.insert(caller.name.clone(), caller);
        }
        if !config.callers.contains_key(ANONYMOUS) {
            self.anonymous.set_config(Arc::new(CallerConfig::default()), now);
        }
        self.table.store(Arc::new(table));
    }

    /// The caller without identity.
    pub fn anonymous(&self) -> &Arc<Caller> {
        &self.anonymous
    }

    /// The caller of a presented key. Every key is hashed and compared, known or not.
    pub fn by_key(&self, presented: &str) -> Option<Arc<Caller>> {
        let (id, hash) = key::presented(presented)?;
        let table = self.table.load();
        table.by_key_id.get(id)?.iter().find(|(known, _)| key::same(known, &hash)).map(|(_, caller)| caller.clone())
    }

    /// Shows all callers in no order, the one without identity among them.
    pub fn each(&self, mut show: impl FnMut(&Arc<Caller>)) {
        let table = self.table.load();
        table.by_name.values().for_each(&mut show);
        if !table.by_name.contains_key(ANONYMOUS) {
            show(&self.anonymous);
        }
    }

    pub fn by_name(&self, name: &str) -> Option<Arc<Caller>> {
        if name == ANONYMOUS {
            return Some(self.anonymous.clone());
        }
        self.table.load().by_name.get(name).cloned()
    }
}
