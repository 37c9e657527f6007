//! Our members removed because of a JVM's clock or arithmetic, and how they return.

use proto::{Acquired, Member, Mode, Party, Presence};

use crate::bench::Bench;
use crate::facts;
use crate::thread::{STEP_MS, THREADS};

facts! {
    redisson: [
        all_that_a_jvm_threw_out_come_back_with_the_first_touch_in_the_order_in_which_they_came,
        all_that_a_jvm_threw_out_come_back_with_a_repeated_acquire_too,
        one_that_left_or_was_silent_for_too_long_does_not_come_back,
        a_free_lock_goes_to_the_first_that_was_thrown_out_whoever_acquires_again,
        a_released_member_that_was_thrown_out_before_does_not_come_back,
    ],
}

/// Members of two nodes, alternating, before a thread of a JVM that removes all of them.
async fn thrown_out(bench: &mut Bench, nodes: [&crate::node::Node; 2]) -> Vec<Member> {
    nodes[0].hold(30_000).await;
    let mut ours = Vec::new();
    for number in 0..6 {
        ours.push(nodes[number % 2].queue(30_000).await);
    }
    bench.jvm_queues(THREADS[0], STEP_MS).await;
    for _ in &ours {
        bench.head_goes(0).await;
    }
    assert_eq!(bench.parties().await, [Party::from(THREADS[0])]);
    ours
}

async fn all_that_a_jvm_threw_out_come_back_with_the_first_touch_in_the_order_in_which_they_came(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let ours = thrown_out(&mut bench, [&a, &b]).await;
    let mut queue: Vec<_> = ours.iter().map(Party::from).collect();
    queue.push(Party::from(THREADS[0]));
    for (node, from) in [(&b, 1), (&a, 0)] {
        let members: Vec<_> = ours.iter().skip(from).step_by(2).collect();
        assert_eq!(node.touch(&members).await.outcome.members, [Presence::Waiting; 3]);
        assert_eq!(bench.parties().await, queue);
    }
}

async fn all_that_a_jvm_threw_out_come_back_with_a_repeated_acquire_too(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let ours = thrown_out(&mut bench, [&a, &b]).await;
    let mut queue: Vec<_> = ours.iter().map(Party::from).collect();
    queue.push(Party::from(THREADS[0]));
    // A queue that is full for others is not full for a member that waits.
    let again = b.acquire(&ours[3], Mode::Wait, 1).await.outcome;
    assert_eq!(again, Acquired::Queued { position: 3 });
    assert_eq!(bench.parties().await, queue);
    a.touch(&[&ours[0], &ours[2], &ours[4]]).await;
    assert_eq!(bench.parties().await, queue);
}

/// Two members of different nodes whose lock and queue a JVM has deleted.
async fn deleted(bench: &mut Bench, nodes: [&crate::node::Node; 2]) -> [Member; 2] {
    nodes[0].hold(30_000).await;
    let members = [nodes[0].queue(30_000).await, nodes[1].queue(30_000).await];
    bench
        .change(|state, _| {
            let state = state.of_redisson();
            state.hold = None;
            state.queue.clear();
            state.deadlines.clear();
        })
        .await;
    members
}

async fn a_free_lock_goes_to_the_first_that_was_thrown_out_whoever_acquires_again(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let [first, second] = deleted(&mut bench, [&a, &b]).await;
    assert_eq!(b.wait(&second).await.outcome, Acquired::Queued { position: 0 });
    assert_eq!(bench.holder().await, Some(first));
    assert_eq!(bench.parties().await, [Party::from(&second)]);
}

async fn a_released_member_that_was_thrown_out_before_does_not_come_back(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let [first, second] = deleted(&mut bench, [&a, &b]).await;
    assert_eq!(a.wait(&first).await.outcome, Acquired::Granted);
    a.release(&first).await;
    b.touch(&[&second]).await;
    assert_eq!((bench.holder().await, bench.parties().await), (Some(second), vec![]));
}

async fn one_that_left_or_was_silent_for_too_long_does_not_come_back(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let ours = thrown_out(&mut bench, [&a, &b]).await;
    a.leave(&ours[2]).await;
    bench.end_patience(&ours[5]).await;
    let touched = a.touch(&[&ours[0], &ours[2], &ours[4]]).await;
    let expected = [Presence::Waiting, Presence::Gone, Presence::Waiting];
    assert_eq!(touched.outcome.members, expected);
    let mut queue: Vec<_> = [0, 1, 3, 4].map(|at: usize| Party::from(&ours[at])).into();
    queue.push(Party::from(THREADS[0]));
    assert_eq!(bench.parties().await, queue);
}
