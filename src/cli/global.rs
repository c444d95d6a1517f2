//! Options that every command takes, and what follows from them.

use super::{CliError, Exit};
use crate::config;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

/// See the module's documentation.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Global {
    /// The admin address, unix:PATH: where `serve` listens, and where the other commands look for the daemon
    /// [default: the socket of the default config]
    #[arg(long, global = true, value_name = "ADDR", env = "FOREBAY_ADMIN")]
    pub admin: Option<String>,
    /// The form of what is printed
    #[arg(long, global = true, value_enum, default_value_t = Output::Table, value_name = "FORM")]
    pub output: Output,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub color: ColorChoice,
    /// Longest time that the command may take, such as 10s; for `call`, the call's own deadline [default: none]
    #[arg(long, global = true, value_name = "TIME", value_parser = config::parse_duration)]
    pub timeout: Option<Duration>,
    /// Never ask anything
    #[arg(long, global = true)]
    pub no_input: bool,
    /// Say nothing but results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more; twice: say everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The form of data on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    #[default]
    Table,
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

impl Global {
    pub fn json(&self) -> bool {
        self.output == Output::Json
    }

    pub fn color_on_stdout(&self) -> bool {
        self.color(std::io::stdout().is_terminal())
    }

    pub fn color_on_stderr(&self) -> bool {
        self.color(std::io::stderr().is_terminal())
    }

    fn color(&self, terminal: bool) -> bool {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }

    /// The admin socket that this command talks to: `--admin`, `FOREBAY_ADMIN`, what the default config says,
    /// or the default path.
    pub fn admin_socket(&self) -> Result<PathBuf, CliError> {
        match self.admin.as_deref().filter(|address| !address.is_empty()) {
            Some(address) => config::parse_admin(address).map_err(|why| {
                CliError::new(Exit::Usage, format!("--admin {why}"))
                    .hint("write it as unix:/run/user/1000/forebay.sock")
            }),
            None => Ok(config::default_admin(&config::ProcessEnv)),
        }
    }

    /// What can be told from a command line that was not understood.
    pub(super) fn guess(typed: &[OsString]) -> Self {
        let words: Vec<_> =
            typed.iter().skip(1).filter_map(|word| word.to_str()).take_while(|word| *word != "--").collect();
        let value = |option: &str| {
            words.iter().enumerate().rev().find_map(|(at, word)| match word.strip_prefix(option)? {
                "" => words.get(at + 1).copied(),
                rest => rest.strip_prefix('='),
            })
        };
        Global {
            output: if value("--output") == Some("json") { Output::Json } else { Output::Table },
            color: match value("--color") {
                Some("always") => ColorChoice::Always,
                Some("never") => ColorChoice::Never,
                _ => ColorChoice::Auto,
            },
            ..Global::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_found_in_a_line_that_is_not_understood() {
        let guess = |line: &str| Global::guess(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(guess("forebay nonsense --output json").output, Output::Json);
        assert_eq!(guess("forebay --output=json --color=never x").color, ColorChoice::Never);
        assert_eq!(guess("forebay run -- --output json").output, Output::Table);
        assert_eq!(guess("forebay --output").output, Output::Table);
    }
}
