//! Sentinel: a node finds the primary by its sentinels, and follows it.

mod asked;
mod behind;
mod common;
mod failover;
