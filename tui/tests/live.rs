//! The loop from end to end without a terminal: keys go in, frames come out, a daemon that is none answers on a
//! real socket. Nothing is ordered by sleeping: each step waits for what should be seen.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use forebay_tui::app::{self, App, Desk, DeskWith, Ended, Signal};
use forebay_tui::client::Client;
use forebay_tui::connection::Connection;
use forebay_tui::state::Options;
use forebay_tui::view::{Look, Palette, print};
use forebay_wire as wire;
use futures_util::stream::{self, Stream};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Fake, Size};
use tokio::sync::{mpsc, watch};

const SIZE: Size = Size { upstreams: 8, calls: 80 };
const PATIENCE: Duration = Duration::from_secs(20);

/// A screen that shows each frame to whoever waits for it.
struct Glass {
    terminal: Terminal<TestBackend>,
    sent: Arc<Mutex<String>>,
}

impl Desk for Glass {
    fn send(&mut self, bytes: &str) -> io::Result<()> {
        self.sent.lock().unwrap().push_str(bytes);
        Ok(())
    }

    fn suspend(&mut self) -> io::Result<()> {
        self.send("suspended")
    }

    fn retake(&mut self) -> io::Result<()> {
        self.send("retaken")
    }
}

impl DeskWith<TestBackend> for Glass {
    fn terminal(&mut self) -> &mut Terminal<TestBackend> {
        &mut self.terminal
    }
}

/// A person in front of it.
struct Person {
    keys: mpsc::UnboundedSender<Event>,
    signals: mpsc::UnboundedSender<Signal>,
    frames: watch::Receiver<String>,
    sent: Arc<Mutex<String>>,
}

impl Person {
    fn press(&self, keys: &str) {
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                c => KeyCode::Char(c),
            };
            self.keys.send(Event::Key(KeyEvent::new(code, KeyModifiers::NONE))).unwrap();
        }
    }

    /// Waits until a frame holds all of these words.
    async fn sees(&mut self, words: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let frame = self.frames.borrow_and_update().clone();
            if words.iter().all(|word| frame.contains(word)) {
                return frame;
            }
            let changed = tokio::time::timeout(PATIENCE.saturating_sub(begun.elapsed()), self.frames.changed()).await;
            assert!(matches!(changed, Ok(Ok(()))), "{words:?} are not to be seen in\n{frame}");
        }
    }
}

fn receiver<T: Send + 'static>(receiver: mpsc::UnboundedReceiver<T>) -> impl Stream<Item = T> + Unpin {
    Box::pin(stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|item| (item, receiver)) }))
}

/// Runs the screens against a socket while a story is told.
async fn watch<F: Future<Output = ()>>(socket: PathBuf, read_only: bool, story: impl FnOnce(Person) -> F) -> Ended {
    let client = Client::new(&socket).acting_as("tui").read_only(read_only);
    let (connection, heard) = Connection::open(client, 7);
    let (keys, typed) = mpsc::unbounded_channel();
    let (signals, signalled) = mpsc::unbounded_channel();
    let (show, frames) = watch::channel(String::new());
    let sent = Arc::new(Mutex::new(String::new()));
    let terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut glass = Shown { glass: Glass { terminal, sent: sent.clone() }, show };
    let app = App {
        options: Options { read_only, target: "test".into(), utc_offset_s: 0 },
        look: Look { ascii: true, palette: Palette::Mono },
        connection,
        heard,
        keys: Box::pin(futures_util::StreamExt::map(receiver(typed), Ok)),
        signals: receiver(signalled),
    };
    let told = story(Person { keys, signals, frames, sent });
    // A story that leaves the screens running would never end by itself.
    let both = async { tokio::join!(app::run(app, &mut glass), told) };
    let (ended, ()) = tokio::time::timeout(PATIENCE * 4, both).await.unwrap();
    ended.unwrap()
}

/// Shows the frame before each call that comes after it was drawn.
struct Shown {
    glass: Glass,
    show: watch::Sender<String>,
}

impl Desk for Shown {
    fn send(&mut self, bytes: &str) -> io::Result<()> {
        self.glass.send(bytes)
    }

    fn suspend(&mut self) -> io::Result<()> {
        self.glass.suspend()
    }

    fn retake(&mut self) -> io::Result<()> {
        self.glass.retake()
    }

    fn drawn(&mut self) {
        let frame = print(self.glass.terminal.backend().buffer(), false);
        self.show.send_if_modified(|shown| {
            let is_new = *shown != frame;
            *shown = frame;
            is_new
        });
    }
}

impl DeskWith<TestBackend> for Shown {
    fn terminal(&mut self) -> &mut Terminal<TestBackend> {
        &mut self.glass.terminal
    }
}

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("forebay-tui-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[tokio::test]
async fn the_overview_is_live_and_what_is_opened_is_asked_for() {
    let directory = directory("live");
    let fake = Fake::start(&directory.join("s"), "aaaaa", SIZE);
    let ended = watch(fake.socket.clone(), false, |mut person| {
        let fake = &fake;
        async move {
            person.sees(&["LIVE", "upstream-0003", "sort: PRESSURE desc"]).await;
            let gone = (1..8).map(|at| format!("upstream-{at:04}")).collect();
            let changes = wire::Changes { sequence: 1, upstreams_gone: gone, ..wire::Changes::default() };
            fake.say(&wire::Update::Changes(Box::new(changes)));
            person.sees(&["> upstream-0000"]).await;
            person.press("\n");
            person.sees(&["Upstreams > upstream-0000", "aaaaa-0", "caller-000"]).await;
            person.press("\n");
            person.sees(&["it waits for a slot"]).await;
            person.press("\x1b\x1b3");
            person.sees(&["[3 Callers]", "caller-000"]).await;
            person.press("C");
            person.sees(&["Cancel 5 calls of caller-000?", "same as: forebay cancel --caller caller-000"]).await;
            assert!(fake.steered().iter().all(|line| line.contains("dry_run")), "{:?}", fake.steered());
            person.press("y");
            person.sees(&["cancelled 5: 5 queued"]).await;
            assert_eq!(fake.steered().last().unwrap(), r#"POST /v1/cancel {"caller":"caller-000"}"#);
            person.press("1p");
            person.sees(&["upstream-0000: pause done"]).await;
            person.press("y");
            person.sees(&["copied upstream-0000"]).await;
            assert_eq!(*person.sent.lock().unwrap(), "\x1b]52;c;dXBzdHJlYW0tMDAwMA==\x07");
            person.press("q");
        }
    })
    .await;
    assert_eq!(ended, Ended::Quit);
    let _ = std::fs::remove_dir_all(directory);
}

#[tokio::test]
async fn c43_a_lost_daemon_is_told_and_comes_back_by_itself_as_another_run() {
    let directory = directory("lost");
    let socket = directory.join("s");
    let fake = Fake::start(&socket, "aaaaa", SIZE);
    let ended = watch(socket.clone(), false, |mut person| async move {
        person.sees(&["LIVE", "upstream-0003"]).await;
        drop(fake);
        person.sees(&["STALE", "upstream-0003", "^R tries at once"]).await;
        person.press("p");
        person.sees(&["not connected"]).await;
        let fake = Fake::start(&socket, "bbbbb", SIZE);
        person.sees(&["LIVE", "daemon restarted"]).await;
        assert!(fake.steered().is_empty());
        person.press("q");
    })
    .await;
    assert_eq!(ended, Ended::Quit);
    let _ = std::fs::remove_dir_all(directory);
}

#[tokio::test]
async fn a_hole_in_the_stream_begins_it_anew() {
    let directory = directory("hole");
    let fake = Fake::start(&directory.join("s"), "aaaaa", SIZE);
    watch(fake.socket.clone(), false, |mut person| {
        let fake = &fake;
        async move {
            person.sees(&["LIVE", "upstream-0003"]).await;
            let upstreams_gone = vec!["upstream-0003".into()];
            let changes = wire::Changes { sequence: 9, upstreams_gone, ..wire::Changes::default() };
            fake.say(&wire::Update::Changes(Box::new(changes)));
            // The new stream counts from one again; only its message is folded.
            let begun = Instant::now();
            while fake.streams() < 2 {
                assert!(begun.elapsed() < PATIENCE);
                person.sees(&["upstream-0003"]).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            person.press("q");
        }
    })
    .await;
    let _ = std::fs::remove_dir_all(directory);
}

#[tokio::test]
async fn signals_end_it_or_give_the_terminal_back_for_a_while() {
    let directory = directory("signals");
    let fake = Fake::start(&directory.join("s"), "aaaaa", SIZE);
    let ended = watch(fake.socket.clone(), true, |mut person| async move {
        person.sees(&["LIVE", "(read-only)"]).await;
        person.press("p");
        person.sees(&["read-only: opened with --read-only"]).await;
        person.signals.send(Signal::Stop).unwrap();
        person.signals.send(Signal::Continue).unwrap();
        person.signals.send(Signal::End).unwrap();
        let begun = Instant::now();
        while *person.sent.lock().unwrap() != "suspendedretaken" {
            assert!(begun.elapsed() < PATIENCE, "{:?}", person.sent.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(ended, Ended::Signal);
    let _ = std::fs::remove_dir_all(directory);
}

#[tokio::test]
async fn a_closed_terminal_ends_it() {
    let directory = directory("closed");
    let fake = Fake::start(&directory.join("s"), "aaaaa", SIZE);
    let ended = watch(fake.socket.clone(), false, |mut person| async move {
        person.sees(&["LIVE"]).await;
        drop(person);
    })
    .await;
    assert_eq!(ended, Ended::Closed);
    let _ = std::fs::remove_dir_all(directory);
}

#[tokio::test]
async fn a_thousand_upstreams_and_a_hundred_thousand_calls_come_in_pages() {
    let directory = directory("many");
    let fake = Fake::start(&directory.join("s"), "aaaaa", Size { upstreams: 1_000, calls: 100_000 });
    let begun = Instant::now();
    watch(fake.socket.clone(), false, |mut person| {
        let fake = &fake;
        async move {
            person.sees(&["LIVE", "upstream-0", "... 98"]).await;
            let first = begun.elapsed();
            person.press("2");
            person.sees(&["250 of 102,000 loaded"]).await;
            person.press("GGG");
            person.sees(&["500 of 102,000 loaded"]).await;
            eprintln!("first frame after {first:?} in an unoptimised build; {} requests", fake.asked());
            // Ten times the promise: this runs unoptimised beside other tests.
            assert!(first < Duration::from_secs(10), "{first:?}");
            person.press("q");
        }
    })
    .await;
    let _ = std::fs::remove_dir_all(directory);
}
