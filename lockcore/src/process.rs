//! The process of a node, as an operator finds it: `host:pid`.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::join_all;

use crate::locks::Locks;

/// The maximum number of nodes of one look.
const MOST: usize = 256;

/// `host:pid` of this process.
pub(crate) fn of_this() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "unknown".into());
    format!("{}:{}", host.trim(), std::process::id())
}

impl Locks {
    /// Tells in which process each of these [nodes](crate::Participant::node) runs, as `host:pid`,
    /// whatever the labels of its requests are. For operators.
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
