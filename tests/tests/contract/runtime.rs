//! Runtimes, threads, and values that outlive others.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;

use lockcore::{LockErrorKind, LockGuard, LockOptions, Locks};
use tokio::runtime::{Builder, Runtime};

use crate::backend::{Backend, LONG, granted, soon, until_nothing_is_left, wait_as};

on_every_store!(
    a_guard_outlives_its_locks_and_still_releases,
    a_future_outlives_its_locks_and_is_still_served,
    a_lock_is_polled_and_released_on_a_runtime_that_is_not_its_own,
    the_end_of_a_runtime_ends_what_waits_with_closed,
    a_guard_and_a_wait_that_a_thread_without_a_runtime_drops_leave_nothing,
    a_guard_and_a_wait_that_are_dropped_by_a_panic_leave_nothing,
    guards_and_waits_that_a_runtime_drops_at_its_end_do_not_panic,
    a_section_during_which_the_runtime_of_its_locks_ends_is_lost,
);

async fn a_guard_outlives_its_locks_and_still_releases(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    drop(a);
    assert!(b.try_lock("key").await.expect("an answer").is_none());
    assert!(!guard.is_lost());
    drop(guard);
    soon(b.lock("key")).await.expect("given back").release().await.expect("held until now");

    let c = backend.node().await;
    let guard = c.lock("key").await.expect("free");
    drop(c);
    guard.release().await.expect("held until now");
    until_nothing_is_left(&b, "key").await;
}

async fn a_future_outlives_its_locks_and_is_still_served(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let waiting = wait_as(1, &b, "key").await;
    drop(b);
    guard.release().await.expect("held until now");
    granted(waiting).await.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn a_lock_is_polled_and_released_on_a_runtime_that_is_not_its_own(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let (got, has_got) = tokio::sync::oneshot::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let locks = b.clone();
    let thread = std::thread::spawn(move || {
        current_thread().block_on(async {
            let guard = locks.lock("key").await.expect("granted");
            let _ = got.send(());
            may_go.recv().expect("told to go on");
            guard.release().await.expect("held until now");
            let limited = locks.lock_timeout("other", std::time::Duration::from_millis(50)).await;
            assert_eq!(limited.expect_err("held").kind(), LockErrorKind::Timeout);
        });
    });
    let other = a.lock("other").await.expect("free");
    crate::backend::until_waiting(1, &a, "key").await;
    guard.release().await.expect("held until now");
    soon(has_got).await.expect("granted there");
    go.send(()).expect("it waits");
    tokio::task::spawn_blocking(move || thread.join()).await.expect("joined").expect("no panic");
    other.release().await.expect("held until now");
    until_nothing_is_left(&b, "key").await;
}

async fn the_end_of_a_runtime_ends_what_waits_with_closed(backend: &Backend) {
    let survivor = backend.node().await;
    let guard = survivor.lock("key").await.expect("free");
    let (locks, doomed) = match backend {
        Backend::Memory(store) => {
            let store = store.clone();
            on_its_own_runtime(async move {
                Locks::builder().defaults(LockOptions::new().lease(LONG)).on_memory(&store)
            })
            .await
        }
        Backend::Redis(server) => {
            let url = server.url();
            on_its_own_runtime(async move { Locks::connect(url).await }).await
        }
        Backend::Sentinel(url) => {
            let url = url.clone();
            on_its_own_runtime(async move { Locks::connect(url).await }).await
        }
        Backend::Cluster(url, namespace) => {
            let (url, locks) = (url.clone(), Locks::builder().namespace(namespace));
            on_its_own_runtime(async move { locks.connect(url).await }).await
        }
        Backend::MemoryQuorum(stores) => {
            let stores = stores.clone();
            on_its_own_runtime(async move { Locks::builder().on_memory_quorum(&stores) }).await
        }
        Backend::Quorum(quorum) => {
            let quorum = quorum.clone();
            on_its_own_runtime(async move { Locks::connect(quorum).await }).await
        }
    };
    let waiting = wait_as(1, &locks, "key").await;
    doomed.shutdown_background();
    let error = soon(waiting).await.expect("no panic").expect_err("its runtime has ended");
    assert_eq!(error.kind(), LockErrorKind::Closed);
    let error = soon(locks.lock("key")).await.expect_err("its runtime has ended");
    assert_eq!(error.kind(), LockErrorKind::Closed);
    guard.release().await.expect("held until now");
}

/// A guard, and a wait for another lock held by the second node.
async fn guard_and_wait([a, b]: &[Locks; 2]) -> (LockGuard, BoxedWait, LockGuard) {
    let guard = a.lock("key").await.expect("free");
    let other = b.lock("other").await.expect("free");
    let mut waiting: BoxedWait = Box::pin(a.lock("other"));
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    crate::backend::until_waiting(1, b, "other").await;
    (guard, waiting, other)
}

type BoxedWait =
    std::pin::Pin<Box<dyn Future<Output = Result<LockGuard, lockcore::LockError>> + Send>>;

/// Runs this on a dedicated thread, and waits for its end.
async fn on_a_thread(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(work);
    tokio::task::spawn_blocking(move || thread.join()).await.expect("joined").expect("no panic");
}

async fn a_guard_and_a_wait_that_a_thread_without_a_runtime_drops_leave_nothing(backend: &Backend) {
    let nodes = backend.nodes().await;
    let (guard, waiting, other) = guard_and_wait(&nodes).await;
    on_a_thread(move || drop((guard, waiting))).await;
    drop(other);
    for key in ["key", "other"] {
        until_nothing_is_left(&nodes[0], key).await;
    }
}

async fn a_guard_and_a_wait_that_are_dropped_by_a_panic_leave_nothing(backend: &Backend) {
    let nodes = backend.nodes().await;
    let (guard, waiting, other) = guard_and_wait(&nodes).await;
    on_a_thread(move || {
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _dropped = (guard, waiting);
            resume_unwind(Box::new("the section panics"));
        }));
        panicked.expect_err("it panics");
    })
    .await;
    drop(other);
    for key in ["key", "other"] {
        until_nothing_is_left(&nodes[0], key).await;
    }
}

async fn guards_and_waits_that_a_runtime_drops_at_its_end_do_not_panic(backend: &Backend) {
    let survivor = backend.node().await;
    let other = survivor.lock("other").await.expect("free");
    let builder = Locks::builder().defaults(LockOptions::new().lease(LONG));
    let theirs = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("one");
    let mut tasks = Vec::new();
    // Connected there, so that the background ends with the tasks, before or after each of them.
    let locks = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| theirs.block_on(backend.build(builder)));
        connecting.join().expect("it connects")
    });
    for number in 0..20 {
        let (locks, (held, is_held)) = (locks.clone(), tokio::sync::oneshot::channel());
        tasks.push(theirs.spawn(async move {
            let _guard = locks.lock(format!("key {number}")).await.expect("free");
            let _ = held.send(());
            let _ = locks.lock("other").await;
        }));
        soon(is_held).await.expect("granted there");
    }
    crate::backend::until_waiting(tasks.len(), &survivor, "other").await;
    drop(locks);
    theirs.shutdown_background();
    for task in tasks {
        let ended = soon(task).await;
        assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()), "no panic");
    }
    other.release().await.expect("held until now");
}

// Nobody renews the hold any more, so the end of the section may overlap with the next holder's.
async fn a_section_during_which_the_runtime_of_its_locks_ends_is_lost(backend: &Backend) {
    let builder = Locks::builder().defaults(LockOptions::new().lease(LONG));
    let theirs = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("one");
    let locks = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| theirs.block_on(backend.build(builder)));
        connecting.join().expect("it connects")
    });
    let section = locks.with("key", async move |_| {
        // Without an await, so that the section ends before its caller is polled again.
        std::thread::spawn(move || drop(theirs)).join().expect("no panic");
    });
    let error = soon(section).await.expect_err("the end of the section was not protected");
    assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
}

async fn on_its_own_runtime(
    connect: impl Future<Output = Result<Locks, lockcore::LockError>> + Send + 'static,
) -> (Locks, Runtime) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("one");
    let locks = runtime.spawn(connect).await.expect("no panic").expect("connected");
    (locks, runtime)
}

// S4, S6: every reply contains the grant of its node; a reply in flight during a release must not
// make the node release the same hold a second time, and first.
#[test]
fn a_hold_that_lasted_is_never_called_lost_however_many_threads_compete() {
    let backend = Backend::redis();
    let many =
        Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    many.block_on(async {
        let [a, b] = backend.nodes().await;
        let tasks: Vec<_> = (0..16)
            .map(|number| {
                let locks = if number % 2 == 0 { a.clone() } else { b.clone() };
                tokio::spawn(async move {
                    let mut lost = 0;
                    for _ in 0..40 {
                        let guard = locks.lock("key").await.expect("granted");
                        assert!(!guard.is_lost());
                        lost += usize::from(guard.release().await.is_err());
                    }
                    lost
                })
            })
            .collect();
        let mut lost = 0;
        for task in tasks {
            lost += soon(task).await.expect("no panic");
        }
        assert_eq!(lost, 0, "of 640 holds whose lease was far from its end");
    });
}

#[test]
fn a_current_thread_runtime_is_enough_and_many_threads_are_not_too_many() {
    let backend = Backend::redis();
    current_thread().block_on(async {
        let locks = backend.node().await;
        let guard = locks.lock("key").await.expect("free");
        let waiting = wait_as(1, &locks, "key").await;
        drop(guard);
        granted(waiting).await.release().await.expect("held until now");
        locks.shutdown(LONG).await;
    });
    let many =
        Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    many.block_on(async {
        let [a, b] = backend.nodes().await;
        let tasks: Vec<_> = (0..16)
            .map(|number| {
                let locks = if number % 2 == 0 { a.clone() } else { b.clone() };
                tokio::spawn(async move {
                    for _ in 0..5 {
                        locks.lock("key").await.expect("granted").release().await.expect("held");
                    }
                })
            })
            .collect();
        for task in tasks {
            soon(task).await.expect("no panic");
        }
        until_nothing_is_left(&a, "key").await;
    });
}
