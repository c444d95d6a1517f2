//! The one table of keys: what each does, on which screens, in what words, and the command that does the same.
//! Handling, help, the lines at the foot of a screen and the guide all come from here.

use super::{Action, Kind, Move};
use crossterm::event::KeyCode;

/// A key that a person can press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Ctrl(char),
    Code(KeyCode),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    pub keys: &'static [Key],
    /// The keys as they are written.
    pub shown: &'static str,
    pub words: &'static str,
    pub action: Action,
    /// Where it is valid.
    pub on: &'static [Kind],
    /// It changes something in the daemon.
    pub steers: bool,
    /// The command that does the same, with `ID`, `UPSTREAM` and `CALLER` for what is selected.
    pub twin: Option<&'static str>,
    /// It is named at the foot of a screen, and not in the help alone.
    pub at_foot: bool,
}

use Key::{Char, Code, Ctrl};
use Kind::{Callers, Events, Request, Requests, Stderr, Upstream, Upstreams};

const ALL: &[Kind] = &Kind::ALL;
const LISTS: &[Kind] = &[Upstreams, Requests, Callers, Events, Upstream];
const SORTED: &[Kind] = &[Upstreams, Requests, Callers, Upstream];
const CALLS: &[Kind] = &[Upstreams, Requests, Upstream, Request];
const OF_UPSTREAM: &[Kind] = &[Upstreams, Upstream, Stderr];
const MOVED: &[Kind] = &[Upstreams, Requests, Callers, Events, Upstream, Stderr, Request];

const fn seen(
    keys: &'static [Key],
    shown: &'static str,
    words: &'static str,
    action: Action,
    on: &'static [Kind],
) -> Binding {
    Binding { keys, shown, words, action, on, steers: false, twin: None, at_foot: true }
}

const fn helped(
    keys: &'static [Key],
    shown: &'static str,
    words: &'static str,
    action: Action,
    on: &'static [Kind],
) -> Binding {
    Binding { at_foot: false, ..seen(keys, shown, words, action, on) }
}

const fn steer(
    key: &'static [Key],
    shown: &'static str,
    words: &'static str,
    action: Action,
    on: &'static [Kind],
    twin: &'static str,
) -> Binding {
    Binding { steers: true, twin: Some(twin), ..seen(key, shown, words, action, on) }
}

/// What steers the call that is selected beside the overview.
const fn pane(
    key: &'static [Key],
    shown: &'static str,
    words: &'static str,
    action: Action,
    twin: &'static str,
) -> Binding {
    Binding { at_foot: false, ..steer(key, shown, words, action, &[Upstreams], twin) }
}

const fn twin(binding: Binding, twin: &'static str) -> Binding {
    Binding { twin: Some(twin), ..binding }
}

/// See the module's documentation. In the order in which help shows it.
pub const BINDINGS: &[Binding] = &[
    seen(&[Code(KeyCode::Enter), Char('o')], "Enter", "open", Action::Open, LISTS),
    seen(&[Code(KeyCode::Tab)], "Tab", "pane", Action::NextPane, &[Upstreams]),
    helped(&[Char('z')], "z", "zoom: one pane or all", Action::Zoom, &[Upstreams]),
    seen(&[Char('/')], "/", "filter", Action::Filter, LISTS),
    seen(&[Char('>'), Char('.')], "<>", "sort", Action::SortRight, SORTED),
    helped(&[Char('<'), Char(',')], "<", "sort: one to the left", Action::SortLeft, SORTED),
    helped(&[Char('i')], "i", "invert the order", Action::Invert, SORTED),
    helped(&[Char(' ')], "Space", "mark a call", Action::Mark, &[Requests, Upstream, Upstreams]),
    steer(&[Char('c')], "c", "cancel", Action::Cancel, &[Requests, Upstream, Request], "forebay cancel ID"),
    steer(&[Char('c')], "c", "cancel all", Action::Cancel, &[Upstreams], "forebay cancel --upstream UPSTREAM"),
    steer(
        &[Char('c'), Char('C')],
        "C",
        "cancel all",
        Action::CancelCaller,
        &[Callers],
        "forebay cancel --caller CALLER",
    ),
    steer(
        &[Char('C')],
        "C",
        "cancel caller's",
        Action::CancelCaller,
        CALLS,
        "forebay cancel --caller CALLER --upstream UPSTREAM",
    ),
    steer(
        &[Char('+'), Char('=')],
        "+",
        "raise priority",
        Action::Raise,
        &[Requests, Upstream, Request],
        "forebay edit ID --priority high",
    ),
    steer(
        &[Char('-')],
        "-",
        "lower priority",
        Action::Lower,
        &[Requests, Upstream, Request],
        "forebay edit ID --priority low",
    ),
    steer(
        &[Char('t')],
        "t",
        "add time",
        Action::Extend,
        &[Requests, Upstream, Request],
        "forebay edit ID --deadline +30s",
    ),
    pane(&[Char('+'), Char('=')], "+", "raise priority", Action::Raise, "forebay edit ID --priority high"),
    pane(&[Char('-')], "-", "lower priority", Action::Lower, "forebay edit ID --priority low"),
    pane(&[Char('t')], "t", "add time", Action::Extend, "forebay edit ID --deadline +30s"),
    steer(&[Char('p')], "p", "pause", Action::Pause, OF_UPSTREAM, "forebay upstream pause UPSTREAM"),
    twin(helped(&[], "p", "resume a held one", Action::Pause, OF_UPSTREAM), "forebay upstream resume UPSTREAM"),
    steer(&[Char('d')], "d", "drain", Action::Drain, OF_UPSTREAM, "forebay upstream drain UPSTREAM"),
    steer(&[Char('r')], "r", "restart", Action::Restart, OF_UPSTREAM, "forebay upstream restart UPSTREAM"),
    steer(&[Char('l')], "l", "limits", Action::Limits, OF_UPSTREAM, "forebay upstream set UPSTREAM max_concurrent=3"),
    twin(
        helped(&[], "l ^S", "limits, saved to file", Action::Limits, OF_UPSTREAM),
        "forebay upstream set UPSTREAM max_concurrent=3 --save",
    ),
    seen(&[Char('e')], "e", "stderr", Action::Stderr, &[Upstreams, Upstream]),
    seen(&[Char('n')], "n", "next", Action::Next, &[Request]),
    seen(&[Char('N')], "N", "previous", Action::Previous, &[Request]),
    seen(&[Char('L')], "L", "level", Action::Level, &[Events]),
    seen(&[Char('F')], "F", "follow", Action::Follow, &[Events]),
    seen(&[Char('w')], "w", "write to file", Action::Write, &[Events, Stderr]),
    twin(helped(&[Char('1')], "1", "upstreams", Action::Go(Upstreams), ALL), "forebay status"),
    twin(helped(&[Char('2')], "2", "requests", Action::Go(Requests), ALL), "forebay ps"),
    twin(helped(&[Char('3')], "3", "callers", Action::Go(Callers), ALL), "forebay callers"),
    twin(helped(&[Char('4')], "4", "events", Action::Go(Events), ALL), "forebay events --follow"),
    twin(helped(&[], "Enter", "why a call waits", Action::Open, &[Requests, Upstream]), "forebay why ID"),
    twin(helped(&[], "Enter", "why an upstream is full", Action::Open, &[Upstreams]), "forebay why UPSTREAM"),
    seen(&[Char('f')], "f", "freeze", Action::Freeze, ALL),
    seen(&[Char('y')], "y", "copy id", Action::Copy, ALL),
    helped(&[Char('j'), Code(KeyCode::Down)], "j", "down", Action::Move(Move::Down), MOVED),
    helped(&[Char('k'), Code(KeyCode::Up)], "k", "up", Action::Move(Move::Up), MOVED),
    helped(&[Char('g'), Code(KeyCode::Home)], "gg", "first", Action::Move(Move::First), MOVED),
    helped(&[Char('G'), Code(KeyCode::End)], "G", "last", Action::Move(Move::Last), MOVED),
    helped(&[Ctrl('d')], "^D", "half a page down", Action::Move(Move::HalfDown), MOVED),
    helped(&[Ctrl('u')], "^U", "half a page up", Action::Move(Move::HalfUp), MOVED),
    helped(&[Code(KeyCode::PageDown), Ctrl('f')], "PgDn", "a page down", Action::Move(Move::PageDown), MOVED),
    helped(&[Code(KeyCode::PageUp), Ctrl('b')], "PgUp", "a page up", Action::Move(Move::PageUp), MOVED),
    helped(&[Ctrl('r')], "^R", "connect again at once", Action::Retry, ALL),
    helped(&[Ctrl('l')], "^L", "draw afresh", Action::Redraw, ALL),
    helped(&[Ctrl('z')], "^Z", "suspend", Action::Suspend, ALL),
    seen(&[Code(KeyCode::Esc), Code(KeyCode::Backspace)], "Esc", "back", Action::Back, ALL),
    seen(&[Char('?'), Char('h'), Code(KeyCode::F(1))], "?", "help", Action::Help, ALL),
    seen(&[Char('q'), Ctrl('c')], "q", "quit", Action::Quit, ALL),
];

/// The short words of the screens, and the name behind each.
pub const LABELS: &[(&str, &str)] = &[
    ("RUN a/b", "running / max_concurrent"),
    ("WAIT a/b", "queued / queue_size; in a call's row: state queued, or its position"),
    ("CXL?", "lingering: over for its caller, not yet ended by the upstream; takes a slot"),
    ("SHED", "refused, displaced or expired"),
    ("OLDEST, LIMIT", "oldest_wait_ms, queue_timeout"),
    ("PRI H N L", "lane high, normal, low"),
    ("AGE, WAITED", "age_ms, queued_ms"),
    ("DEADLINE", "deadline_ms: time left to wait, to run, or to linger"),
    ("PRESSURE", "the larger of queued/queue_size and oldest wait/queue_timeout"),
    ("FULL, SLOW", "saturated: nothing more fits in the queue, or it is nearly full; or degraded"),
];
