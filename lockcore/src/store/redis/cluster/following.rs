//! The topology refresh for a Redis Cluster: queries which primaries there are, opens shards for
//! new primaries, and closes shards that were replaced.
//!
//! # Implementation notes
//!
//! - The core is notified when a slot moves to another shard, or a shard's server is replaced,
//!   because the slot then belongs to another lane, that is to the requests and timers for another
//!   server. The core then renews all holds, touches all waiters, and repeats the leaves of members
//!   that ended recently in such a slot. Slots may move one by one, so each refresh reports all
//!   moves together.
//! - A shard that lost its slots stays open for a while, because its last grants still arrive as
//!   messages.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client::topology::{self, Address, Primary, Report};
use client::{ConnectAttempt, Connector, Pace, Timeouts};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use proto::layout::QUEUE;
use proto::{Link, LockErrorKind, LockName};
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::slots::{Shard, Slots};
use super::{ClusterSettings, Shared};
use crate::foreign;
use crate::store::Store as _;
use crate::store::redis::{RedisSettings, RedisStore, Role};
use crate::types::error::LockError;
use crate::types::key::LockKey;

/// Time between two topology queries while all primaries respond.
const REFRESH_PERIOD: Duration = Duration::from_secs(2);
/// Time between two topology queries while a primary does not respond. The primary may be replaced
/// at any moment.
const FAULT_REFRESH_PERIOD: Duration = Duration::from_millis(250);
/// Shortest time between two topology queries.
const LEAST: Duration = Duration::from_millis(100);
/// How long a server may take to return the topology before another server is queried. A slower
/// server may be frozen.
const ANOTHER: Duration = Duration::from_millis(500);
/// How long a replaced shard stays open, because the last grants of the shard still arrive.
const RETIRED: Duration = Duration::from_secs(60);
/// Maximum number of lock names that are tried until a name is found in a primary's slots.
const MAX_PROBES: u32 = 1_000_000;
/// Number of characters of a server's Cluster id that are part of the server's channel names.
const NAMED: usize = 8;

impl Shared {
    /// Publishes the connection states of the Cluster: each counts as up if it is up at any primary
    /// that serves a slot. The core then reads the lane of each slot again.
    fn publish_links(&self) {
        self.publish(&self.slots());
    }

    /// Does the same, with the slots locked by the caller.
    fn publish(&self, slots: &Slots) {
        let links = |of: fn(&Shard) -> &watch::Receiver<Link>| {
            let mut links = slots.serving().map(|shard| of(shard).borrow().clone());
            let first = links.next().unwrap_or_else(|| Link::down("no primary serves any slot"));
            // Up while any primary is up: the others only fail their own requests.
            if first.is_up() || links.any(|link| link.is_up()) { Link::Up } else { first }
        };
        let (commands, subscription) =
            (links(|shard| &shard.commands), links(|shard| &shard.subscription));
        self.subscription.send_replace(subscription);
        self.commands.send_replace(commands);
    }

    /// Notifies the core if another server has replaced the shard's server at the same address, or
    /// the server has restarted: it may have lost the last releases.
    ///
    /// Called before the core receives a reply from the new server. The core would take the reply
    /// as a sign that the former server has lived until now.
    pub(super) fn note_server(&self, shard: &Arc<Shard>) {
        let mut slots = self.slots();
        if slots.renew_if_replaced(shard) {
            // Under the mutex: a task that finds the lane renewed passes a reply to the core next.
            self.publish(&slots);
        }
    }

    /// Returns the connection settings for the server at this address. Other than the address, they
    /// are the settings of the first seed.
    fn reach(&self, Address { host, port }: Address) -> ConnectionInfo {
        let first = &self.seeds[0];
        let address = match first.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        first.clone().set_addr(address)
    }

    fn connector(&self, info: ConnectionInfo) -> Result<Connector, LockError> {
        let ClusterSettings { tls, credentials, timeouts, .. } = &self.settings;
        let connector = Connector::new(info, tls, *timeouts)?;
        Ok(connector.with_credentials(credentials.clone()))
    }

    /// Connects to a primary, and returns the new shard together with the primary.
    pub(super) async fn open(
        self: &Arc<Self>,
        primary: Primary,
    ) -> Result<(Arc<Shard>, Primary), LockError> {
        let settings = &self.settings;
        let server_time = Arc::default();
        let name: String = primary.id.chars().take(NAMED).collect();
        let of_shard = RedisSettings {
            connector: self
                .connector(self.reach(primary.place.clone()))?
                .with_primary(primary.id.clone()),
            node: settings.node.clone(),
            prefix: format!("{}:grants:{name}", settings.prefix).into(),
            label: settings.label.clone(),
            namespace: settings.namespace.clone(),
            probe: self.probe(&primary)?,
            request_timeout: settings.timeouts.request,
            layout: QUEUE,
            confirmation: settings.confirmation,
            server_time: Arc::clone(&server_time),
            role: Role::Shard,
        };
        let store = RedisStore::connect(of_shard, Arc::clone(&self.listener)).await;
        let store = store.map_err(|error| error.at(&primary.place))?;
        let shard = Arc::new(Shard::new(&primary, store, server_time));
        tokio::spawn(watch_links(Arc::clone(self), Arc::clone(&shard)));
        Ok((shard, primary))
    }

    /// Returns a lock name in the primary's slots that is not used otherwise, to check the user's
    /// rights. `None` if the primary has no slots, or no name was found.
    fn probe(&self, primary: &Primary) -> Result<Option<LockName>, LockError> {
        let ClusterSettings { node, namespace, .. } = &self.settings;
        for number in 0..MAX_PROBES {
            if primary.slots.is_empty() {
                break;
            }
            let key = LockKey::new(format!("lockcore-preflight-{node}-{number}"))?;
            let name = key.resolve(namespace.as_deref());
            if primary.slots.iter().any(|slots| slots.contains(&name.slot())) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Assigns the primary's slots to this shard, and records the primary's addresses. Adds the
    /// shard first, unless it is already open.
    pub(super) fn take_in(&self, shard: &Arc<Shard>, primary: &Primary) {
        let mut slots = self.slots();
        if !slots.open().any(|open| Arc::ptr_eq(open, shard)) {
            slots.add(shard);
        }
        shard.note_addresses(primary);
        let mut has_moved = false;
        for slot in primary.slots.iter().cloned().flatten() {
            has_moved |= slots.give(slot, shard);
        }
        if has_moved {
            self.has_moved.store(true, Ordering::Release);
        }
    }

    /// Queries the servers given by the user for the primaries, for the first time. Each has the
    /// connection timeout of the application; while one takes longer than [`ANOTHER`], the next is
    /// queried, too. Returns the first answer, or the first error if none answers.
    pub(super) async fn query_first(&self) -> Result<Vec<Primary>, LockError> {
        let mut seeds = self.seeds.iter();
        let mut queries = FuturesUnordered::new();
        let mut refused = None;
        loop {
            let query = |seed: &ConnectionInfo| self.query_at(seed.clone(), ConnectAttempt::first);
            queries.extend(seeds.next().map(query));
            match tokio::time::timeout(ANOTHER, queries.next()).await {
                Ok(Some(Ok(report))) => return Ok(report.primaries),
                Ok(Some(Err(error))) => refused = refused.or(Some(error)),
                Ok(None) => return Err(refused.expect("there is a seed")),
                Err(_) => {}
            }
        }
    }

    /// Queries the servers given by the user for the primaries, one after the other, and then the
    /// servers at the addresses in `known`. Returns the first answer that names a known server.
    /// Without such an answer, returns the first one from a server given by the user, because the
    /// Cluster may have been set up anew; or the first error.
    async fn query_addresses(&self, known: &[Arc<Shard>]) -> Result<Vec<Primary>, LockError> {
        // By now, another Cluster may have some address. In ours, a known primary may be a replica.
        let is_ours =
            |report: &Report| known.is_empty() || known.iter().any(|shard| report.has(&shard.id));
        let places = known.iter().map(|shard| self.reach(shard.address()));
        let (mut of_seed, mut refused) = (None, None);
        for (number, info) in self.seeds.iter().cloned().chain(places).enumerate() {
            match self.query_at(info, ConnectAttempt::brief).await {
                Ok(report) if is_ours(&report) => return Ok(report.primaries),
                Ok(report) if number < self.seeds.len() => {
                    of_seed = of_seed.or(Some(report.primaries));
                }
                Ok(_) => {}
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        of_seed.ok_or_else(|| refused.expect("a seed has an answer or an error"))
    }

    /// Queries a server for the primaries, on a connection opened for this query only.
    async fn query_at(
        &self,
        info: ConnectionInfo,
        attempt: fn(Timeouts) -> ConnectAttempt,
    ) -> Result<Report, LockError> {
        let address = info.addr().clone();
        let connector = self.connector(info)?;
        let attempt = attempt(connector.timeouts());
        let connection = connector.questions(self.settings.timeouts.request, &attempt).await?;
        let (host, is_tls) = match &address {
            ConnectionAddr::TcpTls { host, .. } => (host.as_str(), true),
            ConnectionAddr::Tcp(host, _) => (host.as_str(), false),
            _ => return Err(super::not_by_tcp()),
        };
        let asked = topology::Asked { host, is_tls };
        let report = topology::report(&connection, asked).await;
        report.map_err(|error| LockError::from(error).at(&address))
    }

    /// Queries the Cluster for its primaries. The open connections are tried first, beginning with
    /// shards that respond, and with a different shard at each `turn`. If all fail, the seeds and
    /// all known servers are tried on new connections.
    async fn query_primaries(&self, turn: usize) -> Result<Vec<Primary>, LockError> {
        let is_tls = matches!(self.seeds[0].addr(), ConnectionAddr::TcpTls { .. });
        let known: Vec<_> = self.slots().open().cloned().collect();
        // Not the replaced shards: a replaced primary that is cut off from the others still reports
        // itself as the primary.
        let mut up: Vec<_> = self.slots().in_use().cloned().collect();
        up.retain(|shard| shard.commands.borrow().is_up());
        let first = turn % up.len().max(1);
        up.rotate_left(first);
        up.sort_by_key(|shard| !shard.answers());
        for shard in up {
            let asked = topology::Asked { host: &shard.place.host, is_tls };
            let report = topology::report(&shard.store.server.link, asked);
            match tokio::time::timeout(ANOTHER, report).await {
                Ok(Ok(report)) => return Ok(report.primaries),
                Ok(Err(error)) => {
                    let reason = &error.detail;
                    foreign::log(
                        || debug!(at = %shard.place, %reason, "a primary returned no topology"),
                    );
                }
                Err(_) => foreign::log(
                    || debug!(at = %shard.place, "a primary returned no topology in time"),
                ),
            }
        }
        self.query_addresses(&known).await
    }

    /// Waits until the topology is due to be queried, and queries it. `None` if no server returned
    /// it.
    async fn next_topology(&self, turn: usize) -> Option<Vec<Primary>> {
        tokio::time::sleep(LEAST).await;
        let are_well = self.slots().serving().all(|shard| shard.answers());
        let pause = if are_well { REFRESH_PERIOD } else { FAULT_REFRESH_PERIOD };
        let _ = tokio::time::timeout(pause, self.outdated.notified()).await;
        let queried = self.query_primaries(turn).await;
        let log = |error: &_| foreign::log(|| debug!(%error, "no server returned the topology"));
        queried.inspect_err(log).ok()
    }

    /// Returns the open shard for this primary; `None` if one has to be opened.
    fn shard_of(&self, primary: &Primary) -> Option<Arc<Shard>> {
        self.newest_of(primary).filter(|shard| shard.had_slots || primary.slots.is_empty())
    }

    /// Returns the newest open shard for this primary, if the primary is still at the same address.
    fn newest_of(&self, primary: &Primary) -> Option<Arc<Shard>> {
        // Only the newest: two older ones, at two addresses that the servers report in turn, would
        // take the slots from each other for ever.
        let newest = self.slots().open().find(|shard| shard.id == primary.id).cloned();
        newest.filter(|shard| shard.is_still_at(&primary.place))
    }

    /// Notifies the core of moved slots. Also fails the pending requests to replaced primaries at
    /// once, because a replaced primary may be frozen and never reply.
    fn notify_moved(&self, primaries: &[Primary]) {
        // A shard that was opened before its primary had slots is replaced once the next is open:
        // until then it carries the renewals of slots that move there.
        let shards: Vec<_> =
            primaries.iter().filter_map(|primary| self.newest_of(primary)).collect();
        let is_primary = |shard: &Shard| shards.iter().any(|of| std::ptr::eq(&**of, shard));
        let replaced = self.slots().replaced(is_primary, Instant::now());
        for shard in replaced {
            shard.store.server.link.give_up("another server serves the slots");
        }
        if self.has_moved.swap(false, Ordering::AcqRel) {
            self.publish_links();
        }
    }

    fn is_any_up(&self) -> bool {
        let slots = self.slots();
        let is_up = |of: fn(&Shard) -> &watch::Receiver<Link>| {
            slots.serving().any(|shard| of(shard).borrow().is_up())
        };
        is_up(|shard| &shard.commands) && is_up(|shard| &shard.subscription)
    }
}

/// The last topology, and the shards that are being opened for it.
struct TopologyRefresh {
    shared: Arc<Shared>,
    primaries: Vec<Primary>,
    /// Kept from one topology to the next: a primary that cannot be reached would delay it by the
    /// connection timeout.
    opening: FuturesUnordered<BoxFuture<'static, (Target, Opened)>>,
    /// The primaries in `opening`.
    targets: Vec<Target>,
    /// The primaries that could not be opened yet.
    refusals: HashMap<Target, Refusal>,
}

/// The failed attempts to open a primary.
struct Refusal {
    /// The kind of the last error; `None` before the first.
    kind: Option<LockErrorKind>,
    pace: Pace,
    /// When the primary may be tried again. Each attempt is a login at the server, and redirects
    /// refresh the topology up to ten times a second.
    until: Instant,
}

/// A primary's id and address.
type Target = (String, Address);
type Opened = Result<(Arc<Shard>, Primary), LockError>;

impl TopologyRefresh {
    /// Moves the slots, opens shards for new primaries, and closes replaced shards.
    fn update(&mut self, primaries: Vec<Primary>) {
        for primary in &primaries {
            match self.shared.shard_of(primary) {
                Some(shard) => self.shared.take_in(&shard, primary),
                None => self.open(primary.clone()),
            }
        }
        self.primaries = primaries;
        self.refusals.retain(|(id, _), _| self.primaries.iter().any(|other| other.id == *id));
        self.shared.notify_moved(&self.primaries);
        let retired = self.shared.slots().retire(Instant::now().checked_sub(RETIRED));
        for shard in retired {
            shard.store.close();
        }
    }

    /// Begins to open a shard, unless it is being opened already, or was refused just now.
    fn open(&mut self, primary: Primary) {
        let target = (primary.id.clone(), primary.place.clone());
        let is_refused = |refusal: &Refusal| Instant::now() < refusal.until;
        if self.targets.contains(&target) || self.refusals.get(&target).is_some_and(is_refused) {
            return;
        }
        self.targets.push(target.clone());
        let shared = Arc::clone(&self.shared);
        self.opening.push(async move { (target, shared.open(primary).await) }.boxed());
    }

    /// Takes in a shard that was opened for this topology or an earlier one.
    fn opened(&mut self, target: Target, opened: Opened) {
        self.targets.retain(|other| *other != target);
        let shard = match opened {
            Ok((shard, _)) => shard,
            Err(error) => return self.refused(target, &error),
        };
        self.refusals.retain(|(id, _), _| *id != shard.id);
        let primary = self.primaries.iter().find(|primary| primary.id == shard.id);
        // By now it may be no primary any more, or be open at another address.
        match primary.filter(|primary| self.shared.shard_of(primary).is_none()) {
            Some(primary) => {
                self.shared.take_in(&shard, primary);
                self.shared.notify_moved(&self.primaries);
                foreign::log(|| debug!(at = %shard.place, "connected to a Cluster primary"));
            }
            None => shard.store.close(),
        }
    }

    /// Records that a primary could not be opened, and when to try again. Logs a warning, unless
    /// the attempt before had an error of this kind, too.
    fn refused(&mut self, target: Target, error: &LockError) {
        let new = || Refusal {
            kind: None,
            pace: Pace::new(self.shared.settings.timeouts),
            until: Instant::now(),
        };
        let refusal = self.refusals.entry(target).or_insert_with(new);
        let is_known = refusal.kind.replace(error.kind()) == Some(error.kind());
        refusal.until = Instant::now() + refusal.pace.refused();
        foreign::log(|| match is_known {
            true => debug!(%error, "a Cluster primary still cannot be used"),
            false => warn!(%error, "a Cluster primary cannot be used"),
        });
    }
}

/// Refreshes the topology until the store is closed.
pub(super) async fn refresh_topology(shared: Arc<Shared>) {
    let mut refresh = TopologyRefresh {
        shared: Arc::clone(&shared),
        primaries: Vec::new(),
        opening: FuturesUnordered::new(),
        targets: Vec::new(),
        refusals: HashMap::new(),
    };
    let work = async {
        for turn in 0.. {
            let mut next = pin!(shared.next_topology(turn));
            let primaries = loop {
                tokio::select! {
                    primaries = &mut next => break primaries,
                    Some((target, opened)) = refresh.opening.next() => {
                        refresh.opened(target, opened);
                    }
                }
            };
            if let Some(primaries) = primaries {
                refresh.update(primaries);
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = shared.closed.cancelled() => {}
    }
}

/// Watches a shard's connection states. Notifies the core when this shard is up again, or when no
/// shard is up any more.
async fn watch_links(shared: Arc<Shared>, shard: Arc<Shard>) {
    let (mut commands, mut subscription) = (shard.commands.clone(), shard.subscription.clone());
    let work = async {
        loop {
            tokio::select! {
                changed = commands.changed() => if changed.is_err() { return },
                changed = subscription.changed() => if changed.is_err() { return },
            }
            let is_commands_up = commands.borrow_and_update().is_up();
            let is_up = subscription.borrow_and_update().is_up() && is_commands_up;
            if !is_up {
                shared.outdated.notify_one();
            }
            shared.note_server(&shard);
            let was_commands_up = shared.commands.borrow().is_up();
            let was_up = shared.subscription.borrow().is_up() && was_commands_up;
            // While other shards are up, a lost connection changes nothing for them.
            if is_up || !was_up || !shared.is_any_up() {
                shared.publish_links();
            }
            shared.server_links.send_replace(());
        }
    };
    tokio::select! {
        () = work => {}
        () = shard.store.closed.cancelled() => {}
        () = shared.closed.cancelled() => {}
    }
}
