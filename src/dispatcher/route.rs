//! Names on the aggregate endpoint, and the upstream and tool (or prompt, or resource) behind each.
//!
//! A joined name is `upstream__tool`, looked up in tables of what the upstreams list, never split: a
//! server's name may end, and a tool's begin, with the separator's character, so that one joined name fits
//! two pairs. Such a name is refused with both in the message, whichever upstream was there first.
//!
//! A joined name of more than [`LONGEST`] characters is cut to [`KEPT`], then `_` and eight digits of a
//! hash of the whole follow; clients limit names to 64 characters. Resources go by their URI as it is.

use super::Dispatcher;
use crate::caller::Caller;
use crate::protocol::json::{Span, members, quote_into};
use crate::upstream::{List, ListItem, ListKind, Upstream, UpstreamState};
use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Between an upstream's name and a tool's.
pub const SEPARATOR: &str = "__";
/// The longest joined name.
pub const LONGEST: usize = 64;
/// What is kept of a longer one, at most.
pub const KEPT: usize = 55;
/// How long a call waits for a list that decides where it goes.
const LIST_WAIT: Duration = Duration::from_secs(3);

/// The name under which the aggregate endpoint offers an upstream's tool or prompt.
pub fn join(upstream: &str, name: &str) -> String {
    let joined = format!("{upstream}{SEPARATOR}{name}");
    if joined.len() <= LONGEST {
        return joined;
    }
    let hash = Sha256::digest(joined.as_bytes());
    let mut short = joined;
    short.truncate(cut(&short));
    for byte in std::iter::once(None).chain(hash[..4].iter().map(Some)) {
        match byte {
            None => short.push('_'),
            Some(byte) => short.push_str(&format!("{byte:02x}")),
        }
    }
    short
}

/// Where a name that is too long is cut: at most [`KEPT`] bytes, between characters.
fn cut(name: &str) -> usize {
    (0..=KEPT.min(name.len())).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0)
}

/// Whether a name could be a joined one of this upstream.
fn fits(upstream: &str, name: &str) -> bool {
    if name.strip_prefix(upstream).is_some_and(|rest| rest.starts_with(SEPARATOR)) {
        return true;
    }
    // The upstream's own name may have been cut.
    if upstream.len() + SEPARATOR.len() <= KEPT || name.len() > LONGEST {
        return false;
    }
    let head = format!("{upstream}{SEPARATOR}");
    name.starts_with(&head[..cut(&head)])
}

/// One upstream's list as the aggregate endpoint offers it.
pub struct Index {
    /// The list it was made of.
    pub list: Arc<List>,
    /// The items with the names under which they are offered, in the list's order.
    pub offered: Vec<Bytes>,
    by_name: HashMap<Box<str>, u32>,
}

impl Index {
    fn new(upstream: &str, kind: ListKind, list: Arc<List>) -> Self {
        let mut by_name = HashMap::with_capacity(list.items.len());
        let mut offered = Vec::with_capacity(list.items.len());
        for (at, item) in list.items.iter().enumerate() {
            let name = offered_name(upstream, kind, &item.name);
            offered.push(match kind {
                ListKind::Tools | ListKind::Prompts => renamed(&item.raw, &name),
                ListKind::Resources | ListKind::Templates => item.raw.clone(),
            });
            // A name that a list has twice means its first item, as it would without forebay.
            by_name.entry(name.into()).or_insert(at as u32);
        }
        Index { list, offered, by_name }
    }

    /// The item offered under this name.
    pub fn get(&self, name: &str) -> Option<&ListItem> {
        self.by_name.get(name).and_then(|at| self.list.items.get(*at as usize))
    }
}

/// The name under which an upstream's item is offered.
pub fn offered_name<'a>(upstream: &str, kind: ListKind, name: &'a str) -> Cow<'a, str> {
    match kind {
        ListKind::Tools | ListKind::Prompts => Cow::Owned(join(upstream, name)),
        ListKind::Resources | ListKind::Templates => Cow::Borrowed(name),
    }
}

/// The item with another `name`, every other byte as it was.
fn renamed(raw: &Bytes, name: &str) -> Bytes {
    let Some(text) = std::str::from_utf8(raw).ok() else { return raw.clone() };
    let Some(old) = members(text).ok().and_then(|item| item.get("name")) else { return raw.clone() };
    let span = Span::of(text, old).range();
    let mut out = Vec::with_capacity(raw.len() + name.len());
    out.extend_from_slice(&raw[..span.start]);
    quote_into(name, &mut out);
    out.extend_from_slice(&raw[span.end..]);
    out.into()
}

/// Where a name leads.
pub enum Place {
    Found {
        upstream: Arc<Upstream>,
        /// As the upstream names it.
        name: Arc<str>,
    },
    /// Two pairs have this joined name.
    Clash(String),
    Unknown,
}

type Indexes = HashMap<(Arc<str>, ListKind), Arc<Index>>;

/// The indexes made so far, each for as long as its upstream's list stays the same.
#[derive(Default)]
pub struct Routes {
    indexes: Mutex<Indexes>,
}

impl Routes {
    /// The index of an upstream's list, made anew if the list is another.
    pub fn index(&self, upstream: &Upstream, kind: ListKind, list: Arc<List>) -> Arc<Index> {
        let key = (upstream.name().clone(), kind);
        if let Some(known) = self.indexes.lock().get(&key)
            && Arc::ptr_eq(&known.list, &list)
        {
            return known.clone();
        }
        // Made outside the lock: a large list would hold up every other call.
        let index = Arc::new(Index::new(upstream.name(), kind, list));
        self.indexes.lock().insert(key, index.clone());
        index
    }

    /// Forgets upstreams that are gone.
    pub fn keep(&self, known: impl Fn(&str) -> bool) {
        self.indexes.lock().retain(|(upstream, _), _| known(upstream));
    }

    /// The upstream behind a name, among those that the caller may use; none if a list has to be waited for.
    pub fn find_known(&self, dispatcher: &Dispatcher, caller: &Caller, kind: ListKind, name: &str) -> Option<Place> {
        let candidates = candidates(dispatcher, caller, kind, name);
        let looks = candidates.iter().map(|upstream| self.known(upstream, kind, name)).collect::<Option<_>>()?;
        Some(decide(dispatcher, caller, kind, name, &candidates, looks))
    }

    /// The same. Lists that are missing are fetched side by side, each for no longer than its upstream lets a
    /// call wait.
    pub async fn find(&self, dispatcher: &Dispatcher, caller: &Caller, kind: ListKind, name: &str) -> Place {
        let candidates = candidates(dispatcher, caller, kind, name);
        let looks = join_all(candidates.iter().map(|upstream| self.look(upstream, kind, name))).await;
        decide(dispatcher, caller, kind, name, &candidates, looks)
    }

    /// What an upstream's list says of a name, as far as it is known.
    fn known(&self, upstream: &Arc<Upstream>, kind: ListKind, name: &str) -> Option<Look> {
        if let Some(list) = upstream.cached_list(kind) {
            return Some(Look::of(&self.index(upstream, kind, list), name));
        }
        // A list that has gone stale still tells whose name it was; the upstream says no to what is gone.
        let last = self.index(upstream, kind, upstream.known_list(kind)?);
        last.get(name).map(|item| Look::Listed(item.name.clone()))
    }

    async fn look(&self, upstream: &Arc<Upstream>, kind: ListKind, name: &str) -> Look {
        if let Some(look) = self.known(upstream, kind, name) {
            return look;
        }
        let wait = upstream.shared().config.load().limits.queue_timeout.map_or(LIST_WAIT, |most| most.min(LIST_WAIT));
        match fetch(upstream, kind, wait).await {
            Ok(list) => Look::of(&self.index(upstream, kind, list), name),
            Err(_) => Look::NoList,
        }
    }
}

/// The upstreams that may have a name and that the caller may use.
fn candidates(dispatcher: &Dispatcher, caller: &Caller, kind: ListKind, name: &str) -> Vec<Arc<Upstream>> {
    let upstreams = dispatcher.upstreams();
    let fitting = upstreams.values().filter(|upstream| !by_prefix(kind) || fits(upstream.name(), name));
    fitting.filter(|upstream| dispatcher.allows(caller, upstream.name(), None)).cloned().collect()
}

fn by_prefix(kind: ListKind) -> bool {
    matches!(kind, ListKind::Tools | ListKind::Prompts)
}

/// What the candidates' lists say of a name, taken together.
fn decide(
    dispatcher: &Dispatcher,
    caller: &Caller,
    kind: ListKind,
    name: &str,
    candidates: &[Arc<Upstream>],
    looks: Vec<Look>,
) -> Place {
    let by_prefix = by_prefix(kind);
    let mut listed: Option<(&Arc<Upstream>, Arc<str>)> = None;
    let mut unknown: Option<&Arc<Upstream>> = None;
    for (upstream, look) in candidates.iter().zip(looks) {
        match look {
            Look::Listed(own) => {
                let tool = matches!(kind, ListKind::Tools).then_some(&*own);
                if !dispatcher.allows(caller, upstream.name(), tool) {
                    continue;
                }
                if let Some((other, others)) = &listed {
                    return Place::Clash(clash(name, (other, others), (upstream, &own)));
                }
                listed = Some((upstream, own));
            }
            Look::NotListed => {}
            Look::NoList => unknown = unknown.or(Some(upstream)),
        }
    }
    match (listed, unknown) {
        (Some((upstream, name)), None) => Place::Found { upstream: upstream.clone(), name },
        // Nobody knows whether the other has it as well, and a call must not reach the wrong server.
        (Some((upstream, own)), Some(other)) if by_prefix => {
            let rest = without_prefix(other.name(), name);
            Place::Clash(clash(name, (upstream, &own), (other, rest)))
        }
        (Some((upstream, name)), Some(_)) => Place::Found { upstream: upstream.clone(), name },
        // It cannot list, so it cannot be called either; its queue says when it can.
        (None, Some(upstream)) if by_prefix || candidates.len() == 1 => {
            let own = if by_prefix { without_prefix(upstream.name(), name) } else { name };
            Place::Found { upstream: upstream.clone(), name: own.into() }
        }
        // A URI may be one of a template; with one upstream there is no doubt about whose.
        (None, None) if !by_prefix && candidates.len() == 1 => {
            Place::Found { upstream: candidates[0].clone(), name: name.into() }
        }
        (None, _) => Place::Unknown,
    }
}

/// An upstream's list: from its cache, or fetched within `wait`. One that is down is not waited for; its
/// list as it was last known is better than none.
pub async fn fetch(upstream: &Arc<Upstream>, kind: ListKind, wait: Duration) -> Result<Arc<List>, String> {
    if let Some(list) = upstream.cached_list(kind) {
        return Ok(list);
    }
    let status = upstream.status();
    if status.state == UpstreamState::Down {
        let fault =
            || format!("{} is down: {}", upstream.name(), status.fault.as_deref().unwrap_or("it cannot be reached"));
        return upstream.known_list(kind).ok_or_else(fault);
    }
    match tokio::time::timeout(wait, upstream.list(kind)).await {
        Ok(Ok(list)) => Ok(list),
        Ok(Err(fault)) => Err(format!("{} gives no such list: {fault}", upstream.name())),
        Err(_) => upstream.known_list(kind).ok_or_else(|| format!("{} gave no list within {wait:?}", upstream.name())),
    }
}

enum Look {
    Listed(Arc<str>),
    NotListed,
    NoList,
}

impl Look {
    fn of(index: &Index, name: &str) -> Look {
        match index.get(name) {
            Some(item) => Look::Listed(item.name.clone()),
            None => Look::NotListed,
        }
    }
}

fn without_prefix<'a>(upstream: &str, name: &'a str) -> &'a str {
    name.strip_prefix(upstream).and_then(|rest| rest.strip_prefix(SEPARATOR)).unwrap_or(name)
}

/// The same words whatever the order in which the two were found: they come sorted by upstream.
fn clash(name: &str, one: (&Arc<Upstream>, &str), other: (&Arc<Upstream>, &str)) -> String {
    clash_text(name, (one.0.name(), one.1), (other.0.name(), other.1))
}

fn clash_text(name: &str, one: (&str, &str), other: (&str, &str)) -> String {
    let (first, second) = if one <= other { (one, other) } else { (other, one) };
    format!(
        "`{name}` is ambiguous: it is `{}` of upstream `{}` and `{}` of upstream `{}`; \
         use /mcp/{} or /mcp/{}, or rename one of the upstreams",
        first.1, first.0, second.1, second.0, first.0, second.0
    )
}

/// Whether two upstreams can have one joined name at all; a cheap test before names are compared.
pub fn may_clash(one: &str, other: &str) -> bool {
    let (one, other) = (format!("{one}{SEPARATOR}"), format!("{other}{SEPARATOR}"));
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    // `a_` and `a` meet in `a___x`: the shorter with its separator begins the longer.
    long.starts_with(&short) || short.len() > KEPT && long.starts_with(&short[..cut(&short)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c29_long_names_follow_one_rule() {
        assert_eq!(join("db", "query"), "db__query");
        let longest = "t".repeat(60);
        assert_eq!(join("ab", &longest), format!("ab__{longest}"));
        let (one, two) = (join("up", &format!("{}x", "t".repeat(70))), join("up", &format!("{}y", "t".repeat(70))));
        assert_eq!(one.len(), LONGEST);
        assert_ne!(one, two);
        assert!(one.starts_with(&format!("up__{}_", "t".repeat(51))));
        assert_eq!(one, join("up", &format!("{}x", "t".repeat(70))), "the rule is a function of the name");
        let wide = join("up", &"é".repeat(40));
        assert!(wide.len() <= LONGEST && wide.is_char_boundary(wide.len()));
    }

    #[test]
    fn c29_a_name_fits_every_upstream_it_could_belong_to() {
        assert!(fits("north", "north___ping"));
        assert!(fits("north_", "north___ping"));
        assert!(fits("x", "x__y__z") && fits("x__y", "x__y__z"));
        assert!(!fits("x__y", "x__yz"));
        assert!(!fits("north", "northern__ping"));
        for length in 50..70 {
            let long = "u".repeat(length);
            assert!(fits(&long, &join(&long, "tool")), "{length}");
        }
        assert!(may_clash("north", "north_") && may_clash("x__y", "x"));
        assert!(!may_clash("db", "web") && !may_clash("a", "ab"));
    }

    #[test]
    fn c29_a_clash_is_told_alike_in_any_order() {
        let one = clash_text("north___ping", ("north", "_ping"), ("north_", "ping"));
        let two = clash_text("north___ping", ("north_", "ping"), ("north", "_ping"));
        assert_eq!(one, two);
        assert!(one.contains("`_ping` of upstream `north`") && one.contains("`ping` of upstream `north_`"));
    }

    #[test]
    fn an_index_renames_and_nothing_else() {
        let item = |name: &str, raw: &str| ListItem {
            name: name.into(),
            raw: Bytes::copy_from_slice(raw.as_bytes()),
            safe_to_repeat: false,
        };
        let raw = r#"{"x":1.10, "name" : "a__b","inputSchema":{"name":"inner"},"_meta":{"k":1e2}}"#;
        let list =
            Arc::new(List { items: vec![item("a__b", raw), item("é\"", r#"{"name":"é\""}"#)], ..List::default() });
        let index = Index::new("up", ListKind::Tools, list);
        assert_eq!(
            index.offered[0],
            r#"{"x":1.10, "name" : "up__a__b","inputSchema":{"name":"inner"},"_meta":{"k":1e2}}"#.as_bytes()
        );
        assert_eq!(index.offered[1], r#"{"name":"up__é\""}"#.as_bytes());
        assert_eq!(&*index.get("up__a__b").unwrap().name, "a__b");
        assert!(index.get("a__b").is_none());
    }
}
