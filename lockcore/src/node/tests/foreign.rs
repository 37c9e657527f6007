//! Tests with code from outside this crate: wakers that use the node when they are dropped.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};

use super::SOON;
use super::unanswered::Keeping;
use crate::api::locks::Locks;
use crate::store::memory::MemoryStore;

/// A waker that uses the node when it is dropped.
struct UsesTheNode(Locks);

impl Wake for UsesTheNode {
    fn wake(self: Arc<Self>) {}
}

impl Drop for UsesTheNode {
    fn drop(&mut self) {
        let _ = self.0.status();
    }
}

#[tokio::test]
async fn a_hold_does_not_keep_the_waker_of_its_acquisition() {
    let locks = Locks::in_memory();
    let waker = Arc::new(UsesTheNode(locks.clone()));
    let mut acquire = Box::pin(locks.lock("key"));
    let polled = acquire.as_mut().poll(&mut Context::from_waker(&Arc::clone(&waker).into()));
    assert!(polled.is_ready());
    drop(acquire);
    assert_eq!(Arc::strong_count(&waker), 1);
}

/// Runs the work on a separate thread. Returns false if the work has not ended in time: a thread
/// that waits for itself would hang the test.
fn ends_on_another_thread<F: Future<Output = ()>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> bool {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work());
        ended.send(())
    });
    end.recv_timeout(SOON).is_ok()
}

/// Ends something by `end`, which polls a future with the waker. Then passes on the reply to the
/// release or leave that `end` has sent. Afterwards nothing may have the waker.
async fn end_with_a_late_reply(is_held: bool, end: impl AsyncFnOnce(&Locks, &mut Context<'_>)) {
    let store = MemoryStore::new();
    let other = Locks::builder().on_memory(&store).expect("options");
    let (keeping, locks) = Keeping::start(&store, SOON);
    let theirs = is_held.then_some(other.lock("silent"));
    let _theirs = futures_util::future::OptionFuture::from(theirs).await;
    let waker = Arc::new(UsesTheNode(locks.clone()));
    let weak = Arc::downgrade(&waker);
    let waker = Waker::from(waker);
    end(&locks, &mut Context::from_waker(&waker)).await;
    drop(waker);
    assert_eq!(keeping.kept.pass_on(), 1);
    assert_eq!(weak.strong_count(), 0);
}

// A server's reply arrives later than that of an in-memory store: the node is then the last to
// know the hold or the attempt.
#[test]
fn a_waker_that_uses_the_node_when_dropped_finds_no_mutex_held() {
    let released = || {
        end_with_a_late_reply(false, async |locks, context| {
            let mut acquire = Box::pin(locks.lock("silent"));
            assert!(acquire.as_mut().poll(context).is_ready(), "and the guard is dropped");
        })
    };
    assert!(ends_on_another_thread(released), "the waker of an acquisition hangs");
    let cancelled = || {
        end_with_a_late_reply(true, async |locks, context| {
            assert!(Box::pin(locks.lock("silent")).as_mut().poll(context).is_pending());
        })
    };
    assert!(ends_on_another_thread(cancelled), "the waker of a cancelled acquisition hangs");
    let not_awaited = || {
        end_with_a_late_reply(false, async |locks, context| {
            let guard = locks.lock("silent").await.expect("free");
            assert!(Box::pin(guard.release()).as_mut().poll(context).is_pending());
        })
    };
    assert!(ends_on_another_thread(not_awaited), "the waker of a release hangs");
}

/// A waker that counts its calls.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_release_is_woken_although_its_acquisition_was_dropped_meanwhile() {
    let (keeping, locks) = Keeping::start(&MemoryStore::new(), SOON);
    let mut acquire = Box::pin(locks.lock("silent"));
    let mut release = Box::pin(acquire.as_mut().await.expect("free").release());
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(Arc::clone(&counts));
    assert!(release.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(acquire);
    assert_eq!(keeping.kept.pass_on(), 1);
    assert_eq!(counts.0.load(Ordering::Relaxed), 1);
    release.await.expect("held until now");
}
