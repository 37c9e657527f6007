//! `LockLayer` around a service that the test answers by hand, and `LockScopeLayer`, on a store in
//! memory.
#![allow(clippy::unwrap_used, reason = "tests")]

mod body;
mod bounds;
mod cancel;
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
