//! An upstream whose address or headers cannot be used: it says so, and nothing else.

use super::super::super::connection::{AskError, Connection, LinkEvent, Report, Run, RunId, ServerInfo, StopReason};
use super::super::super::shared::UpstreamShared;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Unusable {
    pub(super) shared: Arc<UpstreamShared>,
    pub(super) fault: Arc<str>,
}

impl Connection for Unusable {
    fn open(&self) {
        self.shared.tell(LinkEvent::Final { fault: self.fault.clone() });
    }

    fn begin(&self, run: Run) {
        run.lost(false, &self.fault);
    }

    fn stop(&self, _run: RunId, _why: StopReason) {}

    fn recycle(&self, _run: RunId) {}

    fn reset(&self, _why: &str) {
        self.open();
    }

    fn ask(
        &self,
        _method: &str,
        _params: Option<&str>,
        _timeout: Duration,
    ) -> BoxFuture<'static, Result<Bytes, AskError>> {
        let fault = AskError::Down(self.fault.to_string());
        Box::pin(std::future::ready(Err(fault)))
    }

    fn server(&self) -> Option<Arc<ServerInfo>> {
        None
    }

    fn report(&self) -> Report {
        Report::default()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
