//! A client on standard input and output: of `forebay run` and `forebay bridge`.

use super::{PATIENCE, until};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

/// A process that speaks MCP on its standard input and output. Dropping it kills it.
pub(crate) struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What has come and was not asked for yet.
    early: Vec<Value>,
}

impl Pipe {
    /// Starts the binary; nothing of the user's own settings reaches it.
    pub(crate) fn start(args: &[&str], env: &[(&str, &str)]) -> Pipe {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        super::daemon::clean(&mut command).envs(env.iter().copied());
        let mut child = command.spawn().expect("the binary runs");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Pipe { input: child.stdin.take(), child, lines, early: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one message.
    pub(crate) fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(format!("{message}\n").as_bytes()).expect("it reads");
    }

    /// Sends a request.
    pub(crate) fn ask(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params }));
    }

    /// Shakes hands as a client of 2025-11-25.
    pub(crate) fn hello(&mut self) -> Value {
        let client = json!({ "name": "test", "version": "1" });
        self.ask(0, "initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }));
        let answer = self.answer(0);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer
    }

    /// Calls a tool.
    pub(crate) fn call(&mut self, id: impl Into<Value>, tool: &str, arguments: Value) {
        self.ask(id, "tools/call", json!({ "name": tool, "arguments": arguments }));
    }

    /// The same as a client of 2026-07-28.
    pub(crate) fn call_modern(&mut self, id: impl Into<Value>, tool: &str, arguments: Value) {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        });
        self.ask(id, "tools/call", json!({ "name": tool, "arguments": arguments, "_meta": meta }));
    }

    /// Cancels a request.
    pub(crate) fn cancel(&mut self, id: impl Into<Value>) {
        let params = json!({ "requestId": id.into() });
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    }

    /// The answer under this id, whatever comes before it.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        if let Some(at) = self.early.iter().position(|message| message["id"] == id) {
            return self.early.remove(at);
        }
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let message: Value = serde_json::from_str(&line).unwrap_or_else(|fault| panic!("{fault}: {line}"));
                    if message["id"] == id {
                        return message;
                    }
                    self.early.push(message);
                }
                Err(fault) => panic!("no answer to {id}: {fault}; others: {:?}", self.early),
            }
        }
    }

    /// The text of the answer under this id.
    #[track_caller]
    pub(crate) fn text(&mut self, id: impl Into<Value>) -> String {
        let answer = self.answer(id);
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Closes the input, and gives what still comes out and how it ended.
    #[track_caller]
    pub(crate) fn close(&mut self) -> (Vec<Value>, ExitStatus) {
        drop(self.input.take());
        let mut rest = std::mem::take(&mut self.early);
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => rest.push(serde_json::from_str(&line).unwrap()),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end"),
            }
        }
        (rest, self.ended())
    }

    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("it ends", || child.try_wait().unwrap())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
