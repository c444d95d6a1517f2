//! Whole configs: what is taken, what is refused and how it is told. Here is what these tests share.

mod callers;
mod documents;
mod files;
mod jwt;
mod mangled;
mod secrets;
mod settings;
mod surroundings;
mod values;

use super::schema::{self, SECTIONS, Section};
use super::testing::Fake;
use super::*;
use crate::caller::Lane;
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

const ONE: &str = "[upstreams.a]\ncommand = \"cat\"\n";

fn toml_with(text: &str, env: &Fake) -> Result<(Config, Vec<Warning>), Faults> {
    parse(Path::new("/etc/fb/forebay.toml"), text.into(), Format::Toml, env)
}

fn toml(text: &str) -> Result<(Config, Vec<Warning>), Faults> {
    toml_with(text, &Fake::default())
}

fn mcp_with(text: &str, env: &Fake) -> Result<(Config, Vec<Warning>), Faults> {
    parse(Path::new("/home/u/.mcp.json"), text.into(), Format::McpServers, env)
}

fn mcp(text: &str) -> Result<(Config, Vec<Warning>), Faults> {
    mcp_with(text, &Fake::default())
}

/// The limits of upstream `a` with these lines in it.
fn limits(lines: &str) -> Result<Limits, Faults> {
    toml(&format!("{ONE}{lines}\n")).map(|(config, _)| config.upstreams["a"].limits.clone())
}

/// `line:column key` of each fault.
fn places(faults: &Faults) -> Vec<String> {
    let place = |fault: &Finding| match &fault.place {
        Place::File { line, column, .. } => format!("{line}:{column} {}", fault.key),
        other => format!("{other} {}", fault.key),
    };
    faults.iter().map(place).collect()
}

fn warned(result: Result<(Config, Vec<Warning>), Faults>) -> Vec<String> {
    result.unwrap().1.iter().map(ToString::to_string).collect()
}

fn stdio(config: &Config, name: &str) -> StdioTarget {
    match &config.upstreams[name].target {
        Target::Stdio(stdio) => stdio.clone(),
        Target::Http(_) => panic!("{name} is http"),
    }
}
