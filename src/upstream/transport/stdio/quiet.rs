//! A log line that a hostile child can cause is told a few times in a while and then counted.

use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

const AT_ONCE: u32 = 5;
const EVERY: Duration = Duration::from_secs(10);

/// Lets [`AT_ONCE`] lines through in [`EVERY`].
#[derive(Default)]
pub(super) struct Quiet {
    window: Mutex<Option<Window>>,
}

struct Window {
    since: Instant,
    told: u32,
    held_back: u64,
}

impl Quiet {
    /// Calls `log` with the number of lines held back before it, or counts this one as held back.
    pub(super) fn tell(&self, log: impl FnOnce(u64)) {
        let now = Instant::now();
        let mut slot = self.window.lock();
        let window = slot.get_or_insert(Window { since: now, told: 0, held_back: 0 });
        if now.saturating_duration_since(window.since) >= EVERY {
            window.since = now;
            window.told = 0;
        }
        if window.told == AT_ONCE {
            window.held_back += 1;
            return;
        }
        window.told += 1;
        let held_back = std::mem::take(&mut window.held_back);
        drop(slot);
        log(held_back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn c10_endless_noise_is_logged_a_few_times_and_counted() {
        let quiet = Quiet::default();
        let mut told = Vec::new();
        for _ in 0..1000 {
            quiet.tell(|held_back| told.push(held_back));
        }
        tokio::time::advance(EVERY).await;
        quiet.tell(|held_back| told.push(held_back));
        assert_eq!(told, [0, 0, 0, 0, 0, 995]);
    }
}
