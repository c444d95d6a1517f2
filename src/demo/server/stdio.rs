//! A demo server on standard input and output: a line a message, calls side by side.

use super::Server;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// Answers on their way out. When it is full the calls wait for the reader, as on any pipe.
const OUTBOUND: usize = 256;

pub(super) async fn serve(server: Arc<Server>) -> io::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let (answers, mut outbound) = mpsc::channel::<String>(OUTBOUND);
    let writer = tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some(mut answer) = outbound.recv().await {
            answer.push('\n');
            stdout.write_all(answer.as_bytes()).await?;
            stdout.flush().await?;
        }
        io::Result::Ok(())
    });
    let mut calls = JoinSet::new();
    let mut by_id: HashMap<String, AbortHandle> = HashMap::new();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line?,
            Some(_) = calls.join_next() => {
                by_id.retain(|_, call| !call.is_finished());
                continue;
            }
        };
        let Some(line) = line else { break };
        if let Some(id) = cancelled(&line) {
            if let Some(call) = by_id.remove(&id) {
                call.abort();
            }
            continue;
        }
        let id = id_of(&line);
        let (server, answers) = (server.clone(), answers.clone());
        let call = calls.spawn(async move {
            if let Some(answer) = server.answer(line.as_bytes()).await {
                let _ = answers.send(answer).await;
            }
        });
        if let Some(id) = id {
            by_id.insert(id, call);
        }
    }
    // The client closed our input: it wants no more answers.
    drop(answers);
    calls.shutdown().await;
    writer.await.unwrap_or(Ok(()))
}

/// The id, as it is written, that a cancel notification is about.
fn cancelled(line: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    (message.get("method")?.as_str()? == "notifications/cancelled").then(|| message["params"]["requestId"].to_string())
}

fn id_of(line: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    message.get("id").map(ToString::to_string)
}
