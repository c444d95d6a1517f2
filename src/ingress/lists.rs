//! Lists: of one upstream as it wrote them, or of all that a caller may use in one.
//!
//! Lists are served from the upstreams' caches and never queued. An upstream that cannot list is left out of
//! the merged list; on its own endpoint the fault is told.

use super::{Ingress, builtin};
use crate::caller::Caller;
use crate::dispatcher::route::{Index, fetch, may_clash, offered_name};
use crate::protocol::method;
use crate::protocol::version::Era;
use crate::upstream::{ListKind, Upstream};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// How long one upstream is waited for.
const LIST_WAIT: Duration = Duration::from_secs(5);
/// A page ends after so many items, or so many bytes. Large, since many clients read only the first page.
const PAGE_ITEMS: usize = 1000;
const PAGE_BYTES: usize = 2 << 20;

/// Why there is no list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoList {
    /// Not a cursor of ours, or one of a list that has changed.
    BadCursor,
    /// The upstream cannot list.
    Upstream(String),
}

/// The list that a method asks for.
pub(crate) fn kind_of(method: &str) -> Option<ListKind> {
    match method {
        method::TOOLS_LIST => Some(ListKind::Tools),
        method::PROMPTS_LIST => Some(ListKind::Prompts),
        method::RESOURCES_LIST => Some(ListKind::Resources),
        method::TEMPLATES_LIST => Some(ListKind::Templates),
        _ => None,
    }
}

fn member(kind: ListKind) -> &'static str {
    match kind {
        ListKind::Tools => "tools",
        ListKind::Prompts => "prompts",
        ListKind::Resources => "resources",
        ListKind::Templates => "resourceTemplates",
    }
}

/// The result of a list request: of one upstream, or of all.
pub(crate) async fn result(
    ingress: &Ingress,
    caller: &Caller,
    one: Option<&Arc<Upstream>>,
    kind: ListKind,
    cursor: Option<&str>,
    era: Era,
) -> Result<Vec<u8>, NoList> {
    let items = match one {
        Some(upstream) => of_one(ingress, caller, upstream, kind).await?,
        None => of_all(ingress, caller, kind).await,
    };
    page(&items, member(kind), cursor, era)
}

/// One upstream's items as it wrote them, without what the caller may not use.
async fn of_one(
    ingress: &Ingress,
    caller: &Caller,
    upstream: &Arc<Upstream>,
    kind: ListKind,
) -> Result<Vec<Bytes>, NoList> {
    let list = fetch(upstream, kind, LIST_WAIT).await.map_err(NoList::Upstream)?;
    let visible = |name: &str| visible(ingress, caller, upstream, kind, name);
    Ok(list.items.iter().filter(|item| visible(&item.name)).map(|item| item.raw.clone()).collect())
}

/// Everybody's items under their joined names, by upstream and then in the upstream's own order.
async fn of_all(ingress: &Ingress, caller: &Caller, kind: ListKind) -> Vec<Bytes> {
    let indexes = all(ingress, caller, kind).await;
    let doubtful = clashing(ingress, caller, kind, &indexes);
    let mut items = match kind {
        ListKind::Tools => builtin::listed(ingress),
        ListKind::Prompts | ListKind::Resources | ListKind::Templates => Vec::new(),
    };
    items.reserve(indexes.iter().map(|(_, index)| index.offered.len()).sum());
    for (upstream, index) in &indexes {
        for (item, offered) in index.list.items.iter().zip(&index.offered) {
            let clashes = !doubtful.is_empty() && doubtful.contains(&*offered_name(upstream.name(), kind, &item.name));
            if !clashes && visible(ingress, caller, upstream, kind, &item.name) {
                items.push(offered.clone());
            }
        }
    }
    items
}

/// The lists of all upstreams that the caller may use and that can list, in the order of their names.
pub(crate) async fn all(ingress: &Ingress, caller: &Caller, kind: ListKind) -> Vec<(Arc<Upstream>, Arc<Index>)> {
    let upstreams = ingress.dispatcher.upstreams();
    ingress.routes.keep(|name| upstreams.contains_key(name));
    let mine = upstreams.values().filter(|upstream| ingress.dispatcher.allows(caller, upstream.name(), None));
    let fetched = join_all(mine.map(|upstream| async move {
        let list = fetch(upstream, kind, LIST_WAIT).await.ok()?;
        Some((upstream.clone(), ingress.routes.index(upstream, kind, list)))
    }));
    fetched.await.into_iter().flatten().collect()
}

pub(crate) fn visible(ingress: &Ingress, caller: &Caller, upstream: &Upstream, kind: ListKind, name: &str) -> bool {
    match kind {
        ListKind::Tools => ingress.dispatcher.allows(caller, upstream.name(), Some(name)),
        ListKind::Prompts | ListKind::Resources | ListKind::Templates => true,
    }
}

/// Joined names that two upstreams have. They are not offered, since a call of them would be refused.
fn clashing(
    ingress: &Ingress,
    caller: &Caller,
    kind: ListKind,
    indexes: &[(Arc<Upstream>, Arc<Index>)],
) -> HashSet<String> {
    let mut twice = HashSet::new();
    let doubtful = |one: &Upstream| {
        let others = indexes.iter().filter(|(other, _)| other.name() != one.name());
        others.into_iter().any(|(other, _)| may_clash(one.name(), other.name()))
    };
    let mut seen: HashSet<String> = HashSet::new();
    if matches!(kind, ListKind::Resources | ListKind::Templates) {
        // Two upstreams may well have one URI; both are shown, and reading it says that it is ambiguous.
        return twice;
    }
    for (upstream, index) in indexes.iter().filter(|(upstream, _)| doubtful(upstream)) {
        let mut own = HashSet::new();
        for item in &index.list.items {
            let name = offered_name(upstream.name(), kind, &item.name).into_owned();
            if visible(ingress, caller, upstream, kind, &item.name)
                && own.insert(name.clone())
                && !seen.insert(name.clone())
            {
                twice.insert(name);
            }
        }
    }
    twice
}

/// One page of a result.
fn page(items: &[Bytes], member: &str, cursor: Option<&str>, era: Era) -> Result<Vec<u8>, NoList> {
    let from = match cursor {
        None => 0,
        Some(cursor) => read_cursor(cursor, items).ok_or(NoList::BadCursor)?,
    };
    let mut out =
        Vec::with_capacity(64 + items[from..].iter().map(|item| item.len() + 1).sum::<usize>().min(PAGE_BYTES));
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(b"\":[");
    let mut next = from;
    for item in items[from..].iter().take(PAGE_ITEMS) {
        if next > from {
            if out.len() + item.len() > PAGE_BYTES {
                break;
            }
            out.push(b',');
        }
        out.extend_from_slice(item);
        next += 1;
    }
    out.push(b']');
    if next < items.len() {
        out.extend_from_slice(b",\"nextCursor\":\"");
        out.extend_from_slice(write_cursor(next, items).as_bytes());
        out.push(b'"');
    }
    if era == Era::Modern {
        // Nothing tells a client that a list has changed, so it must not keep one.
        out.extend_from_slice(b",\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"");
    }
    out.push(b'}');
    Ok(out)
}

/// A cursor says where its page begins and in which list; of another list it is unknown (C22).
fn write_cursor(at: usize, items: &[Bytes]) -> String {
    URL_SAFE_NO_PAD.encode(format!("f1.{at}.{:016x}", mark(items)))
}

fn read_cursor(cursor: &str, items: &[Bytes]) -> Option<usize> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (at, of) = text.strip_prefix("f1.")?.split_once('.')?;
    let at: usize = at.parse().ok()?;
    (u64::from_str_radix(of, 16).ok()? == mark(items) && at < items.len()).then_some(at)
}

/// A mark of the whole list; it only has to tell that the list has changed.
fn mark(items: &[Bytes]) -> u64 {
    let mut hasher = DefaultHasher::new();
    items.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(count: usize) -> Vec<Bytes> {
        (0..count).map(|number| Bytes::from(format!(r#"{{"name":"t{number}"}}"#))).collect()
    }

    fn names(result: &[u8]) -> (Vec<String>, Option<String>) {
        let value: serde_json::Value = serde_json::from_slice(result).unwrap();
        let names =
            value["tools"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().into()).collect();
        (names, value.get("nextCursor").map(|cursor| cursor.as_str().unwrap().into()))
    }

    #[test]
    fn c22_every_item_comes_once_over_all_pages() {
        let items = items(2500);
        let (mut all, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
        loop {
            let result = page(&items, "tools", cursor.as_deref(), Era::Legacy).unwrap();
            let (names, next) = names(&result);
            all.extend(names);
            pages += 1;
            match next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(pages, 3);
        assert_eq!(all, (0..2500).map(|number| format!("t{number}")).collect::<Vec<_>>());
    }

    #[test]
    fn c22_an_unknown_cursor_is_told() {
        let items = items(1500);
        let (_, next) = names(&page(&items, "tools", None, Era::Legacy).unwrap());
        let next = next.unwrap();
        let changed = &items[..1400];
        for (cursor, items) in [("8", &items[..]), ("", &items), ("!!", &items), (&next, changed)] {
            assert_eq!(page(items, "tools", Some(cursor), Era::Legacy), Err(NoList::BadCursor), "{cursor}");
        }
        let beyond = write_cursor(1500, &items);
        assert_eq!(page(&items, "tools", Some(&beyond), Era::Legacy), Err(NoList::BadCursor));
    }

    #[test]
    fn a_page_is_bounded_in_bytes_and_holds_one_item_at_least() {
        let big: Vec<_> = (0..3).map(|_| Bytes::from(vec![b'1'; PAGE_BYTES])).collect();
        let page = page(&big, "tools", None, Era::Legacy).unwrap();
        assert!(page.len() < PAGE_BYTES + 200 && page.ends_with(b"\"}"));
    }

    #[test]
    fn modern_clients_are_told_how_long_a_list_keeps() {
        let result = page(&items(1), "tools", None, Era::Modern).unwrap();
        assert_eq!(
            String::from_utf8(result).unwrap(),
            r#"{"tools":[{"name":"t0"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#
        );
        assert_eq!(page(&[], "prompts", None, Era::Legacy).unwrap(), br#"{"prompts":[]}"#);
    }
}
