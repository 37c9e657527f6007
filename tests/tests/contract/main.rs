//! The promises of a `Locks`, on every store: each fact on the in-memory store, on Redis, on a
//! primary behind sentinels, and on a Redis Cluster. `replaced` has the facts that still hold while
//! such a primary is replaced, over and over.

/// Creates six tests from each function: on the in-memory store, on a dedicated server, in a
/// database on a primary behind sentinels, in a namespace on a Redis Cluster, and on two quorums:
/// of in-memory stores, and in a database on each of three servers.
///
/// Not on the Cluster: facts about namespaces, and about locks shared with JVMs. Not on a quorum:
/// facts about permits, the tokens of reads, batches and downgrades, and facts with a reason given
/// beside them.
macro_rules! on_every_store {
    ($($fact:ident),+ $(,)?
        $(; not_on_a_cluster: $($named:ident),+ $(,)?)?
        $(; not_by_a_quorum: $($alone:ident),+ $(,)?)?
    ) => {
        on_store! { in_memory, Backend::memory(); $($fact,)+ $($($named,)+)? $($($alone,)+)? }
        on_store! { on_redis, Backend::redis(); $($fact,)+ $($($named,)+)? $($($alone,)+)? }
        on_store! {
            over_sentinel, Backend::sentinel().await; $($fact,)+ $($($named,)+)? $($($alone,)+)?
        }
        on_store! { on_a_cluster, Backend::cluster().await; $($fact,)+ $($($alone,)+)? }
        on_store! { by_a_quorum_in_memory, Backend::memory_quorum(); $($fact,)+ }
        on_store! { by_a_quorum, Backend::quorum().await; $($fact,)+ }
    };
    (; not_by_a_quorum: $($alone:ident),+ $(,)?) => {
        on_store! { in_memory, Backend::memory(); $($alone,)+ }
        on_store! { on_redis, Backend::redis(); $($alone,)+ }
        on_store! { over_sentinel, Backend::sentinel().await; $($alone,)+ }
        on_store! { on_a_cluster, Backend::cluster().await; $($alone,)+ }
    };
}

/// Creates a test from each function, on one store.
macro_rules! on_store {
    ($store:ident, $backend:expr; $($fact:ident,)+) => {
        mod $store {
            use crate::backend::{Backend, in_time};
            $(
                #[tokio::test]
                async fn $fact() {
                    let backend = $backend;
                    in_time(super::$fact(&backend)).await
                }
            )+
        }
    };
}

mod activity;
mod backend;
mod batches;
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
mod processes;
mod replaced;
mod runtime;
mod section;
mod set;
mod sharing;
mod shedding;
mod shutdown;
mod spans;
mod survey;
mod trace_links;
