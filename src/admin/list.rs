//! Listings over all upstreams, a page at a time, and the search for one call's row.
//!
//! Rows come from [`Upstream::page`] in the actor's own order; no queue is ever copied whole. One request
//! looks at a bounded number of rows, so that a filter which matches nothing cannot hold the actors up.

use super::fault::Refusal;
use crate::call::CallId;
use crate::dispatcher::Dispatcher;
use crate::snapshot;
use crate::upstream::{Row, RowState, Upstream};
use forebay_wire as wire;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Rows that one request looks at, and at most returns.
const LOOKED_AT: usize = 4096;
/// Rows of one message to an actor.
const CHUNK: usize = 256;
pub(super) const DEFAULT_LIMIT: usize = 256;
/// An actor's turn is short; one that takes longer is in trouble, and is listed as missing.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a listing is narrowed to.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub upstream: Option<String>,
    pub caller: Option<String>,
    pub tool: Option<String>,
    pub state: Option<RowState>,
    pub older_than: Option<Duration>,
}

impl Filter {
    fn takes(&self, row: &Row, now: Instant) -> bool {
        let call = &row.call;
        self.caller.as_ref().is_none_or(|caller| **caller == *call.caller.name)
            && self.tool.as_ref().is_none_or(|tool| **tool == **call.target())
            && self.state.is_none_or(|state| state == row.state)
            && self.older_than.is_none_or(|age| now.saturating_duration_since(call.arrived) >= age)
    }
}

/// Where a listing goes on: an upstream, and the place in its own listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    upstream: String,
    inner: u64,
}

impl Cursor {
    /// Reads `PLACE.UPSTREAM`, as [`Cursor::text`] writes it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (inner, upstream) = text.split_once('.')?;
        Some(Cursor { upstream: upstream.into(), inner: inner.parse().ok()? })
    }

    fn text(&self) -> String {
        format!("{}.{}", self.inner, self.upstream)
    }
}

/// One page of at most `limit` calls.
pub(super) async fn page(
    dispatcher: &Dispatcher,
    filter: &Filter,
    cursor: Option<Cursor>,
    limit: usize,
) -> Result<wire::CallsPage, Refusal> {
    let table = dispatcher.upstreams();
    if let Some(name) = filter.upstream.as_deref().filter(|name| !table.contains_key(*name)) {
        let known: Vec<_> = table.keys().map(ToString::to_string).collect();
        return Err(Refusal::unknown_upstream(name, &known));
    }
    let limit = limit.clamp(1, LOOKED_AT);
    let mut found = wire::CallsPage::default();
    let mut looked_at = 0;
    let start = cursor.as_ref().map_or(Bound::Unbounded, |cursor| Bound::Included(&*cursor.upstream));
    for (name, upstream) in table.range::<str, _>((start, Bound::Unbounded)) {
        if filter.upstream.as_deref().is_some_and(|wanted| wanted != &**name) {
            continue;
        }
        // An upstream that has gone since the last page is passed over with its cursor.
        let mut inner = cursor.as_ref().filter(|cursor| *cursor.upstream == **name).map_or(0, |cursor| cursor.inner);
        loop {
            let room = (limit - found.calls.len()).min(LOOKED_AT.saturating_sub(looked_at)).min(CHUNK);
            if room == 0 {
                found.next = Some(Cursor { upstream: name.to_string(), inner }.text());
                return Ok(found);
            }
            let Ok(Ok(rows)) = timeout(PATIENCE, upstream.page(inner, room)).await else {
                found.missing.push(name.to_string());
                break;
            };
            let now = Instant::now();
            looked_at += rows.rows.len().max(1);
            found
                .calls
                .extend(rows.rows.iter().filter(|row| filter.takes(row, now)).map(|row| snapshot::row(row, now)));
            match rows.next {
                Some(next) => inner = next,
                None => break,
            }
        }
    }
    Ok(found)
}

/// The row of one call, if its upstream's listing shows it among its first [`LOOKED_AT`].
pub(super) async fn row_of(upstream: &Arc<Upstream>, id: CallId) -> Option<Row> {
    let mut cursor = 0;
    for _ in 0..LOOKED_AT / CHUNK {
        let page = timeout(PATIENCE, upstream.page(cursor, CHUNK)).await.ok()?.ok()?;
        if let Some(row) = page.rows.into_iter().find(|row| row.call.id == id) {
            return Some(row);
        }
        cursor = page.next?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_whatever_the_upstream_is_called() {
        for upstream in ["db", "a.b.c", "", "ü"] {
            let cursor = Cursor { upstream: upstream.into(), inner: u64::MAX };
            assert_eq!(Cursor::parse(&cursor.text()), Some(cursor));
        }
        for bad in ["", "x", "x.y", "-1.y", "1"] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
    }
}
