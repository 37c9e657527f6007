//! The node on stores in memory that a test disturbs: messages that are lost, clocks that jump,
//! answers in another order.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::api::guard::LockGuard;
use crate::api::locks::Locks;
use crate::types::error::LockError;

mod busy;
mod clocks;
mod overtaken;
mod unheard;

/// Nothing that a test waits for takes longer, or waits for the end of a default lease.
const SOON: Duration = Duration::from_secs(20);

type Waiting = JoinHandle<Result<LockGuard, LockError>>;

/// Starts to wait; in the queue as the last of `length` when this returns.
async fn wait_as(length: usize, locks: &Locks, key: &str) -> Waiting {
    let waiting = tokio::spawn(locks.lock(key));
    let queued = async {
        while locks.inspect(key).await.expect("an inspection").waiters.len() != length {
            sleep(Duration::from_millis(5)).await;
        }
    };
    soon(queued).await;
    waiting
}

/// The guard of an acquisition that ends soon.
async fn granted(waiting: Waiting) -> LockGuard {
    soon(waiting).await.expect("no panic").expect("granted")
}

/// Whatever it is, it ends soon, and by itself: the look that a timeout takes at its end does not
/// count.
async fn soon<F: IntoFuture>(future: F) -> F::Output {
    let started = Instant::now();
    let end = timeout(SOON, future).await.expect("an end in time");
    assert!(started.elapsed() < SOON - Duration::from_millis(100), "ended, but none was woken");
    end
}
