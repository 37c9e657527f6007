//! The questions of operators that a [`Locks`] answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::future::join_all;

use crate::api::locks::Locks;
use crate::operate::hottest::{Heat, HotHour};

/// The maximum number of nodes of one look.
const MOST: usize = 256;

impl Locks {
    /// The names that were hottest on this node in each of the last 24 hours, the newest first:
    /// those that were refused most often (because they were busy, their queue was full, the wait
    /// was over or would have been too long, or a newer request came) and those with the longest
    /// waits. Hours without any are left out. Does not ask the server.
    ///
    /// They are counted from when the `Locks` was built. Waits below 10 ms are not looked at, and
    /// neither are waits for the server alone, except on a quorum.
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

    /// The number of refusals by class, whatever their reason, since this `Locks` was built. Does
    /// not ask the server.
    pub fn refused_by_class(&self) -> BTreeMap<Arc<str>, u64> {
        self.heat().refused_by_class()
    }

    fn heat(&self) -> &Heat {
        match &self.quorum {
            None => &self.node.observer.heat,
            Some(primaries) => &primaries.observer.heat,
        }
    }

    /// Tells in which process each of these [nodes](crate::operate::Participant::node) runs, as
    /// `host:pid`, whatever the labels of its requests are. For operators.
    ///
    /// A node says so once it has held or waited for a second, and every 20 s while it does; the
    /// store forgets it after a minute. Left out are nodes that have not said it, nodes whose user
    /// lacks the [right](crate::guide::redis), nodes whose server cannot answer, and all nodes but
    /// the first 256. In memory no node says it: all run in this process. On a
    /// [quorum](crate::guide::quorum), each primary that is reached is asked.
    ///
    /// Host names are shown also where [`redact_names`](crate::LocksBuilder::redact_names) is set,
    /// which is about names of locks. Escape control characters before you print one: any client
    /// with the right may have written it.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// let found = locks.inspect("order:42").await?;
    /// let nodes = found.holders.iter().filter_map(|holder| holder.node.as_deref());
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
        let nodes: BTreeSet<_> = nodes.into_iter().map(|node| node.as_ref().to_owned()).collect();
        let asked: Vec<_> = match &self.quorum {
            None => vec![&self.node],
            Some(primaries) => primaries.reached().collect(),
        };
        let each = nodes.iter().take(MOST).flat_map(|node| {
            asked.iter().map(async move |asked| {
                let told = asked.in_time(asked.store.process_of(node)).await;
                Some((node.clone(), told.ok()??))
            })
        });
        join_all(each).await.into_iter().flatten().collect()
    }
}
