//! How the commands reach the daemon, and what its refusals mean for their exit codes.

use super::{CliError, Exit, Global};
use forebay_tui::client::{Client, ClientError};
use std::io::ErrorKind;

/// The client of the daemon that this command talks to.
pub(super) fn client(global: &Global) -> Result<Client, CliError> {
    Ok(Client::new(global.admin_socket()?))
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
            ClientError::Refused { status, fault, .. } => {
                let code = match (status.as_u16(), &*fault.code) {
                    (404, _) | (_, "bad_id") => Exit::NotFound,
                    (400 | 405, _) => Exit::Usage,
                    (401 | 403, _) => Exit::NotAllowed,
                    _ => Exit::Failed,
                };
                let error = CliError::new(code, super::out::clean(&message));
                match fault.hint {
                    Some(hint) => error.hint(super::out::clean(&hint)),
                    None => error,
                }
            }
            ClientError::Malformed(_) => CliError::failed(super::out::clean(&message))
                .hint("does something else listen on that socket, or a daemon of another version?"),
        }
    }
}
