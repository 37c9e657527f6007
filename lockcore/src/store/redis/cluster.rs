//! The store on a Redis Cluster: each primary is a shard with connections of its own, and each lock
//! lives on the shard that serves its slot.
//!
//! # Implementation notes
//!
//! - A shard is the store of one server, with its own connections, subscription and times. So
//!   presence is what it is on one server: a script counts who listens at the primary that runs it.
//!   The channels name the server, because a Cluster carries each message to all of its servers.
//! - Nothing is sent twice blindly. A command is sent again here only after an answer that says
//!   that it did not run: see [`Route`]. After a connection that broke, or no answer in time,
//!   the core decides, as everywhere.
//! - A request never waits here for a connection that is down: the requests on their way have
//!   bounded places, and those for other primaries would wait behind it. The core asks again when
//!   told that a shard is up.
//! - The core is told that the server is another one when a slot is found at another shard or when
//!   a shard's server is another one: then it renews, touches and leaves anew. For the sake of
//!   slots that move one by one it is told of all of them together, by the next look.
//! - A shard that lost its slots stays open for a while, since grants of its last moments come as
//!   messages.

mod slots;
mod topology;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use proto::wire::Asked;
use proto::wire::redirect::{Place, Redirect, Route, Step};
use proto::{
    Answer, Answers, Command, Label, Link, LockErrorKind, LockName, Mode, NodeId, StoreError,
};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::slots::{Shard, Slots};
use self::topology::{Primary, Source};
use super::connector::Connector;
use super::wire::TimedWire;
use super::{Certificates, ReadAnswer, RedisSettings, RedisStore, Replicas};
use crate::cluster::Cluster;
use crate::credentials::Provider;
use crate::error::LockError;
use crate::key::LockKey;
use crate::status::ServerStatus;
use crate::store::{Listener, Store, StoreFuture};

/// The time after which a server is asked again which primary serves a slot,
const FOLLOW: Duration = Duration::from_secs(2);
/// and the time before which it is not.
const LEAST: Duration = Duration::from_millis(100);
/// The time after which another server is asked: the one before may stand still.
const ANOTHER: Duration = Duration::from_millis(500);
/// The time for which a shard without slots stays open.
const RETIRED: Duration = Duration::from_secs(60);
/// Most names that are tried for one in the slots of a shard.
const MAX_PROBES: u32 = 1_000_000;
/// The number of characters of a server's name that are part of its channels.
const NAMED: usize = 8;

/// The settings of a store on a Cluster.
pub(crate) struct ClusterSettings {
    pub(crate) certificates: Certificates,
    pub(crate) credentials: Provider,
    pub(crate) node: NodeId,
    /// First part of the grants channels.
    pub(crate) prefix: Arc<str>,
    /// The label of this node, for people.
    pub(crate) label: Label,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) request_timeout: Duration,
    pub(crate) replicas: Option<Replicas>,
}

/// One node's view of a Cluster.
pub(crate) struct ClusterStore(Arc<Shared>);

struct Shared {
    settings: ClusterSettings,
    listener: Arc<dyn Listener>,
    /// The nodes that are asked first.
    seeds: Vec<ConnectionInfo>,
    slots: Mutex<Slots>,
    /// Some slot was found elsewhere since the core was last told.
    has_moved: AtomicBool,
    /// Counts how often the core has to know that servers are others.
    servers: AtomicU64,
    commands: watch::Sender<Link>,
    subscription: watch::Sender<Link>,
    /// There is reason to ask again which primary serves a slot.
    outdated: Notify,
    closed: CancellationToken,
}

impl ClusterStore {
    /// All primaries that serve a slot are connected when this returns.
    pub(crate) async fn connect(
        cluster: &Cluster,
        settings: ClusterSettings,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, LockError> {
        let read = |url: &String| {
            let info = url.as_str().into_connection_info();
            info.ok().filter(|info| info.redis_settings().db() == 0)
        };
        let seeds: Option<Vec<_>> = cluster.nodes.iter().map(read).collect();
        let seeds = seeds.filter(|seeds| !seeds.is_empty()).ok_or_else(crate::cluster::invalid)?;
        let store = Self(Arc::new(Shared {
            settings,
            listener,
            seeds,
            slots: Mutex::new(Slots::new()),
            has_moved: AtomicBool::new(false),
            servers: AtomicU64::new(0),
            commands: watch::Sender::new(Link::Up),
            subscription: watch::Sender::new(Link::Up),
            outdated: Notify::new(),
            closed: CancellationToken::new(),
        }));
        let shared = &store.0;
        let primaries = shared.ask_seeds().await?;
        let serving = primaries.into_iter().filter(|primary| !primary.slots.is_empty());
        let opened = join_all(serving.map(|primary| shared.open(primary))).await;
        for opened in opened {
            let (shard, primary) = opened?;
            shared.take_in(&shard, &primary);
        }
        tokio::spawn(follow(Arc::clone(shared)));
        Ok(store)
    }

    /// Runs the script of these commands on the shard of their lock, and reads its answer.
    fn call<T: Send + 'static>(
        &self,
        asked: Asked,
        read: ReadAnswer<T>,
        note: fn(&Shard, &T),
    ) -> StoreFuture<T> {
        let shared = Arc::clone(&self.0);
        StoreFuture::pending(async move {
            let Some(slot) = asked.lock().map(LockName::slot) else {
                return Err(proto::wire::no_such_command());
            };
            // A grant could not reach one that waits.
            let hears = matches!(&asked, Asked::One(_, Command::Acquire { mode: Mode::Wait, .. }));
            let route = Route::of(&asked, shared.settings.request_timeout);
            let way = Way { slot, hears, route };
            let send = |shard: &Shard| shard.store.call(asked.clone(), read);
            let (shard, answer) = shared.routed(way, send).await?;
            note(&shard, &answer);
            Ok(answer)
        })
    }
}

/// Opens the subscription of a shard anew that its server does not count.
fn note_listeners(shard: &Shard, answer: &Answer) {
    if let Answer::Touched(reply) = answer
        && reply.outcome.listeners == 0
        && shard.subscription.borrow().is_up()
    {
        shard.store.reopen_subscription();
    }
}

fn note_all(shard: &Shard, answers: &Answers) {
    answers.iter().flatten().for_each(|answer| note_listeners(shard, answer));
}

/// The way of a command.
struct Way {
    slot: u16,
    /// A message may come for it: its shard has to hear.
    hears: bool,
    route: Route,
}

impl Shared {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command to the shard that serves the slot, and again where the answer says that it
    /// did not run for the sake of the slot.
    async fn routed<T: Send + 'static>(
        &self,
        Way { slot, hears, mut route }: Way,
        send: impl Fn(&Shard) -> StoreFuture<T>,
    ) -> Result<(Arc<Shard>, T), StoreError> {
        let begun = Instant::now();
        loop {
            let owner = self.slots().owner(slot).cloned();
            let shard = owner.ok_or_else(|| {
                self.outdated.notify_one();
                unavailable(format!("no primary serves slot {slot}"))
            })?;
            shard.check(hears).inspect_err(|_| self.outdated.notify_one())?;
            let error = match send(&shard).await {
                Ok(answer) => return Ok((shard, answer)),
                Err(error) => error,
            };
            let Some(redirect) = Redirect::read(&error, &shard.place.host) else {
                if error.may_have_run {
                    // It may be a primary that has been replaced.
                    self.outdated.notify_one();
                }
                return Err(error);
            };
            let given_up = unavailable(format!("slot {slot} at {}: {}", shard.place, error.detail));
            let is_elsewhere = matches!(redirect, Redirect::Moved(_));
            match route.after(redirect) {
                Step::Follow(place) if self.moved(slot, &place) => continue,
                Step::Asking(place) => {
                    if let Some(target) = self.shard_at(&place)
                        && target.check(hears).is_ok()
                    {
                        match asking(&target, &send).await {
                            Ok(answer) => return Ok((target, answer)),
                            Err(error) if Redirect::read(&error, &place.host).is_some() => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
                Step::Follow(_) | Step::Pause => {
                    if is_elsewhere {
                        self.outdated.notify_one();
                    }
                }
                Step::End => {
                    self.outdated.notify_one();
                    return Err(given_up);
                }
            }
            match route.pause(begun.elapsed(), rand::random_range(0.5..1.5)) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(given_up),
            }
        }
    }

    fn shard_at(&self, place: &Place) -> Option<Arc<Shard>> {
        self.slots().open().find(|shard| shard.is_at(place)).cloned()
    }

    /// Notes where the slot is. Returns whether that shard is open.
    fn moved(&self, slot: u16, place: &Place) -> bool {
        let Some(shard) = self.shard_at(place) else { return false };
        let mut slots = self.slots();
        if slots.give(slot, &shard) {
            self.has_moved.store(true, Ordering::Release);
        }
        true
    }

    /// Tells the core of the connections; `is_new`: a server is another one.
    fn tell(&self, is_new: bool) {
        let links = |of: fn(&Shard) -> &watch::Receiver<Link>| {
            let slots = self.slots();
            let mut links = slots.serving().map(|shard| of(shard).borrow().clone());
            let first = links.next().unwrap_or_else(|| Link::down("no primary serves a slot"));
            // Up while one primary is: the others fail their own requests only.
            if first.is_up() || links.any(|link| link.is_up()) { Link::Up } else { first }
        };
        let (commands, subscription) =
            (links(|shard| &shard.commands), links(|shard| &shard.subscription));
        if is_new {
            // Before the state: it is read after it.
            self.servers.fetch_add(1, Ordering::AcqRel);
        }
        self.subscription.send_replace(subscription);
        self.commands.send_replace(commands);
    }

    /// The way to reach a server.
    fn reach(&self, place: &Place) -> ConnectionInfo {
        let Place { host, port } = place.clone();
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
        let ClusterSettings { certificates, credentials, request_timeout, .. } = &self.settings;
        let connector = Connector::new(info, certificates, *request_timeout)?;
        Ok(connector.with_credentials(credentials.clone()))
    }

    /// Opens a shard.
    async fn open(self: &Arc<Self>, primary: Primary) -> Result<(Arc<Shard>, Primary), LockError> {
        let settings = &self.settings;
        let server_time = Arc::default();
        let name: String = primary.id.chars().take(NAMED).collect();
        let of_shard = RedisSettings {
            connector: self.connector(self.reach(&primary.place))?,
            node: settings.node.clone(),
            prefix: format!("{}:grants:{name}", settings.prefix).into(),
            label: settings.label.clone(),
            namespace: settings.namespace.clone(),
            probe: self.probe(&primary)?,
            request_timeout: settings.request_timeout,
            peers: false,
            replicas: settings.replicas,
            server_time: Arc::clone(&server_time),
            has_slots: true,
        };
        let store = RedisStore::connect(of_shard, Arc::clone(&self.listener)).await;
        let store = store.map_err(|error| error.at(&primary.place))?;
        let shard = Arc::new(Shard::new(&primary, store, server_time));
        tokio::spawn(watch_links(Arc::clone(self), Arc::clone(&shard)));
        Ok((shard, primary))
    }

    /// A name that nothing else uses, in the slots of the primary.
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

    /// Gives an open shard its slots.
    fn take_in(&self, shard: &Arc<Shard>, primary: &Primary) {
        let mut slots = self.slots();
        if !slots.open().any(|open| Arc::ptr_eq(open, shard)) {
            slots.add(shard);
        }
        let mut has_moved = false;
        for slot in primary.slots.iter().cloned().flatten() {
            has_moved |= slots.give(slot, shard);
        }
        if has_moved {
            self.has_moved.store(true, Ordering::Release);
        }
    }

    /// Asks the seeds in turn for the primaries.
    async fn ask_seeds(&self) -> Result<Vec<Primary>, LockError> {
        let mut refused = None;
        for seed in &self.seeds {
            match self.ask_at(seed.clone()).await {
                Ok(primaries) => return Ok(primaries),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.unwrap_or_else(crate::cluster::invalid))
    }

    /// Asks one server on a connection of its own.
    async fn ask_at(&self, info: ConnectionInfo) -> Result<Vec<Primary>, LockError> {
        let address = info.addr().clone();
        let connector = self.connector(info)?;
        let opened = connector.commands(self.settings.request_timeout).await;
        let connection = opened.map_err(LockError::of_store)?.connection;
        let (host, is_tls) = match &address {
            ConnectionAddr::TcpTls { host, .. } => (host.as_str(), true),
            ConnectionAddr::Tcp(host, _) => (host.as_str(), false),
            _ => return Err(crate::cluster::invalid()),
        };
        let asked = topology::Asked { host, is_tls };
        let primaries = topology::ask(&Source::Own(connection), asked).await;
        primaries.map_err(|error| LockError::of_store(error).at(&address))
    }

    /// Asks for the primaries: on an open connection, another one each time, else the seeds and all
    /// servers that were known.
    async fn ask(&self, turn: usize) -> Result<Vec<Primary>, LockError> {
        let is_tls = matches!(self.seeds[0].addr(), ConnectionAddr::TcpTls { .. });
        let known: Vec<_> = self.slots().open().cloned().collect();
        let mut up: Vec<_> =
            known.iter().filter(|shard| shard.commands.borrow().is_up()).cloned().collect();
        let first = turn % up.len().max(1);
        up.rotate_left(first);
        for shard in up {
            let asked = topology::Asked { host: &shard.place.host, is_tls };
            let source = Source::Link(shard.store.link.clone());
            match tokio::time::timeout(ANOTHER, topology::ask(&source, asked)).await {
                Ok(Ok(primaries)) => return Ok(primaries),
                Ok(Err(error)) => debug!(at = %shard.place, reason = %error.detail, "no topology"),
                Err(_) => debug!(at = %shard.place, "no topology in time"),
            }
        }
        let refused = match self.ask_seeds().await {
            Ok(primaries) => return Ok(primaries),
            Err(error) => error,
        };
        for shard in &known {
            if let Ok(primaries) = self.ask_at(self.reach(&shard.place)).await {
                return Ok(primaries);
            }
        }
        Err(refused)
    }

    /// Learns which primary serves a slot, opens those that are new, and closes those of before.
    async fn look(self: &Arc<Self>, turn: usize) {
        let primaries = match self.ask(turn).await {
            Ok(primaries) => primaries,
            Err(error) => {
                debug!(%error, "no server tells which primary serves a slot");
                return;
            }
        };
        // The same server may be told by another name.
        let is_known = |shard: &Shard, primary: &Primary| {
            let is_at_place = || shard.place == primary.place || shard.commands.borrow().is_up();
            shard.id == primary.id && is_at_place()
        };
        let mut opening = FuturesUnordered::new();
        for primary in primaries.clone() {
            let open = self.slots().open().find(|shard| is_known(shard, &primary)).cloned();
            match open {
                Some(shard) => self.take_in(&shard, &primary),
                None => opening.push(self.open(primary)),
            }
        }
        let is_primary = |shard: &Shard| primaries.iter().any(|primary| is_known(shard, primary));
        self.tell_moved(is_primary);
        while let Some(opened) = opening.next().await {
            match opened {
                Ok((shard, primary)) => {
                    debug!(at = %shard.place, "connected to a primary of the Cluster");
                    self.take_in(&shard, &primary);
                    self.tell_moved(is_primary);
                }
                Err(error) => warn!(%error, "a primary of the Cluster cannot be used"),
            }
        }
        let retired = self.slots().retire(Instant::now().checked_sub(RETIRED));
        for shard in retired {
            shard.store.close();
        }
    }

    /// Tells the core of slots that were found elsewhere. The requests to a primary that was
    /// replaced end: it may stand still.
    fn tell_moved(&self, is_primary: impl Fn(&Shard) -> bool) {
        let replaced = self.slots().replaced(is_primary, Instant::now());
        for shard in replaced {
            shard.store.link.give_up("another server serves its slots");
        }
        if self.has_moved.swap(false, Ordering::AcqRel) {
            self.tell(true);
        }
    }
}

fn unavailable(detail: String) -> StoreError {
    StoreError::refused(LockErrorKind::Unavailable, detail)
}

/// Sends a command to the server to which its slot moves. ASKING is for the next command of the
/// connection: if that of another task comes between, this one is refused, and did not run.
async fn asking<T: Send + 'static>(
    target: &Shard,
    send: impl Fn(&Shard) -> StoreFuture<T>,
) -> Result<T, StoreError> {
    let asking = target.store.link.run(redis::cmd("ASKING"));
    // Both are sent in this order before either is waited for.
    let (_, answer) = join(asking, send(target)).await;
    answer
}

/// Follows the slots until the store is closed.
async fn follow(shared: Arc<Shared>) {
    let work = async {
        for turn in 0.. {
            let _ = tokio::time::timeout(FOLLOW, shared.outdated.notified()).await;
            shared.look(turn).await;
            tokio::time::sleep(LEAST).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = shared.closed.cancelled() => {}
    }
}

/// Tells the core when a connection of the shard comes back, or the last one goes.
async fn watch_links(shared: Arc<Shared>, shard: Arc<Shard>) {
    let (mut commands, mut subscription) = (shard.commands.clone(), shard.subscription.clone());
    let mut servers = shard.store.servers();
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
            let is_new = std::mem::replace(&mut servers, shard.store.servers()) != servers;
            let was_commands_up = shared.commands.borrow().is_up();
            let was_up = shared.subscription.borrow().is_up() && was_commands_up;
            // While others are up, one that goes down changes nothing for them.
            if is_up || !was_up || !shared.is_any_up() {
                shared.tell(is_new);
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = shard.store.closed.cancelled() => {}
        () = shared.closed.cancelled() => {}
    }
}

impl Shared {
    fn is_any_up(&self) -> bool {
        let slots = self.slots();
        let is_up = |of: fn(&Shard) -> &watch::Receiver<Link>| {
            slots.serving().any(|shard| of(shard).borrow().is_up())
        };
        is_up(|shard| &shard.commands) && is_up(|shard| &shard.subscription)
    }
}

impl Store for ClusterStore {
    fn has_slots(&self) -> bool {
        true
    }

    fn run(&self, lock: &LockName, command: &Command) -> StoreFuture<Answer> {
        self.call(Asked::one((lock, command)), TimedWire::answer, note_listeners)
    }

    fn run_together(&self, commands: &[(&LockName, &Command)]) -> StoreFuture<Answers> {
        match commands {
            [(_, Command::Renew { .. }), ..] => {
                self.call(Asked::together(commands), TimedWire::answers, note_all)
            }
            commands => {
                let each: Vec<_> =
                    commands.iter().map(|(lock, command)| self.run(lock, command)).collect();
                StoreFuture::pending(async move { Ok(join_all(each).await) })
            }
        }
    }

    fn confirm(&self, renewals: &[(&LockName, &Command)]) -> StoreFuture<(Answers, u32)> {
        let owned = |(lock, command): &(&LockName, &Command)| {
            (LockName::clone(lock), Command::clone(command))
        };
        let renewals: Vec<_> = renewals.iter().map(owned).collect();
        let shared = Arc::clone(&self.0);
        StoreFuture::pending(async move {
            let slot = renewals.first().map_or(0, |(lock, _)| lock.slot());
            let send = |shard: &Shard| {
                let renewals: Vec<_> =
                    renewals.iter().map(|(lock, command)| (lock, command)).collect();
                shard.store.confirm(&renewals)
            };
            let route = Route::new(shared.settings.request_timeout);
            let way = Way { slot, hears: false, route };
            shared.routed(way, send).await.map(|(_, confirmed)| confirmed)
        })
    }

    /// Completes once one primary answers.
    fn ping(&self) -> StoreFuture<()> {
        let shards: Vec<_> = self.0.slots().serving().cloned().collect();
        StoreFuture::pending(async move {
            let ping = |shard: Arc<Shard>| async move {
                shard.check(false)?;
                shard.store.ping().await
            };
            let mut pings: FuturesUnordered<_> =
                shards.into_iter().map(|shard| ping(shard).boxed()).collect();
            let mut refused = unavailable("no primary serves a slot".to_owned());
            while let Some(answer) = pings.next().await {
                match answer {
                    Ok(()) => return Ok(()),
                    Err(error) => refused = error,
                }
            }
            Err(refused)
        })
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.0.commands.subscribe()
    }

    fn is_up_for(&self, lock: &LockName) -> bool {
        self.0.slots().owner(lock.slot()).is_some_and(|shard| shard.check(false).is_ok())
    }

    fn servers(&self) -> u64 {
        self.0.servers.load(Ordering::Acquire)
    }

    fn server_status(&self) -> Vec<ServerStatus> {
        let counted = self.0.slots().counted();
        let of = |(shard, slots): (Arc<Shard>, u16)| shard.store.status(Some(slots));
        let mut all: Vec<_> = counted.into_iter().map(of).collect();
        all.sort_by(|a, b| a.address.cmp(&b.address));
        all
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.0.subscription.subscribe()
    }

    /// Each shard does that by itself: only it knows which server does not count it.
    fn reopen_subscription(&self) {}

    fn close(&self) {
        self.0.close();
    }
}

impl Shared {
    fn close(&self) {
        self.closed.cancel();
        for shard in self.slots().open() {
            shard.store.close();
        }
        self.commands.send_replace(Link::down("closed"));
        self.subscription.send_replace(Link::down("closed"));
    }
}

impl Drop for ClusterStore {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for ClusterStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterStore").field("node", &self.0.settings.node).finish_non_exhaustive()
    }
}
