//! [`Locks`] methods for operators.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::join_all;

use crate::api::locks::Locks;
use crate::operate::hottest::{Heat, HotHour};

/// The maximum number of nodes in a call of [`Locks::processes`], beyond which further nodes are
/// left out.
const MOST: usize = 256;

impl Locks {
    /// Returns the hottest names of this `Locks` and all clones, for each hour in the last 24,
    /// newest first: the most refused names (busy lock, full queue, wait over or too long, or a
    /// newer request) and the names with the longest waits. Hours without any are left out. Sends
    /// no request.
    ///
    /// Counting begins when the `Locks` is built. Waits below 10 ms are ignored. So are waits of
    /// requests that were never queued, because they waited only for the server; on a quorum they
    /// are included.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let _guard = locks.lock("order:42").await?;
    /// assert!(locks.try_lock("order:42").await?.is_none());
    /// for hour in locks.hottest() {
    ///     println!("{:?} ago: {:?}, {:?}", hour.began, hour.refused, hour.waited);
    /// }
    /// # assert_eq!(locks.hottest()[0].refused[0].lock.as_deref(), Some("order:42"));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn hottest(&self) -> Vec<HotHour> {
        self.heat().hottest(self.redacts_names())
    }

    /// Returns the number of refused acquisitions for each [class](crate::LockRequest::class),
    /// since this `Locks` was built: the sum of all causes in the metric
    /// [`lockcore_refused_total`](crate::guide::observability). Sends no request.
    pub fn refused_by_class(&self) -> BTreeMap<Arc<str>, u64> {
        self.heat().refused_by_class()
    }

    fn heat(&self) -> &Heat {
        &self.backend.observer().heat
    }

    /// Returns the process, as `host:pid`, for each of these [node
    /// ids](crate::operate::Participant::node). For operators, because a
    /// [label](crate::LockRequest::label) may be set to another text than the process.
    ///
    /// A node publishes its process once it has held or waited for a second, and every 20 s while
    /// it does; the record expires after a minute. Left out are nodes without a record, nodes whose
    /// Redis user lacks the [right](crate::guide::redis) to publish it, nodes whose server does not
    /// respond, and all but the first 256. The in-memory store has no records: all nodes run in
    /// this process. On a [quorum](crate::guide::quorum), all reachable primaries are queried.
    ///
    /// [`redact_names`](crate::LocksBuilder::redact_names) applies to lock names, not to host
    /// names. Escape control characters before printing: any client with the right may have written
    /// the record.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let found = locks.inspect("order:42").await?;
    /// let nodes = found.holders.iter().filter_map(|holder| holder.node.as_ref());
    /// for (node, process) in locks.processes(nodes).await {
    ///     println!("{node} is {process}");
    /// }
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn processes<N: AsRef<str>>(
        &self,
        nodes: impl IntoIterator<Item = N>,
    ) -> HashMap<String, String> {
        // In the caller's order, which has holders before waiters.
        let mut seen = HashSet::new();
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|node| node.as_ref().to_owned())
            .filter(|node| seen.insert(node.clone()))
            .take(MOST)
            .collect();
        let asked = self.backend.reached();
        let each = nodes.iter().flat_map(|node| {
            asked.iter().map(async move |asked| {
                let process = asked.in_time(asked.store.process_of(node)).await;
                Some((node.clone(), process.ok()??))
            })
        });
        join_all(each).await.into_iter().flatten().collect()
    }
}
