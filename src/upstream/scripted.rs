//! A connection that does what a test tells it: calls are answered when told to, and everything that it was
//! asked is on record. It keeps count of what a server would see in flight.

use super::connection::{AskError, Connection, How, LinkEvent, Report, Run, RunId, ServerInfo, StopReason};
use super::shared::UpstreamShared;
use crate::call::CallId;
use crate::protocol::incoming::{self, Incoming};
use crate::protocol::version::Era;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

pub(crate) const RESULT: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#;

/// What a scripted server does when a run is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnStop {
    /// It goes on as if nothing had been said.
    Ignore,
    /// It ends the call at once.
    Honour,
}

/// What the connection was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Open,
    Begin(CallId),
    Stop(CallId, StopReason),
    Recycle(CallId),
    Reset,
    Close,
}

pub(crate) struct Scripted {
    shared: Arc<UpstreamShared>,
    state: Mutex<State>,
}

struct State {
    seen: Vec<Seen>,
    /// How often each call was begun.
    begun: BTreeMap<CallId, usize>,
    runs: BTreeMap<RunId, Run>,
    /// Calls that the server works on, whether or not forebay still waits for them.
    at_server: BTreeMap<RunId, CallId>,
    peak: usize,
    up_on_open: Option<u32>,
    on_stop: OnStop,
    /// Answers to `ask`, in order; none waits for ever.
    pages: VecDeque<Result<Bytes, AskError>>,
    asked: Vec<String>,
    /// Pings are answered; how many there were.
    answers_pings: bool,
    pings: usize,
    /// Each answer to `ask` waits for a permit of this, if it is set.
    gate: Option<Arc<Semaphore>>,
    /// Calls are answered as soon as they begin.
    instant: bool,
}

impl Scripted {
    /// Comes up with one process as soon as it is opened, and ignores stops.
    pub(crate) fn new(shared: &Arc<UpstreamShared>) -> Arc<Self> {
        Arc::new(Scripted {
            shared: shared.clone(),
            state: Mutex::new(State {
                seen: Vec::new(),
                begun: BTreeMap::new(),
                runs: BTreeMap::new(),
                at_server: BTreeMap::new(),
                peak: 0,
                up_on_open: Some(1),
                on_stop: OnStop::Ignore,
                pages: VecDeque::new(),
                asked: Vec::new(),
                answers_pings: true,
                pings: 0,
                gate: None,
                instant: false,
            }),
        })
    }

    pub(crate) fn up_on_open(&self, processes: Option<u32>) {
        self.state.lock().up_on_open = processes;
    }

    pub(crate) fn on_stop(&self, what: OnStop) {
        self.state.lock().on_stop = what;
    }

    pub(crate) fn answer_instantly(&self, instant: bool) {
        self.state.lock().instant = instant;
    }

    pub(crate) fn page(&self, page: Result<&'static str, AskError>) {
        self.state.lock().pages.push_back(page.map(|text| Bytes::from_static(text.as_bytes())));
    }

    /// Answers to `ask` wait for permits of what is returned.
    pub(crate) fn hold_pages(&self) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.state.lock().gate = Some(gate.clone());
        gate
    }

    pub(crate) fn answers_pings(&self, answers: bool) {
        self.state.lock().answers_pings = answers;
    }

    pub(crate) fn pings(&self) -> usize {
        self.state.lock().pings
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().asked.clone()
    }

    pub(crate) fn shared(&self) -> &Arc<UpstreamShared> {
        &self.shared
    }

    pub(crate) fn tell(&self, event: LinkEvent) {
        self.shared.tell(event);
    }

    /// Calls that the server works on, in the order they came.
    pub(crate) fn at_server(&self) -> Vec<CallId> {
        self.state.lock().at_server.values().copied().collect()
    }

    /// The most calls that the server ever worked on at once.
    pub(crate) fn peak(&self) -> usize {
        self.state.lock().peak
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.lock().seen.clone()
    }

    pub(crate) fn began(&self, call: CallId) -> usize {
        self.state.lock().begun.get(&call).copied().unwrap_or(0)
    }

    /// The server answers a call, in time or late. False if it does not work on it.
    pub(crate) fn answer(&self, call: CallId) -> bool {
        match self.take(call) {
            Some(run) => {
                if run.call.ticket.ending().is_some() {
                    run.release(How::Answered);
                } else {
                    run.answer(RESULT, Era::Legacy);
                }
                true
            }
            None => false,
        }
    }

    /// Answers the call that the server has worked on longest with this message.
    pub(crate) fn answer_next_with(&self, message: &[u8]) -> Option<CallId> {
        let call = self.at_server().first().copied()?;
        self.take(call)?.answer(message, Era::Legacy).then_some(call)
    }

    /// Answers the call that the server has worked on longest.
    /// Says something of the call that runs. False if its client hears nothing.
    pub(crate) fn says(&self, message: &str) -> bool {
        let state = self.state.lock();
        let Some(run) = state.runs.values().next() else { return false };
        let Incoming::Notification { method, params } = incoming::read(message.as_bytes()) else { return false };
        let notices = run.call.notices.as_ref();
        notices.inspect(|notices| notices.take(message.as_bytes(), &method, params)).is_some()
    }

    pub(crate) fn answer_next(&self) -> Option<CallId> {
        let call = self.at_server().first().copied()?;
        self.answer(call).then_some(call)
    }

    pub(crate) fn lose(&self, call: CallId, sent: bool) {
        if let Some(run) = self.take(call) {
            run.lost(sent, "the connection broke");
        }
    }

    pub(crate) fn hand_back(&self, call: CallId) {
        if let Some(run) = self.take(call) {
            run.hand_back();
        }
    }

    pub(crate) fn no_room(&self, call: CallId) {
        if let Some(run) = self.take(call) {
            run.no_room();
        }
    }

    /// As a worker that panics: the run is dropped without a word.
    pub(crate) fn drop_run(&self, call: CallId) {
        drop(self.take(call));
    }

    /// The child dies: all that it worked on is lost, and it comes back after `retry_in`.
    pub(crate) fn die(&self, retry_in: Duration) {
        let runs = self.forget();
        self.tell(LinkEvent::Down { fault: "exit code 1".into(), retry_in });
        for run in runs {
            run.lost(true, "exit code 1");
        }
    }

    fn take(&self, call: CallId) -> Option<Run> {
        let mut state = self.state.lock();
        let id = state.at_server.iter().find(|(_, at)| **at == call).map(|(id, _)| *id)?;
        state.at_server.remove(&id);
        state.runs.remove(&id)
    }

    fn forget(&self) -> Vec<Run> {
        let mut state = self.state.lock();
        state.at_server.clear();
        std::mem::take(&mut state.runs).into_values().collect()
    }
}

impl Connection for Scripted {
    fn open(&self) {
        let mut state = self.state.lock();
        state.seen.push(Seen::Open);
        if let Some(processes) = state.up_on_open {
            self.shared.tell(LinkEvent::Up { processes });
        }
    }

    fn begin(&self, run: Run) {
        let mut state = self.state.lock();
        state.seen.push(Seen::Begin(run.call.id));
        *state.begun.entry(run.call.id).or_default() += 1;
        if state.instant {
            state.peak = state.peak.max(state.at_server.len() + 1);
            drop(state);
            run.answer(RESULT, Era::Legacy);
            return;
        }
        state.at_server.insert(run.id, run.call.id);
        state.peak = state.peak.max(state.at_server.len());
        state.runs.insert(run.id, run);
    }

    fn stop(&self, run: RunId, why: StopReason) {
        let mut state = self.state.lock();
        let Some(call) = state.at_server.get(&run).copied() else { return };
        state.seen.push(Seen::Stop(call, why));
        if state.on_stop == OnStop::Honour {
            state.at_server.remove(&run);
            let run = state.runs.remove(&run);
            drop(state);
            if let Some(run) = run {
                run.release(How::Answered);
            }
        }
    }

    fn recycle(&self, run: RunId) {
        let mut state = self.state.lock();
        let Some(call) = state.at_server.remove(&run) else { return };
        state.seen.push(Seen::Recycle(call));
        let run = state.runs.remove(&run);
        drop(state);
        if let Some(run) = run {
            run.release(How::Lost);
        }
    }

    fn reset(&self, why: &str) {
        self.state.lock().seen.push(Seen::Reset);
        for run in self.forget() {
            run.lost(true, why);
        }
    }

    fn ask(
        &self,
        method: &str,
        params: Option<&str>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<Bytes, AskError>> {
        let mut state = self.state.lock();
        if method == crate::protocol::method::PING {
            state.pings += 1;
            let answers = state.answers_pings;
            return Box::pin(async move {
                if answers {
                    return Ok(Bytes::from_static(b"{}"));
                }
                tokio::time::sleep(timeout).await;
                Err(AskError::TimedOut(timeout))
            });
        }
        state.asked.push(format!("{method} {}", params.unwrap_or("")));
        let page = state.pages.pop_front();
        let gate = state.gate.clone();
        Box::pin(async move {
            tokio::task::yield_now().await;
            if let Some(gate) = gate {
                let _ = gate.acquire().await.map(|permit| permit.forget());
            }
            match page {
                Some(page) => page,
                None => std::future::pending().await,
            }
        })
    }

    fn server(&self) -> Option<Arc<ServerInfo>> {
        Some(Arc::new(ServerInfo {
            era: Era::Legacy,
            version: "2025-11-25".into(),
            capabilities: r#"{"tools":{}}"#.into(),
            server_info: "{}".into(),
            instructions: None,
        }))
    }

    fn report(&self) -> Report {
        Report::default()
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.state.lock().seen.push(Seen::Close);
        for run in self.forget() {
            run.lost(true, "closed");
        }
        Box::pin(std::future::ready(()))
    }
}
