//! `forebay config`: the settings in force, each with where it comes from, and the schema of a config file.

use super::out::{self, Paint, Table, clean};
use super::{CliError, ConfigArgs, Global, check};
use crate::config::{self, Origin, Place, ProcessEnv, Setting};
use serde::Serialize;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Every setting in force, and its origin: file and line, variable, or default
    Show {
        #[command(flatten)]
        config: ConfigArgs,
        /// Leave out what is built in
        #[arg(long)]
        set: bool,
    },
    /// The JSON Schema of a config file, for editors
    Schema,
}

#[derive(Serialize)]
struct Told<'a> {
    key: &'a str,
    value: &'a str,
    /// `file`, `variable` or `default`.
    origin: &'static str,
    file: Option<String>,
    line: Option<usize>,
    variable: Option<&'a str>,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    match args.action {
        Action::Schema => {
            let text = serde_json::to_string_pretty(&config::json_schema())
                .map_err(|fault| CliError::failed(format!("cannot write as JSON: {fault}")))?;
            out::line(&text)
        }
        Action::Show { config, set } => {
            let (loaded, mut settings, warnings) =
                config::settings(&config.source(), &ProcessEnv).map_err(|faults| check::refused(&faults, global))?;
            check::tell_warnings(&warnings, global);
            settings.retain(|setting| !set || setting.origin != Origin::Default);
            if global.json() {
                return out::json(&settings.iter().map(told).collect::<Vec<_>>());
            }
            let file = loaded.origin.map(|file| file.display().to_string()).unwrap_or_default();
            out::note(&format!("the config is {}", clean(&file)), global);
            out::print(&table(&settings).render(global.color_on_stdout()))
        }
    }
}

fn told(setting: &Setting) -> Told<'_> {
    let (origin, file, line, variable) = match &setting.origin {
        Origin::Default => ("default", None, None, None),
        Origin::At(place @ Place::Variable(name)) => ("variable", place.parts().0, None, Some(name.as_str())),
        Origin::At(place) => ("file", place.parts().0, place.parts().1, None),
    };
    let file = file.map(|file| file.display().to_string());
    Told { key: &setting.key, value: &setting.value, origin, file, line, variable }
}

fn table(settings: &[Setting]) -> Table {
    let mut table = Table::new(&["KEY", "VALUE", "FROM"]);
    for setting in settings {
        let told = told(setting);
        let from = match (told.variable, told.file, told.line) {
            (Some(name), _, _) => name.to_owned(),
            (None, Some(file), Some(line)) => format!("{file}:{line}"),
            (None, Some(file), None) => file,
            (None, None, _) => "default".into(),
        };
        let tone = (setting.origin == Origin::Default).then_some(Paint::Dim);
        table.painted_row([(setting.key.clone(), None), (setting.value.clone(), tone), (from, tone)]);
    }
    table
}
