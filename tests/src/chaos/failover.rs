//! Failovers by real sentinels under load, one after the other, and the cost of each: leases that
//! overlapped, updates that were lost, tokens that fell, places that were lost, and the time for
//! which nothing was granted, at all and under one name. The load is locks, reads, writes and
//! permits.
//!
//! This run has a judge of its own: the others follow every command of one server, and here another
//! takes its place.

mod count;
mod fault;
mod line;
mod load;
mod register;

use std::time::Duration;

pub use fault::Fault;
pub use line::failover_table;

use count::Cost;
use fault::Scene;
use load::Load;

/// The number of replicas of each primary.
const REPLICAS: u32 = 2;
/// The time for which the load runs before a fault.
const BEFORE: Duration = Duration::from_secs(1);
/// The time for which the load runs after the new primary is there.
const AFTER: Duration = Duration::from_secs(3);

/// The failovers of a run.
#[derive(Debug, Clone)]
pub struct FailoverPlan {
    /// The faults, in turns.
    pub faults: Vec<Fault>,
    /// The number of failovers in all.
    pub count: usize,
    /// The number of replicas that a grant waits for, of two.
    pub replicas: u32,
    /// Whether every server takes writes only while a replica follows it.
    pub careful: bool,
}

/// The record of one failover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// The name of its fault, with a `+` if another failover came by itself: the sentinels may have
    /// seen a fault where there was none.
    kind: String,
    replicas: u32,
    careful: bool,
    /// The time from the fault until another server was the primary.
    promoted_ms: u64,
    cost: Cost,
}

impl FailoverPlan {
    /// Runs the failovers, and passes each record to `tell`.
    ///
    /// # Panics
    ///
    /// If the servers and sentinels do not do what they are there for.
    pub async fn run(&self, mut tell: impl FnMut(Failover)) {
        let Self { faults, count, replicas, careful } = self;
        let mut scene = Scene::start(*careful).await;
        for fault in faults.iter().cycle().take(*count) {
            let load = Load::start(&scene.url(), *replicas).await;
            tokio::time::sleep(BEFORE).await;
            let began = load.now();
            scene.break_by(*fault).await;
            let promoted = load.now();
            tokio::time::sleep(AFTER).await;
            let is_alone = scene.mend().await;
            let measured = load.stop().await;
            tell(Failover {
                kind: if is_alone { fault.to_string() } else { format!("{fault}+") },
                replicas: *replicas,
                careful: *careful,
                promoted_ms: (promoted - began).as_millis() as u64,
                cost: count::cost(measured, began),
            });
        }
    }
}
