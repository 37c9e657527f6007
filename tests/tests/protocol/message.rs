//! Messages: which nodes receive a message, and which nodes need none.

use proto::{Demand, Event};

use crate::asking::grant;
use crate::bench::Bench;
use crate::facts;

facts! {
    both: [
        a_grant_is_told_to_the_grantee_s_node_and_to_nobody_else,
        a_grant_to_a_member_of_the_caller_is_told_by_the_reply_alone,
        an_acquire_on_a_free_lock_without_a_queue_sends_no_message,
    ],
    queue: [all_that_one_command_grants_to_a_node_is_told_in_one_message],
}

async fn a_grant_is_told_to_the_grantee_s_node_and_to_nobody_else(mut bench: Bench) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let second = b.queue(30_000).await;
    c.queue(30_000).await;
    a.release(&first).await;
    let heard = b.heard().await;
    let [Event::Granted { token, grants }] = &*heard else { panic!("{heard:?}") };
    assert_eq!(*grants, [(second.number(), 10_000)]);
    let last = match bench.side.has_peers() {
        false => bench.counter().await,
        true => grant(&b.touch(&[&second]).await).token.get(),
    };
    assert_eq!(token.get(), last, "the last that was given out");
    assert_eq!(a.heard().await, []);
    assert_eq!(c.heard().await, []);
}

async fn a_grant_to_a_member_of_the_caller_is_told_by_the_reply_alone(mut bench: Bench) {
    let a = bench.node().await;
    let first = a.hold(30_000).await;
    let second = a.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!((&grant(&reply).member, grant(&reply).left_ms), (&second, 10_000));
    assert_eq!(a.heard().await, []);
}

async fn an_acquire_on_a_free_lock_without_a_queue_sends_no_message(mut bench: Bench) {
    let a = bench.node().await;
    let member = a.hold(30_000).await;
    a.renew(&member).await;
    a.release(&member).await;
    assert_eq!(a.heard().await, []);
}

async fn all_that_one_command_grants_to_a_node_is_told_in_one_message(mut bench: Bench) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let lock = a.hold(30_000).await;
    let mut reads = Vec::new();
    for node in [&b, &c, &a, &b] {
        reads.push(node.queue_for(Demand::READ, 30_000).await);
    }
    let reply = a.release(&lock).await;
    let grants = |numbers: &[usize]| {
        let grants = numbers.iter().map(|number| (reads[*number].number(), 10_000)).collect();
        [Event::Granted { token: grant(&reply).token, grants }]
    };
    assert_eq!(grant(&reply).member, reads[2]);
    assert_eq!(b.heard().await, grants(&[0, 3]));
    assert_eq!(c.heard().await, grants(&[1]));
    assert_eq!(a.heard().await, []);
}
