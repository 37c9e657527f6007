//! `Shared`: the state shared by all connections of a proxy.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Connections;
use super::connection::Connection;
use super::fault::{Action, Fault, Request};
use super::gates::Gates;
use super::next_version::NextVersion;

/// The server, the waiting faults, and the open connections.
pub(super) struct Shared {
    pub(super) server: SocketAddr,
    pub(super) gates: Gates,
    pub(super) version: Option<NextVersion>,
    /// The number of requests passed on.
    pub(super) requests: AtomicU64,
    /// The number of replies and messages passed on.
    pub(super) replies: AtomicU64,
    accepted: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    armed: Mutex<Vec<Armed>>,
}

/// A fault that waits for its request; released before that, it does nothing.
type Armed = (Fault, Box<dyn Fn(&Request) -> bool + Send>);

impl Shared {
    pub(super) fn new(server: SocketAddr, version: Option<NextVersion>) -> Self {
        Self {
            server,
            version,
            gates: Gates::default(),
            requests: AtomicU64::new(0),
            replies: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            open: Mutex::default(),
            armed: Mutex::default(),
        }
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Adds a connection; returns its number.
    pub(super) fn enlist(&self, connection: Arc<Connection>) -> u64 {
        let number = self.accepted.fetch_add(1, Ordering::SeqCst);
        lock(&self.open).insert(number, connection);
        number
    }

    pub(super) fn strike_off(&self, number: u64) {
        lock(&self.open).remove(&number);
    }

    pub(super) fn matching(&self, which: Connections) -> Vec<Arc<Connection>> {
        let open = lock(&self.open);
        open.values().filter(|connection| which.include(connection.subscribed())).cloned().collect()
    }

    pub(super) fn arm(
        &self,
        action: Action,
        matching: impl Fn(&Request) -> bool + Send + 'static,
    ) -> Fault {
        let fault = Fault::new(action);
        lock(&self.armed).push((fault.clone(), Box::new(matching)));
        fault
    }

    /// Takes the first fault that matches the request; it is no longer armed.
    pub(super) fn take_fault(&self, request: &Request, subscribed: bool) -> Option<Fault> {
        let mut armed = lock(&self.armed);
        armed.retain(|(fault, _)| fault.waits());
        let index = armed.iter().position(|(fault, matching)| {
            // Messages of a RESP2 subscription look like replies, so that replies cannot be
            // counted.
            !(fault.action().is_on_reply() && subscribed) && matching(request)
        })?;
        Some(armed.remove(index).0)
    }
}

/// Locks a mutex; a panic while locked would be a bug of the harness.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic in a lock")
}
