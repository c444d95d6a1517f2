//! A daemon's admin socket that answers what the test says: other versions, hostile names, sudden deaths.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// What is answered to a `METHOD /path` (without its query); `None` closes the connection in mid-answer.
pub(crate) type Script = Box<dyn Fn(&str, &str) -> Option<(u16, String)> + Send + Sync>;

/// See the module's documentation. Its thread ends with the process.
pub(crate) struct FakeDaemon {
    folder: TempDir,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FakeDaemon {
    /// `script` is given the request's line without its version, and its body.
    pub(crate) fn start(script: impl Fn(&str, &str) -> Option<(u16, String)> + Send + Sync + 'static) -> FakeDaemon {
        let folder = TempDir::with_prefix("forebay-fake-").unwrap();
        let listener = UnixListener::bind(folder.path().join("admin.sock")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (script, seen): (Arc<Script>, _) = (Arc::new(Box::new(script)), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (script, seen) = (script.clone(), seen.clone());
                std::thread::spawn(move || answer(stream, &script, &seen));
            }
        });
        FakeDaemon { folder, asked }
    }

    pub(crate) fn admin(&self) -> String {
        format!("unix:{}", self.folder.path().join("admin.sock").display())
    }

    /// What it was asked: `METHOD path body`.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Runs a command against it.
    pub(crate) fn run(&self, args: &[&str]) -> super::Ran {
        super::forebay(args, &[("FOREBAY_ADMIN", &self.admin())])
    }
}

fn answer(stream: UnixStream, script: &Script, seen: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (asked, body) = (first.trim().trim_end_matches(" HTTP/1.1"), String::from_utf8(body).ok()?);
    seen.lock().unwrap().push(format!("{asked} {body}").trim().to_owned());
    let mut stream = stream;
    match script(asked, &body) {
        Some((status, text)) => {
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                text.len()
            );
            stream.write_all(format!("{head}{text}").as_bytes()).ok()
        }
        None => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{").ok(),
    }
}
