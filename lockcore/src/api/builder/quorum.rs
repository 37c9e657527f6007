//! Builder methods for a `Locks` on a quorum of independent primaries, in memory or on Redis.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use proto::{ConfigError, LockErrorKind};
use tokio::runtime::Handle;

use super::{LocksBuilder, new_node};
use crate::api::locks::Locks;
use crate::backend::Backend;
use crate::node::Observer;
use crate::types::error::LockError;
use crate::types::options::LockOptions;

use crate::quorum::{Connect, Connected, NewPrimary, Primaries, Terms};
use crate::store::memory::MemoryStore;

/// The maximum number of primaries of a quorum.
const MOST: usize = 9;

impl LocksBuilder {
    /// Creates a `Locks` in the memory of this process, on a quorum of `n` in-memory stores. For
    /// tests; to access the stores, use [`on_memory_quorum`](Self::on_memory_quorum).
    ///
    /// # Errors
    /// As [`on_memory_quorum`](Self::on_memory_quorum).
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    pub fn in_memory_quorum(self, n: usize) -> Result<Locks, LockError> {
        let stores: Vec<_> = (0..n).map(|_| MemoryStore::new()).collect();
        self.on_memory_quorum(&stores)
    }

    /// Creates a `Locks` on a quorum of these in-memory stores, which act as independent primaries.
    /// Each call adds another client, like a further process. All clients must list the stores in
    /// the same order.
    ///
    /// # Errors
    /// [`InvalidOption`](LockErrorKind::InvalidOption) if an option is out of range or does not
    /// apply to a quorum, or if there are not 3, 5, 7 or 9 stores.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    pub fn on_memory_quorum(mut self, stores: &[MemoryStore]) -> Result<Locks, LockError> {
        // Memory loses nothing, so no lease is too long.
        let terms = self.terms(stores.len(), LockOptions::MAX_LEASE, 0)?;
        let (id, seen) = (new_node(), Arc::default());
        let node = |(at, store)| -> Connected {
            let seen = Some(Arc::clone(&seen));
            let node = self.of_primary(at).memory_node(store, id.clone(), seen);
            let standing =
                node.store.standing().now_or_never().expect("an in-memory store responds at once");
            (node, standing.map_err(LockError::of_store))
        };
        let primary = |place| {
            let (address, connected) = (String::new(), Ok(node(place)));
            NewPrimary { address, connected, connect: closed() }
        };
        let list = stores.iter().enumerate().map(primary).collect();
        self.quorum_of(list, terms)
    }

    /// Checks the options for a quorum with `n` primaries, and returns the quorum's settings. Also
    /// sets the batch limit to 1, because quorums have no batches. Fails with `InvalidOption` for a
    /// value out of range, and for an option that quorums do not support.
    fn terms(&mut self, n: usize, max_lease: Duration, spare: usize) -> Result<Terms, LockError> {
        self.check()?;
        if n.is_multiple_of(2) || !(3..=MOST).contains(&n) {
            let value = format!("{n} {}", if n == 1 { "primary" } else { "primaries" });
            return Err(ConfigError::new("quorum", value, "3, 5, 7 or 9 primaries").into());
        }
        if spare > n - (n / 2 + 1) {
            let range = "at most the number of primaries beyond a majority";
            return Err(ConfigError::new("spare", spare.to_string(), range).into());
        }
        if !(LockOptions::MIN_LEASE..=LockOptions::MAX_LEASE).contains(&max_lease) {
            let value = format!("{max_lease:?}");
            return Err(ConfigError::new("max_lease", value, "100 ms to 24 h").into());
        }
        if let Some(confirmation) = self.confirmation() {
            let range = "unset: quorum primaries have no replicas, and count after a restart once \
                they have lost nothing for the longest lease";
            return Err(confirmation.refused(range).into());
        }
        let set = [
            (self.redisson_peers, "redisson_peers", "unset: JVMs do not support quorums"),
            (
                self.batch_limit.is_some_and(|limit| limit > 1),
                "batch_limit",
                "1: quorums do not support batches",
            ),
        ];
        if let Some((_, option, range)) = set.into_iter().find(|(is_set, ..)| *is_set) {
            return Err(ConfigError::new(option, "set", range).into());
        }
        self.batch_limit = Some(1);
        let (request_timeout, max_waiting) = (self.request_timeout, self.max_waiting);
        Ok(Terms { max_lease, spare, request_timeout, max_waiting })
    }

    fn quorum_of(&self, list: Vec<NewPrimary>, terms: Terms) -> Result<Locks, LockError> {
        terms.check(self.defaults.checked()?.lease)?;
        let node = |one: &NewPrimary| Some(Arc::clone(&one.connected.as_ref().ok()?.0));
        let first = list.iter().find_map(node);
        let node = first.ok_or_else(|| LockError::new(LockErrorKind::Unavailable))?;
        let runtime = Handle::current();
        let observer = Observer::of_quorum(node.id.clone(), &node.settings, &runtime);
        let primaries = Primaries::new(list, terms, observer, &node.settings, &runtime);
        Ok(Locks { backend: Backend::of_quorum(node, primaries) })
    }
}

/// Returns the connect function of an in-memory primary. It always fails, but is never called: an
/// in-memory primary is connected from the beginning.
fn closed() -> Connect {
    Box::new(|| async { Err(LockError::new(LockErrorKind::Closed)) }.boxed())
}

#[cfg(feature = "redis")]
mod on_redis {
    use client::{Connector, read_url};
    use futures_util::future::join_all;
    use proto::NodeId;

    use super::*;
    use crate::api::builder::redis::log_connected;
    use crate::node::Inbox;
    use crate::quorum::Quorum;
    use crate::store::Store as _;
    use crate::store::redis::{Mark, Marks, RedisStore, Used};
    use crate::store::seen::SeenTokens;

    /// A primary of a quorum on Redis, with all settings for a connection to it. This process
    /// connects at the start, and again while the primary is not usable.
    #[derive(Clone)]
    struct Place {
        builder: LocksBuilder,
        url: String,
        /// The URL's address, as the status shows it.
        address: String,
        /// The node id, which is the same at all primaries.
        id: NodeId,
        /// The identity record expected on the primary, which contains the list of primaries.
        mark: Mark,
        /// The greatest token seen at any primary, shared by the stores of all primaries.
        seen: Arc<SeenTokens>,
    }

    impl Place {
        async fn store(&self, inbox: &Inbox) -> Result<RedisStore, LockError> {
            let Self { builder, url, id, mark, seen, .. } = self;
            let connector = Connector::from_url(url, &builder.tls, builder.timeouts())?;
            let primary = Some((mark.clone(), Arc::clone(seen)));
            builder.store(connector, id, inbox, primary).await
        }

        /// Connects to the primary, and reads its identity record without writing it. Fails if the
        /// record belongs to another quorum. The inbox receives the messages of the returned store.
        async fn open(&self) -> Result<(RedisStore, Inbox), LockError> {
            let inbox = Inbox::default();
            let store = self.store(&inbox).await?;
            store.check_identity().await?;
            Ok((store, inbox))
        }

        /// Creates the node of this primary, and requests from the server how long it has kept its
        /// data: the [`Standing`](crate::store::Standing). If the request fails, the task that
        /// watches the primary repeats it.
        async fn begin(&self, (store, inbox): (RedisStore, Inbox)) -> Connected {
            let standing = store.standing().await.map_err(|error| store.error(error));
            (self.builder.node(Arc::new(store), self.id.clone(), &inbox), standing)
        }

        async fn connect(self) -> Result<Connected, LockError> {
            let opened = self.open().await?;
            Ok(self.begin(opened).await)
        }
    }

    /// Returns an error if fewer than a majority of the `n` primaries are usable. `errors` contains
    /// an error for each unusable primary; any kind but `Unavailable` is a refusal. If the refusing
    /// primaries alone prevent a majority, the result is the first refusal. Otherwise it is the
    /// last error of an unreachable primary.
    fn check_majority(n: usize, errors: &[LockError]) -> Result<(), LockError> {
        let is_enough = |failures: usize| n - failures > n / 2;
        let is_refusal = |error: &&LockError| error.kind() != LockErrorKind::Unavailable;
        let refusals: Vec<_> = errors.iter().filter(is_refusal).collect();
        let error = match refusals.first() {
            Some(first) if !is_enough(refusals.len()) => Some(*first),
            _ => errors.iter().rfind(|error| !is_refusal(error)),
        };
        match error {
            Some(error) if !is_enough(errors.len()) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    impl LocksBuilder {
        /// Connects to the primaries of a quorum, and creates the `Locks`. Fails if fewer than a
        /// majority are usable. The connection to an unusable primary is retried in the background.
        pub(in crate::api::builder) async fn on_quorum(
            mut self,
            quorum: Quorum,
        ) -> Result<Locks, LockError> {
            let terms = self.terms(quorum.primaries.len(), quorum.max_lease, quorum.spare)?;
            let places = self.places(&quorum)?;
            // Read every identity record before writing any: a server in use by another quorum must
            // be found before this quorum claims a new server.
            let opened = join_all(places.iter().map(Place::open)).await;
            let mut errors: Vec<_> =
                opened.iter().filter_map(|one| one.as_ref().err().cloned()).collect();
            check_majority(places.len(), &errors)?;
            let begin = places.iter().zip(opened).map(async |(place, opened)| match opened {
                Ok(opened) => Ok(place.begin(opened).await),
                Err(error) => Err(error),
            });
            let mut list = Vec::with_capacity(places.len());
            for (place, begun) in places.iter().zip(join_all(begin).await) {
                let connected = begun.inspect(|(_, standing)| {
                    errors.extend(standing.as_ref().err().cloned());
                });
                let (place, address) = (place.clone(), place.address.clone());
                let connect: Connect = Box::new(move || place.clone().connect().boxed());
                list.push(NewPrimary { address, connected, connect });
            }
            check_majority(places.len(), &errors)?;
            self.quorum_of(list, terms).map(log_connected)
        }

        /// Initialises the primaries of a new quorum: records on each that it has granted nothing
        /// yet, so that the quorum can grant locks at once. Otherwise a quorum grants nothing for
        /// the [`max_lease`](Quorum::max_lease) after a process has first used the servers.
        ///
        /// Call it before the first process uses the primaries, and never for a replacement server.
        /// It fails if a process has already used a primary, or if one primary is new and another
        /// has granted something; then nothing is initialised. Primaries that are already
        /// initialised stay as they are.
        ///
        /// # Errors
        /// As for [`connect`](Self::connect), but every primary must be reachable.
        /// [`InvalidOption`](LockErrorKind::InvalidOption) if a primary is not new.
        ///
        /// # Panics
        /// Outside a tokio runtime with timers.
        ///
        /// # Cancel safety
        /// If the future is dropped, some primaries may be initialised: call it again.
        pub async fn init_quorum(mut self, quorum: Quorum) -> Result<(), LockError> {
            self.terms(quorum.primaries.len(), quorum.max_lease, quorum.spare)?;
            let places = self.places(&quorum)?;
            let connect = places.iter().map(async |place| place.store(&Inbox::default()).await);
            let stores: Result<Vec<RedisStore>, LockError> =
                join_all(connect).await.into_iter().collect();
            let stores = stores?;
            // Check all primaries first, because an initialised primary counts towards a majority
            // at once.
            let used = join_all(stores.iter().map(RedisStore::used)).await;
            let used = used.into_iter().collect::<Result<Vec<Used>, LockError>>()?;
            // A replacement server must not count while a guard may still rely on its predecessor's
            // grant.
            if used.contains(&Used::Not) && used.contains(&Used::Granted) {
                return Err(LockError::with_detail(LockErrorKind::InvalidOption, IN_USE));
            }
            join_all(stores.iter().map(RedisStore::begin)).await.into_iter().collect()
        }

        fn places(&self, quorum: &Quorum) -> Result<Vec<Place>, LockError> {
            let address = |url: &String| {
                let info = read_url(url)?;
                // An invalid URL or certificate is an error now, not a primary to be retried.
                Connector::from_url(url, &self.tls, self.timeouts())?;
                let address = info.addr().to_string();
                Ok((format!("{address}/{}", info.redis_settings().db()), address))
            };
            let addresses: Result<Vec<(String, String)>, LockError> =
                quorum.primaries.iter().map(address).collect();
            let (list, addresses): (Vec<String>, Vec<String>) = addresses?.into_iter().unzip();
            let is_twice = |(at, address)| list[..at].contains(address);
            if (0..).zip(&list).any(is_twice) {
                let range = "primaries at different addresses";
                return Err(
                    ConfigError::new("quorum", "a list with a duplicate primary", range).into()
                );
            }
            let list = list.join(",");
            let (id, seen) = (new_node(), Arc::default());
            let all = Marks::of(quorum.primaries.len());
            let place = |(at, url): (usize, &String)| {
                let namespace = self.namespace.as_deref();
                let place = (at, list.as_str());
                let all = Arc::clone(&all);
                let (max_lease, trusts_restarts) = (quorum.max_lease, quorum.trusts_restarts);
                let mark = Mark::new(namespace, place, all, max_lease, trusts_restarts);
                let seen = Arc::clone(&seen);
                let builder = self.of_primary(at);
                let (url, address, id) = (url.clone(), addresses[at].clone(), id.clone());
                Place { builder, url, address, id, mark, seen }
            };
            Ok(quorum.primaries.iter().enumerate().map(place).collect())
        }
    }

    /// The text of the error of `init_quorum` if one primary is new and another has already granted
    /// a lock.
    const IN_USE: &str = "the quorum is in use: at least one server has granted locks already. A \
        new server counts once the longest lease has passed since a process first used it";
}
