//! The order of the end: stop accepting, run dry until `drain_timeout`, answer the rest, close upstreams.

use crate::dispatcher::Dispatcher;
use crate::events::Draft;
use crate::ingress::Ingress;
use crate::outcome::CancelledBy;
use forebay_wire::Level;
use std::sync::Arc;
use std::time::Duration;

/// How often the drain looks whether it is done.
const LOOK: Duration = Duration::from_millis(20);
/// How long answers may take to leave after the last call has ended: a slow reader is not waited for.
const FLUSH: Duration = Duration::from_secs(2);

/// Ends everything but the threads. Returns when all calls are answered and all upstreams closed; `hurry`
/// (a second signal) cuts the drain short.
pub async fn run(dispatcher: &Arc<Dispatcher>, ingress: &Ingress, hurry: impl Future<Output = ()>) {
    dispatcher.stop_admitting();
    let words = format!("the daemon stops; {} calls are live", dispatcher.live_count());
    dispatcher.events().tell(Draft::new(Level::Info, "daemon.stopping", words));
    ingress.close();
    // A pause would keep its queue from running dry: draining ends it (rule R24).
    let mut upstreams: Vec<_> = dispatcher.upstreams().values().cloned().collect();
    futures_util::future::join_all(upstreams.iter().map(|upstream| upstream.drain())).await;
    let limit = dispatcher.config.load().global.drain_timeout;
    tracing::info!(live = dispatcher.live_count(), ?limit, "draining");
    tokio::select! {
        biased;
        () = hurry => tracing::info!("asked again: the drain is cut short"),
        dry = tokio::time::timeout(limit, dry(dispatcher)) => {
            if dry.is_err() {
                tracing::warn!(live = dispatcher.live_count(), "the drain timeout passed");
            }
        }
    }
    for call in dispatcher.live_calls() {
        dispatcher.cancel_call(&call, CancelledBy::Shutdown);
    }
    // Those that a reload took out may be at it still; being removed twice does no harm.
    upstreams.extend(dispatcher.leaving());
    let closing = futures_util::future::join_all(upstreams.iter().map(|upstream| upstream.remove(Duration::ZERO)));
    let (_, flushed) = tokio::join!(closing, tokio::time::timeout(FLUSH, ingress.closed()));
    if flushed.is_err() {
        tracing::warn!(sockets = ingress.open_sockets(), "some answers could not be delivered in time");
    }
}

async fn dry(dispatcher: &Dispatcher) {
    while dispatcher.live_count() > 0 {
        tokio::time::sleep(LOOK).await;
    }
}
