//! A Redis Cluster of real servers: the server of each lock, moving slots, failing primaries, and
//! refusals.

mod addresses;
mod away;
mod common;
mod failover;
mod frozen;
mod moved;
mod opening;
mod refused;
mod served;
mod status;
