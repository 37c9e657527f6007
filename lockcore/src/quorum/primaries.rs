//! `Primaries`: the primaries of a quorum as one process sees them.

use std::fmt::{self, Write as _};
use std::iter::repeat_n;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use proto::node::Request;
use proto::{Command, ConfigError, LockErrorKind, LockName, Mode, WhenBusy};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::primary::{NewPrimary, Primary, counts_after};
use super::view::{Leads, MOST_LEADS, View};
use crate::api::shutdown::Shutdown;
use crate::node::{Node, Observer, RefusalPace, Settings, WaitLimit};
use crate::operate::inspection::LockInspection;
use crate::operate::status::{Connection, Status};
use crate::store::Links;
use crate::types::error::LockError;

/// The first *hop*: how long an acquisition that holds a primary waits for another primary before
/// it continues with the next. A pass over all primaries is a *round*.
pub(super) const HOP: Duration = Duration::from_millis(100);
/// The text of the error for permits, which a quorum refuses.
const NO_PERMITS: &str = "a quorum does not support permits: with a limit of two, three holders \
    could each hold a permit on two of three primaries";

/// The text of the error for waits with `KeepNewest`, which a quorum refuses.
const NO_NEWEST: &str = "a quorum does not support KeepNewest: requests may wait at different \
    primaries, and no primary knows the newest";

/// The settings of a quorum that its acquisitions need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The longest lease that a lock may have. A restarted or emptied primary may have lost leases
    /// of this length, so it does not count towards a majority until they are over.
    pub(crate) max_lease: Duration,
    /// How many primaries beyond a majority a new guard needs.
    pub(crate) spare: usize,
    pub(crate) request_timeout: Duration,
    pub(crate) max_waiting: u32,
}

/// The primaries of a quorum as this process sees them, with the state that is shared by all
/// acquisitions and holds of the process.
pub(crate) struct Primaries {
    /// The primaries, in list order.
    pub(super) members: Vec<Primary>,
    /// Which primaries are reachable. Updated by the task of each primary, and watched by
    /// acquisitions and holds.
    pub(super) view: Arc<watch::Sender<View>>,
    /// The [leads](Leads): the primary at which to queue first, for some locks. Watched by waiting
    /// acquisitions.
    pub(super) leads: watch::Sender<Leads>,
    pub(super) terms: Terms,
    /// Reports each request and hold of the quorum to logs and metrics, once for all primaries.
    pub(crate) observer: Observer,
    /// Limits the number of refusals per second while too few primaries are reachable, or
    /// `max_waiting` is reached.
    pub(super) refusals: RefusalPace,
    /// The permits of which each acquisition that may wait takes one, for its attempts at all
    /// primaries together: otherwise an acquisition could hold one primary, and be refused at the
    /// next because of the process's own waits there.
    pub(super) wait_limit: WaitLimit,
    pub(super) runtime: Handle,
    /// The number of clones is the number of acquisitions in progress: each has a clone.
    pub(super) waiting: Arc<()>,
    /// The number of clones is the number of holds: each has a clone, until it is released or lost.
    pub(super) holding: Arc<()>,
}

impl Primaries {
    /// Creates the primaries of this list. `settings` are the settings of any of their nodes.
    pub(crate) fn new(
        list: Vec<NewPrimary>,
        terms: Terms,
        observer: Observer,
        settings: &Settings,
        runtime: &Handle,
    ) -> Arc<Self> {
        let view = View::new(list.len(), list.len() / 2 + 1 + terms.spare);
        let view = Arc::new(watch::Sender::new(view));
        let quarantine = terms.quarantine();
        let start = |(at, primary): (usize, NewPrimary)| {
            let settings = Settings { primary: Some(at + 1), ..settings.clone() };
            Primary::watch(at, primary, settings, quarantine, Arc::clone(&view), runtime)
        };
        let members = (0..).zip(list).map(start).collect();
        let runtime = runtime.clone();
        let refusals = RefusalPace::default();
        let leads = watch::Sender::default();
        let wait_limit = WaitLimit::new(terms.max_waiting);
        let (waiting, holding) = (Arc::default(), Arc::default());
        Arc::new(Self {
            members,
            view,
            leads,
            terms,
            observer,
            refusals,
            wait_limit,
            runtime,
            waiting,
            holding,
        })
    }

    /// Returns an error for a request that quorums do not support, or with a lease above the
    /// `max_lease`.
    pub(crate) fn check(&self, request: &Request) -> Result<(), LockError> {
        if request.demand.is_permits() {
            return Err(LockError::with_detail(LockErrorKind::Unsupported, NO_PERMITS));
        }
        let options = &request.options;
        if request.mode == Mode::Wait && options.when_busy == WhenBusy::KeepNewest {
            return Err(LockError::with_detail(LockErrorKind::Unsupported, NO_NEWEST));
        }
        Ok(self.terms.check(options.lease)?)
    }

    pub(super) fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Returns the number of primaries a new guard needs.
    pub(super) fn wanted(&self) -> usize {
        self.view.borrow().wanted
    }

    /// Returns true if enough primaries for a new guard are reachable.
    pub(super) fn are_reached(&self) -> bool {
        self.view.borrow().lacking.is_none()
    }

    /// Returns the namespace, which all primaries share, or `None` if none is set.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.nodes().next()?.settings.namespace.as_deref()
    }

    /// Returns the server number of the primary at index `at`, or `None` if it is unreachable or
    /// does not count towards a majority.
    pub(super) fn server(&self, at: usize) -> Option<u64> {
        self.view.borrow().servers[at]
    }

    /// Returns the lead of this lock: the index of the primary at which this process queues first,
    /// because a crowd of other processes' requests waits there. `None` if this process queues at
    /// the lowest reachable primary first, because the lock has no lead or the lead is unreachable.
    pub(super) fn lead(&self, lock: &LockName) -> Option<usize> {
        let lead = self.leads.borrow().get(lock).copied();
        lead.filter(|at| self.server(*at).is_some())
    }

    /// Makes the primary at index `at` the lead of this lock, and notifies the waiting acquisitions
    /// if the lead has changed.
    pub(super) fn set_lead(&self, lock: &LockName, at: usize) {
        self.leads.send_if_modified(|leads| {
            if leads.len() >= MOST_LEADS {
                leads.clear();
            }
            leads.insert(lock.clone(), at) != Some(at)
        });
    }

    /// Removes the lead of this lock if it is the primary at index `at`, so that requests queue at
    /// the lowest reachable primary first again. Called if the lock was free at that primary, or if
    /// a request there failed.
    pub(super) fn clear_lead(&self, lock: &LockName, at: usize) {
        self.leads
            .send_if_modified(|leads| leads.get(lock) == Some(&at) && leads.remove(lock).is_some());
    }

    /// Returns the indices of the reachable primaries, in the order in which an acquisition without
    /// a hold queues: the lead of the lock first, and then in list order.
    pub(super) fn order(&self, lock: &LockName) -> Vec<usize> {
        let reached = (0..self.members.len()).filter(|at| self.server(*at).is_some());
        let mut order: Vec<usize> = reached.collect();
        if let Some(lead) = self.lead(lock) {
            order.sort_by_key(|at| *at != lead);
        }
        order
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.members.iter().filter_map(Primary::node)
    }

    /// Returns the nodes of reachable primaries.
    pub(crate) fn reached(&self) -> impl Iterator<Item = &Arc<Node>> {
        let servers = self.view.borrow().servers.clone();
        let reached = self.members.iter().zip(servers).filter(|(_, server)| server.is_some());
        reached.filter_map(|(primary, _)| primary.node())
    }

    /// Returns the node of the lowest reachable primary, or `None` if none is reachable.
    pub(crate) fn lowest(&self) -> Option<&Arc<Node>> {
        self.reached().next()
    }

    pub(super) fn closed(&self) -> LockError {
        let closed = || LockError::new(LockErrorKind::Closed);
        self.nodes().next().map_or_else(closed, |node| node.closed())
    }

    pub(super) fn unreached(&self) -> LockError {
        let (reached, all) = (self.view.borrow().reached(), self.members.len());
        let wanted = self.wanted();
        let mut detail = format!("{reached} of {all} primaries are usable, {wanted} are needed");
        let mut refusing = 0;
        for (place, primary) in (1..).zip(&self.members) {
            if let Some(error) = primary.refusal() {
                refusing += usize::from(primary.node().is_some());
                let _ = write!(detail, ". Primary {place} refuses: {error}");
            }
        }
        // A primary counts as reachable until it has been disconnected for a second.
        let connected = self.nodes().filter(|node| Links::of(&*node.store).is_up()).count();
        let connected = connected.saturating_sub(refusing);
        if let Some(young @ 1..) = connected.checked_sub(reached) {
            let _ = write!(
                detail,
                ". {young} more are connected but do not count yet: {}. If all primaries start for \
                 the first time, `lockctl quorum init` avoids this wait",
                counts_after(self.terms.quarantine())
            );
        }
        LockError::with_detail(LockErrorKind::Unavailable, detail)
    }

    /// Returns once a majority has replied: a primary that is away would delay a readiness probe.
    pub(crate) async fn ping(&self) -> Result<(), LockError> {
        let pings = self.nodes().map(async |node: &Arc<Node>| node.ping().await);
        let mut pings: FuturesUnordered<_> = pings.collect();
        let (mut replies, mut failure) = (0, None);
        while let Some(reply) = pings.next().await {
            match reply {
                Ok(_) => replies += 1,
                Err(error) => failure = Some(error),
            }
            if replies == self.majority() {
                return Ok(());
            }
        }
        Err(failure.unwrap_or_else(|| self.unreached()))
    }

    /// # Errors
    /// Fewer than a majority replied.
    pub(crate) async fn force_release(&self, lock: LockName) -> Result<bool, LockError> {
        let request = async |node: Arc<Node>| node.force_release(lock.clone()).await;
        let (released, failure) = request_each(self.nodes(), request).await;
        if released.len() < self.majority() {
            return Err(failure.unwrap_or_else(|| self.unreached()));
        }
        Ok(released.contains(&true))
    }

    /// Returns the holders at all reachable primaries, and the waiters at the lowest reachable
    /// primary.
    pub(crate) async fn inspect(
        &self,
        lock: LockName,
        command: Command,
    ) -> Result<LockInspection, LockError> {
        let request = async |node: Arc<Node>| node.inspect(lock.clone(), command.clone()).await;
        let (found, failure) = request_each(self.reached(), request).await;
        let most = match command {
            Command::Inspect { most, .. } => most.get() as usize,
            _ => usize::MAX,
        };
        let joined = LockInspection::of_quorum(found, self.members.len(), most);
        joined.ok_or_else(|| failure.unwrap_or_else(|| self.unreached()))
    }

    /// Returns the state of all primaries together. The connections are up while enough primaries
    /// for a guard are reachable.
    pub(crate) fn status(&self) -> Status {
        let link = match self.are_reached() {
            true => Connection::Up,
            false => Connection::Down { reason: self.unreached().to_string() },
        };
        let of_nodes: Vec<Status> = self.nodes().map(|node| node.status()).collect();
        let servers = self.view.borrow().servers.clone();
        let each = self.members.iter().zip(servers);
        Status {
            commands: link.clone(),
            subscription: link,
            waiting: Arc::strong_count(&self.waiting) - 1,
            holding: Arc::strong_count(&self.holding) - 1,
            releasing: of_nodes.iter().map(|status| status.releasing).sum(),
            positions_lost: of_nodes.iter().map(|status| status.positions_lost).sum(),
            servers: each.flat_map(|(one, server)| one.status(server.is_some())).collect(),
        }
    }

    pub(crate) async fn shut_down(&self, timeout: Duration) -> Shutdown {
        // The nodes cannot count these: an acquisition may wait at several primaries or at none,
        // and a hold that lacks a primary may wait there, too. Closing ends acquisitions at once.
        let waiters = Arc::strong_count(&self.waiting) - 1;
        let holding = Arc::strong_count(&self.holding) - 1;
        self.view.send_modify(|view| view.is_closed = true);
        let mut open: FuturesUnordered<_> =
            self.nodes().map(|node| node.shut_down(timeout)).collect();
        // The locks that a majority has released are free for others, so the other primaries only
        // have the time after which an acquisition passes them by.
        let others = self.members.len() - self.majority();
        let (mut over, mut end) = (Vec::new(), None);
        loop {
            if open.len() <= others {
                end.get_or_insert_with(|| Instant::now() + HOP);
            }
            let next = match end {
                Some(end) => timeout_at(end, open.next()).await.unwrap_or(None),
                None => open.next().await,
            };
            let Some(one) = next else { break };
            over.push(one);
        }
        let holds = over.iter().map(|one| one.holds).max().unwrap_or(0).min(holding);
        // A lock is kept from others only where more primaries than these have not released it.
        let mut unreleased: Vec<usize> = over.iter().map(|one| one.unreleased).collect();
        unreleased.extend(repeat_n(usize::MAX, open.len()));
        unreleased.sort_unstable_by(|a, b| b.cmp(a));
        let unreleased = unreleased.get(others).copied().unwrap_or(0);
        Shutdown { waiters, holds, unreleased }
    }
}

impl fmt::Debug for Primaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Primaries").field("members", &self.members).finish_non_exhaustive()
    }
}

/// Sends a request to each node concurrently, by a call of `request` for each. Returns the
/// responses, and the last error, if any.
async fn request_each<'a, T, F: Future<Output = Result<T, LockError>>>(
    nodes: impl Iterator<Item = &'a Arc<Node>>,
    request: impl Fn(Arc<Node>) -> F,
) -> (Vec<T>, Option<LockError>) {
    let mut failure = None;
    let mut answers = Vec::new();
    for answer in join_all(nodes.cloned().map(request)).await {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) => failure = Some(error),
        }
    }
    (answers, failure)
}

impl Terms {
    /// Returns an error if the lease is longer than `max_lease`. If a restarted primary has lost
    /// such a lease, it would count towards a majority before the lease is over.
    pub(crate) fn check(&self, lease: Duration) -> Result<(), ConfigError> {
        if lease > self.max_lease {
            let range = "at most the max_lease of the quorum";
            return Err(ConfigError::new("lease", format!("{lease:?}"), range));
        }
        Ok(())
    }

    /// Returns how long after the first contact a restarted, emptied or replaced primary counts
    /// towards a majority: once every lease it may have lost is over, with a margin for clock
    /// drift.
    fn quarantine(&self) -> Duration {
        self.max_lease + self.max_lease / 100 + Duration::from_secs(1)
    }
}
