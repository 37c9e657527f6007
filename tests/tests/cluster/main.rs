//! A Redis Cluster by real servers: the server of each lock, slots that move, primaries that fail,
//! and refusals.

mod common;
mod failover;
mod frozen;
mod moved;
mod refused;
mod served;
mod status;
