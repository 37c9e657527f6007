//! The engine behind a `Locks`: what its futures, guards and background tasks share.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::error::{LockErrorKind, StoreError};
use crate::heartbeat;
use crate::in_flight::{self, InFlight};
use crate::member::{Label, NodeId};
use crate::options::LockOptions;
use crate::passed_over::PassedOver;
use crate::reaper::Reaper;
use crate::store::{Event, Listener, Store};
use crate::waiters::Waiters;
use crate::waiting::Room;
use crate::watchdog::{self, Holds};

/// What was chosen for all locks of one `Locks`.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) label: Label,
    pub(crate) defaults: LockOptions,
    pub(crate) confirm_grants: bool,
    pub(crate) redact_names: bool,
    pub(crate) request_timeout: Duration,
    pub(crate) redisson_peers: bool,
    pub(crate) waiting: Room,
}

/// Everything of one node. Lives as long as a handle, a future or a guard of it.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) node: NodeId,
    pub(crate) settings: Settings,
    pub(crate) runtime: Handle,
    pub(crate) reaper: Reaper,
    /// May be locked before `holds`, never after it, and never while the store is called.
    waiters: Mutex<Waiters>,
    holds: Mutex<Holds>,
    pub(crate) in_flight: InFlight,
    pub(crate) heartbeat_wake: Arc<Notify>,
    pub(crate) watchdog_wake: Arc<Notify>,
    closed: AtomicBool,
    next_number: AtomicU64,
    pub(crate) places_lost: AtomicU64,
    pub(crate) warned_of_foreign: AtomicBool,
    pub(crate) passed_over: PassedOver,
    started: Instant,
    /// ms after `started`.
    last_success: AtomicU64,
}

impl Engine {
    /// Starts the background tasks on `runtime`. `inbox` is what the store was told to talk to.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        node: NodeId,
        settings: Settings,
        runtime: Handle,
        inbox: &Inbox,
    ) -> Arc<Self> {
        let engine = Arc::new_cyclic(|weak| Self {
            reaper: Reaper::start(Arc::clone(&store), Weak::clone(weak), &runtime),
            store,
            node,
            settings,
            runtime: runtime.clone(),
            waiters: Mutex::new(Waiters::new()),
            holds: Mutex::new(Holds::new()),
            in_flight: InFlight::new(),
            heartbeat_wake: Arc::new(Notify::new()),
            watchdog_wake: Arc::new(Notify::new()),
            closed: AtomicBool::new(false),
            next_number: AtomicU64::new(1),
            places_lost: AtomicU64::new(0),
            warned_of_foreign: AtomicBool::new(false),
            passed_over: PassedOver::default(),
            started: Instant::now(),
            last_success: AtomicU64::new(0),
        });
        inbox.open(&engine);
        runtime.spawn(heartbeat::run(Arc::downgrade(&engine)));
        runtime.spawn(watchdog::run(Arc::downgrade(&engine)));
        runtime.spawn(in_flight::run(Arc::downgrade(&engine)));
        engine
    }

    pub(crate) fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs to its end whoever stops waiting for it.
    pub(crate) fn spawn(&self, request: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(request);
    }

    /// Runs a request to its end, in this engine's runtime.
    pub(crate) async fn complete<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let ended = || StoreError::refused(LockErrorKind::Closed, "its runtime has ended");
        self.in_flight.add(request, &self.runtime).await.unwrap_or_else(|| Err(ended()))
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// From now on nothing begins.
    pub(crate) fn close(&self) {
        // Under this lock, so that no attempt begins after all were ended.
        let _waiters = self.waiters();
        self.closed.store(true, Ordering::Release);
    }

    /// A script has just succeeded.
    pub(crate) fn succeeded(&self) {
        let since_start = self.started.elapsed().as_millis() as u64;
        self.last_success.store(since_start, Ordering::Relaxed);
    }

    /// When a script last succeeded.
    pub(crate) fn last_success(&self) -> Instant {
        self.started + Duration::from_millis(self.last_success.load(Ordering::Relaxed))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The tasks find the engine gone and end; the reaper ends when its work is done.
        self.heartbeat_wake.notify_one();
        self.watchdog_wake.notify_one();
        self.in_flight.wake();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("node", &self.node)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// Where a store's messages go: made before the store, opened once the engine is there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inbox(Arc<OnceLock<Weak<Engine>>>);

impl Inbox {
    fn open(&self, engine: &Arc<Engine>) {
        let _ = self.0.set(Arc::downgrade(engine));
    }
}

impl Listener for Inbox {
    fn hear(&self, event: Event) {
        // Before the engine is there nothing waits, and after it nothing can.
        let Some(engine) = self.0.get().and_then(Weak::upgrade) else { return };
        match event {
            Event::Granted { member, token, left_ms } => engine.pushed(&member, token, left_ms),
            Event::Revoked { member } => engine.revoked(&member),
            Event::Poked { member } => engine.poked(member),
            Event::Resubscribed => engine.check_all(),
        }
    }
}
