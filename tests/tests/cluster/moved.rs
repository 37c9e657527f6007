//! Moving slots: locks are where their slot is, and nothing is lost on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lock_tests::{
    Clustered, CommandStats, Log, RedisOptions, eventually, lock_key, patience_key, queue_key,
    queued,
};
use lockcore::{HoldState, LockErrorKind, LockGuard, LockOptions, Locks, LocksBuilder};
use proto::wire::keys::{Counter, NodeKey};
use redis::cmd;
use tokio::time::Instant;

use crate::common::{SOON, connect, held, release, slot, soon};

#[tokio::test]
async fn a_hold_and_its_waiters_move_with_their_slot() {
    let clustered = Clustered::steady().await;
    let [holder, waiter] = [connect(&clustered).await, connect(&clustered).await];
    let key = clustered.key_of(0, 0);
    let guard = held(&holder, &key).await;
    let waiting = tokio::spawn({
        let (waiter, key) = (waiter.clone(), key.clone());
        async move { waiter.lock(&key).await.expect("granted") }
    });
    queued(&holder, &key, 1).await;
    clustered.move_slot(slot(&key), 0, 1).await;
    assert!(clustered.raw(1).await.exists(&lock_key(&key)).await, "it moved");
    let before = guard.fencing_token();
    release(guard).await;
    let guard = soon("the grant", waiting).await.expect("no panic");
    assert!(guard.fencing_token() > before);
    release(guard).await;
    assert_eq!((holder.status().positions_lost, waiter.status().positions_lost), (0, 0));
}

/// Without slots it has no key with which to check the user's rights.
#[tokio::test]
async fn a_primary_that_joins_without_slots_has_every_use_once_it_has_some() {
    let clustered = Clustered::steady().await;
    let slots: Vec<u16> = (0..5_461).collect();
    for number in 0..3 {
        clustered.raw(number).await.ask::<()>(cmd("CLUSTER").arg("DELSLOTS").arg(&slots)).await;
    }
    let locks = connect(&clustered).await;
    eventually("it is known", SOON, async || {
        locks.status().servers.iter().any(|server| server.slots == Some(0))
    })
    .await;
    let mut empty = clustered.raw(0).await;
    empty.ask::<()>(cmd("CLUSTER").arg("ADDSLOTS").arg(&slots)).await;
    let names = (0..).map(|number| format!("node-{number}"));
    let node = names.into_iter().find(|node| slots.contains(&NodeKey(node).slot())).expect("one");
    empty.ask::<()>(cmd("SET").arg(NodeKey(&node).to_string()).arg("vm:7")).await;
    eventually("the process is found", SOON, async || {
        locks.processes([&node]).await.get(&node).is_some_and(|process| process == "vm:7")
    })
    .await;
}

#[tokio::test]
async fn a_free_lock_is_acquired_where_its_slot_is() {
    let clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let key = clustered.key_of(2, 0);
    let mut last = None;
    for (from, to) in [(2, 0), (0, 1), (1, 2)] {
        clustered.move_slot(slot(&key), from, to).await;
        let guard = held(&locks, &key).await;
        assert!(clustered.raw(to).await.exists(&lock_key(&key)).await, "on its primary");
        assert!(Some(guard.fencing_token()) > last, "tokens rise over all primaries");
        last = Some(guard.fencing_token());
        release(guard).await;
    }
}

#[tokio::test]
async fn a_lock_in_an_open_slot_is_refused_in_time_and_granted_once_the_slot_has_moved() {
    let clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let key = clustered.key_of(0, 0);
    let slot = slot(&key);
    release(held(&locks, &key).await).await; // its counter is there
    clustered.open_slot(slot, 0, 1).await;
    let started = Instant::now();
    let refused = locks.lock_timeout(&key, Duration::from_millis(700)).await;
    assert_eq!(refused.expect_err("it moves").kind(), LockErrorKind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
    // Locks of other slots are unaffected, including slots of the same primary.
    for number in 1..4 {
        release(held(&locks, &clustered.key_of(0, number)).await).await;
    }
    let waiting = tokio::spawn({
        let (locks, key) = (locks.clone(), key.clone());
        async move { locks.lock(&key).await.expect("granted") }
    });
    eventually("it waits", SOON, async || locks.status().waiting == 1).await;
    clustered.move_keys(slot, 0, 1).await;
    clustered.close_slot(slot, 0, 1).await;
    release(soon("the grant", waiting).await.expect("no panic")).await;
}

#[tokio::test]
async fn a_hold_outlives_its_lease_in_an_open_slot_wherever_its_key_is() {
    outlives(&Clustered::steady().await, Locks::builder()).await;
}

#[tokio::test]
async fn where_replicas_confirm_it_a_hold_outlives_its_lease_in_an_open_slot_too() {
    let clustered = Clustered::start(RedisOptions::default(), true, SOON).await;
    let builder = Locks::builder().require_replicas(1, Duration::from_millis(900));
    outlives(&clustered, builder).await;
}

// As after a move aborted by an operator.
async fn outlives(clustered: &Clustered, builder: LocksBuilder) {
    const LEASE: Duration = Duration::from_secs(3);
    let options = builder.defaults(LockOptions::new().lease(LEASE));
    let locks = soon("a connection", options.connect(clustered.url())).await.expect("accepted");
    let keys = [0, 1].map(|number| clustered.key_of(0, number));
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(held(&locks, key).await);
        clustered.open_slot(slot(key), 0, 1).await;
    }
    clustered.move_key(&lock_key(&keys[1]), 0, 1).await;
    for guard in &guards {
        let lost = tokio::time::timeout(2 * LEASE, guard.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
    }
    for (guard, key) in guards.into_iter().zip(&keys) {
        assert_eq!(guard.state(), HoldState::Held);
        clustered.move_keys(slot(key), 0, 1).await;
        clustered.close_slot(slot(key), 0, 1).await;
        release(guard).await;
    }
}

/// Holds two locks of one open slot, and moves the second lock's key, or with `is_reduced` the set
/// of its downgraded hold. Makes all renewals due at once, so that a single script call renews
/// both. Returns the guards after two leases.
async fn renewed_together(clustered: &Clustered, is_reduced: bool) -> [LockGuard; 2] {
    const LEASE: Duration = Duration::from_secs(3);
    let options = Locks::builder().defaults(LockOptions::new().lease(LEASE));
    let locks = soon("a connection", options.connect(clustered.url())).await.expect("accepted");
    let (first, other) = (clustered.key_of(0, 0), clustered.key_of(0, 1));
    let mut names = (0..).map(|number| format!("sibling {number}"));
    let second = names.find(|name| slot(name) == slot(&first)).expect("one");
    let mut guards = [held(&locks, &first).await, held(&locks, &second).await];
    let mut moved = lock_key(&second);
    if is_reduced {
        let [one, two] = guards;
        guards = [one, two.downgrade().await.expect("held")];
        moved = format!("{moved}:holds");
    }
    clustered.open_slot(slot(&first), 0, 1).await;
    clustered.move_key(&moved, 0, 1).await;
    // Once the node learns that some slot has moved, it renews all holds.
    clustered.move_slot(slot(&other), 0, 1).await;
    release(held(&locks, &other).await).await;
    tokio::time::sleep(2 * LEASE).await;
    guards
}

#[tokio::test]
async fn holds_renewed_together_outlive_their_leases_although_one_key_has_left_the_open_slot() {
    let clustered = Clustered::steady().await;
    for guard in renewed_together(&clustered, false).await {
        assert_eq!(guard.state(), HoldState::Held);
    }
}

#[tokio::test]
async fn a_hold_is_renewed_beside_one_whose_keys_are_on_two_servers() {
    let clustered = Clustered::steady().await;
    let [guard, _] = renewed_together(&clustered, true).await;
    assert_eq!(guard.state(), HoldState::Held);
}

// A hold in parts has two keys: they count where both are present.
#[tokio::test]
async fn reads_and_permits_outlive_their_leases_in_an_open_slot_where_their_keys_are_together() {
    const LEASE: Duration = Duration::from_secs(3);
    let clustered = Clustered::steady().await;
    let options = Locks::builder().defaults(LockOptions::new().lease(LEASE));
    let locks = soon("a connection", options.connect(clustered.url())).await.expect("accepted");
    let mut guards = Vec::new();
    for number in 0..3 {
        let key = clustered.key_of(0, number);
        let reduced = held(&locks, &key).await.downgrade().await.expect("held");
        guards.push(soon("a read", locks.read(&key)).await.expect("free"));
        guards.push(reduced);
        clustered.open_slot(slot(&key), 0, 1).await;
        let holds = format!("{}:holds", lock_key(&key));
        let reduced = format!("{}:reduced", lock_key(&key));
        match number {
            0 => {}
            // The token counter is left behind.
            1 => {
                for key in [&lock_key(&key), &holds, &reduced] {
                    clustered.move_key(key, 0, 1).await;
                }
            }
            _ => clustered.move_keys(slot(&key), 0, 1).await,
        }
    }
    for guard in &guards {
        let lost = tokio::time::timeout(2 * LEASE, guard.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
    }
    for number in 0..3 {
        let slot = slot(&clustered.key_of(0, number));
        clustered.move_keys(slot, 0, 1).await;
        clustered.close_slot(slot, 0, 1).await;
    }
    for guard in guards {
        assert_eq!(guard.state(), HoldState::Held);
        release(guard).await;
    }
}

/// Opens the slot of a lock, and moves the lock key alone until the target has received a renewal
/// of each node. Then moves the rest, and checks that the lock is not free and the guards hold.
async fn keeps_holds_apart_from_the_lock_key(
    clustered: &Clustered,
    key: &str,
    nodes: &[Locks],
    guards: Vec<LockGuard>,
) {
    let (log, _here) = Log::listen();
    let mut target = clustered.raw(1).await;
    clustered.open_slot(slot(key), 0, 1).await;
    clustered.move_key(&lock_key(key), 0, 1).await;
    eventually("it is renewed there", SOON, async || {
        CommandStats::read(&mut target).await.calls("asking") >= nodes.len() as u64
    })
    .await;
    let () = target.ask(&cmd("ASKING")).await; // for the next command
    assert!(target.exists(&lock_key(key)).await, "others could acquire it");
    clustered.move_keys(slot(key), 0, 1).await;
    clustered.close_slot(slot(key), 0, 1).await;
    assert!(nodes[0].try_lock(key).await.expect("an answer").is_none(), "it is held");
    for guard in guards {
        assert_ne!(guard.state(), HoldState::Lost);
        eventually("it is renewed", SOON, async || guard.state() == HoldState::Held).await;
        release(guard).await;
    }
    release(held(&nodes[0], key).await).await;
    assert!(!log.text().contains("unexpected reply"), "{:?}", log.warnings());
}

async fn nodes_with_a_short_lease(clustered: &Clustered, count: usize) -> Vec<Locks> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        let options = LockOptions::new().lease(Duration::from_secs(9));
        let locks = Locks::builder().defaults(options).connect(clustered.url());
        nodes.push(soon("a connection", locks).await.expect("accepted"));
    }
    nodes
}

// As while `redis-cli` moves a slot with more keys than it moves in a single step.
#[tokio::test]
async fn reads_are_not_forgotten_while_their_lock_key_and_their_holds_are_on_two_servers() {
    let clustered = Clustered::steady().await;
    let nodes = nodes_with_a_short_lease(&clustered, 2).await;
    let key = clustered.key_of(0, 0);
    let mut guards = Vec::new();
    for locks in &nodes {
        guards.push(soon("a read", locks.read(&key)).await.expect("free"));
    }
    keeps_holds_apart_from_the_lock_key(&clustered, &key, &nodes, guards).await;
}

#[tokio::test]
async fn a_downgraded_hold_is_not_forgotten_while_its_keys_are_on_two_servers() {
    let clustered = Clustered::steady().await;
    let nodes = nodes_with_a_short_lease(&clustered, 1).await;
    let key = clustered.key_of(0, 0);
    let guard = held(&nodes[0], &key).await.downgrade().await.expect("held");
    keeps_holds_apart_from_the_lock_key(&clustered, &key, &nodes, vec![guard]).await;
}

// Whatever has moved already, the release either runs completely or not yet.
#[tokio::test]
async fn a_release_in_an_open_slot_is_kept_until_it_runs_whole() {
    let clustered = Clustered::steady().await;
    let [holder, waiter] = [connect(&clustered).await, connect(&clustered).await];
    for moved in 0..4 {
        let key = clustered.key_of(0, moved);
        let slot = slot(&key);
        let guard = held(&holder, &key).await;
        let waiting = tokio::spawn({
            let (waiter, key) = (waiter.clone(), key.clone());
            async move { waiter.lock(&key).await.expect("granted") }
        });
        queued(&holder, &key, 1).await;
        clustered.open_slot(slot, 0, 1).await;
        let patience = patience_key(&key, waiter.node().as_str());
        for key in [lock_key(&key), queue_key(&key), patience].iter().take(moved) {
            clustered.move_key(key, 0, 1).await;
        }
        drop(guard);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        clustered.move_keys(slot, 0, 1).await;
        clustered.close_slot(slot, 0, 1).await;
        let guard = soon("the grant", waiting).await.expect("no panic");
        assert_eq!(guard.state(), HoldState::Held);
        release(guard).await;
        eventually("nothing is left to release", SOON, async || holder.status().releasing == 0)
            .await;
    }
}

// The token in a message is known before its guard is returned.
#[tokio::test]
async fn tokens_rise_for_one_that_was_told_by_message_also_where_the_counter_is_lost() {
    let clustered = Clustered::steady().await;
    let [holder, waiter] = [connect(&clustered).await, connect(&clustered).await];
    let key = clustered.key_of(0, 0);
    let counter = Counter::Slot(slot(&key)).to_string();
    let guard = held(&holder, &key).await;
    let waiting = tokio::spawn({
        let (waiter, key) = (waiter.clone(), key.clone());
        async move { waiter.lock(&key).await.expect("granted") }
    });
    queued(&holder, &key, 1).await;
    let mut redis = clustered.raw(0).await;
    let ahead = redis.time_us().await + 3_600_000_000;
    let () = redis.ask(cmd("SET").arg(&counter).arg(ahead)).await;
    release(guard).await;
    let guard = soon("the grant", waiting).await.expect("no panic");
    let before = guard.fencing_token();
    assert!(before.get() > ahead);
    release(guard).await;
    let () = redis.ask(cmd("DEL").arg(&counter)).await;
    let guard = held(&waiter, &key).await;
    assert!(guard.fencing_token() > before);
    release(guard).await;
}

/// The state shared by all tasks that take turns on a lock.
#[derive(Clone, Default)]
struct Seen {
    is_over: Arc<AtomicBool>,
    inside: Arc<AtomicBool>,
    last: Arc<AtomicU64>,
}

/// Takes turns until stopped; returns how many. Panics if another holder is inside, or a token does
/// not increase.
async fn turns(locks: Locks, key: String, seen: Seen) -> usize {
    let Seen { is_over, inside, last } = seen;
    let mut turns = 0;
    while !is_over.load(Ordering::Acquire) {
        let guard = locks.lock_timeout(&key, SOON).await.expect("granted in time");
        assert!(!inside.swap(true, Ordering::AcqRel), "another holder is inside");
        let token = guard.fencing_token().get();
        assert!(last.swap(token, Ordering::AcqRel) < token, "tokens rise");
        tokio::task::yield_now().await;
        assert!(inside.swap(false, Ordering::AcqRel), "another holder was inside");
        // In an open slot the release has no response, and continues in the background.
        let _ = guard.release().await;
        turns += 1;
    }
    turns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_slots_are_resharded_by_redis_cli_while_their_locks_are_in_use() {
    const SLOTS: u16 = 100;
    const LOCKS: usize = 20;
    let clustered = Clustered::steady().await;
    let names = (0..).map(|number| format!("resharded {number}"));
    let keys: Vec<_> = names.filter(|name| slot(name) < SLOTS).take(LOCKS).collect();
    let nodes = [connect(&clustered).await, connect(&clustered).await];
    let seen: Vec<_> = keys.iter().map(|_| Seen::default()).collect();
    let mut tasks = Vec::new();
    for (key, seen) in keys.iter().zip(&seen) {
        for locks in nodes.iter().cycle().take(3) {
            tasks.push(tokio::spawn(turns(locks.clone(), key.clone(), seen.clone())));
        }
    }
    soon("the reshard", clustered.reshard(SLOTS, 0, 1)).await;
    for (key, seen) in keys.iter().zip(&seen) {
        clustered.until_served_by(slot(key), 1).await;
        let before = seen.last.load(Ordering::Acquire);
        let some = async || seen.last.load(Ordering::Acquire) > before;
        eventually("it is granted there", SOON, some).await;
        seen.is_over.store(true, Ordering::Release);
    }
    for task in tasks {
        soon("the end", task).await.expect("one holder at a time");
    }
    assert_eq!(clustered.raw(0).await.keys("lock:{resharded*").await, [""; 0]);
    for locks in nodes {
        assert_eq!(locks.status().positions_lost, 0);
        eventually("nothing is left", SOON, async || locks.status().releasing == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_moves_back_and_forth_there_is_one_holder_and_no_position_is_lost() {
    const MOVES: usize = 60;
    let clustered = Clustered::steady().await;
    let key = clustered.key_of(0, 0);
    let slot = slot(&key);
    let (seen, mut nodes, mut tasks) = (Seen::default(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let locks = connect(&clustered).await;
        nodes.push(locks.clone());
        for _ in 0..3 {
            tasks.push(tokio::spawn(turns(locks.clone(), key.clone(), seen.clone())));
        }
    }
    let mut at = 0;
    for turn in 0..MOVES {
        let to = (at + 1 + turn % 2) % 3;
        soon("a move", clustered.move_slot(slot, at, to)).await;
        at = to;
        let before = seen.last.load(Ordering::Acquire);
        let some = async || seen.last.load(Ordering::Acquire) > before + 3;
        eventually("some are served", SOON, some).await;
    }
    seen.is_over.store(true, Ordering::Release);
    let mut turns = 0;
    for task in tasks {
        turns += soon("the end", task).await.expect("one holder at a time");
    }
    assert!(turns > 3 * MOVES, "{turns} turns");
    for locks in nodes {
        assert_eq!(locks.status().positions_lost, 0);
        eventually("nothing is left", SOON, async || locks.status().releasing == 0).await;
    }
}

// The former primary was ahead of the clock, and the counter is lost on the way.
#[tokio::test]
async fn tokens_rise_for_all_that_have_seen_them_also_where_the_counter_did_not_move() {
    let clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let key = clustered.key_of(0, 0);
    let slot = slot(&key);
    let counter = Counter::Slot(slot).to_string();
    let mut redis = clustered.raw(0).await;
    let ahead = redis.time_us().await + 3_600_000_000;
    let () = redis.ask(cmd("SET").arg(&counter).arg(ahead)).await;
    let guard = held(&locks, &key).await;
    let before = guard.fencing_token();
    assert!(before.get() > ahead);
    release(guard).await;
    clustered.move_slot(slot, 0, 1).await;
    let () = clustered.raw(1).await.ask(cmd("DEL").arg(&counter)).await;
    let guard = held(&locks, &key).await;
    assert!(guard.fencing_token() > before);
    release(guard).await;
}
