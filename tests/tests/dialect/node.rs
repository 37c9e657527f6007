//! `Node`: one node's store on one lock, and all that it hears.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_tests::{Raw, eventually};
use lockcore::NodeId;
use lockcore::internals::{
    Answer, Command, Demand, Event, Label, Listener, LockName, Member, Seen, Store, StoreError,
    new_node, redis_store_as, run,
};

const SOON: Duration = Duration::from_secs(20);

/// A connected node that asks for one lock.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lock: LockName,
    /// Whether JVMs share its queues.
    peers: bool,
    /// The tokens and times that the node has seen on servers.
    pub(crate) seen: Arc<Seen>,
    heard: Arc<Heard>,
    next_number: AtomicU64,
}

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl Heard {
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Heard {
    fn hear(&self, event: Event) {
        self.events().push(event);
    }
}

impl Node {
    /// A node that shares queues with JVMs if `peers` is set.
    pub(crate) async fn connect_as(url: &str, lock: &LockName, peers: bool) -> Self {
        let (id, heard, seen) = (new_node(), Arc::new(Heard::default()), Arc::new(Seen::default()));
        let store = redis_store_as(url, id.clone(), heard.clone(), peers, seen.clone()).await;
        let store = store.expect("a store connects");
        let (lock, next_number) = (lock.clone(), AtomicU64::new(1));
        Self { id, store, lock, peers, seen, heard, next_number }
    }

    /// A new member of this node, which wants the lock.
    pub(crate) fn member(&self, lease_ms: u64) -> Member {
        self.member_for(Demand::ALONE, lease_ms)
    }

    /// A new member of this node.
    pub(crate) fn member_for(&self, demand: Demand, lease_ms: u64) -> Member {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let label = Label::new("a label");
        if self.peers {
            assert_eq!(demand, Demand::ALONE, "beside JVMs there is nothing else");
            return Member::redisson(&self.id, number, lease_ms, &label);
        }
        Member::new(&self.id, number, lease_ms, demand, &label)
    }

    /// Runs one command on the node's lock.
    pub(crate) async fn run(&self, command: Command) -> Result<Answer, StoreError> {
        run(&*self.store, &self.lock, command).await
    }

    pub(crate) fn channel(&self) -> String {
        format!("lockcore:grants:{}", self.id)
    }

    /// Everything heard since the last call. Exact: a message sent now arrives behind all others.
    pub(crate) async fn heard(&self, redis: &mut Raw) -> Vec<Event> {
        // No member has this number.
        let mark = self.next_number.fetch_add(1, Ordering::Relaxed);
        if redis.subscribers(&self.channel()).await == 0 {
            return std::mem::take(&mut *self.heard.events()); // nothing arrives at a deaf node
        }
        redis.publish(&self.channel(), &format!("r {mark}")).await;
        let end = Event::Revoked { numbers: vec![mark] };
        let arrived = async || self.heard.events().contains(&end);
        eventually("a message that was received arrives", SOON, arrived).await;
        let mut events = std::mem::take(&mut *self.heard.events());
        events.retain(|event| *event != end);
        events
    }
}
