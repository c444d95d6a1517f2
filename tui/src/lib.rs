//! forebay's terminal screens, and the client of the admin API that they and the commands share.
//!
//! [`connection`] follows the daemon and carries questions and answers, [`state`] is what the screens know,
//! [`input`] says what keys mean, [`update`] is the pure step from one state to the next, [`view`] draws (a pure
//! function of state and size), [`app`] is the loop around them, [`term`] takes and gives back the terminal.
//! [`client`] sends single requests. [`text`] is the one door through which text from outside reaches a terminal.

pub mod app;
pub mod client;
pub mod connection;
pub mod input;
#[cfg(test)]
mod sample;
pub mod state;
pub mod term;
pub mod text;
pub mod update;
pub mod view;
