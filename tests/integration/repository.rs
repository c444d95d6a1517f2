//! Checks on the repository itself.

use crate::support::forebay;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file under `folder` with this extension; build output and hidden folders left out.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                files(&path, extension, found);
            }
        } else if path.extension().is_some_and(|is| is == extension) {
            found.push(path);
        }
    }
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let mut sources = Vec::new();
    files(root(), "rs", &mut sources);
    assert!(sources.len() > 50, "{} files were found", sources.len());
    let silent: Vec<_> = sources
        .iter()
        .filter(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            !text.starts_with("//! ") || text.lines().next().unwrap().len() < 12
        })
        .collect();
    assert!(silent.is_empty(), "these files do not open with a `//!` line: {silent:#?}");
}

#[test]
fn relative_links_in_documents_lead_somewhere() {
    let mut documents = Vec::new();
    files(root(), "md", &mut documents);
    assert!(documents.iter().any(|file| file.ends_with("README.md")));
    let mut broken = Vec::new();
    for document in &documents {
        let text = std::fs::read_to_string(document).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split(['#', ' ']).next().unwrap();
            let elsewhere = path.is_empty() || path.contains("://") || path.starts_with("mailto:");
            if !elsewhere && !document.parent().unwrap().join(path).exists() {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The commands that the README promises are the files that exist.
#[test]
fn the_readme_names_the_main_command_and_the_test_command() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains("cargo run --release -- demo"));
    assert!(readme.contains("bash tests/run"));
    assert!(root().join("tests/run").exists());
}

#[test]
fn the_page_of_outcomes_has_every_outcome_once() {
    use forebay::outcome::Outcome;
    let page = std::fs::read_to_string(root().join("docs/outcomes.md")).unwrap();
    let rows: Vec<(String, String)> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cell = |at: usize| line.split('|').nth(at).unwrap().trim().trim_matches('`').to_owned();
            (cell(1), cell(2))
        })
        .collect();
    let known: Vec<(String, String)> =
        (0..Outcome::COUNT).map(Outcome::labels).map(|(name, reason)| (name.to_owned(), reason.to_owned())).collect();
    assert_eq!(rows, known);
}

#[test]
fn the_config_in_the_readme_is_valid() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let config = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("there is one");
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), config).unwrap();
    let ran = forebay(&["check", "--config", file.path().to_str().unwrap()], &[("MYSQL_PASSWORD", "x")]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.stderr, "", "no warnings");
}
