//! The ticket office from the outside: the built program, over HTTP, with a real Redis if
//! available.

mod closing;
mod cluster;
mod crowd;
mod events;
mod failover;
mod faults;
mod flags;
mod hang_up;
mod line;
mod office;
mod redis;
mod repeats;
mod scratch;
mod selling;
mod sse;
mod stale;
mod waiting;
