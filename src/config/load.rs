//! Reads a config from where it is: text, tree, checked settings; all faults at once.

use super::fault::{self, Finding};
use super::node::{Node, Text, Value};
use super::read::{Item, Reader};
use super::variables::Variables;
use super::{Config, Env, Faults, Place, Warning, check, mcp, place as places};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Where a config comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file in forebay's own format.
    File(PathBuf),
    /// An `mcpServers` file as clients have it.
    McpFile(PathBuf),
    /// The first of the default places that has one ([`super::candidates`]).
    Discover,
}

/// How a text is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Toml,
    McpServers,
}

/// Reads and checks a config.
///
/// # Errors
/// Every fault that it has, sorted by place; a file that cannot be read is one too.
pub fn load(source: &Source, env: &dyn Env) -> Result<(Config, Vec<Warning>), Faults> {
    let (file, format) = place(source, env)?;
    let bytes = bytes(&file, env)?;
    parse(&file, bytes, format, env)
}

/// Which file it is, and how it is read.
pub(super) fn place(source: &Source, env: &dyn Env) -> Result<(PathBuf, Format), Faults> {
    Ok(match source {
        Source::File(file) => (file.clone(), Format::Toml),
        Source::McpFile(file) => (file.clone(), Format::McpServers),
        Source::Discover => (discover(env)?, Format::Toml),
    })
}

/// The file as it is.
pub(super) fn bytes(file: &Path, env: &dyn Env) -> Result<Vec<u8>, Faults> {
    env.read(file).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::NotFound => "see that the path is right",
            ErrorKind::PermissionDenied => "make it readable for the user that runs forebay",
            _ => "it must be a regular file of at most 16 MiB",
        };
        alone(Some(file.into()), Place::WholeFile(file.into()), format!("cannot be read: {error}"), hint.into())
    })
}

fn discover(env: &dyn Env) -> Result<PathBuf, Faults> {
    let candidates = places::candidates(env);
    if let Some(found) = candidates.iter().find(|file| places::exists(env, file)) {
        return Ok(found.clone());
    }
    let looked: Vec<String> = candidates.iter().map(|file| file.display().to_string()).collect();
    let hint = "give one with --config FILE, or take the servers of a client with --mcp-config .mcp.json";
    Err(alone(None, Place::Nowhere, format!("not found; looked for {}", looked.join(", ")), hint.into()))
}

fn alone(origin: Option<PathBuf>, place: Place, message: String, hint: String) -> Faults {
    Faults::new(origin, vec![Finding { place, key: String::new(), message, hint: Some(hint) }])
}

/// Checks a config that has been read already.
///
/// # Errors
/// Every fault that it has, sorted by place.
pub fn parse(file: &Path, bytes: Vec<u8>, format: Format, env: &dyn Env) -> Result<(Config, Vec<Warning>), Faults> {
    let refuse = |faults| Err(Faults::new(Some(file.into()), faults));
    let text = match Text::new(file, bytes) {
        Ok(text) => text,
        Err(fault) => return refuse(vec![fault]),
    };
    let (tree, mut faults) = match format {
        Format::Toml => text.parse_toml(),
        Format::McpServers => text.parse_json(),
    };
    let Some(tree) = tree else { return refuse(other_format(file, &text, format).map_or(faults, |fault| vec![fault])) };
    let variables = Variables::read(env, &mut faults);
    let base = file.parent().unwrap_or(Path::new(""));
    let mut reader = Reader::new(&text, base, env);
    let config = match format {
        Format::Toml => {
            let root = check::root(&mut reader, &tree);
            let named = check::named_upstreams(&mut reader, &root);
            if named.is_empty() && root.get("upstreams").is_none_or(|item| check::is_table(item.node)) {
                let hint = "add [upstreams.NAME] with a command or a url";
                reader.fault_at(0, "upstreams", "names no server, so there is nothing to serve", hint);
            }
            check::config(&mut reader, &root, named, &variables, file)
        }
        Format::McpServers => {
            let nothing = Node { span: 0..0, value: Value::Table(Vec::new()) };
            let servers = mcp::servers(&mut reader, &tree, own_address(&variables));
            let named = servers
                .iter()
                .map(|server| check::Named {
                    name: server.name.clone(),
                    start: server.start,
                    item: Item { key: server.path.clone(), node: &server.node, variable: None },
                })
                .collect();
            let root = check::root(&mut reader, &nothing);
            check::config(&mut reader, &root, named, &variables, file)
        }
    };
    faults.append(&mut reader.faults);
    let mut warnings = reader.warnings;
    fault::sort(&mut warnings);
    if !faults.is_empty() {
        // What was left out explains why nothing is left.
        if config.upstreams.is_empty() && format == Format::McpServers {
            faults.append(&mut warnings);
        }
        return refuse(faults);
    }
    Ok((config, warnings))
}

/// A file that cannot be read in its format but can in the other one: only the flag is wrong.
fn other_format(file: &Path, text: &Text, format: Format) -> Option<Finding> {
    let (message, hint) = match format {
        Format::Toml if matches!(text.parse_json(), (Some(Node { value: Value::Table(_), .. }), _)) => {
            ("is JSON, and --config takes TOML", "give an `mcpServers` file with --mcp-config")
        }
        Format::McpServers if text.parse_toml().1.is_empty() => {
            ("is TOML, and --mcp-config takes JSON", "give a config in TOML with --config")
        }
        Format::Toml | Format::McpServers => return None,
    };
    let (key, hint) = (String::new(), Some(hint.into()));
    Some(Finding { place: Place::WholeFile(file.into()), key, message: message.into(), hint })
}

/// Where forebay will listen, for finding entries of an `mcpServers` file that lead back to it.
fn own_address(variables: &Variables) -> SocketAddr {
    let given = variables.of(&super::schema::LISTEN).find(|variable| variable.key.name == "mcp");
    let given = given.and_then(|variable| match &variable.node.value {
        Value::Text(text) => text.trim().parse().ok(),
        _ => None,
    });
    given.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 7300)))
}
