//! The lease of a handed-off hold, and the replies and messages to its grantee.

use proto::{Acquired, Demand, Event, Presence, Released, Renewed};

use crate::asking::{grant, left_ms};
use crate::bench::Bench;
use crate::facts;

facts! {
    both: [
        a_handed_over_hold_lasts_the_claim_of_its_own_member_not_of_the_releaser,
        the_first_renewal_turns_a_claim_into_the_full_lease,
        a_grantee_silent_beyond_its_claim_loses_the_lock_to_the_next_and_is_told,
        a_lock_taken_free_lasts_its_full_lease_with_or_without_a_queue_of_the_dead,
    ],
    queue: [parts_are_handed_over_for_their_claims_and_taken_free_for_their_full_leases],
}

/// Whether a lease with `left` ms remaining has just begun.
fn is_fresh(left: u64, lease_ms: u64) -> bool {
    left <= lease_ms && left > lease_ms - 1_000
}

// Findings 2 and 4.
async fn a_handed_over_hold_lasts_the_claim_of_its_own_member_not_of_the_releaser(
    mut bench: Bench,
) {
    // The leases of the releaser and of the grantee, and the grantee's claim.
    let cases = [
        (3_000, 24_000, 8_000),
        (3_000, 120_000, 10_000),
        (60_000, 3_000, 2_000),
        (30_000, 30_000, 10_000),
        (30_000, 6_001, 2_000),
        (30_000, 2_000, 2_000),
        (30_000, 1_500, 1_500),
    ];
    for (releasers, grantees, claim) in cases {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        let first = a.hold(releasers).await;
        let second = b.queue(grantees).await;
        assert_eq!(a.release(&first).await.outcome, Released::Released);
        let left = bench.left().await;
        assert!(is_fresh(left, claim), "{left} of {claim}");
        let heard = b.heard().await;
        let [Event::Granted { grants, .. }] = &*heard else { panic!("{heard:?}") };
        assert_eq!(*grants, [(second.number(), claim)]);
        bench.everything_expires().await;
    }
}

// Finding 2.
async fn the_first_renewal_turns_a_claim_into_the_full_lease(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let second = b.queue(60_000).await;
    a.release(&first).await;
    let reply = b.renew(&second).await;
    assert_eq!(reply.outcome, [Renewed::Held]);
    if bench.side.has_peers() {
        assert_eq!(left_ms(&reply), 60_000);
    }
    assert!(is_fresh(bench.left().await, 60_000));
}

// Findings 2 and 12: with F2, a silent waiter keeps its position up to the claim once its turn has
// come.
async fn a_grantee_silent_beyond_its_claim_loses_the_lock_to_the_next_and_is_told(
    mut bench: Bench,
) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let second = b.queue(6_000).await;
    let third = c.queue(30_000).await;
    a.release(&first).await;
    assert_eq!(bench.holder().await, Some(second.clone()));
    bench.pass(2_000).await;
    assert_eq!(bench.holder().await, None);
    let reply = c.touch(&[&third]).await;
    assert_eq!(reply.outcome.members, [Presence::Waiting]);
    assert_eq!(grant(&reply).member, third);
    assert_eq!(b.touch(&[&second]).await.outcome.members, [Presence::Gone]);
    assert_eq!(b.renew(&second).await.outcome, [Renewed::NotHeld]);
}

async fn a_lock_taken_free_lasts_its_full_lease_with_or_without_a_queue_of_the_dead(
    mut bench: Bench,
) {
    let a = bench.node().await;
    a.hold(30_000).await;
    assert!(is_fresh(bench.left().await, 30_000));
    bench.plant_dead(3).await;
    bench.end_lease().await;
    let member = a.member(30_000);
    let reply = a.wait(&member).await;
    assert_eq!((reply.outcome, reply.skipped), (Acquired::Granted, 3));
    assert_eq!((&grant(&reply).member, grant(&reply).left_ms), (&member, 30_000));
    assert!(is_fresh(bench.left().await, 30_000));
}

async fn parts_are_handed_over_for_their_claims_and_taken_free_for_their_full_leases(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let lock = a.hold(30_000).await;
    let read = b.queue_for(Demand::READ, 24_000).await;
    let short = b.queue_for(Demand::READ, 1_500).await;
    a.release(&lock).await;
    let heard = b.heard().await;
    let [Event::Granted { grants, .. }] = &*heard else { panic!("{heard:?}") };
    assert_eq!(*grants, [(read.number(), 8_000), (short.number(), 1_500)]);
    let free = a.hold_for(Demand::READ, 24_000).await;
    let parts = bench.parts().await;
    for (member, lasts) in [(&short, 1_500), (&read, 8_000), (&free, 24_000)] {
        let (_, left) = parts.iter().find(|(part, _)| part == member).expect("it holds");
        assert!(is_fresh(*left, lasts), "{left} of {lasts}");
    }
    assert_eq!(b.renew(&read).await.outcome, [Renewed::Held]);
    let parts = bench.parts().await;
    let (_, left) = parts.iter().find(|(part, _)| *part == read).expect("it holds");
    assert!(is_fresh(*left, 24_000));
    bench.everything_expires().await;
}
