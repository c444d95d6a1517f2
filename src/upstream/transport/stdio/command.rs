//! How a child is started: its command resolved to an absolute path, the environment it is given, its own
//! process group. `docs/design/stdio.md` states both lists.

use crate::config::StdioTarget;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Variables of the daemon that children are given; none of its others are. Beside them every `LC_*`.
pub(super) const BASE: [&str; 11] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "XDG_RUNTIME_DIR"];

/// Used when the daemon itself has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error("command `{command}` not found (ENOENT); looked in {looked}")]
    NotFound { command: String, looked: String },
    #[error("command `{command}` cannot be run: {} is not executable (EACCES)", path.display())]
    NotExecutable { command: String, path: PathBuf },
    #[error("command `{command}` cannot be run: working directory {}: {source}", path.display())]
    WorkingDirectory { command: String, path: PathBuf, source: io::Error },
    #[error("command `{command}` cannot be run: {} exists, but its interpreter does not (ENOENT)", path.display())]
    Interpreter { command: String, path: PathBuf },
    #[error("command `{command}` cannot be run as {}: {source}", path.display())]
    Spawn { command: String, path: PathBuf, source: io::Error },
    #[error("the task that starts the child failed")]
    Task,
    #[error("the upstream is not a command")]
    NotStdio,
}

impl SpawnError {
    /// The class of it, which tells callers nothing of the machine.
    pub(super) fn brief(&self) -> &'static str {
        match self {
            SpawnError::NotFound { .. } => "the server's command was not found",
            SpawnError::NotExecutable { .. } => "the server's command is not executable",
            SpawnError::WorkingDirectory { .. } => "the server's working directory cannot be used",
            SpawnError::Interpreter { .. } => "the interpreter of the server's command was not found",
            SpawnError::Spawn { .. } | SpawnError::Task => "the server's command could not be started",
            SpawnError::NotStdio => "the server is not a command",
        }
    }

    /// Whether trying again soon cannot help: somebody has to install or mend something.
    pub(super) fn is_final(&self) -> bool {
        match self {
            SpawnError::NotFound { .. }
            | SpawnError::NotExecutable { .. }
            | SpawnError::WorkingDirectory { .. }
            | SpawnError::Interpreter { .. }
            | SpawnError::NotStdio => true,
            SpawnError::Spawn { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            SpawnError::Task => false,
        }
    }
}

/// Starts the child. Looks at files and forks, so it must not be called on a thread that serves sockets.
pub(super) fn spawn(
    target: &StdioTarget,
    daemon: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Box<dyn ChildWrapper>, SpawnError> {
    let env = environment(target, daemon);
    let command = &target.command;
    if let Some(path) = &target.cwd {
        let broken = |source| SpawnError::WorkingDirectory { command: command.clone(), path: path.clone(), source };
        let found = std::fs::metadata(path).map_err(broken)?;
        if !found.is_dir() {
            return Err(broken(io::ErrorKind::NotADirectory.into()));
        }
    }
    let search = env.get(&OsString::from("PATH")).cloned().unwrap_or_default();
    let path = resolve(command, target.cwd.as_deref(), &search)?;
    let mut wrapped = CommandWrap::with_new(&path, |child| {
        child.args(target.args.iter().map(|arg| arg.expose()));
        child.env_clear().envs(&env);
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(cwd) = &target.cwd {
            child.current_dir(cwd);
        }
    });
    wrapped.wrap(ProcessGroup::leader()).wrap(KillOnDrop);
    wrapped.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => SpawnError::Interpreter { command: command.clone(), path },
        _ => SpawnError::Spawn { command: command.clone(), path, source },
    })
}

/// Where a command would be found, without starting it; the error is for people.
///
/// # Errors
/// It is not there, or cannot be run.
pub(crate) fn locate(target: &StdioTarget) -> Result<PathBuf, String> {
    let env = environment(target, std::env::vars_os());
    let search = env.get(&OsString::from("PATH")).cloned().unwrap_or_default();
    resolve(&target.command, target.cwd.as_deref(), &search).map_err(|fault| fault.to_string())
}

/// The base taken from the daemon's variables, the configured ones laid over it.
fn environment(
    target: &StdioTarget,
    daemon: impl Iterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    let in_base = |key: &OsString| key.to_str().is_some_and(|key| BASE.contains(&key) || key.starts_with("LC_"));
    let mut env: BTreeMap<_, _> = daemon.filter(|(key, _)| in_base(key)).collect();
    env.entry("PATH".into()).or_insert_with(|| DEFAULT_PATH.into());
    env.extend(target.env.iter().map(|(key, value)| (key.into(), value.expose().into())));
    env
}

/// The absolute path of a command: one with a slash is taken from the child's working directory, another is
/// looked for in the child's `PATH`.
fn resolve(command: &str, cwd: Option<&Path>, search: &OsString) -> Result<PathBuf, SpawnError> {
    let from = |path: &Path| {
        let path = cwd.map_or_else(|| path.to_path_buf(), |cwd| cwd.join(path));
        std::path::absolute(&path).unwrap_or(path)
    };
    let candidates: Vec<PathBuf> = if command.contains('/') {
        vec![from(Path::new(command))]
    } else {
        std::env::split_paths(search)
            .filter(|folder| !folder.as_os_str().is_empty())
            .map(|folder| from(&folder).join(command))
            .collect()
    };
    let mut seen = None;
    for path in &candidates {
        let Ok(found) = std::fs::metadata(path) else { continue };
        if found.is_file() && found.permissions().mode() & 0o111 != 0 {
            return Ok(path.clone());
        }
        seen.get_or_insert(path);
    }
    let command = command.to_owned();
    match seen {
        Some(path) => Err(SpawnError::NotExecutable { command, path: path.clone() }),
        None if command.contains('/') => {
            Err(SpawnError::NotFound { command, looked: candidates[0].display().to_string() })
        }
        None => Err(SpawnError::NotFound { command, looked: format!("PATH={}", search.display()) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn target(command: &str, cwd: Option<&Path>, env: &[(&str, &str)]) -> StdioTarget {
        StdioTarget {
            command: command.into(),
            args: Vec::new(),
            env: env.iter().map(|(key, value)| ((*key).to_owned(), Secret::new(*value))).collect(),
            cwd: cwd.map(Path::to_path_buf),
            processes: 1,
        }
    }

    fn daemon() -> std::vec::IntoIter<(OsString, OsString)> {
        let all = [("PATH", "/usr/bin:/bin"), ("HOME", "/home/x"), ("LC_ALL", "C"), ("FOREBAY_TOKEN", "secret")];
        all.map(|(key, value)| (key.into(), value.into())).to_vec().into_iter()
    }

    #[test]
    fn c15_env_is_laid_over_a_base_without_the_daemons_secrets() {
        let env = environment(&target("x", None, &[("X", "1"), ("HOME", "/elsewhere")]), daemon());
        let pairs: Vec<_> = env.iter().map(|(key, value)| (key.to_str().unwrap(), value.to_str().unwrap())).collect();
        assert_eq!(pairs, [("HOME", "/elsewhere"), ("LC_ALL", "C"), ("PATH", "/usr/bin:/bin"), ("X", "1")]);
        let bare = environment(&target("x", None, &[]), Vec::new().into_iter());
        assert_eq!(bare.get(&OsString::from("PATH")), Some(&OsString::from(DEFAULT_PATH)));
    }

    #[test]
    fn c15_a_missing_command_names_itself_and_where_it_was_looked_for() {
        let fault = spawn(&target("no-such-command", None, &[]), daemon()).unwrap_err();
        assert!(fault.is_final());
        assert_eq!(fault.to_string(), "command `no-such-command` not found (ENOENT); looked in PATH=/usr/bin:/bin");
        let folder = tempfile::tempdir().unwrap();
        let fault = spawn(&target("./server", Some(folder.path()), &[]), daemon()).unwrap_err();
        assert!(fault.to_string().contains(&folder.path().join("server").display().to_string()), "{fault}");
        std::fs::write(folder.path().join("server"), "x").unwrap();
        let fault = spawn(&target("./server", Some(folder.path()), &[]), daemon()).unwrap_err();
        assert!(fault.is_final() && fault.to_string().contains("EACCES"), "{fault}");
        let fault = spawn(&target("sh", Some(&folder.path().join("gone")), &[]), daemon()).unwrap_err();
        assert!(fault.is_final() && fault.to_string().contains("working directory"), "{fault}");
    }

    #[test]
    fn c15_a_relative_command_is_taken_from_the_childs_directory() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("server");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(resolve("./server", Some(folder.path()), &OsString::new()).unwrap(), folder.path().join("server"));
        let search = OsString::from(format!("/nonexistent:{}", folder.path().display()));
        assert_eq!(resolve("server", None, &search).unwrap(), script);
        assert!(resolve("sh", None, &"/bin".into()).unwrap().is_absolute());
    }
}
