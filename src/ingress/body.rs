//! Reading a request's body: whole, within its size, in time.

use super::Ingress;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HeaderMap};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::time::Duration;
use tokio::time::Instant;

/// The longest silence inside a body.
const IDLE: Duration = Duration::from_secs(15);
/// A body must come at least this fast on the whole, once [`IDLE`] has passed.
const SLOWEST_BYTES_A_SECOND: u64 = 4 << 10;

/// Why a body was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadBody {
    TooLarge,
    TooSlow,
    /// The daemon's bound on memory is met.
    NoRoom,
    /// The client broke off, or its framing is wrong.
    Broken,
}

/// Reads the body. Fails as soon as the limit is passed, with a declared length before a byte is read.
pub(crate) async fn read(ingress: &Ingress, headers: &HeaderMap, mut body: Incoming) -> Result<Bytes, BadBody> {
    let config = ingress.dispatcher.config.load();
    let (most, room) = (config.listen.max_body, config.global.max_bytes);
    drop(config);
    let declared =
        headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<u64>().ok());
    if declared.is_some_and(|length| length > most) || body.size_hint().lower() > most {
        return Err(BadBody::TooLarge);
    }
    let Some(first) = next(&mut body, None).await? else { return Ok(Bytes::new()) };
    if first.len() as u64 > most {
        return Err(BadBody::TooLarge);
    }
    // Nearly every body comes in one piece, which is then passed on without a copy.
    if body.is_end_stream() {
        return Ok(first);
    }
    let began = Instant::now();
    // Given back when the body is whole: its call is charged then.
    let mut charge = ingress.dispatcher.memory().take(first.len() as u64, room).ok_or(BadBody::NoRoom)?;
    let mut whole = BytesMut::with_capacity(declared.unwrap_or(0).clamp(first.len() as u64, 64 << 10) as usize);
    whole.extend_from_slice(&first);
    drop(first);
    loop {
        let earned = Duration::from_millis(whole.len() as u64 * 1000 / SLOWEST_BYTES_A_SECOND);
        let Some(part) = next(&mut body, Some(began + IDLE + earned)).await? else { return Ok(whole.freeze()) };
        if (whole.len() + part.len()) as u64 > most {
            return Err(BadBody::TooLarge);
        }
        if !charge.grow(part.len() as u64, room) {
            return Err(BadBody::NoRoom);
        }
        whole.extend_from_slice(&part);
    }
}

/// The next piece; none at the end.
async fn next(body: &mut Incoming, latest: Option<Instant>) -> Result<Option<Bytes>, BadBody> {
    loop {
        let idle = Instant::now() + IDLE;
        let deadline = latest.map_or(idle, |latest| latest.min(idle));
        let frame = tokio::time::timeout_at(deadline, body.frame()).await.map_err(|_| BadBody::TooSlow)?;
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(BadBody::Broken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return Ok(Some(data)),
                // Trailers say nothing that is of use here.
                Err(_) => {}
            },
        }
    }
}
