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
