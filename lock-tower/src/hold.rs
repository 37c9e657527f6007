//! The holds of a request, and the work under them.
//!
//! `AcquireKeys` acquires the locks of a request. The holds go into the request's `HoldRegistry`,
//! one `HoldRecord` each. A layer keeps its holds as `LayerHolds`, and a `Section` runs the layer's
//! work under these. A `LockHandle` gives the handler access to a hold.

pub(crate) mod acquire;
#[cfg(feature = "http")]
pub(crate) mod detach;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod layer_holds;
pub(crate) mod loss;
pub(crate) mod place;
pub(crate) mod record;
pub(crate) mod registry;
mod release;
mod request_log;
pub(crate) mod section;
