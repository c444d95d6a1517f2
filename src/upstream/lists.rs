//! Cached lists of one upstream (tools, prompts, resources, templates): one fetch for all who wait.
//!
//! A list is fresh until the link or the server says otherwise. Whoever asks for a stale one waits for the
//! fetch; if that fails, the list as it was last known is better than none. What a server may make us keep
//! is bounded by pages, items and bytes.

use super::connection::{AskError, Connection};
use super::handle::{List, ListItem, ListKind};
use crate::protocol::json::{members, quote_into, unquote};
use crate::protocol::version::Era;
use crate::protocol::{method, mirror};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::time::Duration;
use tokio::sync::watch;

const MAX_PAGES: usize = 256;
const MAX_ITEMS: usize = 20_000;
const MAX_BYTES: usize = 32 << 20;
/// For one page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a list that goes stale while it is fetched is fetched again for one waiter.
const ROUNDS: usize = 3;

type Fetched = Result<Arc<List>, AskError>;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Lists {
    /// Moves when lists go stale.
    epoch: AtomicU64,
    slots: [Mutex<Slot>; 4],
}

#[derive(Default)]
struct Slot {
    /// With the epoch in which its fetch began.
    list: Option<(u64, Arc<List>)>,
    fetch: Option<(u64, watch::Receiver<Option<Fetched>>)>,
}

impl Lists {
    /// Every list is stale from now on.
    pub(crate) fn invalidate(&self) {
        self.epoch.fetch_add(1, AcqRel);
    }

    /// The list if it is fresh.
    pub(crate) fn fresh(&self, kind: ListKind) -> Option<Arc<List>> {
        let epoch = self.epoch.load(Acquire);
        self.slot(kind).lock().list.as_ref().filter(|(of, _)| *of == epoch).map(|(_, list)| list.clone())
    }

    /// The list as it was last known, fresh or not.
    pub(crate) fn known(&self, kind: ListKind) -> Option<Arc<List>> {
        self.slot(kind).lock().list.as_ref().map(|(_, list)| list.clone())
    }

    fn slot(&self, kind: ListKind) -> &Mutex<Slot> {
        &self.slots[kind as usize]
    }
}

/// The fresh list, fetched through `connection` if need be. `lists` finds the cache in whatever holds it.
pub(crate) async fn get<H>(holder: &Arc<H>, kind: ListKind, connection: &Arc<dyn Connection>) -> Fetched
where
    H: AsRef<Lists> + Send + Sync + 'static,
{
    let mut last = None;
    for _ in 0..ROUNDS {
        if let Some(list) = (**holder).as_ref().fresh(kind) {
            return Ok(list);
        }
        let mut waiting = join(holder, kind, connection);
        let fetched = match waiting.wait_for(Option::is_some).await {
            Ok(result) => (*result).clone(),
            Err(_) => None,
        };
        let fetched = fetched.unwrap_or_else(|| Err(AskError::Down("the fetch was given up".into())));
        let failed = fetched.is_err();
        last = Some(fetched);
        if failed {
            break;
        }
    }
    match last {
        Some(Ok(list)) => Ok(list),
        Some(Err(error)) => (**holder).as_ref().known(kind).ok_or(error),
        None => Err(AskError::Down("the list was not fetched".into())),
    }
}

/// Joins the fetch that is under way, or begins one in a task of its own, so that it outlives its first waiter.
fn join<H>(holder: &Arc<H>, kind: ListKind, connection: &Arc<dyn Connection>) -> watch::Receiver<Option<Fetched>>
where
    H: AsRef<Lists> + Send + Sync + 'static,
{
    let lists = (**holder).as_ref();
    let mut slot = lists.slot(kind).lock();
    let epoch = lists.epoch.load(Acquire);
    if let Some((of, fetch)) = &slot.fetch
        && *of == epoch
        && fetch.has_changed().is_ok()
    {
        return fetch.clone();
    }
    let (sender, receiver) = watch::channel(None);
    slot.fetch = Some((epoch, receiver.clone()));
    let (holder, connection) = (holder.clone(), connection.clone());
    tokio::spawn(async move {
        let fetched = fetch(&*connection, kind).await.map(Arc::new);
        let mut slot = (*holder).as_ref().slot(kind).lock();
        if let Ok(list) = &fetched
            && slot.list.as_ref().is_none_or(|(of, _)| *of <= epoch)
        {
            slot.list = Some((epoch, list.clone()));
        }
        if slot.fetch.as_ref().is_some_and(|(of, _)| *of == epoch) {
            slot.fetch = None;
        }
        drop(slot);
        sender.send_replace(Some(fetched));
    });
    receiver
}

/// Walks every page.
async fn fetch(connection: &dyn Connection, kind: ListKind) -> Result<List, AskError> {
    let shape = Shape::of(kind);
    if let Some(server) = connection.server()
        && kind != ListKind::Tools
        && members(&server.capabilities).is_ok_and(|known| known.get(shape.capability).is_none())
    {
        return Ok(List::default());
    }
    let mut list = List::default();
    let is_modern = connection.server().is_some_and(|server| server.era == Era::Modern);
    let (mut params, mut bytes) = (None::<String>, 0);
    for _ in 0..MAX_PAGES {
        let page = match connection.ask(shape.method, params.as_deref(), PAGE_TIMEOUT).await {
            Ok(page) => page,
            // Not declared and not known: an empty list is what the server means.
            Err(AskError::Rpc(error)) if is_unknown_method(&error) => return Ok(List::default()),
            Err(error) => return Err(error),
        };
        bytes += page.len();
        let next = read_page(&page, &shape, &mut list, is_modern)?;
        if bytes > MAX_BYTES || list.items.len() > MAX_ITEMS {
            let bound = format!("{} is longer than {MAX_ITEMS} items or {MAX_BYTES} bytes", shape.method);
            return Err(AskError::Malformed(bound));
        }
        let Some(cursor) = next else { return Ok(list) };
        let mut text = b"{\"cursor\":".to_vec();
        quote_into(&cursor, &mut text);
        text.push(b'}');
        let next = String::from_utf8_lossy(&text).into_owned();
        if params.as_ref() == Some(&next) {
            return Err(AskError::Malformed(format!("{} gave the same cursor twice", shape.method)));
        }
        params = Some(next);
    }
    Err(AskError::Malformed(format!("{} has more than {MAX_PAGES} pages", shape.method)))
}

/// Appends a page's items and returns the cursor of the next page. Items without a readable name are skipped:
/// nobody could call them.
fn read_page(page: &Bytes, shape: &Shape, list: &mut List, is_modern: bool) -> Result<Option<String>, AskError> {
    let malformed = |what: &str| AskError::Malformed(format!("{}: {what}", shape.method));
    let text = std::str::from_utf8(page).map_err(|_| malformed("not UTF-8"))?;
    let result = members(text).map_err(|_| malformed("the result is not an object"))?;
    let items = result.get(shape.array).ok_or_else(|| malformed("the array is missing"))?;
    let items: Vec<&RawValue> = serde_json::from_str(items).map_err(|_| malformed("the array cannot be read"))?;
    for raw in items {
        let Ok(item) = members(raw.get()) else { continue };
        let Some(name) = item.get(shape.name).and_then(unquote) else { continue };
        let hints = item.get("annotations").and_then(|hints| members(hints).ok());
        if shape.method == method::TOOLS_LIST {
            match mirror::of_tool(raw.get()) {
                // To a server of an older revision the annotation says nothing.
                Err(_) if !is_modern => {}
                Ok(mirrors) if mirrors.is_empty() => {}
                Ok(mirrors) => drop(list.mirrors.insert((&*name).into(), mirrors)),
                // Clients must not offer it, so neither do we.
                Err(fault) => {
                    tracing::warn!(tool = %name.escape_debug(), %fault, "a tool is left out");
                    continue;
                }
            }
        }
        let hint = |key| hints.as_ref().and_then(|hints| hints.get(key)) == Some("true");
        list.items.push(ListItem {
            name: (&*name).into(),
            raw: page.slice_ref(raw.get().as_bytes()),
            safe_to_repeat: hint("readOnlyHint") || hint("idempotentHint"),
        });
    }
    Ok(result.get("nextCursor").and_then(unquote).map(|cursor| cursor.into_owned()))
}

fn is_unknown_method(error: &str) -> bool {
    members(error).is_ok_and(|error| error.get("code") == Some("-32601"))
}

struct Shape {
    method: &'static str,
    capability: &'static str,
    array: &'static str,
    name: &'static str,
}

impl Shape {
    fn of(kind: ListKind) -> Self {
        let (method, capability, array, name) = match kind {
            ListKind::Tools => (method::TOOLS_LIST, "tools", "tools", "name"),
            ListKind::Prompts => (method::PROMPTS_LIST, "prompts", "prompts", "name"),
            ListKind::Resources => (method::RESOURCES_LIST, "resources", "resources", "uri"),
            ListKind::Templates => (method::TEMPLATES_LIST, "resources", "resourceTemplates", "uriTemplate"),
        };
        Shape { method, capability, array, name }
    }
}
