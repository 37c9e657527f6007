//! A crowd of several processes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use lock_tests::{Monitor, MonitorLine, lock_key, queue_key};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::primaries::{MAX_LEASE, SOON, Three};

const KEY: &str = "crowd";
const PROCESSES: usize = 4;
const TASKS: usize = 16;
const TURNS: usize = 8;

/// The label of one of our members, `~2<node>:<number>:<lease>:w:<label>`.
fn label(member: &str) -> Option<&str> {
    member.trim_start_matches(['+', '-']).strip_prefix("~2")?.splitn(5, ':').nth(4)
}

/// The labels in the order of their first appearance on the server: queued, or granted at once.
fn arrivals(lines: &[MonitorLine]) -> Vec<String> {
    let (queue, lock_key) = (queue_key(KEY), lock_key(KEY));
    let mut seen = HashSet::new();
    let is_arrival = |line: &&MonitorLine| {
        (line.is("ZADD") && line.text(1) == queue)
            || ((line.is("PSETEX") || line.is("SET")) && line.text(1) == lock_key)
    };
    let texts = lines.iter().filter(is_arrival);
    texts
        .flat_map(|line| (2..line.args.len()).map(|at| line.text(at)))
        .filter_map(|text| label(&text).map(str::to_owned))
        .filter(|label| seen.insert(label.clone()))
        .collect()
}

// Four processes of sixteen tasks each: one after the other, in the order of arrival at the first
// primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_served_in_the_order_in_which_the_first_primary_saw_it() {
    let three = Three::begun().await;
    let monitor = Monitor::start(three.0[0].address());
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for process in 0..PROCESSES {
        let locks = three.locks().await;
        for task in 0..TASKS {
            let (locks, served) = (locks.clone(), Arc::clone(&served));
            tasks.spawn(async move {
                for turn in 0..TURNS {
                    let label = format!("{process}.{task}.{turn}");
                    let request = locks.key(KEY).lease(MAX_LEASE).label(&label);
                    let guard = request.lock().await.expect("granted");
                    let token = guard.fencing_token().get();
                    served.lock().unwrap_or_else(PoisonError::into_inner).push((label, token));
                    guard.release().await.expect("held");
                }
            });
        }
    }
    timeout(4 * SOON, tasks.join_all()).await.expect("everyone is served");
    let arrived = arrivals(&monitor.stop());
    let served = served.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(served.len(), PROCESSES * TASKS * TURNS);
    assert!(served.is_sorted_by(|(_, one), (_, next)| one < next), "tokens rise");
    let served: Vec<&String> = served.iter().map(|(label, _)| label).collect();
    let overtaken = arrived.iter().zip(&served).position(|(arrived, served)| arrived != *served);
    assert_eq!((overtaken, arrived.len()), (None, served.len()));
}
