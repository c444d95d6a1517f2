//! What is wrong with a config, where it stands, and how it is mended.
//!
//! Values are never quoted in full: they may be secrets, or a secret typed in the wrong place.

use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where something of the config stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Line and column are counted from 1, columns in characters.
    File {
        file: PathBuf,
        line: usize,
        column: usize,
    },
    /// The whole of a file, such as one that cannot be read.
    WholeFile(PathBuf),
    /// An environment variable that stands over the file.
    Variable(String),
    Nowhere,
}

impl Place {
    /// File, line and column; none where there are none.
    pub fn parts(&self) -> (Option<&Path>, Option<usize>, Option<usize>) {
        match self {
            Place::File { file, line, column } => (Some(file), Some(*line), Some(*column)),
            Place::WholeFile(file) => (Some(file), None, None),
            Place::Variable(_) | Place::Nowhere => (None, None, None),
        }
    }

    fn order(&self) -> (u8, usize, usize, &str) {
        match self {
            Place::Nowhere => (0, 0, 0, ""),
            Place::WholeFile(_) => (1, 0, 0, ""),
            Place::File { line, column, .. } => (2, *line, *column, ""),
            Place::Variable(name) => (3, 0, 0, name),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { file, line, column } => write!(f, "{}:{line}:{column}", file.display()),
            Place::WholeFile(file) => write!(f, "{}", file.display()),
            Place::Variable(name) => write!(f, "environment variable {name}"),
            Place::Nowhere => f.write_str("config"),
        }
    }
}

/// One fault or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub place: Place,
    /// The key's path, such as `upstreams.mysql.queue_size`; empty when it is about the whole.
    pub key: String,
    /// A fragment that reads well behind the key.
    pub message: String,
    /// The mend.
    pub hint: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "`{}` ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Something that works but is likely not meant.
pub type Warning = Finding;

/// Everything that is wrong with a config, sorted by place. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The config it is about; none if none was found.
    pub origin: Option<PathBuf>,
    all: Vec<Finding>,
}

impl Faults {
    pub(super) fn new(origin: Option<PathBuf>, mut all: Vec<Finding>) -> Self {
        sort(&mut all);
        Faults { origin, all }
    }

    /// One alone that is about the whole of a file.
    pub(crate) fn one(origin: Option<PathBuf>, key: &str, message: &str, hint: &str) -> Self {
        let place = origin.clone().map_or(Place::Nowhere, Place::WholeFile);
        let (key, message) = (key.into(), message.into());
        Faults { origin, all: vec![Finding { place, key, message, hint: Some(hint.into()) }] }
    }

    /// All of them, by place.
    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.all.iter()
    }

    #[expect(clippy::len_without_is_empty, reason = "faults are never empty")]
    pub fn len(&self) -> usize {
        self.all.len()
    }
}

impl<'a> IntoIterator for &'a Faults {
    type Item = &'a Finding;
    type IntoIter = std::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.all.iter().enumerate() {
            let gap = if at == 0 { "" } else { "\n" };
            write!(f, "{gap}{fault}")?;
            if let Some(hint) = &fault.hint {
                write!(f, " (hint: {hint})")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Puts findings in the order in which a reader meets them.
pub(super) fn sort(all: &mut [Finding]) {
    all.sort_by(|one, other| match one.place.order().cmp(&other.place.order()) {
        Ordering::Equal => one.key.cmp(&other.key),
        unequal => unequal,
    });
}

/// The known word that was most likely meant.
pub(super) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words would cost time and resemble nothing.
    if word.len() > 64 {
        return None;
    }
    let word = word.to_ascii_lowercase().replace('-', "_");
    let near = known.into_iter().map(|known| (distance(&word, &known.to_ascii_lowercase().replace('-', "_")), known));
    let (distance, nearest) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= (nearest.chars().count() / 3).clamp(1, 3)).then_some(nearest)
}

/// Edits between two words, a swap of neighbours counting as one.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for i in 0..=one.len() {
        for j in 0..=other.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let same = usize::from(one[i - 1] != other[j - 1]);
                let mut least = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + same);
                if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_and_a_stranger_is_not() {
        let known = ["max_concurrent", "queue_size", "queue_timeout", "url", "env"];
        assert_eq!(did_you_mean("max_concurent", known), Some("max_concurrent"));
        assert_eq!(did_you_mean("max-concurrent", known), Some("max_concurrent"));
        assert_eq!(did_you_mean("queue_szie", known), Some("queue_size"));
        assert_eq!(did_you_mean("ulr", known), Some("url"));
        assert_eq!(did_you_mean("workers", known), None);
        assert_eq!(did_you_mean("", known), None);
        assert_eq!(did_you_mean(&"x".repeat(1000), known), None);
    }
}
