//! The node: this process's half of the protocol, as one state machine without I/O, and what drives it.
//!
//! [`core`] decides, [`driver`] does; everything else here serves one of them.

mod alarm;
mod background;
mod calling;
mod clock;
mod core;
mod driver;
mod effect;
mod entry;
mod flight;
mod lease;
mod moment;
mod seat;

pub use self::core::{Core, Counts, Outcome};
#[cfg(feature = "unstable-internals")]
pub use self::core::{Due, Phase, Rules};
pub(crate) use alarm::{Bounded, alarm, is_driven};
pub(crate) use clock::later;
pub(crate) use driver::{Driver, Inbox, Node, Settings};
pub use effect::{Ask, Effect, Note};
#[cfg(feature = "unstable-internals")]
pub use entry::Seat;
pub use entry::{Refusal, Request};
pub(crate) use flight::Request as Flight;
pub use moment::Moment;
pub(crate) use seat::Shared;
