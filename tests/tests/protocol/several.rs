//! A script for several locks: each lock is a separate step with its own reply, whatever the other
//! locks contain.

use lock_tests::{holds_key, lock_key};
use proto::{
    Acquired, Answer, Answers, Command, Demand, Event, LockErrorKind, LockName, Member, Mode,
    Presence, Renewed, Reply, StoreError, Touched,
};
use redis::cmd;

use crate::asking::{acquire, grant, leave, left_ms, now_us, reduce};
use crate::bench::{Bench, Everything};
use crate::facts;
use crate::node::Node;

facts! {
    queue: [several_parts_of_one_lock_are_renewed_in_one_command_each_by_itself],
    scripts: [
        a_server_that_refuses_writes_refuses_all_of_them_and_nothing_is_changed,
        with_memory_full_holds_are_renewed_and_waiters_of_several_locks_keep_their_positions,
    ],
    queue_scripts: [
        of_several_holds_each_is_renewed_or_refused_by_itself,
        of_several_queues_each_is_touched_or_refused_by_itself,
    ],
    redisson_scripts: [
        of_several_holds_that_jvms_share_each_is_renewed_or_refused_by_itself,
        of_several_queues_that_jvms_share_each_is_touched_or_refused_by_itself,
    ],
}

/// Short enough to recognise an extended lease, long enough not to end.
const RUN_DOWN_MS: i64 = 20_000;

fn lock(number: usize) -> LockName {
    LockName::from(&*format!("lock {number}"))
}

fn nth_lock_key(number: usize) -> String {
    lock_key(lock(number).as_str())
}

/// Acquires the lock, or waits for it.
async fn ask(node: &Node, lock: &LockName) -> (Member, Acquired) {
    let member = node.member(30_000);
    let answer = node.run_on(lock, acquire(&member, Mode::Wait, 1_000)).await;
    let Ok(Answer::Acquired(reply)) = answer else { panic!("{answer:?}") };
    (member, reply.outcome[0])
}

async fn take(node: &Node, lock: &LockName) -> Member {
    let (member, outcome) = ask(node, lock).await;
    assert_eq!(outcome, Acquired::Granted);
    member
}

async fn queue(node: &Node, lock: &LockName) -> Member {
    let (member, outcome) = ask(node, lock).await;
    assert!(matches!(outcome, Acquired::Queued { .. }), "{outcome:?}");
    member
}

fn renewal(member: Member) -> Command {
    Command::Renew { members: vec![member] }
}

fn touches(members: Vec<Member>) -> Command {
    Command::Touch { members }
}

/// Runs all commands in one call.
async fn run_all<T: Clone>(
    node: &Node,
    asked: &[(LockName, T)],
    command: impl Fn(T) -> Command,
) -> Result<Answers, StoreError> {
    let commands: Vec<_> = asked.iter().map(|(_, of)| command(of.clone())).collect();
    let commands: Vec<_> = asked.iter().map(|(lock, _)| lock).zip(&commands).collect();
    node.run_together(&commands).await
}

impl Bench {
    /// The key that stores the hold.
    fn key_of(&self, number: usize) -> String {
        match self.side.has_peers() {
            false => nth_lock_key(number),
            true => lock(number).as_str().to_owned(),
        }
    }

    async fn run_down(&mut self, number: usize, ms: i64) {
        let key = self.key_of(number);
        self.redis().ask(cmd("PEXPIRE").arg(key).arg(ms)).await
    }

    async fn delete(&mut self, key: &str) {
        self.redis().ask(cmd("DEL").arg(key)).await
    }

    /// Replaces a key with another program's hash.
    async fn put_hash(&mut self, key: &str) {
        self.delete(key).await;
        self.redis().ask(cmd("HSET").arg(key).arg("name").arg("Ada")).await
    }

    /// Replaces a key with another program's text.
    async fn put_text(&mut self, key: &str, text: &str) {
        self.redis().ask(cmd("SET").arg(key).arg(text).arg("PX").arg(90_000)).await
    }

    /// Replaces a key with another program's list.
    async fn put_list(&mut self, key: &str) {
        self.delete(key).await;
        self.redis().ask(cmd("RPUSH").arg(key).arg("a task")).await
    }

    /// Everything stored about a lock.
    async fn of(&mut self, number: usize) -> Everything {
        let (name, tag) = (self.key_of(number), format!("{{lock {number}}}"));
        let mut everything = self.everything().await;
        everything.retain(|(key, ..)| *key == name || key.contains(&tag));
        everything
    }
}

fn renewed(answer: &Result<Answer, StoreError>) -> &Reply<Vec<Renewed>> {
    let Ok(Answer::Renewed(reply)) = answer else { panic!("{answer:?}") };
    reply
}

fn touched(answer: &Result<Answer, StoreError>) -> &Reply<Touched> {
    let Ok(Answer::Touched(reply)) = answer else { panic!("{answer:?}") };
    reply
}

fn is_strange(answer: &Result<Answer, StoreError>, named: &str) {
    let error = answer.as_ref().expect_err("another program's key");
    assert_eq!(error.kind, LockErrorKind::WrongType);
    assert!(error.detail.contains(named), "{error:?}");
}

async fn of_several_holds_each_is_renewed_or_refused_by_itself(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut holds = Vec::new();
    for number in 0..12 {
        let node = if number == 3 { &b } else { &a };
        holds.push((lock(number), take(node, &lock(number)).await));
        bench.run_down(number, RUN_DOWN_MS).await;
    }
    // With a waiter; with a tombstone; of another node; gone; with an expired lease.
    queue(&b, &lock(1)).await;
    let tombstone = a.member(30_000);
    a.run_on(&lock(2), leave(&[(&tombstone, true)])).await.expect("answered");
    let other = bench.redis().get(&nth_lock_key(3)).await;
    holds[3].1 = a.member(30_000);
    bench.delete(&nth_lock_key(4)).await;
    queue(&b, &lock(5)).await;
    bench.run_down(5, 60_000).await;
    // Downgraded; downgraded and expired; without an end.
    for number in [6, 7] {
        a.run_on(&lock(number), reduce(&holds[number].1)).await.expect("answered");
    }
    let past = bench.now_ms().await - 1;
    let lapse =
        cmd("ZADD").arg(holds_key(lock(7).as_str())).arg(past).arg(holds[7].1.as_str()).clone();
    let () = bench.redis().ask(&lapse).await;
    let () = bench.redis().ask(cmd("PERSIST").arg(nth_lock_key(8))).await;
    // Another program's hash and text; a member of another protocol.
    bench.put_hash(&nth_lock_key(9)).await;
    bench.put_text(&nth_lock_key(10), "a cache entry").await;
    bench.put_text(&nth_lock_key(11), "~1AAAAAAAAAAAAAAAAAAAAAA:1:30000:x").await;
    let mut untouched = Vec::new();
    for number in [3, 4, 5, 7, 9, 10, 11] {
        untouched.push((number, bench.of(number).await));
    }
    let each = run_all(&a, &holds, renewal).await.expect("answered");

    let now_us = bench.redis().time_us().await;
    for number in [0, 1, 2, 6, 8] {
        let reply = renewed(&each[number]);
        assert_eq!(reply.outcome, [Renewed::Held], "{number}");
        assert!(reply.now_us.is_some_and(|at_us| at_us <= now_us && at_us + 20_000_000 > now_us));
        assert!(reply.grants.is_empty());
    }
    for (number, least) in [(0, 29_000), (1, 89_000), (2, 89_000), (6, 89_000), (8, 29_000)] {
        assert!(bench.redis().pttl(&nth_lock_key(number)).await > least, "{number}");
    }
    for number in [3, 4, 5, 7] {
        assert_eq!(renewed(&each[number]).outcome, [Renewed::NotHeld], "{number}");
    }
    for answer in &each[9..12] {
        is_strange(answer, "");
    }
    for (number, before) in untouched {
        assert_eq!(bench.of(number).await, before, "{number} was changed");
    }
    assert_eq!(bench.redis().get(&nth_lock_key(3)).await, other);
}

async fn of_several_queues_each_is_touched_or_refused_by_itself(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut lines = Vec::new();
    for number in 0..6 {
        take(&b, &lock(number)).await;
        lines.push((lock(number), vec![queue(&a, &lock(number)).await]));
    }
    // Behind others; a lost position; free; another program's queue and lock key.
    lines[1].1.insert(0, queue(&a, &lock(1)).await);
    let key = |number, which: &str| format!("{}:{which}", nth_lock_key(number));
    bench.delete(&key(2, "queue")).await;
    bench.delete(&nth_lock_key(3)).await;
    bench.put_list(&key(4, "queue")).await;
    bench.put_hash(&nth_lock_key(5)).await;
    let before = [bench.of(4).await, bench.of(5).await];
    for number in [0, 1] {
        let patience = key(number, "patience:") + a.id.as_str();
        let () = bench.redis().ask(cmd("PEXPIRE").arg(patience).arg(9_000)).await;
    }
    let each = run_all(&a, &lines, touches).await.expect("answered");

    for number in [0, 1] {
        let reply = touched(&each[number]);
        assert!(reply.outcome.members.iter().all(|one| *one == Presence::Waiting), "{number}");
        assert_eq!((reply.grants.len(), reply.outcome.listeners), (0, 1));
        let patience = key(number, "patience:") + a.id.as_str();
        assert!(bench.redis().pttl(&patience).await > 14_000, "{number}");
    }
    assert_eq!(touched(&each[2]).outcome.members, [Presence::Gone]);
    // Handed off by the touch itself.
    assert_eq!(touched(&each[3]).grants[0].member, lines[3].1[0]);
    is_strange(&each[4], "list");
    is_strange(&each[5], "hash");
    assert_eq!([bench.of(4).await, bench.of(5).await], before);
    assert_eq!(a.heard().await, Vec::<Event>::new());
    assert_eq!(b.heard().await, Vec::<Event>::new());
}

async fn of_several_holds_that_jvms_share_each_is_renewed_or_refused_by_itself(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut holds = Vec::new();
    for number in 0..9 {
        let node = if number == 2 { &b } else { &a };
        holds.push((lock(number), take(node, &lock(number)).await));
        bench.run_down(number, RUN_DOWN_MS).await;
    }
    let foreign = holds[2].1.clone();
    // Of another node; gone; another program's hash, field, token and list; a missing token.
    holds[2].1 = a.member(30_000);
    let token = |number| format!("redisson_lock_token:{{lock {number}}}");
    bench.delete("lock 3").await;
    bench.put_hash("lock 4").await;
    let () = bench.redis().ask(cmd("HSET").arg("lock 5").arg("name").arg("Ada")).await;
    let () = bench.redis().ask(cmd("SET").arg(token(6)).arg("no number")).await;
    bench.delete(&token(7)).await;
    let mut untouched = Vec::new();
    for number in 2..7 {
        untouched.push((number, bench.of(number).await));
    }
    let each = run_all(&a, &holds, renewal).await.expect("answered");

    for number in [0, 1, 7, 8] {
        let reply = renewed(&each[number]);
        assert_eq!(reply.outcome, [Renewed::Held], "{number}");
        assert_eq!((left_ms(reply), grant(reply).left_ms), (30_000, 30_000));
        assert_eq!(grant(reply).member, holds[number].1);
        assert!(bench.redis().pttl(&format!("lock {number}")).await > RUN_DOWN_MS, "{number}");
    }
    for number in [2, 3] {
        assert_eq!(renewed(&each[number]).outcome, [Renewed::NotHeld], "{number}");
    }
    for (number, named) in [(4, "hash"), (5, "hash"), (6, "string")] {
        is_strange(&each[number], named);
    }
    for (number, before) in untouched {
        assert_eq!(bench.of(number).await, before, "{number} was changed");
    }
    assert_eq!(bench.redis().hash("lock 2").await, [(foreign.to_string(), "1".to_owned())]);
}

async fn of_several_queues_that_jvms_share_each_is_touched_or_refused_by_itself(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut lines = Vec::new();
    for number in 0..9 {
        // The holder of 1 belongs to the requesting node.
        take(if number == 1 { &a } else { &b }, &lock(number)).await;
        lines.push((lock(number), vec![queue(&a, &lock(number)).await]));
    }
    // Alone and behind others; a lost position; free; another program's list, hash and deadlines; a
    // member that died before.
    lines[2].1.insert(0, queue(&a, &lock(2)).await);
    let behind = queue(&b, &lock(2)).await;
    let key = |which, number| format!("redisson_lock_{which}:{{lock {number}}}");
    let lost = lines[3].1[0].clone();
    for which in ["timeout", "alive"] {
        let () = bench.redis().ask(cmd("ZREM").arg(key(which, 3)).arg(lost.as_str())).await;
    }
    bench.delete("lock 4").await;
    bench.put_list(&key("queue", 5)).await;
    let () = bench.redis().ask(cmd("HSET").arg("lock 6").arg("name").arg("Ada")).await;
    bench.put_text(&key("timeout", 7), "text").await;
    let dead = b.member(30_000);
    let () = bench.redis().ask(cmd("RPUSH").arg(key("queue", 8)).arg(dead.as_str())).await;
    for which in ["timeout", "alive"] {
        let () = bench.redis().ask(cmd("ZADD").arg(key(which, 8)).arg(5).arg(dead.as_str())).await;
    }
    for number in [0, 1, 2] {
        for member in &lines[number].1 {
            let soon = bench.now_ms().await + 9_000;
            let mut lower = cmd("ZADD");
            lower.arg(key("alive", number)).arg("XX").arg(soon).arg(member.as_str());
            let () = bench.redis().ask(&lower).await;
        }
    }
    let mut untouched = Vec::new();
    for number in 5..8 {
        untouched.push((number, bench.of(number).await));
    }
    a.heard().await;
    let each = run_all(&a, &lines, touches).await.expect("answered");

    for number in [0, 1, 2, 8] {
        let reply = touched(&each[number]);
        assert!(reply.outcome.members.iter().all(|one| *one == Presence::Waiting), "{number}");
        assert!((1..=30_000).contains(&left_ms(reply)), "{reply:?}");
        let grants = usize::from(number == 1);
        assert_eq!((reply.grants.len(), reply.outcome.listeners), (grants, 1));
        for member in &lines[number].1 {
            let mut score = cmd("ZSCORE");
            score.arg(key("alive", number)).arg(member.as_str());
            let deadline: u64 = bench.redis().ask(&score).await;
            assert_eq!(deadline, now_us(reply) / 1_000 + 15_000, "{number}");
        }
    }
    assert_eq!(touched(&each[3]).outcome.members, [Presence::Gone]);
    // Handed off by the touch itself.
    assert_eq!(grant(touched(&each[4])).member, lines[4].1[0]);
    for (number, named) in [(5, "list"), (6, "hash"), (7, "string")] {
        is_strange(&each[number], named);
    }
    for (number, before) in untouched {
        assert_eq!(bench.of(number).await, before, "{number} was changed");
    }
    assert!(!bench.redis().list(&key("queue", 8)).await.contains(&dead.to_string()));
    assert!(bench.redis().list(&key("queue", 2)).await.contains(&behind.to_string()));
    assert_eq!(a.heard().await, Vec::<Event>::new());
    assert_eq!(b.heard().await, Vec::<Event>::new());
}

/// Holds of three locks and a waiting member of each; the second hold is downgraded if the layout
/// supports reads.
async fn held_and_waited_for(
    bench: &mut Bench,
    node: &Node,
) -> (Vec<(LockName, Member)>, Vec<(LockName, Vec<Member>)>) {
    let (mut holds, mut lines) = (Vec::new(), Vec::new());
    for number in 0..3 {
        holds.push((lock(number), take(node, &lock(number)).await));
        lines.push((lock(number), vec![queue(node, &lock(number)).await]));
        bench.run_down(number, RUN_DOWN_MS + if bench.side.has_peers() { 0 } else { 60_000 }).await;
    }
    if !bench.side.has_peers() {
        node.run_on(&lock(1), reduce(&holds[1].1)).await.expect("answered");
    }
    (holds, lines)
}

async fn a_server_that_refuses_writes_refuses_all_of_them_and_nothing_is_changed(mut bench: Bench) {
    let a = bench.node().await;
    let (holds, lines) = held_and_waited_for(&mut bench, &a).await;
    bench.redis().configure("min-replicas-to-write", "1").await;
    let before = bench.everything().await;
    let errors = [
        run_all(&a, &holds, renewal).await.expect_err("no replica"),
        run_all(&a, &lines, touches).await.expect_err("no replica"),
    ];
    for error in errors {
        assert_eq!(error.kind, LockErrorKind::ReadOnly);
    }
    assert_eq!(bench.everything().await, before);
}

async fn with_memory_full_holds_are_renewed_and_waiters_of_several_locks_keep_their_positions(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let (holds, lines) = held_and_waited_for(&mut bench, &a).await;
    bench.redis().configure("maxmemory", "1").await;
    let each = run_all(&a, &holds, renewal).await.expect("answered");
    assert!(each.iter().all(|answer| renewed(answer).outcome == [Renewed::Held]), "{each:?}");
    let first = bench.key_of(0);
    assert!(bench.redis().pttl(&first).await > RUN_DOWN_MS);
    let each = run_all(&a, &lines, touches).await.expect("answered");
    assert_eq!(each.len(), 3);
    for answer in &each {
        assert_eq!(touched(answer).outcome.members, [Presence::Waiting]);
    }
}

async fn several_parts_of_one_lock_are_renewed_in_one_command_each_by_itself(mut bench: Bench) {
    let a = bench.node().await;
    let two = Demand::permits(2, 10).expect("two of ten");
    let first = a.hold_for(two, 30_000).await;
    let unknown = a.member_for(two, 30_000);
    let third = a.hold_for(two, 30_000).await;
    let answer = a.run(Command::Renew { members: vec![first, unknown, third] }).await;
    let expected = [Renewed::Held, Renewed::NotHeld, Renewed::Held];
    assert_eq!(renewed(&answer).outcome, expected);
    assert_eq!(bench.parts().await.len(), 2);
}
