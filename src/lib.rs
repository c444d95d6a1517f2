//! forebay stands between MCP clients and MCP servers. Every server ("upstream") is an actor that owns an
//! explicit bounded queue of calls; a dispatcher routes calls to the actors; the actors run, refuse,
//! displace, expire and cancel them by stated rules.
//!
//! The path of a call, in reading order:
//!
//! [`ingress`] (bytes to a [`call::Call`]) -> [`caller`] (who) -> [`dispatcher`] (routes, knows every live
//! call) -> [`upstream`] (submit ring, actor, [`upstream::queue`], worker, [`upstream::transport`]) ->
//! [`outcome`] -> the call's ticket -> [`ingress`] (outcome to bytes).

pub mod protocol;

pub mod call;
pub mod caller;
pub mod ledger;
pub mod limits;
pub mod outcome;

pub mod ingress;

pub mod dispatcher;
pub mod events;

pub mod upstream;

pub mod admin;
pub mod app;
pub mod bridge;
pub mod cli;
pub mod config;
pub mod demo;
pub mod hooks;
mod house;
pub mod reload;
pub mod run;
pub mod shutdown;
pub mod snapshot;
pub mod telemetry;

mod sync;
