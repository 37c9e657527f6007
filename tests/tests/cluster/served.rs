//! Locks in a Cluster without moves and failures: each on the primary of its slot.

use std::time::Duration;

use futures_util::future::join_all;
use lock_tests::{Clustered, Raw, eventually, queued};
use lockcore::{LockGuard, Locks};
use proto::LockName;
use proto::wire::keys::Counter;
use proto::wire::slot::SLOTS;
use redis::cmd;

use crate::common::{SOON, connect, held, release, slot, soon};

async fn slot_by_server(redis: &mut Raw, key: &str) -> u16 {
    redis.ask(cmd("CLUSTER").arg("KEYSLOT").arg(key)).await
}

#[tokio::test]
async fn the_slots_of_locks_and_counters_are_those_of_the_server() {
    let clustered = Clustered::steady().await;
    let mut redis = clustered.raw(0).await;
    for name in ["order:42", "a", "", "%7B", "}", "}{", "日本", "a}b{c}", "{", "{}", "{}{a}"] {
        let lock_key = format!("lock:{{{name}}}");
        let name = LockName::from(name);
        let lock_key =
            if name.as_str().contains('{') { format!("lock:{}", name.as_str()) } else { lock_key };
        assert_eq!(name.slot(), slot_by_server(&mut redis, &lock_key).await, "{lock_key}");
    }
    for slot in (0..SLOTS).step_by(127).chain([SLOTS - 1]) {
        let counter = Counter::Slot(slot).to_string();
        assert_eq!(slot_by_server(&mut redis, &counter).await, slot, "{counter}");
    }
}

#[tokio::test]
async fn one_node_of_the_cluster_is_enough_to_find_all_others() {
    let mut clustered = Clustered::steady().await;
    let url = format!("redis+cluster://{}/", clustered.server(2).address());
    let locks = soon("a connection", Locks::connect(url)).await.expect("accepted");
    for primary in 0..3 {
        let key = clustered.key_of(primary, 0);
        let guard = held(&locks, &key).await;
        let mut redis = clustered.raw(primary).await;
        assert!(redis.exists(&format!("lock:{{{key}}}")).await, "{key} is on its primary");
        release(guard).await;
        assert_eq!(redis.keys("lock:{*").await, Vec::<String>::new());
        let counters = redis.keys("*").await;
        assert_eq!(
            counters,
            [Counter::Slot(slot(&key)).to_string()],
            "a counter of the slot stays"
        );
    }
}

#[tokio::test]
async fn waiters_on_each_primary_are_served_in_the_order_in_which_they_came() {
    const NODES: usize = 4;
    let clustered = Clustered::steady().await;
    let first = connect(&clustered).await;
    for primary in 0..3 {
        let key = clustered.key_of(primary, 0);
        let guard = held(&first, &key).await;
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting = Vec::new();
        for place in 1..=NODES {
            let (locks, sender, key) = (connect(&clustered).await, sender.clone(), key.clone());
            waiting.push(tokio::spawn({
                let locks = locks.clone();
                let key = key.clone();
                async move {
                    let guard = locks.lock(&key).await.expect("granted");
                    sender.send((place, guard.fencing_token())).expect("the test listens");
                    release(guard).await;
                }
            }));
            queued(&locks, &key, place).await;
        }
        let mut last = guard.fencing_token();
        release(guard).await;
        for expected in 1..=NODES {
            let (place, token) = soon("a grant", order.recv()).await.expect("told");
            assert_eq!(place, expected);
            assert!(token > last, "{token} is above {last}");
            last = token;
        }
        for waiting in waiting {
            soon("the end", waiting).await.expect("no panic");
        }
    }
}

// A message passed on by every primary would arrive three times.
#[tokio::test]
async fn a_node_is_listened_to_at_each_primary_by_a_channel_of_its_own() {
    let clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let node = locks.node();
    let mut channels = Vec::new();
    for primary in 0..3 {
        let mut redis = clustered.raw(primary).await;
        let pattern = format!("lockcore:grants:*:{node}");
        let heard: Vec<String> = redis.ask(cmd("PUBSUB").arg("CHANNELS").arg(&pattern)).await;
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert_eq!(redis.subscribers(&heard[0]).await, 1);
        channels.extend(heard);
    }
    channels.sort();
    channels.dedup();
    assert_eq!(channels.len(), 3, "{channels:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_held_and_renewed_over_all_primaries() {
    const HOLDS: usize = 10_000;
    const LEASE: Duration = Duration::from_secs(12);
    let clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let lock = |number| locks.key(format!("of many {number}")).lease(LEASE).lock();
    let guards = soon("the locks", join_all((0..HOLDS).map(lock))).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("free")).collect();
    for primary in 0..3 {
        let keys = clustered.raw(primary).await.keys("lock:{of many *}").await;
        assert!((3_000..3_700).contains(&keys.len()), "{} at {primary}", keys.len());
    }
    let first = guards.iter().map(|guard| guard.deadline()).max().expect("some");
    let renewed = async || guards.iter().all(|guard| guard.deadline() > first);
    eventually("each hold is renewed", SOON, renewed).await;
    let released = soon("the releases", join_all(guards.into_iter().map(LockGuard::release))).await;
    for released in released {
        released.expect("it was held");
    }
    for primary in 0..3 {
        let left = clustered.raw(primary).await.keys("lock:{of*").await;
        assert_eq!(left, Vec::<String>::new(), "at {primary}");
    }
}

#[tokio::test]
async fn holds_in_many_slots_are_renewed() {
    const LEASE: Duration = Duration::from_secs(6);
    let clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let mut guards = Vec::new();
    for number in 0..40 {
        let key = format!("many {number}");
        let lock = locks.key(key).lease(LEASE).lock();
        guards.push(soon("the lock", lock).await.expect("free"));
    }
    let first: Vec<_> = guards.iter().map(|guard| guard.deadline()).collect();
    eventually("each hold is renewed", SOON, async || {
        guards.iter().zip(&first).all(|(guard, first)| guard.deadline() > *first)
    })
    .await;
    for guard in guards {
        assert!(!guard.is_lost());
        release(guard).await;
    }
}

#[tokio::test]
async fn a_subscription_that_its_primary_does_not_count_is_opened_anew() {
    let clustered = Clustered::steady().await;
    let [first, second] = [connect(&clustered).await, connect(&clustered).await];
    let key = clustered.key_of(1, 0);
    let guard = held(&first, &key).await;
    let waiting = tokio::spawn({
        let (second, key) = (second.clone(), key.clone());
        async move { second.lock(&key).await.expect("granted") }
    });
    queued(&first, &key, 1).await;
    let mut redis = clustered.raw(1).await;
    let pattern = format!("lockcore:grants:*:{}", second.node());
    let listens = async |redis: &mut Raw| {
        let heard: Vec<String> = redis.ask(cmd("PUBSUB").arg("CHANNELS").arg(&pattern)).await;
        heard.len() == 1
    };
    let mut kill = cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("pubsub");
    let _: u64 = redis.ask(&kill).await;
    eventually("it listens again", SOON, async || listens(&mut redis).await).await;
    release(guard).await;
    release(soon("the grant", waiting).await.expect("no panic")).await;
}
