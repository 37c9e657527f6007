//! Records on Redis: store operations on both stores, and the layer with the nodes of two
//! processes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod clustered;
mod layer;
mod malformed;
mod processes;
mod round_trips;
mod steps;
mod support;
