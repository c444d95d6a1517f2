//! Time as the screens count it: milliseconds since they were opened, by the monotonic clock.

/// A point in time. Whoever holds the clock passes it in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// Milliseconds since an earlier point; nothing if that lies ahead.
    pub fn since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    #[must_use]
    pub fn plus(self, ms: u64) -> Moment {
        Moment(self.0.saturating_add(ms))
    }
}
