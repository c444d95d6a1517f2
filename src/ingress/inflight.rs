//! Calls of legacy clients by the id that the client gave them, so that its cancel finds them (C04, C26).
//!
//! A common client gives the same id to everything; of several live calls under one id none is meant.

use super::session::SessionId;
use crate::call::Call;
use crate::caller::CallerId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

const SHARDS: usize = 16;

/// Whose ids these are: one caller, and its session if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub caller: CallerId,
    pub session: Option<SessionId>,
}

/// Live calls by a keyed hash of owner and id; entries are compared again, so a collision harms nobody.
type Shard = HashMap<u64, Vec<(Owner, Arc<Call>)>>;

/// See the module's documentation. Bounded by the calls that are live.
pub(crate) struct Inflight {
    key: RandomState,
    shards: Vec<Mutex<Shard>>,
}

impl Default for Inflight {
    fn default() -> Self {
        Inflight { key: RandomState::new(), shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Inflight {
    pub(crate) fn add(&self, owner: Owner, call: &Arc<Call>) {
        let hash = self.hash(owner, call.request.id.of_bytes(&call.request.body));
        let mut shard = self.shard(hash).lock();
        shard.entry(hash).or_insert_with(|| Vec::with_capacity(1)).push((owner, call.clone()));
    }

    pub(crate) fn remove(&self, owner: Owner, call: &Arc<Call>) {
        let hash = self.hash(owner, call.request.id.of_bytes(&call.request.body));
        let mut shard = self.shard(hash).lock();
        if let Some(entry) = shard.get_mut(&hash) {
            entry.retain(|(_, known)| !Arc::ptr_eq(known, call));
            if entry.is_empty() {
                shard.remove(&hash);
            }
        }
    }

    /// The one live call that `owner` gave this id, as it was written.
    pub(crate) fn find(&self, owner: Owner, id: &[u8]) -> Option<Arc<Call>> {
        let hash = self.hash(owner, id);
        let shard = self.shard(hash).lock();
        let mut meant = shard
            .get(&hash)?
            .iter()
            .filter(|(known, call)| *known == owner && call.request.id.of_bytes(&call.request.body) == id);
        match (meant.next(), meant.next()) {
            (Some((_, call)), None) => Some(call.clone()),
            _ => None,
        }
    }

    fn hash(&self, owner: Owner, id: &[u8]) -> u64 {
        self.key.hash_one((owner, id))
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[hash as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Accepted, Ending, IdMint, OnFinish};
    use crate::caller::{Caller, Lane};
    use crate::protocol::envelope::{Message, read};
    use crate::protocol::splice::ReplyForm;
    use bytes::Bytes;

    struct Nobody;
    impl OnFinish for Nobody {
        fn finished(&self, _: &Call, _: &Arc<Ending>) {}
    }

    fn call(id: &str) -> Arc<Call> {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#);
        let Ok(Message::Request(request)) = read(Bytes::from(text)) else { panic!() };
        Call::accept(Accepted {
            id: IdMint::new(1).mint(),
            caller: Arc::new(Caller::new(CallerId(1), "a".into(), "none", Arc::default())),
            upstream: "up".into(),
            request,
            target: "x".into(),
            renamed: false,
            tool: None,
            weight: 1,
            lane: Lane::Normal,
            arrived: tokio::time::Instant::now(),
            deadline: None,
            home: 0,
            form: ReplyForm::Result,
            notices: None,
            ledger: Arc::default(),
            on_finish: Arc::new(Nobody),
            charge: None,
            parent: None,
        })
    }

    #[test]
    fn c26_an_ambiguous_id_means_nothing() {
        let inflight = Inflight::default();
        let owner = Owner { caller: CallerId(1), session: SessionId::parse(&"0".repeat(32)) };
        let (one, two) = (call("1"), call("1"));
        inflight.add(owner, &one);
        assert!(Arc::ptr_eq(&inflight.find(owner, b"1").unwrap(), &one));
        assert!(inflight.find(owner, b"\"1\"").is_none());
        assert!(inflight.find(Owner { caller: CallerId(2), ..owner }, b"1").is_none());
        assert!(inflight.find(Owner { session: None, ..owner }, b"1").is_none());
        inflight.add(owner, &two);
        assert!(inflight.find(owner, b"1").is_none());
        inflight.remove(owner, &one);
        assert!(Arc::ptr_eq(&inflight.find(owner, b"1").unwrap(), &two));
        inflight.remove(owner, &two);
        assert!(inflight.find(owner, b"1").is_none());
        assert!(inflight.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
