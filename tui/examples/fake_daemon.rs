//! A daemon of a size that one seldom has, to look at the screens with: made-up figures, nothing behind them.
//!
//! `cargo run -p forebay-tui --example fake_daemon -- SOCKET [UPSTREAMS CALLS]`, then
//! `forebay tui --admin unix:SOCKET` in another terminal.

#[path = "../tests/support/mod.rs"]
mod support;

use forebay_wire as wire;
use std::time::Duration;
use support::{Fake, Size, upstream};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let typed: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| typed.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let Some(socket) = typed.first() else { panic!("name a socket") };
    let size = Size { upstreams: number(1, 1_000), calls: number(2, 100_000) };
    let fake = Fake::start(std::path::Path::new(socket), "fake0", size);
    for sequence in 1.. {
        tokio::time::sleep(Duration::from_millis(250)).await;
        // A tenth of all upstreams changes each time.
        let changed = (0..size.upstreams).filter(|at| at % 10 == sequence as usize % 10);
        let upstreams = changed
            .map(|at| {
                let up = upstream(at, size);
                wire::Upstream { queued: up.queued / 2 + (sequence as u32 * 7 + at as u32) % (up.queued / 2 + 1), ..up }
            })
            .collect();
        let totals = wire::Totals { queued: size.calls as u64, ..wire::Totals::default() };
        let changes = wire::Changes {
            sequence,
            uptime_ms: 5_000 + sequence * 250,
            totals,
            upstreams,
            ..wire::Changes::default()
        };
        fake.say(&wire::Update::Changes(Box::new(changes)));
    }
}
