//! Many waiters from several processes on one lock.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lock_tests::{Leash, Monitor, MonitorLine, Raw, RedisServer, eventually, lock_key, queue_key};
use lockcore::Locks;

const KEY: &str = "crowd";
const PROCESSES: usize = 3;
const WAITERS: usize = 1_000;
/// The number of waiters at which the lock is released: the rest come while it is already being
/// handed on.
const HEAD_START: usize = 300;

/// A turn as its waiter tells it.
struct Turn {
    label: String,
    token: u64,
    /// The number of waiters in the critical section, itself included.
    inside: usize,
}

/// A child process, which is killed when this is dropped.
struct Crowd {
    child: Child,
    _leash: Leash,
}

impl Crowd {
    /// Starts the child; it is connected, and ready to start, when this returns.
    fn start(url: &str, name: &str, count: usize) -> (Self, BufReader<std::process::ChildStdout>) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_lock-crowd"))
            .args([url, KEY, name, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child was built with this test");
        let leash = Leash::new(child.id(), None);
        let mut reports = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        reports.read_line(&mut line).expect("the child writes text");
        assert_eq!(line, "ready\n");
        (Self { child, _leash: leash }, reports)
    }

    fn go(&mut self) {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(b"go\n").expect("the child reads");
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

/// Reads a child's turns to the end.
fn turns(reports: BufReader<std::process::ChildStdout>) -> JoinHandle<Vec<Turn>> {
    thread::spawn(move || {
        let turn = |line: std::io::Result<String>| {
            let line = line.expect("the child writes text");
            let parts: Vec<&str> = line.split(' ').collect();
            let [label, token, inside] = parts.as_slice() else { panic!("not a turn: {line}") };
            Turn {
                label: (*label).to_owned(),
                token: token.parse().expect("a token is a number"),
                inside: inside.parse().expect("a count is a number"),
            }
        };
        reports.lines().map(turn).collect()
    })
}

/// The label of a member of ours, `~2<node>:<number>:<lease>:w:<label>`.
fn label(member: &str) -> Option<&str> {
    member.trim_start_matches(['+', '-']).strip_prefix("~2")?.splitn(5, ':').nth(4)
}

/// The labels in the order in which the server first saw them: queued, or granted at once.
fn arrivals(lines: &[MonitorLine]) -> Vec<String> {
    let queue = queue_key(KEY);
    let lock_key = lock_key(KEY);
    let mut seen = HashSet::new();
    lines
        .iter()
        .filter(|line| {
            (line.is("ZADD") && line.text(1) == queue)
                || (line.is("PSETEX") && line.text(1) == lock_key)
        })
        // One command may queue several members, in their order.
        .flat_map(|line| (2..line.args.len()).map(|arg| line.text(arg)))
        .filter_map(|arg| label(&arg).map(str::to_owned))
        // The first waiter marks the lock key of the gate's holder.
        .filter(|label| label != "gate" && seen.insert(label.clone()))
        .collect()
}

/// S1, F1: no overtaking among processes, and no overlap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_of_three_processes_are_served_in_the_order_the_server_saw() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.expect("connected");
    let gate = locks.key(KEY).label("gate").lock().await.expect("free");

    let mut crowds = Vec::new();
    let mut readers = Vec::new();
    for process in 0..PROCESSES {
        let count = WAITERS / PROCESSES + usize::from(process < WAITERS % PROCESSES);
        let (crowd, reports) = Crowd::start(&server.url(), &format!("p{process}"), count);
        crowds.push(crowd);
        readers.push(turns(reports));
    }
    let monitor = Monitor::start(server.address());
    crowds.iter_mut().for_each(Crowd::go);
    eventually("the first wait", Duration::from_secs(20), async || {
        redis.queue(KEY).await.len() >= HEAD_START
    })
    .await;
    gate.release().await.expect("held");
    eventually("everybody had a turn", Duration::from_secs(40), async || {
        redis.list_length("crowd-order").await == WAITERS
            && readers.iter().all(JoinHandle::is_finished)
    })
    .await;
    let turns: Vec<Turn> =
        readers.into_iter().flat_map(|reader| reader.join().expect("reports are read")).collect();

    let arrived = arrivals(&monitor.stop());
    assert_eq!(arrived.len(), WAITERS);
    let served = redis.list("crowd-order").await;
    let overtaken = arrived.iter().zip(&served).position(|(arrived, served)| arrived != served);
    assert_eq!(overtaken, None, "the turn of {:?}", overtaken.map(|turn| &served[turn]));
    assert!(turns.iter().all(|turn| turn.inside == 1), "two at once");
    let tokens: HashMap<&str, u64> =
        turns.iter().map(|turn| (turn.label.as_str(), turn.token)).collect();
    assert_eq!(tokens.len(), WAITERS);
    let tokens: Vec<u64> = served.iter().map(|label| tokens[label.as_str()]).collect();
    assert!(tokens.is_sorted_by(|one, next| one < next), "tokens rise from turn to turn");
    for crowd in &mut crowds {
        assert!(crowd.child.wait().expect("a child of ours").success());
    }
    assert!(!redis.exists(&lock_key(KEY)).await, "the lock is free at the end");
}
