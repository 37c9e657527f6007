//! A renewal that its own release overtakes, as happens when the server forgets the scripts while
//! both are on their way: each is then sent a second time, and not always in the same order.

use std::sync::Arc;

use futures_util::FutureExt as _;
use lockcore::MemoryStore;
use lockcore::internals::{
    Answer, Answers, Command, Event, Link, Listener, LockName, Store, StoreFuture, locks_on,
    memory_store, new_node,
};
use tokio::sync::{Notify, watch};

use crate::common::{SHORT, soon};

/// A store that runs the first renewal after the release, and answers it before the release is
/// answered.
#[derive(Debug)]
struct Overtaking {
    store: Arc<dyn Store>,
    asked: Arc<Notify>,
    released: Arc<Notify>,
    renewed: Arc<Notify>,
}

/// A listener that ignores all events.
struct Deaf;

impl Listener for Deaf {
    fn hear(&self, _event: Event) {}
}

impl Store for Overtaking {
    fn run(&self, lock: &LockName, command: &Command) -> StoreFuture<Answer> {
        let answer = self.store.run(lock, command);
        if !matches!(command, Command::Release { .. }) {
            return answer;
        }
        let released = Arc::clone(&self.released);
        let renewed = Arc::clone(&self.renewed);
        StoreFuture::pending(async move {
            released.notify_one();
            renewed.notified().await;
            // On one thread: the task that was answered gets to run before this goes on.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            answer.await
        })
    }

    fn run_together(&self, commands: &[(&LockName, &Command)]) -> StoreFuture<Answers> {
        if !matches!(commands, [(_, Command::Renew { .. }), ..]) {
            return self.store.run_together(commands);
        }
        let asked = Arc::clone(&self.asked);
        let released = Arc::clone(&self.released);
        let renewed = Arc::clone(&self.renewed);
        let store = Arc::clone(&self.store);
        let renewals: Vec<(LockName, Command)> =
            commands.iter().map(|(lock, of)| ((*lock).clone(), (*of).clone())).collect();
        StoreFuture::pending(async move {
            asked.notify_one();
            released.notified().await;
            let renewals: Vec<_> = renewals.iter().map(|(lock, of)| (lock, of)).collect();
            let answers = store.run_together(&renewals).await;
            renewed.notify_one();
            answers
        })
    }

    fn ping(&self) -> StoreFuture<()> {
        self.store.ping()
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.store.commands()
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.store.subscription()
    }

    fn reopen_subscription(&self) {
        self.store.reopen_subscription();
    }

    fn close(&self) {
        self.store.close();
    }
}

// A release must not wait until the caller polls the future of its outcome.
#[tokio::test]
async fn a_release_is_on_its_way_when_the_call_returns() {
    let node = new_node();
    let released = Arc::new(Notify::new());
    let renewed = Arc::new(Notify::new());
    let store = Overtaking {
        store: memory_store(&MemoryStore::new(), node.clone(), Arc::new(Deaf)),
        asked: Arc::default(),
        released: Arc::clone(&released),
        renewed: Arc::clone(&renewed),
    };
    let locks = locks_on(Arc::new(store), node);
    let guard = locks.lock("k").await.expect("the lock is free");
    let releasing = guard.release();
    assert!(released.notified().now_or_never().is_some(), "nothing was sent");
    renewed.notify_one();
    soon("the release", releasing).await.expect("it was held until it was given back");
}

#[tokio::test]
async fn a_renewal_overtaken_by_its_release_does_not_call_the_hold_lost() {
    let node = new_node();
    let asked = Arc::new(Notify::new());
    let store = Overtaking {
        store: memory_store(&MemoryStore::new(), node.clone(), Arc::new(Deaf)),
        asked: Arc::clone(&asked),
        released: Arc::default(),
        renewed: Arc::default(),
    };
    let locks = locks_on(Arc::new(store), node);
    let guard = locks.key("k").lease(SHORT).lock().await.expect("the lock is free");
    soon("a renewal", asked.notified()).await;
    soon("the release", guard.release()).await.expect("it was held until it was given back");
}
