//! The instructions that a whole server runs for each command of the protocol, for
//! `scripts/instructions`: `REDIS_SERVER` is a program that starts the server under callgrind, and
//! `CALLGRIND_OUT` the folder of its counts.
//!
//! Every command runs alone, on many locks one after the other. The server itself begins and ends a
//! count, as it runs [`BEGIN`] and [`END`]: nothing waits for a debugger, so a run is short, and no
//! lease or patience gets to its end in it.
#![allow(missing_docs)]
#![allow(clippy::print_stdout, reason = "the figures")]

use std::path::{Path, PathBuf};

use lock_tests::protocol::{self, PREFIX};
use lock_tests::{Raw, RedisOptions, RedisServer};
use proto::layout::QUEUE;
use proto::wire::{TokenFloors, Wire, keys};
use proto::{
    Answer, Answers, Command, Demand, Label, Leaving, LockName, Member, Mode, NodeId, Topology,
};
use redis::aio::PubSub;
use redis::cmd;

/// The number of locks on which each command runs in a round, and the number of rounds. The server
/// collects some garbage of Lua once in 50 scripts (`LUA_GC_CYCLE_PERIOD` of Redis 7.0): so every
/// count has one such step.
const LOCKS: usize = 50;
const ROUNDS: usize = 12;
const LEASE_MS: u64 = 30_000;
/// The number of keys of other programs.
const OTHERS: u32 = 2_500;
/// The command that sets the count to zero, by callgrind's `--zero-before=echoCommand`.
const BEGIN: &str = "ECHO";
/// The command that has the count written, by `--dump-before=lastsaveCommand`.
const END: &str = "LASTSAVE";
/// The limit of each queue.
const QUEUE_LIMIT: u32 = 1_000;

/// A node, as far as a server knows of it.
struct Node {
    wire: Wire,
    floors: TokenFloors,
    /// The subscription to its channel, by which it counts as connected.
    _ear: PubSub,
    next_number: u64,
}

struct Bench {
    server: RedisServer,
    redis: Raw,
    counts: PathBuf,
    locks: u64,
    /// Whether commands are counted.
    is_counting: bool,
    /// The instructions of a count in which no command runs.
    of_none: u64,
    /// The instructions of each command in each round, in the order of the first.
    counted: Vec<(String, Vec<u64>)>,
}

impl Bench {
    async fn start(counts: PathBuf) -> Self {
        // Its regular work is no part of a command, nor is a line in the log of slow commands: on a
        // busy machine all of them are slow.
        let options = [("hz", "1"), ("dynamic-hz", "no"), ("slowlog-log-slower-than", "-1")];
        let with = |server: RedisOptions, (name, value)| server.arg(name, value);
        let server = options.into_iter().fold(RedisServer::options(), with).start();
        let mut redis = Raw::connect(&server.url()).await;
        // So many that the keys of the locks make no table of the server grow.
        for other in 0..OTHERS {
            redis.ask::<()>(cmd("PSETEX").arg(other).arg(1_000_000_000).arg(1)).await;
        }
        let (locks, is_counting, of_none, counted) = (0, false, 0, Vec::new());
        let mut bench = Self { server, redis, counts, locks, is_counting, of_none, counted };
        bench.begin().await;
        bench.of_none = bench.end().await;
        bench
    }

    async fn node(&mut self, id: u128) -> Node {
        let node = NodeId::from(id);
        let client = redis::Client::open(self.server.url()).expect("a URL");
        let mut ear = client.get_async_pubsub().await.expect("a connection");
        ear.subscribe(keys::grants_channel(PREFIX, node.as_str())).await.expect("subscribed");
        let now_us = self.redis.time_us().await;
        let floors = TokenFloors { floor_us: now_us, latest_us: now_us, ..TokenFloors::default() };
        let (prefix, of_error) = (PREFIX.into(), protocol::error_of);
        let wire = Wire { node, prefix, layout: QUEUE, topology: Topology::Single, of_error };
        Node { wire, floors, _ear: ear, next_number: 1 }
    }

    /// Names of new locks.
    fn names(&mut self) -> Vec<LockName> {
        let first = self.locks;
        self.locks += LOCKS as u64;
        (first..self.locks)
            .map(|lock| LockName::from(format!("shop:order:{lock:05}").as_str()))
            .collect()
    }

    async fn run(&mut self, node: &Node, lock: &LockName, command: Command) -> Answer {
        let commands = [(lock, &command)];
        let answers = protocol::run(&mut self.redis, &node.wire, &commands, node.floors).await;
        let mut answers: Answers = answers.expect("an answer of the script");
        answers.pop().expect("an answer for the command").expect("an answer of the lock")
    }

    /// Acquires each lock for a new member of the node.
    async fn acquires(&mut self, node: &mut Node, locks: &[LockName], of: Demand) -> Vec<Member> {
        let mut members = Vec::new();
        for lock in locks {
            let member = node.member(of);
            self.run(node, lock, acquire(&member, Mode::Wait)).await;
            members.push(member);
        }
        members
    }

    /// Runs a command on each lock, and counts its instructions.
    async fn count(&mut self, what: &str, node: &Node, locks: &[LockName], commands: Vec<Command>) {
        let run = async |bench: &mut Self| {
            for (lock, command) in locks.iter().zip(commands) {
                bench.run(node, lock, command).await;
            }
        };
        self.count_all(what, run).await;
    }

    /// The same of the transactions in the place of the script, where a lock is free.
    async fn count_free(
        &mut self,
        what: &str,
        node: &Node,
        locks: &[LockName],
        commands: Vec<Command>,
    ) {
        let run = async |bench: &mut Self| {
            for (lock, command) in locks.iter().zip(commands) {
                let free = node.wire.free_acquire((lock, &command)).expect("a lock");
                let mut transaction = redis::pipe();
                transaction.atomic().cmd("SET").arg(free.lock_key).arg(free.member.as_str());
                transaction.arg("NX").arg("PX").arg(free.member.lease_ms());
                transaction.cmd("INCR").arg(free.counter).cmd("GET").arg(free.lock_key);
                bench.redis.run(&transaction).await;
            }
        };
        self.count_all(what, run).await;
    }

    /// Counts the instructions of some work on each lock.
    async fn count_all(&mut self, what: &str, work: impl AsyncFnOnce(&mut Self)) {
        if self.is_counting {
            self.begin().await;
        }
        work(self).await;
        if !self.is_counting {
            return;
        }
        let mean = self.end().await.saturating_sub(self.of_none) / LOCKS as u64;
        match self.counted.iter_mut().find(|(counted, _)| counted == what) {
            Some((_, means)) => means.push(mean),
            None => self.counted.push((what.to_owned(), vec![mean])),
        }
    }

    /// Deletes the keys that are left of all locks.
    async fn forget_locks(&mut self) {
        let keys: Vec<String> = self.redis.ask(cmd("KEYS").arg("lock:{*")).await;
        self.redis.ask::<()>(cmd("DEL").arg(keys)).await;
    }

    /// Begins a count, without garbage: else each command would pay for the garbage of those before
    /// it, and a script that is a few bytes longer would move these costs to other commands.
    async fn begin(&mut self) {
        self.redis.ask::<()>(cmd("EVAL").arg("collectgarbage()").arg(0)).await;
        self.redis.ask::<()>(cmd(BEGIN).arg("")).await;
    }

    /// Ends the count: the total of the file that is new.
    async fn end(&mut self) -> u64 {
        let known = files(&self.counts);
        self.redis.ask::<u64>(&cmd(END)).await;
        // Written before the answer.
        let new = files(&self.counts).into_iter().find(|file| !known.contains(file));
        let text =
            std::fs::read_to_string(new.expect("a count")).expect("callgrind has written it");
        let total = text.lines().find_map(|line| {
            line.strip_prefix("totals: ").or_else(|| line.strip_prefix("summary: "))
        });
        total.expect("a total").trim().parse().expect("a number of instructions")
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder for counts");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

impl Node {
    fn member(&mut self, demand: Demand) -> Member {
        let number = self.next_number << 20;
        self.next_number += 1;
        Member::new(&self.wire.node, number, LEASE_MS, demand, &Label::new("host-1:svc"))
    }
}

fn acquire(member: &Member, mode: Mode) -> Command {
    Command::Acquire { members: vec![member.clone()], mode, queue_limit: QUEUE_LIMIT }
}

fn try_now(member: &Member) -> Command {
    acquire(member, Mode::Try)
}

fn each(members: &[Member], command: impl Fn(&Member) -> Command) -> Vec<Command> {
    members.iter().map(command).collect()
}

fn release(member: &Member) -> Command {
    Command::Release { member: member.clone() }
}

fn renew(member: &Member) -> Command {
    Command::Renew { members: vec![member.clone()] }
}

fn confirm(member: &Member) -> Command {
    Command::Confirm { member: member.clone() }
}

fn touch(member: &Member) -> Command {
    Command::Touch { members: vec![member.clone()] }
}

fn leave(member: &Member) -> Command {
    Command::Leave { leaving: vec![Leaving::new(member.clone(), false)] }
}

fn ask(members: &[Member]) -> Vec<Command> {
    each(members, |member| acquire(member, Mode::Wait))
}

/// New members of the node, one for each lock.
fn members(node: &mut Node, demand: Demand) -> Vec<Member> {
    (0..LOCKS).map(|_| node.member(demand)).collect()
}

async fn of_locks(bench: &mut Bench, here: &mut Node, there: &mut Node) {
    let locks = bench.names();
    let held = members(here, Demand::EXCLUSIVE);
    bench
        .count_free("lock: acquire of a free one, without a script", here, &locks, ask(&held))
        .await;
    bench.forget_locks().await;
    bench.count("lock: acquire", here, &locks, ask(&held)).await;
    bench.count("lock: renew", here, &locks, each(&held, renew)).await;
    bench.count("lock: confirm", here, &locks, each(&held, confirm)).await;
    bench.count("lock: release", here, &locks, each(&held, release)).await;
    let locks = bench.names();
    let held = bench.acquires(here, &locks, Demand::EXCLUSIVE).await;
    let first = members(here, Demand::EXCLUSIVE);
    bench.count("lock: enqueue, first", here, &locks, ask(&first)).await;
    let second = members(there, Demand::EXCLUSIVE);
    bench.count("lock: enqueue, second", there, &locks, ask(&second)).await;
    bench.count("lock: touch", there, &locks, each(&second, touch)).await;
    bench.count("lock: renew with waiters", here, &locks, each(&held, renew)).await;
    let third = members(there, Demand::EXCLUSIVE);
    bench.count("lock: enqueue, behind its own", there, &locks, ask(&third)).await;
    bench.count("lock: leave", there, &locks, each(&third, leave)).await;
    let tried = members(there, Demand::EXCLUSIVE);
    bench.count("lock: try where it is held", there, &locks, each(&tried, try_now)).await;
    bench.count("lock: hand-off within a process", here, &locks, each(&held, release)).await;
    bench.count("lock: hand-off to another", here, &locks, each(&first, release)).await;
    bench.count("lock: release with a mark", there, &locks, each(&second, release)).await;
}

async fn of_reads(bench: &mut Bench, here: &mut Node, there: &mut Node) {
    let locks = bench.names();
    let first = members(here, Demand::READ);
    bench.count("read: acquire, first", here, &locks, ask(&first)).await;
    let second = members(there, Demand::READ);
    bench.count("read: acquire, second", there, &locks, ask(&second)).await;
    bench.count("read: renew", here, &locks, each(&first, renew)).await;
    bench.count("read: release, one of two", here, &locks, each(&first, release)).await;
    bench.count("read: release, the last", there, &locks, each(&second, release)).await;
    let locks = bench.names();
    let held = bench.acquires(here, &locks, Demand::EXCLUSIVE).await;
    let first = members(here, Demand::READ);
    bench.count("read: enqueue behind a lock, first", here, &locks, ask(&first)).await;
    let second = members(there, Demand::READ);
    bench.count("read: enqueue behind a lock, second", there, &locks, ask(&second)).await;
    bench.count("read: hand-off of a lock to two", here, &locks, each(&held, release)).await;
}

/// Acquires of several members in one command: behind a lock, and where all are granted.
async fn of_several(bench: &mut Bench, here: &mut Node, there: &mut Node) {
    for (what, demand) in [("lock", Demand::EXCLUSIVE), ("read", Demand::READ)] {
        for count in [2, 8] {
            let mut together = || {
                let members = (0..count).map(|_| here.member(demand)).collect();
                Command::Acquire { members, mode: Mode::Wait, queue_limit: QUEUE_LIMIT }
            };
            let commands = (0..LOCKS).map(|_| together()).collect();
            let locks = bench.names();
            if demand == Demand::EXCLUSIVE {
                bench.acquires(there, &locks, demand).await;
            }
            bench.count(&format!("{what}: {count} in one acquire"), here, &locks, commands).await;
        }
    }
}

/// Members that are served in batches of eight: asked for, handed over to, renewed and released.
async fn of_batches(bench: &mut Bench, here: &mut Node, there: &mut Node) {
    let locks = bench.names();
    let held = bench.acquires(there, &locks, Demand::EXCLUSIVE).await;
    let mut eight = || {
        let member = |_| {
            let number = here.member(Demand::EXCLUSIVE).number();
            Member::in_batch(&here.wire.node, number, LEASE_MS, 8, &Label::new("host-1:svc"))
        };
        (0..8).map(member).collect::<Vec<_>>()
    };
    let [first, second] = [(); 2].map(|()| (0..LOCKS).map(|_| eight()).collect::<Vec<_>>());
    let all = |batches: &[Vec<Member>]| {
        let all = |members: &Vec<Member>| {
            let members = members.clone();
            Command::Acquire { members, mode: Mode::Wait, queue_limit: QUEUE_LIMIT }
        };
        batches.iter().map(all).collect()
    };
    let names: Vec<_> = first.iter().map(|members| members[0].clone()).collect();
    bench.count("batch: 8 in one acquire", here, &locks, all(&first)).await;
    bench.count("batch: hand-off of 8 to another", there, &locks, each(&held, release)).await;
    bench.count("batch: 8 in one acquire behind 8", here, &locks, all(&second)).await;
    bench.count("batch: renew", here, &locks, each(&names, renew)).await;
    bench.count("batch: hand-off of 8 within a process", here, &locks, each(&names, release)).await;
    let names: Vec<_> = second.iter().map(|members| members[0].clone()).collect();
    bench.count("batch: release with a mark", here, &locks, each(&names, release)).await;
}

/// Members that may be served in batches of eight, but wait in turn with another node's.
async fn of_single_members(bench: &mut Bench, here: &mut Node, there: &mut Node) {
    let locks = bench.names();
    let held = bench.acquires(here, &locks, Demand::EXCLUSIVE).await;
    let single = |node: &mut Node| {
        let member = |_| {
            let number = node.member(Demand::EXCLUSIVE).number();
            Member::in_batch(&node.wire.node, number, LEASE_MS, 8, &Label::new("host-1:svc"))
        };
        (0..LOCKS).map(member).collect::<Vec<_>>()
    };
    let (first, second) = (single(there), single(here));
    bench.count("batch: enqueue of 1, first", there, &locks, ask(&first)).await;
    bench.count("batch: enqueue of 1, second", here, &locks, ask(&second)).await;
    bench.count("batch: hand-off of 1 to another", here, &locks, each(&held, release)).await;
    bench.count("batch: hand-off of the last", there, &locks, each(&first, release)).await;
}

async fn of_permits(bench: &mut Bench, here: &mut Node, there: &mut Node) {
    let all = Demand::permits(2, 2).expect("at most the limit");
    let one = Demand::permits(1, 2).expect("at most the limit");
    let locks = bench.names();
    let held = members(here, all);
    bench.count("permit: acquire", here, &locks, ask(&held)).await;
    bench.count("permit: renew", here, &locks, each(&held, renew)).await;
    bench.count("permit: confirm", here, &locks, each(&held, confirm)).await;
    let tried = members(there, one);
    let tries = each(&tried, |member| acquire(member, Mode::Try));
    bench.count("permit: try where nothing is free", there, &locks, tries).await;
    let first = members(here, one);
    bench.count("permit: enqueue, first", here, &locks, ask(&first)).await;
    let second = members(there, one);
    bench.count("permit: enqueue, second", there, &locks, ask(&second)).await;
    bench.count("permit: hand-off to two", here, &locks, each(&held, release)).await;
    bench.count("permit: release", here, &locks, each(&first, release)).await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let Some(counts) = std::env::var_os("CALLGRIND_OUT") else {
        println!("scripts/instructions runs this");
        return;
    };
    let mut bench = Bench::start(counts.into()).await;
    let [mut here, mut there] = [bench.node(1).await, bench.node(2).await];
    for round in 0..=ROUNDS {
        // In the first one the server meets each script for the first time.
        bench.is_counting = round > 0;
        of_locks(&mut bench, &mut here, &mut there).await;
        of_reads(&mut bench, &mut here, &mut there).await;
        of_permits(&mut bench, &mut here, &mut there).await;
        of_several(&mut bench, &mut here, &mut there).await;
        of_batches(&mut bench, &mut here, &mut there).await;
        of_single_members(&mut bench, &mut here, &mut there).await;
        bench.forget_locks().await;
    }
    // The end of a key is moved in some rounds, which is rounded up to half a minute: the median of
    // so many is the same in each run.
    for (what, means) in &mut bench.counted {
        means.sort_unstable();
        println!("{what}\t{}", means[ROUNDS / 2]);
    }
}
