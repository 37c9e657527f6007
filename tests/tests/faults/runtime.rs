//! A runtime that ends while its node holds and waits.

use std::future::pending;
use std::time::Duration;

use lock_tests::{RedisServer, eventually};
use lockcore::{LockErrorKind, Locks};
use tokio::runtime::{Builder, Runtime};

use crate::common::{LONG, SHORT, SOON, connect, held, release, soon};

/// Longer than the time after a reply for which a connection of redis-rs is not checked.
const IDLE: Duration = Duration::from_millis(50);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads")
}

#[test]
fn a_runtime_that_ends_ends_its_waiters_and_its_holds_fall_by_their_lease() {
    let server = RedisServer::start();
    let theirs = runtime();
    let ours = runtime();
    let (locks, guard, other) = theirs.block_on(async {
        let locks = connect(&server.url()).await;
        let guard = held(&locks, "k", SHORT).await;
        (locks, guard, connect(&server.url()).await)
    });
    // Another runtime may poll the futures of a node.
    let waiting = ours.spawn(other.key("k").lease(SHORT).lock());
    ours.block_on(eventually("it waits", SOON, async || other.status().waiting == 1));
    drop(theirs);
    ours.block_on(async {
        let error = soon("the end", waiting).await.expect("no panic").expect_err("it has ended");
        assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
        for locks in [&locks, &other] {
            let error = soon("an answer", locks.lock("k")).await.expect_err("it has ended");
            assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
            let error = soon("an answer", locks.try_lock("k")).await.expect_err("it has ended");
            assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
        }
        let alive = connect(&server.url()).await;
        let next = held(&alive, "k", LONG).await;
        assert!(guard.is_lost(), "its lease has ended, and it knows");
        assert!(next.fencing_token() > guard.fencing_token());
        drop(guard);
        assert!(!next.is_lost());
        release(next).await;
    });
}

#[test]
fn a_guard_learns_that_its_runtime_has_ended_and_nothing_renews_it() {
    let server = RedisServer::start();
    let theirs = runtime();
    let guard = theirs.block_on(async { held(&connect(&server.url()).await, "k", LONG).await });
    let token = guard.cancellation_token();
    drop(theirs);
    runtime().block_on(async {
        soon("the loss", guard.lost()).await;
        soon("the loss", token.cancelled()).await;
        assert!(guard.is_lost());
        let error = soon("an answer", guard.release()).await.expect_err("nothing can be sent");
        assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
    });
}

#[test]
fn a_guard_released_or_dropped_after_its_runtime_ended_neither_panics_nor_hangs() {
    let server = RedisServer::start();
    let theirs = runtime();
    let ours = runtime();
    let (locks, released, dropped) = theirs.block_on(async {
        let locks = connect(&server.url()).await;
        let released = held(&locks, "released", LONG).await;
        let dropped = held(&locks, "dropped", LONG).await;
        (locks, released, dropped)
    });
    drop(theirs);
    ours.block_on(async {
        let error = soon("an answer", released.release()).await.expect_err("nothing can be sent");
        assert_ne!(error.kind(), LockErrorKind::Lost, "{error}");
        drop(dropped);
        soon("the end", locks.shutdown(Duration::ZERO)).await;
    });
    drop::<Locks>(locks);
}

#[test]
fn everything_may_be_dropped_outside_of_a_runtime() {
    let server = RedisServer::start();
    let theirs = runtime();
    let locks = theirs.block_on(connect(&server.url()));
    give_back_outside(&theirs, &locks);
}

/// A connection of redis-rs has no other check than a request, which needs a timer.
#[test]
fn everything_may_be_dropped_outside_of_a_runtime_on_an_idle_connection_of_redis_rs() {
    let server = RedisServer::start();
    let theirs = runtime();
    let by_resp3 = theirs.block_on(connect(&format!("{}?protocol=resp3", server.url())));
    give_back_outside(&theirs, &by_resp3);
    let config = deadpool_redis::Config::from_url(server.url());
    let pool = config.create_pool(Some(deadpool_redis::Runtime::Tokio1)).expect("a pool");
    let by_pool = Locks::builder().from_pool(pool, server.url());
    let by_pool = theirs.block_on(soon("a connection", by_pool)).expect("accepted");
    give_back_outside(&theirs, &by_pool);
}

/// Drops and releases guards and drops a wait, each after a pause, on a thread without a runtime.
fn give_back_outside(theirs: &Runtime, locks: &Locks) {
    let (guard, other, waiting) = theirs.block_on(async {
        let guard = held(locks, "k", LONG).await;
        let other = held(locks, "other", LONG).await;
        let mut waiting = Box::pin(locks.lock("k"));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        (guard, other, waiting)
    });
    let leave = Box::new(|| drop(waiting)) as Box<dyn FnOnce()>;
    for give_back in [leave, Box::new(|| drop(other.release())), Box::new(|| drop(guard))] {
        std::thread::sleep(IDLE);
        give_back();
    }
    theirs.block_on(async {
        eventually("all is given back", SOON, async || {
            let status = locks.status();
            status.waiting + status.holding + status.releasing == 0
        })
        .await;
        release(held(locks, "k", LONG).await).await;
        release(held(locks, "other", LONG).await).await;
    });
}

/// A runtime that runs only the futures it is blocked on.
fn undriven() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn calls_on_a_node_whose_runtime_is_not_driven_end_in_their_time_and_leave_nothing() {
    let server = RedisServer::start();
    let theirs = undriven();
    let ours = runtime();
    let timeout = Duration::from_millis(200);
    let locks = theirs.block_on(async {
        Locks::builder().request_timeout(timeout).connect(server.url()).await.expect("connected")
    });
    ours.block_on(async {
        let error =
            soon("the wait", locks.lock_timeout("k", timeout)).await.expect_err("no answer");
        assert!(matches!(error.kind(), LockErrorKind::Timeout | LockErrorKind::Unavailable));
        let unavailable = |error: lockcore::LockError| {
            assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        };
        unavailable(soon("a try", locks.try_lock("k")).await.expect_err("no answer"));
        unavailable(soon("a ping", locks.ping()).await.expect_err("no answer"));
        unavailable(soon("a look", locks.inspect("k")).await.expect_err("no answer"));
    });
    theirs.block_on(async {
        eventually("nothing is open", SOON, async || {
            let status = locks.status();
            status.waiting + status.holding + status.releasing == 0
        })
        .await;
        release(held(&locks, "k", LONG).await).await;
    });
}

#[test]
fn a_loss_is_noticed_on_another_runtime_although_that_of_its_locks_is_not_driven() {
    let server = RedisServer::start();
    let theirs = undriven();
    let ours = runtime();
    let locks = theirs.block_on(connect(&server.url()));
    let guard = theirs.block_on(held(&locks, "k", SHORT));
    let request = locks.key("section").lease(SHORT);
    let section = ours.spawn(request.with(async |_| pending::<()>().await));
    theirs.block_on(eventually("both are held", SOON, async || locks.status().holding == 2));
    ours.block_on(async {
        soon("the loss", guard.lost()).await;
        let error = soon("the end", section).await.expect("no panic").expect_err("it is lost");
        assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
    });
}

#[test]
fn a_runtime_that_ends_before_it_has_polled_a_task_ends_its_node() {
    let server = RedisServer::start();
    let theirs = undriven();
    let ours = runtime();
    // The last step of connecting starts the node's task, and nothing polls it after that.
    let locks = theirs.block_on(connect(&server.url()));
    let mut waiting = Box::pin(locks.lock("k"));
    ours.block_on(async { assert!(futures_util::poll!(waiting.as_mut()).is_pending()) });
    drop(theirs);
    ours.block_on(async {
        let error = soon("the end", waiting).await.expect_err("it has ended");
        assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
        let error = soon("an answer", locks.lock("k")).await.expect_err("it has ended");
        assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
    });
}

#[test]
fn every_call_after_the_end_of_a_runtime_says_so_and_none_panics() {
    let server = RedisServer::start();
    let theirs = runtime();
    let ours = runtime();
    let (locks, guards) = theirs.block_on(async {
        let locks = connect(&server.url()).await;
        let guards = [held(&locks, "one", LONG).await, held(&locks, "two", LONG).await];
        (locks, guards)
    });
    drop(theirs);
    ours.block_on(async {
        let mut errors = Vec::new();
        for guard in guards {
            errors.push(soon("a release", guard.release()).await.expect_err("it has ended"));
        }
        for _ in 0..2 {
            errors.push(soon("a ping", locks.ping()).await.expect_err("it has ended"));
            errors.push(soon("a look", locks.inspect("k")).await.expect_err("it has ended"));
            let forced = soon("an order", locks.force_release("k")).await;
            errors.push(forced.expect_err("it has ended"));
            errors.push(soon("a lock", locks.lock("k")).await.expect_err("it has ended"));
        }
        for error in errors {
            assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
            assert!(error.to_string().contains("its runtime has ended"), "{error}");
        }
    });
}
