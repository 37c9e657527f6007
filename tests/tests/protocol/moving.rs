//! A slot that moves to another server of a Cluster: a script must not be stopped there in the
//! middle, with half of it written. A node refuses a server in cluster mode when it connects; only
//! the scripts are run here, to test the order of their writes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use lock_tests::{RedisServer, eventually};
use proto::{Answer, Command, Demand, LockName, Member, Mode, Renewed, StoreError};
use redis::cmd;

use crate::asking::{acquire, leave, reduce, touch};
use crate::bench::{Bench, SOON, Side};
use crate::node::Node;

/// Its keys are in the same slot as the counter.
const LOCK: &str = "lock:tokens";
const THIS: &str = "1111111111111111111111111111111111111111";
const NEXT: &str = "2222222222222222222222222222222222222222";

/// A server of a Cluster of two; the other server does not exist.
struct Cluster {
    bench: Bench,
    nodes: [Node; 2],
    slot: u64,
    folder: PathBuf,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn folder() -> PathBuf {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("lock-cluster-{}-{number}", std::process::id()));
    std::fs::create_dir(&folder).expect("the temporary folder can be written");
    folder
}

fn start(folder: &Path) -> RedisServer {
    let nodes = format!(
        "{THIS} 127.0.0.1:0@0 myself,master - 0 0 1 connected 0-16383\n\
         {NEXT} 127.0.0.1:1@2 master - 0 0 2 disconnected\n\
         vars currentEpoch 2 lastVoteEpoch 0\n"
    );
    let file = folder.join("nodes.conf");
    std::fs::write(&file, nodes).expect("the folder can be written");
    RedisServer::options()
        .arg("cluster-enabled", "yes")
        .arg("cluster-config-file", &file.to_string_lossy())
        .start()
}

impl Cluster {
    async fn start() -> Self {
        let folder = folder();
        let mut bench = Bench::on(Side::QueueScripts, Some(start(&folder))).await;
        bench.lock = LockName::from(LOCK);
        let redis = bench.redis();
        eventually("the cluster is up", SOON, async || {
            redis.ask::<String>(cmd("CLUSTER").arg("INFO")).await.contains("cluster_state:ok")
        })
        .await;
        let slot = bench.redis().ask(cmd("CLUSTER").arg("KEYSLOT").arg(LOCK)).await;
        let nodes = [bench.node().await, bench.node().await];
        Self { bench, nodes, slot, folder }
    }

    fn member(&self, node: usize, demand: Demand) -> Member {
        self.nodes[node].member_for(demand, 30_000)
    }

    async fn try_run(&self, node: usize, command: &Command) -> Result<Answer, StoreError> {
        self.nodes[node].run(command.clone()).await
    }

    /// Acquires or waits.
    async fn ask(&self, node: usize, demand: Demand) -> Member {
        let member = self.member(node, demand);
        self.try_run(node, &acquire(&member, Mode::Wait, 10)).await.expect("answered");
        member
    }

    async fn moves(&mut self, is_moving: bool) {
        let mut set = cmd("CLUSTER");
        set.arg("SETSLOT").arg(self.slot);
        match is_moving {
            true => set.arg("MIGRATING").arg(NEXT),
            false => set.arg("STABLE"),
        };
        self.bench.redis().ask(&set).await
    }

    /// How many messages each node has received.
    async fn heard(&self) -> [usize; 2] {
        [self.nodes[0].heard().await.len(), self.nodes[1].heard().await.len()]
    }

    /// Checks that the command is refused while the slot moves, without any change or message, and
    /// that it runs afterwards.
    async fn is_refused_whole(&mut self, node: usize, command: &Command) {
        self.heard().await;
        let before = self.bench.everything().await;
        self.moves(true).await;
        let refused = self.try_run(node, command).await;
        let error = refused.expect_err("the slot moves").detail;
        assert!(self.bench.everything().await == before, "{command:?}: {error}");
        assert_eq!(self.heard().await, [0, 0], "{command:?}: {error}");
        self.moves(false).await;
        self.try_run(node, command).await.expect("answered");
        assert!(self.bench.everything().await != before, "{command:?} does nothing");
    }
}

#[tokio::test]
async fn an_acquire_of_what_is_free_is_refused_whole() {
    let mut cluster = Cluster::start().await;
    for demand in [Demand::EXCLUSIVE, Demand::READ] {
        cluster.bench.redis().flush_all().await;
        let member = cluster.member(0, demand);
        cluster.is_refused_whole(0, &acquire(&member, Mode::Try, 10)).await;
    }
}

#[tokio::test]
async fn an_enqueue_is_refused_whole_where_a_key_that_it_would_write_is_absent() {
    let mut cluster = Cluster::start().await;
    for demand in [Demand::EXCLUSIVE, Demand::READ] {
        cluster.bench.redis().flush_all().await;
        cluster.ask(0, Demand::EXCLUSIVE).await;
        let first = cluster.member(1, demand); // no queue, no liveness deadline
        cluster.is_refused_whole(1, &acquire(&first, Mode::Wait, 10)).await;
        let other = cluster.member(0, demand); // a queue, no liveness deadline
        cluster.is_refused_whole(0, &acquire(&other, Mode::Wait, 10)).await;
    }
}

#[tokio::test]
async fn an_enqueue_of_several_is_refused_whole_where_a_key_that_it_would_write_is_absent() {
    let mut cluster = Cluster::start().await;
    for demand in [Demand::EXCLUSIVE, Demand::READ] {
        cluster.bench.redis().flush_all().await;
        cluster.ask(0, Demand::EXCLUSIVE).await;
        for node in 0..2 {
            let members = vec![cluster.member(node, demand), cluster.member(node, demand)];
            let command = Command::Acquire { members, mode: Mode::Wait, queue_limit: 10 };
            cluster.is_refused_whole(node, &command).await;
        }
    }
}

// The fast paths of commands that read mostly absent keys.
#[tokio::test]
async fn what_changes_a_lock_or_its_line_is_refused_whole_where_a_key_is_absent() {
    let mut cluster = Cluster::start().await;
    for which in 0..5 {
        cluster.bench.redis().flush_all().await;
        let lock = cluster.ask(0, Demand::EXCLUSIVE).await;
        if which == 0 {
            cluster.is_refused_whole(0, &reduce(&lock)).await;
            continue;
        }
        let waiting = cluster.ask(1, Demand::EXCLUSIVE).await;
        if which == 4 {
            cluster.try_run(1, &leave(&[(&waiting, false)])).await.expect("answered");
        }
        let command = match which {
            1 => leave(&[(&waiting, false)]),
            2 => leave(&[(&waiting, true)]),
            3 => {
                let patience = lock_tests::patience_key(LOCK, waiting.node());
                let () = cluster.bench.redis().ask(cmd("DEL").arg(patience)).await;
                touch(&[&waiting])
            }
            _ => Command::Release { member: lock },
        };
        cluster.is_refused_whole(usize::from(which != 4), &command).await;
    }
}

#[tokio::test]
async fn a_release_to_a_waiter_is_refused_whole_where_one_of_its_keys_is_absent() {
    let mut cluster = Cluster::start().await;
    for lost in ["patience", "counter", "queue"] {
        cluster.bench.redis().flush_all().await;
        let holder = cluster.ask(0, Demand::EXCLUSIVE).await;
        let waiting = cluster.ask(1, Demand::EXCLUSIVE).await;
        let key = match lost {
            "patience" => lock_tests::patience_key(LOCK, waiting.node()),
            "queue" => lock_tests::queue_key(LOCK),
            _ => lock_tests::COUNTER.to_owned(),
        };
        let () = cluster.bench.redis().ask(cmd("DEL").arg(key)).await;
        cluster.is_refused_whole(0, &Command::Release { member: holder }).await;
    }
}

impl Cluster {
    /// Creates each key that a command reads: parts (one of them reduced), a waiting member that
    /// fits once the second part is free, a tombstone, skipped members, and a liveness deadline.
    async fn everything_is_there(&mut self) -> [Member; 3] {
        self.bench.redis().flush_all().await;
        let lock = self.ask(0, Demand::EXCLUSIVE).await;
        self.try_run(0, &reduce(&lock)).await.expect("answered");
        let read = self.ask(0, Demand::READ).await;
        let waiting = self.ask(1, Demand::permits(2, 3).expect("two of three")).await;
        let unknown = self.member(0, Demand::EXCLUSIVE);
        self.try_run(0, &leave(&[(&unknown, true)])).await.expect("answered");
        for node in 0..2 {
            let passed = self.member(node, Demand::EXCLUSIVE);
            let id = &self.nodes[node].id;
            let mut add = cmd("ZADD");
            add.arg(lock_tests::aside_key(LOCK, id.as_str())).arg(7).arg(passed.as_str());
            let () = self.bench.redis().ask(&add).await;
            let mut set = cmd("SET");
            set.arg(lock_tests::patience_key(LOCK, id.as_str())).arg("1").arg("PX").arg(9_000);
            let () = self.bench.redis().ask(&set).await;
        }
        [lock, read, waiting]
    }
}

// The key `guard` is absent: the first write, after everything was read and decided.
#[tokio::test]
async fn where_all_keys_are_there_the_first_write_is_refused() {
    let mut cluster = Cluster::start().await;
    for which in 0..9 {
        let [lock, read, waiting] = cluster.everything_is_there().await;
        let (node, command) = match which {
            0 => (0, Command::Release { member: read }),
            1 => (0, Command::Release { member: lock }),
            2 => (0, Command::Renew { members: vec![read, cluster.member(0, Demand::READ)] }),
            3 => (0, Command::Confirm { member: read }),
            4 => (1, touch(&[&waiting])),
            5 => (1, leave(&[(&waiting, true)])),
            6 => (0, leave(&[(&read, false)])),
            7 => (0, Command::ForceRelease { member: None }),
            _ => (0, acquire(&cluster.member(0, Demand::EXCLUSIVE), Mode::Wait, 10)),
        };
        cluster.is_refused_whole(node, &command).await;
        let expects_a_message = [0, 1, 6, 7].contains(&which);
        assert_eq!(cluster.heard().await != [0, 0], expects_a_message, "{command:?}");
    }
}

// The renewal touches no absent key, even when expiries must be written.
#[tokio::test]
async fn a_renewal_is_answered_where_the_lock_key_and_the_holds_are() {
    let mut cluster = Cluster::start().await;
    for is_late in [false, true] {
        for is_alone in [true, false] {
            let held: Vec<Member> = match is_alone {
                true => {
                    cluster.bench.redis().flush_all().await;
                    vec![cluster.ask(0, Demand::READ).await, cluster.ask(0, Demand::READ).await]
                }
                false => cluster.everything_is_there().await[..2].to_vec(),
            };
            let keys = ["", ":holds", ":reduced"];
            let keys = keys.map(|key| format!("{}{key}", lock_tests::lock_key(LOCK)));
            // A downgraded lock is renewed as a lock when it is alone in the command.
            let alone = held.iter().map(|member| vec![member.clone()]);
            for members in alone.chain([held.clone()]) {
                for key in keys.iter().filter(|_| is_late) {
                    let () = cluster.bench.redis().ask(cmd("PEXPIRE").arg(key).arg(61_000)).await;
                }
                cluster.moves(true).await;
                let renewal = Command::Renew { members };
                let answer = cluster.try_run(0, &renewal).await.expect("answered");
                cluster.moves(false).await;
                let Answer::Renewed(reply) = answer else { panic!("{answer:?}") };
                assert!(reply.outcome.iter().all(|outcome| *outcome == Renewed::Held), "{reply:?}");
                for key in &keys {
                    let left: i64 = cluster.bench.redis().ask(cmd("PTTL").arg(key)).await;
                    let is_there = !is_alone || !key.ends_with(":reduced");
                    assert_eq!(left > 85_000, is_there, "{key} lives for {left} ms");
                }
            }
        }
    }
}

// With the guard present, nothing else refuses them: it was the reason.
#[tokio::test]
async fn where_even_the_guard_is_there_nothing_is_refused() {
    let mut cluster = Cluster::start().await;
    for which in 0..4 {
        let [_, read, waiting] = cluster.everything_is_there().await;
        let (node, command) = match which {
            0 => (0, Command::Release { member: read }),
            1 => (0, Command::Confirm { member: read }),
            2 => (1, touch(&[&waiting])),
            _ => (0, acquire(&cluster.member(0, Demand::EXCLUSIVE), Mode::Wait, 10)),
        };
        for guard in ["guard", "guard2"] {
            let guard = format!("{}:{guard}", lock_tests::lock_key(LOCK));
            let () = cluster.bench.redis().ask(cmd("SET").arg(guard).arg(1)).await;
        }
        cluster.moves(true).await;
        cluster.try_run(node, &command).await.expect("answered");
        cluster.moves(false).await;
    }
}
