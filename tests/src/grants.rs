//! `Grants`: when locks were granted, by the server's clock. Tokens do not show it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{LIMIT, Monitor, RedisServer, Source, eventually_some, lock_key};

/// The grants of a server's locks from some time on.
#[derive(Clone)]
pub struct Grants {
    /// The exclusive holder and when it was granted the lock, µs, by lock key.
    seen: Arc<Mutex<HashMap<String, (String, u64)>>>,
    _monitor: Arc<Monitor>,
}

impl Grants {
    /// Watches all commands of the server from now on.
    #[must_use]
    pub fn watch(server: &RedisServer) -> Self {
        let seen: Arc<Mutex<HashMap<String, (String, u64)>>> = Arc::default();
        let monitor = Monitor::each(server.address(), {
            let seen = Arc::clone(&seen);
            move |line| {
                let member = line.text(3).trim_start_matches(['+', '-']).to_owned();
                if line.source != Source::Lua || !line.is("PSETEX") || !member.starts_with('~') {
                    return;
                }
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let grant = seen.entry(line.text(1)).or_default();
                if grant.0 != member {
                    *grant = (member, line.time_us);
                }
            }
        });
        Self { seen, _monitor: Arc::new(monitor) }
    }

    /// Returns when a member of this node was granted the lock that it holds now, in µs by the
    /// server's clock.
    ///
    /// # Panics
    ///
    /// If no member of the node holds it.
    pub async fn at(&self, lock: &str, node: &str) -> u64 {
        let lock_key = lock_key(lock);
        eventually_some("its grant is seen", LIMIT, async || {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let (member, at) = seen.get(&lock_key)?;
            member.contains(node).then_some(*at)
        })
        .await
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grants").finish_non_exhaustive()
    }
}
