//! `LockScopeLayer`, which keeps the locks that extractors and handlers acquire.

pub(crate) mod future;
pub(crate) mod layer;
pub(crate) mod service;

pub use future::LockScopeFuture;
pub use layer::LockScopeLayer;
pub use service::LockScope;
