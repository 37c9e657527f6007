//! `LockScopeLayer`: keeps the locks acquired further inside.

pub(crate) mod future;
pub(crate) mod layer;
pub(crate) mod service;

pub use future::LockScopeFuture;
pub use layer::LockScopeLayer;
pub use service::LockScope;
