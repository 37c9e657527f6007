//! Requests with a key, and a locked service whose inner service is driven by the test.

use futures_util::FutureExt as _;
use lock_tests::LIMIT;
use lock_tower::lock::Lock;
use lock_tower::{LockHandle, LockLayer};
use lockcore::Locks;
use tokio::task::JoinHandle;
use tower::{BoxError, Layer as _, Service, ServiceExt as _};
use tower_test::mock::{Handle, Mock, SendResponse};

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

/// Returns the service behind `layer`, and the handle through which the test responds in place of
/// the inner service.
pub(crate) fn locked(layer: LockLayer<Key, Carry>) -> (Locked, Handle<Job, usize>) {
    let (inner, handle) = tower_test::mock::pair();
    (layer.layer(inner), handle)
}

/// Sends a request from a separate task.
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

/// Asserts that nothing reaches the inner service, after every runnable task has run.
pub(crate) async fn nothing_reaches(handle: &mut Handle<Job, usize>) {
    settle().await;
    assert!(handle.next_request().now_or_never().is_none(), "a request reached the inner service");
}

/// Runs every task until none can proceed: the runtime of these tests has one thread.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
