//! The list cache: one fetch for all, pages, staleness, hostile servers.

use super::rig::*;
use crate::config::Global;
use crate::upstream::ListKind;
use crate::upstream::connection::{AskError, LinkEvent};

const ONE: &str =
    r#"{"tools":[{"name":"a","annotations":{"readOnlyHint":true},"x":1.10},{"name":"b\u0063"}],"nextCursor":"p\"2"}"#;
const TWO: &str = r#"{"tools":[{"noname":1},{"name":"d","annotations":{"idempotentHint":true}}]}"#;

#[tokio::test(start_paused = true)]
async fn every_page_is_walked_once_for_all_who_wait() {
    let rig = Rig::up(limits(1, 10)).await;
    rig.server.page(Ok(ONE));
    rig.server.page(Ok(TWO));
    let (one, two) = tokio::join!(rig.upstream.list(ListKind::Tools), rig.upstream.list(ListKind::Tools));
    let list = one.unwrap();
    assert!(std::sync::Arc::ptr_eq(&list, &two.unwrap()));
    assert_eq!(rig.server.asked(), ["tools/list ", r#"tools/list {"cursor":"p\"2"}"#]);
    let items: Vec<_> = list.items.iter().map(|item| (&*item.name, item.safe_to_repeat)).collect();
    assert_eq!(items, [("a", true), ("bc", false), ("d", true)]);
    assert_eq!(list.items[0].raw, r#"{"name":"a","annotations":{"readOnlyHint":true},"x":1.10}"#);
    assert!(rig.upstream.cached_list(ListKind::Tools).is_some());
    rig.upstream.list(ListKind::Tools).await.unwrap();
    assert_eq!(rig.server.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_is_fetched_again_and_the_old_one_serves_if_that_fails() {
    let rig = Rig::up(limits(1, 10)).await;
    rig.server.page(Ok(r#"{"tools":[{"name":"old"}]}"#));
    rig.upstream.list(ListKind::Tools).await.unwrap();
    rig.server.tell(LinkEvent::ListsChanged);
    rig.settle().await;
    assert!(rig.upstream.cached_list(ListKind::Tools).is_none());
    assert_eq!(&*rig.upstream.known_list(ListKind::Tools).unwrap().items[0].name, "old");
    rig.server.page(Err(AskError::TimedOut(secs(30))));
    assert_eq!(&*rig.upstream.list(ListKind::Tools).await.unwrap().items[0].name, "old");
    rig.server.page(Ok(r#"{"tools":[{"name":"new"}]}"#));
    assert_eq!(&*rig.upstream.list(ListKind::Tools).await.unwrap().items[0].name, "new");
    rig.server.tell(LinkEvent::Down { fault: "gone".into(), retry_in: secs(100) });
    rig.settle().await;
    assert!(rig.upstream.cached_list(ListKind::Tools).is_none());
    assert_eq!(&*rig.upstream.list(ListKind::Tools).await.unwrap().items[0].name, "new");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_goes_stale_while_it_is_fetched_is_fetched_again() {
    let rig = Rig::up(limits(1, 10)).await;
    rig.server.page(Ok(r#"{"tools":[{"name":"old"}]}"#));
    rig.server.page(Ok(r#"{"tools":[{"name":"new"}]}"#));
    let upstream = rig.upstream.clone();
    let asked = tokio::spawn(async move { upstream.list(ListKind::Tools).await });
    while rig.server.asked().is_empty() {
        tokio::task::yield_now().await;
    }
    rig.upstream.shared().lists.invalidate();
    assert_eq!(&*asked.await.unwrap().unwrap().items[0].name, "new");
}

#[tokio::test(start_paused = true)]
async fn what_a_server_does_not_declare_is_not_asked_for() {
    let rig = Rig::up(limits(1, 10)).await;
    assert!(rig.upstream.list(ListKind::Prompts).await.unwrap().items.is_empty());
    assert!(rig.server.asked().is_empty());
    rig.server.page(Err(AskError::Rpc(r#"{"code":-32601,"message":"no"}"#.into())));
    assert!(rig.upstream.list(ListKind::Tools).await.unwrap().items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_cannot_make_us_walk_for_ever() {
    let rig = Rig::up(limits(1, 10)).await;
    rig.server.page(Ok(r#"{"tools":[],"nextCursor":"x"}"#));
    rig.server.page(Ok(r#"{"tools":[],"nextCursor":"x"}"#));
    assert!(matches!(rig.upstream.list(ListKind::Tools).await, Err(AskError::Malformed(_))));
    for page in ["[]", r#"{"tools":{}}"#, r#"{"other":[]}"#] {
        rig.server.page(Ok(page));
        assert!(matches!(rig.upstream.list(ListKind::Tools).await, Err(AskError::Malformed(_))), "{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_an_upstream_that_never_comes_up_ends_in_time() {
    let rig = Rig::start(config("up", limits(1, 10)), supervisor(&Global::default()), |server| server.up_on_open(None));
    assert_eq!(rig.upstream.list(ListKind::Tools).await.unwrap_err(), AskError::TimedOut(secs(10)));
}
