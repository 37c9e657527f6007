//! Tests of the attempts behind a fast acquire that the fast path did not serve.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use proto::node::{RequestGroup, Way};
use proto::{Acquired, Answer, Answers, Command, Link, Reply};
use smallvec::smallvec;
use tokio::sync::watch;

use super::Deaf;
use crate::api::builder::new_node;
use crate::node::Inbox;
use crate::store::memory::MemoryStore;
use crate::store::{Store, StoreFuture, Then};

/// A store with a fast path, which never replies by itself: the test does.
#[derive(Clone, Debug)]
struct Held {
    /// Only for the connection states, which are up.
    store: Arc<dyn Store>,
    sent: Arc<Mutex<Sent>>,
}

/// The request groups that a node has sent, in order.
#[derive(Default)]
struct Sent(Vec<(RequestGroup, Option<Then>)>);

impl std::fmt::Debug for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sent").finish_non_exhaustive()
    }
}

impl Store for Held {
    fn now_us(&self) -> u64 {
        self.store.now_us()
    }

    fn send(&self, group: RequestGroup, then: Then) {
        self.sent.lock().expect("no panic").0.push((group, Some(then)));
    }

    fn has_fast_path(&self) -> bool {
        true
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

    fn reopen_subscription(&self) {}

    fn close(&self) {}
}

// On a busy runtime, a task would run late, and newcomers from other processes would overtake.
#[tokio::test(start_paused = true)]
async fn attempts_behind_a_fence_are_sent_by_the_call_that_receives_the_reply() {
    let node = new_node();
    let store = MemoryStore::new().connect(node.clone(), Arc::new(Deaf));
    let store = Held { store, sent: Arc::default() };
    let locks = crate::Locks::builder().build(Arc::new(store.clone()), node, &Inbox::default());
    let mut acquires: Vec<_> = (0..3).map(|_| Box::pin(locks.lock("k"))).collect();
    let mut context = Context::from_waker(Waker::noop());
    for acquire in &mut acquires {
        assert!(matches!(acquire.as_mut().poll(&mut context), Poll::Pending));
    }
    let (group, then) = {
        let mut sent = store.sent.lock().expect("no panic");
        let [(group, then)] = &mut sent.0[..] else { panic!("the first acquire alone is sent") };
        (group.clone(), then.take().expect("no reply yet"))
    };
    assert_eq!(group[0].way, Way::Fast);

    let not_served = Reply::short(vec![Acquired::NotServed { may_hold: false }]);
    let answers: Answers = smallvec![Ok(Answer::Acquired(not_served))];
    then.take(group, Ok(answers.into()));

    let sent = store.sent.lock().expect("no panic");
    let Some((group, _)) = sent.0.get(1) else { panic!("no request follows within the call") };
    let Command::Acquire { members, .. } = &group[0].command else { panic!("{group:?}") };
    assert_eq!(members.len(), 3, "one acquire for all, in the order of arrival");
    assert!(members.is_sorted_by_key(|member| member.number()));
}
