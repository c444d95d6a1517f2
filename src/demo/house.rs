//! Everything that a demo stands on: its servers, the daemon in this process, keys made on the fly, and a
//! private directory for the admin socket. Closing it ends the children and removes the directory.

use super::DemoError;
use super::daemon::Daemon;
use super::load::{Group, Persona};
use super::server::Kind;
use crate::caller::key::Key;
use crate::config::{self, Config, Env, Format, Target};
use forebay_tui::client::Client;
use forebay_wire::UpstreamState;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// How long servers and daemon may take to come up.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// The careful callers, by name.
pub const CAREFUL: [&str; 10] = ["ann", "ben", "cem", "dua", "eva", "fyn", "gil", "hal", "ivo", "jun"];
const RUNAWAY: &str = "runaway";
/// The key that is printed, for the person who looks on.
const GUEST: &str = "you";

/// The limits of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    /// None of forebay's own.
    None,
    /// What each server can take, and short queues.
    Fitting,
    /// `slow` runs 5 and queues 10.
    FiveAndTen,
}

impl Limits {
    /// Calls in flight and calls that may wait; none is unlimited.
    pub fn of(self, kind: Kind) -> Option<(u32, u32)> {
        match (self, kind) {
            (Limits::None, _) => None,
            (Limits::Fitting, Kind::Fragile) => Some((Kind::FRAGILE_TAKES, 8)),
            (Limits::Fitting, Kind::Slow) => Some((4, 8)),
            (Limits::Fitting, Kind::Flaky) => Some((8, 16)),
            (Limits::FiveAndTen, Kind::Slow) => Some((5, 10)),
            (Limits::FiveAndTen, Kind::Fragile | Kind::Flaky) => Some((2, 10)),
        }
    }
}

/// See the module's documentation.
pub struct House {
    daemon: Daemon,
    admin: Client,
    http_server: Child,
    personas: Vec<Persona>,
    guest: Key,
    /// Last, so that the socket is gone before its directory.
    directory: Directory,
}

impl House {
    /// Starts servers and daemon, and waits until every upstream is up.
    ///
    /// # Errors
    /// Something does not start, or not in time. What had started is ended.
    pub async fn open(limits: Limits, seed: u64) -> Result<House, DemoError> {
        let directory = Directory::new();
        let program = std::env::current_exe().map_err(|fault| DemoError::Start("find this program", fault))?;
        let (http_server, url) = start_http(&program, Kind::Flaky, seed).await?;
        let guest = new_key()?;
        let mut callers = vec![(GUEST, guest.clone())];
        let mut personas = Vec::new();
        for name in CAREFUL.into_iter().chain([RUNAWAY]) {
            let key = new_key()?;
            let group = if name == RUNAWAY { Group::Runaway } else { Group::Careful };
            personas.push(Persona { name, group, key: key.expose().into() });
            callers.push((name, key));
        }
        let socket = directory.path.join("admin.sock");
        let text = config_text(&socket, &url, limits, seed, &callers);
        let daemon = Daemon::start(read_config(text, &program)?).map_err(DemoError::Daemon)?;
        let house = House { daemon, admin: Client::new(socket), http_server, personas, guest, directory };
        match house.ready().await {
            Ok(()) => Ok(house),
            Err(fault) => {
                house.close().await;
                Err(fault)
            }
        }
    }

    /// Where calls are served.
    pub fn mcp(&self) -> SocketAddr {
        self.daemon.mcp()
    }

    pub fn admin(&self) -> &Client {
        &self.admin
    }

    pub fn personas(&self) -> &[Persona] {
        &self.personas
    }

    pub fn guest(&self) -> &Key {
        &self.guest
    }

    /// Stops the daemon, then the servers.
    pub async fn close(mut self) {
        self.daemon.stop().await;
        // It ends by itself when its input does; it is killed if it does not.
        drop(self.http_server.stdin.take());
        if timeout(Duration::from_secs(2), self.http_server.wait()).await.is_err() {
            let _ = self.http_server.kill().await;
        }
        drop(self.directory);
    }

    async fn ready(&self) -> Result<(), DemoError> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let state = self.admin.state().await;
            let waiting = match &state {
                Ok(state) => {
                    let not_up = |state| matches!(state, UpstreamState::Starting | UpstreamState::Down);
                    let late = state.upstreams.iter().find(|upstream| not_up(upstream.state));
                    late.map(|late| format!("{} is {}: {:?}", late.name, late.state.name(), late.fault))
                }
                Err(fault) => Some(fault.to_string()),
            };
            match waiting {
                None => return Ok(()),
                Some(why) if Instant::now() >= until => return Err(DemoError::NotReady(why)),
                Some(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

async fn start_http(program: &Path, kind: Kind, seed: u64) -> Result<(Child, String), DemoError> {
    let failed = |fault| DemoError::Start("start a demo server", fault);
    let mut child = Command::new(program)
        .args(["demo-server", kind.name(), "--http", "127.0.0.1:0", "--seed", &seed.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // A Ctrl-C is meant for the demo, which ends its servers itself.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let stdout = child.stdout.take().ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
    let mut url = String::new();
    let mut stdout = BufReader::new(stdout);
    match timeout(START_TIMEOUT, stdout.read_line(&mut url)).await {
        Ok(Ok(read)) if read > 0 => Ok((child, url.trim().to_owned())),
        Ok(Ok(_)) => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
        Ok(Err(fault)) => Err(failed(fault)),
        Err(_) => Err(failed(std::io::ErrorKind::TimedOut.into())),
    }
}

fn new_key() -> Result<Key, DemoError> {
    let mut randomness = [0; 32];
    getrandom::fill(&mut randomness).map_err(|fault| DemoError::Random(fault.to_string()))?;
    Ok(Key::new(randomness))
}

fn config_text(socket: &Path, url: &str, limits: Limits, seed: u64, callers: &[(&str, Key)]) -> String {
    let quoted = |text: &str| toml::Value::String(text.replace("${", "$${")).to_string();
    let admin = quoted(&format!("unix:{}", socket.display()));
    let mut text = format!("[listen]\nmcp = \"127.0.0.1:0\"\nadmin = {admin}\n[auth]\nmode = \"keys\"\n");
    for kind in Kind::ALL {
        let _ = writeln!(text, "[upstreams.{}]", kind.name());
        if kind == Kind::Flaky {
            let _ = writeln!(text, "url = {}", quoted(url));
        } else {
            let args = format!("[\"demo-server\", \"{}\", \"--seed\", \"{seed}\"]", kind.name());
            let _ = writeln!(text, "command = \"demo-server\"\nargs = {args}");
        }
        text.push_str("start = \"eager\"\nqueue_timeout = \"10s\"\ncall_timeout = \"15s\"\n");
        let _ = match limits.of(kind) {
            None => writeln!(text, "max_concurrent = \"unlimited\""),
            Some((run, wait)) => writeln!(text, "max_concurrent = {run}\nqueue_size = {wait}"),
        };
    }
    for (name, key) in callers {
        let _ = writeln!(text, "[callers.{name}]\nkey_hash = \"{}\"", key.key_hash());
    }
    text
}

/// A config that has forebay as its own upstream is refused, since it would call itself. A demo server is another
/// thing, so the program is put in after the check.
fn read_config(text: String, program: &Path) -> Result<Config, DemoError> {
    let mut config = match config::parse(Path::new("demo.toml"), text.into_bytes(), Format::Toml, &NoEnv) {
        Ok((config, _)) => config,
        Err(faults) => return Err(DemoError::Config(faults.to_string())),
    };
    let program = program.to_str().ok_or_else(|| DemoError::Config("the program's path is not UTF-8".into()))?;
    for upstream in config.upstreams.values_mut() {
        if let Target::Stdio(target) = &mut Arc::make_mut(upstream).target {
            target.command = program.into();
        }
    }
    Ok(config)
}

/// The demo is the same everywhere: variables that configure a real daemon do not reach it.
struct NoEnv;

impl Env for NoEnv {
    fn var(&self, _name: &str) -> Option<String> {
        None
    }

    fn own_vars(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        config::ProcessEnv.read(path)
    }

    fn is_root(&self) -> bool {
        false
    }
}

/// A directory for the socket, which the daemon makes with private modes; removed on drop.
struct Directory {
    path: PathBuf,
}

impl Directory {
    fn new() -> Self {
        let name = format!("forebay-demo-{:08x}", fastrand::u32(..));
        let path = std::env::temp_dir().join(&name);
        // A socket's path has room for 107 bytes only.
        let path = if path.as_os_str().len() > 90 { Path::new("/tmp").join(name) } else { path };
        Directory { path }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Concurrency;

    #[test]
    fn the_configs_of_all_phases_are_valid() {
        let key = Key::new([1; 32]);
        for limits in [Limits::None, Limits::Fitting, Limits::FiveAndTen] {
            let program = Path::new("/tmp/a \"b\" ${c}/forebay");
            let socket = Path::new("/tmp/\"x\" ${c}/admin.sock");
            let text = config_text(socket, "http://127.0.0.1:1/mcp", limits, 7, &[("ann", key.clone())]);
            let config = read_config(text, program).unwrap();
            assert_eq!(config.listen.admin, socket);
            assert_eq!(config.upstreams.len(), 3);
            assert_eq!(config.callers["ann"].keys.len(), 1);
            let wanted = limits.of(Kind::Slow).map_or(Concurrency::Unlimited, |(run, _)| Concurrency::Fixed(run));
            assert_eq!(config.upstreams["slow"].limits.max_concurrent, wanted);
            let Target::Stdio(target) = &config.upstreams["slow"].target else { panic!("slow is a child") };
            assert_eq!(Path::new(&target.command), program);
        }
    }
}
