//! Locks with several holders: concurrent reads, an exclusive write, permits up to their limit.

use futures_util::future::join_all;
use lock_tests::eventually;
use lockcore::{
    Acquire, Demand, FencingToken, LockError, LockErrorKind, LockGuard, LockOptions, Locks,
};
use tokio::task::JoinHandle;

use crate::backend::{Backend, SOON, ms, soon};

on_every_store!(
    a_write_that_waits_is_passed_by_no_read,
    more_reads_than_one_command_grants_are_all_granted,
    a_cancelled_head_lets_those_behind_it_in,
    a_try_never_passes_a_queue,
    holds_are_renewed_together_and_outlive_their_leases,
    a_hold_that_nobody_renews_is_granted_on_when_its_lease_ends,
    a_hold_whose_lease_has_ended_is_not_shown,
    what_is_forced_off_is_lost_and_granted_on,
    a_released_write_lets_all_reads_of_all_nodes_in_at_once,
    each_pair_of_demands_on_one_name_goes_together_or_waits,
    bad_numbers_are_refused_before_anything_is_sent,
    what_a_closed_node_held_is_released;
    not_by_a_quorum:
    reads_share_one_token_and_a_write_is_alone_with_one_above,
    as_many_permits_are_out_as_the_limit_allows,
    a_heavy_request_at_the_head_keeps_what_is_free,
    each_request_is_judged_by_its_own_limit,
    a_write_waits_for_all_permits_of_its_name,
    a_downgraded_write_is_a_read_with_a_token_of_its_own,
    a_write_that_others_share_is_not_downgraded,
    a_write_is_a_lock_and_permits_have_no_token,
    locks_reads_writes_and_permits_of_one_name_are_served_in_one_order,
    an_inspection_tells_who_holds_and_waits_for_what,
);

type Waiting = JoinHandle<Result<LockGuard, LockError>>;

/// Starts to wait; on return the waiter is the last of `length` in the queue.
async fn wait_as(length: usize, locks: &Locks, acquire: Acquire) -> Waiting {
    let waiting = tokio::spawn(acquire);
    let seen = async || locks.inspect("key").await.expect("it").waiters.len() == length;
    eventually(&format!("{length} wait"), SOON, seen).await;
    waiting
}

async fn granted(waiting: Waiting) -> LockGuard {
    soon(waiting).await.expect("no panic").expect("granted")
}

async fn until_nothing_is_left(locks: &Locks) {
    let seen = async || {
        let found = locks.inspect("key").await.expect("an inspection");
        let status = locks.status();
        found.holders.is_empty()
            && found.waiters.is_empty()
            && (status.waiting, status.holding, status.releasing) == (0, 0, 0)
    };
    eventually("nothing is left", SOON, seen).await;
}

// S1, S3.
async fn reads_share_one_token_and_a_write_is_alone_with_one_above(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let before = a.write("key").await.expect("free");
    assert!(b.try_write("key").await.expect("an answer").is_none());
    assert!(b.try_read("key").await.expect("an answer").is_none());
    let first = before.fencing_token();
    before.release().await.expect("held until now");
    let one = a.read("key").await.expect("free");
    let other = b.try_read("key").await.expect("an answer").expect("beside the other");
    assert!(one.fencing_token() > first);
    assert_eq!(one.fencing_token(), other.fencing_token());
    assert!(a.try_write("key").await.expect("an answer").is_none());
    let shared = one.fencing_token();
    one.release().await.expect("held until now");
    assert!(a.try_write("key").await.expect("an answer").is_none(), "the other still reads");
    other.release().await.expect("held until now");
    let after = a.try_write("key").await.expect("an answer").expect("free");
    assert!(after.fencing_token() > shared);
    drop(after);
    until_nothing_is_left(&a).await;
}

// F1, F4.
async fn a_write_that_waits_is_passed_by_no_read(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let read = a.read("key").await.expect("free");
    let write = wait_as(1, &a, b.write("key")).await;
    let late = wait_as(2, &a, a.read("key")).await;
    read.release().await.expect("held until now");
    let write = granted(write).await;
    assert!(!late.is_finished(), "beside a write");
    write.release().await.expect("held until now");
    granted(late).await.release().await.expect("held until now");
    until_nothing_is_left(&b).await;
}

// F5, S8.
async fn a_released_write_lets_all_reads_of_all_nodes_in_at_once(backend: &Backend) {
    let [a, b, c] = backend.nodes().await;
    let write = a.write("key").await.expect("free");
    let mut reads = Vec::new();
    for (at, node) in [&a, &b, &c, &b].into_iter().enumerate() {
        reads.push(wait_as(at + 1, &a, node.read("key")).await);
    }
    let behind = wait_as(5, &a, c.write("key")).await;
    let above = write.fencing_token();
    write.release().await.expect("held until now");
    let reads: Vec<LockGuard> = join_all(reads.into_iter().map(granted)).await;
    let is_above = |read: &LockGuard| backend.is_quorum() || read.fencing_token() > above;
    assert!(reads.iter().all(|read| !read.is_lost() && is_above(read)));
    assert_eq!(a.inspect("key").await.expect("it").holders.len(), 4);
    assert!(!behind.is_finished());
    for read in reads {
        read.release().await.expect("held until now");
    }
    granted(behind).await.release().await.expect("held until now");
    until_nothing_is_left(&b).await;
}

// F5: the notified node requests the rest.
async fn more_reads_than_one_command_grants_are_all_granted(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let write = a.write("key").await.expect("free");
    let reads: Vec<Waiting> = (0..300).map(|_| tokio::spawn(b.read("key"))).collect();
    let seen = async || a.inspect("key").await.expect("it").waiters.len() == 300;
    eventually("all wait", SOON, seen).await;
    write.release().await.expect("held until now");
    let reads = join_all(reads.into_iter().map(granted)).await;
    assert_eq!(reads.iter().filter(|read| !read.is_lost()).count(), 300);
    drop(reads);
    until_nothing_is_left(&b).await;
}

// S1, F1.
async fn as_many_permits_are_out_as_the_limit_allows(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let one = a.permit("key", 3).await.expect("free");
    let two = b.key("key").permits(2, 3).await.expect("free");
    assert_eq!((one.demand().weight(), two.demand().weight()), (1, 2));
    assert!(a.try_permit("key", 3).await.expect("an answer").is_none());
    let first = wait_as(1, &a, a.permit("key", 3)).await;
    let second = wait_as(2, &a, b.permit("key", 3)).await;
    let third = wait_as(3, &a, a.permit("key", 3)).await;
    two.release().await.expect("held until now");
    let (first, second): (LockGuard, LockGuard) = tokio::join!(granted(first), granted(second));
    assert!(!third.is_finished(), "three are out");
    one.release().await.expect("held until now");
    drop((granted(third).await, first, second));
    until_nothing_is_left(&a).await;
    until_nothing_is_left(&b).await;
}

// F4: small requests do not starve a large request.
async fn a_heavy_request_at_the_head_keeps_what_is_free(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let one = a.permit("key", 3).await.expect("free");
    let heavy = wait_as(1, &a, b.key("key").permits(3, 3)).await;
    let light = wait_as(2, &a, a.permit("key", 3)).await;
    assert!(a.try_permit("key", 3).await.expect("an answer").is_none());
    one.release().await.expect("held until now");
    let heavy = granted(heavy).await;
    assert_eq!(heavy.demand().weight(), 3);
    assert!(!light.is_finished());
    heavy.release().await.expect("held until now");
    drop(granted(light).await);
    until_nothing_is_left(&a).await;
}

// S1: two services that use different limits for a name.
async fn each_request_is_judged_by_its_own_limit(backend: &Backend) {
    let [old, new] = backend.nodes().await;
    let wide = [old.permit("key", 3).await.expect("free"), old.permit("key", 3).await.expect("it")];
    assert!(new.try_permit("key", 2).await.expect("an answer").is_none());
    let third = old.try_permit("key", 3).await.expect("an answer").expect("its limit is three");
    let narrow = wait_as(1, &old, new.permit("key", 2)).await;
    third.release().await.expect("held until now");
    let [one, other] = wide;
    assert!(!narrow.is_finished(), "two are out");
    one.release().await.expect("held until now");
    drop((granted(narrow).await, other));
    until_nothing_is_left(&old).await;
}

async fn a_write_waits_for_all_permits_of_its_name(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let permits = [a.permit("key", 2).await.expect("free"), b.permit("key", 2).await.expect("it")];
    let write = wait_as(1, &a, a.write("key")).await;
    let later = wait_as(2, &a, b.permit("key", 2)).await;
    let [one, other] = permits;
    one.release().await.expect("held until now");
    assert!(!write.is_finished());
    other.release().await.expect("held until now");
    let write = granted(write).await;
    assert!(!later.is_finished());
    write.release().await.expect("held until now");
    drop(granted(later).await);
    until_nothing_is_left(&b).await;
}

// Another library's semaphore deadlocked here.
async fn a_cancelled_head_lets_those_behind_it_in(backend: &Backend) {
    let [a, b, c] = backend.nodes().await;
    let read = a.read("key").await.expect("free");
    let head = wait_as(1, &a, b.write("key")).await;
    let behind = [wait_as(2, &a, c.read("key")).await, wait_as(3, &a, a.read("key")).await];
    head.abort();
    for behind in behind {
        drop(granted(behind).await);
    }
    drop(read);
    until_nothing_is_left(&b).await;
}

// F1.
async fn a_try_never_passes_a_queue(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let read = a.read("key").await.expect("free");
    let write = wait_as(1, &a, b.write("key")).await;
    assert!(a.try_read("key").await.expect("an answer").is_none());
    let late = a.key("key").wait(ms(50)).read().await.expect_err("a write waits ahead");
    assert_eq!(late.kind(), LockErrorKind::Timeout);
    let full = a.key("key").queue_limit(1).read().await.expect_err("one waits");
    assert_eq!(full.kind(), LockErrorKind::QueueFull);
    drop(read);
    drop(granted(write).await);
    until_nothing_is_left(&a).await;
}

async fn holds_are_renewed_together_and_outlive_their_leases(backend: &Backend) {
    let lease = ms(1_000);
    let defaults = LockOptions::new().lease(lease);
    let [a, b] = [
        backend.build(Locks::builder().defaults(defaults)).await,
        backend.build(Locks::builder().defaults(defaults)).await,
    ];
    let reads = join_all((0..10).map(|_| a.read("key"))).await;
    let reads: Vec<LockGuard> = reads.into_iter().map(|read| read.expect("free")).collect();
    let begun = tokio::time::Instant::now();
    let renewed = async || reads.iter().all(|read| read.deadline() > begun + 2 * lease);
    eventually("all were renewed for two leases", SOON, renewed).await;
    assert!(b.try_write("key").await.expect("an answer").is_none());
    for read in reads {
        read.release().await.expect("held until now");
    }
    b.write("key").await.expect("free").release().await.expect("held until now");
    until_nothing_is_left(&a).await;
}

// S8: an expired lease does not keep others out, nor does it let any attempt in early. P5: until
// its room was needed, a dead reader looked like a holder.
async fn a_hold_whose_lease_has_ended_is_not_shown(backend: &Backend) {
    let locks = backend.node().await;
    let alive = locks.read("key").await.expect("free");
    locks.key("key").lease(ms(300)).read().await.expect("it fits").leak();
    let holders = async || locks.inspect("key").await.expect("an inspection").holders;
    assert_eq!(holders().await.len(), 2);
    eventually("one is shown", SOON, async || holders().await.len() == 1).await;
    assert!(holders().await.iter().all(|holder| !holder.lease_left.is_zero()));
    alive.release().await.expect("held until now");
}

async fn a_hold_that_nobody_renews_is_granted_on_when_its_lease_ends(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let leaked = a.key("key").lease(ms(1_000)).read().await.expect("free");
    let until = leaked.leak();
    let write = soon(b.write("key")).await.expect("granted when it ended");
    assert!(tokio::time::Instant::now() >= until, "beside a read");
    drop(write);
    until_nothing_is_left(&b).await;
}

// S3: one step, and other writes stay out.
async fn a_downgraded_write_is_a_read_with_a_token_of_its_own(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let write = a.write("key").await.expect("free");
    let reads = [wait_as(1, &a, b.read("key")).await, wait_as(2, &a, a.read("key")).await];
    let behind = wait_as(3, &a, b.write("key")).await;
    let before = write.fencing_token();
    let read = soon(write.downgrade()).await.expect("held");
    assert!(read.fencing_token() > before);
    for other in reads {
        let other = granted(other).await;
        assert_eq!(other.fencing_token(), read.fencing_token());
        other.release().await.expect("held until now");
    }
    assert!(!behind.is_finished(), "a read is held");
    let found = a.inspect("key").await.expect("an inspection");
    assert_eq!(found.holders.iter().map(|one| one.demand).collect::<Vec<_>>(), [Demand::READ]);
    read.release().await.expect("held until now");
    let behind = granted(behind).await;
    behind.release().await.expect("held until now");
    until_nothing_is_left(&a).await;
}

async fn a_write_that_others_share_is_not_downgraded(backend: &Backend) {
    let locks = backend.node().await;
    let write = locks.write("key").await.expect("free");
    let other = write.reenter().expect("held");
    let refused = write.downgrade().await.expect_err("another guard relies on the write");
    assert_eq!(refused.error().kind(), LockErrorKind::InvalidOption);
    let write = refused.into_guard();
    assert!(!write.is_lost() && locks.try_read("key").await.expect("an answer").is_none());
    drop(other);
    write.downgrade().await.expect("held").release().await.expect("held until now");
    until_nothing_is_left(&locks).await;
}

// S1: one name is one lock, for every demand.
async fn each_pair_of_demands_on_one_name_goes_together_or_waits(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let all = [Demand::EXCLUSIVE, Demand::READ, Demand::permits(1, 2).expect("a demand")];
    let demands = if backend.is_quorum() { &all[..2] } else { &all };
    for &first in demands {
        for &second in demands {
            let pair = format!("{second} beside {first}");
            let once = async |locks: &Locks, demand| {
                locks.key("key").try_acquire(demand).await.expect("an answer")
            };
            let one = once(&a, first).await.expect("free");
            // A read counts as one permit in use.
            if first != Demand::EXCLUSIVE && second != Demand::EXCLUSIVE {
                let other = once(&b, second).await.expect(&pair);
                one.release().await.expect("held until now");
                other.release().await.expect("held until now");
            } else {
                assert!(once(&b, second).await.is_none(), "{pair}");
                let waiting = wait_as(1, &b, b.key("key").acquire(second)).await;
                assert!(!waiting.is_finished(), "{pair}");
                let before = one.fencing_token();
                one.release().await.expect("held until now");
                let next = granted(waiting).await;
                assert_eq!(next.demand(), second);
                let has_token = |demand: Demand| {
                    demand == Demand::EXCLUSIVE || !demand.is_permits() && !backend.is_quorum()
                };
                let are_compared = has_token(first) && has_token(second);
                assert!(!are_compared || next.fencing_token() > before, "{pair}");
                next.release().await.expect("held until now");
            }
            until_nothing_is_left(&b).await;
        }
    }
}

async fn a_write_is_a_lock_and_permits_have_no_token(backend: &Backend) {
    let locks = backend.node().await;
    let write = locks.write("key").await.expect("free");
    assert_eq!(write.demand(), Demand::EXCLUSIVE);
    let read = soon(write.downgrade()).await.expect("held");
    assert_eq!(read.demand(), Demand::READ);
    let refused = read.downgrade().await.expect_err("a read is no lock");
    assert_eq!(refused.error().kind(), LockErrorKind::InvalidOption);
    refused.into_guard().release().await.expect("held until now");
    let permit = locks.permit("key", 2).await.expect("free");
    assert_eq!(permit.fencing_token(), FencingToken::try_from(0).expect("a token"));
    let again = permit.reenter().expect("held");
    permit.release().await.expect("another guard shares it");
    assert!(!again.is_lost());
    again.release().await.expect("held until now");
    until_nothing_is_left(&locks).await;
}

// F1, F4: all requests share one queue.
async fn locks_reads_writes_and_permits_of_one_name_are_served_in_one_order(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let lock = a.lock("key").await.expect("free");
    let read = wait_as(1, &a, b.read("key")).await;
    let next = wait_as(2, &a, a.lock("key")).await;
    let permit = wait_as(3, &a, b.permit("key", 2)).await;
    let write = wait_as(4, &a, a.write("key")).await;
    lock.release().await.expect("held until now");
    let read = granted(read).await;
    assert!(!next.is_finished() && !permit.is_finished(), "a lock is ahead of the permit");
    read.release().await.expect("held until now");
    let next = granted(next).await;
    assert!(!permit.is_finished() && !write.is_finished());
    next.release().await.expect("held until now");
    let permit = granted(permit).await;
    assert!(!write.is_finished());
    permit.release().await.expect("held until now");
    granted(write).await.release().await.expect("held until now");
    until_nothing_is_left(&b).await;
}

async fn an_inspection_tells_who_holds_and_waits_for_what(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let read = a.key("key").label("reader: 1").read().await.expect("free");
    let write = wait_as(1, &a, b.key("key").label("writer").write()).await;
    let permit = wait_as(2, &a, a.key("key").permits(2, 5)).await;
    let found = a.inspect("key").await.expect("an inspection");
    let [holder] = &found.holders[..] else { panic!("{found:?}") };
    assert_eq!(holder.demand, Demand::READ);
    assert_eq!(holder.label.as_deref(), Some("reader: 1"));
    assert_eq!(holder.node.as_ref(), Some(a.node()));
    assert!(holder.lease_left > ms(1_000));
    assert_eq!(found.token, Some(read.fencing_token()));
    let demands: Vec<Demand> = found.waiters.iter().map(|waiter| waiter.demand).collect();
    assert_eq!(demands, [Demand::EXCLUSIVE, Demand::permits(2, 5).expect("a demand")]);
    assert_eq!(found.waiters[0].label.as_deref(), Some("writer"));
    read.release().await.expect("held until now");
    drop(granted(write).await);
    drop(granted(permit).await);
    until_nothing_is_left(&a).await;
}

async fn what_is_forced_off_is_lost_and_granted_on(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let reads = [a.read("key").await.expect("free"), b.read("key").await.expect("it")];
    let write = wait_as(1, &a, a.write("key")).await;
    assert!(b.force_release("key").await.expect("an answer"));
    let write = granted(write).await;
    for read in &reads {
        soon(read.lost()).await;
    }
    let [one, other] = reads;
    assert_eq!(one.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
    drop((other, write));
    until_nothing_is_left(&a).await;
    assert!(!b.force_release("key").await.expect("an answer"));
}

async fn bad_numbers_are_refused_before_anything_is_sent(backend: &Backend) {
    let locks = backend.node().await;
    // If a node had been involved, the error would be that the node is closed.
    locks.shutdown(ms(0)).await;
    for (count, limit) in [(0, 1), (2, 1), (1, 1 << 30), (0, 0), (u32::MAX, u32::MAX)] {
        let refused = locks.key("key").permits(count, limit).await.expect_err("no such permits");
        assert_eq!(refused.kind(), LockErrorKind::InvalidOption, "{count} of {limit}");
        let refused = locks.key("key").try_permits(count, limit).await.expect_err("no such ones");
        assert_eq!(refused.kind(), LockErrorKind::InvalidOption, "{count} of {limit}");
        assert!(refused.to_string().contains(&format!("{count} of {limit}")), "{refused}");
    }
    let good = locks.key("key").permits(1, (1 << 30) - 1).await.expect_err("closed");
    let expected =
        if backend.is_quorum() { LockErrorKind::Unsupported } else { LockErrorKind::Closed };
    assert_eq!(good.kind(), expected);
    assert_eq!(locks.read("").await.expect_err("no name").kind(), LockErrorKind::InvalidKey);
}

async fn what_a_closed_node_held_is_released(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let read = a.read("key").await.expect("free");
    let other = if backend.is_quorum() { a.read("key") } else { a.permit("key", 9) };
    let other = other.await.expect("it fits");
    let waiting = wait_as(1, &b, a.write("key")).await;
    let write = wait_as(2, &b, b.write("key")).await;
    a.shutdown(ms(0)).await;
    assert!(read.is_lost() && other.is_lost());
    let refused = waiting.await.expect("no panic").expect_err("closed");
    assert_eq!(refused.kind(), LockErrorKind::Closed);
    drop(granted(write).await);
    until_nothing_is_left(&b).await;
}
