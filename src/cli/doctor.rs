//! `forebay doctor`: looks for what is wrong around forebay, with a daemon or without one.
//!
//! Without a daemon each upstream of the config is connected once, by the same code that serves it, and taken down
//! again; with one, its own view is told.

mod look;

use super::out::{self, Paint, Table};
use super::{CliError, ConfigArgs, Exit, Global, daemon};
use crate::config::{self, Config, ProcessEnv};
use forebay_tui::client::{ClientError, escaped, read};
use forebay_wire::{State, UpstreamDetail, UpstreamState};
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Start no servers: look at everything else
    #[arg(long)]
    no_start: bool,
    /// How long a server's handshake may take
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = config::parse_duration)]
    patience: Duration,
}

/// How one thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: String,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Finding {
    fn new(check: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Self {
        Finding { check: check.into(), verdict, detail: detail.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let mut found = Vec::new();
    let config = load(&args, &mut found);
    let state = the_daemon(global, &mut found).await?;
    found.push(look::clock());
    found.push(look::descriptors());
    look::tools(config.as_ref(), &mut found);
    if let Some(config) = &config {
        look::commands(config, &mut found);
        if state.is_none() {
            found.push(look::port(config));
        }
    }
    match (&state, &config) {
        (Some(state), _) => upstreams_of(state, global, &mut found).await?,
        (None, Some(config)) if !args.no_start => look::handshakes(config, args.patience, &mut found).await,
        _ => {}
    }
    found.push(look::zombies(global.admin_socket()?.as_path()));
    if global.json() {
        out::json(&found)?;
    } else {
        out::print(&table(&found, global.color_on_stdout()))?;
    }
    if found.iter().any(|finding| finding.verdict == Verdict::Fail) {
        Err(CliError::silent(Exit::Failed))
    } else {
        Ok(())
    }
}

fn load(args: &Args, found: &mut Vec<Finding>) -> Option<Config> {
    match config::load(&args.config.source(), &ProcessEnv) {
        Ok((config, warnings)) => {
            let file = config.origin.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
            let verdict = if warnings.is_empty() { Verdict::Ok } else { Verdict::Warn };
            let count = warnings.len();
            let with = if count == 0 { String::new() } else { format!(", with {count} warnings: see `forebay check`") };
            found.push(Finding::new("config", verdict, format!("{file}: {} upstreams{with}", config.upstreams.len())));
            Some(config)
        }
        Err(faults) => {
            let first = faults.iter().next().map(ToString::to_string).unwrap_or_default();
            // Without a file there is nothing wrong yet, only nothing to look at.
            let verdict = if faults.origin.is_none() { Verdict::Warn } else { Verdict::Fail };
            let hint = faults.iter().next().and_then(|fault| fault.hint.clone());
            let mut finding = Finding::new("config", verdict, first);
            finding.hint = hint.or_else(|| Some("see `forebay check`".into()));
            found.push(finding);
            None
        }
    }
}

/// Whether a daemon answers, and whether one could be started in its place.
async fn the_daemon(global: &Global, found: &mut Vec<Finding>) -> Result<Option<State>, CliError> {
    let socket = global.admin_socket()?;
    let shown = socket.display().to_string();
    let state = match daemon::client(global)?.state().await {
        Ok(state) => state,
        Err(ClientError::Unreachable { .. }) => {
            found.push(Finding::new("daemon", Verdict::Ok, format!("none runs at {shown}")));
            found.push(look::socket_place(&socket));
            return Ok(None);
        }
        Err(fault) => {
            let fault = CliError::from(fault);
            found.push(Finding::new("daemon", Verdict::Fail, format!("{shown}: {}", fault.message)));
            return Ok(None);
        }
    };
    let up = config::show_duration(Some(Duration::from_secs(state.uptime_ms / 1000)));
    let text = format!("{} of run {} at {shown}, up {up}", state.version, state.instance);
    let ours = state.version == env!("CARGO_PKG_VERSION");
    let finding = Finding::new("daemon", if ours { Verdict::Ok } else { Verdict::Warn }, text);
    found.push(if ours { finding } else { finding.hint("this command is of another version than the daemon") });
    found.push(look::socket_rights(&socket));
    found.push(look::answers(&state.mcp).await);
    if state.totals.unaccounted != 0 {
        found.push(Finding::new(
            "ledger",
            Verdict::Fail,
            format!("{} calls are unaccounted for", state.totals.unaccounted),
        ));
    }
    Ok(Some(state))
}

/// The upstreams as the daemon has them.
async fn upstreams_of(state: &State, global: &Global, found: &mut Vec<Finding>) -> Result<(), CliError> {
    let client = daemon::client(global)?;
    for upstream in &state.upstreams {
        let detail: Option<UpstreamDetail> =
            match client.get(&format!("/v1/upstreams/{}", escaped(&upstream.name))).await {
                Ok(body) => read(&body).ok(),
                Err(_) => None,
            };
        let server = detail.map_or(String::new(), |detail| {
            let part = |text: Option<String>, word: &str| text.map_or(String::new(), |text| format!(", {word} {text}"));
            part(detail.protocol, "speaks") + &part(detail.server, "calls itself")
        });
        let verdict = match upstream.state {
            UpstreamState::Up | UpstreamState::Asleep | UpstreamState::Paused | UpstreamState::Drained => Verdict::Ok,
            UpstreamState::Down => Verdict::Fail,
            _ => Verdict::Warn,
        };
        let fault = upstream.fault.as_deref().map_or(String::new(), |fault| format!(": {fault}"));
        let text = format!("{}{server}{fault}", upstream.state.name());
        found.push(Finding::new(format!("upstream {}", upstream.name), verdict, text));
    }
    Ok(())
}

fn table(found: &[Finding], color: bool) -> String {
    let mut table = Table::new(&["CHECK", "", "FOUND"]);
    for finding in found {
        let (word, tone) = match finding.verdict {
            Verdict::Ok => ("ok", Paint::Good),
            Verdict::Warn => ("warn", Paint::Warn),
            Verdict::Fail => ("fail", Paint::Bad),
        };
        table.painted_row([(finding.check.clone(), None), (word.into(), Some(tone)), (finding.detail.clone(), None)]);
    }
    let mut text = table.render(color);
    for finding in found {
        if let Some(hint) = &finding.hint {
            text.push_str(&format!("hint: {}: {}\n", out::clean(&finding.check), out::clean(hint)));
        }
    }
    text
}
