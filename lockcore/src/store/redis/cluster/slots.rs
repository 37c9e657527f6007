//! Maps slots to shards. A *shard* is a primary as seen by a node, with a separate store.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
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

/// How long a server with an outstanding response may be silent before it counts as frozen.
const SILENT: Duration = Duration::from_millis(500);

/// A primary of the Cluster.
pub(super) struct Shard {
    /// The server's name within the Cluster.
    pub(super) id: String,
    pub(super) place: Place,
    redirects: Place,
    pub(super) store: RedisStore,
    pub(super) server_time: Arc<ServerTime>,
    pub(super) commands: watch::Receiver<Link>,
    pub(super) subscription: watch::Receiver<Link>,
    /// Whether the last response was that the Cluster is down: the other servers may have elected
    /// another primary.
    is_cut_off: AtomicBool,
}

impl Shard {
    pub(super) fn new(primary: &Primary, store: RedisStore, server_time: Arc<ServerTime>) -> Self {
        let Primary { id, place, redirects, .. } = primary.clone();
        let [place, redirects] =
            [place, redirects].map(|Address { host, port }| Place { host, port });
        let (commands, subscription) = (store.commands(), store.subscription());
        let is_cut_off = AtomicBool::new(false);
        Self { id, place, redirects, store, server_time, commands, subscription, is_cut_off }
    }

    /// The shard's address.
    pub(super) fn address(&self) -> Address {
        let Place { host, port } = self.place.clone();
        Address { host, port }
    }

    /// Whether the server responds, as far as known from the last requests.
    pub(super) fn answers(&self) -> bool {
        // In a separate statement: the task that changes the state holds a mutex that the next line
        // waits for.
        let is_up = self.commands.borrow().is_up();
        let link = &self.store.server.link;
        let is_silent = link.unanswered() > Some(0) && link.silent_for() > SILENT;
        is_up && !is_silent && !self.is_cut_off.load(Relaxed)
    }

    /// Records whether the last response was that the Cluster is down.
    pub(super) fn note_cut_off(&self, is_cut_off: bool) {
        if self.is_cut_off.load(Relaxed) != is_cut_off {
            self.is_cut_off.store(is_cut_off, Relaxed);
        }
    }

    /// Whether a redirect to `place` means this shard.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        [&self.place, &self.redirects].contains(&place)
    }

    /// Fails a request that would have to wait for a connection.
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

/// The open shards with their slots.
pub(super) struct Slots {
    owners: Box<[Option<Arc<Shard>>]>,
    open: Vec<OpenShard>,
}

struct OpenShard {
    shard: Arc<Shard>,
    /// Unique among the open shards; changes when another server replaces the shard's server.
    lane: u16,
    /// When the shard was found to have no slots and not to be a primary any more.
    retired: Option<Instant>,
}

/// The lane of unserved slots.
const NO_SHARD: u16 = 0;

impl Slots {
    pub(super) fn new() -> Self {
        let owners = (0..SLOTS).map(|_| None).collect();
        Self { owners, open: Vec::new() }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Shard>> {
        self.owners.get(usize::from(slot))?.as_ref()
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.open.iter().map(|open| &open.shard)
    }

    /// The shards that serve any slot.
    pub(super) fn serving(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.open().filter(|shard| serves(&self.owners, shard))
    }

    /// The open shards, each with its slot count.
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

    pub(super) fn add(&mut self, shard: &Arc<Shard>) {
        let lane = self.free_lane();
        self.open.push(OpenShard { shard: Arc::clone(shard), lane, retired: None });
    }

    /// Records that another server has replaced the shard's server at the same address.
    pub(super) fn renew(&mut self, shard: &Arc<Shard>) {
        let lane = self.free_lane();
        let mut all = self.open.iter_mut();
        if let Some(open) = all.find(|open| Arc::ptr_eq(&open.shard, shard)) {
            open.lane = lane;
        }
    }

    fn free_lane(&self) -> u16 {
        let is_free = |lane: &u16| self.open.iter().all(|open| open.lane != *lane);
        (NO_SHARD + 1..).find(is_free).unwrap_or(NO_SHARD)
    }

    /// The lane of each slot.
    pub(super) fn lanes(&self) -> Lanes {
        let lane_of = |owner: &Option<Arc<Shard>>| {
            let owner = owner.as_ref()?;
            self.open.iter().find(|open| Arc::ptr_eq(&open.shard, owner)).map(|open| open.lane)
        };
        self.owners.iter().map(|owner| lane_of(owner).unwrap_or(NO_SHARD)).collect()
    }

    /// Assigns the slot to this shard. Returns whether it was unassigned or another shard's.
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

    /// Records a shard's reply: if the slot has moved, the reply's tokens and times apply to the
    /// new owner.
    pub(super) fn note_answer(&self, slot: u16, shard: &Arc<Shard>) {
        if let Some(owner) = self.owner(slot)
            && !Arc::ptr_eq(owner, shard)
        {
            owner.server_time.take_over(slot, &shard.server_time);
        }
    }

    /// Records which shards have no slot and are not a primary by `is_primary`. Returns the shards
    /// newly found so.
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

    /// Removes the shards replaced up to this moment: their last grants have been received.
    pub(super) fn retire(&mut self, before: Option<Instant>) -> Vec<Arc<Shard>> {
        let is_over =
            |open: &mut OpenShard| open.retired.is_some_and(|retired| Some(retired) <= before);
        self.open.extract_if(.., is_over).map(|open| open.shard).collect()
    }
}

fn serves(owners: &[Option<Arc<Shard>>], shard: &Arc<Shard>) -> bool {
    owners.iter().flatten().any(|owner| Arc::ptr_eq(owner, shard))
}
