//! The demo as it is typed: its figures, its commands, and that it leaves nothing behind.
#![expect(clippy::unwrap_used, reason = "tests say by panicking that something is wrong")]

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs with a directory of its own for sockets.
fn forebay(line: &str, tmp: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(line.split(' ')).env_clear().env("TMPDIR", tmp).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn wait(mut child: Child) -> (ExitStatus, String, String) {
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status, text(output.stdout), text(output.stderr))
}

/// The processes that were started from `tmp`'s demos: none may outlive them.
fn left_behind(tmp: &Path) -> Vec<String> {
    let wanted = format!("TMPDIR={}", tmp.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&command).replace('\0', " "));
        }
    }
    found
}

fn nothing_is_left(tmp: &Path) {
    assert_eq!(left_behind(tmp), Vec::<String>::new());
    let files: Vec<_> = std::fs::read_dir(tmp).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(files.is_empty(), "{files:?}");
}

#[test]
fn the_burst_has_fifteen_ok_and_fifteen_refused_as_the_queue_is_full() {
    let tmp = tempfile::tempdir().unwrap();
    let (status, out, err) = wait(forebay("demo --scenario burst --output json", tmp.path()).spawn().unwrap());
    assert!(status.success(), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let phase = &report["phases"][0];
    let figures = &phase["groups"][0];
    assert_eq!((&figures["calls"], &figures["ok"]), (&30.into(), &15.into()), "{report:#}");
    assert_eq!(figures["refused"], serde_json::json!({"queue_full": 15}), "{report:#}");
    assert_eq!(phase["peaks"], serde_json::json!({"slow": 5}), "as the server itself counted");
    let text = phase["refusal_text"].as_str().unwrap();
    assert!(text.contains("5 of 5 running, 10 of 10 waiting"), "{text}");
    // The refused ones are told before the first call can have ended.
    assert!(figures["refused_max_ms"].as_u64().unwrap() < 600, "{report:#}");
    nothing_is_left(tmp.path());
}

#[test]
fn limits_keep_the_fragile_server_whole_under_the_same_load() {
    let tmp = tempfile::tempdir().unwrap();
    let (status, out, err) = wait(forebay("demo --phase 2s --output json", tmp.path()).spawn().unwrap());
    assert!(status.success(), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let [without, with] = report["phases"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    let peak = |phase: &Value, name: &str| phase["peaks"][name].as_u64().unwrap();
    assert!(peak(without, "fragile") > 2, "{report:#}");
    for (name, cap) in [("fragile", 2), ("slow", 4), ("flaky", 8)] {
        assert!(peak(with, name) <= cap, "{report:#}");
    }
    for phase in [without, with] {
        for figures in phase["groups"].as_array().unwrap() {
            let of = |field: &str| figures[field].as_u64().unwrap();
            let refused: u64 = figures["refused"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
            assert_eq!(of("calls"), of("ok") + of("failed") + of("broken") + refused, "{figures:#}");
            assert_eq!(of("broken"), 0, "{figures:#}");
            assert!(of("calls") > 0, "{figures:#}");
        }
        assert_eq!(phase["groups"][0]["callers"], 10);
    }
    // Progress goes beside the JSON, a line a second.
    let head = err.lines().position(|line| line.contains("CAREFUL") && line.contains("RUNAWAY")).unwrap();
    assert!(err.lines().nth(head + 1).unwrap().trim_start().starts_with("0.0s"), "{err}");
    assert!(err.lines().all(|line| line.len() <= 80), "{err}");
    nothing_is_left(tmp.path());
}

/// A demo that is held, with the admin address that it printed.
struct Held {
    child: Child,
    admin: String,
    key: String,
    tmp: tempfile::TempDir,
}

impl Held {
    fn start() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let mut child = forebay("demo --hold", tmp.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let (mut admin, mut key) = (String::new(), String::new());
        for line in lines.by_ref() {
            if let Some(address) = line.strip_prefix("admin address: ") {
                admin = address.into();
            }
            if let Some((_, rest)) = line.split_once("FOREBAY_KEY=") {
                let mut words = rest.split(' ');
                key = words.next().unwrap().into();
                // There is no PATH here, so a bare name would start nothing.
                assert_eq!(words.next(), Some(env!("CARGO_BIN_EXE_forebay")));
                break;
            }
        }
        // Somebody has to read on, or the demo would end with a closed pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Held { child, admin, key, tmp }
    }

    fn run(&self, line: &str) -> (i32, String, String) {
        let mut command = forebay(line, self.tmp.path());
        let output = command.env("FOREBAY_ADMIN", &self.admin).env("FOREBAY_KEY", &self.key).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn json(&self, line: &str) -> Value {
        let (code, out, err) = self.run(&format!("{line} --output json"));
        assert_eq!(code, 0, "{line}: {err}");
        serde_json::from_str(&out).unwrap_or_else(|fault| panic!("{line}: {fault}: {out}"))
    }

    /// The first queued call of an upstream; the load makes new ones all the time.
    fn queued_at(&self, upstream: &str) -> String {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let calls = self.json(&format!("ps --state queued --upstream {upstream}"));
            if let Some(call) = calls.as_array().unwrap().first() {
                return call["id"].as_str().unwrap().into();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("nothing is ever queued at {upstream}");
    }
}

#[test]
fn a_held_demo_is_steered_by_the_commands_that_it_prints() {
    let held = Held::start();
    let status = held.json("status");
    assert_eq!(status["auth"], "keys");
    let names: Vec<_> = status["upstreams"].as_array().unwrap().iter().map(|up| up["name"].clone()).collect();
    assert_eq!(names, ["flaky", "fragile", "slow"]);
    assert_eq!(held.json("health")["status"], "healthy");

    assert_eq!(held.json("upstream pause fragile")["state"], "paused");
    // While it is paused a queued call stays queued.
    let id = held.queued_at("fragile");
    assert_eq!(held.json(&format!("cancel {id}"))[0]["answer"], "cancelled_queued");
    let again = held.json(&format!("cancel {id}"));
    assert_eq!((&again[0]["answer"], &again[0]["outcome"]), (&"already_finished".into(), &"cancelled".into()));
    assert_eq!(held.run(&format!("cancel {id} zzzzz")).0, 7, "partly done");
    assert_eq!(held.run("cancel zzzzz").0, 5, "unknown");
    assert_eq!(held.run("cancel 00000-11").0, 5, "of another run");
    let (code, table, _) = held.run("ps --upstream fragile");
    assert!(code == 0 && table.starts_with("ID "), "{table}");
    assert_eq!(held.json("upstream drain fragile")["state"], "draining");
    let resumed = held.json("upstream resume fragile");
    assert!(["up", "saturated"].contains(&resumed["state"].as_str().unwrap()), "{resumed}");
    assert_eq!(held.run("upstream pause nosuch").0, 5);

    let (code, out, err) = held.run(r#"call slow report --args {"ms":1}"#);
    assert_eq!((code, &*out), (0, "done\n"), "{err}");
    let (code, _, err) = held.run(r#"call slow report --args {"ms":9000} --timeout 300ms"#);
    assert!([1, 8].contains(&code) && err.contains("deadline"), "{code} {err}");
    assert_eq!(held.run("call nosuch tool").0, 5);

    let totals = &held.json("status")["totals"];
    assert_eq!(totals["unaccounted"], 0);
    let Held { child, tmp, admin, .. } = held;
    signal(&child, Signal::TERM);
    let (status, _, err) = wait(child);
    assert!(status.success(), "being stopped is the ordinary end of a demo that is held: {err}");
    assert!(!Path::new(admin.trim_start_matches("unix:")).exists());
    nothing_is_left(tmp.path());
}

#[test]
fn a_demo_that_is_interrupted_cleans_up_tells_its_figures_and_ends_with_130() {
    for which in [Signal::INT, Signal::TERM] {
        let tmp = tempfile::tempdir().unwrap();
        let mut child = forebay("demo --phase 30s", tmp.path()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        // The first words come once servers and daemon are up.
        stdout.read_exact(&mut [0; 16]).unwrap();
        let drain = std::thread::spawn(move || std::io::read_to_string(stdout).unwrap());
        signal(&child, which);
        let (status, _, err) = wait(child);
        let out = drain.join().unwrap();
        assert_eq!((status.code(), &*err), (Some(130), ""), "{which:?}");
        assert!(out.contains("Stopped early") && out.contains("10 careful callers"), "{out}");
        nothing_is_left(tmp.path());
    }
}

#[test]
fn c42_a_demo_whose_reader_goes_away_ends_quietly_and_leaves_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let mut child = forebay("demo --phase 30s", tmp.path()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 16]).unwrap();
    drop(stdout);
    let (status, _, err) = wait(child);
    assert_eq!((status.code(), &*err), (Some(0), ""));
    nothing_is_left(tmp.path());
}

#[test]
fn on_a_terminal_q_ends_with_0_and_ctrl_c_with_130_both_with_the_figures() {
    use rustix::pty;
    for (key, code) in [("q", 0), ("\x03", 130)] {
        let tmp = tempfile::tempdir().unwrap();
        let ours = pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).unwrap();
        pty::grantpt(&ours).unwrap();
        pty::unlockpt(&ours).unwrap();
        let size = rustix::termios::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&ours, size).unwrap();
        let name = pty::ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = || std::fs::OpenOptions::new().read(true).write(true).open(&name).unwrap();
        let mut command = forebay("demo --phase 30s", tmp.path());
        let child = command.env("TERM", "xterm").stdin(theirs()).stdout(theirs()).spawn().unwrap();
        drop(command);
        let mut ours = std::fs::File::from(ours);
        let mut writer = ours.try_clone().unwrap();
        let (seen, shown) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut all = String::new();
            let mut part = [0; 4096];
            // A terminal whose other side is closed gives an error.
            while let Ok(read @ 1..) = ours.read(&mut part) {
                all.push_str(&String::from_utf8_lossy(&part[..read]));
                if all.contains("q stops") {
                    let _ = seen.send(());
                }
            }
            all
        });
        shown.recv_timeout(PATIENCE).unwrap();
        std::io::Write::write_all(&mut writer, key.as_bytes()).unwrap();
        let (status, _, err) = wait(child);
        let all = reader.join().unwrap();
        assert_eq!((status.code(), &*err), (Some(code), ""), "{key:?}");
        let behind = all.rsplit("\x1b[?1049l").next().unwrap();
        assert!(behind.contains("Stopped early") && behind.contains("10 careful callers"), "{key:?}: {behind}");
        nothing_is_left(tmp.path());
    }
}

#[test]
fn a_phase_of_nothing_is_refused_with_the_smallest_value() {
    let tmp = tempfile::tempdir().unwrap();
    let (status, _, err) = wait(forebay("demo --phase 0s", tmp.path()).spawn().unwrap());
    assert_eq!(status.code(), Some(2));
    assert!(err.contains("200ms"), "{err}");
}
