//! The promises of a `Locks`, on every store: each fact on the store in memory, on Redis, and on a
//! primary that sentinels watch. `replaced` has the facts that still hold while such a primary is
//! replaced, over and over.

/// Makes three tests of each function: one on the store in memory, one on a server of its own, and
/// one in a database of its own on a primary that sentinels watch.
macro_rules! on_every_store {
    ($($fact:ident),+ $(,)?) => {
        mod in_memory {
            use crate::backend::{Backend, in_time};
            $(#[tokio::test] async fn $fact() { in_time(super::$fact(&Backend::memory())).await })+
        }
        mod on_redis {
            use crate::backend::{Backend, in_time};
            $(#[tokio::test] async fn $fact() { in_time(super::$fact(&Backend::redis())).await })+
        }
        mod over_sentinel {
            use crate::backend::{Backend, in_time};
            $(
                #[tokio::test]
                async fn $fact() {
                    let backend = Backend::sentinel().await;
                    in_time(super::$fact(&backend)).await
                }
            )+
        }
    };
}

mod backend;
mod cancellation;
mod connection;
mod dropped;
mod foreign;
mod grant;
mod guard;
mod inspection;
mod key;
mod lease;
mod limit;
mod loss;
mod memory;
mod metrics;
mod moving;
mod order;
mod place;
mod replaced;
mod runs;
mod runtime;
mod section;
mod set;
mod sharing;
mod shutdown;
