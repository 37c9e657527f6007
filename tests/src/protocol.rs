//! The protocol on a server, without a store between: scripts by their calls, and all that a server
//! keeps of one lock as the state of the function that says the same.

mod call;
pub mod queue;
pub mod redisson;

pub use call::{Script, answers, ask, by_script, error_of, layout, run};

/// The first part of the channels on which nodes are told of grants.
pub const PREFIX: &str = "lockcore";
