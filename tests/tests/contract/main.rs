//! What a `Locks` promises, whatever it stands on: each fact on the store in memory and on Redis.

/// Makes two tests of each function: one on the store in memory, one on a server of its own.
macro_rules! on_both_stores {
    ($($fact:ident),+ $(,)?) => {
        mod in_memory {
            use crate::backend::{Backend, in_time};
            $(#[tokio::test] async fn $fact() { in_time(super::$fact(&Backend::memory())).await })+
        }
        mod on_redis {
            use crate::backend::{Backend, in_time};
            $(#[tokio::test] async fn $fact() { in_time(super::$fact(&Backend::redis())).await })+
        }
    };
}

mod backend;
mod cancellation;
mod connection;
mod foreign;
mod grant;
mod guard;
mod inspection;
mod key;
mod lease;
mod limit;
mod loss;
mod memory;
mod moving;
mod order;
mod place;
mod runtime;
mod section;
mod set;
mod sharing;
mod shutdown;
