//! Tests of `RedisReplays`: the store operations on both stores, and the layer in two processes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod clustered;
mod layer;
mod malformed;
mod processes;
mod refused;
mod round_trips;
mod silent;
mod steps;
mod support;
