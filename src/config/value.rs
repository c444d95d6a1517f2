//! Durations and sizes as people write them: `"1m 30s"`, `"64MiB"`. The unit is always in the value.

use std::time::Duration;

/// Longer than this is taken for a mistake.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Reads `30s`, `1m 30s`, `1.5s`, `60 s`, `250ms`; also `0`, which means none wherever it is allowed. Any other
/// number without a unit is refused, since some programs mean seconds by it and others milliseconds.
///
/// The error is a fragment that reads well behind the name of the key.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty; write a number with its unit, such as \"30s\"".into());
    }
    if text.bytes().all(|byte| byte == b'0') {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let (number, unit, behind) = number_and_unit(rest).ok_or("is not a duration; write it as \"1m 30s\"")?;
        let scale = match unit {
            "" => return Err(format!("has a number without a unit; write \"{number}s\" or \"{number}ms\"")),
            "ms" | "msec" | "millis" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86400.0,
            _ => return Err("has a unit that is none of ms, s, m, h, d".into()),
        };
        seconds += number.parse::<f64>().map_err(|_| "is not a duration; write it as \"1m 30s\"")? * scale;
        rest = behind;
    }
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| too_long())?;
    match duration {
        long if long > LONGEST => Err(too_long()),
        short if !short.is_zero() && short < Duration::from_millis(1) => Err("is below 1ms".into()),
        fine => Ok(fine),
    }
}

fn too_long() -> String {
    "is longer than 30 days; 0 means none".into()
}

/// Reads `64MiB`, `64 MiB`, `1GB`, `512 KiB`, or a whole number of bytes.
///
/// The error is a fragment that reads well behind the name of the key.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty; write a size such as \"64MiB\"".into());
    }
    let wrong = || "is not a size; write it as \"64MiB\"".to_owned();
    let (number, unit, behind) = number_and_unit(text).ok_or_else(wrong)?;
    if !behind.is_empty() {
        return Err(wrong());
    }
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err("has a unit that is none of B, KiB, MiB, GiB, kB, MB, GB".into()),
    };
    let too_big = || "is above 1 TiB".to_owned();
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(scale).ok_or_else(too_big)?,
        // A fraction of a unit, such as 1.5GiB; or more digits than any size has.
        Err(_) if number.contains('.') => (number.parse::<f64>().map_err(|_| wrong())? * scale as f64) as u64,
        Err(_) => return Err(too_big()),
    };
    if bytes > 1 << 40 { Err(too_big()) } else { Ok(bytes) }
}

/// Splits `1m 30s` into `1`, `m`, `30s`. None if it does not begin with a number.
fn number_and_unit(text: &str) -> Option<(&str, &str, &str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(number_end);
    if !number.starts_with(|c: char| c.is_ascii_digit()) || number.ends_with('.') || number.matches('.').count() > 1 {
        return None;
    }
    let rest = rest.trim_start();
    let unit_end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    let (unit, behind) = rest.split_at(unit_end);
    Some((number, unit, behind.trim_start()))
}

/// A duration in the shortest form that [`parse_duration`] reads back, with `none` for zero or nothing.
pub fn show_duration(duration: Option<Duration>) -> String {
    let Some(duration) = duration.filter(|duration| !duration.is_zero()) else { return "none".into() };
    let mut left = duration.as_millis();
    let mut text = String::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        if left >= size {
            text.push_str(&format!("{}{unit}", left / size));
            left %= size;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn c39_durations_carry_their_unit() {
        let ms = |text| parse_duration(text).map(|duration| duration.as_millis());
        for (text, expected) in [
            ("0", 0),
            ("0s", 0),
            ("60s", 60_000),
            ("1m", 60_000),
            ("60 s", 60_000),
            ("1.5s", 1_500),
            ("1m 30s", 90_000),
            ("1m30s", 90_000),
            ("250ms", 250),
            ("2h", 7_200_000),
        ] {
            assert_eq!(ms(text), Ok(expected), "{text}");
        }
        assert!(ms("60").unwrap_err().contains("\"60s\""));
        for text in
            ["", " ", "-1s", "s", "1.s", "1..5s", "1x", "1e3s", "NaN", "inf", "99999d", "1us", "0.0001ms", "1m,"]
        {
            assert!(ms(text).is_err(), "{text:?}");
        }
        assert!(ms(&format!("{}s", "9".repeat(400))).is_err());
    }

    #[test]
    fn sizes_carry_their_unit_or_are_bytes() {
        for (text, expected) in [
            ("0", 0),
            ("1024", 1024),
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("1GB", 1_000_000_000),
            ("1.5KiB", 1536),
            ("8k", 8192),
        ] {
            assert_eq!(parse_size(text), Ok(expected), "{text}");
        }
        for text in ["", "-1", "MiB", "1 XB", "1MiB 2", "18446744073709551616", "1e400", "2000GiB", "NaN", "1.5.5MB"] {
            assert!(parse_size(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(millis in 1u64..2_592_000_000) {
            let duration = Duration::from_millis(millis);
            let back = parse_duration(&show_duration(Some(duration))).unwrap();
            prop_assert_eq!(back.as_millis(), duration.as_millis());
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = parse_duration(&text);
            let _ = parse_size(&text);
        }
    }
}
