//! The promises of a `Locks`, on every store: each fact on the store in memory, on Redis, on a
//! primary that sentinels watch, and on a Redis Cluster. `replaced` has the facts that still hold
//! while such a primary is replaced, over and over.

/// Makes four tests of each function: one on the store in memory, one on a server of its own, one
/// in a database of its own on a primary that sentinels watch, and one in a namespace of its own on
/// a Redis Cluster. Not on the Cluster: facts about namespaces, and about locks that JVMs share.
macro_rules! on_every_store {
    ($($fact:ident),+ $(,)? $(; not_on_a_cluster: $($other:ident),+ $(,)?)?) => {
        mod in_memory {
            use crate::backend::{Backend, in_time};
            $(#[tokio::test] async fn $fact() { in_time(super::$fact(&Backend::memory())).await })+
            $($(
                #[tokio::test] async fn $other() { in_time(super::$other(&Backend::memory())).await }
            )+)?
        }
        mod on_redis {
            use crate::backend::{Backend, in_time};
            $(#[tokio::test] async fn $fact() { in_time(super::$fact(&Backend::redis())).await })+
            $($(
                #[tokio::test] async fn $other() { in_time(super::$other(&Backend::redis())).await }
            )+)?
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
            $($(
                #[tokio::test]
                async fn $other() {
                    let backend = Backend::sentinel().await;
                    in_time(super::$other(&backend)).await
                }
            )+)?
        }
        mod on_a_cluster {
            use crate::backend::{Backend, in_time};
            $(
                #[tokio::test]
                async fn $fact() {
                    let backend = Backend::cluster().await;
                    in_time(super::$fact(&backend)).await
                }
            )+
        }
    };
}

mod activity;
mod backend;
mod busy;
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
mod open_telemetry;
mod order;
mod place;
mod replaced;
mod runs;
mod runtime;
mod section;
mod set;
mod sharing;
mod shedding;
mod shutdown;
mod spans;
mod survey;
mod trace_links;
