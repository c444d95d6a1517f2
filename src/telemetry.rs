//! What the daemon tells of itself. For now: its log, on standard error.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Starts the log: text on a terminal, JSON otherwise. `verbosity` counts `-v`; `FOREBAY_LOG` stands in their place,
/// and one that is no filter is told and passed over.
pub fn start(quiet: bool, verbosity: u8, color: bool) {
    let level = match (quiet, verbosity) {
        (true, _) => "warn",
        (false, 0) => "info",
        (false, 1) => "debug",
        (false, _) => "trace",
    };
    let given = std::env::var("FOREBAY_LOG").ok().filter(|filter| !filter.trim().is_empty());
    let (given, fault) = match given.map(EnvFilter::try_new) {
        Some(Ok(filter)) => (Some(filter), None),
        Some(Err(fault)) => (None, Some(fault)),
        None => (None, None),
    };
    let filter = given.unwrap_or_else(|| EnvFilter::new(format!("warn,forebay={level}")));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Stderr);
    // A second start, as in tests, keeps the first log.
    let _ = if std::io::stderr().is_terminal() {
        log.with_ansi(color).with_target(false).try_init()
    } else {
        log.json().flatten_event(true).try_init()
    };
    if let Some(fault) = fault {
        tracing::warn!(%fault, "FOREBAY_LOG is no filter, such as debug or warn,forebay=trace: it is passed over");
    }
}

/// Standard error that never fails: the daemon goes on when nobody reads its log any more (C42).
struct Stderr;

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Lossy;

    fn make_writer(&'a self) -> Lossy {
        Lossy
    }
}

/// See [`Stderr`].
struct Lossy;

impl std::io::Write for Lossy {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
