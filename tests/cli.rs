//! The binary as a user meets it: exit codes, where words go, what a pipe or a full device does.
#![expect(clippy::unwrap_used, reason = "tests say by panicking that something is wrong")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn forebay(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(line.split(' ')).env_clear().stdin(Stdio::null());
    command
}

fn run(line: &str) -> (i32, String, String) {
    told(forebay(line).output().unwrap())
}

fn told(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("forebay-cli-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        TempFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn help_is_data_and_a_usage_error_is_talk() {
    let (code, out, err) = run("--help");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("serve") && !out.contains("demo-server") && !out.contains('\x1b'), "{out}");
    let (code, out, err) = run("nonsense");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("unrecognized") && !err.contains('\x1b'), "{err}");
    let (code, _, err) = run("nonsense --output json");
    let object: serde_json::Value = serde_json::from_str(&err).unwrap();
    assert_eq!((code, &object["code"]), (2, &"usage".into()));
    assert!(object["hint"].is_string());
}

#[test]
fn r34_a_new_key_needs_no_config_and_fits_its_hash() {
    let (code, out, err) = run("key new ci-bot --output json");
    assert_eq!((code, err.as_str()), (0, ""));
    let made: serde_json::Value = serde_json::from_str(&out).unwrap();
    let hash = forebay::caller::key::parse_key_hash(made["key_hash"].as_str().unwrap()).unwrap();
    let (id, presented) = forebay::caller::key::presented(made["key"].as_str().unwrap()).unwrap();
    assert_eq!((made["name"].as_str().unwrap(), id), ("ci-bot", &*forebay::caller::key::id(&hash)));
    assert!(forebay::caller::key::same(&hash, &presented));
    let (code, out, _) = run("key new ci-bot");
    assert!(code == 0 && out.contains("[callers.ci-bot]\nkey_hash = \"sha256:"), "{out}");
    assert_eq!(run("key new a/b").0, 2);
    // Names that the config would not take, or that mean something else, are refused before a key is shown.
    let (code, out, err) = run("key new anonymous");
    assert!(code == 2 && out.is_empty() && err.contains("reserved"), "{err}");
    for bad in ["a\u{7}b", "a\u{1b}[2J", &"a".repeat(33)] {
        let (code, out, err) = run(&format!("key new {bad}"));
        assert!(code == 2 && out.is_empty() && err.contains("the name"), "{err}");
        assert!(!err.contains('\u{7}') && !err.contains('\u{1b}'), "{err:?}");
    }
}

#[test]
fn check_tells_all_faults_and_ends_with_3() {
    let file = TempFile::new("bad.toml", "[upstreams.a]\ncommand = \"x\"\nqueue_size = -1\nqueue_tiemout = \"1s\"\n");
    let (code, out, err) = run(&format!("check --config {}", file.path()));
    assert_eq!((code, out.as_str()), (3, ""));
    for part in [":3:14: `upstreams.a.queue_size` is negative", ":4:1: ", "did you mean `queue_timeout`?", "2 faults"] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert!(!err.contains('\x1b'));
    let (code, out, err) = run(&format!("check --output json --config {}", file.path()));
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let error: serde_json::Value = serde_json::from_str(&err).unwrap();
    assert_eq!((code, &error["code"]), (3, &"config_invalid".into()));
    assert_eq!(report["ok"], false);
    assert_eq!(report["faults"][0]["line"], 3);
    assert_eq!(report["faults"][1]["key"], "upstreams.a.queue_tiemout");
    let (code, _, err) = run("check --config /nonexistent/forebay.toml");
    assert!(code == 3 && err.contains("cannot be read"), "{err}");
}

#[test]
fn check_shows_the_limits_in_force() {
    let file = TempFile::new("good.toml", "[upstreams.a]\ncommand = \"x\"\nqueue_size = 7\ncall_timeout = 0\n");
    let (code, out, err) = run(&format!("check --config {}", file.path()));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.lines().nth(1).unwrap().split_whitespace().eq(["a", "stdio", "5", "7", "30s", "none", "displace"]),
        "{out}"
    );
    let json = told(forebay(&format!("check --config {} --output json", file.path())).output().unwrap()).1;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["upstreams"][0]["queue_size"], 7);
    assert!(report["upstreams"][0]["call_timeout_ms"].is_null());
}

#[test]
fn c32_check_never_prints_a_secret() {
    let text = "[upstreams.a]\ncommand = \"x\"\nargs = [\"TOKEN=s3cr3t-0001\"]\nenv = { K = \"s3cr3t-0002\", V = \"${V}\" }\n\
                start = \"${V}\"\n[upstreams.b]\nurl = \"https://h/s3cr3t-0005\"\n\
                headers = { Authorization = \"Bearer s3cr3t-0003\\n\" }\n[callers.c]\nkey_hash = \"fb_s3cr3t-0004\"\n";
    let faulty = TempFile::new("secret.toml", text);
    let fine = text.replace("start = \"${V}\"\n", "").replace("\\n", "").split("[callers").next().unwrap().to_owned();
    let fine = TempFile::new("secret-fine.toml", &fine);
    for (file, expected) in [(&faulty, 3), (&fine, 0)] {
        for form in ["table", "json"] {
            let line = format!("check -vv --output {form} --config {}", file.path());
            let (code, out, err) = told(forebay(&line).env("V", "s3cr3t-0006").output().unwrap());
            assert_eq!(code, expected, "{out}{err}");
            assert!(!format!("{out}{err}").contains("s3cr3t"), "{out}{err}");
        }
    }
}

#[test]
fn colours_are_for_terminals_or_on_demand() {
    let file = TempFile::new("color.toml", "x = 1\n");
    assert!(!run(&format!("check --config {}", file.path())).2.contains('\x1b'));
    assert!(run(&format!("--color always check --config {}", file.path())).2.contains('\x1b'));
    assert!(run("nonsense --color always").2.contains('\x1b'));
}

#[cfg(target_os = "linux")]
#[test]
fn c42_a_full_device_is_an_error_with_a_code() {
    for line in ["key new bob", "--help", "key new bob --output json"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, _, err) = told(forebay(line).stdout(full).stderr(Stdio::piped()).output().unwrap());
        assert_eq!(code, 1, "{line}");
        assert!(err.contains("standard output") && !err.contains("panicked"), "{err}");
    }
}

#[test]
fn c42_a_reader_that_went_away_ends_the_command_quietly() {
    for line in ["key new bob", "--help", "key new bob --output json"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, _, err) = told(forebay(line).stdout(writer).stderr(Stdio::piped()).output().unwrap());
        assert_eq!((code, err.as_str()), (0, ""), "{line}");
    }
}
