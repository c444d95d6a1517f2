//! What watching and steering cost a full daemon: 1,000 upstreams that answer nothing, 100,000 calls queued at
//! them, and one that answers at once, through which calls flow all the while.
//!
//! `cargo bench --bench admin`, or with `-- UPSTREAMS QUEUED RATE` for another size. Upstream actors and the load have
//! one thread each, the admin API its own, as in the daemon. Stalls are times that one `submit` took; on a machine that
//! is busy otherwise they are mostly its doing, so they are taken without a watcher too.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that prints figures, and stops when something is wrong"
)]

use bytes::Bytes;
use forebay::admin::{Admin, Socket};
use forebay::call::Call;
use forebay::caller::{Caller, CallerId};
use forebay::config::{Auth, Concurrency, Config, Global, HttpTarget, Limits, Listen, Start, Target, UpstreamConfig};
use forebay::dispatcher::{Dispatcher, Wanted};
use forebay::protocol::envelope::{self, Message, Request};
use forebay::protocol::splice::ReplyForm;
use forebay::protocol::version::Era;
use forebay::upstream::connection::{AskError, How, LinkEvent, Report, ServerInfo, StopReason};
use forebay::upstream::{Connection, Gates, Run, RunId, Supervisor, Upstream, UpstreamShared};
use forebay_tui::client::{Client, read};
use forebay_wire as wire;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// Calls that one selector cancels, and how often that is done.
const CANCELLED: usize = 10_000;
const ROUNDS: usize = 10;
/// How long the stream is read for its share of the processor.
const WATCHED: Duration = Duration::from_secs(10);

fn main() {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let size = |at: usize, built_in: usize| sizes.get(at).copied().unwrap_or(built_in);
    let (upstreams, queued, rate) = (size(0, 1000), size(1, 100_000), size(2, 20_000));
    println!("{upstreams} upstreams, {queued} queued calls, {rate} calls a second");
    let house = House::new(upstreams, queued);
    let mut table = Vec::new();
    house.fill(queued);
    let flow = Flow::start(&house, rate);
    std::thread::sleep(Duration::from_secs(1));
    let client = Builder::new_current_thread().enable_all().build().unwrap();
    client.block_on(measure(&house, &flow, &mut table));
    let flowed = flow.end();
    let totals = client.block_on(house.client.state()).unwrap().totals;
    assert_eq!((totals.unaccounted, totals.offered), (0, house.offered.load(Relaxed)));
    assert_eq!(totals.offered, totals.submitted + totals.queued + totals.running + totals.finished);
    println!("\n{:<56} {:>14}", "what", "figure");
    table.push(("calls that flowed, all answered".into(), flowed.to_string()));
    for (what, figure) in table {
        println!("{what:<56} {figure:>14}");
    }
}

async fn measure(house: &House, flow: &Flow, table: &mut Vec<(String, String)>) {
    println!("without a watcher for {WATCHED:?} ...");
    let (cpu, _) = house.share_of_admin(tokio::time::sleep(WATCHED)).await;
    let alone = flow.take(WATCHED);
    println!("with one reader of the stream for {WATCHED:?} ...");
    let begun = Instant::now();
    let mut stream = house.client.open("/v1/stream").await.unwrap();
    let snapshot = frame(&mut stream).await;
    let took = begun.elapsed();
    flow.take(WATCHED);
    let (watched_cpu, frames) = house
        .share_of_admin(async {
            let end = tokio::time::Instant::now() + WATCHED;
            let (mut frames, mut bytes) = (0, 0);
            while let Ok(frame) = tokio::time::timeout_at(end, frame(&mut stream)).await {
                frames += 1;
                bytes += frame;
            }
            (frames, bytes)
        })
        .await;
    let watched = flow.take(WATCHED);
    drop(stream);
    let mut put = |what: &str, figure: String| table.push((what.into(), figure));
    put("first message of the stream, bytes", snapshot.to_string());
    put("first message of the stream, time", shown(took));
    put("admin thread without a reader, share of a core", format!("{:.2} %", cpu * 100.0));
    put("admin thread with a reader (250 ms), share of a core", format!("{:.2} %", watched_cpu * 100.0));
    put("messages, and bytes of each on average", format!("{} x {}", frames.0, frames.1 / frames.0.max(1)));
    for (who, figures) in [("nobody watching", alone), ("a reader", watched)] {
        put(&format!("calls a second with {who}"), format!("{:.0}", figures.rate));
        put(&format!("submits over 1 ms with {who}"), figures.slow.to_string());
        put(&format!("longest submit with {who}"), shown(figures.longest));
    }

    println!("listing ...");
    for limit in [256, 4096] {
        let (mut times, mut rows, mut path) = (Vec::new(), 0, format!("/v1/calls?limit={limit}"));
        loop {
            let begun = Instant::now();
            let page: wire::CallsPage = read(&house.client.get(&path).await.unwrap()).unwrap();
            times.push(begun.elapsed());
            rows += page.calls.len();
            let Some(next) = page.next else { break };
            path = format!("/v1/calls?limit={limit}&cursor={next}");
        }
        times.sort_unstable();
        put(&format!("pages of {limit}: p50, longest of {} ({rows} rows)", times.len()), both(&times));
    }
    let listed = flow.take(WATCHED);
    put("longest submit while listing", shown(listed.longest));

    println!("cancelling {CANCELLED} by selector, {ROUNDS} times ...");
    let (mut single, mut many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        house.queue("victim", CANCELLED);
        let singles = house.queue("single", 4000);
        let over = AtomicBool::new(false);
        let one_by_one = async {
            let mut times = Vec::new();
            for call in &singles {
                if over.load(Relaxed) {
                    break;
                }
                let begun = Instant::now();
                let answer = house.client.cancel(&call.id.to_string()).await.unwrap();
                times.push(begun.elapsed());
                assert_eq!(answer.answer, wire::Cancelled::CancelledQueued);
            }
            times
        };
        let at_once = async {
            let begun = Instant::now();
            let body = Bytes::from_static(br#"{"caller": "victim"}"#);
            let answer = house.client.send(http::Method::POST, "/v1/cancel", body).await.unwrap();
            let took = begun.elapsed();
            over.store(true, Relaxed);
            let answer: wire::CancelledMany = read(&answer).unwrap();
            assert_eq!(answer.cancelled_queued, CANCELLED as u64);
            took
        };
        let (took, times) = tokio::join!(at_once, one_by_one);
        single.extend(times);
        many.push(took);
        let rest = Bytes::from_static(br#"{"caller": "single"}"#);
        house.client.send(http::Method::POST, "/v1/cancel", rest).await.unwrap();
    }
    single.sort_unstable();
    many.sort_unstable();
    let cancelling = flow.take(WATCHED);
    put("cancel of 10,000 by selector: p50, longest", both(&many));
    put(&format!("single cancels meanwhile: p50, longest of {}", single.len()), both(&single));
    put("single cancels meanwhile: p99", shown(single[single.len() * 99 / 100]));
    put("longest submit while cancelling", shown(cancelling.longest));
}

fn both(times: &[Duration]) -> String {
    format!("{}, {}", shown(times[times.len() / 2]), shown(times[times.len() - 1]))
}

fn shown(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

/// Bytes of the next server-sent event.
async fn frame(stream: &mut forebay_tui::client::Flow) -> usize {
    let mut bytes = 0;
    loop {
        let piece = stream.next().await.unwrap().unwrap();
        bytes += piece.len();
        if piece.ends_with(b"\n\n") {
            return bytes;
        }
    }
}

/// The parts of a daemon that the admin API looks at.
struct House {
    dispatcher: Arc<Dispatcher>,
    slow: Vec<Arc<Upstream>>,
    fast: Arc<Upstream>,
    callers: BTreeMap<&'static str, Arc<Caller>>,
    request: Request,
    offered: AtomicU64,
    admin: Handle,
    client: Client,
    _supervisor: Supervisor,
    _home: tempfile::TempDir,
}

impl House {
    fn new(upstreams: usize, queued: usize) -> Arc<Self> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run/forebay.sock");
        let mcp = "127.0.0.1:7300".parse().unwrap();
        let config = Config {
            listen: Listen {
                mcp,
                mcp_unix: None,
                admin: path.clone(),
                hosts: Vec::new(),
                origins: Vec::new(),
                threads: 1,
                max_body: 1 << 20,
            },
            auth: Auth::None,
            global: Global::default(),
            upstreams: BTreeMap::new(),
            callers: BTreeMap::new(),
            hooks: forebay::config::Hooks::default(),
            origin: None,
        };
        let (actors, admin) = (thread("actors"), thread("admin"));
        let dispatcher = Dispatcher::new(Arc::new(config), 12_345);
        let supervisor = Supervisor::start(&actors, Gates::new(&Global::default()), 7);
        let _on_it = actors.enter();
        let places = queued / upstreams.max(1) + 2 * CANCELLED / upstreams.max(1) + 1024;
        let start = |name: String, instant: bool, limits: Limits| {
            let target = HttpTarget { url: "http://127.0.0.1:1/".parse().unwrap(), headers: Vec::new() };
            let shared = UpstreamShared::new(Arc::new(UpstreamConfig {
                name: name.into(),
                target: Target::Http(target),
                limits: Limits { queue_timeout: None, call_timeout: None, ..limits },
                tools: BTreeMap::new(),
                start: Start::Eager,
                connect_timeout: Duration::from_secs(10),
                max_message: 1 << 20,
            }));
            let server = Server { shared: shared.clone(), instant, runs: Mutex::default() };
            let upstream = Upstream::start(shared, Arc::new(server), &supervisor);
            dispatcher.add_upstream(upstream.clone());
            upstream
        };
        let one = Concurrency::Fixed(1);
        let limits = || Limits { max_concurrent: one, queue_size: places as u32, ..Limits::built_in(true) };
        let slow = (0..upstreams).map(|number| start(format!("dead-{number}"), false, limits())).collect();
        let wide = Limits { max_concurrent: Concurrency::Fixed(64), queue_size: 20_000, ..Limits::built_in(true) };
        let fast = start("fast".into(), true, wide);
        let names = ["load", "victim", "single", "flow"];
        let caller = |(number, name): (usize, &'static str)| {
            let id = CallerId(100 + number as u32);
            (name, Arc::new(Caller::new(id, name.into(), "key", Arc::default())))
        };
        let serving =
            Admin::new(dispatcher.clone(), mcp, None).serve(Socket::bind(&path).unwrap(), CancellationToken::new());
        admin.spawn(serving);
        let body =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query","arguments":{"q":"select 1"}}}"#;
        let Ok(Message::Request(request)) = envelope::read(Bytes::from(body)) else { panic!("not a request") };
        Arc::new(House {
            dispatcher,
            slow,
            fast,
            callers: names.into_iter().enumerate().map(caller).collect(),
            request,
            offered: AtomicU64::new(0),
            admin,
            client: Client::new(path),
            _supervisor: supervisor,
            _home: home,
        })
    }

    fn call(&self, upstream: &Arc<Upstream>, caller: &str) -> Arc<Call> {
        self.offered.fetch_add(1, Relaxed);
        self.dispatcher.submit(Wanted {
            caller: self.callers[caller].clone(),
            upstream: upstream.clone(),
            request: self.request.clone(),
            target: "query".into(),
            renamed: false,
            tool: Some("query".into()),
            lane: None,
            arrived: tokio::time::Instant::now(),
            timeout: None,
            home: 0,
            form: ReplyForm::Result,
            notices: None,
        })
    }

    /// One call runs at each upstream, and so many wait.
    fn fill(&self, queued: usize) {
        self.queue("load", queued + self.slow.len());
    }

    /// So many calls, once each has left the submit ring.
    fn queue(&self, caller: &str, count: usize) -> Vec<Arc<Call>> {
        let calls: Vec<_> = (0..count).map(|at| self.call(&self.slow[at % self.slow.len()], caller)).collect();
        for call in &calls {
            while call.ticket.state() == forebay::call::State::Submitted {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(call.ticket.ending().is_none(), "{:?}", call.ticket.ending().unwrap().outcome);
        }
        calls
    }

    /// The share of one core that the admin API's thread takes while something else goes on.
    async fn share_of_admin<T>(&self, meanwhile: impl Future<Output = T>) -> (f64, T) {
        let used = async || self.admin.spawn(async { cpu_of_this_thread() }).await.unwrap();
        let (before, begun) = (used().await, Instant::now());
        let done = meanwhile.await;
        ((used().await - before).as_secs_f64() / begun.elapsed().as_secs_f64(), done)
    }
}

/// Linux tells it in nanoseconds.
fn cpu_of_this_thread() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0))
}

fn thread(name: &str) -> Handle {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || runtime.block_on(std::future::pending::<()>()))
        .unwrap();
    handle
}

/// Calls that flow through the fast upstream at a rate, on a thread of their own.
struct Flow {
    figures: Arc<Mutex<Figures>>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

#[derive(Default)]
struct Figures {
    calls: u64,
    rate: f64,
    longest: Duration,
    slow: u64,
    since: Option<Instant>,
}

impl Flow {
    fn start(house: &Arc<House>, rate: usize) -> Flow {
        let figures = Arc::new(Mutex::new(Figures { since: Some(Instant::now()), ..Figures::default() }));
        let stop = Arc::new(AtomicBool::new(false));
        let (house, noted, stopped) = (house.clone(), figures.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(flow(&house, rate, &noted, &stopped))
        });
        Flow { figures, stop, thread }
    }

    /// What was measured since the last time.
    fn take(&self, _over: Duration) -> Figures {
        let fresh = Figures { since: Some(Instant::now()), ..Figures::default() };
        let mut taken = std::mem::replace(&mut *self.figures.lock(), fresh);
        taken.rate = taken.calls as f64 / taken.since.map_or(1.0, |since| since.elapsed().as_secs_f64());
        taken
    }

    fn end(self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

async fn flow(house: &House, rate: usize, figures: &Mutex<Figures>, stop: &AtomicBool) -> u64 {
    let tick = Duration::from_millis(1);
    let (begun, mut offered) = (Instant::now(), 0_u64);
    let mut under_way = std::collections::VecDeque::new();
    let mut answered = 0;
    while !stop.load(Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        // After a stall of the machine it catches up bit by bit.
        for _ in 0..due.saturating_sub(offered).min(200) {
            let started = Instant::now();
            let call = house.call(&house.fast, "flow");
            let took = started.elapsed();
            under_way.push_back(call);
            offered += 1;
            let mut figures = figures.lock();
            figures.calls += 1;
            figures.longest = figures.longest.max(took);
            figures.slow += u64::from(took > Duration::from_millis(1));
        }
        while under_way.front().is_some_and(|call: &Arc<Call>| call.ticket.ending().is_some()) {
            let call = under_way.pop_front().unwrap();
            assert_eq!(call.ticket.ending().unwrap().outcome.name(), "completed");
            answered += 1;
        }
        tokio::time::sleep(tick).await;
    }
    for call in under_way {
        assert_eq!(call.ticket.ended().await.outcome.name(), "completed");
        answered += 1;
    }
    answered
}

/// Answers at once, or never.
struct Server {
    shared: Arc<UpstreamShared>,
    instant: bool,
    runs: Mutex<HashMap<RunId, Run>>,
}

impl Connection for Server {
    fn open(&self) {
        self.shared.tell(LinkEvent::Up { processes: 1 });
    }

    fn begin(&self, run: Run) {
        if self.instant {
            run.answer(br#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#, Era::Legacy);
        } else {
            self.runs.lock().insert(run.id, run);
        }
    }

    fn stop(&self, run: RunId, _why: StopReason) {
        let run = self.runs.lock().remove(&run);
        if let Some(run) = run {
            run.release(How::Answered);
        }
    }

    fn recycle(&self, run: RunId) {
        self.stop(run, StopReason::Cancelled);
    }

    fn reset(&self, why: &str) {
        let runs = std::mem::take(&mut *self.runs.lock());
        for run in runs.into_values() {
            run.lost(true, why);
        }
    }

    fn ask(&self, _: &str, _: Option<&str>, _: Duration) -> BoxFuture<'static, Result<Bytes, AskError>> {
        Box::pin(std::future::pending())
    }

    fn server(&self) -> Option<Arc<ServerInfo>> {
        None
    }

    fn report(&self) -> Report {
        Report::default()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.reset("closed");
        Box::pin(std::future::ready(()))
    }
}
