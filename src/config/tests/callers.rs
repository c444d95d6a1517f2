//! The limits of callers: what is taken, and how absurd ones are told.

use super::*;

/// The faults of `[callers.anonymous]` with this line, which stands at 4:1.
fn refused(line: &str) -> String {
    match toml(&format!("{ONE}[callers.anonymous]\n{line}\n")) {
        Ok(_) => panic!("taken: {line}"),
        Err(faults) => {
            assert!(faults.iter().all(|fault| fault.hint.is_some()), "{faults}");
            assert!(faults.iter().all(|fault| matches!(&fault.place, Place::File { line: 4, .. })), "{faults}");
            faults.to_string()
        }
    }
}

/// Negative, no number, without end, beyond every integer.
const ABSURD: [&str; 7] = ["-1", "nan", "inf", "-inf", "1e400", "18446744073709551616", "\"\""];

#[test]
fn absurd_limits_are_refused_with_place_and_hint() {
    for value in ABSURD {
        for (line, key) in [
            (format!("rate = {{ per_second = {value} }}"), "rate.per_second"),
            (format!("rate = {{ per_second = 1, burst = {value} }}"), "rate.burst"),
            (format!("quota = {{ bytes_per_minute = {value} }}"), "quota.bytes_per_minute"),
            (format!("quota = {{ tokens_per_minute = {value} }}"), "quota.tokens_per_minute"),
            (format!("max_concurrent = {value}"), "max_concurrent"),
            (format!("max_queued = {value}"), "max_queued"),
            (format!("weight = {value}"), "weight"),
        ] {
            let told = refused(&line);
            assert!(told.contains(&format!("`callers.anonymous.{key}`")), "{line}: {told}");
        }
    }
}

#[test]
fn a_quota_names_what_it_counts() {
    for wrong in
        ["1000", "\"1MiB\"", "[]", "{}", "{ bytes = 1 }", "{ bytes_per_minute = 0 }", "{ tokens_per_minute = 0 }"]
    {
        refused(&format!("quota = {wrong}"));
    }
    // A wrong one does not leave the other to stand alone, and neither is told twice.
    let told = refused("quota = { bytes_per_minute = -1, tokens_per_minute = 1000 }");
    assert_eq!(told.matches("quota").count(), 1, "{told}");
}

#[test]
fn absurd_cursors_and_gates_are_refused_with_place_and_hint() {
    let tool = |lines: &str| toml(&format!("{ONE}[upstreams.a.tools.t]\n{lines}\n"));
    let cursor = |rest: &str| tool(&format!("cursor = {{ pointer = \"/n\", argument = \"c\"{rest} }}"));
    let gate = |rest: &str| tool(&format!("gate = [{{ say = \"less\", {rest} }}]"));
    assert!(cursor("").is_ok() && gate("when = \"args.x > 1\"").is_ok() && gate("price = \"p\", max = 0.5").is_ok());
    for value in ABSURD {
        for key in ["per_caller", "total", "ttl"] {
            let told = cursor(&format!(", {key} = {value}")).unwrap_err();
            assert!(told.iter().all(|fault| fault.key.ends_with(key) && fault.hint.is_some()), "{key} {value}: {told}");
        }
        let told = gate(&format!("price = \"p\", max = {value}")).unwrap_err();
        assert!(told.iter().all(|fault| fault.key.ends_with("max") && fault.hint.is_some()), "{value}: {told}");
    }
    for (lines, word) in [
        ("cursor = { argument = \"c\" }", "lacks `pointer`"),
        ("cursor = { pointer = \"/n\" }", "lacks `argument`"),
        ("cursor = { pointer = \"n\", argument = \"c\" }", "JSON pointer"),
        ("cursor = { pointer = \"/n\", argument = \"\" }", "is empty"),
        ("cursor = \"/n\"", "must be a table"),
        ("gate = [{ when = \"true\" }]", "lacks `say`"),
        ("gate = [{ say = \"x\\ny\", when = \"true\" }]", "one line"),
        ("gate = [{ say = \"x\" }]", "neither `when` nor `price`"),
        ("gate = [{ say = \"x\", when = \"true\", price = \"p\", max = 1 }]", "beside `when`"),
        ("gate = [{ say = \"x\", when = \"true\", max = 1 }]", "goes with `price`"),
        ("gate = [{ say = \"x\", price = \"t\", max = 1 }]", "another tool"),
        ("gate = [{ say = \"x\", price = \"p\" }]", "lacks `max`"),
        ("gate = [{ say = \"x\", when = \"args.a.matches('x')\" }]", "`matches`"),
        ("gate = [{ say = \"x\", when = \"args.a.exists(a, args.b.exists(b, a == b))\" }]", "within another"),
        ("gate_error = \"maybe\"", "must be one of"),
        ("gate = 1", "must be a table"),
    ] {
        let told = tool(lines).map(|_| ()).unwrap_err();
        assert!(told.to_string().contains(word), "{lines}: {told}");
        assert!(told.iter().all(|fault| matches!(&fault.place, Place::File { line: 4, .. })), "{told}");
    }
    assert!(warned(cursor(", per_caller = 200"))[0].contains("above total"));
}

#[test]
fn hooks_are_a_url_or_a_command() {
    let hooks = |lines: &str| toml(&format!("{ONE}[hooks]\n{lines}\n"));
    assert!(hooks("on_overload = \"https://h.example/s3cr3t\"").is_ok());
    let (config, _) = hooks("on_overload = [\"notify\", \"s3cr3t\"]\noverload_every = \"1m\"").unwrap();
    assert_eq!(config.hooks.every, Duration::from_secs(60));
    assert!(!format!("{config:?}").contains("s3cr3t"));
    for (lines, word) in [
        ("on_overload = []", "names no program"),
        ("on_overload = [\" \"]", "names no program"),
        ("on_overload = \"ftp://h\"", "http"),
        ("on_overload = 1", "string"),
        ("overload_every = \"1ms\"", "below 1s"),
        ("overload_every = 0", "must not be 0"),
    ] {
        let told = hooks(lines).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains(word), "{lines}: {told}");
    }
}
