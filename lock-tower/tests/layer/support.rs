//! Requests with a key, and a locked service whose inner one the test answers.

use std::time::Duration;

use futures_util::FutureExt as _;
use lock_tower::{Lock, LockHandle, LockLayer};
use lockcore::Locks;
use tokio::task::JoinHandle;
use tower::{BoxError, Layer as _, Service, ServiceExt as _};
use tower_test::mock::{Handle, Mock, SendResponse};

/// Generous: nothing here waits for more than the scheduler.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) key: Option<&'static str>,
    pub(crate) number: usize,
    pub(crate) lock: Option<LockHandle>,
}

pub(crate) fn job(key: &'static str, number: usize) -> Job {
    Job { key: Some(key), number, lock: None }
}

pub(crate) type Key = fn(&Job) -> Option<&'static str>;
pub(crate) type Carry = fn(&mut Job, LockHandle);
pub(crate) type Inner = Mock<Job, usize>;
pub(crate) type Locked = Lock<Inner, Key, Carry>;

pub(crate) fn layer(locks: &Locks) -> LockLayer<Key, Carry> {
    let key: Key = |job| job.key;
    let carry: Carry = |job, lock| job.lock = Some(lock);
    LockLayer::new(locks.clone(), key).carry(carry)
}

/// The locked service, and the handle by which the test answers what reaches the inner one.
pub(crate) fn locked(layer: LockLayer<Key, Carry>) -> (Locked, Handle<Job, usize>) {
    let (inner, handle) = tower_test::mock::pair();
    (layer.layer(inner), handle)
}

/// Sends a request from a task of its own.
pub(crate) fn send<S>(service: &S, job: Job) -> JoinHandle<Result<usize, BoxError>>
where
    S: Service<Job, Response = usize, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
{
    tokio::spawn(service.clone().oneshot(job))
}

pub(crate) async fn next(handle: &mut Handle<Job, usize>) -> (Job, SendResponse<usize>) {
    tokio::time::timeout(LIMIT, handle.next_request())
        .await
        .expect("a request reaches the inner service")
        .expect("the inner service lives")
}

/// Nothing has reached the inner service, after everything that could run has run.
pub(crate) async fn nothing_reaches(handle: &mut Handle<Job, usize>) {
    settle().await;
    assert!(handle.next_request().now_or_never().is_none(), "a request reached the inner service");
}

/// Lets every task run until none can: the runtime of these tests has one thread.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Waits until `count` requests queue for `key`.
pub(crate) async fn queued(locks: &Locks, key: &str, count: usize) {
    lock_tests::eventually("the queue has this length", LIMIT, async || {
        locks.inspect(key).await.unwrap().waiters.len() == count
    })
    .await;
}

pub(crate) async fn free(locks: &Locks, key: &str) {
    lock_tests::eventually("the lock is free", LIMIT, async || {
        let inspection = locks.inspect(key).await.unwrap();
        inspection.holder.is_none() && inspection.waiters.is_empty()
    })
    .await;
}
