//! The transport against servers on loopback: a hostile one that writes bytes as told, and the test upstream.

mod calls;
mod cancel;
mod hostile;
mod link;
mod rig;
mod tls;
mod upstream;
