//! `LockLayer` around a service that the test answers by hand, and `LockScopeLayer`, on a store in
//! memory; on a server where a message has to be kept from its node.
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
