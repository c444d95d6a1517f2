//! Notices of changed lists, told to the actor at most once in [`EVERY`] however often the server sends them.

use super::Inner;
use crate::upstream::connection::LinkEvent;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// As for a child on stdio.
const EVERY: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Stale(Mutex<State>);

#[derive(Default)]
struct State {
    told: Option<Instant>,
    /// A task waits to tell what came since.
    pending: bool,
}

impl Inner {
    /// The server's lists changed, or must have.
    pub(super) fn lists_changed(self: &Arc<Self>) {
        let now = Instant::now();
        let mut state = self.stale.0.lock();
        if state.pending {
            return;
        }
        if let Some(next) = state.told.map(|told| told + EVERY).filter(|next| *next > now) {
            state.pending = true;
            drop(state);
            let http = self.clone();
            self.pool.home().spawn(async move {
                tokio::time::sleep_until(next).await;
                let mut state = http.stale.0.lock();
                state.pending = false;
                state.told = Some(Instant::now());
                drop(state);
                http.shared.tell(LinkEvent::ListsChanged);
            });
            return;
        }
        state.told = Some(now);
        drop(state);
        self.shared.tell(LinkEvent::ListsChanged);
    }
}
