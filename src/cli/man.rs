//! `forebay man`: the manual pages, made from the same tree of commands as `--help`.

use super::{CliError, Global, out};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write one page a command into this directory [default: the main page, on standard output]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let failed = |fault: std::io::Error| CliError::failed(format!("cannot make the manual: {fault}"));
    let Some(dir) = args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(super::command()).render(&mut page).map_err(failed)?;
        return out::print(&String::from_utf8_lossy(&page));
    };
    let shown = out::clean(&dir.display().to_string()).into_owned();
    std::fs::create_dir_all(&dir)
        .and_then(|()| clap_mangen::generate_to(super::command(), &dir))
        .map_err(|fault| CliError::failed(format!("cannot write the manual into {shown}: {fault}")))?;
    out::note(&format!("the pages are in {shown}"), global);
    Ok(())
}
