//! The server's time per script, from `INFO commandstats`. Figures, not facts;
//! [`cost`](crate::cost) has the facts.
//!
//! ```text
//! cargo test -p lock-tests --test protocol figures -- --ignored --nocapture
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;

use lock_tests::protocol::{PREFIX, Script, error_of};
use lock_tests::{CommandStats, Raw, RedisServer};
use proto::wire::{Asked, Floors, Wire, keys, scripts};
use proto::{Command, Demand, Label, Leaving, LockName, Member, Mode, NodeId};
use redis::{Cmd, Value, cmd};

const REPETITIONS: usize = 5;
const SAMPLES: usize = 100;
const LEASE_MS: u64 = 120_000;

/// Something that is taken and given back, by its scripts.
struct Lock<'a> {
    bench: &'a Scripts,
    name: LockName,
    demand: Demand,
}

struct Scripts {
    floors: Floors,
    nodes: Vec<NodeId>,
}

struct Bench {
    redis: Raw,
    numbers: u64,
    /// By the name of the figure, a mean for each repetition.
    results: BTreeMap<String, Vec<f64>>,
}

impl Lock<'_> {
    fn member(&self, bench: &mut Bench, node: usize) -> Member {
        bench.numbers += 1;
        let (node, label) = (&self.bench.nodes[node], Label::new("web-1:8080"));
        Member::new(node, bench.numbers, LEASE_MS, self.demand, &label)
    }

    fn command(&self, script: &'static str, members: &[Member]) -> Cmd {
        let member = members[0].clone();
        let node = NodeId::from(member.node());
        let command = match script {
            "acquire" => {
                let members = members.to_vec();
                Command::Acquire { members, mode: Mode::Wait, queue_limit: 1_000_000 }
            }
            "release" => Command::Release { member },
            "confirm" => Command::Confirm { member },
            "renew" => Command::renew(members.to_vec()),
            "touch" => Command::Touch { members: members.to_vec() },
            _ => Command::Leave { leaving: vec![Leaving { member, ambiguous: false }] },
        };
        let wire = Wire {
            node,
            prefix: PREFIX.into(),
            peers: false,
            has_slots: false,
            of_error: error_of,
        };
        let asked = Asked::one((&self.name, &command));
        let call: Script = wire.write(&asked, self.bench.floors).expect("a script");
        call.command
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
        // The member that leaves has stood in the middle, or alone.
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
            let write = Lock { bench, name: name.clone(), demand: Demand::ALONE };
            let read = Lock { bench, name, demand: Demand::READ };
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
        self.note(&format!("read: one release grants {readers:4} readers of {nodes} nodes"), times);
    }

    /// A reader more, beside others.
    async fn join(&mut self, bench: &Scripts, others: usize) {
        let name = LockName::from("readers");
        let read = Lock { bench, name, demand: Demand::READ };
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
        self.note(&format!("read: a reader joins {others:5} others"), of(0));
        self.note(&format!("read: a reader leaves {others:5} others"), of(1));
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
        let times = self.time(&vec![lock.command("confirm", &held); 20]).await;
        self.note(&format!("{what}: confirmation"), times);
        self.redis.flush_all().await;
    }
}

#[tokio::test]
#[ignore = "figures: the command stands above"]
async fn figures_of_the_scripts() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let nodes: Vec<NodeId> = (1..=10).map(|number: u128| NodeId::from(number)).collect();
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut ear = client.get_async_pubsub().await.expect("a connection");
    for node in &nodes[..5] {
        ear.subscribe(keys::grants_channel(PREFIX, node.as_str())).await.expect("subscribed");
    }
    for script in scripts::of_queue().all() {
        let _: String = redis.ask(cmd("SCRIPT").arg("LOAD").arg(&*script.source)).await;
    }
    // The counter begins at the server's time, as it does for every client.
    let now_us = redis.time_us().await;
    let floors = Floors { floor_us: now_us, elsewhere_us: 0, latest_us: now_us };
    let scripts = Scripts { floors, nodes };
    let mut bench = Bench { redis, numbers: 0, results: BTreeMap::new() };
    let lock = |name: &str, demand| Lock { bench: &scripts, name: LockName::from(name), demand };
    let permits = |weight| Demand::permits(weight, 10).expect("a demand");
    let kinds = [("lock", Demand::ALONE), ("10 of 10", permits(10))];
    for _ in 0..REPETITIONS {
        for (what, demand) in kinds {
            bench.pairs(what, &lock("pair", demand)).await;
        }
        bench.pairs("1 of 10", &lock("one", permits(1))).await;
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
        for (what, demand) in kinds {
            bench.dead(what, &lock("dead", demand), 200).await;
            bench.many(what, &lock("many", demand)).await;
            bench.renewals(what, &lock("renewed", demand), 1).await;
        }
        bench.renewals("read", &lock("renewed", Demand::READ), 100).await;
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
