//! The daemon's admin socket as scripts meet it: who gets it, who is refused, what a dead one leaves (C43).
#![expect(clippy::unwrap_used, reason = "tests say by panicking that something is wrong")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A directory with a config; upstreams sleep until they are called, which these tests never do.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("run/forebay.sock");
        let config = format!(
            "[listen]\nmcp = \"127.0.0.1:0\"\nadmin = \"unix:{}\"\n[upstreams.idle]\ncommand = \"cat\"\nstart = \"on_demand\"\n",
            socket.display()
        );
        std::fs::write(dir.path().join("forebay.toml"), config).unwrap();
        Place { dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("run/forebay.sock")
    }

    fn forebay(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(args).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        command.env("FOREBAY_ADMIN", format!("unix:{}", self.socket().display()));
        command
    }

    fn serve(&self) -> Command {
        let config = self.dir.path().join("forebay.toml");
        let mut command = self.forebay(&["serve", "--config", config.to_str().unwrap()]);
        command.env_remove("FOREBAY_ADMIN").stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn start(&self) -> Daemon<'_> {
        let daemon = Daemon { child: self.serve().spawn().unwrap(), place: self };
        let end = Instant::now() + PATIENCE;
        while !self.run(&["health"]).status.success() {
            assert!(Instant::now() < end, "the daemon does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    fn run(&self, args: &[&str]) -> Output {
        self.forebay(args).output().unwrap()
    }

    fn instance(&self) -> String {
        let output = self.run(&["status", "--output", "json"]);
        let state: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        state["instance"].as_str().unwrap().into()
    }
}

struct Daemon<'a> {
    child: Child,
    place: &'a Place,
}

impl Daemon<'_> {
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends by itself, within the patience; what it said.
fn ends(mut child: Child) -> (Option<i32>, String) {
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn c43_no_daemon_is_told_within_a_second() {
    let place = Place::new();
    for args in [["ps"].as_slice(), &["status"], &["health"], &["cancel", "1f9"], &["upstream", "pause", "x"]] {
        let started = Instant::now();
        let output = place.run(args);
        assert!(started.elapsed() < Duration::from_secs(1), "{args:?} took {:?}", started.elapsed());
        assert_eq!(output.status.code(), Some(4), "{args:?}");
        assert!(output.stdout.is_empty());
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.starts_with("error: no daemon answers at ") && err.lines().count() == 2, "{err}");
    }
}

#[test]
fn c43_a_socket_nobody_answers_on_is_told_within_a_second() {
    let place = Place::new();
    std::fs::create_dir(place.dir.path().join("run")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(place.socket()).unwrap());
    let started = Instant::now();
    assert_eq!(place.run(&["status"]).status.code(), Some(4));
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[test]
fn c43_a_killed_daemons_socket_is_taken_over_and_the_new_run_is_another() {
    let place = Place::new();
    let daemon = place.start();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place.socket()), mode(place.socket().parent().unwrap())), (0o600, 0o700));
    let first = place.instance();
    daemon.kill();
    assert!(place.socket().exists(), "a killed daemon cannot remove its socket");
    let daemon = place.start();
    assert_ne!(place.instance(), first);
    // An id of the first run is told apart from one that is unknown.
    let output = place.run(&["cancel", &format!("{first}-11"), "--output", "json"]);
    assert_eq!(output.status.code(), Some(5));
    drop(daemon);
}

#[test]
fn c43_a_second_daemon_is_refused_and_the_first_goes_on() {
    let place = Place::new();
    let daemon = place.start();
    let first = daemon.place.instance();
    let (code, err) = ends(place.serve().spawn().unwrap());
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("another daemon answers"), "{err}");
    assert_eq!(place.instance(), first);
}

#[test]
fn c43_a_plain_file_at_the_sockets_place_is_refused_and_kept() {
    let place = Place::new();
    std::fs::create_dir(place.dir.path().join("run")).unwrap();
    std::fs::write(place.socket(), "precious").unwrap();
    let (code, err) = ends(place.serve().spawn().unwrap());
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("is not a socket"), "{err}");
    assert_eq!(std::fs::read_to_string(place.socket()).unwrap(), "precious");
}

#[test]
fn c42_listings_end_quietly_without_a_reader_and_fail_on_a_full_device() {
    let place = Place::new();
    let _daemon = place.start();
    for args in [["ps", "--output", "json"].as_slice(), &["status", "--output", "json"], &["status"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.forebay(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()), "{args:?}");
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = place.forebay(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
}
