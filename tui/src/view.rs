//! Drawing: pure functions from state, size and moment to a frame. No clock, no I/O. One file a screen.

mod callers;
mod chrome;
mod dialog;
mod events;
mod help;
mod measured;
mod paint;
mod print;
mod request;
mod requests;
mod stderr;
mod table;
#[cfg(test)]
mod tests;
mod upstream;
mod upstreams;
mod words;

pub use measured::overview;
pub use paint::{Look, Palette};
pub use print::print;
pub use words::lane_word;

use crate::state::{Drawn, Link, Model, Moment, Overlay, Room, Screen, State};
use ratatui::Frame;
use ratatui::layout::Rect;

/// What every screen is drawn from.
#[derive(Clone, Copy)]
struct View<'a> {
    state: &'a State,
    /// What is shown, which is not what is while the picture is frozen.
    model: &'a Model,
    look: Look,
    now: Moment,
    /// The moment that is shown.
    clock: Moment,
    room: Room,
}

/// Draws what is on the screen into whatever room there is, and says what came where.
pub fn draw(frame: &mut Frame<'_>, state: &State, look: Look, now: Moment) -> Drawn {
    let area = frame.area();
    let room = Room::of(area.width, area.height);
    let mut drawn = Drawn { room, ..Drawn::default() };
    if area.is_empty() {
        return drawn;
    }
    let view = View { state, model: state.shown(), look, now, clock: state.clock(now), room };
    if room == Room::Line {
        chrome::one_line(&view, frame, area);
        return drawn;
    }
    let body = chrome::draw(&view, frame, area, &mut drawn);
    match state.screen() {
        Screen::Upstreams => upstreams::draw(&view, frame, body, &mut drawn),
        Screen::Requests | Screen::OfCaller(_) => requests::draw(&view, frame, body, &mut drawn),
        Screen::Callers => callers::draw(&view, frame, body, &mut drawn),
        Screen::Events => events::draw(&view, frame, body, &mut drawn),
        Screen::Upstream(name) => upstream::draw(&view, name, frame, body, &mut drawn),
        Screen::Request(id) => request::draw(&view, id, frame, body, &mut drawn),
        Screen::Stderr(name) => stderr::draw(&view, name, frame, body, &mut drawn),
    }
    if matches!(state.link, Link::Lost { .. }) {
        frame.buffer_mut().set_style(body, look.stale());
    }
    match &state.overlay {
        Some(Overlay::Help { top }) => help::draw(&view, *top, frame, area),
        Some(Overlay::Confirm(confirm)) => dialog::confirm(&view, confirm, frame, area),
        Some(Overlay::Limits(form)) => dialog::limits(&view, form, frame, area),
        Some(Overlay::Filter { .. }) | None => {}
    }
    drawn
}

/// The part of an area from so many lines down, of at most so many lines.
fn lines(area: Rect, down: u16, height: u16) -> Rect {
    let down = down.min(area.height);
    Rect { y: area.y + down, height: height.min(area.height - down), ..area }
}

/// The part of an area from so many columns on, of at most so many columns.
fn columns(area: Rect, from: u16, width: u16) -> Rect {
    let from = from.min(area.width);
    Rect { x: area.x + from, width: width.min(area.width - from), ..area }
}
