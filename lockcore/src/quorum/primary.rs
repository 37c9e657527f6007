//! One primary of a quorum: when it is reached, and from when on it counts.
//!
//! # Implementation notes
//!
//! - A primary that has restarted or was emptied may have forgotten holds whose guards are valid.
//!   Until their leases are over it counts for nothing: it is not reached. The link tells of a
//!   restart before a command goes to the server. An emptied one refuses each acquire of a process
//!   that does not know yet, since its counter of tokens is gone.
//! - The store notes the server's time with each look at its standing, and the last look comes
//!   after that time is over. So the tokens that are drawn from then on are above all that the
//!   server may have forgotten, if the clocks of the primaries differ by less than the longest
//!   lease.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use proto::{FencingToken, LockErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::View;
use crate::node::{Node, NodeGuard, until};
use crate::store::{Links, Standing};
use crate::types::error::LockError;

/// A primary is reached after this time with its connections, and no longer after this time
/// without.
const SETTLING: Duration = Duration::from_secs(1);

/// The time between two warnings of one primary.
const WARNING: Duration = Duration::from_secs(60);

/// A primary that is connected. It has no standing where it refuses to tell it.
pub(crate) type Connected = (Arc<Node>, Option<Standing>);

/// Connects to a primary.
pub(crate) type Connect =
    Box<dyn Fn() -> BoxFuture<'static, Result<Connected, LockError>> + Send + Sync>;

/// One primary, as one process has it.
#[derive(Debug)]
pub(crate) struct Primary {
    shared: Arc<SharedPrimary>,
    _following: AbortOnDropHandle<()>,
}

struct SharedPrimary {
    at: usize,
    /// Nothing until it was connected to for the first time.
    node: OnceLock<Arc<Node>>,
    quarantine: Duration,
    view: Arc<watch::Sender<View>>,
    refusal: Mutex<Refusal>,
}

/// The reason why a primary does not count.
#[derive(Default)]
struct Refusal {
    error: Option<LockError>,
    /// The moment of the last warning.
    warned: Option<Instant>,
}

/// A hold at one primary.
pub(crate) struct Step {
    pub(crate) guard: NodeGuard,
    /// The number of its server, which was known before the hold was asked for.
    pub(crate) server: u64,
    /// The last number that its counter has drawn for the hold.
    pub(crate) drawn: FencingToken,
}

impl Step {
    /// A hold that was just granted.
    pub(crate) fn new(guard: NodeGuard, server: u64) -> Self {
        let drawn = guard.fencing_token();
        Self { guard, server, drawn }
    }
}

impl Primary {
    /// Follows the primary at this place of the list, on this runtime.
    pub(crate) fn follow(
        at: usize,
        (connected, connect): (Option<Connected>, Connect),
        quarantine: Duration,
        view: Arc<watch::Sender<View>>,
        runtime: &Handle,
    ) -> Self {
        let (node, refusal) = (OnceLock::new(), Mutex::default());
        let shared = Arc::new(SharedPrimary { at, node, quarantine, view, refusal });
        // In a process that has just started it is reached at once.
        let server = connected.and_then(|connected| shared.begin(connected));
        // Made here, and not on the first poll: the runtime may drop the task before it polls it.
        let end = RuntimeEnd(Arc::clone(&shared));
        let following = runtime.spawn(async move { end.0.run(connect, server).await });
        Self { shared, _following: AbortOnDropHandle::new(following) }
    }

    /// Its node, once it was connected to.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.shared.node.get()
    }

    /// The error for which it does not count, if it has refused.
    pub(crate) fn refusal(&self) -> Option<LockError> {
        let error = self.shared.refusal().error.clone()?;
        (error.kind() != LockErrorKind::Unavailable).then_some(error)
    }

    /// Whether the hold is certain, and its primary is not known to have forgotten anything since
    /// it was asked for.
    pub(crate) fn has(&self, step: &Step) -> bool {
        let is_same = |node: &Arc<Node>| node.store.servers() == step.server;
        self.node().is_some_and(is_same) && !step.guard.is_lost()
    }
}

impl SharedPrimary {
    async fn run(&self, connect: Connect, mut server: Option<u64>) {
        let node = self.connected(connect).await;
        let mut links = Links::of(&*node.store);
        loop {
            if let Some(server) = server.take() {
                self.until_over(node, server, &mut links).await;
                self.tell(None);
            }
            links.until(true).await;
            tokio::select! {
                biased;
                () = links.until(false) => {}
                begun = self.settled(node) => {
                    self.tell(Some(begun));
                    server = Some(begun);
                }
            }
        }
    }

    /// Takes in a connection. Returns the number of its server, if that counts already.
    fn begin(&self, (node, standing): Connected) -> Option<u64> {
        let _ = self.node.set(node);
        let counts = standing.filter(|standing| standing.age >= self.quarantine);
        let server = counts.map(|standing| standing.server);
        self.tell(server);
        server
    }

    fn tell(&self, server: Option<u64>) {
        self.view.send_modify(|view| view.set(self.at, server));
    }

    fn refusal(&self) -> MutexGuard<'_, Refusal> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why the primary does not count, and warns once in a while.
    fn refused(&self, error: LockError) {
        let mut refusal = self.refusal();
        if refusal.warned.is_none_or(|warned| warned.elapsed() >= WARNING) {
            refusal.warned = Some(Instant::now());
            warn!(primary = self.at + 1, %error, "a primary of the quorum does not count");
        }
        refusal.error = Some(error);
    }

    async fn connected(&self, connect: Connect) -> &Arc<Node> {
        loop {
            if let Some(node) = self.node.get() {
                return node;
            }
            match connect().await {
                Ok((node, _)) => {
                    self.refusal().error = None;
                    drop(self.node.set(node));
                }
                Err(error) => {
                    self.refused(error);
                    sleep(SETTLING).await;
                }
            }
        }
    }

    /// Completes once it was there for a while, and all leases are over that it may have forgotten.
    async fn settled(&self, node: &Arc<Node>) -> u64 {
        sleep(SETTLING).await;
        let mut watched: Option<(u64, Instant)> = None;
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
                    // Its clock may have been set back since it was marked: this one counts, too.
                    let age = age.max(asked.saturating_duration_since(since));
                    if age >= self.quarantine {
                        return server;
                    }
                    let pause = self.quarantine - age;
                    warn!(primary = self.at + 1, ?pause, "a primary may have forgotten holds");
                    pause
                }
                Err(error) => {
                    self.refused(LockError::of_store(error));
                    SETTLING
                }
            };
            sleep(pause).await;
        }
    }

    /// Completes when the primary is not reached any more, or is another server.
    async fn until_over(&self, node: &Arc<Node>, server: u64, links: &mut Links) {
        let mut down_since = None;
        while node.store.servers() == server {
            match links.is_up() {
                true => down_since = None,
                false => drop(down_since.get_or_insert_with(Instant::now)),
            }
            let away = down_since.map(|since| since + SETTLING);
            tokio::select! {
                biased;
                () = until(away) => return,
                () = links.changed() => {}
            }
        }
    }
}

/// Tells those that wait for a primary that nothing comes any more: the runtime drops its task.
struct RuntimeEnd(Arc<SharedPrimary>);

impl Drop for RuntimeEnd {
    fn drop(&mut self) {
        self.0.view.send_modify(|view| view.is_closed = true);
    }
}

impl std::fmt::Debug for SharedPrimary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Primary").field("at", &self.at).finish_non_exhaustive()
    }
}
