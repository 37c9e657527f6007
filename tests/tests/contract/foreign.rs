//! What is not ours: wakers that call back, and runtimes without timers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use lock_tests::eventually;
use lockcore::{LockErrorKind, Locks};
use tokio::runtime::Builder;

use crate::backend::{Backend, LONG, SOON, granted, ms, soon, until_waiting, wait_as};

on_every_store!(
    a_waker_that_calls_back_finds_no_mutex_held_when_its_lock_is_granted,
    a_waker_that_calls_back_finds_no_mutex_held_when_its_hold_is_lost,
    calls_polled_by_a_runtime_without_timers_end_in_their_time,
);

/// Uses the node whenever it wakes somebody, as an executor of another kind may.
struct CallsBack {
    locks: Locks,
    calls: AtomicUsize,
}

impl Wake for CallsBack {
    fn wake(self: Arc<Self>) {
        let _ = self.locks.status();
        // Begins an attempt and takes it back.
        let mut attempt = Box::pin(self.locks.lock("another"));
        let _ = attempt.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(attempt);
        self.calls.fetch_add(1, Ordering::SeqCst);
    }
}

impl CallsBack {
    fn on(locks: &Locks) -> (Arc<Self>, Waker) {
        let calls_back = Arc::new(Self { locks: locks.clone(), calls: AtomicUsize::new(0) });
        (Arc::clone(&calls_back), Waker::from(calls_back))
    }

    async fn was_called(&self) {
        let called = async || self.calls.load(Ordering::SeqCst) > 0;
        eventually("it is woken, and comes back from its calls", SOON, called).await;
    }
}

/// On a thread of its own: one that waits for itself would take the test with it.
fn aside(work: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || runtime.block_on(work));
}

async fn a_waker_that_calls_back_finds_no_mutex_held_when_its_lock_is_granted(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let (calls_back, waker) = CallsBack::on(&b);
    let mut waiting = Box::pin(b.lock("key"));
    let sent = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(sent.is_pending());
    until_waiting(1, &a, "key").await;
    eventually("it knows that it waits", SOON, async || {
        let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
        polled.is_pending() && b.status().waiting == 1
    })
    .await;
    aside(async move { guard.release().await.expect("held until now") });
    calls_back.was_called().await;
    soon(waiting).await.expect("granted").release().await.expect("held until now");
}

async fn a_waker_that_calls_back_finds_no_mutex_held_when_its_hold_is_lost(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = b.lock("key").await.expect("free");
    let (calls_back, waker) = CallsBack::on(&b);
    let token = guard.cancellation_token();
    let mut lost = pin!(token.cancelled());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    aside(async move { assert!(a.force_release("key").await.expect("an answer")) });
    calls_back.was_called().await;
    assert!(guard.is_lost());
}

async fn calls_polled_by_a_runtime_without_timers_end_in_their_time(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let waiting = wait_as(1, &b, "key").await;
    let ended = tokio::task::spawn_blocking(move || {
        let bare = Builder::new_current_thread().build().expect("a runtime");
        bare.block_on(async {
            let error = b.lock_timeout("key", ms(50)).await.expect_err("held");
            assert_eq!(error.kind(), LockErrorKind::Timeout);
            assert!(b.try_lock("key").await.expect("an answer").is_none());
            b.ping().await.expect("an answer");
            let other = b.lock_timeout("other", LONG).await.expect("free");
            other.release().await.expect("held until now");
            let busy = a.inspect("key").await.expect("an answer");
            assert_eq!(busy.waiters.len(), 1);
            guard.release().await.expect("held until now");
            a.shutdown(Duration::from_secs(1)).await;
        });
    });
    soon(ended).await.expect("no panic");
    granted(waiting).await.release().await.expect("held until now");
}
