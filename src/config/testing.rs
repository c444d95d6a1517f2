//! An environment for tests.

use super::Env;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    pub(crate) vars: BTreeMap<String, String>,
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(crate) root: bool,
}

impl Fake {
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.into(), value.into());
        self
    }

    pub(crate) fn with_file(mut self, path: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.files.insert(path.into(), bytes.as_ref().to_vec());
        self
    }
}

impl Env for Fake {
    fn var(&self, name: &str) -> Option<String> {
        self.vars.get(name).cloned()
    }

    fn own_vars(&self) -> Vec<(String, String)> {
        self.vars.iter().filter(|(name, _)| name.starts_with("FOREBAY_")).map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    fn is_root(&self) -> bool {
        self.root
    }
}
