//! The server's time per script, beside the mutex's in the same run, from `INFO commandstats`.
//! Figures, not facts:
//!
//! ```text
//! cargo test -p lock-tests --test permits figures -- --ignored --nocapture
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;

use lock_tests::{CommandStats, Raw, RedisServer};
use lockcore::NodeId;
use lockcore::internals::protocol::permits::Bounds;
use lockcore::internals::{
    Command, Demand, Label, Leaving, LockName, Member, Mode, new_node, node_of, wire,
};
use redis::{Cmd, Value, cmd};

use crate::server::{PREFIX, Permits};

const REPETITIONS: usize = 5;
const SAMPLES: usize = 100;
const LEASE_MS: u64 = 120_000;

/// Something that is taken and given back, by its scripts.
struct Lock<'a> {
    bench: &'a Scripts,
    name: LockName,
    /// Of permits; the mutex has none.
    demand: Option<Demand>,
}

struct Scripts {
    mutex: BTreeMap<&'static str, String>,
    permits: Permits,
    nodes: Vec<NodeId>,
}

struct Bench {
    redis: Raw,
    numbers: u64,
    /// By what was measured, a mean for each repetition.
    results: BTreeMap<String, Vec<f64>>,
}

impl Lock<'_> {
    fn member(&self, bench: &mut Bench, node: usize) -> Member {
        bench.numbers += 1;
        let (node, label) = (&self.bench.nodes[node], Label::new("web-1:8080"));
        match self.demand {
            None => Member::redisson(node, bench.numbers, LEASE_MS, &label),
            Some(demand) => Member::new(node, bench.numbers, LEASE_MS, demand, &label),
        }
    }

    fn command(&self, script: &'static str, members: &[Member]) -> Cmd {
        match self.demand {
            None => self.of_mutex(script, members),
            Some(_) => self.of_permits(script, members),
        }
    }

    fn of_permits(&self, script: &'static str, members: &[Member]) -> Cmd {
        let member = members[0].clone();
        let node = node_of(member.node());
        let command = match script {
            "acquire" => Command::Acquire { member, mode: Mode::Wait, queue_limit: 1_000_000 },
            "release" => Command::Release { member },
            "renew" => Command::Renew { members: members.to_vec() },
            "touch" => Command::Touch { members: members.to_vec() },
            _ => Command::Leave { leaving: vec![Leaving { member, ambiguous: false }] },
        };
        self.bench.permits.call(&self.name, &node, &command)
    }

    fn of_mutex(&self, script: &'static str, members: &[Member]) -> Cmd {
        let member = &members[0];
        let keys = wire::keys(&self.name, member);
        let mut call = cmd("EVALSHA");
        call.arg(&self.bench.mutex[script]);
        match script {
            "acquire" => call.arg(5).arg(&keys),
            "renew" => call.arg(2).arg(&keys[0]).arg(&keys[3]),
            _ => call.arg(4).arg(&keys[..4]),
        };
        call.arg(member.node()).arg(PREFIX);
        match script {
            "touch" => {
                call.arg(members.len());
                for member in members {
                    call.arg(member.as_str());
                }
            }
            "acquire" => {
                call.arg(member.as_str()).arg(LEASE_MS).arg("wait").arg(1_000_000);
            }
            "renew" => {
                call.arg(member.as_str()).arg(LEASE_MS);
            }
            "leave" => {
                call.arg(member.as_str()).arg(0);
            }
            _ => {
                call.arg(member.as_str());
            }
        }
        // The latest time: this node has seen none.
        call.arg(0);
        call
    }
}

impl Bench {
    /// The server's time of each command, in µs.
    async fn time(&mut self, commands: &[Cmd]) -> Vec<u64> {
        let mut times = Vec::new();
        let mut before = CommandStats::read(&mut self.redis).await.of("evalsha").usec;
        for command in commands {
            let _: Value = self.redis.ask(command).await;
            let after = CommandStats::read(&mut self.redis).await.of("evalsha").usec;
            times.push(after - before);
            before = after;
        }
        times
    }

    /// Without the slowest tenth: the machine is shared.
    fn note(&mut self, what: &str, mut times: Vec<u64>) {
        times.sort_unstable();
        let kept = &times[..(times.len() * 9).div_ceil(10)];
        let mean = kept.iter().sum::<u64>() as f64 / kept.len() as f64;
        self.results.entry(what.to_owned()).or_default().push(mean);
    }

    async fn run_all(&mut self, commands: &[Cmd]) {
        for part in commands.chunks(500) {
            let mut pipeline = redis::pipe();
            for command in part {
                pipeline.add_command(command.clone());
            }
            self.redis.run(&pipeline).await;
        }
    }

    async fn pairs(&mut self, what: &str, lock: &Lock<'_>) {
        let mut commands = Vec::new();
        for _ in 0..SAMPLES {
            let member = [lock.member(self, 0)];
            commands.push(lock.command("acquire", &member));
            commands.push(lock.command("release", &member));
        }
        let times = self.time(&commands).await;
        let both = times.chunks(2).map(|pair| pair.iter().sum()).collect();
        self.note(&format!("{what}: acquire and release, none waits"), both);
    }

    /// Each release hands over to the next, and another is enqueued in its place.
    async fn hand_offs(&mut self, what: &str, lock: &Lock<'_>, waiting: usize) {
        let mut line: VecDeque<Member> =
            (0..=waiting).map(|at| lock.member(self, at % 4)).collect();
        let all: Vec<Cmd> = line
            .iter()
            .map(|member| lock.command("acquire", std::slice::from_ref(member)))
            .collect();
        self.run_all(&all).await;
        let (mut offs, mut enqueues) = (Vec::new(), Vec::new());
        for at in 0..SAMPLES {
            let holder = line.pop_front().expect("a holder");
            offs.extend(self.time(&[lock.command("release", &[holder])]).await);
            let newcomer = lock.member(self, at % 4);
            enqueues.extend(
                self.time(&[lock.command("acquire", std::slice::from_ref(&newcomer))]).await,
            );
            line.push_back(newcomer);
        }
        self.note(&format!("{what}: hand-off, {waiting:5} wait"), offs);
        self.note(&format!("{what}: enqueue,  {waiting:5} wait"), enqueues);
        // Who leaves has stood in the middle, or alone.
        let mut leaves = Vec::new();
        for at in 0..SAMPLES {
            let place = (line.len() / 2).max(1);
            let left = line.remove(place).expect("somebody waits");
            leaves.extend(self.time(&[lock.command("leave", &[left])]).await);
            let newcomer = lock.member(self, at % 4);
            self.run_all(&[lock.command("acquire", std::slice::from_ref(&newcomer))]).await;
            line.push_back(newcomer);
        }
        self.note(&format!("{what}: leave from the middle, {waiting:5} wait"), leaves);
    }

    /// One release grants so many readers of some nodes.
    async fn batch(&mut self, bench: &Scripts, readers: usize, nodes: usize) {
        let mut times = Vec::new();
        for round in 0..10 {
            let name = LockName::from(&*format!("batch {readers} {nodes} {round}"));
            let write = Lock { bench, name: name.clone(), demand: Some(Demand::ALONE) };
            let read = Lock { bench, name, demand: Some(Demand::READ) };
            let holder = [write.member(self, 4)];
            let mut commands = vec![write.command("acquire", &holder)];
            for at in 0..readers {
                let reader = [read.member(self, at % nodes)];
                commands.push(read.command("acquire", &reader));
            }
            self.run_all(&commands).await;
            times.extend(self.time(&[write.command("release", &holder)]).await);
            self.redis.flush_all().await;
        }
        self.note(
            &format!("permits: one release grants {readers:4} readers of {nodes} nodes"),
            times,
        );
    }

    /// A reader more, beside others.
    async fn join(&mut self, bench: &Scripts, others: usize) {
        let name = LockName::from("readers");
        let read = Lock { bench, name, demand: Some(Demand::READ) };
        let commands: Vec<Cmd> =
            (0..others).map(|_| read.command("acquire", &[read.member(self, 0)])).collect();
        self.run_all(&commands).await;
        let mut commands = Vec::new();
        for _ in 0..SAMPLES {
            let member = [read.member(self, 1)];
            commands.push(read.command("acquire", &member));
            commands.push(read.command("release", &member));
        }
        let times = self.time(&commands).await;
        let of = |first: usize| times.iter().skip(first).step_by(2).copied().collect();
        self.note(&format!("permits: a reader joins {others:5} others"), of(0));
        self.note(&format!("permits: a reader leaves {others:5} others"), of(1));
        self.redis.flush_all().await;
    }

    /// A release past waiters whose processes are gone.
    async fn dead(&mut self, what: &str, lock: &Lock<'_>, dead: usize) {
        let mut times = Vec::new();
        for _ in 0..5 {
            let holder = [lock.member(self, 0)];
            let mut commands = vec![lock.command("acquire", &holder)];
            for at in 0..dead {
                commands.push(lock.command("acquire", &[lock.member(self, 5 + at % 5)]));
            }
            commands.push(lock.command("acquire", &[lock.member(self, 1)]));
            self.run_all(&commands).await;
            times.extend(self.time(&[lock.command("release", &holder)]).await);
            self.redis.flush_all().await;
        }
        self.note(&format!("{what}: release past {dead} dead of 5 nodes"), times);
    }

    async fn many(&mut self, what: &str, lock: &Lock<'_>) {
        let holder = lock.member(self, 0);
        let waiting: Vec<Member> = (0..100).map(|_| lock.member(self, 0)).collect();
        let mut commands = vec![lock.command("acquire", &[holder])];
        commands
            .extend(waiting.iter().map(|one| lock.command("acquire", std::slice::from_ref(one))));
        self.run_all(&commands).await;
        let touches = vec![lock.command("touch", &waiting); 10];
        let times = self.time(&touches).await;
        self.note(&format!("{what}: touch of 100"), times);
        self.redis.flush_all().await;
    }

    async fn renewals(&mut self, what: &str, lock: &Lock<'_>, count: usize) {
        let held: Vec<Member> = (0..count).map(|_| lock.member(self, 0)).collect();
        let commands: Vec<Cmd> =
            held.iter().map(|one| lock.command("acquire", std::slice::from_ref(one))).collect();
        self.run_all(&commands).await;
        let times = self.time(&vec![lock.command("renew", &held); 20]).await;
        self.note(&format!("{what}: renewal of {count}"), times);
        self.redis.flush_all().await;
    }
}

#[tokio::test]
#[ignore = "figures: the command stands above"]
async fn figures_of_the_scripts() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let nodes: Vec<NodeId> = (0..10).map(|_| new_node()).collect();
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut ear = client.get_async_pubsub().await.expect("a connection");
    for node in &nodes[..5] {
        ear.subscribe(format!("{PREFIX}:grants:{node}")).await.expect("subscribed");
    }
    let mut mutex = BTreeMap::new();
    for name in ["acquire", "release", "renew", "touch", "leave"] {
        let source = wire::script(name).expect("a script");
        mutex.insert(name, redis.ask(cmd("SCRIPT").arg("LOAD").arg(source)).await);
    }
    let permits = Permits::load(&mut redis, Bounds::default()).await;
    let scripts = Scripts { mutex, permits, nodes };
    let mut bench = Bench { redis, numbers: 0, results: BTreeMap::new() };
    let lock = |name: &str, demand| Lock { bench: &scripts, name: LockName::from(name), demand };
    let kinds =
        [("mutex", None), ("write", Some(Demand::ALONE)), ("10 of 10", Demand::permits(10, 10))];
    for _ in 0..REPETITIONS {
        for (what, demand) in kinds {
            bench.pairs(what, &lock("pair", demand)).await;
        }
        bench.pairs("1 of 10", &lock("one", Demand::permits(1, 10))).await;
        for waiting in [1, 100, 10_000] {
            for (what, demand) in kinds {
                bench.hand_offs(what, &lock("line", demand), waiting).await;
                bench.redis.flush_all().await;
            }
        }
        for readers in [10, 100, 256] {
            for nodes in [1, 4] {
                bench.batch(&scripts, readers, nodes).await;
            }
        }
        for others in [5, 100, 1_000, 10_000] {
            bench.join(&scripts, others).await;
        }
        for (what, demand) in &kinds[..2] {
            bench.dead(what, &lock("dead", *demand), 500).await;
            bench.many(what, &lock("many", *demand)).await;
            bench.renewals(what, &lock("renewed", *demand), 1).await;
        }
        bench.dead("write", &lock("dead", Some(Demand::ALONE)), 999).await;
        bench.renewals("read", &lock("renewed", Some(Demand::READ)), 100).await;
    }
    let mut table = String::new();
    for (what, mut means) in std::mem::take(&mut bench.results) {
        means.sort_by(f64::total_cmp);
        let (least, most) = (means[0], means[means.len() - 1]);
        let median = means[means.len() / 2];
        table += &format!("{what:60} {median:8.1} us   ({least:.1}-{most:.1})\n");
    }
    let _ = std::io::stderr().write_all(table.as_bytes());
}
