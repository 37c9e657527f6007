//! `LockLayer`, for services with any request type, and `Locking`, the state machine that waits for
//! a request's locks and calls the inner service; the layer for HTTP uses it too.

mod call;
pub(crate) mod carry;
pub(crate) mod future;
pub(crate) mod layer;
pub(crate) mod locking;
pub(crate) mod service;

pub use carry::CarryHandle;
pub use future::LockFuture;
pub use layer::LockLayer;
pub use service::Lock;
