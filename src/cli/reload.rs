//! `forebay reload`: has the daemon read its config anew.

use super::out::{self, Paint, clean, paint};
use super::{CliError, Exit, Global, daemon};
use forebay_tui::client::{ClientError, read};
use forebay_wire::{Finding, Reloaded};

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) async fn run(_: Args, global: &Global) -> Result<(), CliError> {
    let body = match daemon::client(global)?.post("/v1/reload").await {
        Ok(body) => body,
        Err(ClientError::Refused { fault, body, .. }) if fault.code == "bad_config" => {
            let told: Reloaded = read(&body)?;
            if !global.json() {
                let color = global.color_on_stderr();
                told.faults.iter().for_each(|fault| out::talk(&shown(fault, "error", Paint::Bad, color)));
            }
            let message = "the config is refused; the daemon goes on with the one before";
            let message = if global.json() { clean(&told.text).into_owned() } else { message.to_owned() };
            return Err(CliError::new(Exit::ConfigInvalid, message));
        }
        Err(other) => return Err(other.into()),
    };
    if global.json() {
        return out::line(&String::from_utf8_lossy(&body));
    }
    let told: Reloaded = read(&body)?;
    if !global.quiet {
        let color = global.color_on_stderr();
        told.warnings.iter().for_each(|warning| out::talk(&shown(warning, "warning", Paint::Warn, color)));
    }
    out::line(&clean(&told.text))
}

fn shown(finding: &Finding, word: &str, tone: Paint, color: bool) -> String {
    let place = match (&finding.file, finding.line, finding.column, &finding.variable) {
        (Some(file), Some(line), Some(column), _) => format!("{file}:{line}:{column}: "),
        (Some(file), _, _, _) => format!("{file}: "),
        (None, _, _, Some(variable)) => format!("environment variable {variable}: "),
        (None, _, _, None) => String::new(),
    };
    let key = if finding.key.is_empty() { String::new() } else { format!("`{}` ", finding.key) };
    let mut text = format!("{}: {}\n", paint(word, tone, color), clean(&format!("{place}{key}{}", finding.message)));
    if let Some(hint) = &finding.hint {
        text.push_str(&format!("  hint: {}\n", clean(hint)));
    }
    text
}
