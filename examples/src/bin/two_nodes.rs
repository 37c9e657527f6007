//! `cargo run -p lock-examples --bin two_nodes -- redis://127.0.0.1/`: two nodes in one queue, as
//! in two processes.
//!
//! Each has its own connections, watchdog and identity. Start it twice, and all four nodes share
//! the queue.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use lockcore::{LockError, Locks};
use tokio::task::JoinSet;

const TURNS: u32 = 5;

async fn work(name: String, locks: Locks) -> Result<(), LockError> {
    for turn in 1..=TURNS {
        let request = locks.key("two-nodes").label(&name).wait(Duration::from_secs(30));
        let guard = request.lock().await?;
        println!("{name}, turn {turn}: token {}", guard.fencing_token());
        tokio::time::sleep(Duration::from_millis(100)).await; // the work
        guard.release().await?;
    }
    locks.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let mut nodes = JoinSet::new();
    for name in ["left", "right"] {
        let name = format!("{name} of {}", std::process::id());
        let locks = Locks::builder().namespace("example").connect(url.as_str()).await?;
        nodes.spawn(work(name, locks));
    }
    // They alternate: after a release, each node queues again, behind the others.
    while let Some(ended) = nodes.join_next().await {
        ended.expect("a node does not panic")?;
    }
    Ok(())
}
