//! What callers cost: a test binary of its own, since it counts every allocation.
#![expect(clippy::unwrap_used, reason = "tests say by panicking that something is wrong")]

use forebay::caller::registry::Callers;
use forebay::config::{CallerConfig, Format, ProcessEnv, parse};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const CALLERS: u32 = 100_000;
const MOST: i64 = 30 << 20;

/// A config with one upstream and no callers; they are put in by hand, so that the file's own text does not count.
fn config() -> forebay::config::Config {
    let text = "[upstreams.a]\ncommand = \"cat\"\n[auth]\nmode = \"keys\"\n";
    parse(Path::new("/nowhere/forebay.toml"), text.into(), Format::Toml, &ProcessEnv).unwrap().0
}

#[test]
fn a_hundred_thousand_callers_with_keys_cost_at_most_30_mib() {
    let mut config = config();
    for number in 0..CALLERS {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        let settings = CallerConfig { keys: vec![hash], ..CallerConfig::default() };
        config.callers.insert(format!("caller-{number}"), Arc::new(settings));
    }
    let mut callers = None;
    let cost = allocation_counter::measure(|| callers = Some(Callers::new(&config)));
    assert!(callers.unwrap().by_name("caller-99999").is_some());
    assert!(cost.bytes_current <= MOST, "{} bytes", cost.bytes_current);
    // A sixteenth of what malloc adds to each block.
    assert!(cost.count_current <= 4 * i64::from(CALLERS), "{} blocks", cost.count_current);
}

#[test]
fn a_hundred_thousand_subjects_cost_at_most_30_mib_and_idle_ones_nothing() {
    let (callers, settings, now) = (Callers::new(&config()), Arc::default(), Instant::now());
    let cost = allocation_counter::measure(|| {
        for number in 0..CALLERS {
            let subject = callers.subject(&format!("subject-{number}"), "jwt", &settings, now).unwrap();
            subject.saw(now);
        }
    });
    assert!(cost.bytes_current <= MOST, "{} bytes", cost.bytes_current);
    let kept = callers.subject("subject-7", "jwt", &settings, now).unwrap();
    let later = now + Duration::from_secs(3600);
    assert_eq!(callers.evict_idle(later), CALLERS as usize - 1, "all but the one that is held");
    assert!(Arc::ptr_eq(&kept, &callers.subject("subject-7", "jwt", &settings, later).unwrap()));
}
