//! A Redis Cluster by real servers: which server serves which lock, slots that move, primaries that
//! fail, and what is refused.

mod common;
mod failover;
mod moved;
mod refused;
mod served;
