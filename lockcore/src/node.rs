//! The driver of this process's half of the protocol, which is [`proto::node`].
//!
//! [`driver`] carries out the decisions of the core; all other modules serve it.

mod background;
mod clock;
mod deadline;
mod driver;
mod foreign;
mod handle;
mod hold_cell;
mod observe;
mod refusal_pace;
#[cfg(test)]
mod tests;

pub(crate) use clock::later;
pub(crate) use deadline::{TimedRequest, silent, timer};
pub(crate) use driver::{Driver, Inbox, Settings};
pub(crate) use handle::Node;
pub(crate) use hold_cell::HoldCell;
#[cfg(feature = "metrics")]
pub(crate) use observe::ClassMetrics;
pub(crate) use observe::cause_of;
