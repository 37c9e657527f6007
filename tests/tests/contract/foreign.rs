//! Foreign code: wakers that call back, and callers without timers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use lock_tests::eventually;
use lockcore::{LockGuard, Locks};
use tokio::runtime::{Builder, Runtime};

use crate::backend::{Backend, LONG, SOON, soon, until_nothing_is_left, until_waiting, waiters};

on_every_store!(
    a_waker_that_calls_back_finds_no_mutex_held_when_its_lock_is_granted,
    a_waker_that_calls_back_finds_no_mutex_held_when_its_hold_is_lost,
    a_call_polled_without_timers_panics_says_so_and_leaves_nothing,
);

/// A waker that uses the node when woken, as some executors may.
struct CallsBack {
    locks: Locks,
    calls: AtomicUsize,
}

impl Wake for CallsBack {
    fn wake(self: Arc<Self>) {
        let _ = self.locks.status();
        // Begins an attempt and cancels it.
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

/// Runs the work on a dedicated thread: a thread that waits for itself would hang the test.
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

/// The panic message of a future at its first poll.
fn panic_of(future: impl Future) -> String {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context).is_ready()));
    text_of(polled.expect_err("a panic"))
}

fn text_of(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a text")).to_owned(),
    }
}

/// The panic messages of all calls; `held` is held, but not by `locks`.
fn panics_of(locks: &Locks, guard: LockGuard) -> Vec<String> {
    vec![
        panic_of(locks.lock("free")),
        panic_of(locks.lock_timeout("held", LONG)),
        panic_of(locks.try_lock("free")),
        panic_of(locks.read("free")),
        panic_of(locks.lock_all(["free", "other"])),
        panic_of(locks.with("free", async |_| ())),
        panic_of(locks.inspect("held")),
        panic_of(async { locks.survey().next_page().await }),
        panic_of(locks.force_release("held")),
        panic_of(locks.ping()),
        panic_of(guard.lost()),
        panic_of(guard.release()),
    ]
}

async fn a_call_polled_without_timers_panics_says_so_and_leaves_nothing(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let held = a.lock("held").await.expect("free");
    let inside_without = || Builder::new_current_thread().build().expect("a runtime");
    for (text, runtime) in [
        ("must be polled inside a tokio runtime with timers enabled", None),
        ("timers are disabled", Some(inside_without())),
    ] {
        let released = b.lock("released").await.expect("free");
        let locks = b.clone();
        let outside = std::thread::spawn(move || {
            let _inside = runtime.as_ref().map(Runtime::enter);
            panics_of(&locks, released)
        });
        for panic in outside.join().expect("each is caught") {
            assert!(panic.contains(text), "{panic}");
        }
    }
    // The release was sent by the call, not by the poll.
    for key in ["free", "other", "released"] {
        until_nothing_is_left(&b, key).await;
    }
    assert_eq!(waiters(&a, "held").await, 0);
    held.release().await.expect("not released by force");
}

// Its background task would panic, and each call would say that the runtime has ended.
#[test]
fn an_in_memory_locks_is_not_made_in_a_runtime_without_timers() {
    let without = Builder::new_current_thread().build().expect("a runtime");
    let _inside = without.enter();
    let on_quorum = || Locks::builder().in_memory_quorum(3).expect("3 stores");
    let makes: [fn() -> Locks; 2] = [Locks::in_memory, on_quorum];
    for make in makes {
        let panic = text_of(catch_unwind(make).expect_err("a panic"));
        assert!(panic.contains("timers are disabled"), "{panic}");
    }
}
