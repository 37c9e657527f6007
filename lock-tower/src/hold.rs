//! The holds of a request, and the work under them.
//!
//! A `Claim` acquires the locks of a request. They go into its list, `Holds`. Each layer has a
//! `Share` of that list, and a `Section` runs the layer's work under its share. A `LockHandle` is
//! what the handler sees of one hold.

pub(crate) mod claim;
#[cfg(feature = "http")]
pub(crate) mod detach;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod held;
pub(crate) mod holds;
mod journal;
pub(crate) mod loss;
mod release;
pub(crate) mod section;
pub(crate) mod share;
