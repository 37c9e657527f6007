//! Waiters of a disconnected node.

use lock_tests::{CommandStats, Watcher};
use proto::{Acquired, Demand, Left, Member, Mode, Presence};

use crate::asking::grant;
use crate::bench::Bench;
use crate::facts;
use crate::node::Node;
use crate::parts::permits;

facts! {
    both: [
        a_free_lock_is_neither_busy_nor_full_behind_the_dead,
        a_touch_tells_whether_the_server_counts_the_node_s_subscription,
    ],
    queue: [
        those_skipped_go_aside_with_their_scores,
        one_that_was_skipped_is_back_in_its_position_with_its_node_s_next_touch,
        one_that_was_queued_again_while_it_stood_aside_is_back_in_its_first_position,
        one_that_was_skipped_for_longer_than_its_node_s_patience_is_forgotten,
        the_dead_are_skipped_whether_they_fit_or_not,
        the_dead_by_whose_limit_nothing_is_free_keep_out_no_request_that_fits,
        the_dead_by_whose_limit_nothing_is_free_are_out_of_the_way_with_the_next_look,
        one_that_was_skipped_leaves,
        of_more_dead_than_one_command_looks_at_the_rest_is_left_to_a_touch,
    ],
    redisson: [
        those_skipped_keep_their_position_for_five_seconds,
        touched_again_one_that_was_skipped_has_its_patience_and_takes_a_free_lock,
    ],
    scripts: [
        a_node_that_is_not_connected_is_not_tried_for_each_of_its_waiters,
        a_tool_that_subscribes_to_everything_does_not_make_the_dead_look_alive,
    ],
    queue_scripts: [behind_those_skipped_a_hand_over_costs_nothing_more],
}

// Finding 13.
async fn a_free_lock_is_neither_busy_nor_full_behind_the_dead(mut bench: Bench) {
    for (mode, limit) in [(Mode::Try, 1_000), (Mode::Wait, 1)] {
        bench.restart().await;
        let a = bench.node().await;
        a.hold(30_000).await;
        let dead = bench.plant_dead(40).await;
        bench.end_lease().await;
        let member = a.member(30_000);
        let reply = a.acquire(&member, mode, limit).await;
        assert_eq!((reply.outcome, reply.skipped), (Acquired::Granted, 40));
        assert_eq!(bench.holder().await, Some(member));
        let kept = if bench.side.has_peers() { dead } else { Vec::new() };
        assert_eq!(bench.queue().await, kept, "a JVM expects them where they were");
        bench.everything_expires().await;
    }
}

// Finding 18, F3.
async fn those_skipped_go_aside_with_their_scores(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let dead = bench.plant_dead(130).await;
    let scores = bench.state().await.0.of_queue().queue.clone();
    let second = b.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!(reply.skipped, 130);
    assert_eq!(bench.holder().await, Some(second.clone()));
    assert_eq!(bench.queue().await, []);
    let (mut state, now_ms) = bench.state().await;
    let aside = &state.of_queue().set_aside[dead[0].node()];
    assert_eq!(aside.members, scores);
    let lasts = aside.ends_ms - now_ms;
    assert!((14_000..=15_000).contains(&lasts), "{lasts}");
    let third = a.queue(30_000).await;
    assert_eq!(b.release(&second).await.skipped, 0);
    assert_eq!(bench.holder().await, Some(third));
    bench.everything_expires().await;
}

async fn behind_those_skipped_a_hand_over_costs_nothing_more(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    bench.plant_dead(130).await;
    let second = b.queue(30_000).await;
    a.release(&first).await;
    let third = a.queue(30_000).await;
    let before = CommandStats::read(bench.redis()).await;
    b.release(&second).await;
    let spent = CommandStats::read(bench.redis()).await.since(&before);
    assert_eq!(bench.holder().await, Some(third));
    assert_eq!((spent.calls("zrange"), spent.calls("zcard"), spent.calls("publish")), (1, 0, 1));
}

// Finding 18, F3.
async fn those_skipped_keep_their_position_for_five_seconds(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let dead = bench.plant_dead(130).await;
    let second = b.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!(reply.skipped, 130);
    assert_eq!(bench.holder().await, Some(second.clone()));
    // All of them are read at once: reading each takes seconds on a busy machine.
    let (state, now_ms) = bench.state().await;
    for member in &dead {
        let patience = state.alive_until(&member.into()).expect("it waits").saturating_sub(now_ms);
        assert!((3_000..=5_000).contains(&patience), "{patience}");
    }

    // A second check never raises it.
    bench.set_patience(&dead[3], 2_000).await;
    let third = a.queue(30_000).await;
    b.release(&second).await;
    assert_eq!(bench.holder().await, Some(third.clone()));
    assert!(bench.patience(&dead[3]).await <= Some(2_000));

    bench.pass(5_000).await;
    let fourth = b.queue(30_000).await;
    assert_eq!(a.release(&third).await.skipped, 0);
    assert_eq!(bench.holder().await, Some(fourth.clone()));
    assert!(bench.queue().await.is_empty());
}

// F6.
async fn one_that_was_skipped_is_back_in_its_position_with_its_node_s_next_touch(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    let (early, late) = (b.queue(30_000).await, b.queue(30_000).await);
    let next = a.queue(30_000).await;
    let behind = a.queue(30_000).await;
    assert_eq!(a.release(&holder).await.skipped, 2);
    assert_eq!(bench.queue().await, std::slice::from_ref(&behind));
    assert_eq!(bench.aside(&b.id).await, [early.clone(), late.clone()]);

    // Only the touched members, each into its own position, before later arrivals.
    let touched = b.touch(&[&late]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting]);
    assert_eq!(bench.queue().await, [late.clone(), behind.clone()]);
    assert_eq!(bench.aside(&b.id).await, std::slice::from_ref(&early));
    assert_eq!(b.touch(&[&early, &late]).await.outcome.members, [Presence::Waiting; 2]);
    assert_eq!(bench.queue().await, [early.clone(), late.clone(), behind.clone()]);
    assert_eq!(bench.aside(&b.id).await, []);
    assert!(bench.patience(&early).await > Some(14_000));

    // For a node without messages, a request serves as well as a message.
    bench.end_lease().await;
    let touched = b.touch(&[&early]).await;
    assert_eq!((&grant(&touched).member, bench.holder().await), (&early, Some(early.clone())));
    assert_ne!(bench.holder().await, Some(next));
}

async fn one_that_was_queued_again_while_it_stood_aside_is_back_in_its_first_position(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    let passed = b.queue(30_000).await;
    a.queue(30_000).await;
    let behind = a.queue(30_000).await;
    assert_eq!(a.release(&holder).await.skipped, 1);
    // Like a late copy of its acquire.
    assert_eq!(b.wait(&passed).await.outcome, Acquired::Queued { position: 1 });
    assert_eq!(bench.queue().await, [behind.clone(), passed.clone()]);
    assert_eq!(b.touch(&[&passed]).await.outcome.members, [Presence::Waiting]);
    assert_eq!(bench.queue().await, [passed, behind]);
}

async fn one_that_was_skipped_for_longer_than_its_node_s_patience_is_forgotten(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    let passed = b.queue(30_000).await;
    a.queue(30_000).await;
    assert_eq!(a.release(&holder).await.skipped, 1);
    let renewed = bench.holder().await.expect("held");
    a.renew(&renewed).await;
    bench.pass(15_000).await;
    assert_eq!(b.touch(&[&passed]).await.outcome.members, [Presence::Gone]);
    assert_eq!(bench.queue().await, []);
    // It waits again behind all others.
    let last = a.queue(30_000).await;
    assert_eq!(b.wait(&passed).await.outcome, Acquired::Queued { position: 1 });
    assert_eq!(bench.queue().await, [last, passed]);
}

async fn the_dead_are_skipped_whether_they_fit_or_not(mut bench: Bench) {
    let a = bench.node().await;
    let read = a.hold_for(Demand::READ, 30_000).await;
    let dead = bench.plant_dead(2).await; // locks, which do not fit beside a read
    let reader = a.member_for(Demand::READ, 30_000);
    let reply = a.wait(&reader).await;
    assert_eq!((reply.outcome, reply.skipped), (Acquired::Granted, 2));
    let parts: Vec<_> = bench.parts().await.into_iter().map(|(member, _)| member).collect();
    assert!(parts.len() == 2 && parts.contains(&read) && parts.contains(&reader), "{parts:?}");
    assert_eq!(bench.state().await.0.of_queue().set_aside[dead[0].node()].members.len(), 2);
    bench.everything_expires().await;
}

impl Bench {
    /// A held permit, of a limit of one, and a waiting permit, of a node disconnected from now on.
    /// Between them, optionally, a member of another node that would fit.
    async fn dead_permit(&mut self, behind: Option<Demand>) -> (Node, [Member; 2], Option<Member>) {
        let (a, b, dead) = (self.node().await, self.node().await, self.node().await);
        let held = a.hold_for(permits(1, 1), 30_000).await;
        let first = dead.queue_for(permits(1, 1), 30_000).await;
        let waits = match behind {
            Some(demand) => Some(b.queue_for(demand, 30_000).await),
            None => None,
        };
        dead.connect(false).await;
        (b, [held, first], waits)
    }

    /// Checks that the dead permit was set aside, and this member holds beside the other permit.
    async fn is_beside(&mut self, [held, dead]: &[Member; 2], granted: &Member) {
        let parts: Vec<_> = self.parts().await.into_iter().map(|(member, _)| member).collect();
        assert!(parts.len() == 2 && parts.contains(held) && parts.contains(granted), "{parts:?}");
        assert_eq!(self.aside(&dead.node().into()).await, std::slice::from_ref(dead));
        self.everything_expires().await;
    }
}

async fn the_dead_by_whose_limit_nothing_is_free_keep_out_no_request_that_fits(mut bench: Bench) {
    for (demand, mode) in [(Demand::READ, Mode::Wait), (permits(1, 5), Mode::Try)] {
        bench.restart().await;
        let (b, permits, _) = bench.dead_permit(None).await;
        let member = b.member_for(demand, 30_000);
        let reply = b.acquire(&member, mode, 1_000).await;
        assert_eq!((reply.outcome, reply.skipped), (Acquired::Granted, 1));
        bench.is_beside(&permits, &member).await;
    }
}

async fn the_dead_by_whose_limit_nothing_is_free_are_out_of_the_way_with_the_next_look(
    mut bench: Bench,
) {
    for (demand, is_touched) in [(Demand::READ, true), (permits(1, 5), false)] {
        bench.restart().await;
        let (b, permits, waits) = bench.dead_permit(Some(demand)).await;
        let waits = waits.expect("it waits");
        let skipped = match is_touched {
            true => b.touch(&[&waits]).await.skipped,
            // Another demand that does not fit either.
            false => {
                b.wait(&b.member_for(Demand::permits(1, 1).expect("one of one"), 30_000))
                    .await
                    .skipped
            }
        };
        assert_eq!(skipped, 1);
        bench.is_beside(&permits, &waits).await;
    }
}

// Members of a skipped node leave for good as well.
async fn one_that_was_skipped_leaves(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    let (one, other) = (b.queue(30_000).await, b.queue(30_000).await);
    a.queue(30_000).await;
    a.release(&holder).await;
    assert_eq!(b.leave(&one).await.outcome, [Left::Left]);
    assert_eq!(bench.aside(&b.id).await, std::slice::from_ref(&other));
    assert_eq!(b.touch(&[&one, &other]).await.outcome.members, [Presence::Gone, Presence::Waiting]);
}

// F3: any number, in one call.
async fn a_node_that_is_not_connected_is_not_tried_for_each_of_its_waiters(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    bench.plant_dead(50).await;
    bench.plant_dead(50).await;
    let second = b.queue(30_000).await;
    let before = CommandStats::read(bench.redis()).await;
    assert_eq!(a.release(&first).await.skipped, 100);
    let spent = CommandStats::read(bench.redis()).await.since(&before);
    // One per node; the slow path may look for the head once more.
    assert!(spent.calls("pubsub|numsub") <= 4, "{}", spent.calls("pubsub|numsub"));
    assert_eq!(spent.calls("publish"), 1);
    assert_eq!(bench.holder().await, Some(second));
}

// F3: 200 in a step; the node that receives `more` continues.
async fn of_more_dead_than_one_command_looks_at_the_rest_is_left_to_a_touch(mut bench: Bench) {
    let a = bench.node().await;
    let first = a.hold(30_000).await;
    bench.plant_dead(450).await;
    let next = a.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!((reply.skipped, reply.more, bench.holder().await), (200, true, None));
    let reply = a.touch(&[]).await;
    assert_eq!((reply.skipped, reply.more, bench.holder().await), (200, true, None));
    let reply = a.touch(&[]).await;
    assert_eq!((reply.skipped, reply.more), (50, false));
    assert_eq!((&grant(&reply).member, bench.holder().await), (&next, Some(next.clone())));
}

async fn a_tool_that_subscribes_to_everything_does_not_make_the_dead_look_alive(mut bench: Bench) {
    let url = bench.server().url();
    let (_one, _another) = (Watcher::start(&url).await, Watcher::start(&url).await);
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    bench.plant_dead(1).await;
    let second = b.queue(30_000).await;
    let reply = a.release(&first).await;
    assert_eq!((reply.skipped, bench.holder().await), (1, Some(second.clone())));
    // The slow path as well: another member is dead, in Redisson's layout behind the first.
    bench.plant_dead(1).await;
    let third = a.queue(30_000).await;
    let dead = if bench.side.has_peers() { 2 } else { 1 };
    let reply = b.release(&second).await;
    assert_eq!((reply.skipped, bench.holder().await), (dead, Some(third)));
}

// Finding 14.
async fn a_touch_tells_whether_the_server_counts_the_node_s_subscription(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.deaf_node().await);
    a.hold(30_000).await;
    let (heard, unheard) = (a.queue(30_000).await, b.queue(30_000).await);
    assert_eq!(a.touch(&[&heard]).await.outcome.listeners, 1);
    assert_eq!(b.touch(&[&unheard]).await.outcome.listeners, 0);
}

// Finding 14.
async fn touched_again_one_that_was_skipped_has_its_patience_and_takes_a_free_lock(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.deaf_node().await);
    let holder = a.hold(30_000).await;
    let waiting = a.queue(30_000).await;
    let passed = b.queue(30_000).await;
    let last = a.queue(30_000).await;
    a.release(&holder).await;
    a.release(&waiting).await;
    assert_eq!(bench.holder().await, Some(last.clone()), "the deaf one is skipped");
    let touched = b.touch(&[&passed]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting]);
    assert!(bench.patience(&passed).await > Some(14_000));
    a.release(&last).await;
    let touched = b.touch(&[&passed]).await;
    assert_eq!(grant(&touched).member, passed);
}
