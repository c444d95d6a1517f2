//! The live stream: what it sends, when, and to whom no more.

use super::*;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;

/// One reader of the stream, by the bytes.
struct Follower {
    lines: Lines<BufReader<UnixStream>>,
    comments: usize,
}

impl Follower {
    async fn of(house: &House, query: &str) -> Self {
        let mut stream = UnixStream::connect(house.client.socket()).await.unwrap();
        let head = format!("GET /v1/stream{query} HTTP/1.1\r\nhost: forebay\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next_line().await.unwrap().unwrap();
        assert!(status.contains("200"), "{status}");
        Follower { lines, comments: 0 }
    }

    /// The next update; none at the end.
    async fn next(&mut self) -> Option<wire::Update> {
        let read = async {
            while let Some(line) = self.lines.next_line().await.ok()? {
                match line.strip_prefix("data: ") {
                    Some(json) => return Some(serde_json::from_str(json).unwrap()),
                    // The last chunk; the connection itself stays open.
                    None if line == "0" => return None,
                    None if line == ":" => self.comments += 1,
                    None => {}
                }
            }
            None
        };
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("in time")
    }

    async fn snapshot(&mut self) -> wire::Snapshot {
        match self.next().await {
            Some(wire::Update::Snapshot(snapshot)) => *snapshot,
            other => panic!("{other:?}"),
        }
    }

    async fn changes(&mut self) -> wire::Changes {
        match self.next().await {
            Some(wire::Update::Changes(changes)) => *changes,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn r30_a_snapshot_comes_first_and_then_whole_objects_that_changed() {
    let house = House::of(&["db", "web"]).await;
    let mut follower = Follower::of(&house, "?every_ms=100").await;
    let first = follower.snapshot().await;
    assert_eq!((first.api, &*first.instance), (1, &*house.dispatcher.mark()));
    assert_eq!(first.upstreams.iter().map(|up| &*up.name).collect::<Vec<_>>(), ["db", "web"]);
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!((first.role, first.subject), (wire::Role::Operator, format!("uid:{uid}")));
    assert_eq!((first.pid, first.auth), (std::process::id(), wire::AuthMode::Keys));

    let _calls = house.backlog("db", 5).await;
    let mut sequence = 0;
    let (mut db, mut ann) = (None, None);
    while db.as_ref().is_none_or(|db: &wire::Upstream| (db.running, db.queued) != (2, 3))
        || ann.as_ref().is_none_or(|ann: &wire::Caller| (ann.running, ann.queued) != (2, 3))
    {
        let changes = follower.changes().await;
        sequence += 1;
        assert_eq!(changes.sequence, sequence);
        db = changes.upstreams.into_iter().find(|up| up.name == "db").or(db);
        ann = changes.callers.into_iter().find(|caller| caller.name == "ann").or(ann);
        assert_eq!(changes.totals.unaccounted, 0);
    }
    house.close().await;
}

#[tokio::test]
async fn nothing_but_a_comment_is_sent_while_nothing_changes() {
    let house = House::of(&["db"]).await;
    // Calls that wait grow older all the while, which is no change.
    let steer = house.client.post("/v1/upstreams/db/pause").await.unwrap();
    drop(steer);
    let held = house.call("db", "ann", "query");
    until(|| held.ticket.state() == State::Queued).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let mut follower = Follower::of(&house, "?every_ms=100").await;
    let first = follower.snapshot().await;
    assert_eq!(first.upstreams[0].queued, 1);
    tokio::time::sleep(Duration::from_secs(6)).await;
    house.client.post("/v1/upstreams/db/resume").await.unwrap();
    let changes = follower.changes().await;
    assert_eq!(changes.sequence, 1, "the first thing that happened");
    assert_eq!(follower.comments, 1);
    house.close().await;
}

#[tokio::test]
async fn a_slow_reader_is_dropped_and_nobody_waits_for_it() {
    let names: Vec<String> = (0..200).map(|number| format!("up{number}")).collect();
    let house = House::of(&names.iter().map(|name| &**name).collect::<Vec<_>>()).await;
    let mut slow = Follower::of(&house, "?every_ms=100").await;
    let mut quick = Follower::of(&house, "?every_ms=100").await;
    quick.snapshot().await;
    // Every upstream changes in every look, so that the slow one's socket fills.
    let began = tokio::time::Instant::now();
    let mut looks = 0;
    while looks < 40 {
        for name in &names {
            house.call(name, "ann", "query");
        }
        quick.changes().await;
        looks += 1;
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let mut seen = 0;
    while slow.next().await.is_some() {
        seen += 1;
    }
    assert!(seen < looks, "it was given {seen} of {looks} and then let go");
    house.close().await;
}

#[tokio::test]
async fn a_reader_may_ask_to_be_kept_from_steering() {
    let house = House::of(&["db"]).await;
    let first = Follower::of(&house, "?read_only=true").await.snapshot().await;
    assert_eq!(first.role, wire::Role::Viewer);
    for path in ["/v1/upstreams/db/pause", "/v1/calls/zz/cancel"] {
        let (status, fault) = ask(&house, "POST", path, &[("forebay-read-only", "1")], "").await;
        assert_eq!((status, fault["code"].as_str()), (403, Some("not_allowed")));
    }
    assert_eq!(ask(&house, "GET", "/v1/state", &[("forebay-read-only", "1")], "").await.0, 200);
    house.close().await;
}

#[tokio::test]
async fn the_stream_ends_with_the_daemon_and_says_no_to_what_it_cannot_do() {
    let house = House::of(&["db"]).await;
    for query in ["?every_ms=99", "?every_ms=5001", "?every_ms=x", "?evry_ms=100"] {
        let (status, fault) = house.fault(&format!("/v1/stream{query}")).await;
        assert_eq!((status, &*fault.code), (400, "bad_query"), "{query}");
    }
    let mut followers = Vec::new();
    for _ in 0..32 {
        followers.push(Follower::of(&house, "").await);
    }
    let (status, fault) = house.fault("/v1/stream").await;
    assert_eq!((status, &*fault.code), (503, "too_many_readers"));
    let mut first = followers.pop().unwrap();
    first.snapshot().await;
    house.close().await;
    assert!(first.next().await.is_none());
}
