//! Several members of a node in one acquire: as if requested one after the other, in one step.

use proto::{Acquired, Demand, LockErrorKind, Member, Mode, Presence};

use crate::asking::{acquire_all, grant, left_ms};
use crate::bench::Bench;
use crate::facts;
use crate::node::Node;
use crate::parts::permits;

facts! {
    both: [
        members_that_ask_together_are_queued_in_their_order_behind_those_who_wait,
        the_first_of_them_takes_a_free_lock_and_the_next_has_it_after_it,
        of_those_that_do_not_wait_one_is_granted_and_the_rest_are_told_that_it_is_busy,
        a_queue_that_fills_on_the_way_refuses_the_rest_but_not_one_that_waits_already,
        a_full_queue_of_the_silent_takes_as_many_as_there_were,
        one_that_holds_and_one_that_waits_are_told_so_among_newcomers,
        one_that_was_given_up_is_refused_among_others,
        where_all_were_given_up_nothing_is_written,
        an_acquire_of_several_that_runs_twice_or_late_keeps_every_hold_and_position,
        those_who_wait_are_granted_what_is_free_before_any_of_them,
        one_of_them_that_waits_is_granted_at_its_turn_and_the_rest_wait,
        one_that_is_named_twice_has_one_position,
    ],
    queue: [
        those_that_fit_together_are_granted_under_one_token_up_to_the_first_that_does_not,
        one_that_does_not_fit_keeps_those_behind_it_waiting,
        those_behind_one_that_does_not_wait_may_fit,
        behind_one_that_takes_a_lost_lock_key_the_rest_looks_at_the_other_keys,
        the_dead_are_skipped_once_however_many_ask,
    ],
    scripts: [
        with_memory_full_none_of_several_is_granted_or_queued,
        without_enough_replicas_nothing_of_several_is_written,
    ],
}

const fn queued(position: u64) -> Acquired {
    Acquired::Queued { position }
}

fn members(node: &Node, count: usize) -> Vec<Member> {
    (0..count).map(|_| node.member(30_000)).collect()
}

fn all(members: &[Member]) -> Vec<&Member> {
    members.iter().collect()
}

// S2, F1.
async fn members_that_ask_together_are_queued_in_their_order_behind_those_who_wait(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = b.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    let mut asking = members(&a, 3);
    asking.rotate_left(2);
    let reply = a.wait_all(&all(&asking)).await;
    assert_eq!(reply.outcome, [queued(1), queued(2), queued(3)]);
    assert!(reply.grants.is_empty() && left_ms(&reply) > 29_000, "{reply:?}");
    let line: Vec<Member> = [waiting].into_iter().chain(asking).collect();
    assert_eq!(bench.queue().await, line);
    assert!(bench.patience(&line[1]).await > Some(14_000));
    bench.everything_expires().await;
    b.release(&holder).await;
    for (at, member) in line.iter().enumerate() {
        assert_eq!(bench.holder().await.as_ref(), Some(member));
        let node = if at == 0 { &b } else { &a };
        node.release(member).await;
    }
    assert_eq!(bench.holder().await, None);
}

async fn the_first_of_them_takes_a_free_lock_and_the_next_has_it_after_it(mut bench: Bench) {
    let a = bench.node().await;
    let asking = members(&a, 3);
    let reply = a.wait_all(&all(&asking)).await;
    assert_eq!(reply.outcome, [Acquired::Granted, queued(0), queued(1)]);
    assert_eq!((&grant(&reply).member, grant(&reply).left_ms), (&asking[0], 30_000));
    assert_eq!(bench.holder().await.as_ref(), Some(&asking[0]));
    assert_eq!(bench.queue().await, asking[1..]);
    let released = a.release(&asking[0]).await;
    assert_eq!(grant(&released).member, asking[1]);
    assert!(grant(&released).token > grant(&reply).token);
}

async fn of_those_that_do_not_wait_one_is_granted_and_the_rest_are_told_that_it_is_busy(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let asking = members(&a, 3);
    let reply = a.acquire_all(&all(&asking), Mode::Try, 1_000).await;
    assert_eq!(reply.outcome, [Acquired::Granted, Acquired::Busy, Acquired::Busy]);
    assert_eq!(grant(&reply).member, asking[0]);
    assert_eq!(bench.queue().await, []);
}

async fn a_queue_that_fills_on_the_way_refuses_the_rest_but_not_one_that_waits_already(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    b.hold(30_000).await;
    let waiting = a.queue(30_000).await;
    let asking = members(&a, 4);
    let named = [&asking[0], &asking[1], &asking[2], &waiting, &asking[3]];
    let reply = a.acquire_all(&named, Mode::Wait, 3).await;
    let full = |waiting| Acquired::Full { waiting };
    assert_eq!(reply.outcome, [queued(1), queued(2), full(3), queued(0), full(3)]);
    assert_eq!(bench.queue().await, [waiting, asking[0].clone(), asking[1].clone()]);
    // Also if all of them are newcomers.
    let reply = a.acquire_all(&all(&asking[2..]), Mode::Wait, 4).await;
    assert_eq!(reply.outcome, [queued(3), full(4)]);
}

async fn a_full_queue_of_the_silent_takes_as_many_as_there_were(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let silent = [b.queue(30_000).await, b.queue(30_000).await];
    for member in &silent {
        bench.end_patience(member).await;
    }
    let asking = members(&a, 3);
    let reply = a.acquire_all(&all(&asking), Mode::Wait, 2).await;
    assert_eq!(reply.outcome, [queued(0), queued(1), Acquired::Full { waiting: 2 }]);
    assert_eq!(bench.queue().await, asking[..2]);
}

// S5.
async fn one_that_holds_and_one_that_waits_are_told_so_among_newcomers(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = a.queue(30_000).await;
    let behind = b.queue(30_000).await;
    bench.set_patience(&waiting, 3_000).await;
    let asking = members(&a, 2);
    let reply = a.wait_all(&[&asking[0], &holder, &waiting, &asking[1]]).await;
    assert_eq!(reply.outcome, [queued(2), Acquired::Granted, queued(0), queued(3)]);
    assert_eq!(grant(&reply).member, holder);
    assert!((29_000..=30_000).contains(&grant(&reply).left_ms), "{reply:?}");
    let line = [waiting.clone(), behind, asking[0].clone(), asking[1].clone()];
    assert_eq!(bench.queue().await, line);
    assert!(bench.patience(&waiting).await > Some(14_000));
    let reply = a.wait_all(&[&waiting, &asking[0]]).await;
    assert_eq!(reply.outcome, [queued(0), queued(2)]);
    assert_eq!(bench.queue().await, line);
}

// S5.
async fn one_that_was_given_up_is_refused_among_others(mut bench: Bench) {
    let a = bench.node().await;
    let zombie = a.queue_behind(&mut bench).await;
    a.leave_ambiguous(&zombie).await;
    let asking = members(&a, 2);
    let reply = a.wait_all(&[&asking[0], &zombie, &asking[1]]).await;
    assert_eq!(reply.outcome, [queued(0), Acquired::Refused, queued(1)]);
    assert_eq!(bench.queue().await, asking);
    assert_eq!(bench.tombstones().await, std::slice::from_ref(&zombie));
    // Also behind a member granted by this very command.
    bench.end_lease().await;
    let last = a.member(30_000);
    let reply = a.wait_all(&[&asking[0], &zombie, &last]).await;
    assert_eq!(reply.outcome, [Acquired::Granted, Acquired::Refused, queued(1)]);
    assert_eq!(bench.tombstones().await, [zombie]);
}

impl Node {
    /// A member that waits behind another member of its own node.
    async fn queue_behind(&self, bench: &mut Bench) -> Member {
        self.hold(30_000).await;
        let waiting = self.queue(30_000).await;
        assert_eq!(bench.queue().await, std::slice::from_ref(&waiting));
        waiting
    }
}

async fn where_all_were_given_up_nothing_is_written(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let zombies = members(&a, 2);
    a.leave_all(&[(&zombies[0], true), (&zombies[1], true)]).await;
    let before = bench.everything().await;
    let reply = a.wait_all(&all(&zombies)).await;
    assert_eq!(reply.outcome, [Acquired::Refused, Acquired::Refused]);
    assert_eq!(bench.everything().await, before);
}

// S5. A copy of the whole command.
async fn an_acquire_of_several_that_runs_twice_or_late_keeps_every_hold_and_position(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let asking = members(&a, 3);
    let first = a.wait_all(&all(&asking)).await;
    let behind = b.queue(30_000).await;
    let again = a.wait_all(&all(&asking)).await;
    assert_eq!(again.outcome, first.outcome);
    assert_eq!(grant(&again).member, asking[0]);
    let line = [asking[1].clone(), asking[2].clone(), behind.clone()];
    assert_eq!(bench.queue().await, line);
    // Late: one was granted meanwhile, another has left, and the first has released.
    a.release(&asking[0]).await;
    a.leave_all(&[(&asking[0], true), (&asking[2], true)]).await;
    let late = a.wait_all(&all(&asking)).await;
    assert_eq!(late.outcome, [Acquired::Refused, Acquired::Granted, Acquired::Refused]);
    assert_eq!(grant(&late).member, asking[1]);
    assert_eq!(bench.queue().await, [behind]);
}

// S2, F1.
async fn those_who_wait_are_granted_what_is_free_before_any_of_them(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let (first, second) = (b.queue(30_000).await, b.queue(30_000).await);
    bench.end_lease().await;
    let asking = members(&a, 2);
    let reply = a.wait_all(&all(&asking)).await;
    assert_eq!(reply.outcome, [queued(1), queued(2)]);
    assert!(reply.grants.is_empty(), "{reply:?}");
    assert_eq!(bench.holder().await, Some(first));
    assert_eq!(b.heard().await.len(), 1, "told once");
    let line = [second, asking[0].clone(), asking[1].clone()];
    assert_eq!(bench.queue().await, line);
}

async fn one_of_them_that_waits_is_granted_at_its_turn_and_the_rest_wait(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    b.hold(30_000).await;
    let waiting = a.queue(30_000).await;
    bench.end_lease().await;
    let newcomer = a.member(30_000);
    let reply = a.wait_all(&[&newcomer, &waiting]).await;
    assert_eq!(reply.outcome, [queued(0), Acquired::Granted]);
    assert_eq!((&grant(&reply).member, grant(&reply).left_ms), (&waiting, 10_000));
    assert_eq!((bench.holder().await, bench.queue().await), (Some(waiting), vec![newcomer]));
}

async fn one_that_is_named_twice_has_one_position(mut bench: Bench) {
    let a = bench.node().await;
    let asking = members(&a, 2);
    let named = [&asking[0], &asking[0], &asking[1], &asking[1]];
    let reply = a.wait_all(&named).await;
    let granted = Acquired::Granted;
    assert_eq!(reply.outcome, [granted, granted, queued(0), queued(0)]);
    assert_eq!(bench.holder().await.as_ref(), Some(&asking[0]));
    assert_eq!(bench.queue().await, asking[1..]);
}

// S3, F5.
async fn those_that_fit_together_are_granted_under_one_token_up_to_the_first_that_does_not(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let demands = [Demand::READ, Demand::READ, Demand::EXCLUSIVE, Demand::READ];
    let asking = demands.map(|demand| a.member_for(demand, 30_000));
    let reply = a.wait_all(&all(&asking)).await;
    let granted = Acquired::Granted;
    assert_eq!(reply.outcome, [granted, granted, queued(0), queued(1)]);
    let grants: Vec<_> = reply.grants.iter().map(|grant| (&grant.member, grant.left_ms)).collect();
    assert_eq!(grants, [(&asking[0], 30_000), (&asking[1], 30_000)]);
    assert_eq!(reply.grants[0].token, reply.grants[1].token);
    bench.assert_held(&[&asking[0], &asking[1]]).await;
    assert_eq!(bench.queue().await, asking[2..]);
}

// F1.
async fn one_that_does_not_fit_keeps_those_behind_it_waiting(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = b.hold_for(permits(2, 3), 30_000).await;
    let asking = [permits(2, 3), permits(1, 3)].map(|demand| a.member_for(demand, 30_000));
    let reply = a.wait_all(&all(&asking)).await;
    assert_eq!(reply.outcome, [queued(0), queued(1)]);
    bench.assert_held(&[&held]).await;
}

async fn those_behind_one_that_does_not_wait_may_fit(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = b.hold_for(permits(2, 3), 30_000).await;
    let asking = [permits(2, 3), permits(1, 3)].map(|demand| a.member_for(demand, 30_000));
    let reply = a.acquire_all(&all(&asking), Mode::Try, 1_000).await;
    assert_eq!(reply.outcome, [Acquired::Busy, Acquired::Granted]);
    bench.assert_held(&[&held, &asking[1]]).await;
}

async fn behind_one_that_takes_a_lost_lock_key_the_rest_looks_at_the_other_keys(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    b.hold_for(Demand::READ, 30_000).await;
    let waiting = b.queue(30_000).await;
    bench.change(|state, _| state.of_queue().lock_key = None).await;
    let asking = members(&a, 2);
    let reply = a.wait_all(&all(&asking)).await;
    assert_eq!(reply.outcome, [Acquired::Granted, queued(1)]);
    assert_eq!(bench.parts().await, []);
    assert_eq!(bench.queue().await, [waiting.clone(), asking[1].clone()]);
    a.release(&asking[0]).await;
    assert_eq!(bench.holder().await, Some(waiting));
}

// F3.
async fn the_dead_are_skipped_once_however_many_ask(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let dead = bench.plant_dead(230).await;
    bench.end_lease().await;
    let asking = members(&a, 3);
    let reply = a.wait_all(&all(&asking)).await;
    assert_eq!((reply.skipped, reply.more), (200, true));
    assert_eq!(reply.outcome, [queued(30), queued(31), queued(32)]);
    assert_eq!(bench.aside(&dead[0].node().into()).await.len(), 200);
    let touched = a.touch(&all(&asking)).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting; 3]);
    assert_eq!(bench.holder().await.as_ref(), Some(&asking[0]));
}

// Finding 19.
async fn with_memory_full_none_of_several_is_granted_or_queued(mut bench: Bench) {
    let a = bench.node().await;
    for is_held in [false, true] {
        if is_held {
            a.hold(30_000).await;
        }
        bench.redis().configure("maxmemory-policy", "noeviction").await;
        bench.redis().configure("maxmemory", "1").await;
        let before = bench.everything().await;
        let asking = members(&a, 3);
        let answer = a.run(acquire_all(&all(&asking), Mode::Wait, 10)).await;
        let error = answer.expect_err("memory is full");
        assert_eq!(error.kind, LockErrorKind::OutOfMemory, "{error:?}");
        assert_eq!(bench.everything().await, before);
        bench.redis().configure("maxmemory", "0").await;
    }
}

// Finding 5.
async fn without_enough_replicas_nothing_of_several_is_written(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    b.queue(30_000).await;
    bench.end_lease().await;
    bench.redis().configure("min-replicas-to-write", "1").await;
    let before = bench.everything().await;
    let asking = members(&a, 2);
    for mode in [Mode::Wait, Mode::Try] {
        let answer = a.run(acquire_all(&all(&asking), mode, 10)).await;
        let error = answer.expect_err("the server takes no writes");
        assert_eq!(error.kind, LockErrorKind::ReadOnly, "{error:?}");
        assert_eq!(bench.everything().await, before);
    }
    assert_eq!(b.heard().await, []);
}
