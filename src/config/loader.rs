//! Reads the same config again and again, and knows which files it was made from.

use super::{Config, Env, Faults, Source, Warning, load};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the daemon's config comes from, at its start and at each reload.
#[derive(Clone)]
pub struct Loader {
    source: Source,
    /// Stands over the config's own admin socket (`--admin`).
    admin: Option<PathBuf>,
    env: Arc<dyn Env + Send + Sync>,
}

/// What one reading has given.
pub struct Loaded {
    pub config: Result<(Config, Vec<Warning>), Faults>,
    /// Every file that was asked for, whether it could be read or not.
    pub files: Vec<PathBuf>,
}

impl Loader {
    pub fn new(source: Source, admin: Option<PathBuf>, env: Arc<dyn Env + Send + Sync>) -> Self {
        Loader { source, admin, env }
    }

    /// Reads and checks the config anew.
    pub fn load(&self) -> Loaded {
        let env = Recording { env: &*self.env, files: RefCell::default() };
        let config = load(&self.source, &env).map(|(mut config, warnings)| {
            if let Some(admin) = &self.admin {
                config.listen.admin.clone_from(admin);
            }
            (config, warnings)
        });
        Loaded { config, files: env.files.into_inner() }
    }

    /// From now on this file alone counts: one that was found must not be passed over for another one when it is
    /// taken away.
    pub fn pin(&mut self, file: &Path) {
        if self.source == Source::Discover {
            self.source = Source::File(file.into());
        }
    }
}

/// Notes which files are asked for.
struct Recording<'a> {
    env: &'a dyn Env,
    files: RefCell<Vec<PathBuf>>,
}

impl Env for Recording<'_> {
    fn var(&self, name: &str) -> Option<String> {
        self.env.var(name)
    }

    fn own_vars(&self) -> Vec<(String, String)> {
        self.env.own_vars()
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        let mut files = self.files.borrow_mut();
        if !files.iter().any(|file| file == path) {
            files.push(path.into());
        }
        drop(files);
        self.env.read(path)
    }

    fn is_root(&self) -> bool {
        self.env.is_root()
    }
}
