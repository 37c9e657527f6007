//! Replies lost after their script has run, and requests that arrive too late.

use std::time::Duration;

use lock_tests::{
    CommandStats, Connections, Fault, Proxy, Raw, RedisServer, eventually, tombstones_key,
};
use lockcore::{HoldState, LockErrorKind, Locks};

use crate::common::{
    LONG, SHORT, SOON, connected, counter, granted, held, holder, nothing_left, queue, queue_has,
    queued, release, setup, soon,
};
use crate::script::runs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_whose_reply_is_lost_has_the_same_grant_when_it_is_repeated() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let fault = setup.proxy.lose_reply(runs("lock"));
    setup.proxy.refuse().await; // nothing is repeated until the test has looked
    let waiting = tokio::spawn(locks.lock("k"));
    soon("the fault", fault.struck()).await;
    let granted_to = holder(&mut setup.redis, "k").await;
    let issued = counter(&mut setup.redis).await;
    assert!(granted_to.is_some(), "the script has run");
    setup.proxy.accept();
    let guard = granted(waiting).await;
    // A lock's token is stored nowhere: a client that repeats the request gets a new token.
    assert!(guard.fencing_token().get() > issued);
    assert_eq!(holder(&mut setup.redis, "k").await, granted_to);
    assert_eq!(queue(&mut setup.redis, "k").await, Vec::<String>::new(), "nor does it wait");
    release(guard).await;
    nothing_left(&mut setup.redis, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_whose_reply_is_lost_has_the_same_position_when_it_is_repeated() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let guard = held(&near, "k", LONG).await;
    let fault = setup.proxy.lose_reply(runs("lock"));
    let first = tokio::spawn(far.lock("k"));
    soon("the fault", fault.struck()).await;
    let second = queued(&near, "k", LONG, &mut setup.redis).await;
    let places = queue(&mut setup.redis, "k").await;
    assert_eq!(places.len(), 2);
    connected(&far).await;
    release(guard).await;
    let guard = granted(first).await;
    assert_eq!(holder(&mut setup.redis, "k").await.as_ref(), places.first());
    assert_eq!(queue(&mut setup.redis, "k").await, places[1..]);
    assert_eq!(far.status().positions_lost, 0);
    release(guard).await;
    release(granted(second).await).await;
    nothing_left(&mut setup.redis, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_reply_is_lost_has_freed_the_lock_once_and_its_repetition_harms_nobody() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let guard = held(&far, "k", LONG).await;
    let waiting = queued(&near, "k", LONG, &mut setup.redis).await;
    let fault = setup.proxy.lose_reply(runs("unlock"));
    let error = soon("an answer", guard.release()).await.expect_err("it is not known");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    soon("the fault", fault.struck()).await;
    let guard = granted(waiting).await;
    eventually("it was repeated", SOON, async || far.status().releasing == 0).await;
    assert!(holder(&mut setup.redis, "k").await.expect("held").contains(near.node().as_str()));
    assert_eq!(guard.state(), HoldState::Held);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_told_only_in_a_lost_reply_is_told_again() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let guard = held(&locks, "k", LONG).await;
    // The waiter is of the same node: only the release's reply reports its grant.
    let waiting = queued(&locks, "k", LONG, &mut setup.redis).await;
    let fault = setup.proxy.lose_reply(runs("unlock"));
    setup.proxy.refuse().await;
    let releasing = tokio::spawn(guard.release());
    soon("the fault", fault.struck()).await;
    let issued = counter(&mut setup.redis).await;
    let grantee = holder(&mut setup.redis, "k").await;
    setup.proxy.accept();
    let _ = soon("an answer", releasing).await.expect("no panic");
    let guard = tokio::time::timeout(Duration::from_millis(3_500), granted(waiting)).await;
    let guard = guard.expect("told on reconnecting, not by a touch of every 4 s");
    assert!(guard.fencing_token().get() > issued, "a new token");
    assert_eq!(holder(&mut setup.redis, "k").await, grantee, "of the same hold");
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leave_whose_reply_is_lost_is_repeated_and_leaves_nothing() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    let fault = setup.proxy.lose_reply(runs("leave"));
    waiting.abort();
    soon("the fault", fault.struck()).await;
    eventually("it was repeated", SOON, async || far.status().releasing == 0).await;
    queue_has(&mut setup.redis, "k", 0).await;
    release(guard).await;
    nothing_left(&mut setup.redis, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_of_a_dropped_guard_that_never_reached_the_server_is_repeated() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let guard = held(&locks, "k", LONG).await;
    let fault = setup.proxy.lose_request(runs("unlock"));
    drop(guard);
    soon("the fault", fault.struck()).await;
    nothing_left(&mut setup.redis, "k").await;
    eventually("nothing is open", SOON, async || locks.status().releasing == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_whose_reply_is_lost_is_repeated_and_the_hold_goes_on() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let guard = held(&locks, "k", Duration::from_secs(3)).await;
    let first_deadline = guard.deadline();
    let fault = setup.proxy.lose_reply(runs("extend"));
    soon("the fault", fault.struck()).await;
    eventually("it is renewed", SOON, async || guard.deadline() > first_deadline + SHORT / 4).await;
    assert_eq!(guard.state(), HoldState::Held);
    assert!(holder(&mut setup.redis, "k").await.is_some());
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_touch_whose_reply_is_lost_costs_no_position() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let guard = held(&near, "k", LONG).await;
    let fault = setup.proxy.lose_reply(runs("touch"));
    let waiting = queued(&far, "k", SHORT, &mut setup.redis).await;
    let places = queue(&mut setup.redis, "k").await;
    soon("the fault", fault.struck()).await;
    connected(&far).await;
    assert_eq!(queue(&mut setup.redis, "k").await, places);
    release(guard).await;
    let guard = granted(waiting).await;
    assert_eq!(holder(&mut setup.redis, "k").await, places.into_iter().next());
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_dropped_before_its_acquire_was_answered_leaves_nothing() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let fault = setup.proxy.hold_reply(runs("lock"));
    let waiting = tokio::spawn(locks.lock("k"));
    soon("the fault", fault.struck()).await;
    assert!(holder(&mut setup.redis, "k").await.is_some(), "the server has granted it");
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
    fault.release();
    nothing_left(&mut setup.redis, "k").await;
    eventually("nothing is open", SOON, async || {
        let status = locks.status();
        status.waiting + status.holding + status.releasing == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_dropped_whose_acquire_reply_was_lost_leaves_nothing() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let fault = setup.proxy.lose_reply(runs("lock"));
    setup.proxy.refuse().await;
    let waiting = tokio::spawn(locks.lock("k"));
    soon("the fault", fault.struck()).await;
    assert!(holder(&mut setup.redis, "k").await.is_some(), "the server has granted it");
    waiting.abort();
    setup.proxy.accept();
    nothing_left(&mut setup.redis, "k").await;
    eventually("nothing is open", SOON, async || {
        let status = locks.status();
        status.waiting + status.holding + status.releasing == 0
    })
    .await;
}

/// An acquire held back until its attempt has been dropped and has left.
struct Late {
    proxy: Proxy,
    redis: Raw,
    locks: Locks,
    fault: Fault,
    _server: RedisServer,
}

async fn late_acquire(rights: &str) -> Late {
    let user = format!("locker on >secret ~* &* {rights}");
    let server = RedisServer::options().arg("user", &user).start();
    let proxy = Proxy::start(server.address());
    let mut redis = Raw::connect(&server.url()).await;
    let url = format!("redis://locker:secret@{}/", proxy.address());
    let builder = Locks::builder().request_timeout(Duration::from_millis(300));
    let locks = soon("a connection", builder.connect(&url)).await.expect("it has the rights");
    let fault = proxy.hold_request(runs("lock"));
    let waiting = tokio::spawn(locks.lock("k"));
    soon("the fault", fault.struck()).await;
    waiting.abort();
    eventually("it has left", SOON, async || {
        let status = locks.status();
        status.waiting + status.releasing == 0
    })
    .await;
    assert_eq!(holder(&mut redis, "k").await, None);
    Late { proxy, redis, locks, fault, _server: server }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_arrives_after_its_attempt_was_dropped_is_not_granted() {
    let mut late = late_acquire("+@all -client +client|info").await;
    assert_eq!(late.redis.scores(&tombstones_key("k")).await.len(), 1);
    let before = CommandStats::read(&mut late.redis).await.calls("evalsha");
    late.fault.release();
    let redis = &mut late.redis;
    // The first copy of its leave runs after it, because it was sent on the same connection.
    eventually("the late acquire runs", SOON, async || {
        CommandStats::read(redis).await.calls("evalsha") > before
    })
    .await;
    nothing_left(&mut late.redis, "k").await;
    let guard = soon("an answer", late.locks.try_lock("k")).await.expect("an answer");
    release(guard.expect("it is free")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_replaced_runs_nothing_any_more() {
    let mut late = late_acquire("+@all").await;
    let redis = &mut late.redis;
    let proxy = &late.proxy;
    eventually("the server has closed it", SOON, async || proxy.open(Connections::Commands) == 1)
        .await;
    let before = CommandStats::read(redis).await.calls("evalsha");
    late.fault.release();
    let guard = soon("an answer", late.locks.try_lock("k")).await.expect("an answer");
    release(guard.expect("it is free")).await;
    // These are the try and the release.
    assert_eq!(CommandStats::read(redis).await.calls("evalsha"), before + 2);
}
