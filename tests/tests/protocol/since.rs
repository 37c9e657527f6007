//! The time since when a hold is held, as an inspection tells it.

use proto::{Command, Demand, HoldAge, Label, LockName, Member, Mode, Released, Renewed};
use redis::cmd;

use crate::asking::acquire;
use crate::bench::{Bench, Side};
use crate::facts;
use crate::node::Node;
use crate::parts::permits;

facts! {
    queue: [
        a_hold_that_was_never_renewed_began_when_its_lease_did,
        a_claim_that_was_never_renewed_began_when_it_was_handed_over,
        a_short_rest_of_a_full_lease_is_told_from_a_claim_by_the_attempt,
        a_hold_that_was_renewed_once_or_often_began_when_it_was_granted,
        a_renewal_without_an_age_leaves_the_note_as_it_is,
        another_holder_is_not_given_the_age_of_the_one_before,
        a_confirmed_claim_began_at_its_confirmation,
        reads_and_permits_have_ages_of_their_own,
        a_lock_that_became_a_read_is_as_old_as_it_was,
        a_run_has_the_age_of_the_member_that_is_served,
        several_locks_are_renewed_with_the_ages_of_some_of_them,
        a_note_ends_with_a_lease_and_twice_the_age_and_outlives_no_force_release,
        a_note_that_is_another_programs_is_no_note,
        the_age_of_a_hold_that_is_not_held_is_not_noted,
    ],
    redisson: [nothing_tells_since_when_a_lock_of_jvms_is_held],
}

impl Bench {
    /// For how long each holder has held, ms, by an inspection; the first to end comes first.
    async fn ages(&mut self, node: &Node) -> Vec<Option<u64>> {
        let seen = node.inspect().await;
        let now_ms = seen.now_us / 1_000;
        seen.holds.iter().map(|hold| Some(now_ms - hold.since_ms?)).collect()
    }

    /// Asserts that the only holder has held for so long, ms.
    async fn assert_age(&mut self, node: &Node, ms: u64) {
        let ages = self.ages(node).await;
        assert!(matches!(ages[..], [Some(age)] if is_near(age, ms)), "{ages:?}, not {ms}");
    }
}

impl Node {
    /// A new member whose attempt began at this time, µs since the epoch.
    fn asked_at(&self, at_us: u64, lease_ms: u64) -> Member {
        const FROM_US: u64 = 1_577_836_800_000_000;
        let (number, label) = ((at_us - FROM_US) << 12, Label::new("a label"));
        Member::new(&self.id, number, lease_ms, Demand::ALONE, &label)
    }
}

/// A server that does other things may take a while.
fn is_near(age: u64, ms: u64) -> bool {
    (ms..ms + 900).contains(&age)
}

async fn a_hold_that_was_never_renewed_began_when_its_lease_did(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    bench.assert_age(&a, 0).await;
    bench.pass(7_000).await;
    bench.assert_age(&a, 7_000).await;
    a.queue(30_000).await;
    bench.assert_age(&a, 7_000).await;
}

async fn a_claim_that_was_never_renewed_began_when_it_was_handed_over(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = a.hold(30_000).await;
    b.queue(30_000).await;
    bench.pass(12_000).await;
    assert_eq!(a.release(&held).await.outcome, Released::Released);
    bench.assert_age(&a, 0).await;
    bench.pass(4_000).await;
    bench.assert_age(&a, 4_000).await;
}

async fn a_short_rest_of_a_full_lease_is_told_from_a_claim_by_the_attempt(mut bench: Bench) {
    let a = bench.node().await;
    let asked_us = bench.now_ms().await * 1_000;
    let member = a.asked_at(asked_us, 30_000);
    a.wait(&member).await;
    // Only the lease is older: this member asked when less than that of it was over.
    bench.pass(24_000).await;
    bench.assert_age(&a, 4_000).await;
    let earlier = a.asked_at(asked_us - 24_000_000, 30_000);
    a.release(&member).await;
    a.wait(&earlier).await;
    bench.pass(24_000).await;
    bench.assert_age(&a, 24_000).await;
}

async fn a_hold_that_was_renewed_once_or_often_began_when_it_was_granted(mut bench: Bench) {
    let a = bench.node().await;
    let held = a.hold(30_000).await;
    for age in (10_000..100_000).step_by(10_000) {
        bench.pass(10_000).await;
        assert_eq!(a.renew_aged(&held, age).await.outcome, [Renewed::Held]);
        bench.assert_age(&a, age).await;
    }
}

async fn a_renewal_without_an_age_leaves_the_note_as_it_is(mut bench: Bench) {
    let a = bench.node().await;
    let held = a.hold(30_000).await;
    bench.pass(10_000).await;
    a.renew_aged(&held, 10_000).await;
    bench.pass(10_000).await;
    a.renew(&held).await;
    bench.assert_age(&a, 20_000).await;
    bench.pass(9_000).await;
    bench.assert_age(&a, 29_000).await;
}

async fn another_holder_is_not_given_the_age_of_the_one_before(mut bench: Bench) {
    for ended in [false, true] {
        bench.restart().await;
        let a = bench.node().await;
        let held = a.hold(30_000).await;
        a.renew_aged(&held, 50_000).await;
        match ended {
            true => bench.end_lease().await,
            false => assert_eq!(a.release(&held).await.outcome, Released::Released),
        }
        a.hold(30_000).await;
        bench.assert_age(&a, 0).await;
    }
}

async fn a_confirmed_claim_began_at_its_confirmation(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = a.hold(30_000).await;
    let next = b.queue(30_000).await;
    a.release(&held).await;
    bench.pass(8_000).await;
    assert_eq!(b.confirm(&next).await.outcome, [Renewed::Held]);
    bench.assert_age(&a, 0).await;
}

async fn reads_and_permits_have_ages_of_their_own(mut bench: Bench) {
    for demand in [Demand::READ, permits(1, 3)] {
        bench.restart().await;
        let a = bench.node().await;
        let first = a.hold_for(demand, 30_000).await;
        let second = a.hold_for(demand, 60_000).await;
        bench.pass(5_000).await;
        a.hold_for(demand, 120_000).await;
        let aged = |member: &Member, ms| HoldAge { member: member.clone(), ms };
        let members = vec![first.clone(), second.clone()];
        let command = Command::Renew { members, ages: vec![aged(&second, 5_000)] };
        a.run(command).await.expect("answered");
        let ages = bench.ages(&a).await;
        // The first was renewed without an age: then it seems to begin there.
        let expected = [0, 5_000, 0];
        let is_told = ages.len() == 3
            && ages.iter().zip(expected).all(|(age, ms)| is_near(age.unwrap_or(9_999_999), ms));
        assert!(is_told, "{demand}: {ages:?}");
    }
}

async fn a_lock_that_became_a_read_is_as_old_as_it_was(mut bench: Bench) {
    let a = bench.node().await;
    let held = a.hold(30_000).await;
    bench.pass(6_000).await;
    a.reduce(&held).await;
    bench.assert_age(&a, 6_000).await;
    for age in [7_000, 14_000] {
        assert_eq!(a.renew_aged(&held, age).await.outcome, [Renewed::Held]);
        bench.assert_age(&a, age).await;
    }
}

async fn a_run_has_the_age_of_the_member_that_is_served(mut bench: Bench) {
    let (a, b, members) = bench.run_of_three().await;
    bench.pass(3_000).await;
    bench.assert_age(&a, 3_000).await;
    let renewal = |served: &Member, ms| Command::Renew {
        members: vec![members[0].clone()],
        ages: vec![HoldAge { member: served.clone(), ms }],
    };
    b.run(renewal(&members[0], 3_000)).await.expect("answered");
    bench.assert_age(&a, 3_000).await;
    b.run(renewal(&members[1], 1_500)).await.expect("answered");
    bench.assert_age(&a, 3_000).await;
    b.leave(&members[0]).await;
    bench.assert_age(&a, 1_500).await;
}

async fn several_locks_are_renewed_with_the_ages_of_some_of_them(mut bench: Bench) {
    let a = bench.node().await;
    let names = ["first", "second", "third"].map(LockName::from);
    let mut renewals = Vec::new();
    for (name, ms) in names.iter().zip([None, Some(70_000), Some(90_000)]) {
        let member = a.member(30_000);
        let command = acquire(&member, Mode::Wait, 10);
        a.run_on(name, command).await.expect("answered");
        let ages = ms.map(|ms| HoldAge { member: member.clone(), ms }).into_iter().collect();
        renewals.push((name, Command::Renew { members: vec![member], ages }));
    }
    let renewals: Vec<_> = renewals.iter().map(|(name, command)| (*name, command)).collect();
    a.run_together(&renewals).await.expect("answered");
    for (name, ms) in names.iter().zip([0, 70_000, 90_000]) {
        bench.lock = name.clone();
        let node = bench.node().await;
        bench.assert_age(&node, ms).await;
    }
}

async fn a_note_ends_with_a_lease_and_twice_the_age_and_outlives_no_force_release(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let held = a.hold(30_000).await;
    a.renew_aged(&held, 20_000).await;
    assert_eq!(a.force_release().await.outcome, Released::Released);
    assert_eq!(a.inspect().await.holds, []);
    bench.pass(69_000).await;
    assert_eq!(bench.state().await.0.of_queue().since.len(), 1);
    bench.pass(1_001).await;
    assert!(bench.is_empty().await);
}

async fn a_note_that_is_another_programs_is_no_note(mut bench: Bench) {
    let a = bench.node().await;
    let held = a.hold(30_000).await;
    if bench.side == Side::QueueFunction {
        return;
    }
    let key = lock_tests::note_key(bench.lock.as_str(), a.id.as_str(), held.number());
    for command in [cmd("SET").arg(&key).arg("text").take(), cmd("LPUSH").arg(&key).arg(1).take()] {
        let redis = bench.redis();
        let () = redis.ask(cmd("DEL").arg(&key)).await;
        let _: redis::Value = redis.ask(&command).await;
        bench.assert_age(&a, 0).await;
    }
    // It is the name of this hold alone, so the note takes its place.
    a.renew_aged(&held, 8_000).await;
    bench.assert_age(&a, 8_000).await;
}

async fn the_age_of_a_hold_that_is_not_held_is_not_noted(mut bench: Bench) {
    for demand in [Demand::ALONE, Demand::READ] {
        bench.restart().await;
        let a = bench.node().await;
        let held = a.hold_for(demand, 30_000).await;
        a.release(&held).await;
        assert_eq!(a.renew_aged(&held, 9_000).await.outcome, [Renewed::NotHeld]);
        assert!(bench.is_empty().await, "{demand}");
    }
}

async fn nothing_tells_since_when_a_lock_of_jvms_is_held(mut bench: Bench) {
    let a = bench.node().await;
    let held = a.hold(30_000).await;
    assert_eq!(bench.ages(&a).await, [None]);
    a.renew_aged(&held, 8_000).await;
    assert_eq!(bench.ages(&a).await, [None]);
}

// The file of a server has the same of each key as `DUMP`.
#[tokio::test]
async fn a_hold_that_is_restored_from_a_dump_is_as_old_as_it_was() {
    let mut bench = Bench::start(Side::QueueScripts).await;
    let a = bench.node().await;
    let held = a.hold(30_000).await;
    a.renew_aged(&held, 40_000).await;
    let redis = bench.redis();
    let mut dumps = Vec::new();
    for key in redis.keys("*").await {
        let dump: Vec<u8> = redis.ask(cmd("DUMP").arg(&key)).await;
        dumps.push((redis.pttl(&key).await.max(0), key, dump));
    }
    redis.flush_all().await;
    for (left_ms, key, dump) in dumps {
        let () = redis.ask(cmd("RESTORE").arg(key).arg(left_ms).arg(dump)).await;
    }
    bench.assert_age(&a, 40_000).await;
}
