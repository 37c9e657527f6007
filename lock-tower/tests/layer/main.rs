//! `LockLayer` around a service driven by the test, and `LockScopeLayer`. The locks are in memory;
//! on a server if a test has to keep a message from a client.
#![allow(clippy::unwrap_used, reason = "tests")]

mod body;
mod bounds;
mod busy;
mod cancel;
mod deadline;
mod events;
mod forms;
mod keys;
mod lost;
mod options;
mod order;
mod ready;
mod scope;
mod share;
mod support;
mod switch;
mod trace;
