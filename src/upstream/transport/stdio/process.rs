//! One child process and its group: told to end, killed, reaped. Every way out leaves no zombie and no
//! member of the group behind.

use process_wrap::tokio::ChildWrapper;
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

/// How long reaping may take after a KILL; only a process stuck in the kernel needs longer.
const REAP: Duration = Duration::from_secs(1);

/// How a child is brought to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Standard input is closed; so long it may leave by itself.
    pub(super) leave: Duration,
    /// Then the group gets a TERM; so long until the KILL.
    pub(super) term: Duration,
}

impl Manner {
    /// `close`: at most 2 s + 2 s.
    pub(super) const GRACEFUL: Manner = Manner { leave: Duration::from_secs(2), term: Duration::from_secs(2) };
    /// A child that is replaced.
    pub(super) const PROMPT: Manner = Manner { leave: Duration::ZERO, term: Duration::from_millis(500) };
    /// A child that has closed a pipe is most likely about to exit, with a code worth telling.
    pub(super) const LEAVING: Manner = Manner { leave: Duration::from_millis(300), term: Duration::ZERO };
    /// A child that floods, and whatever must be gone at once.
    pub(super) const AT_ONCE: Manner = Manner { leave: Duration::ZERO, term: Duration::ZERO };
}

/// A started child. Dropping it kills the group; the runtime reaps what is left.
pub(super) struct Process {
    child: Box<dyn ChildWrapper>,
    pid: Option<u32>,
    reaped: bool,
}

impl Process {
    pub(super) fn new(child: Box<dyn ChildWrapper>) -> Self {
        let pid = child.id();
        Process { child, pid, reaped: false }
    }

    /// The process id, which is the group's too.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    pub(super) fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
        Some((self.child.stdin().take()?, self.child.stdout().take()?, self.child.stderr().take()?))
    }

    /// Waits for the leader of the group and says how it ended. Can be dropped and called again.
    pub(super) async fn exited(&mut self) -> String {
        // The wrapper's own wait would also wait for other members of the group, which may outlive it.
        match self.child.inner_mut().wait().await {
            Ok(status) => phrase(status),
            Err(fault) => format!("its end cannot be learnt: {fault}"),
        }
    }

    /// Brings the whole group to its end, and says how the leader ended if it did so by itself.
    pub(super) async fn end(&mut self, manner: Manner) -> Option<String> {
        let mut how = None;
        if !manner.leave.is_zero() {
            how = timeout(manner.leave, self.exited()).await.ok();
        }
        if how.is_none() && !manner.term.is_zero() {
            signal_group(self.pid, Signal::TERM);
            let _ = timeout(manner.term, self.exited()).await;
        }
        // Also when the leader is gone: others of its group may be left. The number of a group cannot be
        // taken by somebody else while the group has members; if it has none, nothing happens.
        signal_group(self.pid, Signal::KILL);
        let reaped = timeout(REAP, self.child.wait()).await;
        self.reaped = reaped.is_ok();
        how
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            signal_group(self.pid, Signal::KILL);
        }
    }
}

/// Sends a signal to a child's whole group.
pub(super) fn signal_group(pid: Option<u32>, signal: Signal) {
    if let Some(group) = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

fn phrase(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
