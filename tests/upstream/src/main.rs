//! An MCP server for forebay's tests that does what it is told to, faults included.
//!
//! `forebay-test-upstream --stdio` or `--http ADDR`, then options. `tools` holds what both faces share: the
//! protocol and the tools; `stdio` and `http` put it on the wire. Nothing here knows forebay.

mod http;
mod stdio;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: forebay-test-upstream (--stdio | --http ADDR) [options]

  --era modern|legacy|both  which revisions are spoken (default both)
  --silent-init             never answers initialize or server/discover
  --silent-discover         never answers server/discover
  --dies-of-discover        exits at server/discover, as some old servers do
  --slow-init MS            answers initialize and server/discover after MS
  --serial                  one request at a time, deaf to cancels and pings meanwhile
  --limit N                 breaks (exit code 70) above N tool calls in flight
  --tools-page N            tools/list in pages of N
  --log FILE                appends every message received, one a line; {pid} in it is the process id
  --starts FILE             appends the process id, one a line, at each start
  --exit-at-start CODE      exits at once
  --exit-if FILE            exits at once with code 3 if FILE exists
  --noise-at-start          prints lines that are no messages before anything else
  --no-newline-at-start N   prints N bytes without an end of line before anything else

over HTTP (the URL is printed on a line of its own; POST /forget drops all sessions):
  --sse                     answers are event streams
  --no-session              legacy revisions without session ids
  --log-headers FILE        appends the head of every request received
";

/// What the command line asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) stdio: bool,
    pub(crate) http: Option<String>,
    pub(crate) eras: Eras,
    pub(crate) silent_init: bool,
    pub(crate) silent_discover: bool,
    pub(crate) dies_of_discover: bool,
    pub(crate) slow_init: Duration,
    pub(crate) serial: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) tools_page: Option<usize>,
    pub(crate) log: Option<PathBuf>,
    pub(crate) starts: Option<PathBuf>,
    pub(crate) exit_at_start: Option<u8>,
    pub(crate) exit_if: Option<PathBuf>,
    pub(crate) noise_at_start: bool,
    pub(crate) no_newline_at_start: usize,
    pub(crate) sse: bool,
    pub(crate) no_session: bool,
    pub(crate) log_headers: Option<PathBuf>,
}

/// Which protocol revisions are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Eras {
    Modern,
    Legacy,
    #[default]
    Both,
}

impl Options {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--stdio" => options.stdio = true,
                "--http" => options.http = Some(value()?),
                "--era" => {
                    options.eras = match value()?.as_str() {
                        "modern" => Eras::Modern,
                        "legacy" => Eras::Legacy,
                        "both" => Eras::Both,
                        other => return Err(format!("--era is modern, legacy or both, not {other}")),
                    }
                }
                "--silent-init" => options.silent_init = true,
                "--silent-discover" => options.silent_discover = true,
                "--dies-of-discover" => options.dies_of_discover = true,
                "--slow-init" => options.slow_init = Duration::from_millis(number(&flag, &value()?)?),
                "--serial" => options.serial = true,
                "--limit" => options.limit = Some(number(&flag, &value()?)?),
                "--tools-page" => options.tools_page = Some(number::<usize>(&flag, &value()?)?.max(1)),
                "--log" => options.log = Some(value()?.replace("{pid}", &std::process::id().to_string()).into()),
                "--starts" => options.starts = Some(value()?.into()),
                "--exit-at-start" => options.exit_at_start = Some(number(&flag, &value()?)?),
                "--exit-if" => options.exit_if = Some(value()?.into()),
                "--noise-at-start" => options.noise_at_start = true,
                "--sse" => options.sse = true,
                "--no-session" => options.no_session = true,
                "--log-headers" => options.log_headers = Some(value()?.into()),
                "--no-newline-at-start" => options.no_newline_at_start = number(&flag, &value()?)?,
                _ => return Err(format!("unknown option {flag}")),
            }
        }
        if options.stdio == options.http.is_some() {
            return Err("exactly one of --stdio and --http is needed".into());
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr>(flag: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{flag} takes a whole number, not {text}"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(fault) => {
            tools::complain(&format!("{fault}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    if let Some(file) = &options.starts {
        tools::append_line(file, std::process::id().to_string().as_bytes());
    }
    if let Some(code) = options.exit_at_start {
        return ExitCode::from(code);
    }
    if options.exit_if.as_ref().is_some_and(|file| file.exists()) {
        return ExitCode::from(3);
    }
    let server = tools::Server::new(options.clone());
    match &options.http {
        Some(address) => http::serve(server, address).await,
        None => stdio::serve(server).await,
    }
}
