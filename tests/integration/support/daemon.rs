//! The built daemon: started with a config of the test's, waited for, asked, ended.

use super::http::{Connection, Response};
use super::{PATIENCE, until};
use forebay_wire as wire;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// A running daemon. Dropping it kills it; what it has started ends with its standard input.
pub(crate) struct Daemon {
    child: Child,
    folder: TempDir,
    /// Where it serves MCP.
    pub(crate) mcp: SocketAddr,
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// How the calls of a daemon have ended.
#[derive(Debug)]
pub(crate) struct Ended(Vec<wire::OutcomeCount>);

impl Ended {
    /// Calls that ended so; the reason `*` is any.
    pub(crate) fn of(&self, outcome: &str, reason: &str) -> u64 {
        let alike = self.0.iter().filter(|count| count.outcome == outcome);
        alike.filter(|count| reason == "*" || count.reason.as_deref() == Some(reason)).map(|count| count.calls).sum()
    }
}

impl Ran {
    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|fault| panic!("{fault}: {self:?}"))
    }
}

/// Runs the binary to its end. Nothing of the user's own settings reaches it.
pub(crate) fn forebay(args: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    clean(&mut command).envs(env.iter().copied());
    let output = command.output().expect("the binary runs");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub(super) fn clean(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FOREBAY_")) {
        command.env_remove(name);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("NO_COLOR", "1")
}

impl Daemon {
    /// Starts with this config (its `[listen]` is added) and waits until every upstream is up.
    pub(crate) fn start(config: &str) -> Daemon {
        let folder = TempDir::with_prefix("forebay-test-").unwrap();
        Daemon::start_in(folder, config).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// The same in a folder that may hold what an earlier daemon left; an error tells what it said.
    pub(crate) fn start_in(folder: TempDir, config: &str) -> Result<Daemon, String> {
        let file = folder.path().join("forebay.toml");
        std::fs::write(&file, whole(folder.path(), config)).unwrap();
        let log = File::options().create(true).append(true).open(log(folder.path())).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["serve", "--config"]).arg(&file);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = clean(&mut command).spawn().expect("the binary runs");
        let deadline = Instant::now() + PATIENCE;
        let state = loop {
            if let Some(status) = child.try_wait().unwrap() {
                return Err(format!("the daemon ended with {status}:\n{}", said(folder.path())));
            }
            // Another daemon's answer on the same socket would not do.
            if let Some(state) = state(folder.path())
                && state.upstreams.iter().all(|upstream| {
                    !matches!(upstream.state, wire::UpstreamState::Starting | wire::UpstreamState::Down)
                })
            {
                break state;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the daemon is not up within {PATIENCE:?}:\n{}", said(folder.path())));
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let mcp = state.mcp.trim_start_matches("http://").parse().expect("the state names the MCP address");
        Ok(Daemon { child, folder, mcp })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its config file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("forebay.toml")
    }

    /// Puts another config in the place of its file, as editors do: by a rename.
    pub(crate) fn rewrite(&self, config: &str) {
        let new = self.folder.path().join(".forebay.toml.new");
        std::fs::write(&new, whole(self.folder.path(), config)).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    /// Has it read its config anew, which must be fine.
    #[track_caller]
    pub(crate) fn reload(&self, config: &str) -> wire::Reloaded {
        self.rewrite(config);
        let response = self.admin("POST", "/v1/reload");
        assert_eq!(response.status, 200, "{response:?}");
        serde_json::from_slice(&response.body).unwrap_or_else(|fault| panic!("{fault}: {response:?}"))
    }

    pub(crate) fn admin_socket(&self) -> PathBuf {
        socket(self.folder.path())
    }

    /// Runs a command against this daemon.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let admin = format!("unix:{}", self.admin_socket().display());
        forebay(args, &[("FOREBAY_ADMIN", &admin)])
    }

    /// A request to the admin API.
    pub(crate) fn admin(&self, method: &str, path: &str) -> Response {
        ask(self.folder.path(), method, path).unwrap_or_else(|fault| panic!("{fault}:\n{}", self.said()))
    }

    pub(crate) fn state(&self) -> wire::State {
        let response = self.admin("GET", "/v1/state");
        serde_json::from_slice(&response.body).unwrap_or_else(|fault| panic!("{fault}: {response:?}"))
    }

    pub(crate) fn upstream(&self, name: &str) -> wire::Upstream {
        let state = self.state();
        state.upstreams.into_iter().find(|upstream| upstream.name == name).expect("the upstream is listed")
    }

    /// The live calls of an upstream: running, lingering, queued.
    pub(crate) fn calls(&self, upstream: &str) -> Vec<wire::Call> {
        let response = self.admin("GET", &format!("/v1/calls?upstream={upstream}"));
        let page: wire::CallsPage =
            serde_json::from_slice(&response.body).unwrap_or_else(|fault| panic!("{fault}: {response:?}"));
        page.calls
    }

    /// A call by its id, live or finished.
    pub(crate) fn call(&self, id: &str) -> Option<wire::Call> {
        let response = self.admin("GET", &format!("/v1/calls/{id}"));
        (response.status == 200).then(|| serde_json::from_slice(&response.body).unwrap())
    }

    /// Waits until the upstream's figures are so.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, upstream: &str, holds: impl Fn(&wire::Upstream) -> bool) -> wire::Upstream {
        let mut last = None;
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, || {
                let figures = self.upstream(upstream);
                last = Some(figures.clone());
                holds(&figures).then_some(figures)
            })
        }));
        found.unwrap_or_else(|_| panic!("{what}; last seen: {last:?}\n{}", self.said()))
    }

    /// Waits until this many calls run and wait.
    #[track_caller]
    pub(crate) fn until_load(&self, upstream: &str, running: u32, queued: u32) {
        self.until(&format!("{running} running and {queued} queued"), upstream, |figures| {
            figures.running == running && figures.queued == queued
        });
    }

    /// The ledger of R6 at rest: nothing lost sight of, every call ended.
    #[track_caller]
    pub(crate) fn adds_up(&self) -> Ended {
        let totals = until("every call ends", || {
            let totals = self.state().totals;
            (totals.submitted + totals.queued + totals.running == 0).then_some(totals)
        });
        assert_eq!(totals.unaccounted, 0, "{totals:?}");
        assert_eq!(totals.offered, totals.finished, "{totals:?}");
        assert_eq!(totals.finished, totals.outcomes.iter().map(|outcome| outcome.calls).sum::<u64>(), "{totals:?}");
        Ended(totals.outcomes)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal_pid(self.pid(), signal);
    }

    /// Waits for the end.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("the daemon ends", || child.try_wait().unwrap())
    }

    /// Kills it as a crash would, and gives its folder back as it was left.
    pub(crate) fn crash(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let elsewhere = TempDir::with_prefix("forebay-test-").unwrap();
        std::mem::replace(&mut self.folder, elsewhere)
    }

    /// What it has written to its output.
    pub(crate) fn said(&self) -> String {
        said(self.folder.path())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.said());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal_pid(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process id");
    kill_process(pid, signal).expect("the process is there");
}

/// A config with the `[listen]` of its daemon.
fn whole(folder: &Path, config: &str) -> String {
    let listen = format!("[listen]\nmcp = \"127.0.0.1:0\"\nadmin = \"unix:{}\"\n", socket(folder).display());
    format!("{listen}\n{config}")
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("admin.sock")
}

fn log(folder: &Path) -> PathBuf {
    folder.join("forebay.log")
}

fn said(folder: &Path) -> String {
    std::fs::read_to_string(log(folder)).unwrap_or_default()
}

fn state(folder: &Path) -> Option<wire::State> {
    let response = ask(folder, "GET", "/v1/state").ok()?;
    serde_json::from_slice(&response.body).ok()
}

fn ask(folder: &Path, method: &str, path: &str) -> std::io::Result<Response> {
    let mut connection = Connection::unix(&socket(folder))?;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    connection.send(request.as_bytes())?;
    connection.receive()
}
