//! The single looks that `forebay doctor` takes: files, sockets, clock, processes, servers.

use super::{Finding, Verdict};
use crate::app;
use crate::config::{Config, Target};
use crate::events::EventLog;
use crate::protocol::json::{members, unquote};
use crate::protocol::version::Era;
use crate::upstream::connection::ServerInfo;
use crate::upstream::gates::Gates;
use crate::upstream::supervisor::Supervisor;
use crate::upstream::transport::stdio::locate;
use futures_util::future::join_all;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Before this the clock is wrong: forebay did not exist (2026-01-01).
const BEGINNING: Duration = Duration::from_secs(1_767_225_600);
/// Open files that a busy daemon wants.
const FILES: u64 = 1024;
const CONNECT: Duration = Duration::from_secs(2);

pub(super) fn clock() -> Finding {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if since > BEGINNING => Finding::new("clock", Verdict::Ok, "is set"),
        _ => Finding::new("clock", Verdict::Fail, "says that it is before 2026")
            .hint("set it: certificates and logs go by it"),
    }
}

pub(super) fn descriptors() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < FILES => Finding::new("open files", Verdict::Warn, format!("at most {limit}"))
            .hint("raise it with `ulimit -n 65536`"),
        Some(limit) => Finding::new("open files", Verdict::Ok, format!("at most {limit}")),
        None => Finding::new("open files", Verdict::Ok, "no limit"),
    }
}

/// The programs that start most servers.
pub(super) fn tools(config: Option<&Config>, found: &mut Vec<Finding>) {
    let used = |command: &str| {
        config.into_iter().flat_map(|config| config.upstreams.values()).any(|upstream| match &upstream.target {
            Target::Stdio(target) => Path::new(&target.command).file_name().is_some_and(|name| name == command),
            Target::Http(_) => false,
        })
    };
    for (name, kin) in [("node", ["node", "npx"]), ("uv", ["uv", "uvx"])] {
        let needed = kin.iter().any(|command| used(command));
        match in_path(name) {
            Some(path) => found.push(Finding::new(name, Verdict::Ok, path)),
            None if needed => found.push(Finding::new(name, Verdict::Fail, "is not in PATH, and an upstream needs it")),
            None => found.push(Finding::new(name, Verdict::Warn, "is not in PATH; many servers need it")),
        }
    }
}

fn in_path(name: &str) -> Option<String> {
    let search = std::env::var_os("PATH")?;
    let is_program = |file: &Path| {
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = std::env::split_paths(&search).map(|folder| folder.join(name)).find(|file| is_program(file))?;
    Some(found.display().to_string())
}

/// Each command, as the daemon would look for it. A service may have another `PATH` than this shell.
pub(super) fn commands(config: &Config, found: &mut Vec<Finding>) {
    for upstream in config.upstreams.values() {
        let Target::Stdio(target) = &upstream.target else { continue };
        let check = format!("command of {}", upstream.name);
        found.push(match locate(target) {
            Ok(path) => Finding::new(check, Verdict::Ok, path.display().to_string()),
            Err(why) => Finding::new(check, Verdict::Fail, why)
                .hint("install it, or write its whole path; a service has a shorter PATH than your shell"),
        });
    }
}

/// Whether the MCP address is free.
pub(super) fn port(config: &Config) -> Finding {
    let address = config.listen.mcp;
    match std::net::TcpListener::bind(address) {
        Ok(_) => Finding::new("MCP address", Verdict::Ok, format!("{address} is free")),
        Err(fault) => Finding::new("MCP address", Verdict::Fail, format!("{address}: {fault}"))
            .hint("see what holds it, or set another `listen.mcp`"),
    }
}

/// Whether callers get through to a daemon that runs.
pub(super) async fn answers(mcp: &str) -> Finding {
    let connected = match mcp.parse::<SocketAddr>() {
        Ok(address) => tokio::time::timeout(CONNECT, tokio::net::TcpStream::connect(address)).await,
        Err(_) => return Finding::new("MCP address", Verdict::Fail, format!("`{mcp}` is no address")),
    };
    match connected {
        Ok(Ok(_)) => Finding::new("MCP address", Verdict::Ok, format!("{mcp} accepts")),
        Ok(Err(fault)) => Finding::new("MCP address", Verdict::Fail, format!("{mcp}: {fault}")),
        Err(_) => Finding::new("MCP address", Verdict::Fail, format!("{mcp} does not accept")),
    }
}

/// Who may open the admin socket.
pub(super) fn socket_rights(socket: &Path) -> Finding {
    let rights = |path: &Path| std::fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    match rights(socket) {
        Ok(mode) if mode & 0o077 == 0 => Finding::new("admin socket", Verdict::Ok, format!("rights are {mode:o}")),
        Ok(mode) => Finding::new("admin socket", Verdict::Warn, format!("rights are {mode:o}"))
            .hint("only its user should have any: the daemon makes it 600"),
        Err(fault) => Finding::new("admin socket", Verdict::Fail, fault.to_string()),
    }
}

/// Whether a daemon could put its socket there.
pub(super) fn socket_place(socket: &Path) -> Finding {
    let check = "admin socket";
    match std::fs::symlink_metadata(socket) {
        Ok(found) if found.file_type().is_socket() => {
            return Finding::new(check, Verdict::Ok, "was left behind by a daemon; the next one takes it over");
        }
        Ok(_) => {
            return Finding::new(check, Verdict::Fail, format!("{} is no socket", socket.display()))
                .hint("move that file away, or give another path");
        }
        Err(fault) if fault.kind() == ErrorKind::NotFound => {}
        Err(fault) => return Finding::new(check, Verdict::Fail, format!("{}: {fault}", socket.display())),
    }
    // The daemon makes the last folder itself.
    let folder = socket.ancestors().skip(1).find(|folder| folder.is_dir());
    let Some(folder) = folder else { return Finding::new(check, Verdict::Fail, "there is no folder for it") };
    match rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::new(check, Verdict::Ok, format!("can be made in {}", folder.display())),
        Err(fault) => Finding::new(check, Verdict::Fail, format!("cannot be made in {}: {fault}", folder.display()))
            .hint("give another path by `listen.admin` or --admin"),
    }
}

/// Children that have ended and that nobody has taken note of. Told of the daemon's own, known by its socket.
pub(super) fn zombies(socket: &Path) -> Finding {
    let daemon = std::os::unix::net::UnixStream::connect(socket)
        .ok()
        .and_then(|stream| rustix::net::sockopt::socket_peercred(&stream).ok())
        .map(|peer| peer.pid.as_raw_nonzero().get());
    let Some(daemon) = daemon else { return Finding::new("zombies", Verdict::Ok, "no daemon, so none of its") };
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Finding::new("zombies", Verdict::Warn, "cannot be looked for here: there is no /proc");
    };
    let stats = processes.flatten().filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let dead: Vec<i32> = stats.filter_map(|stat| zombie_of(&stat, daemon)).collect();
    if dead.is_empty() {
        Finding::new("zombies", Verdict::Ok, format!("the daemon (pid {daemon}) has none"))
    } else {
        Finding::new("zombies", Verdict::Fail, format!("the daemon (pid {daemon}) has left {dead:?} unreaped"))
    }
}

/// The pid in a line of `/proc/PID/stat`, if it is a zombie with this parent.
fn zombie_of(stat: &str, parent: i32) -> Option<i32> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    // The name stands in brackets and may hold anything, brackets too.
    let mut behind = stat.rsplit_once(')')?.1.split_whitespace();
    (behind.next()? == "Z" && behind.next()?.parse::<i32>().ok()? == parent).then_some(pid)
}

/// Connects each upstream once, as the daemon would, and takes it down again.
pub(super) async fn handshakes(config: &Config, patience: Duration, found: &mut Vec<Finding>) {
    let home = Handle::current();
    let seed = getrandom::u64().unwrap_or(1);
    let supervisor = Supervisor::start(&home, Gates::new(&config.global), seed);
    let starts = Arc::new(Semaphore::new(config.global.connect_concurrency.max(1) as usize));
    let events = Arc::new(EventLog::default());
    let looks = config.upstreams.values().map(|settings| {
        let upstream = app::build(settings.clone(), &events, &supervisor, &starts, std::slice::from_ref(&home), seed);
        async move {
            let began = tokio::time::Instant::now();
            let answer = upstream.server(patience).await;
            let took = began.elapsed().as_millis();
            let check = format!("upstream {}", upstream.name());
            let finding = match answer {
                Ok(server) => Finding::new(check, Verdict::Ok, format!("{}, in {took} ms", introduced(&server))),
                Err(fault) => Finding::new(check, Verdict::Fail, fault.to_string()),
            };
            upstream.remove(Duration::ZERO).await;
            finding
        }
    });
    found.extend(join_all(looks).await);
}

fn introduced(server: &ServerInfo) -> String {
    let era = match server.era {
        Era::Modern => "modern",
        Era::Legacy => "legacy",
    };
    let of = |key: &str| members(&server.server_info).ok()?.get(key).and_then(unquote).map(|text| text.into_owned());
    let name = of("name").map_or(String::new(), |name| format!(", calls itself {name}"));
    let version = of("version").map_or(String::new(), |version| format!(" {version}"));
    format!("speaks {} ({era}){name}{version}", server.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c14_a_zombie_is_told_by_state_and_parent_whatever_its_name() {
        assert_eq!(zombie_of("7 (npx) Z 5 7 7 0", 5), Some(7));
        assert_eq!(zombie_of("8 (a) Z) S 5) Z 5 8", 5), Some(8));
        assert_eq!(zombie_of("7 (npx) Z 6 7", 5), None);
        assert_eq!(zombie_of("7 (npx) S 5 7", 5), None);
        assert_eq!(zombie_of("", 5), None);
    }

    #[test]
    fn a_place_for_the_socket_is_told_from_what_is_there() {
        let folder = tempfile::TempDir::new().unwrap();
        let verdict = |name: &str| socket_place(&folder.path().join(name)).verdict;
        assert_eq!(verdict("new.sock"), Verdict::Ok);
        assert_eq!(verdict("a/b/new.sock"), Verdict::Ok);
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(verdict("file"), Verdict::Fail);
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("old.sock")).unwrap();
        assert_eq!(verdict("old.sock"), Verdict::Ok);
    }
}
