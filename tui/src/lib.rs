//! forebay's terminal screens, and the client of the admin API that they and the commands share.
//!
//! [`client`] fetches, [`state`] is what a screen knows, [`view`] draws it (a pure function of state and
//! size), [`term`] takes and gives back the terminal, [`input`] reads keys. [`text`] is the one door through
//! which text from outside reaches a terminal.

pub mod client;
pub mod input;
pub mod state;
pub mod term;
pub mod text;
pub mod view;
