//! The scripted server answers. Having this test also makes `cargo test --workspace` build the server's binary,
//! which the tests of other packages run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[test]
fn a_call_over_stdio_is_answered() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_forebay-test-upstream"))
        .arg("--stdio")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"n":1.10}}}"#;
    writeln!(input, "{call}").unwrap();
    let mut answer = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert!(answer.contains(r#""id":7"#) && answer.contains(r#""structuredContent":{"n":1.10}"#), "{answer}");
    drop(input);
    assert!(server.wait().unwrap().success(), "it ends with its standard input");
}
