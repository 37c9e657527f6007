//! What the Rust programs of `scripts/bench` share: the lines that they obey, see
//! `tests/peers/README.md`.
#![forbid(unsafe_code)]

mod line;
mod stay;
mod turns;

use std::collections::HashMap;
use std::future::Future;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

use line::Line;
use stay::Stay;

/// A lock that can be acquired and released, whatever its library calls these operations.
pub trait Peer: Send + Sync + 'static {
    /// The value kept while the lock is held.
    type Hold: Send + 'static;

    /// Waits for the lock. The wait ends if the future is dropped.
    fn take(&self, key: String) -> impl Future<Output = Self::Hold> + Send;

    /// Releases the lock.
    fn give(&self, hold: Self::Hold) -> impl Future<Output = ()> + Send;
}

/// Connects to the address in the first argument, prints `ready <name>`, and obeys until its input
/// ends.
pub fn run<P: Peer, C: Future<Output = P>>(name: &str, connect: impl FnOnce(String) -> C) {
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    runtime.block_on(async {
        let address = std::env::args().nth(1).expect("usage: <program> ADDRESS");
        let peer = Arc::new(connect(address).await);
        say(&format!("ready {name}"));
        obey(&peer).await;
    });
    // All holds and waits end with the process.
    std::process::exit(0);
}

async fn obey<P: Peer>(peer: &Arc<P>) {
    let mut input = input();
    let mut stays = HashMap::new();
    let mut crowd = Vec::new();
    let mut waits = Vec::new();
    while let Some(line) = input.recv().await {
        let line = Line::parse(&line);
        match line.what() {
            "loop" => turns::run(peer, &line).await,
            "take" => {
                let name = line.text("name").to_owned();
                let patience = line.has("patience_ms").then(|| line.number("patience_ms"));
                let patience = patience.map(Duration::from_millis);
                let stay = Stay::begin(peer, line.text("key"), Some(name.clone()), patience);
                stays.insert(name, stay);
            }
            "end" => {
                if let Some(stay) = stays.remove(line.text("name")) {
                    stay.end().await;
                }
            }
            "crowd" => {
                let own = line.number("own") == 1;
                let key = line.text("key");
                crowd.extend((0..line.number("count")).map(|number| {
                    let key = if own { format!("{key}:{number}") } else { key.to_owned() };
                    Stay::begin(peer, &key, None, None)
                }));
                if own {
                    for stay in &mut crowd {
                        stay.taken().await;
                    }
                }
                say("crowded");
            }
            "wait" => {
                let key = line.text("key");
                waits.extend(
                    (0..line.number("count"))
                        .map(|number| Stay::begin(peer, &format!("{key}:{number}"), None, None)),
                );
                say("waiting");
            }
            "disperse" => {
                for wait in waits.drain(..).map(Stay::end).collect::<Vec<_>>() {
                    wait.await;
                }
            }
            what => panic!("not understood: {what}"),
        }
    }
}

/// Reads lines on a dedicated thread: a blocking read on the runtime would keep it from ending.
fn input() -> mpsc::UnboundedReceiver<String> {
    let (lines, input) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    input
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // The driver is gone.
    if writeln!(output, "{line}").and_then(|()| output.flush()).is_err() {
        std::process::exit(0);
    }
}

/// The machine-wide clock, ns.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
