//! `LockLayer`, for services with any request type, and the state machine for requests whose key is
//! known at the layer.

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
