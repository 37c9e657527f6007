//! The harness itself: that its faults are as their documentation says.

mod leash;
mod monitor;
mod proxy;
mod server;
