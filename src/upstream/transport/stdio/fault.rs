//! Why a child's life ended or did not begin: a short phrase for callers, and the whole of it for operators.
//!
//! Callers learn what class of fault it is. Paths, commands, what the server said and the last lines of its
//! standard error stay in the log and in the admin API's status.

use crate::config::StdioTarget;
use std::sync::Arc;

/// Most lines of standard error that are told with a fault, and characters of each.
pub(super) const TAIL: usize = 3;
const WIDTH: usize = 160;
/// Shorter values are no secrets, and masking them would only garble the text.
const SHORTEST: usize = 6;

/// See the module's documentation.
pub(super) struct Fault {
    /// For everybody.
    pub(super) text: Arc<str>,
    /// For operators, if there is more to say.
    pub(super) detail: Option<String>,
    /// Only somebody's hand can mend it.
    pub(super) is_final: bool,
    /// It was ordered: the next start need not wait.
    pub(super) ordered: bool,
}

/// The fault of the last life, for status.
pub(super) struct LastFault {
    pub(super) detail: String,
    /// The numbers of the lines of standard error that are of that life; open until the next one starts.
    pub(super) stderr: std::ops::Range<u64>,
}

impl Fault {
    pub(super) fn new(text: impl Into<Arc<str>>) -> Self {
        Fault { text: text.into(), detail: None, is_final: false, ordered: false }
    }

    pub(super) fn with_detail(text: &str, detail: String) -> Self {
        Fault { detail: Some(detail), ..Fault::new(text) }
    }

    pub(super) fn ordered(text: &str) -> Self {
        Fault { ordered: true, ..Fault::new(text) }
    }

    pub(super) fn detail(&self) -> &str {
        self.detail.as_deref().unwrap_or(&self.text)
    }
}

impl LastFault {
    /// The fault with the last lines of standard error, on one line, without control characters and without
    /// the secrets that the child was given.
    pub(super) fn told(&self, stderr: &[String], target: Option<&StdioTarget>) -> String {
        let secrets = target.map(secrets).unwrap_or_default();
        let lines: Vec<_> = stderr.iter().filter(|line| !line.trim().is_empty()).collect();
        let mut text = self.detail.clone();
        for (number, line) in lines[lines.len().saturating_sub(TAIL)..].iter().enumerate() {
            let masked = secrets.iter().fold((*line).clone(), |line, secret| line.replace(secret, "***"));
            let cut: String = masked.trim().chars().take(WIDTH).collect();
            text.push_str(if number == 0 { "; its stderr ends: " } else { " / " });
            text.extend(cut.escape_debug());
        }
        text
    }
}

/// Values that the child may repeat and that may be secrets, the longest first: those of `env`, of
/// `KEY=VALUE`, and what stands behind an option unless it looks like a path or a package.
fn secrets(target: &StdioTarget) -> Vec<&str> {
    let args: Vec<_> = target.args.iter().map(|arg| arg.expose()).collect();
    let behind_options = args
        .windows(2)
        .filter(|pair| pair[0].starts_with('-') && !pair[1].starts_with(['-', '/', '.', '@']))
        .map(|pair| pair[1]);
    let assigned = args.iter().filter_map(|arg| arg.split_once('=')).map(|(_, value)| value);
    let env = target.env.values().map(|value| value.expose());
    let mut all: Vec<_> = env.chain(assigned).chain(behind_options).filter(|value| value.len() >= SHORTEST).collect();
    all.sort_by_key(|value| std::cmp::Reverse(value.len()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    #[test]
    fn c32_the_last_words_are_told_on_one_line_without_what_the_child_was_given() {
        let args = ["-e", "TOKEN=s3cr3t-0001", "--key", "s3cr3t-0005", "-y", "@scope/server", "--verbose"];
        let target = StdioTarget {
            command: "x".into(),
            args: args.map(Secret::new).to_vec(),
            env: [("KEY".to_owned(), Secret::new("s3cr3t-0002")), ("N".to_owned(), Secret::new("1"))].into(),
            cwd: None,
            processes: 1,
        };
        let fault = LastFault { detail: "exit code 1".into(), stderr: 0..u64::MAX };
        let said =
            ["first", "", "s3cr3t-0001 and s3cr3t-0002", "key s3cr3t-0005\u{1b}[2J", "no @scope/server --verbose 1"];
        let told = fault.told(&said.map(str::to_owned), Some(&target));
        assert_eq!(
            told,
            "exit code 1; its stderr ends: *** and *** / key ***\\u{1b}[2J / no @scope/server --verbose 1"
        );
        let long = fault.told(&["x".repeat(5000)], None);
        assert!(long.len() < 200);
        assert_eq!(fault.told(&[], Some(&target)), "exit code 1");
    }
}
