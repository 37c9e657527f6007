//! Tests of single steps of an acquisition, on in-memory stores.

use proto::node::Request;
use proto::{Demand, Label, LockErrorKind, Mode, Terms, WhenBusy};
use tokio::time::sleep;

use super::*;
use crate::api::locks::Locks;
use crate::node::{HoldCell, LocalOptions};
use crate::store::memory::MemoryStore;

/// Returns the state of an acquisition that has not begun.
fn begun(locks: &Locks, mode: Mode, options: Terms) -> Rounds {
    let backend = &locks.backend;
    let request = Request {
        lock: "k".into(),
        options,
        mode,
        label: Label::new(""),
        demand: Demand::EXCLUSIVE,
    };
    let context = AcquireContext {
        primaries: Arc::clone(backend.primaries()),
        request,
        of: HoldCell::of(backend.node().classes.get("")),
        local: LocalOptions::LABELLED,
    };
    Rounds::new(context, watch::Sender::new(None))
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_before_the_answers_are_counted_is_taken() {
    let stores = [(); 3].map(|()| MemoryStore::new());
    let locks = Locks::builder().on_memory_quorum(&stores).expect("3 stores");
    let strangers =
        [0, 1].map(|at| Locks::builder().on_memory(&stores[at]).expect("options").lock("k"));
    let [first, second] = strangers;
    let (first, second) = (first.await.expect("free"), second.await.expect("free"));
    let mut state = begun(&locks, Mode::Try, Terms::default());
    (0..2).for_each(|at| state.requests.join(at, Role::AtLead));
    assert!(state.wait(None, Some(Instant::now())).await.expect("queued").is_none());
    drop((first, second));
    sleep(HOP).await;
    assert!(!state.requests.awaits_response(), "two of three have queued it");
    // The first grant ends the first wait.
    let mut hold = None;
    for _ in 0..2 {
        hold = state.wait(None, Some(Instant::now() + HOP)).await.expect("granted");
    }
    assert!(hold.is_some(), "a grant was dropped");
}

#[tokio::test]
async fn no_primary_is_to_keep_only_the_newest_waiter() {
    let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
    let options = Terms { when_busy: WhenBusy::KeepNewest, ..Terms::default() };
    // A request that does not wait itself still queues at primaries.
    let state = begun(&locks, Mode::Try, options);
    assert_eq!(state.requests.context.at_a_primary().options.when_busy, WhenBusy::Wait);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_ends_with_the_queue_position_that_follows_it() {
    let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
    let strangers = locks.lock("k").await.expect("free");
    let mut state = begun(&locks, Mode::Wait, Terms::default());
    let full = || LockError::new(LockErrorKind::OutOfMemory);
    (0..2).for_each(|at| state.requests.answers.failed(at, full()));
    assert!(state.requests.end_round().is_err(), "two of three refuse for good");
    state.requests.join(1, Role::AtLead);
    assert!(state.wait(None, Some(Instant::now() + HOP)).await.expect("queued").is_none());
    state.requests.end_round().expect("only one refuses");
    drop(strangers);
}
