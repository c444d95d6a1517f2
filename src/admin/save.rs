//! Writes limits into the config file that the daemon was started with, and leaves all else in it as it stands.
//!
//! The file is read anew, must be a config without faults before and after the change, and is replaced by a rename,
//! so that nobody ever reads half of it.

use super::fault::Refusal;
use crate::config::{self, Format, ProcessEnv};
use crate::dispatcher::Dispatcher;
use axum::http::StatusCode;
use forebay_wire as wire;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use toml_edit::{DocumentMut, Item, TableLike, Value};

/// Saves what is given of `limits`; the file that was written.
pub(super) async fn save(dispatcher: &Dispatcher, upstream: &str, limits: wire::Limits) -> Result<PathBuf, Refusal> {
    let hint = "write the limit into a config of forebay's own, and start with `serve --config FILE`";
    let Some(origin) = dispatcher.config.load().origin.clone() else {
        return Err(cannot("the daemon was started without a config file", hint));
    };
    let upstream = upstream.to_owned();
    // Files are waited for elsewhere, so that the admin API goes on answering.
    let written = tokio::task::spawn_blocking(move || write(&origin, &upstream, &limits)).await;
    written.unwrap_or_else(|_| Err(cannot("writing the file failed", "see the daemon's log")))
}

fn write(origin: &Path, upstream: &str, limits: &wire::Limits) -> Result<PathBuf, Refusal> {
    let shown = origin.display();
    let failed = |what: &str, fault: std::io::Error| cannot(&format!("{shown} cannot be {what}: {fault}"), "");
    // A link stays a link: what it points to is replaced.
    let file = std::fs::canonicalize(origin).map_err(|fault| failed("found", fault))?;
    let text = std::fs::read_to_string(&file).map_err(|fault| failed("read", fault))?;
    if text.trim_start().starts_with('{') {
        let hint = "write the limit into a config of forebay's own, and start with `serve --config FILE`";
        return Err(cannot(&format!("{shown} is a client's list of servers, which has no limits"), hint));
    }
    check(origin, &text, "has changed since the daemon read it, and is no longer a config")?;
    let edited = edit(&text, upstream, limits).map_err(|why| cannot(&format!("{shown} {why}"), "edit it by hand"))?;
    check(origin, &edited, "would not be a config any more")?;
    replace(&file, &edited).map_err(|fault| failed("written", fault))?;
    Ok(file)
}

fn check(origin: &Path, text: &str, what: &str) -> Result<(), Refusal> {
    match config::parse(origin, text.as_bytes().to_vec(), Format::Toml, &ProcessEnv) {
        Ok(_) => Ok(()),
        Err(faults) => {
            let message = format!("{} {what}: {faults}", origin.display());
            Err(cannot(&message, "`forebay check` shows what is wrong; the limit itself is not changed"))
        }
    }
}

/// The text with the limits in the upstream's table, where they stand already or at its end.
fn edit(text: &str, upstream: &str, limits: &wire::Limits) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|fault| format!("cannot be read as TOML: {fault}"))?;
    let lacks = || format!("has no upstream `{upstream}`");
    let upstreams = document.get_mut("upstreams").and_then(Item::as_table_like_mut).ok_or_else(lacks)?;
    let table = upstreams.get_mut(upstream).and_then(Item::as_table_like_mut).ok_or_else(lacks)?;
    let time = |ms: u64| Value::from(if ms == 0 { "0".to_owned() } else { duration(ms) });
    let wire::Limits { max_concurrent, queue_size, queue_timeout_ms, call_timeout_ms, max_queued, cancel_grace_ms } =
        *limits;
    if let Some(limit) = max_concurrent {
        let alias = "max_concurrent_requests";
        let key = if table.contains_key(alias) { alias } else { "max_concurrent" };
        put(table, key, i64::from(limit).into());
    }
    if let Some(size) = queue_size {
        put(table, "queue_size", i64::from(size).into());
    }
    if let Some(ms) = queue_timeout_ms {
        put(table, "queue_timeout", time(ms));
    }
    if let Some(ms) = call_timeout_ms {
        put(table, "call_timeout", time(ms));
    }
    match max_queued {
        Some(0) => {
            table.remove("max_queued");
        }
        Some(most) => put(table, "max_queued", i64::from(most).into()),
        None => {}
    }
    if let Some(ms) = cancel_grace_ms {
        put(table, "cancel_grace", time(ms));
    }
    Ok(document.to_string())
}

/// Sets a value and keeps what stands around the old one, comments included.
fn put(table: &mut dyn TableLike, key: &str, mut value: Value) {
    match table.get_mut(key) {
        Some(Item::Value(old)) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        Some(other) => *other = Item::Value(value),
        None => {
            table.insert(key, Item::Value(value));
        }
    }
}

fn duration(ms: u64) -> String {
    match ms {
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1000 == 0 => format!("{}s", ms / 1000),
        ms => format!("{ms}ms"),
    }
}

/// Writes beside the file, with its mode, and renames over it.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = (|| {
        let mode = std::fs::metadata(file)?.permissions();
        let mut out = std::fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
        out.set_permissions(mode)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&beside, file)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn cannot(message: &str, hint: &str) -> Refusal {
    Refusal::new(StatusCode::CONFLICT, "cannot_save", message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# ours\n[upstreams.db] # the database\ncommand = \"cat\"\nmax_concurrent = 2 # all that it takes\n\n\
                        [upstreams.web]\nurl = \"http://127.0.0.1:1/\"\n";

    #[test]
    fn a_value_is_changed_and_all_else_stands_as_it_stood() {
        let limits = wire::Limits {
            max_concurrent: Some(3),
            queue_timeout_ms: Some(90_000),
            call_timeout_ms: Some(1500),
            ..Default::default()
        };
        let edited = edit(TEXT, "db", &limits).unwrap();
        assert_eq!(
            edited,
            "# ours\n[upstreams.db] # the database\ncommand = \"cat\"\nmax_concurrent = 3 # all that it takes\n\
             queue_timeout = \"90s\"\ncall_timeout = \"1500ms\"\n\n[upstreams.web]\nurl = \"http://127.0.0.1:1/\"\n"
        );
        assert!(edit(TEXT, "nobody", &limits).is_err());
    }

    #[test]
    fn inline_tables_and_other_names_of_a_key_are_met() {
        let inline = "upstreams.db = { command = \"cat\", max_concurrent_requests = 2 }\n";
        let limits = wire::Limits { max_concurrent: Some(0), max_queued: Some(0), ..Default::default() };
        assert_eq!(
            edit(inline, "db", &limits).unwrap(),
            "upstreams.db = { command = \"cat\", max_concurrent_requests = 0 }\n"
        );
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_broken_one_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("forebay.toml");
        let limits = wire::Limits { queue_size: Some(7), ..Default::default() };
        std::fs::write(&file, TEXT).unwrap();
        let written = write(&file, "db", &limits).unwrap();
        assert!(std::fs::read_to_string(&written).unwrap().contains("queue_size = 7"));
        for broken in ["[upstreams.db]\ncommand = 3\n", "{\"mcpServers\": {}}", "nonsense"] {
            std::fs::write(&file, broken).unwrap();
            let (status, fault) = write(&file, "db", &limits).unwrap_err().into_fault();
            assert_eq!((status.as_u16(), &*fault.code), (409, "cannot_save"));
            assert_eq!(std::fs::read_to_string(&file).unwrap(), broken);
        }
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
