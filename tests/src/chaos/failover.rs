//! Failovers by real sentinels under load, one after the other, and what each cost: leases that
//! overlapped, updates that were lost, tokens that fell, places that were lost, and for how long
//! nothing was granted, at all and under one name. The load is locks, reads, writes and permits.
//!
//! It has a judge of its own: the others follow every command of one server, and here another takes
//! its place.

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

/// Of each primary.
const REPLICAS: u32 = 2;
/// The load runs for so long before a fault,
const BEFORE: Duration = Duration::from_secs(1);
/// and after the new primary is there.
const AFTER: Duration = Duration::from_secs(3);

/// What is to be run.
#[derive(Debug, Clone)]
pub struct FailoverPlan {
    /// In turns.
    pub faults: Vec<Fault>,
    /// How many in all.
    pub count: usize,
    /// How many replicas a grant waits for, of two.
    pub replicas: u32,
    /// Whether every server takes writes only while a replica follows it.
    pub careful: bool,
}

/// One failover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// Its fault, with a `+` if another failover came by itself: the sentinels may have seen a
    /// fault where there was none.
    kind: String,
    replicas: u32,
    careful: bool,
    /// From the fault until another server was the primary.
    promoted_ms: u64,
    cost: Cost,
}

impl FailoverPlan {
    /// Runs them, and tells of each.
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
