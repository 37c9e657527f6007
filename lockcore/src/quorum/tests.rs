//! Tests of locks on a quorum of in-memory stores.

mod clocks;
mod dice;
mod holding;
mod network;
mod observing;
mod refusals;
mod shutdown;
mod waits;
mod walk;
mod zones;

use std::time::Duration;

use tokio::time::timeout;

use self::network::{MAX_LEASE, Network};
use crate::api::guard::LockGuard;
use crate::api::locks::Locks;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Awaits a future that must complete by itself, within two minutes of virtual time.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(ms(120_000), future).await.expect("it ends")
}

/// Returns the indices of the primaries at which the name is held.
async fn held_at(network: &Network) -> Vec<usize> {
    let mut held = Vec::new();
    for (at, store) in network.primaries.iter().enumerate() {
        let operator = Locks::builder().on_memory(store).expect("options");
        if !operator.inspect("k").await.expect("an inspection").holders.is_empty() {
            held.push(at);
        }
    }
    held
}

async fn locked(network: &Network, process: usize) -> LockGuard {
    let request = network.locks(process).key("k").lease(MAX_LEASE).wait(ms(20_000));
    request.lock().await.expect("granted")
}

/// Locks the name at one primary for a stranger who never releases it, like a dead process.
async fn leak(network: &Network, primary: usize) {
    let stranger = Locks::builder().on_memory(&network.primaries[primary]).expect("options");
    stranger.lock("k").await.expect("free").leak();
}

/// Releases the lock by force at one primary, as if the server had evicted the key.
async fn evict(network: &Network, primary: usize) {
    let operator = Locks::builder().on_memory(&network.primaries[primary]).expect("options");
    operator.force_release("k").await.expect("an answer");
}
