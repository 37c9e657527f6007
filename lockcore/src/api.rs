//! The public API: `Locks` and its builder, requests, acquisition futures and guards.

pub(crate) mod acquire;
pub(crate) mod builder;
pub(crate) mod guard;
pub(crate) mod layout;
pub(crate) mod locks;
pub(crate) mod request;
pub(crate) mod set;
pub(crate) mod shutdown;
