//! What an actor tells the event log: its link, and whether it has too much to do. All of it is rare.

use super::UpstreamActor;
use crate::upstream::link::{Effect, LinkState};
use forebay_wire::Level;
use std::sync::Arc;

impl UpstreamActor {
    /// The link has moved; `fault` is what was wrong with it before.
    pub(super) fn tell_link(&self, effect: Effect, fault: Option<&Arc<str>>) {
        let name = &self.shared.name;
        match effect {
            Effect::CameUp => self.shared.log(Level::Info, "upstream.up", || format!("{name} is up")),
            Effect::Resized => {
                let LinkState::Up { processes } = self.link.state else { return };
                let all = super::configured_processes(&self.config);
                let level = if processes < all { Level::Warn } else { Level::Info };
                self.shared
                    .log(level, "upstream.processes", || format!("{name}: {processes} of {all} processes are up"));
            }
            // It is told down again after each try that fails; only what is new is worth a line.
            Effect::WentDown if self.link.fault() == fault => {}
            Effect::WentDown => {
                let (now, why) = (self.clock, self.link.fault().cloned().unwrap_or_default());
                let wait = self.link.retry_at().map(|at| at.saturating_duration_since(now)).unwrap_or_default();
                self.shared.log(Level::Warn, "upstream.down", || {
                    format!("{name} is down: {why}; it is tried again in {:.1} s", wait.as_secs_f64())
                });
            }
            Effect::GaveUp if self.link.fault() == fault => {}
            Effect::GaveUp => {
                let why = self.link.fault().cloned().unwrap_or_default();
                self.shared.log(Level::Error, "upstream.down", || format!("{name} is down for good: {why}"));
            }
            Effect::Nothing | Effect::Rest | Effect::ListsStale => {}
        }
    }

    /// Whether there is too much to do has come or gone.
    pub(super) fn tell_saturation(&self) {
        let name = &self.shared.name;
        match self.shared.saturation.turned(self.now.0) {
            Some(true) => self.shared.log(Level::Warn, "upstream.saturated", || {
                format!("{name} has had a nearly full queue, or refused calls, for 30 s")
            }),
            Some(false) => {
                self.shared.log(Level::Info, "upstream.relieved", || format!("{name} is no longer saturated"));
            }
            None => {}
        }
    }
}
