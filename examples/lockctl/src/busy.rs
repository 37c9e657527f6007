//! A survey of all held or awaited locks.

use std::time::Duration;

use lockcore::operate::BusyLock;
use lockcore::{LockError, Locks};
use tokio::time::Instant;

/// The maximum number of locks in a [`Look`]. For each lock, the servers read the first holder and
/// the first waiter.
const MOST: usize = 20_000;

/// The busy locks on all servers at a moment in time: the locks that are held, or have waiters.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) locks: Vec<BusyLock>,
    /// True if there are more than [`MOST`] busy locks, so that `locks` has only some of them.
    pub(crate) is_cut: bool,
    /// The number of names whose keys belong to another program, or to another version of lockcore.
    pub(crate) unreadable: u64,
    /// The first error of a server, if any. Some or all locks are then missing from `locks`.
    pub(crate) trouble: Option<LockError>,
    /// How long a server took to reply to a ping; `None` if the ping failed.
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

/// Replaces the lock's name in the store with the key that commands accept, if there is one.
fn named(locks: &Locks, mut lock: BusyLock) -> BusyLock {
    let name = lock.lock.as_deref().and_then(|stored| locks.key_of(stored));
    lock.lock = name.or(lock.lock);
    lock
}

/// Returns the key that commands accept for the lock, or the name in the store if there is none.
pub(crate) fn name(lock: &BusyLock) -> &str {
    lock.lock.as_deref().unwrap_or_default()
}
