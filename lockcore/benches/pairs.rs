//! The work that `scripts/instructions --pairs` counts: pairs of an acquire and a release of
//! free locks, by many tasks at once, on one thread.
//!
//!     pairs URL TASKS PAIRS
#![allow(missing_docs)]

use lockcore::Locks;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, tasks, pairs] = arguments.as_slice() else {
        // Cargo starts every bench so.
        return;
    };
    let [tasks, pairs]: [u32; 2] = [tasks, pairs].map(|number| number.parse().expect("a number"));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let locks = Locks::connect(url.as_str()).await.expect("the server is up");
        let mut working = JoinSet::new();
        for task in 0..tasks {
            let locks = locks.clone();
            working.spawn(async move {
                let key = format!("shop:order:{task:04}");
                for _ in 0..pairs {
                    let guard = locks.lock(&*key).await.expect("it is free");
                    guard.release().await.expect("it was held");
                }
            });
        }
        while let Some(done) = working.join_next().await {
            done.expect("no task panics");
        }
    });
}
