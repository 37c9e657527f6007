//! `IdempotencyLayer` on in-memory stores.
#![allow(clippy::unwrap_used, reason = "tests")]

mod body;
mod cancel;
mod kept;
mod lost;
#[cfg(feature = "metrics")]
mod metrics;
mod properties;
mod ready;
mod replay;
mod setup;
mod sockets;
mod store;
mod support;
mod unanswered;
