//! A survey of all held or awaited locks.

use std::time::Duration;

use lockcore::operate::BusyLock;
use lockcore::{LockError, Locks};
use tokio::time::Instant;

/// The maximum number of locks in a survey. For each lock, the servers inspect the first holder and
/// the first waiter.
const MOST: usize = 20_000;

/// The busy locks (held, or with waiters) at a moment in time.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) locks: Vec<BusyLock>,
    /// True if there are more locks than a survey includes.
    pub(crate) is_cut: bool,
    /// The number of names whose keys belong to another program, or to another version of lockcore.
    pub(crate) unreadable: u64,
    /// The first error of a server. If there is one, some or all locks are missing.
    pub(crate) trouble: Option<LockError>,
    /// The duration of a ping to the server; `None` if it failed.
    pub(crate) ping: Option<Duration>,
    pub(crate) took: Duration,
    pub(crate) at: Instant,
}

impl Look {
    /// Surveys the locks on all servers. A server that cannot respond does not hide the locks of
    /// the others.
    pub(crate) async fn at(locks: &Locks) -> Self {
        let began = Instant::now();
        // One error per server, not one per page.
        let mut errors = locks.status().servers.len().max(1);
        let (ping, trouble) = match locks.ping().await {
            Ok(()) => (Some(began.elapsed()), None),
            Err(error) => {
                errors -= 1;
                (None, Some(error))
            }
        };
        let (took, at) = (Duration::ZERO, began);
        let (is_cut, unreadable) = (false, 0);
        let mut look = Self { locks: Vec::new(), is_cut, unreadable, trouble, ping, took, at };
        let mut survey = locks.survey();
        while errors > 0 {
            match survey.next_page().await {
                Ok(Some(page)) => {
                    look.locks.extend(page.into_iter().map(|lock| named(locks, lock)))
                }
                Ok(None) => break,
                Err(error) => {
                    look.trouble.get_or_insert(error);
                    errors -= 1;
                }
            }
            if look.locks.len() > MOST {
                look.locks.truncate(MOST);
                look.is_cut = true;
                break;
            }
        }
        look.unreadable = survey.unreadable();
        look.took = began.elapsed();
        look.at = Instant::now();
        look
    }

    /// Returns the total number of waiters.
    pub(crate) fn waiting(&self) -> u64 {
        self.locks.iter().map(|lock| lock.inspection.waiting).sum()
    }
}

/// Replaces the name in the store with the name used by commands.
fn named(locks: &Locks, mut lock: BusyLock) -> BusyLock {
    let name = lock.lock.as_deref().and_then(|stored| locks.key_of(stored));
    lock.lock = name.or(lock.lock);
    lock
}

/// Returns the name used by commands, or the name in the store if commands cannot name the lock.
pub(crate) fn name(lock: &BusyLock) -> &str {
    lock.lock.as_deref().unwrap_or_default()
}
