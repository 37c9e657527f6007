//! Records on Redis: the steps of a store on both stores, and the layer over two processes' nodes.
#![allow(clippy::unwrap_used, reason = "tests")]

mod clustered;
mod layer;
mod malformed;
mod processes;
mod round_trips;
mod steps;
mod support;
