//! Where things are by default: the config file and the admin socket.

use super::node::{Node, Text, Value};
use super::{Env, interpolate};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Reads an admin address: `unix:PATH`, or an absolute path.
///
/// The error is a fragment that reads well behind the name of the key.
pub fn parse_admin(text: &str) -> Result<PathBuf, String> {
    let path = match text.strip_prefix("unix:") {
        Some(path) => path,
        None if text.starts_with(['/', '.']) => text,
        None => {
            return Err(
                "is not an address of the form unix:PATH (the admin API is served on a unix socket only)".into()
            );
        }
    };
    match path {
        "" => Err("names no path behind unix:".into()),
        path if path.contains('\0') => Err("has a zero byte in its path".into()),
        path => fit(path.into()),
    }
}

/// Whether a path can be a socket's: a unix socket's address has room for 108 bytes with the zero behind it.
pub(super) fn fit(path: PathBuf) -> Result<PathBuf, String> {
    if path.as_os_str().len() > 107 {
        return Err("is longer than the 107 bytes that a unix socket's path may have".into());
    }
    Ok(path)
}

/// Whether a file is there. One that cannot be read is, so that it is told and not passed over.
pub(super) fn exists(env: &dyn Env, file: &Path) -> bool {
    !matches!(env.read(file), Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// The admin socket when nothing else is said: `$XDG_RUNTIME_DIR/forebay.sock`, `/run/forebay/forebay.sock` as root, else
/// a directory of the user's own under the temporary directory.
pub(super) fn built_in_admin(env: &dyn Env) -> PathBuf {
    let set = |name| env.var(name).filter(|value| value.starts_with('/'));
    match set("XDG_RUNTIME_DIR") {
        Some(dir) => Path::new(&dir).join("forebay.sock"),
        None if env.is_root() => "/run/forebay/forebay.sock".into(),
        None => {
            let user = env.var("USER").filter(|name| super::check_name(name).is_ok()).unwrap_or_else(|| "user".into());
            PathBuf::from(set("TMPDIR").unwrap_or_else(|| "/tmp".into())).join(format!("forebay-{user}/forebay.sock"))
        }
    }
}

/// The config files that are looked for, first found wins.
pub fn candidates(env: &dyn Env) -> Vec<PathBuf> {
    let set = |name| env.var(name).filter(|value| value.starts_with('/')).map(PathBuf::from);
    let service = set("CONFIGURATION_DIRECTORY").map(|dir| dir.join("config.toml"));
    let user = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let user = user.map(|dir| dir.join("forebay/config.toml"));
    service.into_iter().chain(user).chain([PathBuf::from("/etc/forebay/config.toml")]).collect()
}

/// The admin socket of the default config. A config that is missing or faulty does not stand in the way: the
/// built-in path counts then.
pub fn default_admin(env: &dyn Env) -> PathBuf {
    if let Some(admin) = env.var("FOREBAY_LISTEN_ADMIN").and_then(|text| parse_admin(&text).ok()) {
        return admin;
    }
    let file = candidates(env).into_iter().find(|file| exists(env, file));
    file.and_then(|file| admin_of(&file, env)).unwrap_or_else(|| built_in_admin(env))
}

/// `listen.admin` of a file, whatever else is in it.
fn admin_of(file: &Path, env: &dyn Env) -> Option<PathBuf> {
    let text = Text::new(file, env.read(file).ok()?).ok()?;
    let (tree, _) = text.parse_toml();
    let inside = |node: &Node, key: &str| match &node.value {
        Value::Table(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| entry.node.clone()),
        _ => None,
    };
    let Value::Text(admin) = inside(&inside(&tree?, "listen")?, "admin")?.value else { return None };
    let base = file.parent()?;
    let admin = interpolate::fill(&admin, base, env).ok()?.text;
    parse_admin(&admin).ok().map(|path| base.join(path))
}
