//! Positions in the queue, lost and kept.

use lock_tests::{Raw, RedisServer, eventually, lock_key, queue_key};
use lockcore::Locks;
use redis::cmd;

use crate::backend::{Backend, SOON, granted, soon, until_nothing_is_left, until_waiting, wait_as};

struct Bench {
    redis: Raw,
    a: Locks,
    b: Locks,
    _server: RedisServer,
}

async fn bench() -> Bench {
    let backend = Backend::redis();
    let [a, b] = backend.nodes().await;
    let Backend::Redis(server) = backend else { unreachable!() };
    let redis = Raw::connect(&server.url()).await;
    Bench { redis, a, b, _server: server }
}

async fn drop_from_queue(redis: &mut Raw, member: &str) {
    assert_eq!(redis.ask::<usize>(cmd("ZREM").arg(queue_key("key")).arg(member)).await, 1);
}

// Finding 6.
#[tokio::test]
async fn a_waiter_whose_position_was_lost_goes_on_at_the_tail_under_a_new_number() {
    let Bench { mut redis, a, b, _server } = bench().await;
    let guard = a.lock("key").await.expect("free");
    let first = wait_as(1, &b, "key").await;
    let second = wait_as(2, &a, "key").await;
    let lost = a.inspect("key").await.expect("an inspection").waiters[0].member.clone();
    drop_from_queue(&mut redis, &lost).await;
    until_waiting(2, &a, "key").await; // its touch finds the member missing
    let seen = a.inspect("key").await.expect("an inspection").waiters;
    assert_eq!(seen[1].node.as_ref(), Some(b.node()));
    assert_ne!(seen[1].member, lost, "a retired number is never used again");
    assert_eq!(b.status().positions_lost, 1);

    // A late grant for the retired id is ignored.
    let channel = format!("lockcore:grants:{}", b.node());
    let token = guard.fencing_token().get() + 1;
    let number = lost.split(':').nth(1).expect("a member has a number");
    assert_eq!(redis.publish(&channel, &format!("p {token} {number} 10000")).await, 1);
    b.ping().await.expect("an answer");
    assert!(!first.is_finished() && !second.is_finished());

    guard.release().await.expect("held until now");
    let second = granted(second).await;
    assert!(!first.is_finished());
    second.release().await.expect("held until now");
    granted(first).await.release().await.expect("held until now");
}

// Finding 6: a node enqueues its own waiters again in their order.
#[tokio::test]
async fn waiters_of_one_node_that_lose_their_positions_together_keep_their_order() {
    let Bench { mut redis, a, b, _server } = bench().await;
    let guard = a.lock("key").await.expect("free");
    let mut waiting = Vec::new();
    for length in 1..=10 {
        waiting.push(wait_as(length, &b, "key").await);
    }
    let () = redis.ask(cmd("DEL").arg(queue_key("key"))).await;
    let all_back = async || b.status().positions_lost == 10;
    eventually("all have noticed", SOON, all_back).await;
    until_waiting(10, &a, "key").await;
    guard.release().await.expect("held until now");
    for next in waiting {
        granted(next).await.release().await.expect("held until now");
    }
}

// Finding 7: giving up an attempt with a new id removes the new member.
#[tokio::test]
async fn a_waiter_that_has_lost_its_position_can_still_be_cancelled() {
    let Bench { mut redis, a, b, _server } = bench().await;
    let guard = a.lock("key").await.expect("free");
    let waiting = wait_as(1, &b, "key").await;
    let () = redis.ask(cmd("DEL").arg(queue_key("key"))).await;
    eventually("it has noticed", SOON, async || b.status().positions_lost == 1).await;
    until_waiting(1, &a, "key").await;
    waiting.abort();
    until_waiting(0, &a, "key").await;
    guard.release().await.expect("held until now");
    until_nothing_is_left(&b, "key").await;
}

// L3: nobody renews a hold that no task has.
#[tokio::test]
async fn a_hold_that_its_own_node_knows_nothing_of_ends_with_its_lease() {
    let Bench { mut redis, a, b, _server } = bench().await;
    let zombie = format!("~2{}:4711:1500:w:granted late", b.node());
    let () = redis.ask(cmd("PSETEX").arg(lock_key("key")).arg(1_500).arg(&zombie)).await;
    assert!(a.try_lock("key").await.expect("an answer").is_none());
    let guard = soon(b.lock("key")).await.expect("its lease has ended");
    guard.release().await.expect("held until now");
    until_nothing_is_left(&b, "key").await;
}
