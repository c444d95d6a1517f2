//! What an upstream says to no call: its lists have changed, a resource has. And who wants to hear it.
//!
//! Whoever listens holds a [`Listener`]; an upstream's [`Hub`] knows its listeners weakly. Publishing never waits:
//! a listener keeps one bit for each kind of list, so that a burst becomes one notice, and at most [`MOST_UPDATES`]
//! updates of resources; further ones are dropped.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

/// Updates that wait for one listener at most.
const MOST_UPDATES: usize = 64;
/// Resources that one listener may watch.
pub(crate) const MOST_WATCHED: usize = 256;

/// Kinds of lists, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    pub(crate) const NONE: Kinds = Kinds(0);
    pub(crate) const TOOLS: Kinds = Kinds(1);
    pub(crate) const PROMPTS: Kinds = Kinds(2);
    pub(crate) const RESOURCES: Kinds = Kinds(4);
    pub(crate) const ALL: Kinds = Kinds(7);

    /// The kind that a notification of this method is about.
    pub(crate) fn of_method(name: &str) -> Kinds {
        use crate::protocol::method;
        match name {
            method::TOOLS_CHANGED => Kinds::TOOLS,
            method::PROMPTS_CHANGED => Kinds::PROMPTS,
            method::RESOURCES_CHANGED => Kinds::RESOURCES,
            _ => Kinds::NONE,
        }
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn from_bits(bits: u8) -> Kinds {
        Kinds(bits & Kinds::ALL.0)
    }

    pub(crate) fn has(self, other: Kinds) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub(crate) fn and(self, other: Kinds) -> Kinds {
        Kinds(self.0 & other.0)
    }

    #[must_use]
    pub(crate) fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }
}

/// The listeners of one upstream.
#[derive(Default)]
pub(crate) struct Hub(Mutex<Vec<Weak<Listener>>>);

impl Hub {
    pub(crate) fn join(&self, listener: &Arc<Listener>) {
        let mut known = self.0.lock();
        known.retain(|one| one.strong_count() > 0);
        if !known.iter().any(|one| std::ptr::eq(one.as_ptr(), Arc::as_ptr(listener))) {
            known.push(Arc::downgrade(listener));
        }
    }

    /// Lists have changed.
    pub(crate) fn changed(&self, kinds: Kinds) {
        for listener in self.0.lock().iter().filter_map(Weak::upgrade) {
            listener.changed(kinds);
        }
    }

    /// A resource has changed: the params of the notice as they came.
    pub(crate) fn updated(&self, uri: &str, params: &str) {
        for listener in self.0.lock().iter().filter_map(Weak::upgrade) {
            listener.updated(uri, params);
        }
    }

    /// Whether anybody watches this resource.
    pub(crate) fn is_watched(&self, uri: &str) -> bool {
        self.0.lock().iter().filter_map(Weak::upgrade).any(|listener| listener.inner.lock().watched.contains(uri))
    }
}

/// Somebody who wants to hear news, of one upstream or several.
#[derive(Debug)]
pub(crate) struct Listener {
    kinds: Kinds,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    watched: HashSet<String>,
    changed: u8,
    updates: VecDeque<Bytes>,
    ended: bool,
    waker: Option<Waker>,
}

/// One piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A list of this kind; a single one.
    Changed(Kinds),
    /// Params of `notifications/resources/updated`.
    Updated(Bytes),
}

impl Listener {
    pub(crate) fn new(kinds: Kinds) -> Arc<Listener> {
        Arc::new(Listener { kinds, inner: Mutex::default() })
    }

    /// Watches a resource. False if it watches too many already.
    pub(crate) fn watch(&self, uri: &str) -> bool {
        let mut inner = self.inner.lock();
        if inner.watched.len() >= MOST_WATCHED && !inner.watched.contains(uri) {
            return false;
        }
        inner.watched.insert(uri.to_owned());
        true
    }

    pub(crate) fn unwatch(&self, uri: &str) {
        self.inner.lock().watched.remove(uri);
    }

    /// Nobody shall listen any more.
    pub(crate) fn end(&self) {
        let mut inner = self.inner.lock();
        inner.ended = true;
        inner.wake();
    }

    fn changed(&self, kinds: Kinds) {
        let kinds = kinds.and(self.kinds);
        if kinds != Kinds::NONE {
            let mut inner = self.inner.lock();
            inner.changed |= kinds.0;
            inner.wake();
        }
    }

    fn updated(&self, uri: &str, params: &str) {
        let mut inner = self.inner.lock();
        // Twice the same says no more than once.
        if inner.watched.contains(uri)
            && inner.updates.len() < MOST_UPDATES
            && !inner.updates.iter().any(|known| known == params.as_bytes())
        {
            inner.updates.push_back(Bytes::copy_from_slice(params.as_bytes()));
            inner.wake();
        }
    }

    /// The next piece of news; none at the end.
    pub(crate) fn poll_next(&self, context: &Context<'_>) -> Poll<Option<News>> {
        let mut inner = self.inner.lock();
        if inner.ended {
            return Poll::Ready(None);
        }
        for kind in [Kinds::TOOLS, Kinds::PROMPTS, Kinds::RESOURCES] {
            if inner.changed & kind.0 != 0 {
                inner.changed &= !kind.0;
                return Poll::Ready(Some(News::Changed(kind)));
            }
        }
        if let Some(update) = inner.updates.pop_front() {
            return Poll::Ready(Some(News::Updated(update)));
        }
        match &inner.waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => inner.waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Inner {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(listener: &Listener) -> Vec<News> {
        let context = Context::from_waker(Waker::noop());
        let next = || match listener.poll_next(&context) {
            Poll::Ready(news) => news,
            Poll::Pending => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn c27_a_burst_becomes_one_notice_of_each_kind_that_is_wanted() {
        let (hub, listener) = (Hub::default(), Listener::new(Kinds::TOOLS.or(Kinds::PROMPTS)));
        hub.join(&listener);
        hub.join(&listener);
        for _ in 0..50 {
            hub.changed(Kinds::TOOLS);
            hub.changed(Kinds::RESOURCES);
        }
        assert_eq!(all(&listener), [News::Changed(Kinds::TOOLS)]);
        hub.changed(Kinds::ALL);
        assert_eq!(all(&listener), [News::Changed(Kinds::TOOLS), News::Changed(Kinds::PROMPTS)]);
    }

    #[test]
    fn updates_are_for_who_watches_and_bounded() {
        let (hub, listener) = (Hub::default(), Listener::new(Kinds::NONE));
        hub.join(&listener);
        hub.updated("a:1", "{}");
        assert!(listener.watch("a:1") && hub.is_watched("a:1") && !hub.is_watched("a:2"));
        for number in 0..1000 {
            hub.updated("a:1", &format!("{{\"n\":{number}}}"));
            hub.updated("a:2", "{}");
        }
        assert_eq!(all(&listener).len(), MOST_UPDATES);
        listener.unwatch("a:1");
        hub.updated("a:1", "{}");
        assert_eq!(all(&listener), []);
        assert!((0..MOST_WATCHED).all(|number| listener.watch(&number.to_string())) && !listener.watch("more"));
    }

    #[test]
    fn a_listener_that_ended_hears_nothing_and_one_that_is_gone_is_forgotten() {
        let (hub, listener) = (Hub::default(), Listener::new(Kinds::ALL));
        hub.join(&listener);
        listener.end();
        hub.changed(Kinds::ALL);
        assert_eq!(listener.poll_next(&Context::from_waker(Waker::noop())), Poll::Ready(None));
        drop(listener);
        hub.changed(Kinds::ALL);
        hub.join(&Listener::new(Kinds::ALL));
        assert_eq!(hub.0.lock().len(), 1);
    }
}
