//! A plain HTTP/1.1 client for tests: it sends the bytes that it is given and reads one answer at a time.
#![allow(dead_code, clippy::unwrap_used, reason = "shared by test crates that each use a part of it")]

use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No answer is waited for longer.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|fault| panic!("{fault}: {self:?}"))
    }

    pub(crate) fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {}", self.text()))
    }
}

/// A POST with the headers that every client sends; `headers` come after them.
pub(crate) fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends what the server may no longer want to read.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn ask(&mut self, bytes: &[u8]) -> Got {
        self.send(bytes).await;
        self.read().await
    }

    pub(crate) async fn read(&mut self) -> Got {
        self.try_read().await.expect("the connection ended without an answer")
    }

    /// The next answer; none if the connection ends before it.
    pub(crate) async fn try_read(&mut self) -> Option<Got> {
        tokio::time::timeout(PATIENCE, self.read_one()).await.expect("no answer in time")
    }

    async fn read_one(&mut self) -> Option<Got> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.buffer[..end]).unwrap().to_owned();
                let mut lines = head.split("\r\n");
                let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
                let headers: Vec<(String, String)> = lines
                    .map(|line| line.split_once(':').unwrap())
                    .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                    .collect();
                let length = headers.iter().find(|(name, _)| name == "content-length");
                let length = length.map_or(0, |(_, value)| value.parse::<usize>().unwrap());
                if self.buffer.len() >= end + 4 + length {
                    let body = self.buffer[end + 4..end + 4 + length].to_vec();
                    self.buffer.drain(..end + 4 + length);
                    return Some(Got { status, headers, body });
                }
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// What comes until `needle` has, inclusive; for streams, of which more is still to come.
    pub(crate) async fn until(&mut self, needle: &str) -> String {
        let found = async {
            loop {
                let at = self.buffer.windows(needle.len()).position(|some| some == needle.as_bytes());
                if let Some(at) = at {
                    return String::from_utf8(self.buffer.drain(..at + needle.len()).collect()).unwrap();
                }
                let text = String::from_utf8_lossy(&self.buffer).into_owned();
                assert!(self.more().await, "the connection ended without {needle:?}: {text}");
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{needle:?} did not come"))
    }

    /// Whether the server has closed the connection, with nothing more said.
    pub(crate) async fn closed(&mut self) -> bool {
        self.buffer.is_empty() && !tokio::time::timeout(PATIENCE, self.more()).await.expect("still open")
    }

    async fn more(&mut self) -> bool {
        let mut bytes = [0; 16384];
        match self.stream.read(&mut bytes).await {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.buffer.extend_from_slice(&bytes[..read]);
                true
            }
        }
    }
}
