//! The protocol on a server, without a store in between: scripts and their calls, and everything
//! that a server stores about a lock as the state of the equivalent function.

mod call;
pub mod queue;
pub mod redisson;

pub use call::{Script, answers, ask, by_script, error_of, layout, run};

/// The prefix of the channels that notify nodes of grants.
pub const PREFIX: &str = "lockcore";
