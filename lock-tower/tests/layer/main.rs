//! `LockLayer` around a service that the test answers by hand, on a store in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

mod body;
mod bounds;
mod cancel;
mod events;
mod keys;
mod lost;
mod options;
mod order;
mod ready;
mod share;
mod support;
