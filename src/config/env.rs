//! What a config takes from outside: environment variables and files. Passed in, so that tests need no
//! process-wide environment.

use std::io::Read as _;
use std::path::Path;

/// Where variables and files come from.
pub trait Env {
    /// A variable. None if it is unset or not UTF-8.
    fn var(&self, name: &str) -> Option<String>;
    /// The variables whose name begins with `FOREBAY_`, in order.
    fn own_vars(&self) -> Vec<(String, String)>;
    /// A file's bytes; at most [`LARGEST_FILE`], more is an error.
    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>>;
    /// Whether the process runs as root.
    fn is_root(&self) -> bool;
}

/// Largest config or secret file that is read.
pub const LARGEST_FILE: u64 = 16 << 20;

/// The process's own environment and the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnv;

impl Env for ProcessEnv {
    fn var(&self, name: &str) -> Option<String> {
        // `std::env::var` panics on such names, and they come from the config.
        if name.is_empty() || name.contains(['=', '\0']) {
            return None;
        }
        std::env::var(name).ok()
    }

    fn own_vars(&self) -> Vec<(String, String)> {
        let mut vars: Vec<_> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with("FOREBAY_"))
            .collect();
        vars.sort();
        vars
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let file = std::fs::File::open(path)?;
        let mut bytes = Vec::new();
        file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST_FILE {
            return Err(std::io::Error::other("larger than 16 MiB"));
        }
        Ok(bytes)
    }

    fn is_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}
