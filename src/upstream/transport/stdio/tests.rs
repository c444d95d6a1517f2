//! The transport alone against a real child, `forebay-test-upstream`: the tests stand in for the actor.

mod cancel;
mod handshake;
mod hostile;
mod life;
mod pool;
mod rig;
mod with_actor;
