//! A connection that is exchanged for another one under a running actor: what a changed command or address needs.
//!
//! The actor, the handle and the recipe of the next incarnation hold this one; which server is behind it is decided
//! here. When it may be exchanged is [`Upstream::exchange`](super::Upstream::exchange)'s to say.

use super::connection::{AskError, Connection, Report, Run, RunId, ServerInfo, StopReason};
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Swap {
    /// None while there is nothing to connect to yet. Boxed once more, since a swap takes sized values only.
    inner: ArcSwapOption<Arc<dyn Connection>>,
}

impl Swap {
    pub(super) fn new(connection: Arc<dyn Connection>) -> Self {
        Swap { inner: ArcSwapOption::from_pointee(connection) }
    }

    /// The former one must have been closed.
    pub(super) fn set(&self, connection: Arc<dyn Connection>) {
        self.inner.store(Some(Arc::new(connection)));
    }

    fn get(&self) -> Option<Arc<dyn Connection>> {
        self.inner.load().as_deref().cloned()
    }
}

impl Connection for Swap {
    fn open(&self) {
        if let Some(inner) = &*self.inner.load() {
            inner.open();
        }
    }

    fn begin(&self, run: Run) {
        match &*self.inner.load() {
            Some(inner) => inner.begin(run),
            None => run.hand_back(),
        }
    }

    fn stop(&self, run: RunId, why: StopReason) {
        if let Some(inner) = &*self.inner.load() {
            inner.stop(run, why);
        }
    }

    fn forget(&self, run: RunId) {
        if let Some(inner) = &*self.inner.load() {
            inner.forget(run);
        }
    }

    fn recycle(&self, run: RunId) {
        if let Some(inner) = &*self.inner.load() {
            inner.recycle(run);
        }
    }

    fn reset(&self, why: &str) {
        if let Some(inner) = &*self.inner.load() {
            inner.reset(why);
        }
    }

    fn ask(
        &self,
        method: &str,
        params: Option<&str>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Bytes, AskError>> {
        match &*self.inner.load() {
            Some(inner) => inner.ask(method, params, timeout),
            None => Box::pin(async { Err(AskError::Down("it is not connected yet".into())) }),
        }
    }

    fn server(&self) -> Option<Arc<ServerInfo>> {
        self.get()?.server()
    }

    fn report(&self) -> Report {
        self.get().map(|inner| inner.report()).unwrap_or_default()
    }

    fn brief(&self) -> Report {
        self.get().map(|inner| inner.brief()).unwrap_or_default()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        match self.get() {
            Some(inner) => inner.close(),
            None => Box::pin(async {}),
        }
    }
}
