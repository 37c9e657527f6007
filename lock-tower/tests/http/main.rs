//! `HttpLockLayer` behind real sockets, in memory and on Redis.
#![allow(clippy::unwrap_used, reason = "tests")]

mod body_end;
mod cluster;
mod detach;
mod disconnect;
mod fail_open;
mod forms;
mod grpc;
mod multiplexed;
mod permits;
mod processes;
mod read_ahead;
mod refusals;
mod release;
mod status;
mod streams;
mod timing;
mod unheard;
mod waits;
