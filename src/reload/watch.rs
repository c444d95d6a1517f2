//! Notices when a file that the config was made from is another one than before.
//!
//! Directories are watched, not files: editors write a new file and rename it, and a mounted config is changed by the
//! swap of a link somewhere on the way to it. What the events say is not trusted; they only make this look, and what
//! counts is whether a file is another one, or has changed, since the last look.

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _, event::AccessKind, event::AccessMode};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// A file that is being written is read once this long nothing more was written...
const QUIET: Duration = Duration::from_millis(100);
/// ...or at the latest after this.
const LATEST: Duration = Duration::from_secs(1);
/// Links that are followed on the way to a file.
const MOST_LINKS: usize = 40;

/// See the module's documentation.
pub(super) struct Watch {
    /// None where the system watches nothing (its bound on watches is met).
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// One permit is kept, whatever number of events there was.
    touched: Arc<Notify>,
    files: Vec<PathBuf>,
    seen: Vec<Option<Look>>,
}

/// A file as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Watch {
    pub(super) fn new(files: Vec<PathBuf>) -> Self {
        let touched = Arc::new(Notify::new());
        let told = touched.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading is no change, and we read ourselves.
            let reading = event.is_ok_and(|event| match event.kind {
                EventKind::Access(kind) => kind != AccessKind::Close(AccessMode::Write),
                _ => false,
            });
            if !reading {
                told.notify_one();
            }
        });
        if let Err(fault) = &watcher {
            tracing::warn!(%fault, "changes of the config are not noticed: send SIGHUP, or use `forebay reload`");
        }
        let mut watch =
            Watch { watcher: watcher.ok(), watched: BTreeSet::new(), touched, files: Vec::new(), seen: Vec::new() };
        watch.follow(files);
        watch.look();
        watch
    }

    pub(super) fn works(&self) -> bool {
        self.watcher.is_some() && !self.watched.is_empty()
    }

    /// From now on these files count.
    pub(super) fn follow(&mut self, files: Vec<PathBuf>) {
        if files != self.files {
            let known = |file: &PathBuf| self.files.iter().position(|other| other == file).and_then(|at| self.seen[at]);
            self.seen = files.iter().map(|file| known(file).or_else(|| look(file))).collect();
            self.files = files;
        }
        let mut wanted = BTreeSet::new();
        for file in &self.files {
            directories(file, &mut wanted);
        }
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.watched.difference(&wanted) {
            let _ = watcher.unwatch(gone);
        }
        // Those that are watched already too: a directory that was replaced is another one of the same name.
        self.watched = wanted
            .into_iter()
            .filter(|directory| match watcher.watch(directory, RecursiveMode::NonRecursive) {
                Ok(()) => true,
                Err(fault) => {
                    let directory = directory.display();
                    tracing::warn!(%directory, %fault, "changes of files in this directory are not noticed");
                    false
                }
            })
            .collect();
    }

    /// Looks at all files; whether one is another one than before.
    pub(super) fn look(&mut self) -> bool {
        let now: Vec<_> = self.files.iter().map(|file| look(file)).collect();
        let differs = now != self.seen;
        self.seen = now;
        differs
    }

    /// Waits until a file has changed, and until its writer seems to be done.
    pub(super) async fn changed(&mut self) {
        loop {
            self.touched.notified().await;
            let latest = Instant::now() + LATEST;
            while Instant::now() < latest && timeout(QUIET, self.touched.notified()).await.is_ok() {}
            let files = self.files.clone();
            let now = tokio::task::spawn_blocking(move || files.iter().map(|file| look(file)).collect::<Vec<_>>());
            if now.await.is_ok_and(|now| now != self.seen) {
                return;
            }
            // A link on the way may lead elsewhere, to a file that is the same for now.
            self.follow(self.files.clone());
        }
    }
}

fn look(file: &Path) -> Option<Look> {
    let found = std::fs::metadata(file).ok()?;
    Some(Look {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// The directories in which a change can make this path lead to another file: that of the file, and that of each link
/// on the way.
fn directories(file: &Path, into: &mut BTreeSet<PathBuf>) {
    let Ok(mut rest) = std::path::absolute(file) else { return };
    for _ in 0..MOST_LINKS {
        match first_link(&rest) {
            Some((directory, leads_to)) => {
                into.insert(directory);
                rest = leads_to;
            }
            None => break,
        }
    }
    // Where the directory itself is missing, the nearest one that is there will see it come.
    if let Some(directory) = rest.ancestors().skip(1).find(|directory| directory.is_dir()) {
        into.insert(directory.into());
    }
}

/// The directory of the first link in a path, and the path with that link followed.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut walked = PathBuf::new();
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        if part == Component::ParentDir {
            walked.pop();
            continue;
        }
        let directory = walked.clone();
        walked.push(part);
        if let Ok(target) = std::fs::read_link(&walked) {
            return Some((directory.clone(), directory.join(target).join(parts.as_path())));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const PATIENCE: Duration = Duration::from_secs(20);

    async fn noticed(watch: &mut Watch) {
        timeout(PATIENCE, watch.changed()).await.expect("the change is noticed");
    }

    #[tokio::test]
    async fn c37_a_change_is_noticed_however_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("forebay.toml");
        fs::write(&file, "a").unwrap();
        let mut watch = Watch::new(vec![file.clone()]);
        assert!(watch.works());
        // In place.
        fs::write(&file, "bb").unwrap();
        noticed(&mut watch).await;
        assert!(watch.look());
        // By rename, as editors do.
        fs::write(folder.path().join(".new"), "cc").unwrap();
        fs::rename(folder.path().join(".new"), &file).unwrap();
        noticed(&mut watch).await;
        assert!(watch.look());
        // Taken away, and there again.
        fs::remove_file(&file).unwrap();
        noticed(&mut watch).await;
        assert!(watch.look());
        fs::write(&file, "cc").unwrap();
        noticed(&mut watch).await;
        assert!(watch.look());
        assert!(!watch.look(), "seen");
    }

    #[tokio::test]
    async fn c37_the_swap_of_a_link_on_the_way_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("forebay.toml"), version).unwrap();
        }
        // As a mounted config map has it: file -> ..data/file, ..data -> v1.
        symlink("v1", at("..data")).unwrap();
        symlink("..data/forebay.toml", at("forebay.toml")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link.toml");
        symlink(at("forebay.toml"), &link).unwrap();
        let mut watch = Watch::new(vec![link]);
        symlink("v2", at("..new")).unwrap();
        fs::rename(at("..new"), at("..data")).unwrap();
        noticed(&mut watch).await;
        assert!(watch.look());
    }

    #[tokio::test]
    async fn what_happens_to_other_files_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("forebay.toml");
        fs::write(&file, "a").unwrap();
        let mut watch = Watch::new(vec![file.clone()]);
        for other in 0..20 {
            fs::write(folder.path().join(other.to_string()), "x").unwrap();
            fs::read(&file).unwrap();
        }
        fs::write(folder.path().join("last"), "x").unwrap();
        assert!(timeout(3 * QUIET, watch.changed()).await.is_err());
    }
}
