//! Numbers, durations and limits at their edges.

use super::*;

#[test]
fn c39_the_unit_is_in_the_value_and_0_is_none() {
    let timeout = |value: &str| limits(&format!("call_timeout = {value}")).map(|limits| limits.call_timeout);
    let seconds = |seconds| Some(Duration::from_secs_f64(seconds));
    for (value, expected) in [
        ("0", None),
        ("0.0", None),
        ("\"0\"", None),
        ("\"0s\"", None),
        ("\"60s\"", seconds(60.0)),
        ("\"1m\"", seconds(60.0)),
        ("\"60 s\"", seconds(60.0)),
        ("\"1.5s\"", seconds(1.5)),
    ] {
        assert_eq!(timeout(value).unwrap(), expected, "{value}");
    }
    for (value, hint) in [("60", "\"60s\""), ("\"60\"", "\"60s\""), ("1.5", "\"1.5s\"")] {
        let told = timeout(value).unwrap_err().to_string();
        assert!(told.contains("without a unit") && told.contains(hint), "{value}: {told}");
    }
    for value in
        ["\"\"", "-1", "\"-1s\"", "-0.5", "true", "[]", "nan", "inf", "1e400", "2024-01-01", "99999999999999999999"]
    {
        assert!(timeout(value).is_err(), "{value}");
    }
    for key in ["cancel_grace", "connect_timeout"] {
        assert!(limits(&format!("{key} = 0")).unwrap_err().to_string().contains("must not be 0"));
    }
}

#[test]
fn c40_zero_negative_and_absurd_numbers() {
    assert_eq!(limits("queue_size = 0").unwrap().queue_size, 0);
    assert_eq!(limits("max_concurrent = 0").unwrap().max_concurrent, Concurrency::Unlimited);
    assert_eq!(limits("max_concurrent = \"unlimited\"").unwrap().max_concurrent, Concurrency::Unlimited);
    assert!(limits("processes = 0").unwrap_err().to_string().contains("is below 1"));
    for key in ["queue_size", "max_concurrent", "processes", "queue_bytes", "max_queued", "max_message"] {
        for (value, part) in [
            ("-1", "is negative"),
            ("nan", "finite"),
            ("-inf", "finite"),
            ("1e400", "finite"),
            ("18446744073709551616", "beyond all bounds"),
            ("9223372036854775807", ""),
            ("1.5", "whole number"),
            ("true", ""),
            ("[1]", ""),
        ] {
            let told = limits(&format!("{key} = {value}")).unwrap_err().to_string();
            assert!(told.contains(part) && told.contains(key), "{key} = {value}: {told}");
        }
    }
    for range in [
        "{}",
        "{ min = 2 }",
        "{ min = 0, max = 5 }",
        "{ min = 9, max = 5 }",
        "{ min = 1, max = 5000 }",
        "{ min = 1, max = 2, x = 1 }",
    ] {
        assert!(limits(&format!("max_concurrent = {range}")).is_err(), "{range}");
    }
}

#[test]
fn c40_a_queue_without_a_limit_is_refused() {
    let refused = |text: &str| toml(text).unwrap_err().to_string().contains("asks for a queue");
    assert!(refused(&format!("{ONE}max_concurrent = 0\nqueue_size = 5\n")));
    assert!(refused(&format!("[defaults]\nmax_concurrent = 0\n{ONE}queue_size = 5\n")));
    assert!(refused(&format!("[defaults]\nmax_concurrent = \"unlimited\"\nqueue_size = 5\n{ONE}")));
    assert!(toml(&format!("[defaults]\nqueue_size = 5\n{ONE}max_concurrent = 0\n")).is_ok());
    assert!(limits("max_concurrent = 0\nqueue_size = 0").is_ok());
    assert!(limits("queue_size = \"unlimited\"").is_err());
}

#[test]
fn a_negative_duration_is_told_with_how_to_write_one() {
    let told = limits("queue_timeout = \"-1s\"").unwrap_err().to_string();
    assert!(told.ends_with("`upstreams.a.queue_timeout` is negative (hint: write it as \"30s\")"), "{told}");
}
