//! Batches: consecutive waiting members of a node are granted one hold.

use std::num::NonZeroU32;

use proto::{
    Acquired, Answer, Command, Demand, Event, Label, Leaving, Left, Member, Mode, Presence,
    Released, Renewed,
};

use crate::asking::grant;
use crate::bench::Bench;
use crate::facts;
use crate::node::Node;

facts! {
    queue: [
        a_release_grants_the_members_of_one_node_at_the_head_as_one_hold_with_a_token_each,
        a_batch_ends_in_front_of_a_member_of_another_node_with_another_lease_or_alone,
        a_batch_has_no_more_members_than_its_first_allows_and_none_that_come_later,
        a_member_of_a_batch_that_asks_again_or_touches_is_told_of_the_batch_by_new_tokens,
        a_leave_takes_its_member_out_of_a_batch_and_the_last_one_gives_the_hold_on,
        a_served_first_that_leaves_the_queue_leaves_the_name_of_the_batch_too,
        a_batch_is_renewed_confirmed_and_released_by_the_name_of_its_first,
        the_members_of_a_batch_whose_lease_has_ended_come_back_in_front_with_a_touch,
        a_batch_keeps_its_positions_although_its_node_has_no_liveness_deadline,
        a_batch_whose_node_stays_away_is_forgotten_15_s_after_it_was_cut_short,
        a_force_release_of_a_batch_tells_all_its_members_and_frees_the_lock,
        the_members_of_a_batch_that_was_force_released_come_back_in_front_with_a_touch,
        batches_that_were_set_aside_one_after_the_other_come_back_in_this_order,
        a_reduction_puts_the_members_of_the_batch_that_still_wait_back_in_front,
        a_reduction_brings_back_no_member_that_has_left,
        a_reduction_of_a_member_that_has_left_the_batch_changes_nothing,
        a_batch_at_the_end_of_the_counter_begins_above_the_time,
        an_operator_sees_who_of_a_batch_holds_and_who_waits,
        a_batch_counts_in_the_positions_of_those_behind_it,
        a_batch_counts_for_the_queue_limit,
    ],
}

impl Node {
    /// A new member with this batch limit.
    pub(crate) fn in_batch(&self, limit: usize, lease_ms: u64) -> Member {
        let number = self.member(lease_ms).number();
        Member::in_batch(&self.id, number, lease_ms, limit, &Label::new("test"))
    }

    /// Queues `count` members that may be served in one batch.
    async fn queue_batch(&self, count: usize) -> Vec<Member> {
        let mut members = Vec::new();
        for _ in 0..count {
            let member = self.in_batch(8, 30_000);
            let outcome = self.wait(&member).await.outcome;
            assert!(matches!(outcome, Acquired::Queued { .. }), "{outcome:?}");
            members.push(member);
        }
        members
    }
}

fn numbers(members: &[Member]) -> Vec<u64> {
    members.iter().map(Member::number).collect()
}

impl Bench {
    /// A batch of three of the second node, after a hand-off by the first node.
    pub(crate) async fn batch_of_three(&mut self) -> (Node, Node, Vec<Member>) {
        let (a, b) = (self.node().await, self.node().await);
        let held = a.hold(30_000).await;
        let members = b.queue_batch(3).await;
        a.release(&held).await;
        assert_eq!(self.batch().await, numbers(&members));
        b.heard().await;
        (a, b, members)
    }

    /// The member ids of the batch that has the lock.
    pub(crate) async fn batch(&mut self) -> Vec<u64> {
        self.state().await.0.of_queue().batch().to_vec()
    }
}

async fn a_release_grants_the_members_of_one_node_at_the_head_as_one_hold_with_a_token_each(
    mut bench: Bench,
) {
    for is_own in [false, true] {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        let held = a.hold(30_000).await;
        let members = if is_own { a.queue_batch(3).await } else { b.queue_batch(3).await };
        let reply = a.release(&held).await;
        assert_eq!(reply.outcome, Released::Released);
        assert_eq!(bench.holder().await.as_ref(), Some(&members[0]));
        assert_eq!((bench.batch().await, bench.queue().await), (numbers(&members), vec![]));
        // A token each, up to the last drawn token.
        let first = bench.counter().await - 2;
        let left = bench.left().await;
        assert!((9_000..=10_000).contains(&left), "a claim: {left}");
        if is_own {
            let grant = grant(&reply);
            assert_eq!(
                (grant.member.clone(), &grant.batch),
                (members[0].clone(), &numbers(&members))
            );
            assert_eq!((grant.token.get(), grant.left_ms), (first, 10_000));
        } else {
            let heard = b.heard().await;
            let [Event::GrantedBatch { token, left_ms, numbers: listed }] = &heard[..] else {
                panic!("{heard:?}")
            };
            assert_eq!((token.get(), *left_ms, listed), (first, 10_000, &numbers(&members)));
        }
        bench.everything_expires().await;
    }
}

async fn a_batch_ends_in_front_of_a_member_of_another_node_with_another_lease_or_alone(
    mut bench: Bench,
) {
    for case in 0..4 {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        let held = a.hold(30_000).await;
        let members = b.queue_batch(2).await;
        let other = match case {
            0 => a.in_batch(8, 30_000),
            1 => b.in_batch(8, 20_000),
            2 => b.in_batch(1, 30_000),
            _ => b.member_for(Demand::READ, 30_000),
        };
        b_or_a(&a, &b, &other).wait(&other).await;
        let last = b.queue_batch(1).await;
        a.release(&held).await;
        assert_eq!(bench.batch().await, numbers(&members), "{case}");
        assert_eq!(bench.queue().await, [other, last[0].clone()], "{case}");
    }
}

fn b_or_a<'a>(a: &'a Node, b: &'a Node, member: &Member) -> &'a Node {
    if member.is_of(&a.id) { a } else { b }
}

async fn a_batch_has_no_more_members_than_its_first_allows_and_none_that_come_later(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = a.hold(30_000).await;
    let mut members = Vec::new();
    for _ in 0..4 {
        let member = b.in_batch(3, 30_000);
        b.wait(&member).await;
        members.push(member);
    }
    a.release(&held).await;
    assert_eq!(bench.batch().await, numbers(&members[..3]));
    let later = b.in_batch(3, 30_000);
    assert_eq!(b.wait(&later).await.outcome, Acquired::Queued { position: 3 });
    assert_eq!(bench.batch().await, numbers(&members[..3]));
    b.release(&members[0]).await;
    assert_eq!(bench.batch().await, [members[3].number(), later.number()]);
}

async fn a_member_of_a_batch_that_asks_again_or_touches_is_told_of_the_batch_by_new_tokens(
    mut bench: Bench,
) {
    let (_, b, members) = bench.batch_of_three().await;
    let before = bench.counter().await;
    let reply = b.wait(&members[1]).await;
    assert_eq!(reply.outcome, Acquired::Granted);
    let reported = grant(&reply);
    assert_eq!(
        (reported.member.clone(), &reported.batch),
        (members[0].clone(), &numbers(&members))
    );
    assert!(reported.token.get() > before);
    assert_eq!(bench.counter().await, reported.token.get() + 2);
    // All of them at once are reported once, even with a newcomer between them.
    let later = b.in_batch(8, 30_000);
    let reply = b.wait_all(&[&members[2], &later, &members[0]]).await;
    let queued = Acquired::Queued { position: 2 };
    assert_eq!(reply.outcome, [Acquired::Granted, queued, Acquired::Granted]);
    assert_eq!(grant(&reply).batch, numbers(&members));
    let touched = b.touch(&[&members[1], &later, &members[2]]).await;
    let presence = [Presence::Holding, Presence::Waiting, Presence::Holding];
    assert_eq!(touched.outcome.members, presence);
    assert_eq!(grant(&touched).batch, numbers(&members));
    assert_eq!(bench.queue().await, [later]);
}

async fn a_leave_takes_its_member_out_of_a_batch_and_the_last_one_gives_the_hold_on(
    mut bench: Bench,
) {
    let (a, b, members) = bench.batch_of_three().await;
    let next = a.queue(30_000).await;
    let left = bench.left().await;
    let reply = b.leave(&members[0]).await;
    assert_eq!(reply.outcome, [Left::Left]);
    let reported = grant(&reply);
    assert_eq!((&reported.member, &reported.batch), (&members[1], &numbers(&members[1..])));
    assert_eq!(reported.token.get() + 1, bench.counter().await, "a token for each");
    assert_eq!(bench.holder().await.as_ref(), Some(&members[1]), "the hold has its name");
    assert!(bench.left().await <= left, "the lease stays the same");
    assert_eq!(bench.batch().await, numbers(&members[1..]));
    assert_eq!(b.leave(&members[0]).await.outcome, [Left::Absent]);
    assert_eq!(b.leave_ambiguous(&members[2]).await.outcome, [Left::Left]);
    assert_eq!(
        (bench.batch().await, bench.tombstones().await),
        (vec![members[1].number()], vec![members[2].clone()])
    );
    assert_eq!(b.leave(&members[1]).await.outcome, [Left::Left]);
    assert_eq!(bench.holder().await, Some(next));
}

// A late copy of its acquire has queued it meanwhile.
async fn a_served_first_that_leaves_the_queue_leaves_the_name_of_the_batch_too(mut bench: Bench) {
    let (_a, b, members) = bench.batch_of_three().await;
    let done = Leaving { member: members[0].clone(), ambiguous: false, served: true };
    b.run(Command::Leave { leaving: vec![done] }).await.expect("it ran");
    let outcome = b.wait(&members[0]).await.outcome;
    assert!(matches!(outcome, Acquired::Queued { .. }), "{outcome:?}");
    let reply = b.leave(&members[0]).await;
    assert_eq!(reply.outcome, [Left::Left]);
    assert_eq!(grant(&reply).member, members[1]);
    assert_eq!(bench.holder().await.as_ref(), Some(&members[1]));
}

async fn a_batch_is_renewed_confirmed_and_released_by_the_name_of_its_first(mut bench: Bench) {
    let (a, b, members) = bench.batch_of_three().await;
    let next = a.queue(30_000).await;
    assert_eq!(b.renew(&members[1]).await.outcome, [Renewed::NotHeld]);
    assert_eq!(b.renew(&members[0]).await.outcome, [Renewed::Held]);
    assert!(bench.left().await > 29_000);
    let before = bench.counter().await;
    let reply = b.confirm(&members[0]).await;
    assert_eq!(reply.outcome, [Renewed::Held]);
    let reported = grant(&reply);
    assert!(reported.token.get() > before && reported.batch == numbers(&members));
    assert_eq!(bench.counter().await, reported.token.get() + 2);
    assert_eq!(bench.batch().await, numbers(&members));
    assert_eq!(b.release(&members[1]).await.outcome, Released::NotHeld);
    assert_eq!(b.release(&members[0]).await.outcome, Released::Released);
    assert_eq!((bench.holder().await, bench.batch().await), (Some(next), vec![]));
}

async fn the_members_of_a_batch_whose_lease_has_ended_come_back_in_front_with_a_touch(
    mut bench: Bench,
) {
    // Another command notices the end, or the touch itself.
    for is_noticed in [true, false] {
        bench.restart().await;
        let (a, b, members) = bench.batch_of_three().await;
        let (next, last) = (a.queue(30_000).await, a.queue(30_000).await);
        bench.end_lease().await;
        assert_eq!(b.renew(&members[0]).await.outcome, [Renewed::NotHeld]);
        if is_noticed {
            a.touch(&[&next, &last]).await;
            assert_eq!(bench.holder().await.as_ref(), Some(&next), "the grant of that moment");
        }
        let touched = b.touch(&[&members[1], &members[2]]).await;
        assert_eq!(touched.outcome.members, [Presence::Waiting; 2]);
        let (queue, batch) = (bench.queue().await, bench.batch().await);
        if is_noticed {
            assert_eq!(queue, [members[1].clone(), members[2].clone(), last]);
        } else {
            assert_eq!((queue, batch), (vec![next, last], numbers(&members[1..])));
        }
        bench.everything_expires().await;
    }
}

// Renewals of a batch, and the touches of nobody, do not extend the liveness deadline.
async fn a_batch_keeps_its_positions_although_its_node_has_no_liveness_deadline(mut bench: Bench) {
    for is_forced in [true, false] {
        bench.restart().await;
        let (a, b, members) = bench.batch_of_three().await;
        bench.end_patience(&members[0]).await;
        let (next, last) = (a.queue(30_000).await, a.queue(30_000).await);
        if is_forced {
            a.force_release().await;
        } else {
            bench.end_lease().await;
            a.touch(&[&next, &last]).await;
        }
        assert_eq!((bench.holder().await, bench.batch().await), (Some(next), vec![]));
        assert_eq!(bench.aside(&b.id).await, members);
        let touched = b.touch(&[&members[1], &members[2]]).await;
        assert_eq!(touched.outcome.members, [Presence::Waiting; 2]);
        assert_eq!(bench.queue().await, [members[1].clone(), members[2].clone(), last]);
        bench.everything_expires().await;
    }
}

async fn a_batch_whose_node_stays_away_is_forgotten_15_s_after_it_was_cut_short(mut bench: Bench) {
    let (a, b, members) = bench.batch_of_three().await;
    bench.end_lease().await;
    let held = a.hold(30_000).await;
    bench.pass(15_000).await;
    assert_eq!((bench.holder().await, bench.aside(&b.id).await), (Some(held), vec![]));
    let touched = b.touch(&[&members[1], &members[2]]).await;
    assert_eq!(touched.outcome.members, [Presence::Gone; 2]);
    bench.everything_expires().await;
}

async fn a_force_release_of_a_batch_tells_all_its_members_and_frees_the_lock(mut bench: Bench) {
    let (a, b, members) = bench.batch_of_three().await;
    let done = Leaving { member: members[0].clone(), ambiguous: false, served: true };
    b.run(Command::Leave { leaving: vec![done] }).await.expect("it ran");
    assert_eq!(bench.holder().await.as_ref(), Some(&members[0]), "it keeps the name");
    let next = a.queue(30_000).await;
    assert_eq!(a.force_release().await.outcome, Released::Released);
    assert_eq!(b.heard().await, [Event::Revoked { numbers: numbers(&members) }]);
    assert_eq!((bench.holder().await, bench.batch().await), (Some(next), vec![]));
}

async fn the_members_of_a_batch_that_was_force_released_come_back_in_front_with_a_touch(
    mut bench: Bench,
) {
    let (a, b, members) = bench.batch_of_three().await;
    let (next, last) = (a.queue(30_000).await, a.queue(30_000).await);
    a.force_release().await;
    assert_eq!(bench.holder().await, Some(next), "the grant of that moment");
    assert_eq!(bench.aside(&b.id).await, members);
    let touched = b.touch(&[&members[1], &members[2]]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting; 2]);
    assert_eq!(bench.queue().await, [members[1].clone(), members[2].clone(), last]);
    bench.everything_expires().await;
}

async fn batches_that_were_set_aside_one_after_the_other_come_back_in_this_order(mut bench: Bench) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let held = c.hold(30_000).await;
    let (first, second) = (a.queue_batch(4).await, b.queue_batch(2).await);
    let last = c.queue(30_000).await;
    c.release(&held).await;
    c.force_release().await;
    c.force_release().await;
    assert_eq!(bench.holder().await, Some(last));
    b.touch(&second.iter().collect::<Vec<_>>()).await;
    a.touch(&first.iter().collect::<Vec<_>>()).await;
    assert_eq!(bench.queue().await, [first, second].concat());
}

/// The downgrade of a batch hold with these members; the hold is named after the first.
fn reduction(members: &[Member], served: usize, weight: u32, back: &[usize]) -> Command {
    Command::Reduce {
        member: members[0].clone(),
        served: members[served].number(),
        weight: NonZeroU32::new(weight).expect("not 0"),
        back: back.iter().map(|index| members[*index].number()).collect(),
    }
}

async fn a_reduction_puts_the_members_of_the_batch_that_still_wait_back_in_front(mut bench: Bench) {
    for (weight, served) in [(1, 0), (1, 1), (proto::ALL, 0), (proto::ALL, 1)] {
        bench.restart().await;
        let (a, b, members) = bench.batch_of_three().await;
        let next = a.queue(30_000).await;
        let (back, rest): (Vec<usize>, _) = ((served + 1..3).collect(), &members[served + 1..]);
        // A repeated request has the same reply.
        for _ in 0..2 {
            let answer = b.run(reduction(&members, served, weight, &back)).await;
            let Ok(Answer::Renewed(reply)) = answer else { panic!("{answer:?}") };
            assert_eq!(reply.outcome, [Renewed::Held]);
        }
        assert_eq!(bench.batch().await, []);
        let queue = bench.queue().await;
        assert_eq!(queue, [rest, &[next]].concat());
        let touched = b.touch(&rest.iter().collect::<Vec<_>>()).await;
        assert!(touched.outcome.members.iter().all(|one| *one == Presence::Waiting));
        assert_eq!(bench.holding().await.is_some(), weight == proto::ALL);
        b.release(&members[0]).await;
        assert_eq!(bench.holder().await.as_ref(), rest.first(), "before the one that came later");
        bench.everything_expires().await;
    }
}

async fn a_reduction_brings_back_no_member_that_has_left(mut bench: Bench) {
    let (_, b, members) = bench.batch_of_three().await;
    b.leave(&members[1]).await;
    b.run(reduction(&members, 0, 1, &[1, 2])).await.expect("it is held");
    assert_eq!(bench.queue().await, [members[2].clone()]);
}

async fn a_reduction_of_a_member_that_has_left_the_batch_changes_nothing(mut bench: Bench) {
    let (_, b, members) = bench.batch_of_three().await;
    b.leave(&members[0]).await;
    let before = bench.state().await.0;
    let answer = b.run(reduction(&members, 0, 1, &[1, 2])).await;
    assert!(
        matches!(&answer, Ok(Answer::Renewed(reply)) if reply.outcome == [Renewed::NotHeld]),
        "{answer:?}"
    );
    assert_eq!(bench.state().await.0, before, "the others have the hold of this name");
}

async fn a_batch_at_the_end_of_the_counter_begins_above_the_time(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = a.hold(30_000).await;
    b.queue_batch(3).await;
    bench.set_counter(Some((1 << 53) - 3)).await;
    a.release(&held).await;
    let heard = b.heard().await;
    let [Event::GrantedBatch { token, .. }] = &heard[..] else { panic!("{heard:?}") };
    assert!(token.get() < 1 << 52, "{token}");
    assert_eq!(bench.counter().await, token.get() + 2);
}

async fn an_operator_sees_who_of_a_batch_holds_and_who_waits(mut bench: Bench) {
    let (a, b, members) = bench.batch_of_three().await;
    let queued = a.queue(30_000).await;
    let seen = a.inspect().await;
    let end_ms = seen.now_us / 1_000 + seen.holds[0].left_ms;
    assert_eq!(seen.holds[0].party, members[0]);
    let waiters: Vec<_> = seen.waiters.iter().map(|(party, _)| party.clone()).collect();
    assert_eq!(waiters, [&members[1], &members[2], &queued].map(proto::Party::from));
    assert_eq!((seen.holding, seen.waiting), (1, 3));
    let ends = [seen.waiters[0].1, seen.waiters[1].1];
    assert!(ends.iter().all(|end| end.abs_diff(end_ms) <= 1), "{ends:?}, {end_ms}");
    // Page by page.
    for (from, members) in [(1, [&members[2], &queued].as_slice()), (2, &[&queued])] {
        let most = NonZeroU32::new(2).expect("two");
        let answer = a.run(Command::Inspect { from, most }).await.expect("answered");
        let Answer::Inspected(page) = answer else { panic!("{answer:?}") };
        let shown: Vec<_> = page.waiters.iter().map(|(party, _)| party.clone()).collect();
        assert_eq!(shown, members.iter().copied().map(proto::Party::from).collect::<Vec<_>>());
        assert_eq!(page.waiting, 3);
    }
    b.leave(&members[0]).await;
    let seen = a.inspect().await;
    assert_eq!(seen.holds[0].party, members[1]);
    assert_eq!((seen.waiters[0].0.clone(), seen.waiting), ((&members[2]).into(), 2));
}

async fn a_batch_counts_in_the_positions_of_those_behind_it(mut bench: Bench) {
    let position = |outcome: &Acquired| match outcome {
        Acquired::Queued { position } => *position,
        outcome => panic!("{outcome:?}"),
    };
    for is_own in [false, true] {
        bench.restart().await;
        let (a, b, members) = bench.batch_of_three().await;
        let node = if is_own { &b } else { &a };
        for ahead in 2..4 {
            let reply = node.wait(&node.in_batch(8, 30_000)).await;
            assert_eq!(position(&reply.outcome), ahead, "everything");
        }
        let reply = node.wait(&node.member_for(Demand::READ, 30_000)).await;
        assert_eq!(position(&reply.outcome), 4, "a part");
        let together = [node.in_batch(8, 30_000), node.in_batch(8, 30_000)];
        let reply = node.wait_all(&[&together[0], &together[1]]).await;
        assert_eq!(reply.outcome.iter().map(position).collect::<Vec<_>>(), [5, 6], "several");
        // The slow path: one of them waits already.
        let another = node.in_batch(8, 30_000);
        let reply = node.wait_all(&[&together[1], &another]).await;
        assert_eq!(reply.outcome.iter().map(position).collect::<Vec<_>>(), [6, 7]);
        // A member that has left is ahead of nobody.
        b.leave(&members[0]).await;
        let reply = node.wait(&another).await;
        assert_eq!(position(&reply.outcome), 6, "asked again");
    }
}

async fn a_batch_counts_for_the_queue_limit(mut bench: Bench) {
    // In a full queue, silent waiters are purged the first time, and then not again for a second.
    for (is_own, is_swept) in [(false, false), (true, false), (false, true), (true, true)] {
        bench.restart().await;
        let (a, b, members) = bench.batch_of_three().await;
        let node = if is_own { &b } else { &a };
        let full = Acquired::Full { waiting: 2 };
        if is_swept {
            let outcome = node.acquire(&node.in_batch(8, 30_000), Mode::Wait, 1).await.outcome;
            assert_eq!(outcome, full);
        }
        let lock = node.in_batch(8, 30_000);
        assert_eq!(node.acquire(&lock, Mode::Wait, 2).await.outcome, full);
        let read = node.member_for(Demand::READ, 30_000);
        assert_eq!(node.acquire(&read, Mode::Wait, 2).await.outcome, full, "a part");
        let newest = Member::keeping_newest(&node.id, 1 << 40, 30_000, &Label::new("newest"));
        assert_eq!(node.acquire(&newest, Mode::Wait, 2).await.outcome, full, "the newest");
        let several = [node.in_batch(8, 30_000), node.in_batch(8, 30_000)];
        let several = several.each_ref();
        let outcome = node.acquire_all(&several, Mode::Wait, 3).await.outcome;
        let found_longer = Acquired::Full { waiting: 3 };
        assert_eq!(outcome, [Acquired::Queued { position: 2 }, found_longer], "several");
        let outcome = node.acquire_all(&several, Mode::Wait, 4).await.outcome;
        let positions = [2, 3].map(|position| Acquired::Queued { position });
        assert_eq!(outcome, positions, "one that waits is not refused");
        // A member that has left does not wait.
        b.leave(&members[1]).await;
        let outcome = node.acquire(&lock, Mode::Wait, 4).await.outcome;
        assert_eq!(outcome, Acquired::Queued { position: 3 });
    }
}
