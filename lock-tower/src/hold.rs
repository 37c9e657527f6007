//! The locks that a request holds, and the work that runs under them. A hold is a granted lock,
//! from its grant to its release or loss.
//!
//! `AcquireKeys` waits for the locks of a request. Each granted lock becomes a `HoldRecord` in the
//! request's `HoldRegistry`. `LayerHolds` are the locks that one layer keeps and releases, and a
//! `Section` runs the layer's work under them. A `LockHandle` gives the handler access to a lock.

pub(crate) mod acquire;
#[cfg(feature = "http")]
pub(crate) mod detach;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod layer_holds;
pub(crate) mod loss;
pub(crate) mod new_holds;
pub(crate) mod place;
pub(crate) mod record;
pub(crate) mod registry;
mod release;
mod request_log;
pub(crate) mod section;
