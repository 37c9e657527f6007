//! `LockLayer`, for services of any request, and the state machine of a request whose key is known
//! first.

mod call;
pub(crate) mod carry;
pub(crate) mod future;
pub(crate) mod layer;
pub(crate) mod locking;
pub(crate) mod service;
