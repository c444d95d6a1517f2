//! Whole-binary stories: the built daemon, scripted servers behind it, clients of every era before it.
//!
//! One file a promise. Narrower tests lie beside the code they test; third-party clients are in
//! `tests/interop`.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "tests say by panicking that something is wrong")]

mod support;

mod bridge;
mod builtin;
mod bytes;
mod cancel;
mod cli;
mod commands;
mod deadlines;
mod limits;
mod overload;
mod reload;
mod repository;
mod restart;
mod run;
mod shutdown;
mod stdio;
