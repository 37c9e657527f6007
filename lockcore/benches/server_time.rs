//! Measures the server's time per script, from `INFO commandstats`, with queues of growing length,
//! and with waiters whose processes are dead.
//!
//! Targets: at most 1.3 times as long with 10 000 waiters as with one; at most 5 ms for a release
//! and the following touches that skip 500 dead waiters.
#![allow(clippy::print_stdout, missing_docs)]

#[allow(dead_code, unused_imports, reason = "the store sends more, and has unit tests there")]
#[path = "../src/store/redis/call.rs"]
mod call;
mod support;

use std::collections::VecDeque;
use std::time::Duration;

use call::{Scripted, value};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use proto::layout::{Layout, QUEUE};
use proto::wire::{TokenFloors, Wire, keys};
use proto::{
    Acquired, Answer, Command, Demand, Label, LockName, Member, Mode, NodeId, Released, Topology,
};
use redis::aio::MultiplexedConnection;
use redis::cmd;
use support::{Server, load, median, middle_mean};
use tokio::runtime::Builder;
use tokio_util::task::AbortOnDropHandle;

const REPETITIONS: usize = 7;
const SAMPLES: usize = 100;
const DEPTHS: [usize; 4] = [1, 100, 1_000, 10_000];
const LEASE_MS: u64 = 30_000;
const PREFIX: &str = "lockcore";

/// A node without a state machine: it sends the given commands and nothing else, and ignores the
/// grants it receives.
struct Node {
    wire: Wire,
    /// The server's time at connect, in µs since the epoch. All new tokens are above it.
    floor_us: u64,
    redis: MultiplexedConnection,
    hearing: AbortOnDropHandle<()>,
    next: u64,
}

impl Node {
    async fn connect(server: &Server) -> Self {
        let mut redis = server.bare().await;
        for script in QUEUE.usual_scripts(Topology::Single) {
            load(&mut redis, &script.source).await;
        }
        let node = NodeId::from(rand::random::<u128>());
        let grants = server.bare_subscription(&keys::grants_channel(PREFIX, node.as_str())).await;
        let hearing = tokio::spawn(grants.into_on_message().for_each(async |_| {}));
        let hearing = AbortOnDropHandle::new(hearing);
        let (seconds, micros): (u64, u64) =
            cmd("TIME").query_async(&mut redis).await.expect("answered");
        let of_error = |said: &str, _: &dyn Layout| panic!("{said}");
        let wire = Wire {
            node,
            prefix: PREFIX.into(),
            layout: QUEUE,
            topology: Topology::Single,
            of_error,
        };
        Self { wire, floor_us: seconds * 1_000_000 + micros, redis, hearing, next: 0 }
    }

    fn member(&mut self) -> Member {
        self.next += 1;
        Member::new(&self.wire.node, self.next, LEASE_MS, Demand::EXCLUSIVE, &Label::new("bench"))
    }

    async fn run(&self, lock: &LockName, command: Command) -> Answer {
        let floors = TokenFloors {
            floor_us: self.floor_us,
            latest_us: self.floor_us,
            ..TokenFloors::default()
        };
        let command = (lock, &command);
        let call: Scripted = self.wire.write(&[command], floors).expect("there is a script for it");
        let answer = redis::Cmd::from(&call.0.command)
            .query_async(&mut self.redis.clone())
            .await
            .expect("answered");
        self.wire.answer(command, &value(&answer)).expect("a known form")
    }

    async fn enqueue(&self, lock: &LockName, member: &Member) -> Acquired {
        let (members, mode) = (vec![member.clone()], Mode::Wait);
        match self.run(lock, Command::Acquire { members, mode, queue_limit: 20_000 }).await {
            Answer::Acquired(reply) => reply.outcome[0],
            other => panic!("{other:?}"),
        }
    }

    /// Releases the lock, and sends touches until the server has nothing left to do.
    async fn release(&self, lock: &LockName, member: &Member) {
        let answer = self.run(lock, Command::Release { member: member.clone() }).await;
        let Answer::Released(reply) = answer else { panic!("{answer:?}") };
        assert_eq!(reply.outcome, Released::Released);
        let mut more = reply.more;
        while more {
            let answer = self.run(lock, Command::Touch { members: Vec::new() }).await;
            let Answer::Touched(reply) = answer else { panic!("{answer:?}") };
            more = reply.more;
        }
    }
}

/// Returns the time that the server has spent in EVALSHA since the last reset, by its own count, in
/// µs.
async fn spent(redis: &mut MultiplexedConnection) -> f64 {
    let info: String = cmd("INFO").arg("commandstats").query_async(redis).await.expect("answered");
    let line = info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
    let usec = line.split([':', ',']).find_map(|field| field.strip_prefix("usec="));
    usec.map_or(0.0, |usec| usec.parse().expect("a number"))
}

async fn reset(redis: &mut MultiplexedConnection) {
    let _: String = cmd("CONFIG").arg("RESETSTAT").query_async(redis).await.expect("answered");
}

/// Returns the server time of an enqueue and of a release with its hand-off, with `depth` waiters,
/// in µs.
async fn at_depth(server: &Server, depth: usize, lock: LockName) -> (f64, f64) {
    let mut redis = server.bare().await;
    let mut nodes = [Node::connect(server).await, Node::connect(server).await];
    let mut order = VecDeque::new();
    // The holder and the measured waiters belong to the two nodes alternately, so that each
    // hand-off sends a message.
    for place in 0..=depth.min(SAMPLES) {
        let member = nodes[place % 2].member();
        nodes[place % 2].enqueue(&lock, &member).await;
        order.push_back((place % 2, member));
    }
    while order.len() <= depth {
        let count = 500.min(depth + 1 - order.len());
        let members: Vec<_> = (0..count).map(|_| nodes[0].member()).collect();
        join_all(members.iter().map(|member| nodes[0].enqueue(&lock, member))).await;
        order.extend(members.into_iter().map(|member| (0, member)));
    }
    let mut enqueues = Vec::new();
    let mut hand_offs = Vec::new();
    for sample in 0..SAMPLES {
        let (of, holder) = order.pop_front().expect("somebody holds");
        reset(&mut redis).await;
        nodes[of].release(&lock, &holder).await;
        hand_offs.push(spent(&mut redis).await);
        let of = sample % 2;
        let member = nodes[of].member();
        reset(&mut redis).await;
        let outcome = nodes[of].enqueue(&lock, &member).await;
        enqueues.push(spent(&mut redis).await);
        assert!(matches!(outcome, Acquired::Queued { .. }), "{outcome:?}");
        order.push_back((of, member));
    }
    (middle_mean(enqueues), middle_mean(hand_offs))
}

async fn depths(server: &Server) {
    println!("server time per script, {REPETITIONS} repetitions of {SAMPLES}, interleaved");
    println!(
        "{:>8} {:>12} {:>7} {:>12} {:>7}   target 1.3",
        "waiters", "enqueue µs", "ratio", "hand-off µs", "ratio"
    );
    let mut repetitions = Vec::new();
    for repetition in 0..REPETITIONS {
        let mut row = Vec::new();
        for depth in DEPTHS {
            let lock = LockName::from(format!("bench:{repetition}:{depth}").as_str());
            row.push(at_depth(server, depth, lock).await);
        }
        repetitions.push(row);
    }
    for (column, depth) in DEPTHS.iter().enumerate() {
        let of = |value: fn(&[(f64, f64)], usize) -> f64| {
            median(repetitions.iter().map(|row| value(row, column)).collect())
        };
        println!(
            "{depth:>8} {:>12.1} {:>7.2} {:>12.1} {:>7.2}",
            of(|row, column| row[column].0),
            of(|row, column| row[column].0 / row[0].0),
            of(|row, column| row[column].1),
            of(|row, column| row[column].1 / row[0].1),
        );
    }
}

/// Two processes that hand a lock to and fro.
struct Pair {
    nodes: [Node; 2],
    holder: (usize, Member),
    lock: LockName,
    redis: MultiplexedConnection,
}

impl Pair {
    async fn connect(server: &Server, lock: LockName) -> Self {
        let mut nodes = [Node::connect(server).await, Node::connect(server).await];
        let holder = nodes[0].member();
        nodes[0].enqueue(&lock, &holder).await;
        Self { nodes, holder: (0, holder), lock, redis: server.bare().await }
    }

    /// Returns the server's time, in µs, for a release with hand-off to the other process.
    async fn hand_over(&mut self) -> f64 {
        let (from, holder) = &self.holder;
        let to = 1 - from;
        let next = self.nodes[to].member();
        self.nodes[to].enqueue(&self.lock, &next).await;
        reset(&mut self.redis).await;
        self.nodes[*from].release(&self.lock, holder).await;
        self.holder = (to, next);
        spent(&mut self.redis).await
    }

    async fn usual(&mut self) -> f64 {
        let mut times = Vec::new();
        for _ in 0..SAMPLES {
            times.push(self.hand_over().await);
        }
        middle_mean(times)
    }
}

/// Measures hand-offs before, past and after the waiters of five processes that die, a hundred
/// waiters each.
async fn past_the_dead(server: &Server, lock: LockName) -> [f64; 3] {
    let mut redis = server.bare().await;
    let mut pair = Pair::connect(server, lock.clone()).await;
    let base = pair.usual().await;
    let mut dying = Vec::new();
    for _ in 0..5 {
        dying.push(Node::connect(server).await);
    }
    for node in &mut dying {
        let members: Vec<_> = (0..100).map(|_| node.member()).collect();
        join_all(members.iter().map(|member| node.enqueue(&lock, member))).await;
    }
    for node in &dying {
        node.hearing.abort();
    }
    for node in &dying {
        let channel = keys::grants_channel(PREFIX, node.wire.node.as_str());
        loop {
            let (_, count): (String, i64) = cmd("PUBSUB")
                .arg("NUMSUB")
                .arg(&channel)
                .query_async(&mut redis)
                .await
                .expect("answered");
            if count == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let first = pair.hand_over().await;
    [base, first, pair.usual().await]
}

async fn dead(server: &Server) {
    println!(
        "\nrelease + hand-off past 500 dead waiters of five processes, {REPETITIONS} repetitions"
    );
    let runs = (0..REPETITIONS).map(|repetition| async move {
        past_the_dead(server, LockName::from(format!("dead:{repetition}").as_str())).await
    });
    let mut all = Vec::new();
    for run in runs {
        all.push(run.await);
    }
    let names = ["none dead: the base", "past them", "after that"];
    for (step, name) in names.iter().enumerate() {
        let time = median(all.iter().map(|times| times[step]).collect());
        let ratio = median(all.iter().map(|times| times[step] / times[0]).collect());
        let limit = if step == 1 { "   target 5000 µs" } else { "" };
        println!("{name:<24} {time:>8.0} µs   {ratio:>6.2} × base{limit}");
    }
}

fn main() {
    let server = Server::start();
    let runtime =
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        depths(&server).await;
        dead(&server).await;
    });
}
