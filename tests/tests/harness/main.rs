//! The harness itself: that its faults are what they say they are.

mod leash;
mod monitor;
mod proxy;
mod server;
