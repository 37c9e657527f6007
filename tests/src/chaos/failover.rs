//! Failovers by real sentinels, or in a Redis Cluster, under load, one after the other, and the
//! cost of each: overlapping leases, lost updates, decreasing tokens, lost positions, and how long
//! nothing was granted, in total and per name. The load is locks, reads, writes and permits.
//!
//! This run has its own judge: the other judges follow every command of a single server, but here
//! another server replaces it.

pub(super) mod count;
mod fault;
mod line;
pub(super) mod load;
mod register;
mod scene;

use std::time::Duration;

pub use fault::Fault;
pub use line::failover_table;

use count::Cost;
use load::Load;
use scene::{OnCluster, OverSentinel, Scene};

/// The number of replicas per primary.
const REPLICAS: u32 = 2;
/// How long the load runs before a fault.
const BEFORE: Duration = Duration::from_secs(1);
/// How long the load runs after the promotion.
const AFTER: Duration = Duration::from_secs(3);

/// The failovers of a run.
#[derive(Debug, Clone)]
pub struct FailoverPlan {
    /// The faults, in turns.
    pub faults: Vec<Fault>,
    /// The total number of failovers.
    pub count: usize,
    /// How many of the two replicas must acknowledge a grant before a caller gets it.
    pub replicas: u32,
    /// True if every server accepts writes only while a replica follows it.
    pub careful: bool,
    /// True if the servers are a Redis Cluster with three primaries, which are replaced in turn.
    pub cluster: bool,
}

/// The record of one failover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// The fault, with a `+` if another failover happened by itself: the sentinels may have seen a
    /// fault where there was none.
    kind: String,
    replicas: u32,
    careful: bool,
    /// The time from the fault until another server was the primary.
    promoted_ms: u64,
    cost: Cost,
}

impl FailoverPlan {
    /// Runs the failovers, and passes each record to `report`.
    ///
    /// # Panics
    ///
    /// If the servers or sentinels fail to replace a primary.
    pub async fn run(&self, report: impl FnMut(Failover)) {
        match self.cluster {
            true => self.run_on(OnCluster::start().await, report).await,
            false => self.run_on(OverSentinel::start(self.careful).await, report).await,
        }
    }

    async fn run_on(&self, mut scene: impl Scene, mut report: impl FnMut(Failover)) {
        let Self { faults, count, replicas, careful, cluster } = self;
        for fault in faults.iter().cycle().take(*count) {
            let load = Load::start(&scene.url(), *replicas).await;
            tokio::time::sleep(BEFORE).await;
            let began = load.now();
            scene.break_by(*fault).await;
            let promoted = load.now();
            tokio::time::sleep(AFTER).await;
            let is_alone = scene.mend().await;
            let measured = load.stop().await;
            let place = if *cluster { "cluster-" } else { "" };
            let more = if is_alone { "" } else { "+" };
            report(Failover {
                kind: format!("{place}{fault}{more}"),
                replicas: *replicas,
                careful: *careful,
                promoted_ms: (promoted - began).as_millis() as u64,
                cost: count::cost(measured, began, promoted),
            });
        }
    }
}
