//! The stdio face: a line a message, answers in any order, faults as told.

use crate::tools::{Incoming, Reply, Server};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, BufReader};

/// Serves standard input until it ends.
pub(crate) async fn serve(server: Arc<Server>) -> ExitCode {
    at_start(&server);
    let mut lines = BufReader::with_capacity(1 << 16, tokio::io::stdin());
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return ExitCode::SUCCESS,
            Ok(_) => {}
        }
        let Some(message) = server.receive(&line) else { continue };
        if server.options.serial {
            // Nothing is read meanwhile, so cancels and pings wait as well.
            one(&server, message).await;
        } else {
            let server = server.clone();
            // A task a request: the calls of a client overlap.
            let task = async move { one(&server, message).await };
            tokio::spawn(task);
        }
    }
}

async fn one(server: &Arc<Server>, message: Incoming) {
    match server.reply(message).await {
        Reply::Silence => {}
        Reply::Message(text) => print(&[text.as_bytes(), b"\n"]),
        Reply::After { before, message } => print(&[&before, message.as_bytes(), b"\n"]),
        Reply::Bytes(bytes) => print(&[&bytes, b"\n"]),
        Reply::Bytewise(text) => {
            for byte in text.bytes().chain([b'\n']) {
                print(&[&[byte]]);
                tokio::task::yield_now().await;
            }
        }
        Reply::Close => std::process::exit(0),
    }
}

/// Faults that come before any request.
fn at_start(server: &Server) {
    if server.options.noise_at_start {
        print(&[crate::tools::NOISE]);
    }
    let mut left = server.options.no_newline_at_start;
    let block = [b'x'; 1 << 16];
    while left > 0 {
        let part = left.min(block.len());
        print(&[&block[..part]]);
        left -= part;
    }
    if server.options.no_newline_at_start > 0 {
        print(&[b"\n"]);
    }
}

/// Writes and flushes under the lock of standard output, so that answers never mix. A pipe that nobody reads
/// blocks the whole server, as it blocks simple servers in the field.
fn print(parts: &[&[u8]]) {
    let mut out = std::io::stdout().lock();
    let written = parts.iter().try_for_each(|part| out.write_all(part)).and_then(|()| out.flush());
    if written.is_err() {
        std::process::exit(0);
    }
}
