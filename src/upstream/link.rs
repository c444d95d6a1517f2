//! The state of an upstream's link, as its actor sees it. Pure: events and the time go in, answers come out.
//!
//! ```text
//!          open                Up                      Down
//! asleep -------> starting ----------> up(processes) ----------> down(fault, retry) --Up--> up
//!                     |                    |                       |
//!                     '------ Final -------+---------- Final ------'--> final(fault) --Up--> up
//! ```
//! `Busy` is a rest that the server asked for, and an open breaker one that forebay gives it: both stop the
//! dispatch for a while and leave the state alone.

use super::connection::LinkEvent;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Started on demand, and nobody has asked yet.
    Asleep,
    Starting,
    Up {
        processes: u32,
    },
    Down {
        fault: Arc<str>,
        retry_at: Instant,
    },
    /// Trying again will not help.
    Final {
        fault: Arc<str>,
    },
}

/// The link with the rest it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) state: LinkState,
    pub(crate) busy_until: Option<Instant>,
    /// The breaker is open (rule R10): when it is tried next.
    pub(crate) open_until: Option<Instant>,
}

/// Told of an upstream whose breaker is open, and of one that asked for a rest.
const BROKEN: &str = "its exchanges keep failing; it is left alone for a while";
const RESTING: &str = "it answered that it is busy, and is given a rest";

/// What the actor does about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// The link came up, or came up anew: dispatch; lists are stale.
    CameUp,
    /// Other processes are up than before: the effective limit moves.
    Resized,
    /// The link is gone: nothing is dispatched; lists are stale.
    WentDown,
    /// And the queue is given up.
    GaveUp,
    /// A rest began.
    Rest,
    ListsStale,
}

impl Link {
    pub(crate) fn new(asleep: bool) -> Self {
        Link { state: if asleep { LinkState::Asleep } else { LinkState::Starting }, busy_until: None, open_until: None }
    }

    /// Takes an event in.
    pub(crate) fn apply(&mut self, event: LinkEvent, now: Instant) -> Effect {
        match event {
            LinkEvent::Up { processes } => {
                let before = std::mem::replace(&mut self.state, LinkState::Up { processes });
                match before {
                    LinkState::Up { processes: before } if before == processes => Effect::Nothing,
                    LinkState::Up { .. } => Effect::Resized,
                    LinkState::Asleep | LinkState::Starting | LinkState::Down { .. } | LinkState::Final { .. } => {
                        self.busy_until = None;
                        Effect::CameUp
                    }
                }
            }
            LinkEvent::Down { fault, retry_in } => {
                self.state = LinkState::Down { fault, retry_at: after(now, retry_in) };
                Effect::WentDown
            }
            LinkEvent::Final { fault } => {
                self.state = LinkState::Final { fault };
                Effect::GaveUp
            }
            LinkEvent::Busy { retry_in } => {
                self.busy_until = Some(after(now, retry_in)).max(self.busy_until);
                Effect::Rest
            }
            LinkEvent::ListsChanged => Effect::ListsStale,
            LinkEvent::Probed { .. } => Effect::Nothing,
        }
    }

    /// Whether calls may be handed over now.
    pub(crate) fn can_run(&self, now: Instant) -> bool {
        matches!(self.state, LinkState::Up { .. }) && self.open_until.is_none() && self.resting(now).is_none()
    }

    /// Until when it rests, if it does.
    pub(crate) fn resting(&self, now: Instant) -> Option<Instant> {
        self.busy_until.filter(|until| *until > now)
    }

    /// Why nothing runs although the link is up, and when that is to end.
    pub(crate) fn held(&self, now: Instant) -> Option<(&'static str, Instant)> {
        let broken = self.open_until.map(|until| (BROKEN, until));
        broken.or_else(|| self.resting(now).map(|until| (RESTING, until)))
    }

    /// Why a newcomer that must start by `latest` is refused (rule R10), with the time of the next try.
    pub(crate) fn refuses(&self, latest: Option<Instant>, now: Instant) -> Option<(Arc<str>, Option<Instant>)> {
        match &self.state {
            LinkState::Asleep | LinkState::Starting => None,
            LinkState::Up { .. } => {
                let (fault, until) = self.held(now)?;
                latest.is_some_and(|latest| until > latest).then(|| (fault.into(), Some(until)))
            }
            LinkState::Down { fault, retry_at } => {
                latest.is_some_and(|latest| *retry_at > latest).then(|| (fault.clone(), Some(*retry_at)))
            }
            LinkState::Final { fault } => Some((fault.clone(), None)),
        }
    }

    pub(crate) fn fault(&self) -> Option<&Arc<str>> {
        match &self.state {
            LinkState::Down { fault, .. } | LinkState::Final { fault } => Some(fault),
            LinkState::Asleep | LinkState::Starting | LinkState::Up { .. } => None,
        }
    }

    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match &self.state {
            LinkState::Down { retry_at, .. } => Some(*retry_at),
            LinkState::Asleep | LinkState::Starting | LinkState::Up { .. } | LinkState::Final { .. } => None,
        }
    }
}

/// Most calls that one of `configured` processes may hold (rule R22): its part of the limit, rounded up.
pub(crate) fn share_of_one(limit: u32, configured: u32) -> u32 {
    limit.div_ceil(configured.max(1))
}

/// The limit in force with `up` of `configured` processes: the sum of the parts of those that are up.
pub(crate) fn effective_limit(limit: u32, configured: u32, up: u32) -> u32 {
    if up >= configured.max(1) { limit } else { share_of_one(limit, configured).saturating_mul(up).min(limit) }
}

/// An instant that far away, or a year where it cannot be told.
fn after(now: Instant, wait: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    now + wait.min(YEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r22_the_limit_follows_the_processes_that_are_up() {
        assert_eq!(effective_limit(5, 1, 1), 5);
        assert_eq!(effective_limit(5, 2, 1), 3);
        assert_eq!(effective_limit(5, 2, 2), 5);
        assert_eq!(effective_limit(5, 4, 3), 5);
        assert_eq!(effective_limit(1, 4, 2), 1);
        assert_eq!(effective_limit(5, 2, 0), 0);
    }

    #[test]
    fn r22_the_parts_of_the_processes_that_are_up_hold_the_limit_in_force() {
        for limit in 0..40 {
            for configured in 1..9 {
                for up in 0..=configured {
                    let (share, sum) = (share_of_one(limit, configured), effective_limit(limit, configured, up));
                    // So whenever a slot is free, some process has room for it.
                    assert!(share * up >= sum && sum <= limit, "{limit} over {up} of {configured}");
                    assert!(up < configured || sum == limit);
                }
            }
        }
    }

    #[test]
    fn r10_a_newcomer_is_refused_only_if_the_next_try_is_too_late() {
        let now = Instant::now();
        let mut link = Link::new(false);
        let retry_in = Duration::from_secs(4);
        assert_eq!(link.apply(LinkEvent::Down { fault: "gone".into(), retry_in }, now), Effect::WentDown);
        assert!(link.refuses(Some(now + Duration::from_secs(5)), now).is_none());
        assert!(link.refuses(None, now).is_none());
        let (fault, at) = link.refuses(Some(now + Duration::from_secs(3)), now).unwrap();
        assert_eq!((&*fault, at), ("gone", Some(now + retry_in)));
        assert_eq!(link.apply(LinkEvent::Final { fault: "401".into() }, now), Effect::GaveUp);
        assert!(link.refuses(None, now).is_some());
        assert_eq!(link.apply(LinkEvent::Up { processes: 1 }, now), Effect::CameUp);
        assert!(link.can_run(now));
    }

    #[test]
    fn a_rest_is_not_an_end() {
        let now = Instant::now();
        let mut link = Link::new(true);
        assert_eq!(link.apply(LinkEvent::Up { processes: 2 }, now), Effect::CameUp);
        link.apply(LinkEvent::Busy { retry_in: Duration::from_secs(2) }, now);
        link.apply(LinkEvent::Busy { retry_in: Duration::from_secs(1) }, now);
        assert!(!link.can_run(now + Duration::from_millis(1999)));
        assert!(link.can_run(now + Duration::from_secs(2)));
        assert_eq!(link.apply(LinkEvent::Up { processes: 1 }, now), Effect::Resized);
        assert!(link.refuses(Some(now + Duration::from_secs(3)), now).is_none(), "it is over in time");
        let (_, at) = link.refuses(Some(now + Duration::from_secs(1)), now).unwrap();
        assert_eq!(at, Some(now + Duration::from_secs(2)));
    }
}
