//! SIGTERM: no new calls, the queues run dry until `drain_timeout`, the rest is answered, children are closed.

use crate::support::{Client, Connection, Daemon, HttpUpstream, Log, stdio};
use rustix::process::Signal;

#[test]
fn what_runs_and_waits_is_served_and_newcomers_are_refused() {
    let log = Log::new();
    let server = HttpUpstream::start(&["--log", log.path()]);
    let child = stdio("child", &[], "");
    let config = format!("[global]\ndrain_timeout = \"20s\"\n{child}{}", server.config("db", "max_concurrent = 1"));
    let mut daemon = Daemon::start(&config);
    let children = daemon.upstream("child").pids;
    let client = Client::modern(daemon.mcp, "/mcp/db");
    // Connected before: the listener may be closed by the time of the newcomer.
    let mut newcomer = Connection::tcp(daemon.mcp);
    newcomer.send(&client.call_bytes("0", "sleep", r#"{"ms":0}"#)).unwrap();
    assert_eq!(newcomer.receive().unwrap().status, 200);
    // Its slot is back, so that the load seen next is that of the call which holds.
    daemon.until_load("db", 0, 0);
    let running = client.start("hold", r#"{"key":"k"}"#);
    daemon.until_load("db", 1, 0);
    let waiting = client.start("echo", r#"{"mark":"waited"}"#);
    daemon.until_load("db", 1, 1);

    daemon.signal(Signal::TERM);
    crate::support::until("the daemon drains", || daemon.state().draining.then_some(()));
    if newcomer.send(&client.call_bytes("9", "echo", r#"{"mark":"too-late"}"#)).is_ok() {
        match newcomer.receive() {
            Ok(response) => {
                let answer = crate::support::Answer::of(response);
                assert_eq!(answer.refusal()["reason"], "draining");
                assert_eq!(answer.refusal()["executed"], "never");
            }
            // A connection that is closed unanswered has executed nothing either.
            Err(fault) => assert!(fault.kind() != std::io::ErrorKind::WouldBlock, "{fault}"),
        }
    }
    server.call("release", r#"{"key":"k"}"#);
    assert_eq!(running.answer().text(), "k");
    assert_eq!(waiting.answer().json["result"]["structuredContent"]["mark"], "waited");
    let status = daemon.ended();
    assert!(status.success(), "{status}: {}", daemon.said());
    assert!(log.with("too-late").is_empty());
    for pid in children {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "child {pid} is left behind");
    }
    assert!(!daemon.admin_socket().exists(), "the socket is gone");
}

#[test]
fn what_is_left_at_the_drain_timeout_is_answered() {
    let log = Log::new();
    let config = stdio("db", &["--log", log.path()], "max_concurrent = 1");
    let mut daemon = Daemon::start(&format!("[global]\ndrain_timeout = \"300ms\"\n{config}"));
    let client = Client::modern(daemon.mcp, "/mcp/db");
    let running = client.start("hold", r#"{"key":"never"}"#);
    daemon.until_load("db", 1, 0);
    let waiting = client.start("echo", r#"{"mark":"waits"}"#);
    daemon.until_load("db", 1, 1);
    daemon.signal(Signal::TERM);
    let running = running.answer();
    assert_eq!((&running.refusal()["reason"], &running.refusal()["by"]), (&"cancelled".into(), &"shutdown".into()));
    assert_eq!(running.refusal()["executed"], "unknown");
    let waiting = waiting.answer();
    assert_eq!((&waiting.refusal()["reason"], &waiting.refusal()["executed"]), (&"cancelled".into(), &"never".into()));
    assert!(daemon.ended().success(), "{}", daemon.said());
    assert!(log.with("waits").is_empty());
}
