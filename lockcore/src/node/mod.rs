//! The driver of this process's half of the protocol, which is [`proto::node`].
//!
//! [`driver`] carries out the decisions of the core; all other modules serve it.

mod alarm;
mod background;
mod clock;
mod driver;
mod flight;
mod flights;
mod foreign;
mod handle;
mod hold_cell;
mod observe;
#[cfg(test)]
mod tests;

pub(crate) use alarm::{Bounded, alarm};
pub(crate) use clock::later;
pub(crate) use driver::{Driver, Inbox, Settings};
pub(crate) use flight::Request as Flight;
pub(crate) use handle::Node;
pub(crate) use hold_cell::HoldCell;
