//! A look at all locks that are held or waited for.

use std::time::Duration;

use lockcore::operate::BusyLock;
use lockcore::{LockError, Locks};
use tokio::time::Instant;

/// Most locks of one look. Each costs the servers an inspection of its first holder and waiter.
const MOST: usize = 20_000;

/// The busy locks at one time.
#[derive(Debug)]
pub(crate) struct Look {
    pub(crate) locks: Vec<BusyLock>,
    /// There are more locks than one look takes in.
    pub(crate) is_cut: bool,
    /// The first error: some locks, or all of them, are missing then.
    pub(crate) trouble: Option<LockError>,
    /// A round trip to the server.
    pub(crate) ping: Option<Duration>,
    pub(crate) took: Duration,
    pub(crate) at: Instant,
}

impl Look {
    /// Looks at the locks of all servers. One that cannot answer does not hide those of the others.
    pub(crate) async fn at(locks: &Locks) -> Self {
        let began = Instant::now();
        // An error for each server, and not one for each page of it.
        let mut errors = locks.status().servers.len().max(1);
        let (ping, trouble) = match locks.ping().await {
            Ok(()) => (Some(began.elapsed()), None),
            Err(error) => {
                errors -= 1;
                (None, Some(error))
            }
        };
        let (took, at) = (Duration::ZERO, began);
        let mut look = Self { locks: Vec::new(), is_cut: false, trouble, ping, took, at };
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
        look.took = began.elapsed();
        look.at = Instant::now();
        look
    }

    /// The number of all that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.locks.iter().map(|lock| lock.inspection.waiting).sum()
    }
}

/// The lock with the name by which commands acquire it, in place of that in the store.
fn named(locks: &Locks, mut lock: BusyLock) -> BusyLock {
    let name = lock.lock.as_deref().and_then(|stored| locks.key_of(stored));
    lock.lock = name.or(lock.lock);
    lock
}

/// The name by which commands acquire the lock; that in the store if no name has it.
pub(crate) fn name(lock: &BusyLock) -> &str {
    lock.lock.as_deref().unwrap_or_default()
}
