//! Tests of a renewal that its release overtakes. This happens when the server loses the scripts
//! while both are in flight: each is then sent a second time, and not always in the same order.

use std::sync::Arc;

use futures_util::FutureExt as _;
use proto::Command;
use proto::node::RequestGroup;
use tokio::sync::Notify;

use super::{Deaf, soon};
use crate::api::builder::new_node;
use crate::api::locks::Locks;
use crate::node::Inbox;
use crate::store::memory::MemoryStore;
use crate::store::{Store, Then};

/// A store that runs the first renewal after the release, and replies to the renewal first.
#[derive(Clone, Debug)]
struct Overtaking {
    store: Arc<dyn Store>,
    asked: Arc<Notify>,
    released: Arc<Notify>,
    renewed: Arc<Notify>,
}

impl Overtaking {
    /// Creates the store, and the `Locks` of a node on it.
    fn start() -> (Self, Locks) {
        let node = new_node();
        let store = MemoryStore::new().connect(node.clone(), Arc::new(Deaf));
        let [asked, released, renewed] = [(); 3].map(|()| Arc::default());
        let store = Self { store, asked, released, renewed };
        let locks = Locks::builder().build(Arc::new(store.clone()), node, &Inbox::default());
        (store, locks)
    }
}

impl Store for Overtaking {
    fn now_us(&self) -> u64 {
        self.store.now_us()
    }

    fn send(&self, group: RequestGroup, then: Then) {
        let (asked, released) = (Arc::clone(&self.asked), Arc::clone(&self.released));
        let renewed = Arc::clone(&self.renewed);
        match group[0].command {
            Command::Release { .. } => {
                released.notify_one();
                let then = async move |group, replied| {
                    renewed.notified().await;
                    // On one thread: let the notified task run before this continues.
                    for _ in 0..10 {
                        tokio::task::yield_now().await;
                    }
                    then.take(group, replied);
                };
                let later = move |group, replied| drop(tokio::spawn(then(group, replied)));
                self.store.send(group, Then::call(later));
            }
            Command::Renew { .. } => {
                let store = Arc::clone(&self.store);
                tokio::spawn(async move {
                    asked.notify_one();
                    released.notified().await;
                    let then = move |group, replied| {
                        then.take(group, replied);
                        renewed.notify_one();
                    };
                    store.send(group, Then::call(then));
                });
            }
            _ => self.store.send(group, then),
        }
    }

    delegate_to_store!();
}

// The release of a hold must not depend on a poll of the returned future.
#[tokio::test(start_paused = true)]
async fn a_release_is_on_its_way_when_the_call_returns() {
    let (store, locks) = Overtaking::start();
    let guard = locks.lock("k").await.expect("the lock is free");
    let releasing = guard.release();
    assert!(store.released.notified().now_or_never().is_some(), "nothing was sent");
    store.renewed.notify_one();
    soon(releasing).await.expect("it was held until it was given back");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_overtaken_by_its_release_does_not_call_the_hold_lost() {
    let (store, locks) = Overtaking::start();
    let guard = locks.lock("k").await.expect("the lock is free");
    soon(store.asked.notified()).await;
    soon(guard.release()).await.expect("it was held until it was given back");
}
