//! What the screens know and how they are looked at. Plain data: the daemon's side is folded in by [`Model`], the
//! person's side is changed by `update` alone, and `view` only reads.

mod calls;
mod form;
mod history;
mod list;
mod measured;
mod model;
mod moment;
mod rows;

pub use calls::{Calls, Query, Row, Wanted};
pub use form::{Field, Form, limit_time, plain_duration};
pub use history::{History, Sample};
pub use list::{Filter, List, OF_CALLERS, OF_CALLS, OF_UPSTREAMS, Sort};
pub use measured::{CallerRow, Overview};
pub use model::{Daemon, Folded, Followed, Model, Told, cap, taken};
pub use moment::Moment;
pub use rows::Rows;
pub(crate) use rows::{aim, error_rate};

use crate::connection::Ask;
use crate::input::{Kind, Mode};
use forebay_wire::{Level, Role};
use ratatui::layout::Rect;
use std::collections::BTreeSet;

/// What the person said on the command line, and what the terminal is.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub read_only: bool,
    /// The daemon's address, as it is shown.
    pub target: String,
    /// From UTC to the time of the person's clock.
    pub utc_offset_s: i32,
}

/// How it stands with the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// No word yet.
    #[default]
    Connecting,
    Live,
    Lost {
        since: Moment,
        retry_at: Moment,
        why: String,
    },
}

/// What is on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    Upstreams,
    Requests,
    Callers,
    Events,
    Upstream(String),
    Request(String),
    OfCaller(String),
    Stderr(String),
}

impl Screen {
    pub fn kind(&self) -> Kind {
        match self {
            Screen::Upstreams => Kind::Upstreams,
            Screen::Requests | Screen::OfCaller(_) => Kind::Requests,
            Screen::Callers => Kind::Callers,
            Screen::Events => Kind::Events,
            Screen::Upstream(_) => Kind::Upstream,
            Screen::Request(_) => Kind::Request,
            Screen::Stderr(_) => Kind::Stderr,
        }
    }

    /// The numbered screen of a kind.
    pub fn tab(kind: Kind) -> Screen {
        match kind {
            Kind::Requests => Screen::Requests,
            Kind::Callers => Screen::Callers,
            Kind::Events => Screen::Events,
            Kind::Upstreams | Kind::Upstream | Kind::Request | Kind::Stderr => Screen::Upstreams,
        }
    }
}

/// The lists that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    Upstreams,
    Requests,
    Callers,
    Events,
    /// The calls of one upstream: on its own screen, or beside the overview.
    Queue,
    OfCaller,
    /// Lines of text: error output, or a call's timeline.
    Lines,
}

/// All lists, each with its own selection, order and filter.
#[derive(Clone, Debug)]
pub struct Lists {
    pub upstreams: List,
    pub requests: List,
    pub callers: List,
    pub events: List,
    pub queue: List,
    pub of_caller: List,
    pub lines: List,
}

impl Lists {
    pub fn get(&self, which: Which) -> &List {
        match which {
            Which::Upstreams => &self.upstreams,
            Which::Requests => &self.requests,
            Which::Callers => &self.callers,
            Which::Events => &self.events,
            Which::Queue => &self.queue,
            Which::OfCaller => &self.of_caller,
            Which::Lines => &self.lines,
        }
    }

    pub fn get_mut(&mut self, which: Which) -> &mut List {
        match which {
            Which::Upstreams => &mut self.upstreams,
            Which::Requests => &mut self.requests,
            Which::Callers => &mut self.callers,
            Which::Events => &mut self.events,
            Which::Queue => &mut self.queue,
            Which::OfCaller => &mut self.of_caller,
            Which::Lines => &mut self.lines,
        }
    }
}

/// A question before something that cannot be taken back.
#[derive(Clone, Debug, PartialEq)]
pub struct Confirm {
    pub title: String,
    pub lines: Vec<String>,
    /// The command that does the same.
    pub command: String,
    /// What yes does.
    pub ask: Ask,
    /// The daemon is still counting what it would hit; yes waits for it.
    pub counting: bool,
}

/// What lies over the screen and has the keyboard.
#[derive(Clone, Debug, PartialEq)]
pub enum Overlay {
    Help {
        top: usize,
    },
    Confirm(Box<Confirm>),
    Limits(Box<Form>),
    /// The filter is edited; what it was before comes back on Esc.
    Filter {
        before: String,
    },
}

/// A sentence that is shown for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub text: String,
    pub bad: bool,
    pub at: Moment,
}

/// How long a notice stays.
pub const NOTICE_MS: u64 = 6_000;

/// How much room the terminal gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// One line.
    Line,
    /// The few columns that matter most.
    Small,
    Narrow,
    #[default]
    Full,
    /// Several panes.
    Wide,
}

impl Room {
    pub fn of(width: u16, height: u16) -> Room {
        match (width, height) {
            (..40, _) | (_, ..10) => Room::Line,
            (..60, _) | (_, ..15) => Room::Small,
            (60..80, _) => Room::Narrow,
            (120.., 30..) => Room::Wide,
            _ => Room::Full,
        }
    }
}

/// What was drawn where, for the mouse and for moving by pages. What a frame gives back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    pub room: Room,
    /// The rows of a list, and the first that is shown.
    pub lists: Vec<(Rect, Which, usize)>,
    pub heads: Vec<(Rect, Which, Sort)>,
    pub tabs: Vec<(Rect, Kind)>,
}

impl Drawn {
    /// Rows of a list that are in sight.
    pub fn height(&self, which: Which) -> usize {
        let found = self.lists.iter().find(|(_, there, _)| *there == which);
        found.map_or(10, |(area, ..)| usize::from(area.height).max(1))
    }
}

/// A thing that is asked for again and again while it is looked at.
#[derive(Clone, Debug, Default)]
pub struct Poll {
    about: String,
    asked: Option<Moment>,
    waits: bool,
}

impl Poll {
    /// How long an answer is waited for before it is asked for again.
    const LOST_MS: u64 = 12_000;

    /// Whether to ask now: at once about another thing, else every so often.
    pub fn is_due(&mut self, about: &str, every_ms: u64, now: Moment) -> bool {
        let age = self.asked.map(|asked| now.since(asked));
        let due = self.about != about
            || age.is_none_or(|age| age >= if self.waits { Self::LOST_MS.max(every_ms) } else { every_ms });
        if due {
            about.clone_into(&mut self.about);
            self.asked = Some(now);
            self.waits = true;
        }
        due
    }

    pub fn answered(&mut self) {
        self.waits = false;
    }

    /// Asks as soon as it is looked at.
    pub fn hurry(&mut self) {
        self.asked = None;
        self.waits = false;
    }
}

/// What is asked for again and again.
#[derive(Clone, Debug, Default)]
pub struct Polls {
    pub call: Poll,
    pub call_why: Poll,
    pub upstream: Poll,
    pub upstream_why: Poll,
    pub stderr: Poll,
}

/// Which calls are to be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    Of(Query),
    Nothing,
    /// What is listed stays: a call that was opened from it has the screen.
    Keep,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct State {
    pub options: Options,
    pub link: Link,
    pub model: Model,
    /// What is shown instead, and since when, while the picture is frozen.
    pub frozen: Option<Box<(Model, Moment)>>,
    /// The numbered screen, and what was opened from it.
    pub screens: Vec<Screen>,
    pub lists: Lists,
    /// The queue beside the overview has the keys.
    pub in_queue: bool,
    pub zoomed: bool,
    pub marks: BTreeSet<String>,
    pub overlay: Option<Overlay>,
    pub notice: Option<Notice>,
    /// Events below it are not shown.
    pub level: Level,
    /// The newest event stays selected.
    pub follow: bool,
    pub drawn: Drawn,
    pub polls: Polls,
    /// Something has changed since the last frame.
    pub changed: bool,
}

impl State {
    pub fn new(options: Options) -> Self {
        State {
            options,
            link: Link::Connecting,
            model: Model::default(),
            frozen: None,
            screens: vec![Screen::Upstreams],
            lists: Lists {
                upstreams: List::new(Sort::Pressure),
                requests: List::new(Sort::Queue),
                callers: List::new(Sort::Wait),
                events: List::new(Sort::Queue),
                queue: List::new(Sort::Queue),
                of_caller: List::new(Sort::Queue),
                lines: List::new(Sort::Queue),
            },
            in_queue: false,
            zoomed: false,
            marks: BTreeSet::new(),
            overlay: None,
            notice: None,
            level: Level::Info,
            follow: true,
            drawn: Drawn::default(),
            polls: Polls::default(),
            changed: true,
        }
    }

    /// What is on the screen.
    pub fn screen(&self) -> &Screen {
        // There always is a numbered screen at the bottom.
        self.screens.last().unwrap_or(&Screen::Upstreams)
    }

    /// What keys go to.
    pub fn mode(&self) -> Mode {
        match &self.overlay {
            None => Mode::Screen(self.screen().kind()),
            Some(Overlay::Help { .. }) => Mode::Help,
            Some(Overlay::Confirm(_)) => Mode::Question,
            Some(Overlay::Limits(_)) => Mode::Form,
            Some(Overlay::Filter { .. }) => Mode::Line,
        }
    }

    /// The model that is shown: what is, or what was when the picture was frozen.
    pub fn shown(&self) -> &Model {
        self.frozen.as_ref().map_or(&self.model, |frozen| &frozen.0)
    }

    /// The moment that is shown: ages stand still while the picture is frozen or the daemon is lost.
    pub fn clock(&self, now: Moment) -> Moment {
        match (&self.frozen, &self.link) {
            (Some(frozen), _) => frozen.1,
            (None, Link::Lost { since, .. }) => *since,
            (None, Link::Connecting | Link::Live) => now,
        }
    }

    pub fn is_live(&self) -> bool {
        self.link == Link::Live
    }

    /// Why nothing can be steered, if so.
    pub fn hindrance(&self) -> Option<String> {
        let Some(daemon) = &self.model.daemon else { return Some("not connected".into()) };
        if !self.is_live() {
            Some("not connected".into())
        } else if self.options.read_only {
            Some("read-only: opened with --read-only".into())
        } else if daemon.api != forebay_wire::API {
            Some(format!(
                "read-only: the daemon speaks API version {}, this program {}; use its own forebay tui",
                daemon.api,
                forebay_wire::API
            ))
        } else if daemon.role != Role::Operator {
            Some(format!("read-only: {} may only look", daemon.subject))
        } else {
            None
        }
    }

    /// The list that has the keys.
    pub fn active(&self) -> Which {
        match self.screen() {
            Screen::Upstreams if self.in_queue && self.has_panes() => Which::Queue,
            Screen::Upstreams => Which::Upstreams,
            Screen::Requests => Which::Requests,
            Screen::OfCaller(_) => Which::OfCaller,
            Screen::Callers => Which::Callers,
            Screen::Events => Which::Events,
            Screen::Upstream(_) => Which::Queue,
            Screen::Request(_) | Screen::Stderr(_) => Which::Lines,
        }
    }

    /// The overview is drawn with the queue beside it.
    pub fn has_panes(&self) -> bool {
        self.drawn.room == Room::Wide && !self.zoomed
    }

    /// The name or id that is selected in a list.
    pub fn selected(&self, which: Which, now: Moment) -> Option<String> {
        let rows = self.rows(which, now);
        let index = rows.index(self.lists.get(which))?;
        rows.name(index).map(|name| name.into_owned())
    }

    /// The upstream that the keys are about.
    pub fn upstream(&self, now: Moment) -> Option<String> {
        match self.screen() {
            Screen::Upstream(name) | Screen::Stderr(name) => Some(name.clone()),
            Screen::Upstreams => self.selected(Which::Upstreams, now),
            Screen::Requests | Screen::OfCaller(_) | Screen::Callers | Screen::Events | Screen::Request(_) => None,
        }
    }

    /// The call that the keys are about.
    pub fn call(&self, now: Moment) -> Option<String> {
        match self.screen() {
            Screen::Request(id) => Some(id.clone()),
            Screen::Upstreams if !self.has_panes() => None,
            Screen::Upstreams | Screen::Upstream(_) => self.selected(Which::Queue, now),
            Screen::Requests => self.selected(Which::Requests, now),
            Screen::OfCaller(_) => self.selected(Which::OfCaller, now),
            Screen::Callers | Screen::Events | Screen::Stderr(_) => None,
        }
    }

    /// The calls that are to be listed.
    pub fn listing(&self, now: Moment) -> Listing {
        let typed = |which: Which| Filter::of(&self.lists.get(which).filter).query;
        let query = match self.screen() {
            Screen::Upstreams if self.has_panes() => {
                self.selected(Which::Upstreams, now).map(|name| Query { upstream: Some(name), ..typed(Which::Queue) })
            }
            Screen::Upstreams | Screen::Events => None,
            Screen::Requests => Some(typed(Which::Requests)),
            Screen::Callers => {
                self.selected(Which::Callers, now).map(|name| Query { caller: Some(name), ..Query::default() })
            }
            Screen::OfCaller(name) => Some(Query { caller: Some(name.clone()), ..typed(Which::OfCaller) }),
            Screen::Upstream(name) => Some(Query { upstream: Some(name.clone()), ..typed(Which::Queue) }),
            Screen::Request(_) | Screen::Stderr(_) => return Listing::Keep,
        };
        query.map_or(Listing::Nothing, Listing::Of)
    }
}

/// A word as a shell reads it back, so that the commands that are shown can be pasted. Text from outside stays on
/// one line and in one word.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '@' | '+' | '=' | ',');
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_shown_is_one_word_a_name() {
        assert_eq!(shell_word("alice/claude"), "alice/claude");
        assert_eq!(shell_word("a b; rm -rf /"), "'a b; rm -rf /'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn a_poll_asks_at_once_about_another_thing_and_else_not_too_often() {
        let mut poll = Poll::default();
        assert!(poll.is_due("a", 1_000, Moment(0)));
        assert!(!poll.is_due("a", 1_000, Moment(5_000)), "its answer is under way");
        poll.answered();
        assert!(poll.is_due("a", 1_000, Moment(5_000)));
        assert!(poll.is_due("b", 1_000, Moment(5_001)));
        assert!(poll.is_due("b", 1_000, Moment(5_001 + Poll::LOST_MS)), "its answer is lost");
    }

    #[test]
    fn the_room_follows_the_size() {
        let cases = [
            ((0, 0), Room::Line),
            ((39, 24), Room::Line),
            ((80, 9), Room::Line),
            ((40, 10), Room::Small),
            ((59, 24), Room::Small),
            ((79, 24), Room::Narrow),
            ((80, 24), Room::Full),
            ((140, 24), Room::Full),
            ((140, 40), Room::Wide),
        ];
        for ((width, height), room) in cases {
            assert_eq!(Room::of(width, height), room, "{width}x{height}");
        }
    }
}
