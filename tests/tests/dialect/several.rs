//! One script for several locks: each is a step of its own, with an answer of its own, whatever
//! stands at the others.

use lockcore::LockErrorKind;
use lockcore::internals::{
    Acquired, Answer, Answers, Command, Event, LockName, Member, Mode, Presence, Renewed, Reply,
    StoreError, Touched, run,
};
use redis::cmd;

use crate::asking::{acquire, grant, left_ms, now_us};
use crate::bench::Bench;
use crate::node::Node;

/// Short enough to tell an extended lease, long enough not to end.
const RUN_DOWN_MS: i64 = 20_000;

fn lock(number: usize) -> LockName {
    LockName::from(&*format!("lock {number}"))
}

async fn enqueue(node: &Node, lock: &LockName) -> (Member, Acquired) {
    let member = node.member(30_000);
    let answer = run(&*node.store, lock, acquire(&member, Mode::Wait, 1_000)).await;
    let Ok(Answer::Acquired(reply)) = answer else { panic!("{answer:?}") };
    (member, reply.outcome)
}

async fn take(node: &Node, lock: &LockName) -> Member {
    let (member, outcome) = enqueue(node, lock).await;
    assert_eq!(outcome, Acquired::Granted);
    member
}

async fn queue(node: &Node, lock: &LockName) -> Member {
    let (member, outcome) = enqueue(node, lock).await;
    assert!(matches!(outcome, Acquired::Queued { .. }), "{outcome:?}");
    member
}

fn renewal(member: Member) -> Command {
    Command::Renew { members: vec![member] }
}

/// Runs all in one script.
async fn run_all<T>(
    node: &Node,
    asked: &[(LockName, T)],
    command: impl Fn(T) -> Command,
) -> Result<Answers, StoreError>
where
    T: Clone,
{
    let commands: Vec<_> = asked.iter().map(|(_, of)| command(of.clone())).collect();
    let commands: Vec<_> = asked.iter().map(|(lock, _)| lock).zip(&commands).collect();
    node.store.run_together(&commands).await
}

impl Bench {
    async fn run_down(&mut self, lock: &LockName) {
        let mut expire = cmd("PEXPIRE");
        expire.arg(lock.as_str()).arg(RUN_DOWN_MS);
        let () = self.redis.ask(&expire).await;
    }

    /// All that is kept of one lock.
    async fn of(&mut self, lock: &LockName) -> Vec<(String, Vec<u8>, i64)> {
        let mut everything = self.everything().await;
        let (name, tag) = (lock.as_str(), format!("{{{}}}", lock.as_str()));
        everything.retain(|(key, ..)| key == name || key.contains(&tag));
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

#[tokio::test]
async fn of_several_holds_each_is_renewed_or_refused_by_itself() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let mut holds = Vec::new();
    for number in 0..9 {
        let node = if number == 2 { &b } else { &a };
        holds.push((lock(number), take(node, &lock(number)).await));
        bench.run_down(&lock(number)).await;
    }
    let foreign = holds[2].1.clone();
    // Of another node; gone; another program's hash, field, token and list; a token that is
    // gone.
    holds[2].1 = a.member(30_000);
    let token = |number| format!("redisson_lock_token:{{lock {number}}}");
    let () = bench.redis.ask(cmd("DEL").arg("lock 3")).await;
    let () = bench.redis.ask(cmd("DEL").arg("lock 4")).await;
    let () = bench.redis.ask(cmd("HSET").arg("lock 4").arg("name").arg("Ada")).await;
    let () = bench.redis.ask(cmd("HSET").arg("lock 5").arg("name").arg("Ada")).await;
    let () = bench.redis.ask(cmd("SET").arg(token(6)).arg("no number")).await;
    let () = bench.redis.ask(cmd("DEL").arg(token(7))).await;
    let mut strange = Vec::new();
    for number in 2..7 {
        strange.push(bench.of(&lock(number)).await);
    }
    let each = run_all(&a, &holds, renewal).await.expect("answered");

    for number in [0, 1, 7, 8] {
        let reply = renewed(&each[number]);
        assert_eq!(reply.outcome, [Renewed::Held], "{number}");
        assert_eq!((left_ms(reply), grant(reply).left_ms), (30_000, 30_000));
        assert_eq!(grant(reply).member, holds[number].1);
        assert!(bench.redis.pttl(&format!("lock {number}")).await > RUN_DOWN_MS, "{number}");
    }
    for number in [2, 3] {
        assert_eq!(renewed(&each[number]).outcome, [Renewed::NotHeld], "{number}");
    }
    for (number, named) in [(4, "hash"), (5, "hash"), (6, "string")] {
        let error = each[number].as_ref().expect_err("strange");
        assert_eq!(error.kind, LockErrorKind::WrongType, "{number}");
        assert!(error.detail.contains(named), "{error:?}");
    }
    for (number, before) in (2..7).zip(strange) {
        assert_eq!(bench.of(&lock(number)).await, before, "{number} was changed");
    }
    assert_eq!(bench.redis.hash("lock 2").await, [(foreign.to_string(), "1".to_owned())]);
}

#[tokio::test]
async fn of_several_queues_each_is_touched_or_refused_by_itself() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let mut lines = Vec::new();
    for number in 0..9 {
        // The holder of 1 is of the node that asks.
        take(if number == 1 { &a } else { &b }, &lock(number)).await;
        lines.push((lock(number), vec![queue(&a, &lock(number)).await]));
    }
    // Alone and behind others; a place that is lost; free; another program's list, hash and
    // deadlines; one that died before.
    lines[2].1.insert(0, queue(&a, &lock(2)).await);
    let behind = queue(&b, &lock(2)).await;
    let key = |which, number| format!("redisson_lock_{which}:{{lock {number}}}");
    let alive = "alive";
    let lost = lines[3].1[0].clone();
    for which in ["timeout", alive] {
        let () = bench.redis.ask(cmd("ZREM").arg(key(which, 3)).arg(lost.as_str())).await;
    }
    let () = bench.redis.ask(cmd("DEL").arg("lock 4")).await;
    let () = bench.redis.ask(cmd("DEL").arg(key("queue", 5))).await;
    let () = bench.redis.ask(cmd("RPUSH").arg(key("queue", 5)).arg("a task")).await;
    let () = bench.redis.ask(cmd("HSET").arg("lock 6").arg("name").arg("Ada")).await;
    let () = bench.redis.ask(cmd("SET").arg(key("timeout", 7)).arg("text")).await;
    let dead = b.member(30_000);
    let () = bench.redis.ask(cmd("RPUSH").arg(key("queue", 8)).arg(dead.as_str())).await;
    for which in ["timeout", alive] {
        let () = bench.redis.ask(cmd("ZADD").arg(key(which, 8)).arg(5).arg(dead.as_str())).await;
    }
    let deadlines = "alive";
    for number in [0, 1, 2] {
        for member in &lines[number].1 {
            let mut lower = cmd("ZADD");
            lower.arg(key(deadlines, number)).arg("XX").arg(bench.now_ms().await + 9_000);
            let () = bench.redis.ask(lower.arg(member.as_str())).await;
        }
    }
    let mut strange = Vec::new();
    for number in 5..8 {
        strange.push(bench.of(&lock(number)).await);
    }
    a.heard(&mut bench.redis).await;
    let each = run_all(&a, &lines, |members| Command::Touch { members }).await;
    let each = each.expect("answered");

    for number in [0, 1, 2, 8] {
        let reply = touched(&each[number]);
        assert!(reply.outcome.members.iter().all(|one| *one == Presence::Waiting), "{number}");
        assert!((1..=30_000).contains(&left_ms(reply)), "{reply:?}");
        let grants = usize::from(number == 1);
        assert_eq!((reply.grants.len(), reply.outcome.listeners), (grants, 1));
        for member in &lines[number].1 {
            let mut score = cmd("ZSCORE");
            score.arg(key(deadlines, number)).arg(member.as_str());
            let deadline: u64 = bench.redis.ask(&score).await;
            assert_eq!(deadline, now_us(reply) / 1_000 + 15_000, "{number}");
        }
    }
    assert_eq!(touched(&each[3]).outcome.members, [Presence::Gone]);
    // Handed over by the touch itself.
    assert_eq!(grant(touched(&each[4])).member, lines[4].1[0]);
    for (number, named) in [(5, "list"), (6, "hash"), (7, "string")] {
        let error = each[number].as_ref().expect_err("strange");
        assert_eq!(error.kind, LockErrorKind::WrongType, "{number}");
        assert!(error.detail.contains(named), "{error:?}");
    }
    for (number, before) in (5..8).zip(strange) {
        assert_eq!(bench.of(&lock(number)).await, before, "{number} was changed");
    }
    assert!(!bench.redis.list(&key("queue", 8)).await.contains(&dead.to_string()));
    assert!(bench.redis.list(&key("queue", 2)).await.contains(&behind.to_string()));
    assert_eq!(a.heard(&mut bench.redis).await, Vec::<Event>::new());
    assert_eq!(b.heard(&mut bench.redis).await, Vec::<Event>::new());
}

#[tokio::test]
async fn a_server_that_refuses_writes_refuses_all_of_them_and_nothing_is_changed() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let (mut holds, mut lines) = (Vec::new(), Vec::new());
    for number in 0..3 {
        holds.push((lock(number), take(&a, &lock(number)).await));
        lines.push((lock(number), vec![queue(&a, &lock(number)).await]));
        bench.run_down(&lock(number)).await;
    }
    bench.redis.configure("min-replicas-to-write", "1").await;
    let before = bench.everything().await;
    let errors = [
        run_all(&a, &holds, renewal).await.expect_err("no replica"),
        run_all(&a, &lines, |members| Command::Touch { members }).await.expect_err("no replica"),
    ];
    for error in errors {
        assert_eq!((error.kind, error.may_have_run), (LockErrorKind::ReadOnly, false));
    }
    assert_eq!(bench.everything().await, before);
}

#[tokio::test]
async fn with_memory_full_waiters_of_several_locks_keep_their_places() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let mut lines = Vec::new();
    for number in 0..2 {
        take(&a, &lock(number)).await;
        lines.push((lock(number), vec![queue(&a, &lock(number)).await]));
    }
    bench.redis.configure("maxmemory", "1").await;
    let each = run_all(&a, &lines, |members| Command::Touch { members }).await.expect("answered");
    assert_eq!(each.len(), 2);
    for answer in &each {
        assert_eq!(touched(answer).outcome.members, [Presence::Waiting]);
    }
}
