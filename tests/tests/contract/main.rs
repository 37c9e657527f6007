//! The promises of a `Locks`, on every store: each fact on the store in memory, on Redis, on a
//! primary that sentinels watch, and on a Redis Cluster. `replaced` has the facts that still hold
//! while such a primary is replaced, over and over.

/// Makes six tests of each function: one on the store in memory, one on a server of its own, one in
/// a database of its own on a primary that sentinels watch, one in a namespace of its own on a
/// Redis Cluster, and one by each of two quorums: of stores in memory, and in a database of its own
/// of three servers.
///
/// Not on the Cluster: facts about namespaces, and about locks that JVMs share. Not by a quorum:
/// facts about permits, the tokens of reads, runs and downgrades, and those whose reason stands
/// with them.
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

/// Makes a test of each function on one store.
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
