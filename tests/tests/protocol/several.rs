//! One script for several locks: each is a step of its own, with an answer of its own, whatever
//! stands at the others.

use lock_tests::{door_key, holds_key};
use lockcore::LockErrorKind;
use lockcore::internals::{
    Answer, Answers, Command, Demand, Event, LockName, Member, Mode, Presence, Renewed, Reply,
    StoreError, Touched, run,
};
use redis::cmd;

use crate::asking::{acquire, reduce};
use crate::bench::Bench;
use crate::node::Node;

/// Short enough to tell an extended lease, long enough not to end.
const RUN_DOWN_MS: i64 = 20_000;

fn lock(number: usize) -> LockName {
    LockName::from(&*format!("lock {number}"))
}

fn door(number: usize) -> String {
    door_key(lock(number).as_str())
}

/// Takes the lock, or waits for it.
async fn ask(node: &Node, lock: &LockName) -> Member {
    let member = node.member(30_000);
    let answer = run(&*node.store, lock, acquire(&member, Mode::Wait, 1_000)).await;
    assert!(matches!(answer, Ok(Answer::Acquired(_))), "{answer:?}");
    member
}

fn renewal(member: Member) -> Command {
    Command::Renew { members: vec![member] }
}

/// Runs all in one go.
async fn run_all<T: Clone>(
    node: &Node,
    asked: &[(LockName, T)],
    command: impl Fn(T) -> Command,
) -> Result<Answers, StoreError> {
    let commands: Vec<_> = asked.iter().map(|(_, of)| command(of.clone())).collect();
    let commands: Vec<_> = asked.iter().map(|(lock, _)| lock).zip(&commands).collect();
    node.store.run_together(&commands).await
}

impl Bench {
    async fn run_down(&mut self, number: usize, ms: i64) {
        self.redis.ask(cmd("PEXPIRE").arg(door(number)).arg(ms)).await
    }

    async fn set_door(&mut self, number: usize, text: &str) {
        self.redis.ask(cmd("SET").arg(door(number)).arg(text).arg("PX").arg(90_000)).await
    }

    /// All that is kept of one lock.
    async fn of(&mut self, number: usize) -> Vec<(String, Vec<u8>, i64)> {
        let mut everything = self.everything().await;
        everything.retain(|(key, ..)| key.starts_with(&door(number)));
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
    for number in 0..12 {
        let node = if number == 3 { &b } else { &a };
        holds.push((lock(number), ask(node, &lock(number)).await));
        bench.run_down(number, RUN_DOWN_MS).await;
    }
    // With a waiter; with a tombstone; of another node; gone; with a lease that has ended.
    ask(&b, &lock(1)).await;
    let tombstone = a.member(30_000);
    let gone = crate::asking::leave(&[(&tombstone, true)]);
    run(&*a.store, &lock(2), gone).await.expect("answered");
    let other = bench.redis.get(&door(3)).await;
    holds[3].1 = a.member(30_000);
    let () = bench.redis.ask(cmd("DEL").arg(door(4))).await;
    ask(&b, &lock(5)).await;
    bench.run_down(5, 60_000).await;
    // Became a read; became one and has ended; without an end.
    for number in [6, 7] {
        run(&*a.store, &lock(number), reduce(&holds[number].1)).await.expect("answered");
    }
    let past = bench.now_ms().await - 1;
    let key = holds_key(lock(7).as_str());
    let () = bench.redis.ask(cmd("ZADD").arg(key).arg(past).arg(holds[7].1.as_str())).await;
    let () = bench.redis.ask(cmd("PERSIST").arg(door(8))).await;
    // Another program's hash and text; a member of another protocol.
    let () = bench.redis.ask(cmd("DEL").arg(door(9))).await;
    let () = bench.redis.ask(cmd("HSET").arg(door(9)).arg("name").arg("Ada")).await;
    bench.set_door(10, "a cache entry").await;
    bench.set_door(11, "~1AAAAAAAAAAAAAAAAAAAAAA:1:30000:x").await;
    let mut untouched = Vec::new();
    for number in [3, 4, 5, 7, 9, 10, 11] {
        untouched.push((number, bench.of(number).await));
    }
    let each = run_all(&a, &holds, renewal).await.expect("answered");

    let now_us = bench.redis.time_us().await;
    for number in [0, 1, 2, 6, 8] {
        let reply = renewed(&each[number]);
        assert_eq!(reply.outcome, [Renewed::Held], "{number}");
        assert!(reply.now_us.is_some_and(|told| told <= now_us && told + 20_000_000 > now_us));
        assert!(reply.grants.is_empty());
    }
    for (number, least) in [(0, 29_000), (1, 89_000), (2, 89_000), (6, 89_000), (8, 29_000)] {
        assert!(bench.redis.pttl(&door(number)).await > least, "{number}");
    }
    for number in [3, 4, 5, 7] {
        assert_eq!(renewed(&each[number]).outcome, [Renewed::NotHeld], "{number}");
    }
    for answer in &each[9..12] {
        assert_eq!(answer.as_ref().expect_err("strange").kind, LockErrorKind::WrongType);
    }
    for (number, before) in untouched {
        assert_eq!(bench.of(number).await, before, "{number} was changed");
    }
    assert_eq!(bench.redis.get(&door(3)).await, other);
}

#[tokio::test]
async fn of_several_queues_each_is_touched_or_refused_by_itself() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let mut lines = Vec::new();
    for number in 0..6 {
        ask(&b, &lock(number)).await;
        lines.push((lock(number), vec![ask(&a, &lock(number)).await]));
    }
    // Behind others; a place that is lost; free; another program's queue and door.
    lines[1].1.insert(0, ask(&a, &lock(1)).await);
    let key = |number, which: &str| format!("{}:{which}", door(number));
    let () = bench.redis.ask(cmd("DEL").arg(key(2, "queue"))).await;
    let () = bench.redis.ask(cmd("DEL").arg(door(3))).await;
    let () = bench.redis.ask(cmd("DEL").arg(key(4, "queue"))).await;
    let () = bench.redis.ask(cmd("RPUSH").arg(key(4, "queue")).arg("a task")).await;
    let () = bench.redis.ask(cmd("DEL").arg(door(5))).await;
    let () = bench.redis.ask(cmd("HSET").arg(door(5)).arg("name").arg("Ada")).await;
    let before = [bench.of(4).await, bench.of(5).await];
    for number in [0, 1] {
        let patience = key(number, "patience:") + a.id.as_str();
        let () = bench.redis.ask(cmd("PEXPIRE").arg(patience).arg(9_000)).await;
    }
    let each = run_all(&a, &lines, |members| Command::Touch { members }).await;
    let each = each.expect("answered");

    for number in [0, 1] {
        let reply = touched(&each[number]);
        assert!(reply.outcome.members.iter().all(|one| *one == Presence::Waiting), "{number}");
        assert_eq!((reply.grants.len(), reply.outcome.listeners), (0, 1));
        let patience = key(number, "patience:") + a.id.as_str();
        assert!(bench.redis.pttl(&patience).await > 14_000, "{number}");
    }
    assert_eq!(touched(&each[2]).outcome.members, [Presence::Gone]);
    // Handed over by the touch itself.
    assert_eq!(touched(&each[3]).grants[0].member, lines[3].1[0]);
    for (number, named) in [(4, "list"), (5, "hash")] {
        let error = each[number].as_ref().expect_err("strange");
        assert_eq!(error.kind, LockErrorKind::WrongType, "{number}");
        assert!(error.detail.contains(named), "{error:?}");
    }
    assert_eq!([bench.of(4).await, bench.of(5).await], before);
    assert_eq!(a.heard(&mut bench.redis).await, Vec::<Event>::new());
    assert_eq!(b.heard(&mut bench.redis).await, Vec::<Event>::new());
}

#[tokio::test]
async fn a_server_that_refuses_writes_refuses_all_of_them_and_nothing_is_changed() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let mut holds = Vec::new();
    for number in 0..3 {
        holds.push((lock(number), ask(&a, &lock(number)).await));
        bench.run_down(number, RUN_DOWN_MS).await;
    }
    run(&*a.store, &lock(1), reduce(&holds[1].1)).await.expect("answered");
    bench.redis.configure("min-replicas-to-write", "1").await;
    let before = bench.everything().await;
    let error = run_all(&a, &holds, renewal).await.expect_err("no replica");
    assert_eq!((error.kind, error.may_have_run), (LockErrorKind::ReadOnly, false));
    assert_eq!(bench.everything().await, before);
}

#[tokio::test]
async fn with_memory_full_holds_of_several_locks_are_renewed() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let mut holds = Vec::new();
    for number in 0..3 {
        holds.push((lock(number), ask(&a, &lock(number)).await));
        bench.run_down(number, RUN_DOWN_MS).await;
    }
    run(&*a.store, &lock(2), reduce(&holds[2].1)).await.expect("answered");
    bench.redis.configure("maxmemory", "1").await;
    let each = run_all(&a, &holds, renewal).await.expect("answered");
    assert!(each.iter().all(|answer| renewed(answer).outcome == [Renewed::Held]), "{each:?}");
    assert!(bench.redis.pttl(&door(0)).await > RUN_DOWN_MS);
}

#[tokio::test]
async fn several_parts_of_one_lock_are_renewed_in_one_command_each_by_itself() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let two = Demand::permits(2, 10).expect("two of ten");
    let members = [a.hold_for(two, 30_000).await, a.member_for(two, 30_000)];
    let third = a.hold_for(two, 30_000).await;
    let members = vec![members[0].clone(), members[1].clone(), third];
    let answer = a.run(Command::Renew { members }).await;
    let expected = [Renewed::Held, Renewed::NotHeld, Renewed::Held];
    assert_eq!(renewed(&answer).outcome, expected);
    assert_eq!(bench.parts().await.len(), 2);
}

// The node's connection is not out of step, only one of its locks is another program's.
#[tokio::test]
async fn a_renewal_at_a_door_of_another_program_costs_no_connection() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let hold = ask(&a, &lock(0)).await;
    bench.set_door(0, "a cache entry").await;
    let before = connections(&mut bench).await;
    for _ in 0..5 {
        let renewal = renewal(hold.clone());
        let error = run(&*a.store, &lock(0), renewal).await.expect_err("strange");
        assert_eq!((error.kind, error.may_have_run), (LockErrorKind::WrongType, false));
        assert!(a.store.commands().borrow().is_up());
    }
    ask(&a, &lock(1)).await;
    assert_eq!(connections(&mut bench).await, before);
}

/// How many the server has accepted.
pub(crate) async fn connections(bench: &mut Bench) -> String {
    let info = bench.redis.info("stats").await;
    let line = info.lines().find(|line| line.starts_with("total_connections_received:"));
    line.expect("it is counted").to_owned()
}
