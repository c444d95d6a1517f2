//! How a command fails: the exit code, what went wrong, and one thing to do about it.

use serde::Serialize;
use std::process::ExitCode;

/// Exit codes. They are part of the interface: scripts tell by them what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Ok = 0,
    Failed = 1,
    Usage = 2,
    ConfigInvalid = 3,
    Unreachable = 4,
    /// No such thing, or an id that means several.
    NotFound = 5,
    NotAllowed = 6,
    PartlyDone = 7,
    TimedOut = 8,
    Interrupted = 130,
}

impl Exit {
    pub const ALL: [Exit; 10] = [
        Exit::Ok,
        Exit::Failed,
        Exit::Usage,
        Exit::ConfigInvalid,
        Exit::Unreachable,
        Exit::NotFound,
        Exit::NotAllowed,
        Exit::PartlyDone,
        Exit::TimedOut,
        Exit::Interrupted,
    ];

    /// The word for it in the JSON form of an error.
    pub fn name(self) -> &'static str {
        match self {
            Exit::Ok => "ok",
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::ConfigInvalid => "config_invalid",
            Exit::Unreachable => "unreachable",
            Exit::NotFound => "not_found",
            Exit::NotAllowed => "not_allowed",
            Exit::PartlyDone => "partly_done",
            Exit::TimedOut => "timed_out",
            Exit::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command failed. Nothing in it may hold a secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    pub code: Exit,
    /// What failed and where, a lower-case fragment. Empty: end with the code and say nothing.
    pub message: String,
    /// The mend; one command to run, where there is one.
    pub hint: Option<String>,
}

impl CliError {
    pub fn new(code: Exit, message: impl Into<String>) -> Self {
        CliError { code, message: message.into(), hint: None }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        CliError::new(Exit::Failed, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        CliError::new(Exit::Usage, message)
    }

    /// Ends with a code and no words: all has been said, or nobody reads any more.
    pub fn silent(code: Exit) -> Self {
        CliError::new(code, "")
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn is_silent(&self) -> bool {
        self.message.is_empty()
    }

    /// The object that `--output json` puts on standard error.
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Form<'a> {
            code: &'static str,
            message: &'a str,
            hint: Option<&'a str>,
        }
        let form = Form { code: self.code.name(), message: &self.message, hint: self.hint.as_deref() };
        serde_json::to_string(&form).unwrap_or_else(|_| format!("{{\"code\":\"{}\"}}", self.code.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_tells_every_exit_code_and_no_other() {
        let manual = include_str!("../../docs/cli.md");
        let rows: Vec<_> = manual.lines().filter_map(|line| line.strip_prefix("| ")).collect();
        let rows = rows.iter().filter(|row| row.starts_with(|c: char| c.is_ascii_digit()));
        let told: Vec<_> = rows.map(|row| row.split(" | ").take(2).collect::<Vec<_>>().join(" ")).collect();
        let all: Vec<_> = Exit::ALL.iter().map(|exit| format!("{} `{}`", *exit as u8, exit.name())).collect();
        assert_eq!(told, all);
    }
}
