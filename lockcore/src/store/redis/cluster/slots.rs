//! Maps Redis Cluster slots to shards. A *shard* is a node's connections to a primary.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::topology::{Address, Primary};
use proto::node::Lanes;
use proto::wire::redirect::Place;
use proto::wire::slot::SLOTS;
use proto::{Link, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::Store as _;
use crate::store::redis::RedisStore;
use crate::store::redis::server_time::ServerTime;

/// The longest silence of a server with pending requests. A server that is silent for longer counts
/// as frozen.
const SILENT: Duration = Duration::from_millis(500);
/// How long a server counts as cut off after its answer that the Cluster is down. Without requests,
/// no later answer would end this.
const CUT_OFF: Duration = Duration::from_secs(10);

/// When a server last answered that the Cluster is down. The other servers may then have elected
/// another primary.
#[derive(Default)]
struct CutOff(Mutex<Option<Instant>>);

impl CutOff {
    /// Records whether the server's last answer was that the Cluster is down.
    fn note(&self, is_cut_off: bool) {
        *locked(&self.0) = is_cut_off.then(Instant::now);
    }

    /// Returns true if the server counts as cut off.
    fn is_recent(&self) -> bool {
        locked(&self.0).is_some_and(|since| since.elapsed() < CUT_OFF)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node's connections to a Cluster primary, and the primary's addresses.
pub(super) struct Shard {
    /// The server's node id within the Cluster.
    pub(super) id: String,
    /// The address that the connections lead to.
    pub(super) place: Place,
    /// The primary's addresses as last reported. A redirect may name either: they differ for
    /// example with TLS.
    reported: Mutex<[Place; 2]>,
    pub(super) store: RedisStore,
    pub(super) server_time: Arc<ServerTime>,
    pub(super) commands: watch::Receiver<Link>,
    pub(super) subscription: watch::Receiver<Link>,
    /// True if the server had slots when this shard was opened. Without slots there is no key with
    /// which to check the user's rights, so no optional command may be sent.
    pub(super) had_slots: bool,
    cut_off: CutOff,
}

impl Shard {
    pub(super) fn new(primary: &Primary, store: RedisStore, server_time: Arc<ServerTime>) -> Self {
        let reported = reported(primary);
        let (commands, subscription) = (store.commands(), store.subscription());
        Self {
            id: primary.id.clone(),
            place: reported[0].clone(),
            reported: Mutex::new(reported),
            store,
            server_time,
            commands,
            subscription,
            had_slots: !primary.slots.is_empty(),
            cut_off: CutOff::default(),
        }
    }

    pub(super) fn address(&self) -> Address {
        let Place { host, port } = self.place.clone();
        Address { host, port }
    }

    /// Returns true if this shard still leads to its primary, which is reported at `place` now.
    ///
    /// Servers may report several addresses of a primary: a connection that is up leads to it, but
    /// only if it has always led to the same server. Otherwise another server in the Cluster may
    /// have the address by now, such as a former replica after a restart of both.
    pub(super) fn is_still_at(&self, place: &Address) -> bool {
        let is_first_server = || self.commands.borrow().is_up() && self.store.servers() == 0;
        self.address() == *place || is_first_server()
    }

    /// Returns true if the server responds, as far as the last requests show.
    pub(super) fn answers(&self) -> bool {
        // A separate statement, because the task that changes the state holds a mutex that the next
        // line waits for.
        let is_up = self.commands.borrow().is_up();
        let link = &self.store.server.link;
        let is_silent = link.unanswered() > Some(0) && link.silent_for() > SILENT;
        is_up && !is_silent && !self.cut_off.is_recent()
    }

    /// Records whether the server's last answer was that the Cluster is down.
    pub(super) fn note_cut_off(&self, is_cut_off: bool) {
        self.cut_off.note(is_cut_off);
    }

    /// Records the primary's addresses, which may change although the connections stay.
    pub(super) fn note_addresses(&self, primary: &Primary) {
        *locked(&self.reported) = reported(primary);
    }

    /// Returns true if a redirect to this address means this shard.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        locked(&self.reported).contains(place)
    }

    /// Returns an error if the command connection is down, or if `hears` is true and the
    /// subscription is down. A request would otherwise have to wait for the connection.
    pub(super) fn check(&self, hears: bool) -> Result<(), StoreError> {
        let down = |link: &watch::Receiver<Link>, what: &str| {
            let error = link.borrow().why_down()?;
            let detail = format!("{}: {what}{}", self.place, error.detail);
            Some(StoreError::refused(error.kind, detail))
        };
        let of_messages = || down(&self.subscription, "subscription: ").filter(|_| hears);
        down(&self.commands, "").or_else(of_messages).map_or(Ok(()), Err)
    }
}

/// Returns the primary's address for connections, and its address in redirects.
fn reported(primary: &Primary) -> [Place; 2] {
    let Primary { place, redirects, .. } = primary.clone();
    [place, redirects].map(|Address { host, port }| Place { host, port })
}

/// All open shards in a Cluster, and the shard that serves each slot.
pub(super) struct Slots {
    owners: Box<[Option<Arc<Shard>>]>,
    open: Vec<OpenShard>,
}

struct OpenShard {
    shard: Arc<Shard>,
    /// The number under which the core keeps the requests and timers for this server. It is unique
    /// among the open shards, and changes when another server replaces the shard's server.
    lane: u16,
    /// The number of the server that the lane is for.
    server: u64,
    /// When the shard was first seen without slots while its server was no longer a primary; `None`
    /// if the shard is in use.
    retired: Option<Instant>,
}

/// Lane of a slot that no shard serves. A lane is the number that the core uses for a server.
const NO_SHARD: u16 = 0;

impl Slots {
    pub(super) fn new() -> Self {
        let owners = (0..SLOTS).map(|_| None).collect();
        Self { owners, open: Vec::new() }
    }

    /// Returns the shard that serves a slot; `None` if no shard does.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Shard>> {
        self.owners.get(usize::from(slot))?.as_ref()
    }

    /// Returns the open shards, the newest first: an older shard with the same primary or address
    /// was replaced.
    pub(super) fn open(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.open.iter().rev().map(|open| &open.shard)
    }

    /// Returns the open shards that are not marked as replaced.
    pub(super) fn in_use(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.open.iter().filter(|open| open.retired.is_none()).map(|open| &open.shard)
    }

    /// Returns the shards that serve at least one slot.
    pub(super) fn serving(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.open().filter(|shard| serves(&self.owners, shard))
    }

    /// Returns the open shards, each with the number of slots that it serves.
    pub(super) fn counted(&self) -> Vec<(Arc<Shard>, u16)> {
        let is_same = |a: &Option<Arc<Shard>>, b: &Option<Arc<Shard>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => a.is_none() && b.is_none(),
        };
        let mut counted: Vec<_> = self.open().map(|shard| (Arc::clone(shard), 0)).collect();
        for range in self.owners.chunk_by(is_same) {
            let owner = range.first().and_then(Option::as_ref);
            let mut of = counted.iter_mut();
            if let Some((_, count)) =
                of.find(|(shard, _)| owner.is_some_and(|owner| Arc::ptr_eq(owner, shard)))
            {
                *count += u16::try_from(range.len()).unwrap_or(SLOTS);
            }
        }
        counted
    }

    /// Adds an open shard, without slots.
    pub(super) fn add(&mut self, shard: &Arc<Shard>) {
        let lane = self.free_lane();
        let server = shard.store.servers();
        self.open.push(OpenShard { shard: Arc::clone(shard), lane, server, retired: None });
    }

    /// Gives a shard a new lane if another server has replaced the shard's server at the same
    /// address, so that the core treats the shard's slots as moved. Returns true if it has.
    pub(super) fn renew_if_replaced(&mut self, shard: &Arc<Shard>) -> bool {
        let lane = self.free_lane();
        let mut all = self.open.iter_mut();
        let Some(open) = all.find(|open| Arc::ptr_eq(&open.shard, shard)) else { return false };
        let server = shard.store.servers();
        let is_replaced = open.server < server;
        if is_replaced {
            (open.lane, open.server) = (lane, server);
        }
        is_replaced
    }

    fn free_lane(&self) -> u16 {
        let is_free = |lane: &u16| self.open.iter().all(|open| open.lane != *lane);
        (NO_SHARD + 1..).find(is_free).unwrap_or(NO_SHARD)
    }

    /// Returns the lane of each slot.
    pub(super) fn lanes(&self) -> Lanes {
        let lane_of = |owner: &Option<Arc<Shard>>| {
            let owner = owner.as_ref()?;
            self.open.iter().find(|open| Arc::ptr_eq(&open.shard, owner)).map(|open| open.lane)
        };
        self.owners.iter().map(|owner| lane_of(owner).unwrap_or(NO_SHARD)).collect()
    }

    /// Assigns the slot to this shard. Returns true if the slot has changed hands, and false if the
    /// shard already had the slot or there is no such slot.
    pub(super) fn give(&mut self, slot: u16, shard: &Arc<Shard>) -> bool {
        let Some(owner) = self.owners.get_mut(usize::from(slot)) else { return false };
        match owner.replace(Arc::clone(shard)) {
            Some(before) if Arc::ptr_eq(&before, shard) => false,
            Some(before) => {
                shard.server_time.take_over(slot, &before.server_time);
                true
            }
            None => true,
        }
    }

    /// Called when `shard` has replied. If another shard serves the slot by now, raises that
    /// shard's token floor for the slot above everything received from `shard`.
    pub(super) fn note_answer(&self, slot: u16, shard: &Arc<Shard>) {
        if let Some(owner) = self.owner(slot)
            && !Arc::ptr_eq(owner, shard)
        {
            owner.server_time.take_over(slot, &shard.server_time);
        }
    }

    /// Marks the shards that are replaced: they serve no slot, and their server is not a primary,
    /// according to `is_primary`. Returns the shards that were not marked before.
    pub(super) fn replaced(
        &mut self,
        is_primary: impl Fn(&Shard) -> bool,
        now: Instant,
    ) -> Vec<Arc<Shard>> {
        let Self { owners, open } = self;
        let mut replaced = Vec::new();
        for OpenShard { shard, retired, .. } in open {
            if is_primary(shard) || serves(owners, shard) {
                *retired = None;
            } else if retired.is_none() {
                *retired = Some(now);
                replaced.push(Arc::clone(shard));
            }
        }
        replaced
    }

    /// Removes and returns the shards that were marked as replaced before this moment. Their last
    /// grants have been received by now, so they can be closed.
    pub(super) fn retire(&mut self, before: Option<Instant>) -> Vec<Arc<Shard>> {
        let is_over =
            |open: &mut OpenShard| open.retired.is_some_and(|retired| Some(retired) <= before);
        self.open.extract_if(.., is_over).map(|open| open.shard).collect()
    }
}

fn serves(owners: &[Option<Arc<Shard>>], shard: &Arc<Shard>) -> bool {
    owners.iter().flatten().any(|owner| Arc::ptr_eq(owner, shard))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Otherwise a process without requests would query the topology several times a second, for
    // ever.
    #[tokio::test(start_paused = true)]
    async fn a_server_without_requests_counts_as_cut_off_for_a_bounded_time() {
        let cut_off = CutOff::default();
        cut_off.note(true);
        tokio::time::advance(CUT_OFF / 2).await;
        assert!(cut_off.is_recent(), "others may be elected");
        tokio::time::advance(CUT_OFF).await;
        assert!(!cut_off.is_recent());
        cut_off.note(true);
        cut_off.note(false);
        assert!(!cut_off.is_recent(), "it has answered");
    }
}
