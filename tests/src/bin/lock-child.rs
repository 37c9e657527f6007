//! `lock-child URL [peers]`: a process with a single node, for tests that kill or stop it. It obeys
//! lines on standard input and responds with lines on standard output:
//!
//! | line | responses |
//! |---|---|
//! | | `connected <node>`, once, or `failed <kind>` |
//! | `lock <name> <key> <lease ms>` | `asked <name>`; later `granted <name> <token>` or `failed <name> <kind>`; later perhaps `lost <name>` |
//! | `state <name>` | `state <name> <Held, Uncertain or Lost>` |
//! | `release <name>` | `released <name> <Ok or the error's kind>` |
//! | `status` | `status <waiting> <holding> <positions lost>` |
//!
//! The process exits when the input ends.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockcore::{LockGuard, Locks};
use tokio::sync::mpsc;

type Guards = Arc<Mutex<HashMap<String, LockGuard>>>;

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // The reader is gone: the test is over.
    if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
        std::process::exit(0);
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let url = std::env::args().nth(1).expect("usage: lock-child URL [peers]");
    let peers = std::env::args().nth(2).as_deref() == Some("peers");
    let (lines, mut input) = mpsc::unbounded_channel();
    // On a dedicated thread: a blocking read in the runtime's pool would keep the runtime from
    // ending.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    let locks = match Locks::builder().redisson_peers(peers).connect(url).await {
        Ok(locks) => locks,
        Err(error) => return say(&format!("failed {:?}", error.kind())),
    };
    say(&format!("connected {}", locks.node()));
    let guards = Guards::default();
    while let Some(line) = input.recv().await {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["lock", name, key, lease] => {
                let lease = Duration::from_millis(lease.parse().expect("a lease in ms"));
                let request = locks.key(key).lease(lease);
                tokio::spawn(lock(request.lock(), name.to_owned(), Arc::clone(&guards)));
                say(&format!("asked {name}"));
            }
            ["state", name] => {
                let state = with(&guards, name, |guard| guard.state());
                say(&format!("state {name} {state:?}"));
            }
            ["release", name] => {
                let guard = taken(&guards, name);
                match guard.release().await {
                    Ok(()) => say(&format!("released {name} Ok")),
                    Err(error) => say(&format!("released {name} {:?}", error.kind())),
                }
            }
            ["status"] => {
                let status = locks.status();
                let waiting = status.waiting;
                let holding = status.holding;
                say(&format!("status {waiting} {holding} {}", status.positions_lost));
            }
            _ => panic!("not understood: {line}"),
        }
    }
}

async fn lock(acquire: lockcore::Acquire, name: String, guards: Guards) {
    match acquire.await {
        Ok(guard) => {
            let token = guard.fencing_token();
            let lost = guard.cancellation_token();
            guards.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), guard);
            say(&format!("granted {name} {token}"));
            lost.cancelled().await;
            say(&format!("lost {name}"));
        }
        Err(error) => say(&format!("failed {name} {:?}", error.kind())),
    }
}

fn with<T>(guards: &Guards, name: &str, look: impl FnOnce(&LockGuard) -> T) -> T {
    let guards = guards.lock().unwrap_or_else(PoisonError::into_inner);
    look(guards.get(name).expect("a lock that is held"))
}

fn taken(guards: &Guards, name: &str) -> LockGuard {
    let mut guards = guards.lock().unwrap_or_else(PoisonError::into_inner);
    guards.remove(name).expect("a lock that is held")
}
