//! MCP over standard input and output: lines in, lines out, every request in a task of its own.
//!
//! What a message means is its [`Backend`]'s affair: the pipeline behind HTTP ([`super::face`]) for
//! `forebay run`, a daemon elsewhere for `forebay bridge`. Here are the lines, the cancels and the end.
//!
//! A cancel ends the task of the one live request under its id, whatever the era: its backend is dropped, which is
//! to it what a closed connection is to HTTP, and nothing is written (rule R4).
//!
//! Bounds: a line has at most [`Limits::longest`] bytes; at most [`Limits::open`] messages are worked on, answers that
//! the client does not read included, and with more nothing further is read.

use super::answer;
use crate::protocol::envelope::{self, Message, Request};
use crate::protocol::error;
use crate::protocol::method;
use crate::protocol::sse::Splitter;
use bytes::{Buf, Bytes};
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::Body;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Answers that wait to be written; with more, those who answer wait.
const WAITING_LINES: usize = 64;
/// How long what is cancelled at the end, and the last answers, may take.
const LAST: Duration = Duration::from_secs(1);

/// Who answers the messages.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Answers a request, or acts on a notification, whose [`Out`] leads nowhere. Dropped when the client cancels it.
    fn answer(self: Arc<Self>, request: Request, out: Out) -> impl Future<Output = ()> + Send;
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes of one line.
    pub longest: usize,
    /// Messages worked on at once.
    pub open: usize,
    /// How long what was asked may go on once the client says no more.
    pub grace: Duration,
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client has closed our input, and everything it had asked is answered.
    Input,
    /// The same, but some of it took longer than the grace and was cancelled.
    GraceOver,
    /// Nobody reads our output any more.
    Output,
    /// A signal.
    Told,
}

/// Where answers go: lines for the client, or nowhere.
#[derive(Clone, Debug)]
pub(crate) struct Out(Option<mpsc::Sender<Bytes>>);

impl Out {
    /// Writes one message. Line ends in it are whitespace between its tokens, and become blanks.
    pub(crate) async fn line(&self, message: Bytes) {
        let Some(lines) = &self.0 else { return };
        let message = if memchr::memchr2(b'\n', b'\r', &message).is_some() {
            message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
        } else {
            message
        };
        // Nobody writes any more: the end is under way.
        let _ = lines.send(message).await;
    }

    /// Writes what an HTTP answer carries: nothing, one message, or a stream of them.
    ///
    /// # Errors
    /// The answer broke off, or one message in it is longer than `longest`.
    pub(crate) async fn reply<B>(&self, reply: Response<B>, longest: usize) -> Result<(), String>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let kind = reply.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
        let is_stream = kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        let mut body = reply.into_body();
        let (mut events, mut splitter, mut whole) = (Vec::new(), Splitter::new(longest), Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|fault| fault.to_string())?.into_data() else { continue };
            if is_stream {
                splitter.push(&data, &mut events).map_err(|fault| fault.to_string())?;
                for event in events.drain(..) {
                    self.line(event).await;
                }
            } else if whole.len() + data.len() > longest {
                return Err(format!("the answer is larger than {longest} bytes"));
            } else {
                whole.extend_from_slice(&data);
            }
        }
        if !whole.is_empty() {
            self.line(whole.into()).await;
        }
        Ok(())
    }

    /// Writes a JSON-RPC error. `id` is as it was written; empty is unknown.
    pub(crate) async fn error(&self, id: &[u8], code: i64, message: &str) {
        // An error of ours is whole: its body cannot fail.
        let _ = self.reply(answer::rpc_error(200, Some(id), code, message, None), usize::MAX).await;
    }
}

/// Serves one client until it closes its end, nobody reads the answers, or `hurry`.
pub(crate) async fn serve<B: Backend>(
    backend: Arc<B>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    limits: Limits,
    hurry: CancellationToken,
) -> Ended {
    let (lines, waiting) = mpsc::channel(WAITING_LINES);
    let broken = CancellationToken::new();
    let writer = tokio::spawn(write(output, waiting, broken.clone()));
    let mut front = Front {
        backend,
        open: Arc::default(),
        places: Arc::new(Semaphore::new(limits.open)),
        tasks: JoinSet::new(),
        taken: 0,
        out: Out(Some(lines)),
        limits,
    };
    let ended = tokio::select! {
        biased;
        () = hurry.cancelled() => Ended::Told,
        () = broken.cancelled() => Ended::Output,
        () = front.read(BufReader::new(input)) => Ended::Input,
    };
    let ended = match ended {
        Ended::Input => tokio::select! {
            biased;
            () = hurry.cancelled() => Ended::Told,
            () = broken.cancelled() => Ended::Output,
            done = tokio::time::timeout(limits.grace, front.done()) => match done {
                Ok(()) => Ended::Input,
                Err(_) => Ended::GraceOver,
            },
        },
        other => other,
    };
    front.open.cancel_all();
    let _ = tokio::time::timeout(LAST, front.done()).await;
    // The last sender goes with it, so the writer ends.
    drop(front);
    let _ = tokio::time::timeout(LAST, writer).await;
    ended
}

async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Bytes>, broken: CancellationToken) {
    while let Some(line) = lines.recv().await {
        let mut written = output.write_all_buf(&mut line.chain(&b"\n"[..])).await;
        if written.is_ok() && lines.is_empty() {
            written = output.flush().await;
        }
        if let Err(fault) = written {
            tracing::debug!(%fault, "nobody reads the answers");
            broken.cancel();
            return;
        }
    }
    let _ = output.flush().await;
}

/// The requests that are being worked on, by their ids as they were written.
#[derive(Default)]
struct Open(Mutex<HashMap<Bytes, Vec<(u64, CancellationToken)>>>);

impl Open {
    fn add(&self, id: &Bytes, number: u64) -> CancellationToken {
        let token = CancellationToken::new();
        self.0.lock().entry(id.clone()).or_default().push((number, token.clone()));
        token
    }

    fn remove(&self, id: &Bytes, number: u64) {
        let mut open = self.0.lock();
        if let Some(alike) = open.get_mut(id) {
            alike.retain(|(known, _)| *known != number);
            if alike.is_empty() {
                open.remove(id);
            }
        }
    }

    /// Cancels the one live request of this id; of several none is meant (C26).
    fn cancel(&self, id: &[u8]) {
        if let Some([(_, token)]) = self.0.lock().get(id).map(Vec::as_slice) {
            token.cancel();
        }
    }

    fn cancel_all(&self) {
        self.0.lock().values().flatten().for_each(|(_, token)| token.cancel());
    }
}

struct Front<B> {
    backend: Arc<B>,
    open: Arc<Open>,
    places: Arc<Semaphore>,
    tasks: JoinSet<()>,
    /// Requests taken so far.
    taken: u64,
    out: Out,
    limits: Limits,
}

impl<B: Backend> Front<B> {
    /// Takes messages until the input ends.
    async fn read(&mut self, mut input: impl AsyncBufRead + Unpin) {
        loop {
            match next_line(&mut input, self.limits.longest).await {
                Ok(Line::Whole(line)) => self.take(line).await,
                Ok(Line::TooLong) => {
                    let message = format!("the message is longer than {} bytes", self.limits.longest);
                    self.out.error(b"", error::INVALID_REQUEST, &message).await;
                }
                Ok(Line::End) => return,
                Err(fault) => {
                    tracing::warn!(%fault, "the client's messages cannot be read");
                    return;
                }
            }
            while self.tasks.try_join_next().is_some() {}
        }
    }

    async fn take(&mut self, line: Bytes) {
        let (request, id) = match envelope::read(line) {
            Ok(Message::Request(request)) => {
                let id = request.id_bytes();
                (request, Some(id))
            }
            Ok(Message::Notification(notice)) if &*notice.method == method::CANCELLED => {
                if let Some(id) = notice.params_members().get("requestId") {
                    self.open.cancel(id.as_bytes());
                }
                return;
            }
            Ok(Message::Notification(notice)) => (notice, None),
            // Nobody was asked anything, so it answers nothing.
            Ok(Message::Response) => return,
            Err(fault) => {
                let id = fault.id.as_deref().unwrap_or_default();
                return self.out.error(id.as_bytes(), fault.code, &fault.message).await;
            }
        };
        let Ok(place) = self.places.clone().acquire_owned().await else { return };
        let (backend, open) = (self.backend.clone(), self.open.clone());
        // Known before the next line is read, so that a cancel right behind its request finds it (C04).
        self.taken += 1;
        let number = self.taken;
        let named = id.map(|id| (open.add(&id, number), id));
        let out = if named.is_some() { self.out.clone() } else { Out(None) };
        self.tasks.spawn(async move {
            let _place = place;
            match named {
                None => backend.answer(request, out).await,
                Some((token, id)) => {
                    tokio::select! {
                        biased;
                        () = token.cancelled() => {}
                        () = backend.answer(request, out) => {}
                    }
                    open.remove(&id, number);
                }
            }
        });
    }

    async fn done(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

enum Line {
    Whole(Bytes),
    /// It was longer than allowed, and has been passed over.
    TooLong,
    End,
}

/// The next line that is not empty. A last one without its end counts.
async fn next_line(input: &mut (impl AsyncBufRead + Unpin), longest: usize) -> io::Result<Line> {
    let (mut line, mut too_long) = (Vec::new(), false);
    loop {
        let bytes = input.fill_buf().await?;
        let at_end = bytes.is_empty();
        let (part, used, ends) = match memchr::memchr(b'\n', bytes) {
            Some(at) => (&bytes[..at], at + 1, true),
            None => (bytes, bytes.len(), at_end),
        };
        too_long |= line.len() + part.len() > longest;
        if too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(part);
        }
        input.consume(used);
        if !ends {
            continue;
        }
        if too_long {
            return Ok(Line::TooLong);
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Line::Whole(std::mem::take(&mut line).into()));
        }
        if at_end {
            return Ok(Line::End);
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{DuplexStream, Lines};
    use tokio::sync::Notify;

    /// Answers `echo` at once and `hold` when told; counts those that were dropped.
    #[derive(Default)]
    struct Scripted {
        go: Notify,
        began: Notify,
        dropped: Arc<Notify>,
    }

    struct Dropped(Option<Arc<Notify>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            if let Some(told) = &self.0 {
                told.notify_one();
            }
        }
    }

    impl Backend for Scripted {
        async fn answer(self: Arc<Self>, request: Request, out: Out) {
            let mut dropped = Dropped(Some(self.dropped.clone()));
            if &*request.method == "hold" {
                self.began.notify_one();
                self.go.notified().await;
            }
            dropped.0 = None;
            let id = String::from_utf8(request.id_bytes().to_vec()).unwrap();
            out.line(format!("{{\"id\":{id},\n\"method\":\"{}\"}}", request.method).into()).await;
        }
    }

    struct Client {
        input: Option<DuplexStream>,
        lines: Lines<BufReader<DuplexStream>>,
        backend: Arc<Scripted>,
        hurry: CancellationToken,
        served: tokio::task::JoinHandle<Ended>,
    }

    impl Client {
        fn new(grace: Duration) -> Self {
            let (input, theirs) = tokio::io::duplex(1 << 16);
            let (output, reader) = tokio::io::duplex(1 << 16);
            let (backend, hurry) = (Arc::new(Scripted::default()), CancellationToken::new());
            let limits = Limits { longest: 200, open: 8, grace };
            let served = tokio::spawn(serve(backend.clone(), theirs, output, limits, hurry.clone()));
            Client { input: Some(input), lines: BufReader::new(reader).lines(), backend, hurry, served }
        }

        async fn send(&mut self, text: &str) {
            self.input.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
        }

        async fn line(&mut self) -> Option<String> {
            self.lines.next_line().await.unwrap()
        }
    }

    fn request(id: &str, method: &str) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"}}\n")
    }

    fn cancel(id: &str) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id}}}}}\n")
    }

    #[tokio::test]
    async fn answers_are_lines_and_overtake_each_other() {
        let mut client = Client::new(LAST);
        client.send(&(request("\"a\"", "hold") + &request("2", "echo"))).await;
        assert_eq!(client.line().await.unwrap(), "{\"id\":2, \"method\":\"echo\"}");
        client.backend.go.notify_one();
        assert_eq!(client.line().await.unwrap(), "{\"id\":\"a\", \"method\":\"hold\"}");
    }

    #[tokio::test]
    async fn c04_a_cancel_right_behind_its_request_ends_it_and_nothing_is_written() {
        let mut client = Client::new(LAST);
        client.send(&(request("1", "hold") + &cancel("1") + &request("2", "echo"))).await;
        assert!(client.line().await.unwrap().contains("\"id\":2"));
        // One that runs already is dropped.
        client.send(&request("1", "hold")).await;
        client.backend.began.notified().await;
        client.send(&cancel("1")).await;
        client.backend.dropped.notified().await;
        drop(client.input.take());
        assert_eq!(client.line().await, None);
        assert_eq!(client.served.await.unwrap(), Ended::Input);
    }

    #[tokio::test]
    async fn c26_a_cancel_that_could_mean_two_means_none() {
        let mut client = Client::new(LAST);
        client.send(&(request("1", "hold") + &request("1", "hold") + &cancel("1"))).await;
        client.send(&(cancel("\"1\"") + &cancel("7"))).await;
        client.backend.began.notified().await;
        client.backend.go.notify_one();
        assert!(client.line().await.unwrap().contains("\"id\":1"));
        client.backend.go.notify_one();
        assert!(client.line().await.unwrap().contains("\"id\":1"));
    }

    #[tokio::test]
    async fn what_cannot_be_read_costs_one_line() {
        let mut client = Client::new(LAST);
        let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}\n", "x".repeat(300));
        client
            .send(&(long + "nonsense\n\n[]\n{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":4}\n" + &request("5", "echo")))
            .await;
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(client.line().await.unwrap());
        }
        for (line, code) in seen.iter().zip(["-32600", "-32700", "-32600", "-32600"]) {
            assert!(line.contains(code), "{line}");
        }
        assert!(
            seen[3].contains("\"id\":3") && seen[0].contains("\"id\":null") && seen[4].contains("echo"),
            "{seen:?}"
        );
    }

    #[tokio::test]
    async fn the_end_of_the_input_lets_what_was_asked_finish() {
        let mut client = Client::new(Duration::from_secs(60));
        client.send(request("1", "hold").trim_end()).await;
        drop(client.input.take());
        client.backend.began.notified().await;
        client.backend.go.notify_one();
        assert!(client.line().await.unwrap().contains("\"id\":1"));
        assert_eq!(client.line().await, None);
        assert_eq!(client.served.await.unwrap(), Ended::Input);
    }

    #[tokio::test(start_paused = true)]
    async fn what_outlasts_the_grace_is_cancelled() {
        let mut client = Client::new(Duration::from_secs(5));
        client.send(&request("1", "hold")).await;
        drop(client.input.take());
        assert_eq!(client.line().await, None);
        assert_eq!(client.served.await.unwrap(), Ended::GraceOver);
    }

    #[tokio::test]
    async fn a_signal_or_a_reader_that_is_gone_ends_it_at_once() {
        let mut client = Client::new(Duration::from_secs(600));
        client.send(&request("1", "hold")).await;
        client.backend.began.notified().await;
        client.hurry.cancel();
        assert_eq!(client.served.await.unwrap(), Ended::Told);

        let mut client = Client::new(Duration::from_secs(600));
        drop(client.lines);
        client.input.as_mut().unwrap().write_all(request("1", "echo").as_bytes()).await.unwrap();
        assert_eq!(client.served.await.unwrap(), Ended::Output);
    }
}
