//! A quorum primary: when it is reachable, and from when on it counts towards a majority.
//!
//! # Implementation notes
//!
//! - A primary that has restarted, was emptied or is another server under the same address may have
//!   lost holds whose guards are valid, or never had them. Until the leases of such holds are over,
//!   the primary does not count, and is treated as unreachable. Another run of the server is
//!   noticed before a command is sent to the server. An emptied primary refuses each acquire from a
//!   process that has not noticed, because the token counter is gone.
//! - Each check of how long a primary has kept its data records the server's time, and later tokens
//!   are above that time. The last check comes after those leases are over. So later tokens are
//!   above all tokens the server may have lost, if the clocks of the primaries differ by less than
//!   the longest lease.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use proto::{FencingToken, LockErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::view::View;
use crate::foreign;
#[cfg(feature = "metrics")]
use crate::node::set_primary;
use crate::node::{Node, NodeGuard, Settings, until};
use crate::operate::status::{Connection, ServerStatus};
use crate::store::{Links, Standing};
use crate::types::error::LockError;

/// How long a primary must be connected until this process treats it as reachable, and disconnected
/// until this process treats it as unreachable.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// The minimum time between two warnings about the same primary.
const WARNING: Duration = Duration::from_secs(60);

/// A connected primary's node, and how long the server has kept its data, or why this is
/// unknown.
pub(crate) type Connected = (Arc<Node>, Result<Standing, LockError>);

/// A function that connects to a primary; called again after each failure.
pub(crate) type Connect =
    Box<dyn Fn() -> BoxFuture<'static, Result<Connected, LockError>> + Send + Sync>;

/// A primary at the start of the process.
pub(crate) struct NewPrimary {
    /// The address, which may be empty for an in-memory primary.
    pub(crate) address: String,
    /// The node, or why the primary was not connected to.
    pub(crate) connected: Result<Connected, LockError>,
    /// Connects later, if the primary was not connected to.
    pub(crate) connect: Connect,
}

/// A primary as this process sees it. A task watches it until the `Primary` is dropped.
#[derive(Debug)]
pub(crate) struct Primary {
    shared: Arc<SharedPrimary>,
    _watching: AbortOnDropHandle<()>,
}

struct SharedPrimary {
    /// The index of the primary in the list.
    at: usize,
    address: String,
    /// When the process started to watch the primary.
    since: Instant,
    /// The primary's node; unset until the first connection.
    node: OnceLock<Arc<Node>>,
    /// The settings of that node.
    settings: Settings,
    /// How long the primary must have kept its data before it counts towards a majority.
    quarantine: Duration,
    /// The view of all primaries. It contains this primary's server number while the primary counts
    /// towards a majority.
    view: Arc<watch::Sender<View>>,
    /// Why the primary does not count towards a majority, if it has failed.
    refusal: Mutex<Refusal>,
}

/// Why a primary does not count towards a majority, and when this was last logged.
#[derive(Default)]
struct Refusal {
    /// The last error; `None` once the primary has responded without an error.
    error: Option<LockError>,
    /// When the last warning about the primary was logged.
    warned: Option<Instant>,
}

/// The lock held at one primary: a part of a quorum hold.
pub(crate) struct Step {
    pub(crate) guard: NodeGuard,
    /// The primary's server number before the acquire was sent. If the primary has another number,
    /// it may have lost the hold, which then does not count.
    pub(crate) server: u64,
    /// The last number drawn from the primary's token counter for this hold, by the grant or by a
    /// later confirmation.
    pub(crate) drawn: FencingToken,
}

impl Step {
    /// Creates the step for a new grant, whose token is the last number drawn.
    pub(crate) fn new(guard: NodeGuard, server: u64) -> Self {
        let drawn = guard.fencing_token();
        Self { guard, server, drawn }
    }
}

impl Primary {
    /// Starts to watch the primary at index `at`: a task on `runtime` connects to it, and sets the
    /// server number in `view` while it is reachable and counts. `settings` are the settings of its
    /// node.
    pub(crate) fn watch(
        at: usize,
        NewPrimary { address, connected, connect }: NewPrimary,
        settings: Settings,
        quarantine: Duration,
        view: Arc<watch::Sender<View>>,
        runtime: &Handle,
    ) -> Self {
        let refusal = Refusal { error: connected.as_ref().err().cloned(), warned: None };
        let (node, refusal, since) = (OnceLock::new(), Mutex::new(refusal), Instant::now());
        let shared =
            SharedPrimary { at, address, since, node, settings, quarantine, view, refusal };
        let shared = Arc::new(shared);
        // In a process that has just started, a connected primary is reachable at once, without
        // `STABLE_AFTER`.
        let server = connected.ok().and_then(|connected| shared.begin(connected));
        shared.publish(server);
        // Created here, and not in the first poll: the runtime may drop the task before polling it.
        let end = RuntimeEnd(Arc::clone(&shared));
        let watching = runtime.spawn(async move { end.0.run(connect, server).await });
        Self { shared, _watching: AbortOnDropHandle::new(watching) }
    }

    /// Returns the node, or `None` before the first connection.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.shared.node.get()
    }

    /// Returns the server's status, with an address; nothing for an in-memory store. If the
    /// primary does not count, both connections are shown as down.
    pub(crate) fn status(&self, counts: bool) -> Vec<ServerStatus> {
        let Some(node) = self.node() else { return vec![self.away()] };
        let mut servers = node.store.server_status();
        for server in servers.iter_mut().filter(|server| server.is_connected() && !counts) {
            let refusal = self.refusal().map(|error| error.to_string());
            let reason = refusal.unwrap_or_else(|| {
                format!(
                    "connected, but does not count yet: {}",
                    counts_after(self.shared.quarantine)
                )
            });
            server.commands = Connection::Down { reason: reason.clone() };
            server.subscription = Connection::Down { reason };
        }
        servers
    }

    /// Returns the status of the server before the first connection.
    fn away(&self) -> ServerStatus {
        let SharedPrimary { address, since, .. } = &*self.shared;
        let error = self.shared.refusal().error.clone();
        let reason = error.map_or_else(|| "not connected yet".to_owned(), |it| it.to_string());
        ServerStatus {
            address: address.clone(),
            commands: Connection::Down { reason: reason.clone() },
            subscription: Connection::Down { reason },
            silent_for: since.elapsed(),
            unanswered: None,
            slots: None,
        }
    }

    /// Returns true if both connections are up.
    pub(crate) fn is_connected(&self) -> bool {
        self.node().is_some_and(|node| Links::of(&*node.store).is_up())
    }

    /// Returns the error with which the primary refuses requests of this quorum; `None` if it does
    /// not refuse them, or is merely unavailable.
    pub(crate) fn refusal(&self) -> Option<LockError> {
        let error = self.shared.refusal().error.clone()?;
        (error.kind() != LockErrorKind::Unavailable).then_some(error)
    }

    /// Returns true if the hold is certain: the guard is not lost, and the primary is not known to
    /// have lost data since the acquire was sent.
    pub(crate) fn has(&self, step: &Step) -> bool {
        let is_same = |node: &Arc<Node>| node.store.servers() == step.server;
        self.node().is_some_and(is_same) && !step.guard.is_lost()
    }
}

/// Returns the text for people about the time after which a primary counts.
pub(super) fn counts_after(quarantine: Duration) -> String {
    format!("a started, emptied or replaced primary counts {quarantine:?} after the first contact")
}

impl SharedPrimary {
    /// Watches the primary until a shutdown, which closes only the nodes that exist. `server` is
    /// the server number if the primary counts.
    async fn run(&self, connect: Connect, server: Option<u64>) {
        let mut view = self.view.subscribe();
        tokio::select! {
            biased;
            _ = view.wait_for(|view| view.is_closed) => {}
            () = self.watch(connect, server) => {}
        }
        self.set_gauges(f64::NAN);
        let Some(node) = self.node.get() else { return };
        Links::of(&*node.store).until(false).await;
        self.view.send_modify(|view| view.set(self.at, None));
    }

    async fn watch(&self, connect: Connect, mut server: Option<u64>) {
        self.connect(connect).await;
        let Some(node) = self.node.get() else { return };
        let mut links = Links::of(&*node.store);
        let mut watched = server.map(|server| (server, Instant::now()));
        loop {
            if let Some(server) = server.take() {
                self.until_over(node, server, &mut links).await;
                self.publish(None);
            }
            links.until(true).await;
            tokio::select! {
                biased;
                () = links.until(false) => {}
                begun = self.until_counting(node, &mut watched) => {
                    self.publish(Some(begun));
                    server = Some(begun);
                }
            }
        }
    }

    /// Stores the first connection's node. Returns the server number if the server has kept
    /// its data for long enough to count.
    fn begin(&self, (node, standing): Connected) -> Option<u64> {
        let _ = self.node.set(node);
        match standing {
            Ok(Standing { server, age }) => (age >= self.quarantine).then_some(server),
            Err(error) => {
                self.refused(error);
                None
            }
        }
    }

    /// Sets the server number in the view, or `None` if the primary is unreachable or does not
    /// count, and the gauges.
    fn publish(&self, server: Option<u64>) {
        self.view.send_modify(|view| view.set(self.at, server));
        self.set_gauges(server.is_some().into());
    }

    /// Sets the gauges: `counts` is 1 if the primary counts, 0 if not, and NaN at the end.
    fn set_gauges(&self, counts: f64) {
        #[cfg(feature = "metrics")]
        set_primary(&self.settings, counts, self.node.get().is_none());
        #[cfg(not(feature = "metrics"))]
        let _ = (&self.settings, counts);
    }

    fn refusal(&self) -> MutexGuard<'_, Refusal> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the error as the reason why the primary does not count, and logs a warning unless
    /// one was logged within the last [`WARNING`] interval.
    fn refused(&self, error: LockError) {
        let mut refusal = self.refusal();
        refusal.error = Some(error.clone());
        if refusal.warned.is_none_or(|warned| warned.elapsed() >= WARNING) {
            refusal.warned = Some(Instant::now());
            drop(refusal);
            let primary = self.at + 1;
            foreign::log(|| warn!(primary, %error, "a quorum primary does not count"));
        }
    }

    /// Connects to the primary, unless it is connected.
    async fn connect(&self, connect: Connect) {
        while self.node.get().is_none() {
            match connect().await {
                Ok((node, _)) => {
                    self.refusal().error = None;
                    // Under the mutex of the view, so that a shutdown finds the node, or the node
                    // finds the view closed.
                    let mut node = Some(node);
                    self.view.send_if_modified(|view| {
                        if !view.is_closed {
                            let _ = node.take().map(|node| self.node.set(node));
                        }
                        false
                    });
                    if node.is_some() {
                        return;
                    }
                }
                Err(error) => {
                    self.refused(error);
                    sleep(STABLE_AFTER).await;
                }
            }
        }
    }

    /// Completes once the primary has been connected for [`STABLE_AFTER`], and all leases it may
    /// have lost are over. Returns the server number. `watched` is the number of the last server
    /// observed, and since when; it stays over a broken connection, because a server with the same
    /// number has lost no data.
    async fn until_counting(&self, node: &Arc<Node>, watched: &mut Option<(u64, Instant)>) -> u64 {
        sleep(STABLE_AFTER).await;
        loop {
            let asked = Instant::now();
            let standing = node.store.standing().await;
            if standing.is_ok() {
                self.refusal().error = None;
            }
            let pause = match standing {
                Ok(Standing { server, age }) => {
                    let same = watched.filter(|(before, _)| *before == server);
                    let (_, since) = *watched.insert(same.unwrap_or((server, Instant::now())));
                    // The server's clock may have been set back since it was marked, so our own
                    // clock counts, too.
                    let age = age.max(asked.saturating_duration_since(since));
                    if age >= self.quarantine {
                        return server;
                    }
                    let pause = self.quarantine - age;
                    let primary = self.at + 1;
                    foreign::log(|| {
                        warn!(
                            primary,
                            ?pause,
                            "a quorum primary may have lost holds, and does not count yet"
                        );
                    });
                    pause
                }
                Err(error) => {
                    self.refused(LockError::of_store(error));
                    STABLE_AFTER
                }
            };
            sleep(pause).await;
        }
    }

    /// Completes when the primary has been disconnected for [`STABLE_AFTER`], or is another server
    /// because it restarted or lost data.
    async fn until_over(&self, node: &Arc<Node>, server: u64, links: &mut Links) {
        let mut down_since = None;
        while node.store.servers() == server {
            match links.is_up() {
                true => down_since = None,
                false => drop(down_since.get_or_insert_with(Instant::now)),
            }
            let away = down_since.map(|since| since + STABLE_AFTER);
            tokio::select! {
                biased;
                () = until(away) => return,
                () = links.changed() => {}
            }
        }
    }
}

/// Marks the view as closed when dropped, and ends the gauges. The task of the primary owns this,
/// so when the runtime ends and drops the task, acquisitions fail instead of waiting.
struct RuntimeEnd(Arc<SharedPrimary>);

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        self.0.view.send_modify(|view| view.is_closed = true);
        self.0.set_gauges(f64::NAN);
    }
}

impl std::fmt::Debug for SharedPrimary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Primary").field("at", &self.at).finish_non_exhaustive()
    }
}
