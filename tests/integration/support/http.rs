//! HTTP/1.1 by hand, so that a test decides what lies in which packet, and sees the bytes of the answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::PATIENCE;

/// One connection to a daemon. Requests can be written without reading the answers to earlier ones.
pub(crate) struct Connection {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
    tcp: Option<TcpStream>,
}

/// An answer as it came.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Connection {
    pub(crate) fn tcp(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).expect("the daemon takes connections");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection {
            reader: BufReader::new(Box::new(stream.try_clone().unwrap())),
            writer: Box::new(stream.try_clone().unwrap()),
            tcp: Some(stream),
        }
    }

    pub(crate) fn unix(path: &Path) -> std::io::Result<Connection> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { reader: BufReader::new(Box::new(stream.try_clone()?)), writer: Box::new(stream), tcp: None })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.writer.write_all(bytes)?;
        self.writer.flush()
    }

    /// Goes away without a word, as a client that is killed.
    pub(crate) fn hang_up(self) {
        if let Some(tcp) = &self.tcp {
            let _ = tcp.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn receive(&mut self) -> std::io::Result<Response> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other(format!("no status line: {line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut response = Response { status, headers, body: Vec::new() };
        if response.header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            response.body = self.chunks()?;
        } else if let Some(length) = response.header("content-length").and_then(|length| length.parse().ok()) {
            response.body = vec![0; length];
            self.reader.read_exact(&mut response.body)?;
        }
        Ok(response)
    }

    fn chunks(&mut self) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16);
            let size = size.map_err(|_| std::io::Error::other(format!("no chunk size: {line:?}")))?;
            let from = body.len();
            body.resize(from + size, 0);
            self.reader.read_exact(&mut body[from..])?;
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}
