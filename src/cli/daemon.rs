//! How the commands reach the daemon, and what its refusals mean for their exit codes.

use super::{CliError, Exit, Global, out};
use bytes::Bytes;
use forebay_tui::client::{Client, ClientError, escaped, read};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::io::ErrorKind;

/// The client of the daemon that this command talks to.
pub(super) fn client(global: &Global) -> Result<Client, CliError> {
    Ok(Client::new(global.admin_socket()?).acting_as("cli"))
}

/// A body to be sent.
pub(super) fn body(value: &impl Serialize) -> Result<Bytes, CliError> {
    let body = serde_json::to_vec(value);
    body.map(Bytes::from).map_err(|fault| CliError::failed(format!("cannot write as JSON: {fault}")))
}

/// All entries of a listing, over all of its pages. `path` has a query; `member` is where the entries stand.
pub(super) async fn pages(
    client: &Client,
    path: &str,
    member: &str,
    global: &Global,
) -> Result<Vec<Box<RawValue>>, CliError> {
    let (mut entries, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let part = cursor.as_ref().map_or(String::new(), |cursor| format!("&cursor={}", escaped(cursor)));
        // Kept as they came, so that what a newer daemon adds is printed too.
        let page: HashMap<String, Box<RawValue>> = read(&client.get(&format!("{path}{part}")).await?)?;
        let of = |key: &str| page.get(key).map(|value| value.get().as_bytes());
        entries.extend(of(member).map(read::<Vec<Box<RawValue>>>).transpose()?.unwrap_or_default());
        for upstream in of("missing").map(read::<Vec<String>>).transpose()?.unwrap_or_default() {
            out::note(
                &format!("upstream {} does not answer: its calls are missing here", out::clean(&upstream)),
                global,
            );
        }
        let next = of("next").map(read::<Option<String>>).transpose()?.flatten();
        match next {
            // A cursor that does not move would never end.
            Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
            _ => return Ok(entries),
        }
    }
}

/// One entry a line, so that the output can be read and cut by lines; still one JSON array.
pub(super) fn array(entries: &[Box<RawValue>]) -> String {
    let mut text = String::from("[");
    for (at, entry) in entries.iter().enumerate() {
        text.push_str(if at == 0 { "" } else { ",\n" });
        text.push_str(entry.get());
    }
    text.push_str("]\n");
    text
}

/// Whether the connection ended before the answer did, by the words that the HTTP client has for it.
fn broke_off(why: &str) -> bool {
    ["closed", "reading a body", "reset", "incomplete"].iter().any(|words| why.contains(words))
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::Unreachable { source, .. } => match source.kind() {
                ErrorKind::PermissionDenied => CliError::new(Exit::NotAllowed, format!("{message}: {source}"))
                    .hint("the socket belongs to the daemon's user: run this as that user"),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => CliError::new(Exit::Unreachable, message)
                    .hint("start one with `forebay serve`, or name its socket with --admin unix:PATH"),
                _ => CliError::new(Exit::Unreachable, format!("{message}: {source}"))
                    .hint("name the daemon's socket with --admin unix:PATH"),
            },
            ClientError::Silent { .. } => {
                CliError::new(Exit::Unreachable, message).hint("it may be stopped or overloaded: look at its log")
            }
            ClientError::Refused { fault, .. } if fault.code == "unknown_route" || fault.code == "wrong_method" => {
                CliError::failed("the daemon cannot do this: it is older than this command, or something else")
                    .hint("see its version in `forebay status`, and restart it as this version")
            }
            ClientError::Refused { status, fault, .. } => {
                let code = match (status.as_u16(), &*fault.code) {
                    (404, _) | (_, "bad_id") => Exit::NotFound,
                    (400 | 405, _) => Exit::Usage,
                    (401 | 403, _) => Exit::NotAllowed,
                    _ => Exit::Failed,
                };
                let error = CliError::new(code, out::clean(&message));
                match fault.hint {
                    Some(hint) => error.hint(out::clean(&hint)),
                    None => error,
                }
            }
            ClientError::Malformed(why) if broke_off(&why) => {
                CliError::new(Exit::Unreachable, "the daemon went away before it had answered")
                    .hint("see its log, and whether it runs: forebay status")
            }
            ClientError::Malformed(_) => CliError::failed(out::clean(&message))
                .hint("does something else listen on that socket, or a daemon of another version?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_has_one_entry_a_line() {
        let raw = |text: &str| RawValue::from_string(text.into()).unwrap();
        assert_eq!(array(&[]), "[]\n");
        assert_eq!(array(&[raw(r#"{"a":1}"#), raw(r#"{"b":2}"#)]), "[{\"a\":1},\n{\"b\":2}]\n");
    }
}
