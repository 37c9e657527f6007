//! The node: this process's half of the protocol, as one state machine without I/O, and what drives
//! it.
//!
//! [`core`] decides, [`driver`] does; everything else here serves one of them.

mod alarm;
mod background;
mod batch;
mod clock;
mod core;
mod driver;
mod effect;
mod entry;
mod flight;
mod flights;
mod foreign;
mod handle;
mod lease;
mod moment;
mod observe;
mod seat;

pub use self::core::{Core, Counts, Outcome};
#[cfg(feature = "unstable-internals")]
pub use self::core::{Due, Phase, Rules};
pub(crate) use alarm::{Bounded, alarm};
pub(crate) use clock::later;
pub(crate) use driver::{Driver, Inbox, Settings};
#[cfg(feature = "unstable-internals")]
pub use effect::Effect;
pub use effect::{Ask, Note};
#[cfg(feature = "unstable-internals")]
pub use entry::Seat;
pub use entry::{Refusal, Request};
pub(crate) use flight::Request as Flight;
pub(crate) use handle::Node;
pub use moment::Moment;
pub(crate) use seat::Shared;
