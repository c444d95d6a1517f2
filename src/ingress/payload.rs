//! The body of an answer: whole, or a stream of events that is written as it comes.

use super::pipeline::Serving;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Where a stream's events come from. None is the end.
pub(crate) trait Events: Send {
    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// See the module's documentation.
pub(crate) enum Payload {
    Whole(Full<Bytes>),
    Stream(Box<dyn Events>, Option<Serving>),
}

impl Payload {
    pub(crate) fn stream(events: impl Events + 'static) -> Payload {
        Payload::Stream(Box::new(events), None)
    }

    /// What a whole body holds; nothing of a stream.
    pub(crate) fn into_whole(self) -> Bytes {
        let mut context = Context::from_waker(Waker::noop());
        match self {
            // It is there at once.
            Payload::Whole(mut whole) => match Pin::new(&mut whole).poll_frame(&mut context) {
                Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Poll::Ready(_) | Poll::Pending => Bytes::new(),
            },
            Payload::Stream(..) => Bytes::new(),
        }
    }

    /// Keeps what is behind the request held back for as long as a stream lasts.
    pub(crate) fn hold(&mut self, serving: Serving) {
        match self {
            Payload::Whole(_) => drop(serving),
            Payload::Stream(_, place) => *place = Some(serving),
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Payload::Whole(Full::default())
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Payload::Whole(Full::new(bytes))
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Payload::Whole(whole) => Pin::new(whole).poll_frame(context),
            Payload::Stream(events, _) => events.poll_event(context).map(|event| event.map(|it| Ok(Frame::data(it)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Payload::Whole(whole) => whole.is_end_stream(),
            Payload::Stream(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Whole(whole) => whole.size_hint(),
            Payload::Stream(..) => SizeHint::default(),
        }
    }
}

/// Appends a message as one event. Line ends in it are whitespace between its tokens, and become blanks.
pub(crate) fn put_event(message: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: message\ndata: ");
    let start = out.len();
    out.extend_from_slice(message);
    if memchr::memchr2(b'\n', b'\r', message).is_some() {
        out[start..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    }
    out.extend_from_slice(b"\n\n");
}

/// What keeps an idle stream open on its way.
pub(crate) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::sse::Splitter;

    #[test]
    fn an_event_is_one_message_whatever_its_line_ends() {
        let mut out = KEEP_ALIVE.to_vec();
        put_event(b"{\"a\":\n1,\r\n\"b\":2}", &mut out);
        let mut events = Vec::new();
        Splitter::new(100).push(&out, &mut events).unwrap();
        assert_eq!(events, [Bytes::from_static(b"{\"a\": 1,  \"b\":2}")]);
    }
}
