//! The queue around one stdio server, without a daemon: the same dispatcher, actor and pipeline, with standard input and
//! output in the place of the listener. Nothing is bound, and nothing outlives it.

use crate::app;
use crate::caller::CallerId;
use crate::config::{
    Auth, Config, Global, Limits, Listen, Secret, Start, StdioTarget, Target, UpstreamConfig, check_name,
};
use crate::dispatcher::Dispatcher;
use crate::ingress::Ingress;
use crate::ingress::face::Face;
use crate::ingress::stdio::{self, Ended};
use crate::upstream::gates::Gates;
use crate::upstream::supervisor::Supervisor;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Messages worked on at once; more than any queue here holds means that the client does not read its answers.
const OPEN: usize = 8192;
/// Bytes of one message in either direction.
const LONGEST: usize = 64 << 20;
/// How long the server's handshake may take: it may have to be downloaded first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// What is run, and by which limits.
#[derive(Debug)]
pub struct Options {
    pub command: String,
    pub args: Vec<String>,
    pub limits: Limits,
    /// How long what was asked may go on once the client has closed its end.
    pub grace: Duration,
}

/// Why it could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Command(String),
    #[error("cannot read randomness for call ids: {0}")]
    Randomness(getrandom::Error),
}

/// Serves the client on `input` and `output` until it closes its end, its reader is gone, or `hurry`; then ends the
/// server. Must run on a current-thread runtime or a worker of one.
///
/// # Errors
/// The command is not there, or the system gives no randomness. Nothing has been started then.
pub async fn run(
    options: Options,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    hurry: CancellationToken,
) -> Result<(), RunError> {
    let target = StdioTarget {
        command: options.command,
        args: options.args.into_iter().map(Secret::new).collect(),
        env: whole_environment(std::env::vars_os()),
        cwd: None,
        processes: 1,
    };
    crate::upstream::transport::stdio::locate(&target).map_err(RunError::Command)?;
    let seed = getrandom::u64().map_err(RunError::Randomness)?;
    let name: Arc<str> = name_of(&target.command).into();
    let upstream = Arc::new(UpstreamConfig {
        name: name.clone(),
        target: Target::Stdio(target),
        limits: options.limits,
        tools: BTreeMap::new(),
        start: Start::Eager,
        connect_timeout: CONNECT_TIMEOUT,
        max_message: LONGEST,
    });
    let config = Arc::new(config(upstream.clone()));
    let dispatcher = Dispatcher::new(config.clone(), seed as u32);
    let home = Handle::current();
    let supervisor = Supervisor::start(&home, Gates::new(&config.global), seed);
    let (events, starts) = (dispatcher.events(), Arc::new(Semaphore::new(1)));
    let upstream = app::build(upstream, events, &supervisor, &starts, &[home], seed.rotate_left(32));
    dispatcher.add_upstream(upstream.clone());
    let ingress = Ingress::new(dispatcher.clone(), config.listen.mcp, 1);
    let caller = dispatcher.callers.anonymous().clone();
    debug_assert_eq!(caller.id, CallerId(0));
    let face = Arc::new(Face { ingress, caller, endpoint: name });
    let limits = stdio::Limits { longest: LONGEST, open: OPEN, grace: options.grace };
    let ended = stdio::serve(face, input, output, limits, hurry).await;
    match ended {
        Ended::Input => tracing::info!("the client has closed its end"),
        Ended::GraceOver => tracing::warn!(grace = ?options.grace, "calls outlasted the grace and were cancelled"),
        Ended::Output => tracing::warn!("the client no longer reads: its calls were cancelled"),
        Ended::Told => tracing::info!("told to end"),
    }
    dispatcher.stop_admitting();
    upstream.remove(Duration::ZERO).await;
    Ok(())
}

fn config(upstream: Arc<UpstreamConfig>) -> Config {
    Config {
        listen: Listen {
            mcp: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            mcp_unix: None,
            admin: "/nonexistent".into(),
            hosts: Vec::new(),
            origins: Vec::new(),
            threads: 1,
            max_body: LONGEST as u64,
        },
        auth: Auth::None,
        global: Global::default(),
        upstreams: BTreeMap::from([(upstream.name.to_string(), upstream)]),
        callers: BTreeMap::new(),
        hooks: crate::config::Hooks::default(),
        origin: None,
    }
}

/// The server is given all that its client gave us, as it would have been without us; only what is meant for forebay is
/// left out. Variables that are not UTF-8 cannot be passed on.
fn whole_environment(ours: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, Secret> {
    let text = |(key, value): (OsString, OsString)| Some((key.into_string().ok()?, value.into_string().ok()?));
    ours.filter_map(text)
        .filter(|(key, _)| !key.starts_with("FOREBAY_"))
        .map(|(key, value)| (key, Secret::new(value)))
        .collect()
}

/// A name for the server, made of its command.
fn name_of(command: &str) -> String {
    let file = Path::new(command).file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let letters = file.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' });
    let name: String = letters.take(32).collect();
    if check_name(&name).is_ok() { name } else { "server".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_after_its_command() {
        for (command, name) in
            [("npx", "npx"), ("/usr/bin/python3.12", "python3"), ("./my server", "my-server"), ("/", "server")]
        {
            assert_eq!(name_of(command), name);
        }
        assert_eq!(name_of(&"x".repeat(80)).len(), 32);
    }

    #[test]
    fn c15_the_server_has_its_clients_environment_and_none_of_ours() {
        let ours = [("API_TOKEN", "t"), ("FOREBAY_KEY", "fb_x"), ("PATH", "/bin")];
        let env = whole_environment(ours.map(|(key, value)| (key.into(), value.into())).into_iter());
        let env: Vec<_> = env.iter().map(|(key, value)| (key.as_str(), value.expose())).collect();
        assert_eq!(env, [("API_TOKEN", "t"), ("PATH", "/bin")]);
    }
}
