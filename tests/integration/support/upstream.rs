//! `forebay-test-upstream`, the scripted server, behind a daemon or beside it.

use super::{Answer, Client, until};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The built scripted server. It is another package's binary: `cargo test --workspace` builds it, and where
/// that has not been done since its sources changed, it is built here, once.
pub(crate) fn test_upstream() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_forebay")).parent().expect("the binary lies in a folder");
        let binary = beside.join("forebay-test-upstream");
        if modified(&binary) < newest(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream/src")) {
            let target = beside.parent().expect("the profile's folder lies in the target folder");
            let mut build = Command::new(env!("CARGO"));
            build.current_dir(env!("CARGO_MANIFEST_DIR"));
            build.args(["build", "--quiet", "-p", "forebay-test-upstream", "--target-dir"]).arg(target);
            if beside.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().expect("cargo runs").success(), "the scripted server is built");
        }
        binary
    })
}

/// When a file was last written; the beginning of time if it is not there.
fn modified(file: &Path) -> SystemTime {
    file.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn newest(folder: &Path) -> SystemTime {
    let files = std::fs::read_dir(folder).expect("the sources are there");
    files.map(|file| modified(&file.unwrap().path())).max().expect("there are sources")
}

/// `[upstreams.NAME]` with the scripted server as a child; `options` are its own, `settings` more TOML.
pub(crate) fn stdio(name: &str, options: &[&str], settings: &str) -> String {
    let mut args = vec!["--stdio"];
    args.extend(options);
    let command = test_upstream().to_str().expect("the path is text");
    format!("[upstreams.{name}]\ncommand = {command:?}\nargs = {args:?}\n{settings}\n")
}

/// Every message that a scripted server has received, in a file.
pub(crate) struct Log(tempfile::NamedTempFile);

impl Log {
    pub(crate) fn new() -> Log {
        Log(tempfile::NamedTempFile::new().unwrap())
    }

    pub(crate) fn path(&self) -> &str {
        self.0.path().to_str().expect("the path is text")
    }

    /// The messages that hold `part`.
    pub(crate) fn with(&self, part: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.path()).unwrap();
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    }

    /// The whole messages after byte `from`, which is moved behind them.
    pub(crate) fn next(&self, from: &mut usize) -> Vec<String> {
        let mut file = std::fs::File::open(self.0.path()).unwrap();
        file.seek(SeekFrom::Start(*from as u64)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        *from += whole;
        text[..whole].lines().map(str::to_owned).collect()
    }

    /// Waits for a message that holds `part`.
    #[track_caller]
    pub(crate) fn until(&self, part: &str) -> String {
        until(&format!("a message with {part:?} reaches the server"), || self.with(part).pop())
    }
}

/// A scripted server over HTTP, which the test can also reach beside the daemon.
pub(crate) struct HttpUpstream {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl HttpUpstream {
    pub(crate) fn start(options: &[&str]) -> HttpUpstream {
        let mut command = Command::new(test_upstream());
        command.args(["--http", "127.0.0.1:0"]).args(options).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the scripted server runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output is a pipe")).read_line(&mut line).unwrap();
        let address = line.trim().rsplit([' ', '/']).find_map(|word| word.parse().ok());
        let address = address.unwrap_or_else(|| panic!("it tells its address, not {line:?}"));
        HttpUpstream { child, address }
    }

    /// `[upstreams.NAME]` for this server.
    pub(crate) fn config(&self, name: &str, settings: &str) -> String {
        format!("[upstreams.{name}]\nurl = \"http://{}/mcp\"\n{settings}\n", self.address)
    }

    /// Calls one of its tools beside the daemon: to look, or to let go.
    pub(crate) fn call(&self, tool: &str, arguments: &str) -> Answer {
        Client::modern(self.address, "/mcp").call(tool, arguments)
    }
}

impl Drop for HttpUpstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
