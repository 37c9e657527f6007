//! JVMs that share a lock: a holding thread, and a waiting thread.

use std::time::Duration;

use lock_tests::protocol::redisson::poke_channel;
use lock_tests::{CommandStats, eventually};
use lockcore::Locks;
use proto::{Acquired, LockName, Member, Party, Released};

use crate::asking::{grant, left_ms};
use crate::bench::{Bench, LOCK, SOON};
use crate::facts;
use crate::thread::{STEP_MS, THREADS};

facts! {
    redisson: [
        nobody_is_granted_past_a_jvm_that_waits_and_it_is_told_each_time,
        a_jvm_s_hold_is_waited_for_until_its_lease_ends,
        a_jvm_thread_with_a_negative_id_is_told_and_waited_for_like_any_other,
        a_jvm_s_hold_is_forced_off_and_nobody_is_told,
        a_jvm_at_the_head_whose_time_is_up_is_dropped_and_one_further_back_is_not,
        a_jvm_that_is_dropped_because_its_time_is_up_is_told,
        a_jvm_behind_those_skipped_still_stops_the_walk,
        a_hold_without_an_end_gets_the_lease_of_the_one_that_asks_and_a_jvm_s_thirty_seconds_at_least,
        an_inspection_shows_jvms_by_their_scores,
        the_keys_of_a_queue_and_the_token_have_no_end_and_the_rest_has_one,
    ],
    redisson_scripts: [
        a_lock_whose_name_has_braces_tells_a_jvm_on_redisson_s_own_channel,
        a_jvm_s_unlock_reaches_the_member_it_is_for_and_no_other_node,
        the_score_of_a_jvm_whose_queue_was_lost_is_deleted_by_the_next_acquire,
    ],
}

const JVM: &str = THREADS[0];

// The JVM would find its score, and wait without being in the queue.
async fn the_score_of_a_jvm_whose_queue_was_lost_is_deleted_by_the_next_acquire(mut bench: Bench) {
    let a = bench.node().await;
    bench.jvm_queues(JVM, STEP_MS).await;
    let queue = bench.redis().keys("redisson_lock_queue:*").await;
    let () = bench.redis().ask(redis::cmd("DEL").arg(queue)).await;
    assert_eq!(bench.redis().keys("redisson_lock_timeout:*").await.len(), 1);
    grant(&a.wait(&a.member(30_000)).await);
    assert_eq!(bench.redis().keys("redisson_lock_timeout:*").await, [""; 0]);
}

async fn nobody_is_granted_past_a_jvm_that_waits_and_it_is_told_each_time(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut thread = bench.listen(JVM).await;
    let holder = a.hold(30_000).await;
    bench.jvm_queues(JVM, STEP_MS).await;
    let behind = b.queue(30_000).await;
    let reply = a.release(&holder).await;
    assert_eq!((reply.outcome, left_ms(&reply)), (Released::Released, 0));
    assert_eq!(bench.pokes(&mut thread).await, 1);
    let queue = vec![Party::from(JVM), Party::from(&behind)];
    assert_eq!((bench.holding().await, bench.parties().await), (None, queue));
    // Each newcomer notifies it again, and is queued behind it.
    let newcomer = a.member(30_000);
    assert_eq!(a.try_now(&newcomer).await.outcome, Acquired::Busy);
    let reply = a.wait(&newcomer).await;
    assert_eq!((reply.outcome, left_ms(&reply)), (Acquired::Queued { position: 2 }, 0));
    assert_eq!(b.touch(&[&behind]).await.grants, []);
    assert_eq!(bench.pokes(&mut thread).await, 3);
    assert_eq!(bench.holding().await, None);
    assert_eq!(b.heard().await, []);
}

async fn a_jvm_s_hold_is_waited_for_until_its_lease_ends(mut bench: Bench) {
    let a = bench.node().await;
    bench.jvm_holds(JVM, Some(9_000)).await;
    let member = a.member(30_000);
    let reply = a.wait(&member).await;
    assert_eq!((reply.outcome, &reply.grants[..]), (Acquired::Queued { position: 0 }, &[][..]));
    assert!((8_000..=9_000).contains(&left_ms(&reply)), "{reply:?}");
    bench.end_lease().await;
    assert_eq!(grant(&a.touch(&[&member]).await).member, member);
}

// Redisson accepts any number as a thread id, such as a random one.
async fn a_jvm_thread_with_a_negative_id_is_told_and_waited_for_like_any_other(mut bench: Bench) {
    const NEGATIVE: &str = "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:-41";
    let a = bench.node().await;
    let mut thread = bench.listen(NEGATIVE).await;
    let holder = a.hold(30_000).await;
    bench.jvm_queues(NEGATIVE, STEP_MS).await;
    assert_eq!(a.release(&holder).await.outcome, Released::Released);
    assert_eq!(bench.pokes(&mut thread).await, 1);
    bench.head_goes(STEP_MS).await;
    bench.jvm_holds(NEGATIVE, Some(30_000)).await;
    let reply = a.wait(&a.member(30_000)).await;
    assert_eq!(reply.outcome, Acquired::Queued { position: 0 });
}

async fn a_jvm_s_hold_is_forced_off_and_nobody_is_told(mut bench: Bench) {
    for left_ms in [Some(30_000), None] {
        bench.restart().await;
        let a = bench.node().await;
        bench.jvm_holds(JVM, left_ms).await;
        let member = a.queue(30_000).await;
        let reply = a.force_release().await;
        assert_eq!(reply.outcome, Released::Released);
        assert_eq!(grant(&reply).member, member);
        assert_eq!(a.heard().await, []);
    }
}

async fn a_jvm_at_the_head_whose_time_is_up_is_dropped_and_one_further_back_is_not(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let (head, back) = (THREADS[0], THREADS[1]);
    bench.jvm_queues(head, STEP_MS).await;
    let ours = b.queue(30_000).await;
    bench.jvm_queues(back, STEP_MS).await;
    bench.end_patience(head).await;
    b.touch(&[&ours]).await;
    bench.end_patience(back).await;
    b.queue(30_000).await;
    let queue = [Party::from(head), Party::from(&ours), Party::from(back)];
    assert_eq!(bench.parties().await[..3], queue, "the sweep leaves them");
    a.release(&holder).await;
    assert_eq!(bench.holder().await, Some(ours));
    assert_eq!(bench.parties().await[0], Party::from(back));
}

// It may be alive: it looks again only at the end of the lease that it last saw.
async fn a_jvm_that_is_dropped_because_its_time_is_up_is_told(mut bench: Bench) {
    let a = bench.node().await;
    let mut thread = bench.listen(JVM).await;
    let holder = a.hold(30_000).await;
    bench.jvm_queues(JVM, STEP_MS).await;
    bench.end_patience(JVM).await;
    a.release(&holder).await;
    assert_eq!((bench.holding().await, bench.parties().await), (None, vec![]));
    assert_eq!(bench.pokes(&mut thread).await, 1);
}

async fn a_jvm_behind_those_skipped_still_stops_the_walk(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    bench.plant_dead(3).await;
    bench.jvm_queues(JVM, STEP_MS).await;
    b.queue(30_000).await;
    assert_eq!((a.release(&holder).await.skipped, bench.holding().await), (3, None));
}

async fn a_hold_without_an_end_gets_the_lease_of_the_one_that_asks_and_a_jvm_s_thirty_seconds_at_least(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let ours = b.member(30_000);
    let holders = [ours.as_str(), JVM];
    for (holder, lease_ms, expected_ms) in [
        (holders[0], 7_000, 7_000),
        (holders[0], 40_000, 40_000),
        (holders[1], 7_000, 30_000),
        (holders[1], 40_000, 40_000),
    ] {
        for is_touch in [false, true] {
            bench.jvm_holds(holder, None).await;
            let member = a.member(lease_ms);
            let reported_ms = match is_touch {
                false => {
                    let reply = a.try_now(&member).await;
                    assert_eq!(reply.outcome, Acquired::Busy);
                    left_ms(&reply)
                }
                true => left_ms(&a.touch(&[&member, &a.member(50_000)]).await),
            };
            assert_eq!(reported_ms, expected_ms, "{holder}, {lease_ms} ms, touch: {is_touch}");
            let (state, now_ms) = bench.state().await;
            let (_, ends_ms) = state.hold(now_ms).expect("it is held");
            let left_ms = ends_ms.expect("it has an end") - now_ms;
            assert!((expected_ms - 1_000..=expected_ms).contains(&left_ms), "{left_ms} ms");
        }
    }
}

async fn an_inspection_shows_jvms_by_their_scores(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let ours = a.queue(30_000).await;
    bench.jvm_queues(JVM, STEP_MS).await;
    let (mut state, _) = bench.state().await;
    let state = state.of_redisson();
    let expected = [Party::from(&ours), Party::from(JVM)];
    let scores = [state.alive.get(&expected[0]), state.deadlines.get(&expected[1])];
    let seen = a.inspect().await;
    let waiters: Vec<_> = seen.waiters.iter().map(|(party, _)| party.clone()).collect();
    assert_eq!(waiters, expected);
    assert_eq!([Some(seen.waiters[0].1), Some(seen.waiters[1].1)], scores);
}

async fn the_keys_of_a_queue_and_the_token_have_no_end_and_the_rest_has_one(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    let member = a.queue(30_000).await;
    // Another client's end, such as a MultiLock's.
    bench
        .change(|state, now_ms| state.of_redisson().queue_expires_ms = Some(now_ms + 60_000))
        .await;
    a.touch(&[&member]).await;
    a.renew(&holder).await;
    let (mut state, _) = bench.state().await;
    let state = state.of_redisson();
    assert_eq!(state.queue_expires_ms, None);
    assert_eq!(state.token.as_ref().map(|token| token.expires_ms), Some(None));
    assert!(state.hold.as_ref().is_some_and(|hold| hold.expires_ms.is_some()));
    assert!(state.alive_expires_ms.is_some());
    a.release(&holder).await;
    a.release(&member).await;
    let (mut state, _) = bench.state().await;
    let state = state.of_redisson();
    assert_eq!(state.token.take().map(|token| token.expires_ms), Some(None));
    assert!(state.is_empty(), "nothing else is left: {state:?}");
}

async fn a_lock_whose_name_has_braces_tells_a_jvm_on_redisson_s_own_channel(mut bench: Bench) {
    bench.lock = LockName::from("{tenant}:x");
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    let mut thread = bench.listen(JVM).await;
    let mut pipeline = redis::pipe();
    pipeline.cmd("RPUSH").arg("redisson_lock_queue:{tenant}:x").arg(JVM);
    let deadline = bench.now_ms().await + STEP_MS;
    pipeline.cmd("ZADD").arg("redisson_lock_timeout:{tenant}:x").arg(deadline).arg(JVM);
    bench.redis().run(&pipeline).await;
    a.release(&holder).await;
    assert_eq!(bench.pokes(&mut thread).await, 1);
}

// A notified node requests the lock for its member at once. The channels are shared by the whole
// client.
async fn a_jvm_s_unlock_reaches_the_member_it_is_for_and_no_other_node(mut bench: Bench) {
    let connect = || Locks::builder().redisson_peers(true).connect(bench.server().url());
    let processes = [connect().await.expect("connected"), connect().await.expect("connected")];
    bench.jvm_holds(JVM, Some(30_000)).await;
    let mut waiting = Vec::new();
    for locks in &processes {
        waiting.push(tokio::spawn(locks.lock(LOCK)));
        let count = waiting.len();
        eventually("it waits", SOON, async || bench.parties().await.len() == count).await;
    }
    let members: Vec<Member> = bench.queue().await;
    for member in &members {
        let before = CommandStats::read(bench.redis()).await;
        let to = poke_channel(bench.lock.as_str(), member.as_str());
        bench.redis().publish(&to, "0").await;
        eventually("one asks", SOON, async || {
            CommandStats::read(bench.redis()).await.since(&before).calls("evalsha") > 0
        })
        .await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let ran = CommandStats::read(bench.redis()).await.since(&before);
        assert_eq!(ran.calls("evalsha"), 1, "of the two processes, one asks");
    }
    bench.change(|state, _| state.of_redisson().hold = None).await;
    let to = poke_channel(bench.lock.as_str(), members[0].as_str());
    bench.redis().publish(&to, "0").await;
    for attempt in waiting {
        let guard = tokio::time::timeout(SOON, attempt).await.expect("in time");
        guard.expect("no panic").expect("granted").release().await.expect("still held");
    }
}
