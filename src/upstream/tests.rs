//! The actor and what is around it, with a scripted connection, on a paused clock and one thread.

mod calls;
mod chaos;
mod ledger;
mod limits;
mod link;
mod lists;
mod overload;
mod restart;
mod rig;
mod slots;
