//! A daemon that was killed leaves nothing in the way of the next one; one that runs is left alone.

use crate::support::{Client, Daemon, forebay, stdio};
use std::time::{Duration, Instant};

#[test]
fn c43_a_daemon_starts_over_the_socket_of_one_that_was_killed() {
    let config = stdio("db", &[], "");
    let first = Daemon::start(&config);
    let instance = first.state().instance;
    let folder = first.crash();
    let second = Daemon::start_in(folder, &config).unwrap_or_else(|fault| panic!("{fault}"));
    assert_ne!(second.state().instance, instance);
    assert_eq!(Client::modern(second.mcp, "/mcp/db").call("sleep", r#"{"ms":0}"#).text(), "slept");
    // An id of the earlier run is told apart from one that never was.
    let old = second.run(&["cancel", &format!("{instance}-11"), "--output", "json"]);
    assert_eq!(old.code, Some(5), "{old:?}");
    second.adds_up();
}

#[test]
fn c43_a_second_daemon_on_the_same_socket_refuses_and_leaves_the_first_alone() {
    let config = stdio("db", &[], "");
    let first = Daemon::start(&config);
    let file = first.admin_socket().with_file_name("second.toml");
    let listen =
        format!("[listen]\nmcp = \"127.0.0.1:0\"\nadmin = \"unix:{}\"\n{config}", first.admin_socket().display());
    std::fs::write(&file, listen).unwrap();
    let second = forebay(&["serve", "--config", file.to_str().unwrap()], &[]);
    assert_ne!(second.code, Some(0), "{second:?}");
    assert!(second.stderr.contains("admin.sock"), "it says where: {second:?}");
    assert_eq!(Client::modern(first.mcp, "/mcp/db").call("sleep", r#"{"ms":0}"#).text(), "slept");
    assert_eq!(first.run(&["health"]).code, Some(0));
}

#[test]
fn c43_a_plain_file_in_the_sockets_place_is_kept() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("admin.sock");
    std::fs::write(&file, "precious").unwrap();
    let config = folder.path().join("forebay.toml");
    std::fs::write(
        &config,
        format!("[listen]\nmcp = \"127.0.0.1:0\"\nadmin = \"unix:{}\"\n{}", file.display(), stdio("db", &[], "")),
    )
    .unwrap();
    let ran = forebay(&["serve", "--config", config.to_str().unwrap()], &[]);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn c43_without_a_daemon_a_command_says_so_within_a_second() {
    let began = Instant::now();
    let ran = forebay(&["status"], &[("FOREBAY_ADMIN", "unix:/nonexistent/admin.sock")]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(!ran.stderr.is_empty() && ran.stdout.is_empty(), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}
