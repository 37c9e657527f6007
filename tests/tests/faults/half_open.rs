//! Connections that stay open but carry nothing: every call ends within its own bound.

use std::time::Duration;

use lock_tests::{Connections, Flow, Proxy, RedisServer, eventually};
use lockcore::{HoldState, LockError, LockErrorKind, Locks};
use tokio::time::Instant;

use crate::common::{LONG, SOON, held, queued, setup, soon};

const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);
/// The default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much a busy machine may add to a bound.
const SLACK: Duration = Duration::from_secs(2);

async fn impatient(proxy: &Proxy) -> Locks {
    let builder = Locks::builder().request_timeout(REQUEST_TIMEOUT);
    soon("a connection", builder.connect(proxy.url())).await.expect("the server accepts us")
}

/// The error of a call that must fail within `bound`.
async fn fails<T: std::fmt::Debug>(
    what: &str,
    bound: Duration,
    call: impl IntoFuture<Output = Result<T, LockError>>,
) {
    let start = Instant::now();
    let error = soon(what, call).await.expect_err(what);
    let took = start.elapsed();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{what}: {error}");
    assert!(took < bound + SLACK, "{what} took {took:?}, not {bound:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_on_a_half_open_connection_ends_within_its_bound() {
    let setup = setup().await;
    let locks = impatient(&setup.proxy).await;
    let guard = held(&locks, "held", LONG).await;
    setup.proxy.freeze(Connections::All, Flow::Both).await;
    let wait = Duration::from_secs(1);
    // A round on the connection that has just gone silent, and a round while it is being replaced.
    // A request then waits for a connection, and may wait for a reply on it.
    for _ in 0..2 {
        tokio::join!(
            fails("try_lock", REQUEST_TIMEOUT, locks.try_lock("try")),
            fails("lock_timeout", wait, locks.lock_timeout("wait", wait)),
            fails("inspect", REQUEST_TIMEOUT * 2, locks.inspect("k")),
            fails("ping", REQUEST_TIMEOUT * 2, locks.ping()),
            fails("force_release", REQUEST_TIMEOUT * 2, locks.force_release("k")),
        );
    }
    fails("release", REQUEST_TIMEOUT * 2, guard.release()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_to_a_server_that_accepts_and_is_silent_ends_in_five_seconds() {
    let server = RedisServer::start();
    server.freeze();
    fails("connect", CONNECT_TIMEOUT, Locks::connect(server.url())).await;
    server.thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_ends_in_time_when_only_the_subscription_is_silent() {
    let setup = setup().await;
    setup.proxy.freeze(Connections::Subscriptions, Flow::Both).await;
    fails("connect", CONNECT_TIMEOUT, Locks::connect(setup.proxy.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_is_uncertain_and_then_lost_before_its_deadline() {
    let setup = setup().await;
    let locks = impatient(&setup.proxy).await;
    let guard = held(&locks, "k", Duration::from_secs(3)).await;
    let token = guard.cancellation_token();
    assert_eq!(guard.state(), HoldState::Held);
    setup.proxy.freeze(Connections::All, Flow::Both).await;
    eventually("it is not held", SOON, async || guard.state() != HoldState::Held).await;
    assert_eq!(guard.state(), HoldState::Uncertain);
    assert!(!guard.is_lost() && !token.is_cancelled());
    let deadline = guard.deadline();
    assert!(Instant::now() < deadline, "uncertain only when it was lost");
    soon("the loss", guard.lost()).await;
    let lost_at = Instant::now();
    assert!(token.is_cancelled() && guard.is_lost());
    assert_eq!(guard.state(), HoldState::Lost);
    assert!(lost_at < deadline + SLACK / 4, "told {:?} late", lost_at - deadline);
    assert!(lost_at + Duration::from_millis(50) > deadline, "told {:?} early", deadline - lost_at);
    setup.proxy.thaw();
    let error = soon("the release", guard.release()).await.expect_err("it is lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
}

// The hold was *held* until the connection had been tried once more: a short lease was over by
// then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_uncertain_from_the_time_out_of_its_renewal_on() {
    let setup = setup().await;
    let locks = impatient(&setup.proxy).await;
    let guard = held(&locks, "k", REQUEST_TIMEOUT * 3).await;
    setup.proxy.freeze(Connections::All, Flow::Both).await;
    eventually("it is not held", SOON, async || guard.state() != HoldState::Held).await;
    assert_eq!(guard.state(), HoldState::Uncertain);
    setup.proxy.thaw();
    soon("the release", guard.release()).await.expect("it was not lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_of_a_guard_lies_before_the_end_of_its_lease() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let check = async |guard: &lockcore::LockGuard, redis: &mut lock_tests::Raw| {
        let (_, left) = redis.hold("k").await.expect("it holds");
        let end = Instant::now() + Duration::from_millis(u64::try_from(left).expect("a lease"));
        assert!(guard.deadline() < end, "{:?} after it", guard.deadline() - end);
    };
    let guard = held(&near, "k", LONG).await;
    check(&guard, &mut setup.redis).await;
    // The lock is handed off by a message that arrives late: its lease began when it was sent.
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    setup.proxy.freeze(Connections::All, Flow::Replies).await;
    crate::common::release(guard).await;
    tokio::time::sleep(Duration::from_secs(1)).await; // the delay of the message
    setup.proxy.thaw();
    let guard = crate::common::granted(waiting).await;
    check(&guard, &mut setup.redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_limit_ends_when_nothing_has_succeeded_for_fifteen_seconds() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let _guard = held(&near, "k", LONG).await;
    let in_queue = queued(&far, "k", Duration::from_secs(1), &mut setup.redis).await;
    setup.proxy.freeze(Connections::All, Flow::Both).await;
    let frozen = Instant::now();
    // One attempt has its position and one has never reached the server.
    let asking = tokio::spawn(far.key("k").lease(Duration::from_secs(1)).lock());
    for (waiting, what) in [(in_queue, "in the queue"), (asking, "asking")] {
        let ended = tokio::time::timeout(SOON + SOON, waiting).await.expect(what);
        let error = ended.expect("no panic").expect_err(what);
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{what}: {error}");
        let after = frozen.elapsed();
        assert!((14..=19).contains(&after.as_secs()), "{what}: ended after {after:?}");
    }
}
