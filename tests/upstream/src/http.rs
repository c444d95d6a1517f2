//! The Streamable HTTP face.

use crate::tools::{self, Server};
use std::process::ExitCode;
use std::sync::Arc;

pub(crate) async fn serve(_server: Arc<Server>, _address: &str) -> ExitCode {
    tools::complain("the HTTP face is not there yet\n");
    ExitCode::from(2)
}
