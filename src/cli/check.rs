//! `forebay check`: every fault of a config at once, and the limits in force when there is none.

use super::out::{self, Paint, Table, clean, paint};
use super::{CliError, ConfigArgs, Exit, Global};
use crate::config::{
    self, Concurrency, Config, Finding, MAX_CONCURRENT_CEILING, ProcessEnv, Target, UpstreamConfig, show_duration,
};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    match config::load(&args.config.source(), &ProcessEnv) {
        Ok((config, warnings)) => {
            if global.json() {
                return out::json(&report(Some(&config), config.origin.as_deref(), &[], &warnings));
            }
            tell_warnings(&warnings, global);
            out::print(&summary(&config, global.color_on_stdout()))
        }
        Err(faults) => {
            if global.json() {
                let all: Vec<Finding> = faults.iter().cloned().collect();
                out::json(&report(None, faults.origin.as_deref(), &all, &[]))?;
            }
            Err(refused(&faults, global))
        }
    }
}

/// Tells all faults, and gives the error to end with.
pub(super) fn refused(faults: &config::Faults, global: &Global) -> CliError {
    if !global.json() {
        let color = global.color_on_stderr();
        for fault in faults {
            out::talk(&rendered(fault, "error", Paint::Bad, color));
        }
    }
    let count = match faults.len() {
        1 => "1 fault".to_owned(),
        count => format!("{count} faults"),
    };
    let origin = faults.origin.as_ref().map(|file| clean(&file.display().to_string()).into_owned());
    let message = match origin {
        Some(file) => format!("{count} in {file}"),
        None => "no config".to_owned(),
    };
    let mut error = CliError::new(Exit::ConfigInvalid, message);
    if global.json()
        && let Some(first) = faults.iter().next()
    {
        error.message = clean(&format!("{}; {first}", error.message)).into_owned();
        error.hint = first.hint.as_deref().map(|hint| clean(hint).into_owned());
    }
    error
}

/// Tells warnings, unless `--quiet`.
pub(super) fn tell_warnings(warnings: &[Finding], global: &Global) {
    if global.quiet {
        return;
    }
    let color = global.color_on_stderr();
    for warning in warnings {
        out::talk(&rendered(warning, "warning", Paint::Warn, color));
    }
}

fn rendered(finding: &Finding, word: &str, meaning: Paint, color: bool) -> String {
    let mut text = format!("{} {}\n", paint(&format!("{word}:"), meaning, color), clean(&finding.to_string()));
    if let Some(hint) = &finding.hint {
        text.push_str(&format!("  {} {}\n", paint("hint:", Paint::Dim, color), clean(hint)));
    }
    text
}

fn summary(config: &Config, color: bool) -> String {
    let mut table = Table::new(&[
        "UPSTREAM",
        "KIND",
        ">MAX_CONCURRENT",
        ">QUEUE_SIZE",
        ">QUEUE_TIMEOUT",
        ">CALL_TIMEOUT",
        "ON_FULL",
    ]);
    for upstream in config.upstreams.values() {
        let limits = &upstream.limits;
        table.row([
            upstream.name.to_string(),
            kind(upstream).to_owned(),
            shown_concurrency(limits.max_concurrent),
            limits.queue_size.to_string(),
            show_duration(limits.queue_timeout),
            show_duration(limits.call_timeout),
            format!("{:?}", limits.on_full).to_lowercase(),
        ]);
    }
    let origin = config.origin.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
    let auth = match &config.auth {
        config::Auth::None => "open to everybody on this machine".to_owned(),
        config::Auth::Keys => format!("{} callers by key", config.callers.len()),
        config::Auth::Jwt(_) => format!("{} callers by token", config.callers.len()),
    };
    format!(
        "{}\n{} is fine. MCP at http://{}/mcp, {auth}; admin at unix:{}\n",
        table.render(color).trim_end_matches('\n'),
        clean(&origin),
        config.listen.mcp,
        clean(&config.listen.admin.display().to_string()),
    )
}

fn kind(upstream: &UpstreamConfig) -> &'static str {
    match upstream.target {
        Target::Stdio(_) => "stdio",
        Target::Http(_) => "http",
    }
}

fn shown_concurrency(limit: Concurrency) -> String {
    match limit {
        Concurrency::Fixed(limit) => limit.to_string(),
        Concurrency::Adaptive { min, max } => format!("{min}-{max}"),
        Concurrency::Unlimited => format!("unlimited ({MAX_CONCURRENT_CEILING})"),
    }
}

/// What `--output json` prints.
#[derive(Serialize)]
struct Report {
    ok: bool,
    file: Option<String>,
    faults: Vec<Told>,
    warnings: Vec<Told>,
    upstreams: Vec<Shown>,
}

#[derive(Serialize)]
struct Told {
    file: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
    variable: Option<String>,
    key: String,
    message: String,
    hint: Option<String>,
}

#[derive(Serialize)]
struct Shown {
    name: String,
    kind: &'static str,
    max_concurrent: u32,
    queue_size: u32,
    queue_timeout_ms: Option<u64>,
    call_timeout_ms: Option<u64>,
}

fn report(config: Option<&Config>, file: Option<&Path>, faults: &[Finding], warnings: &[Finding]) -> Report {
    let told = |finding: &Finding| {
        let (file, line, column) = finding.place.parts();
        let variable = match &finding.place {
            config::Place::Variable(name) => Some(name.clone()),
            _ => None,
        };
        Told {
            file: file.map(|file| file.display().to_string()),
            line,
            column,
            variable,
            key: finding.key.clone(),
            message: finding.message.clone(),
            hint: finding.hint.clone(),
        }
    };
    let milliseconds = |duration: Option<Duration>| duration.map(|duration| duration.as_millis() as u64);
    let shown = |upstream: &UpstreamConfig| Shown {
        name: upstream.name.to_string(),
        kind: kind(upstream),
        max_concurrent: upstream.limits.max_concurrent.ceiling(),
        queue_size: upstream.limits.queue_size,
        queue_timeout_ms: milliseconds(upstream.limits.queue_timeout),
        call_timeout_ms: milliseconds(upstream.limits.call_timeout),
    };
    Report {
        ok: faults.is_empty(),
        file: file.map(|file| file.display().to_string()),
        faults: faults.iter().map(told).collect(),
        warnings: warnings.iter().map(told).collect(),
        upstreams: config.into_iter().flat_map(|config| config.upstreams.values()).map(|up| shown(up)).collect(),
    }
}
