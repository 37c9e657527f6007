//! Finds all locks that are held or waited for, page by page.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use futures_util::future::join_all;
use proto::layout::Ability;
use proto::{Answer, Command, LockErrorKind, LockName};

use crate::api::locks::Locks;
use crate::operate::inspection::LockInspection;
use crate::store::Search;
use crate::types::error::LockError;

/// The maximum number of locks on a page, which are inspected concurrently.
const PAGE: usize = 64;

/// The maximum number of holders, and of waiters, that a survey reads for each lock: one.
const MOST: NonZeroU32 = NonZeroU32::MIN;

/// A lock that is held or waited for; found by [`Locks::survey`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusyLock {
    /// The lock's name in the store, as in [`LockGuard::name`](crate::LockGuard::name). `None` with
    /// [`redact_names`](crate::LocksBuilder::redact_names).
    pub lock: Option<String>,
    /// The numbers of holders and waiters, and the first of each: the holder whose lease ends
    /// first, and the next waiter.
    pub inspection: LockInspection,
}

/// A search for busy locks; made by [`Locks::survey`]. Call [`next_page`](Self::next_page) until it
/// returns `None`.
pub struct Survey {
    locks: Locks,
    /// The servers still to be searched. The search of the first continues at `cursor`.
    searches: VecDeque<Arc<dyn Search>>,
    /// Where the search of the first server continues, as in `SCAN`; 0 at the beginning.
    cursor: u64,
    /// The names found by the search, which are still to be inspected.
    names: Vec<LockName>,
    /// All names found so far, to return each once: a server may return a key twice.
    found: HashSet<LockName>,
    /// The number of names skipped so far, returned by [`Survey::unreadable`].
    unreadable: u64,
}

impl Locks {
    /// Starts a search for the locks of this namespace that are held or waited for, by any process.
    /// On a [quorum](crate::guide::quorum), it searches the first reachable primary in the list.
    /// For operators. Sends no request until [`Survey::next_page`] is polled.
    ///
    /// ```
    /// # async fn example() -> Result<(), lockcore::LockError> {
    /// # let locks = lockcore::Locks::in_memory();
    /// # let guard = locks.lock("order:42").await?;
    /// let mut survey = locks.survey();
    /// let mut found = Vec::new();
    /// while let Some(page) = survey.next_page().await? {
    ///     found.extend(page);
    ///     if found.len() >= 1_000 {
    ///         break; // enough for a screen
    ///     }
    /// }
    /// found.sort_by_key(|lock| std::cmp::Reverse(lock.inspection.waiting));
    /// # assert_eq!(found[0].lock.as_deref(), Some(guard.name()));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn survey(&self) -> Survey {
        Survey {
            searches: self.backend.node_to_ask().store.searches(self.namespace()).into(),
            locks: self.clone(),
            cursor: 0,
            names: Vec::new(),
            found: HashSet::new(),
            unreadable: 0,
        }
    }
}

impl Survey {
    /// Returns the next locks found, at most 64 and unordered, or `Ok(None)` at the end. A page may
    /// be empty, because a step of the search may find only keys of other programs.
    ///
    /// Each page is a `SCAN` on a server, over about 1 000 keys, or an inspection of up to 64
    /// locks. On Redis 7.0 the server takes 7 ms for 10 000 keys, and 25 µs for each lock found.
    /// Stop when you have seen enough. Each lock was held or waited for when the page was read, and
    /// is returned once; locks that become busy or free meanwhile may be left out. The names found
    /// are kept until the survey is dropped.
    ///
    /// On a Redis Cluster, the servers are searched in turn. Keys of other programs are skipped; if
    /// named like a lock key, they count as [`unreadable`](Self::unreadable).
    ///
    /// # Errors
    /// [`LockError`] if a server does not respond. The next call continues after that page, or with
    /// the next server. [`Denied`](LockErrorKind::Denied) if the Redis user lacks the right
    /// `+scan`; [`Unsupported`](LockErrorKind::Unsupported) with
    /// [`redisson_peers`](crate::LocksBuilder::redisson_peers), because the keys of unnamed JVM
    /// locks cannot be distinguished from other programs' keys.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call reads the page again.
    pub async fn next_page(&mut self) -> Result<Option<Vec<BusyLock>>, LockError> {
        if !self.searches.is_empty() {
            let can = self.locks.backend.node().settings.can(Ability::Survey);
            can.inspect_err(|_| self.searches.clear())?;
        }
        if self.names.is_empty() {
            let Some(search) = self.searches.front() else { return Ok(None) };
            let step = self.locks.backend.node_to_ask().in_time(search.step(self.cursor)).await;
            let (names, cursor) = step.inspect_err(|_| self.search_next())?;
            self.cursor = cursor;
            if cursor == 0 {
                self.search_next();
            }
            let Self { names: unseen, found, .. } = self;
            unseen.extend(names.into_iter().filter(|name| found.insert(name.clone())));
        }
        let rest = self.names.len().saturating_sub(PAGE);
        let page = self.names[rest..].iter().map(|name| self.locks.look_at(name.clone()));
        let page = join_all(page).await;
        self.names.truncate(rest);
        let is_unreadable = |look: &Result<_, LockError>| {
            look.as_ref().is_err_and(|error| error.kind() == LockErrorKind::WrongType)
        };
        let (unreadable, page): (Vec<_>, Vec<_>) = page.into_iter().partition(is_unreadable);
        self.unreadable += unreadable.len() as u64;
        let page: Result<Vec<_>, _> = page.into_iter().filter_map(Result::transpose).collect();
        page.map(Some)
    }

    /// Returns the number of names skipped so far: their keys belong to another program, or to
    /// processes with another version of lockcore.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Ends the search of the first server, so that the next call begins at the next server, with
    /// cursor 0.
    fn search_next(&mut self) {
        self.cursor = 0;
        self.searches.pop_front();
    }
}

impl Locks {
    /// Inspects the lock with this name. Returns `Ok(None)` if it is free.
    async fn look_at(&self, name: LockName) -> Result<Option<BusyLock>, LockError> {
        let lock = (!self.redacts_names()).then(|| name.as_str().to_owned());
        let inspection = match self
            .backend
            .node_to_ask()
            .run_command(name, Command::Inspect { from: 0, most: MOST })
            .await
        {
            Ok(Answer::Inspected(inspection)) => LockInspection::new(inspection),
            Ok(_) => return Err(LockError::new(LockErrorKind::Protocol)),
            Err(error) => return Err(error),
        };
        let is_busy = !inspection.holders.is_empty() || inspection.waiting > 0;
        Ok(is_busy.then_some(BusyLock { lock, inspection }))
    }
}

impl fmt::Debug for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survey").field("found", &self.found.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::future::ready;
    use proto::StoreError;

    use super::*;
    use crate::store::StoreFuture;

    /// A fake server: each step of a search finds the same key.
    #[derive(Debug)]
    struct Repeating(LockName);

    impl Search for Repeating {
        fn step(&self, cursor: u64) -> StoreFuture<(Vec<LockName>, u64)> {
            let names = vec![self.0.clone(), self.0.clone()];
            ready(Ok((names, (cursor + 1) % 3))).boxed()
        }
    }

    /// A fake server that does not respond.
    #[derive(Debug)]
    struct Silent;

    impl Search for Silent {
        fn step(&self, _cursor: u64) -> StoreFuture<(Vec<LockName>, u64)> {
            ready(Err(StoreError::ambiguous("no answer"))).boxed()
        }
    }

    fn survey(locks: &Locks, searches: [Arc<dyn Search>; 2]) -> Survey {
        Survey { searches: searches.into(), ..locks.survey() }
    }

    #[tokio::test]
    async fn a_lock_that_servers_tell_again_and_again_is_told_once() {
        let locks = Locks::in_memory();
        let _guard = locks.lock("key").await.unwrap();
        let search = Arc::new(Repeating(LockName::from("key")));
        let mut survey = survey(&locks, [Arc::clone(&search) as _, search]);
        let mut pages = Vec::new();
        while let Some(page) = survey.next_page().await.unwrap() {
            pages.push(page.len());
        }
        assert_eq!(pages, [1, 0, 0, 0, 0, 0]);
    }

    #[tokio::test]
    async fn a_server_without_an_answer_keeps_no_other_from_its_own() {
        let locks = Locks::in_memory();
        let _guard = locks.lock("key").await.unwrap();
        let search = Arc::new(Repeating(LockName::from("key")));
        let mut survey = survey(&locks, [Arc::new(Silent), search]);
        let error = survey.next_page().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable);
        assert_eq!(survey.next_page().await.unwrap().map(|page| page.len()), Some(1));
    }
}
