//! Tests of attempts that do not wait, on a server that responds, but slowly.

use std::sync::Arc;
use std::time::Duration;

use proto::node::{RequestGroup, Way};
use proto::{Acquired, Answer, Answers, Reply};
use smallvec::smallvec;
use tokio::time::sleep;

use super::soon;
use crate::api::builder::new_node;
use crate::api::locks::Locks;
use crate::node::Inbox;
use crate::store::memory::MemoryStore;
use crate::store::{Store, Then};
use crate::types::error::LockError;
use crate::{LockErrorKind, WhenBusy};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// A server needs this time for each reply: less than the request timeout, but two in turn take
/// longer.
const SLOW: Duration = Duration::from_millis(1_100);

/// A store that replies late. Its fast path serves no acquire of the lock `busy`.
#[derive(Clone, Debug)]
struct Late {
    store: Arc<dyn Store>,
    after: Duration,
}

impl Late {
    /// Creates the `Locks` of a node on a store that needs the time `after` for each reply.
    fn start(store: &MemoryStore, after: Duration) -> Locks {
        let (node, inbox) = (new_node(), Inbox::default());
        let store = Self { store: store.connect(node.clone(), Arc::new(inbox.clone())), after };
        let builder = Locks::builder().request_timeout(REQUEST_TIMEOUT);
        builder.build(Arc::new(store), node, &inbox)
    }
}

impl Store for Late {
    fn now_us(&self) -> u64 {
        self.store.now_us()
    }

    fn send(&self, group: RequestGroup, then: Then) {
        let after = self.after;
        let late = move |group, replied| {
            tokio::spawn(async move {
                sleep(after).await;
                then.take(group, replied);
            });
        };
        if group[0].way == Way::Fast && group[0].lock.as_str() == "busy" {
            let not_served = Reply::short(vec![Acquired::NotServed { may_hold: false }]);
            let answers: Answers = smallvec![Ok(Answer::Acquired(not_served))];
            return late(group, Ok(answers.into()));
        }
        self.store.send(group, Then::call(late));
    }

    fn has_fast_path(&self) -> bool {
        true
    }

    delegate_to_store!();
}

/// Returns the kind of an error, and whether a layer that fails open continues without the lock.
fn judged(error: &LockError) -> (LockErrorKind, bool) {
    (error.kind(), error.is_outage())
}

// Under `fail_open`, the second request would otherwise be served beside the holder.
#[tokio::test(start_paused = true)]
async fn a_try_that_a_slow_server_answers_too_late_is_no_outage() {
    let locks = Late::start(&MemoryStore::new(), SLOW);
    let (first, tried, at_once, refused) = soon(async {
        tokio::join!(
            locks.try_lock("k"),
            locks.try_lock("k"),
            locks.key("k").wait(Duration::ZERO).lock(),
            locks.key("k").when_busy(WhenBusy::Refuse).lock(),
        )
    })
    .await;
    let _first = first.expect("replied in time").expect("free");
    for tried in [tried.map(drop), at_once.map(drop), refused.map(drop)] {
        let error = tried.expect_err("late");
        assert_eq!(judged(&error), (LockErrorKind::Timeout, false), "{error}");
    }
}

// The fast path's reply arrives in time, and the script's reply would arrive too late.
#[tokio::test(start_paused = true)]
async fn a_lone_try_that_needs_two_slow_replies_is_no_outage() {
    let locks = Late::start(&MemoryStore::new(), SLOW);
    let error = soon(locks.try_lock("busy")).await.expect_err("late");
    assert_eq!(judged(&error), (LockErrorKind::Timeout, false), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_try_is_an_outage_if_no_reply_arrives_within_the_request_timeout() {
    let locks = Late::start(&MemoryStore::new(), 2 * REQUEST_TIMEOUT);
    let (one, other) = soon(async { tokio::join!(locks.try_lock("k"), locks.try_lock("k")) }).await;
    for error in [one, other].map(|tried| tried.expect_err("silent")) {
        assert_eq!(judged(&error), (LockErrorKind::Unavailable, true), "{error}");
    }
}
