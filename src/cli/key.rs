//! `forebay key`: makes a caller's key. The daemon stores only its hash, so this needs no config and no daemon.

use super::{CliError, Global, out};
use crate::caller::key::Key;
use crate::caller::registry::ANONYMOUS;
use crate::config;
use serde::Serialize;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a key for a caller; it is shown once
    New {
        /// The caller's name, as it stands under [callers.NAME]
        name: String,
    },
}

#[derive(Serialize)]
struct NewKey<'a> {
    name: &'a str,
    key: &'a str,
    key_hash: &'a str,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let Action::New { name } = args.action;
    config::check_name(&name).map_err(|why| {
        CliError::usage(format!("the name {:?} {why}", out::clean(&name))).hint("for example: forebay key new ci-bot")
    })?;
    if name == ANONYMOUS {
        let why = format!("the name `{ANONYMOUS}` is reserved for callers without a key, so a key cannot have it");
        return Err(CliError::usage(why).hint("give the caller a name of its own: forebay key new ci-bot"));
    }
    let mut randomness = [0; 32];
    getrandom::fill(&mut randomness)
        .map_err(|error| CliError::failed(format!("cannot get random bytes from the system: {error}")))?;
    let key = Key::new(randomness);
    let key_hash = key.key_hash();
    if global.json() {
        return out::json(&NewKey { name: &name, key: key.expose(), key_hash: &key_hash });
    }
    out::print(&format!(
        "Key of {name}, shown only this once. Its holder sends it as `Authorization: Bearer KEY`:\n\n  {}\n\n\
         For the config (needs `mode = \"keys\"` under [auth]):\n\n[callers.{name}]\nkey_hash = \"{key_hash}\"\n",
        key.expose()
    ))
}
