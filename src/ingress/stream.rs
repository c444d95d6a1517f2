//! The answer to a call as a stream of events: what its server says on the way, then the answer, then the end.
//!
//! Begun only when there is something to say before the answer ([`super::calls`]). It goes on where the request
//! left off: it watches for the end, for cancels, for the limits of the call, and when it is dropped its client
//! has gone away. Bound: what the call's own notices may hold, and one answer.

use super::calls::{self, Client, Net};
use super::payload::{Events, KEEP_ALIVE, put_event};
use super::service::Socket;
use super::{Ingress, answer, mcp};
use crate::call::{Call, Ending};
use bytes::Bytes;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// An idle stream says so this often, for what stands between us and the client.
pub(crate) const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// See the module's documentation.
pub(crate) struct CallStream {
    ingress: Arc<Ingress>,
    socket: Arc<Socket>,
    call: Arc<Call>,
    client: Client<'static>,
    limits: Net,
    net: Pin<Box<Sleep>>,
    idle: Pin<Box<Sleep>>,
    waiting: bool,
}

impl CallStream {
    /// Takes a call over from its request.
    pub(crate) fn new(
        ingress: Arc<Ingress>,
        socket: Arc<Socket>,
        call: Arc<Call>,
        client: Client<'static>,
        limits: Net,
    ) -> Self {
        let net = Box::pin(tokio::time::sleep_until(limits.wakes(&call)));
        let idle = Box::pin(tokio::time::sleep(KEEP_ALIVE_EVERY));
        CallStream { ingress, socket, call, client, limits, net, idle, waiting: true }
    }

    fn poll_ending(&mut self, context: &mut Context<'_>) -> Poll<Arc<Ending>> {
        if let Poll::Ready(ending) = pin!(self.call.ticket.ended()).poll(context) {
            return Poll::Ready(ending);
        }
        if let Client::Legacy { owner, headers, path } = &self.client {
            let look = |bytes: &[u8]| mcp::early_cancels(&self.ingress, *owner, headers, path, bytes);
            self.socket.pipe.look(context, look);
        }
        while self.net.as_mut().poll(context).is_ready() {
            if self.limits.is_over(&self.call) {
                self.limits.claim(&self.ingress, &self.call);
                break;
            }
            self.net.as_mut().reset(self.limits.wakes(&self.call));
        }
        pin!(self.call.ticket.ended()).poll(context)
    }
}

impl Events for CallStream {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.waiting {
            return Poll::Ready(None);
        }
        // Looked at first: what was said before the end is there by the time the end is seen.
        let ending = self.poll_ending(context);
        let mut out = Vec::new();
        if let Some(notices) = &self.call.notices {
            while let Some(message) = notices.next_now() {
                put_event(&message, &mut out);
            }
            if let (Poll::Pending, Poll::Ready(())) = (&ending, notices.poll_any(context)) {
                // Something came in between.
                context.waker().wake_by_ref();
            }
        }
        if let Poll::Ready(ending) = ending {
            self.waiting = false;
            calls::over(&self.ingress, &self.call, &self.client);
            let name = self.call.request.target_name().unwrap_or_default();
            let global = &self.ingress.dispatcher.config.load().global;
            if let Some(message) = answer::in_stream(&self.call, &ending, &name, global) {
                out.reserve_exact(message.len() + 32);
                put_event(&message, &mut out);
            }
            return Poll::Ready((!out.is_empty()).then(|| out.into()));
        }
        if !out.is_empty() {
            self.idle.as_mut().reset(Instant::now() + KEEP_ALIVE_EVERY);
            let _ = self.idle.as_mut().poll(context);
            return Poll::Ready(Some(out.into()));
        }
        if self.idle.as_mut().poll(context).is_ready() {
            self.idle.as_mut().reset(Instant::now() + KEEP_ALIVE_EVERY);
            let _ = self.idle.as_mut().poll(context);
            return Poll::Ready(Some(Bytes::from_static(KEEP_ALIVE)));
        }
        Poll::Pending
    }
}

impl Drop for CallStream {
    fn drop(&mut self) {
        if self.waiting {
            calls::abandon(&self.ingress, &self.call, &self.client);
        }
    }
}
