//! `${VAR}` and its kin in string values: put in once, after parsing, never again in what was put in.

use super::Env;
use std::path::Path;

/// A string value after interpolation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filled {
    pub text: String,
    /// Something was put in from outside, so it must not be shown.
    pub secret: bool,
}

/// What is wrong with a string value: a fragment, and a hint.
pub(super) type Wrong = (String, String);

/// Fills in `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${file:PATH}` and `${cred:NAME}`; `$${` stands for `${`.
pub(super) fn fill(text: &str, base: &Path, env: &dyn Env) -> Result<Filled, Wrong> {
    let mut filled = String::with_capacity(text.len());
    let mut secret = false;
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, behind) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = &behind[2..];
            continue;
        }
        filled.push_str(before);
        let Some(end) = behind.find('}') else {
            return Err(("has `${` without `}`".into(), "close it, or write $${ for a plain ${".into()));
        };
        filled.push_str(&one(&behind[2..end], base, env)?);
        secret = true;
        rest = &behind[end + 1..];
    }
    filled.push_str(rest);
    Ok(Filled { text: filled, secret })
}

fn one(inside: &str, base: &Path, env: &dyn Env) -> Result<String, Wrong> {
    if let Some(path) = inside.strip_prefix("file:") {
        return read(path, base, env);
    }
    if let Some(name) = inside.strip_prefix("cred:") {
        return credential(name, env);
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let name = name.strip_prefix("env:").unwrap_or(name);
    if let Some((form, _)) = name.split_once(':') {
        let form: String = form.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        let hint = "use ${VAR}, ${VAR:-default}, ${env:VAR}, ${file:PATH} or ${cred:NAME}, or $${ for a plain ${";
        return Err((format!("has ${{{form}:...}}, which forebay cannot fill in"), hint.into()));
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.len() > 128 || !name.chars().all(fine) || name.starts_with(|c: char| c.is_ascii_digit())
    {
        let hint = "a variable has letters, digits and _ in its name; write $${ for a plain ${";
        return Err(("has `${...}` around something that is no variable's name".into(), hint.into()));
    }
    if name == "workspaceFolder" {
        let hint = "it is an editor's, and a daemon has no workspace: write the path, or leave the server out";
        return Err(("has ${workspaceFolder}, which forebay cannot fill in".into(), hint.into()));
    }
    match (env.var(name).filter(|value| default.is_none() || !value.is_empty()), default) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.into()),
        (None, None) => Err((
            format!("needs the environment variable {name}, which is not set"),
            format!("set it for forebay, or give a default: ${{{name}:-...}}"),
        )),
    }
}

/// A credential that systemd keeps for this service.
fn credential(name: &str, env: &dyn Env) -> Result<String, Wrong> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fine) {
        return Err(("has ${cred:} without the name of a credential".into(), "write ${cred:mysql}".into()));
    }
    let Some(directory) = env.var("CREDENTIALS_DIRECTORY").filter(|directory| directory.starts_with('/')) else {
        let message = format!("needs the credential {name}, but forebay runs without systemd's credentials");
        let hint = format!("add LoadCredential={name}:/path/to/it to the unit, or use ${{file:PATH}}");
        return Err((message, hint));
    };
    let hint = || format!("add LoadCredential={name}:/path/to/it to the unit, with a text of at most 16 MiB");
    let bytes = env
        .read(&Path::new(&directory).join(name))
        .map_err(|error| (format!("needs the credential {name}: {error}"), hint()))?;
    let text =
        String::from_utf8(bytes).map_err(|_| (format!("needs the credential {name}, which is not UTF-8"), hint()))?;
    Ok(without_line_end(&text).to_owned())
}

fn read(path: &str, base: &Path, env: &dyn Env) -> Result<String, Wrong> {
    let full = match (path.strip_prefix("~/"), env.var("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => base.join(path),
    };
    let shown = full.display();
    let hint = || "the file must be there, readable for forebay, UTF-8 and no larger than 16 MiB".to_owned();
    if path.is_empty() || path.contains('\0') {
        return Err(("has ${file:} without a path".into(), "write ${file:/run/secrets/name}".into()));
    }
    let bytes = env.read(&full).map_err(|error| (format!("needs the file {shown}: {error}"), hint()))?;
    let text = String::from_utf8(bytes).map_err(|_| (format!("needs the file {shown}, which is not UTF-8"), hint()))?;
    Ok(without_line_end(&text).to_owned())
}

/// Editors end a file with a newline that is no part of the secret.
fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::Fake;

    fn filled(text: &str) -> Result<String, String> {
        let env = Fake::default()
            .with("TOKEN", "s3cr3t")
            .with("EMPTY", "")
            .with("NESTED", "${TOKEN}")
            .with("HOME", "/home/u")
            .with("CREDENTIALS_DIRECTORY", "/run/credentials/fb")
            .with_file("/run/credentials/fb/db.pw", "from-systemd\n")
            .with_file("/etc/fb/key", "from-file\n")
            .with_file("/home/u/k", "crlf\r\n");
        fill(text, Path::new("/etc/fb"), &env).map(|filled| filled.text).map_err(|(what, _)| what)
    }

    #[test]
    fn every_form_is_filled_in_once() {
        for (text, expected) in [
            ("plain", "plain"),
            ("$HOME stays, so does $", "$HOME stays, so does $"),
            ("Bearer ${TOKEN}!", "Bearer s3cr3t!"),
            ("${env:TOKEN}${TOKEN}", "s3cr3ts3cr3t"),
            ("${GONE:-d:e-f}", "d:e-f"),
            ("${env:GONE:-x}", "x"),
            ("${EMPTY:-x}", "x"),
            ("[${EMPTY}]", "[]"),
            ("$${TOKEN}", "${TOKEN}"),
            ("${NESTED}", "${TOKEN}"),
            ("${file:key}", "from-file"),
            ("${file:/etc/fb/key}", "from-file"),
            ("${file:~/k}", "crlf"),
            ("${cred:db.pw}", "from-systemd"),
        ] {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_filled_in_is_a_fault() {
        for (text, part) in [
            ("${GONE}", "GONE"),
            ("${", "without"),
            ("${}", "no variable's name"),
            ("${a b}", "no variable's name"),
            ("${1A}", "no variable's name"),
            ("${file:gone}", "/etc/fb/gone"),
            ("${file:}", "without a path"),
            ("${cred:gone}", "credential gone"),
            ("${cred:}", "without the name"),
            ("${cred:../x}", "without the name"),
            ("${input:key}", "${input:...}"),
            ("${workspaceFolder}/x", "${workspaceFolder}"),
        ] {
            let error = filled(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_credential_without_systemd_is_told_with_what_to_do() {
        let (what, hint) = fill("${cred:db}", Path::new("/"), &Fake::default()).unwrap_err();
        assert!(what.contains("credential db") && hint.contains("LoadCredential=db:"), "{what} {hint}");
    }

    #[test]
    fn only_what_came_from_outside_is_a_secret() {
        let env = Fake::default().with("A", "1");
        let secret = |text| fill(text, Path::new("/"), &env).unwrap().secret;
        assert!(secret("x${A}"));
        assert!(!secret("$${A}"));
        assert!(!secret("x"));
    }
}
