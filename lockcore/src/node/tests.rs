//! Tests of nodes on in-memory stores with faults: lost messages, clock jumps, reordered replies.

use std::time::Duration;

use proto::Event;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::api::guard::LockGuard;
use crate::api::locks::Locks;
use crate::store::Listener;
use crate::types::error::LockError;

/// The methods of a [`Store`](crate::store::Store) that a stub leaves to the store in its field.
macro_rules! delegate_to_store {
    () => {
        fn ping(&self) -> crate::store::StoreFuture<()> {
            self.store.ping()
        }

        fn commands(&self) -> tokio::sync::watch::Receiver<proto::Link> {
            self.store.commands()
        }

        fn subscription(&self) -> tokio::sync::watch::Receiver<proto::Link> {
            self.store.subscription()
        }

        fn reopen_subscription(&self) {
            self.store.reopen_subscription();
        }

        fn close(&self) {
            self.store.close();
        }
    };
}

mod away;
mod busy;
mod clocks;
mod ended;
mod fenced;
mod foreign;
mod missed;
mod overtaken;
mod refused;
mod sets;
mod slow;
mod unanswered;
mod unheard;

/// Longest time that a test waits for anything, shorter than a default lease.
const SOON: Duration = Duration::from_secs(20);

type Waiting = JoinHandle<Result<LockGuard, LockError>>;

/// A listener that ignores all events.
struct Deaf;

impl Listener for Deaf {
    fn hear(&self, _event: Event) {}
}

/// Starts a waiter, and returns once it is the last of `length` waiters in the queue.
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

/// Returns the guard of an acquisition that must be granted soon.
async fn granted(waiting: Waiting) -> LockGuard {
    soon(waiting).await.expect("no panic").expect("granted")
}

/// Awaits a future that must complete soon and by its own wake-up. The last poll does not suffice,
/// because the timeout makes it without a wake-up.
async fn soon<F: IntoFuture>(future: F) -> F::Output {
    let started = Instant::now();
    let end = timeout(SOON, future).await.expect("an end in time");
    assert!(started.elapsed() < SOON - Duration::from_millis(100), "ended, but none was woken");
    end
}
